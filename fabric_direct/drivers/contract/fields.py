"""Fields that a driver does not serve: each is refused by name, none is ignored."""

from collections.abc import Iterable

from fabric_direct.errors import InvalidSliver
from fabric_direct.model import Frozen, PciComponent, SmartNic


def refuse_fields(wanted: Frozen, unserved: Iterable[str], by: str, below: str = "") -> None:
    """Raise InvalidSliver if one of the ``unserved`` fields is set.

    :param by: what does not serve them, as in *is not available* ``on libvirt``.
    :param below: the path of ``wanted`` within the component, for example ``interface.``.
    """
    for name in unserved:
        if getattr(wanted, name):
            raise InvalidSliver(
                f"is not available {by}", field=f"{below}{name}", remedy="leave it out"
            )


def refuse_given(wanted: Frozen, unserved: Iterable[str], what: str, below: str) -> None:
    """Raise InvalidSliver if one of the ``unserved`` fields is given, whatever its value.

    :param what: what the error says of the field.
    :param below: the path of ``wanted`` within the sliver.
    """
    for name in unserved:
        if getattr(wanted, name) is not None:
            raise InvalidSliver(what, field=f"{below}.{name}")


def refuse_nic_fields(component: PciComponent, unserved: Iterable[str]) -> None:
    """Raise InvalidSliver if an interface of a whole NIC has one of the ``unserved`` fields."""
    for number, interface in enumerate(
        component.interfaces if isinstance(component, SmartNic) else ()
    ):
        refuse_fields(interface, unserved, "on a whole NIC", f"interfaces[{number}].")
