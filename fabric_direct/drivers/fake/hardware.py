"""The hardware of a host in memory: its capacity, devices and uplinks, as site.yaml gives them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from fabric_direct.drivers.contract import (
    BareMetalNode,
    HostCapacity,
    HostDevice,
    NodeCondition,
    NodePort,
    PciFunction,
)
from fabric_direct.model import DeviceState, PciAddress
from fabric_direct.site.config import AllowedDevice, FakeHostSettings, FakeNodeSettings

UPLINK = "ens1"
"""The uplink of a host that site.yaml gives VFs."""
_GPU_BUS, _NIC_BUS, _SECOND_NODE = 0x40, 0xA0, 0x80
_LISTED_VFS = 4
"""VFs of an uplink that the allow-list names, unless site.yaml gives the host a number."""
_IDS = {
    "GPU": ("10de", "20b7", "030200"),
    "SmartNIC": ("15b3", "101d", "020000"),
    "SharedNIC": ("15b3", "101e", "020000"),
    "FPGA": ("10ee", "5000", "120000"),
    "NVME": ("144d", "a808", "010802"),
}
"""Vendor, product and class of devices by resource type."""


class VfUplink(NamedTuple):
    """A NIC of the host whose VFs are passed through."""

    vfs: int
    mode: str
    """Its bridge mode: ``veb`` or ``vepa``."""
    model: str | None = None


def capacity(host: FakeHostSettings) -> HostCapacity:
    """Return the host's total capacity."""
    return HostCapacity(host.cores, host.ram * 1024, host.disk)


def bare_metal_node(name: str, has: FakeNodeSettings) -> BareMetalNode:
    """Return a node that is free and off."""
    return BareMetalNode(
        id=f"fake-{name}",
        name=name,
        condition=NodeCondition.FREE,
        state="available",
        power="off",
        resource_class=has.resource_class,
        traits=tuple(sorted(has.traits)),
        cores=has.cores,
        ram=has.ram * 1024,
        disk=has.disk,
        architecture="x86_64",
        ports=tuple(map(NodePort, sorted(has.macs))),
    )


def freed(node: BareMetalNode) -> BareMetalNode:
    """Return a node as it is when nobody has it."""
    free = replace(node, condition=NodeCondition.FREE, state="available", power="off", why="")
    return replace(free, tenant=None, sliver=None, stamp=None)


def devices(
    host: FakeHostSettings, allowed: Sequence[AllowedDevice] = ()
) -> dict[PciAddress, HostDevice]:
    """Return the host's GPUs, and its uplinks with their VFs, on NUMA nodes 0 and 1 in turn.

    :param allowed: the allow-list of the host: it has the functions and uplinks that this names, too.
    """
    numbered = enumerate(uplinks(host, allowed).items())
    nics = (_nic(name, uplink, n) for n, (name, uplink) in numbered)
    found = (*_listed(allowed), *_gpus(host.gpus), *chain.from_iterable(nics))
    return _grouped({device.address: device for device in found})


def _grouped(found: dict[PciAddress, HostDevice]) -> dict[PciAddress, HostDevice]:
    """Return devices with their IOMMU groups: a VF has one of its own, other functions their slot's."""
    members: dict[PciAddress, list[PciAddress]] = {}
    for address, device in sorted(found.items()):
        first = address if device.function.physical else address.slot_address
        members.setdefault(first, []).append(address)
    for number, group in enumerate(members.values(), 1):
        for address in group:
            function = replace(found[address].function, iommu_group=number)
            peers = tuple(other for other in group if other != address)
            found[address] = replace(found[address], function=function, peers=peers)
    return found


def uplinks(host: FakeHostSettings, allowed: Sequence[AllowedDevice] = ()) -> dict[str, VfUplink]:
    """Return the host's uplinks by name: the one that it is given, and those that the list names."""
    own = {UPLINK: VfUplink(host.vfs, "vepa")} if host.vfs else {}
    listed = {
        entry.uplink: VfUplink(
            vfs=host.vfs or _LISTED_VFS,
            mode="vepa" if entry.vepa or entry.uplink in own else "veb",
            model=entry.model,
        )
        for entry in allowed
        if entry.uplink
    }
    return own | listed


def _listed(allowed: Iterable[AllowedDevice]) -> Iterator[HostDevice]:
    """Yield what the list names; buses from 80 on are NUMA node 1's."""
    for entry in allowed:
        if entry.bdf:
            function = _function(entry.bdf, entry.type, int(entry.bdf.bus >= _SECOND_NODE))
            yield HostDevice(function, DeviceState.FREE, type=entry.type, model=entry.model)


def _gpus(number: int) -> Iterator[HostDevice]:
    for n in range(number):
        function = _function(PciAddress(0, _GPU_BUS + n, 0, 0), "GPU", n % 2)
        yield HostDevice(function, DeviceState.FREE, type="GPU", model="A30")


def _nic(name: str, uplink: VfUplink, n: int) -> Iterator[HostDevice]:
    """Yield an uplink, which the host keeps, and its VFs, which are on the next bus."""
    bus = _NIC_BUS + 2 * n
    pf = _function(PciAddress(0, bus, 0, 0), "SmartNIC", n % 2)
    vfs = tuple(PciAddress(0, bus + 1, v // 8, v % 8) for v in range(uplink.vfs))
    pf = replace(pf, virtual=vfs, links=(name,), link_up=True)
    yield HostDevice(pf, DeviceState.NOT_ALLOWED, bridge_mode=uplink.mode)
    for v, address in enumerate(vfs):
        vf = _function(address, "SharedNIC", n % 2)
        vf = replace(vf, bridge=pf.bridge, physical=pf.address, vf=v)
        yield HostDevice(vf, DeviceState.FREE, type="SharedNIC", model=uplink.model, uplink=name)


def _function(address: PciAddress, kind: str, node: int) -> PciFunction:
    """Return a function that is alone behind its root port."""
    bridge = PciAddress(0, 0, address.bus >> 3, address.bus & 7)
    return PciFunction(address, *_IDS[kind], numa_node=node, bridge=bridge)


def given(host: FakeHostSettings) -> tuple[AllowedDevice, ...]:
    """Return what a host is given, as entries of an allow-list."""
    gpus = (AllowedDevice(type="GPU", model=d.model, bdf=d.address) for d in _gpus(host.gpus))
    uplinks = (AllowedDevice(type="SharedNIC", uplink=UPLINK),) if host.vfs else ()
    return (*gpus, *uplinks)
