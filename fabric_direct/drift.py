"""Which slivers differ from their stamps, at a whole site, by listings.

Servers, ports and volumes are listed once for a cloud or for each host without one; domains, devices and
uplinks once for each host. So the number of requests grows with hosts, not with slivers. Guests are not
looked into: each would cost requests of its own.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from fabric_direct.config import Site
from fabric_direct.drivers.contract import (
    Belongings,
    DeviceDriver,
    HostDrivers,
    PluggedVolume,
    Port,
    Server,
    Volume,
)
from fabric_direct.engine import attempt_each
from fabric_direct.handlers.compare import differences, down, switched_off
from fabric_direct.handlers.observation import observed_interface, tenant_of
from fabric_direct.model import (
    NodeSliver,
    Observed,
    ObservedVolume,
    SliverRef,
    State,
    Storage,
)
from fabric_direct.placement.inventory import DriversOf

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Drift:
    """A sliver that differs from its stamp."""

    sliver: SliverRef
    host: str
    differences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SiteDrift:
    """What differs at a site."""

    drifts: tuple[Drift, ...]
    """The slivers that differ, by id."""
    servers: tuple[Server, ...]
    """The servers that were compared."""
    silent: Mapping[str, Exception]
    """Hosts that could not be read, and why: what is on them, or their part of it, was not compared."""


def site_drift(site: Site, drivers_of: DriversOf) -> SiteDrift:
    """Compare all slivers of a site with their stamps.

    :param drivers_of: returns the drivers of a host, or of the cloud for an empty name.
    :raises FabricDirectError: if the cloud cannot be read.
    """
    listings, silent = _listings(site, drivers_of)
    there = [
        _Found(s, s.host or host, each) for host, each in listings.items() for s in each.servers
    ]
    found, unread = _each(_with_devices(site, there), lambda h: _devices(drivers_of(h), there, h))
    every = {each.server.sliver: tuple(_unlike(each, found.get(each.host, {}))) for each in there}
    hosts = {each.server.sliver: each.host for each in there}
    drifts = (
        Drift(SliverRef(id=s), hosts[s], unlike) for s, unlike in sorted(every.items()) if unlike
    )
    return SiteDrift(tuple(drifts), tuple(each.server for each in there), {**silent, **unread})


def _listings(
    site: Site, drivers_of: DriversOf
) -> "tuple[dict[str, _Listing], dict[str, Exception]]":
    if drivers_of(next(iter(site.hosts), "")).compute.cloud:
        return {"": _listing(drivers_of(""))}, {}
    return _each(site.hosts, lambda host: _listing(drivers_of(host)))


def _each(
    hosts: Collection[str], read: Callable[[str], T]
) -> tuple[dict[str, T], dict[str, Exception]]:
    """Read hosts in parallel; return what they said, and the errors of those that could not be read."""
    answers = attempt_each(read, hosts)
    errors = {host: a for host, a in answers.items() if isinstance(a, Exception)}
    return {h: a for h, a in answers.items() if not isinstance(a, Exception)}, errors


@dataclass(frozen=True, slots=True)
class _Listing:
    """What a cloud, or a host without one, has of all slivers."""

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


@dataclass(frozen=True, slots=True)
class _Found:
    """A server, and where it was listed."""

    server: Server
    host: str
    listing: _Listing


def _with_devices(site: Site, there: Collection[_Found]) -> list[str]:
    """Return the hosts that have servers, and may pass devices through to them."""
    having = {each.host for each in there}
    return [host for host in site.hosts if host in having and site.passes_devices(host)]


def _devices(
    drivers: HostDrivers, there: Collection[_Found], host: str
) -> dict[str, tuple[str, ...]]:
    """Return the differences in domains and devices of one host, by sliver."""
    unlike: dict[str, tuple[str, ...]] = {}
    for number, driver in enumerate(drivers.devices.values()):
        every = [_belongings(drivers, driver, each) for each in there if each.host == host]
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


def _unlike(found: _Found, devices: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """Yield where a server is not what its stamp says; one that somebody stopped may be off."""
    server, has = found.server, _observed(found)
    wanted = _but_devices(server.stamp.sliver)
    yield from differences(wanted, has, runs=has.state is not State.STOPPED)
    yield from (*switched_off(has), *down(has))
    yield from _other_disks(wanted, found)
    yield from devices.get(server.sliver, ())


def _but_devices(sliver: NodeSliver) -> NodeSliver:
    gone = sliver.devices()
    kept = tuple(component for component in sliver.components if component not in gone)
    return sliver.model_copy(update={"components": kept})


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
