"""The kinds of drivers, and what the contract of each says of its methods."""

from collections.abc import Mapping
from inspect import get_annotations

from fabric_direct.calls.reading import Reading, reading
from fabric_direct.drivers.contract.adoption import AdoptionDriver
from fabric_direct.drivers.contract.bare_metal import BareMetalDriver
from fabric_direct.drivers.contract.compute import ComputeDriver
from fabric_direct.drivers.contract.devices import DeviceDriver
from fabric_direct.drivers.contract.guests import GuestDriver
from fabric_direct.drivers.contract.network_services import ServiceController, ServiceDriver
from fabric_direct.drivers.contract.networks import NetworkDriver
from fabric_direct.drivers.contract.tuning import TuningDriver
from fabric_direct.drivers.contract.uplinks import UplinkDriver
from fabric_direct.drivers.contract.volumes import VolumeDriver

KINDS: Mapping[str, type] = {
    "compute": ComputeDriver,
    "network": NetworkDriver,
    "volume": VolumeDriver,
    "service": ServiceDriver,
    "device": DeviceDriver,
    "guest": GuestDriver,
    "tuning": TuningDriver,
    "uplink": UplinkDriver,
}
"""The kinds of drivers, by their groups of entry points, with what each promises."""

_MORE: Mapping[str, tuple[type, ...]] = {
    "adoption": (AdoptionDriver,),
    "service": (ServiceController, BareMetalDriver),
}
"""What some drivers promise beside that."""


def promised(protocol: type) -> frozenset[str]:
    """Return the methods and attributes that a protocol has, with those that it inherits."""
    bases = [base for base in protocol.__mro__ if base.__module__.startswith(__package__)]
    names = (name for base in bases for name in {*vars(base), *get_annotations(base)})
    return frozenset(name for name in names if not name.startswith("_"))


def marks(kind: str) -> Reading:
    """Return which methods of a kind of driver change nothing: none of a kind that has no contract."""
    own = KINDS.get(kind)
    return reading(*filter(None, (own, *_MORE.get(kind, ()))))
