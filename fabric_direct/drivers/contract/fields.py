"""Fields that a driver does not serve: each is refused by name, none is ignored."""

from collections.abc import Iterable

from fabric_direct.errors import InvalidSliver
from fabric_direct.model import Frozen


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
