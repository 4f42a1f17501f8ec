"""Which slivers differ from their stamps, at a whole site, by listings.

Servers, ports and volumes are listed once for a cloud or for each host without one; domains, devices and
uplinks once for each host. So the number of requests grows with hosts, not with VMs. Guests are not
looked into: each would cost requests of its own. Network services have no listing that says how they
are: each is compared by itself.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace

from fabric_direct.drivers.contract import (
    Belongings,
    DeviceDriver,
    HostDrivers,
    PluggedVolume,
    Port,
    Server,
    Volume,
)
from fabric_direct.engine.run import attempt, attempt_each
from fabric_direct.handlers.vm.differences import differences, down, switched_off
from fabric_direct.handlers.vm.observe import observed_interface, tenant_of
from fabric_direct.model import (
    NodeSliver,
    Observed,
    ObservedVolume,
    SliverRef,
    State,
    Storage,
)
from fabric_direct.placement.inventory import DriversOf
from fabric_direct.site.config import Site
from fabric_direct.upkeep.service_drift import ServiceDrift


@dataclass(frozen=True, slots=True)
class Drift:
    """A sliver that differs from its stamp."""

    sliver: SliverRef
    host: str
    """Empty for a network service: it is on none."""
    differences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SiteDrift:
    """The slivers of a site that differ from their stamps, and what could not be read."""

    drifts: tuple[Drift, ...]
    """The slivers that differ, by id."""
    servers: tuple[Server, ...]
    """The servers that were compared."""
    silent: Mapping[str, Exception]
    """Hosts that could not be read, and why: what is on them, or their part of it, was not compared. So
    are types of network services whose driver does not answer, and single ones (``L2STS net-1``)."""
    services: tuple[SliverRef, ...] = ()
    """The network services that were compared."""
    unknown: tuple[SliverRef, ...] = ()
    """The network services that were not: nothing says what they should be."""


def site_drift(
    site: Site,
    drivers_of: DriversOf,
    services: Callable[[], ServiceDrift] | None,
    only: Collection[str] | None = None,
) -> SiteDrift:
    """Compare all slivers of a site with their stamps.

    :param drivers_of: returns the drivers of a host, or of the cloud for an empty name.
    :param services: compares the network services, beside the servers; they are left out if it is None.
    :param only: look at these hosts; at all by default.
    :raises FabricDirectError: if the cloud cannot be read.
    """
    if services is None:
        return _server_drift(site, drivers_of, only)
    with ThreadPoolExecutor(1, "fabric-direct-services") as pool:
        beside = pool.submit(copy_context().run, services)
        drift, found = _server_drift(site, drivers_of, only), beside.result()
    differ = [Drift(ref, "", unlike) for ref, unlike in found.compared.items() if unlike]
    return replace(
        drift,
        drifts=tuple(sorted((*drift.drifts, *differ), key=lambda drift: drift.sliver.id)),
        silent={**drift.silent, **found.silent},
        services=tuple(found.compared),
        unknown=found.unknown,
    )


def _server_drift(site: Site, drivers_of: DriversOf, only: Collection[str] | None) -> SiteDrift:
    every, listing_of = _listings(site, drivers_of)
    hosts = [host for host in every if only is None or host in only]
    answers = attempt_each(lambda h: _look(site, drivers_of, h, listing_of(h)), hosts)
    silent = {host: answer for host, answer in answers.items() if isinstance(answer, Exception)}
    looks = {host: answer for host, answer in answers.items() if isinstance(answer, _Look)}
    # Here and not beside each other: threads that compute hold each other up.
    drifts = [
        Drift(each.server.stamp.sliver.ref(), each.host, unlike)
        for look in looks.values()
        for each in look.there
        if (unlike := (*_unlike(each), *look.devices.get(each.server.sliver, ())))
    ]
    return SiteDrift(
        tuple(sorted(drifts, key=lambda drift: drift.sliver.id)),
        tuple(each.server for look in looks.values() for each in look.there),
        {**silent, **{host: look.error for host, look in looks.items() if look.error}},
    )


@dataclass(frozen=True, slots=True)
class _Listing:
    """The servers, ports and volumes of all slivers in a cloud, or on a host without one."""

    servers: tuple[Server, ...]
    ports: Mapping[tuple[str, str], Port]
    volumes: Mapping[tuple[str, str], Volume]
    cloud: bool


def _listing(drivers: HostDrivers) -> _Listing:
    servers = drivers.compute.servers()
    ports = drivers.network.all_ports() if servers else ()
    volumes = drivers.volume.all_volumes() if any(s.volumes for s in servers) else ()
    return _Listing(
        servers,
        {(port.sliver, port.component): port for port in ports},
        {(volume.sliver, volume.component): volume for volume in volumes},
        drivers.compute.cloud,
    )


def _listings(
    site: Site, drivers_of: DriversOf
) -> tuple[Collection[str], Callable[[str], _Listing]]:
    """Return the hosts to look at, and what lists a host; a cloud is listed once for all of them."""
    if not drivers_of(next(iter(site.hosts), "")).compute.cloud:
        return site.hosts, lambda host: _listing(drivers_of(host))
    whole, on = _listing(drivers_of("")), dict[str, list[Server]]()
    for server in whole.servers:
        on.setdefault(server.host, []).append(server)
    return on, lambda host: replace(whole, servers=tuple(on[host]))


@dataclass(frozen=True, slots=True)
class _Look:
    """The servers and the differences in devices found on a host."""

    there: "tuple[_Found, ...]"
    devices: Mapping[str, tuple[str, ...]]
    """The differences in devices of each sliver."""
    error: Exception | None
    """Why its devices could not be read."""


def _look(site: Site, drivers_of: DriversOf, host: str, listing: _Listing) -> _Look:
    there = tuple(_Found(server, host, listing) for server in listing.servers)
    passes = there and host in site.hosts and site.passes_devices(host)
    found = attempt(lambda: _devices(drivers_of(host), there)) if passes else {}
    return _Look(there, {}, found) if isinstance(found, Exception) else _Look(there, found, None)


@dataclass(frozen=True, slots=True)
class _Found:
    """A server, and where it was listed."""

    server: Server
    host: str
    listing: _Listing


def _devices(drivers: HostDrivers, there: Collection[_Found]) -> dict[str, tuple[str, ...]]:
    """Return the differences in domains and devices of one host, by sliver.

    :param there: the servers of the host.
    """
    unlike: dict[str, tuple[str, ...]] = {}
    for number, driver in enumerate(dict.fromkeys(drivers.devices.values())):
        every = [_belongings(drivers, driver, each) for each in there]
        # Each says the same of domains; the first is asked for all of them.
        asked = [each for each in every if each.components or not number]
        for sliver, texts in driver.survey(asked).items() if asked else ():
            unlike[sliver] = tuple(dict.fromkeys((*unlike.get(sliver, ()), *texts)))
    return unlike


def _belongings(drivers: HostDrivers, driver: DeviceDriver, found: _Found) -> Belongings:
    """Return what a server has of a driver's devices."""
    server = found.server
    return Belongings(
        tenant_of(drivers, server),
        server.domain if found.listing.cloud else None,
        tuple(d for d in server.stamp.sliver.devices() if drivers.device(d) is driver),
    )


def _unlike(found: _Found) -> Iterator[str]:
    """Yield where a server is not what its stamp says, but for its devices; a stopped one may be off."""
    server, has = found.server, _observed(found)
    wanted = server.stamp.sliver
    yield from differences(wanted, has, runs=has.state is not State.STOPPED, devices=False)
    yield from (*switched_off(has), *down(has))
    yield from _other_disks(wanted, found)


def _observed(found: _Found) -> Observed:
    """Return what the listings say of a server, without its devices and its guest."""
    server, listing = found.server, found.listing
    return Observed(
        state=server.state,
        host=found.host,
        instance=server.instance,
        flavor=server.flavor,
        cores=server.cores,
        ram=server.ram,
        interfaces=tuple(
            observed_interface(nic, listing.ports.get((server.sliver, nic.component)))
            for nic in server.ports
        ),
        volumes=tuple(_volume(found, disk) for disk in server.volumes),
    )


def _volume(found: _Found, disk: PluggedVolume) -> ObservedVolume:
    own = found.listing.volumes.get((found.server.sliver, disk.component))
    size = own.size if own else 0
    return ObservedVolume(
        component=disk.component, source=disk.source, target=disk.target, size=size
    )


def _other_disks(wanted: NodeSliver, found: _Found) -> Iterator[str]:
    """Yield the disks of own volumes that are others; present volumes are known by their component."""
    sources = {disk.component: disk.source for disk in found.server.volumes}
    for storage in (each for each in wanted.volumes() if _is_own(each) and each.id in sources):
        own = found.listing.volumes.get((wanted.id, storage.id))
        if own is None or own.source != sources[storage.id]:
            yield f"volume {storage.id} is {sources[storage.id]}, not its own"


def _is_own(storage: Storage) -> bool:
    return storage.size is not None
