"""Capacity, devices and usage of a host in memory."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from fabric_direct.config import AllocationRatios, AllowedDevice, FakeHost
from fabric_direct.drivers.contract import (
    HostCapacity,
    HostDevice,
    HostInventory,
    HostNode,
    PciFunction,
)
from fabric_direct.errors import Conflict
from fabric_direct.model import Capacities, DeviceState, PciAddress

if TYPE_CHECKING:
    from fabric_direct.drivers.fake.substrate import Substrate

UPLINK = "ens1"
_GPU_BUS, _NIC_BUS = 0x40, 0xA0


def capacity(host: FakeHost) -> HostCapacity:
    """Return the host's total capacity."""
    return HostCapacity(host.cores, host.ram * 1024, host.disk)


def devices(host: FakeHost, allowed: Iterable[AllowedDevice] = ()) -> dict[PciAddress, HostDevice]:
    """Return the host's GPUs, on NUMA nodes 0 and 1 in turn, and its uplink's VFs, on node 0.

    :param allowed: the allow-list of the host: it has the functions that this names, too.
    """
    found = (*_listed(allowed), *_gpus(host.gpus), *_vfs(host.vfs))
    return {device.address: device for device in found}


def _listed(allowed: Iterable[AllowedDevice]) -> Iterator[HostDevice]:
    for entry in allowed:
        if entry.bdf:
            function = PciFunction(entry.bdf, vendor="1234", product="0001", numa_node=0)
            yield HostDevice(function, DeviceState.FREE, type=entry.type, model=entry.model)


def _gpus(number: int) -> Iterator[HostDevice]:
    for n in range(number):
        address = PciAddress(0, _GPU_BUS + n, 0, 0)
        function = PciFunction(address, "10de", "20b7", kind="030200", numa_node=n % 2)
        yield HostDevice(function, DeviceState.FREE, type="GPU", model="A30")


def _vfs(number: int) -> Iterator[HostDevice]:
    for n in range(number):
        address = PciAddress(0, _NIC_BUS + 1, n // 8, n % 8)
        physical = PciAddress(0, _NIC_BUS, 0, 0)
        function = PciFunction(address, "15b3", "101e", numa_node=0, physical=physical, vf=n)
        yield HostDevice(function, DeviceState.FREE, type="SharedNIC", uplink=UPLINK)


def given(host: FakeHost) -> tuple[AllowedDevice, ...]:
    """Return what a host is given, as entries of an allow-list."""
    gpus = (AllowedDevice(type="GPU", model=d.model, bdf=d.address) for d in _gpus(host.gpus))
    uplinks = (AllowedDevice(type="SharedNIC", uplink=UPLINK),) if host.vfs else ()
    return (*gpus, *uplinks)


def inventory(things: "Substrate", host: str) -> HostInventory:
    """Return the host's capacity, on two NUMA nodes, and what its servers use."""
    has, taken = things.capacity, _taken(things)
    return HostInventory(
        host=host,
        cores=has.cores,
        ram=has.ram,
        disk=has.disk,
        cores_used=taken.cores,
        ram_used=taken.ram,
        disk_used=taken.disk,
        nodes=(_node(has, 0), _node(has, 1)),
        architectures=frozenset({"x86_64"}),
        traits=things.traits,
        images=frozenset(things.images) if things.images is not None else None,
        slivers={sliver: s.stamp.sliver.owner for sliver, s in things.servers.items()},
    )


def _node(has: HostCapacity, number: int) -> HostNode:
    cores = len(range(number, has.cores, 2))
    return HostNode(number, cores, has.ram // 2, {number: 10, 1 - number: 20})


def _taken(things: "Substrate", but: str | None = None) -> HostCapacity:
    """Return what servers and volumes take, leaving the server of one sliver out."""
    servers = [server for sliver, server in things.servers.items() if sliver != but]
    volumes = sum(volume.size for volume in things.volumes.values())
    return HostCapacity(
        cores=sum(server.cores for server in servers),
        ram=sum(server.ram for server in servers),
        disk=sum(s.stamp.sliver.capacities.disk for s in servers) + volumes,
    )


def refuse_full(
    things: "Substrate", wants: Capacities, sliver: str, ratios: AllocationRatios
) -> None:
    """Raise Conflict unless there is room for a sliver's server beside the others."""
    has, taken = things.capacity, _taken(things, but=sliver)
    left = {
        "cores": (wants.core, has.cores * ratios.cpu - taken.cores),
        "MiB of RAM": (wants.ram * 1024, has.ram * ratios.ram - taken.ram),
        "GiB of disk": (wants.disk, has.disk * ratios.disk - taken.disk),
    }
    for what, (wanted, free) in left.items():
        if wanted > free:
            raise Conflict(
                f"there is no room for {wanted} {what}",
                why=f"{max(0, free):.0f} are left",
                remedy="name another host, or have one chosen (host: auto)",
            )
