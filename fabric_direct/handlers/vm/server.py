"""The server of a sliver, which each operation begins with."""

from functools import partial

from fabric_direct.calls.deadline import at_once
from fabric_direct.drivers.contract import DeviceDomain, HostDrivers, Server
from fabric_direct.errors import Conflict, NotFound
from fabric_direct.handlers.vm.observe import tenant_of


def server_of(drivers: HostDrivers, sliver_id: str) -> Server:
    """Return the server.

    :raises NotFound: if it is not there.
    :raises Conflict: if its adoption is unfinished.
    """
    server = drivers.compute.find(sliver_id)
    if server is None:
        raise NotFound(f"sliver {sliver_id} is not there", where=drivers.host)
    refuse_unfinished(server)
    return server


def refuse_unfinished(server: Server | None) -> None:
    """Raise Conflict if a server's adoption is unfinished: a part of it may bear no stamp."""
    if server is not None and server.unfinished:
        why = "something that belongs to it may not bear its stamp yet"
        raise unfinished(server.sliver, why, server.instance)


def unfinished(sliver_id: str, why: str, where: str = "") -> Conflict:
    """Return the error of a sliver whose adoption is unfinished."""
    return Conflict(
        f"the adoption of sliver {sliver_id} is unfinished",
        where=where,
        why=why,
        remedy="adopt it again, or run `fabric-direct recover`",
    )


def tenant_now(drivers: HostDrivers, sliver_id: str) -> DeviceDomain:
    """Return whom the sliver's devices are passed through to, as found now."""
    server = drivers.compute.find(sliver_id)
    return tenant_of(drivers, server) if server else DeviceDomain(sliver_id)


def read_ahead(drivers: HostDrivers, sliver_id: str) -> None:
    """Ask a cloud at once for what is asked for one after the other: the read cache keeps it."""
    if drivers.compute.cloud:
        at_once(
            partial(drivers.network.ports, sliver_id), partial(drivers.volume.volumes, sliver_id)
        )
