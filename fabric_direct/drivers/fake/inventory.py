"""The inventory of a host in memory: what its servers and volumes use of it."""

from fabric_direct.drivers.contract import (
    HostCapacity,
    HostInventory,
    HostNode,
)
from fabric_direct.drivers.fake.state import SubstrateState
from fabric_direct.errors import Conflict
from fabric_direct.model import Capacities
from fabric_direct.site.config import AllocationRatios


def inventory(things: SubstrateState, host: str) -> HostInventory:
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


def _taken(things: SubstrateState, but: str | None = None) -> HostCapacity:
    """Return what servers and volumes take, leaving the server of one sliver out."""
    servers = [server for sliver, server in things.servers.items() if sliver != but]
    volumes = sum(volume.size for volume in things.volumes.values())
    return HostCapacity(
        cores=sum(server.cores for server in servers),
        ram=sum(server.ram for server in servers),
        disk=sum(s.stamp.sliver.capacities.disk for s in servers) + volumes,
    )


def refuse_full(
    things: SubstrateState, wants: Capacities, sliver: str, ratios: AllocationRatios
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
