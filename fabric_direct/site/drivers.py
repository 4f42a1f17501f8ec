"""What ``drivers`` of site.yaml may name: resource types, and what hosts have, each with its kind."""

from collections.abc import Iterable, Mapping
from typing import Final

from fabric_direct.model.services import SERVICES
from fabric_direct.site import installed

DEVICE_TYPES: Final = ("GPU", "SmartNIC", "SharedNIC", "FPGA", "NVME")
"""Types of PCI devices; of these alone a hardware model may be named: ``Type_Model``."""
NONE: Final = "none"
"""As the driver for guests: the site looks into none. As that for ``Storage``: it has no volumes."""
_KINDS: Mapping[str, str] = {
    "VM": "compute",
    "vNIC": "network",
    "Storage": "volume",
    "tuning": "tuning",
    "uplink": "uplink",
    **dict.fromkeys(DEVICE_TYPES, "device"),
    **dict.fromkeys((*SERVICES, "Switch", "BareMetal"), "service"),
}


def driven_types() -> tuple[str, ...]:
    """Return the keys that ``drivers`` of site.yaml may have; a device's also with a model."""
    return tuple(sorted({*installed.names("handlers"), *_KINDS}))


def check_type(key: str) -> str:
    """Return a key of ``drivers``: a type, or a device's with its model.

    :raises ValueError: if it is neither.
    """
    known, (kind, _, model) = driven_types(), key.partition("_")
    if key in known or (model and kind in DEVICE_TYPES):
        return key
    if kind in known:
        raise ValueError("only devices have models: GPU_A30, for example")
    raise ValueError(f"unknown resource type{_meant(kind, known)}")


def check_drivers(drivers: dict[str, str]) -> dict[str, str]:
    """Return ``drivers``, whose keys are checked.

    :raises ValueError: if a driver is not installed. The message begins with the key.
    """
    for key, name in drivers.items():
        kind = _KINDS.get(key.partition("_")[0])
        none = (NONE,) if key == "Storage" else ()
        if kind and name not in none and (why := _absent(kind, name, *none)):
            raise ValueError(f"{key}: {why}")
    return drivers


def check_guest(name: str) -> str:
    """Return the name of a driver for guests.

    :raises ValueError: if it is not installed.
    """
    if name != NONE and (why := _absent("guest", name, NONE)):
        raise ValueError(why)
    return name


def check_service(name: str) -> str:
    """Return the name of a driver of network services.

    :raises ValueError: if it is not installed.
    """
    if why := _absent("service", name):
        raise ValueError(why)
    return name


def _absent(kind: str, name: str, *others: str) -> str:
    """Return that a driver is not installed; empty if it is."""
    known = installed.names(kind)
    return "" if name in known else f"no {kind} driver {name!r}{_meant(name, (*known, *others))}"


def _meant(word: str, known: Iterable[str]) -> str:
    from fabric_direct.documents.reasons import meant  # noqa: PLC0415 - see load_site

    return meant(word, list(known))
