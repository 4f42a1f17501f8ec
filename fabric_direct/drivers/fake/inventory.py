"""What a host in memory has, what is taken of it, and what it has no room for."""

from fabric_direct.config import AllocationRatios
from fabric_direct.drivers.contract import HostCapacity, HostInventory, HostNode
from fabric_direct.drivers.fake.substrate import Substrate
from fabric_direct.errors import Conflict
from fabric_direct.model import Capacities


def inventory(things: Substrate, host: str) -> HostInventory:
    """Return what the host has in all, on two NUMA nodes, and what its servers take of it."""
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


def _taken(things: Substrate, but: str | None = None) -> HostCapacity:
    """Return what servers and volumes take, leaving the server of one sliver out."""
    servers = [server for sliver, server in things.servers.items() if sliver != but]
    volumes = sum(volume.size for volume in things.volumes.values())
    return HostCapacity(
        cores=sum(server.cores for server in servers),
        ram=sum(server.ram for server in servers),
        disk=sum(s.stamp.sliver.capacities.disk for s in servers) + volumes,
    )


def refuse_full(
    things: Substrate, wants: Capacities, sliver: str, ratios: AllocationRatios
) -> None:
    """Return if there is room for a sliver's server beside the others.

    :raises Conflict: if there is not.
    """
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
