"""Hosts and requests, as the tests of placement are about them."""

from typing import Any

from fabric_direct.model import Capacities, PciAddress, PlacementRules
from fabric_direct.placement.request import DeviceNeed, Needs, Request
from fabric_direct.placement.state import FreeDevice, HostState, NumaNode

BOTH = (
    NumaNode(0, 32, 128.0, {0: 10, 1: 21}),
    NumaNode(1, 32, 128.0, {0: 21, 1: 10}),
)
"""Two NUMA nodes that make up a host of 64 cores and 256 GiB."""


def host(name: str = "w1", **changes: Any) -> HostState:
    """Return a host of 64 cores, 256 GiB of RAM and 4000 GiB of disk, unless told otherwise."""
    return HostState(**({"name": name, "cores": 64, "ram": 256.0, "disk": 4000.0} | changes))


def at(text: str) -> tuple[PciAddress, ...]:
    """Return the functions, given as ``25:00.0 25:00.1``."""
    return tuple(PciAddress.parse(word) for word in text.split())


def gpu(functions: str, model: str | None = "A30", node: int | None = None) -> FreeDevice:
    """Return a free GPU."""
    return FreeDevice("GPU", at(functions), model, node)


def vf(
    function: str, uplink: str = "ens1", *, vepa: bool = False, node: int | None = None
) -> FreeDevice:
    """Return a free VF."""
    return FreeDevice("SharedNIC", at(function), "ConnectX-6", node, uplink, vepa)


def need(component: str = "d1", type_: str = "GPU", **changes: Any) -> DeviceNeed:
    """Return the need of one device."""
    return DeviceNeed(component=component, type=type_, **changes)


def needs(core: int = 2, ram: int = 4, disk: int = 10, **changes: Any) -> Needs:
    """Return needs; those of ``PlacementRules`` may be given by their names."""
    rules = {key: changes.pop(key) for key in PlacementRules.model_fields.keys() & changes.keys()}
    size = Capacities(core=core, ram=ram, disk=disk)
    usual = {"image": "ubuntu", "capacities": size, "rules": PlacementRules(**rules)}
    return Needs(**(usual | changes))


def request(id_: str = "r1", *sizes: int, **changes: Any) -> Request:
    """Return a request."""
    return Request(id=id_, needs=needs(*sizes, **changes))
