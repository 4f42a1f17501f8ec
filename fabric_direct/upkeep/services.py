"""The network services of a site, and ports in servers, by what the drivers that serve them list."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from fabric_direct.drivers.contract import HostDrivers, Service, ServiceDriver
from fabric_direct.engine.run import attempt_each
from fabric_direct.model import Observed, SliverRef

_TYPES = {"network": "L2Bridge", "router": "L2Bridge"}
"""The types of slivers by the kinds of what is stamped, where these differ."""


@dataclass(frozen=True, slots=True)
class SiteService:
    """A network service that carries the stamp of a sliver."""

    ref: SliverRef
    service: Service | None
    """None if not all of it is there."""


@dataclass(frozen=True, slots=True)
class SitePorts:
    """Ports that ``vNICPorts`` have in the servers of others, or that a VM without a server has."""

    ref: SliverRef
    observed: Observed


@dataclass(frozen=True, slots=True)
class SiteServices:
    """The network services of a site."""

    found: tuple[SiteService, ...]
    """By id."""
    silent: Mapping[str, Exception]
    """The types of services whose driver did not answer, and why."""


def site_services(
    drivers: HostDrivers, booked: Callable[[str], str], kinds: Collection[str] = ()
) -> SiteServices:
    """Return the network services that the drivers list.

    :param drivers: of any host: services are on none.
    :param booked: returns the type of a sliver by the books, or nothing. What is there may tell another
        one, once somebody has changed it.
    :param kinds: resource types: only their drivers are asked, and only their services are returned. All
        if none is named.
    """
    serving: dict[int, list[str]] = {}
    for served, driver in drivers.services.items():
        serving.setdefault(id(driver), []).append(served)
    asked = [each for each in serving.values() if not kinds or not set(kinds).isdisjoint(each)]
    named = {", ".join(each): drivers.services[each[0]] for each in asked}
    types = drivers.services.keys()
    answers = attempt_each(lambda name: tuple(_services(named[name], types, booked)), named)
    there = [
        service
        for each in answers.values()
        if not isinstance(each, Exception)
        for service in each
        if not kinds or service.ref.type in kinds
    ]
    return SiteServices(
        tuple(sorted(there, key=lambda service: service.ref.id)),
        {name: each for name, each in answers.items() if isinstance(each, Exception)},
    )


def port_slivers(drivers: HostDrivers, servers: Collection[str]) -> tuple[SliverRef, ...]:
    """Return the slivers whose ports are on a host, or in a cloud, and that have no server of their own.

    :param servers: the slivers of all servers.
    """
    made = (*drivers.network.stamped(), *drivers.compute.stamped())
    holders = {thing.sliver for thing in made if thing.kind in {"port", "NIC"}}
    return tuple(
        SliverRef(id=sliver, type="vNICPorts")
        for sliver in sorted(holders.difference(servers, {""}))
    )


def _services(
    driver: ServiceDriver, types: Collection[str], booked: Callable[[str], str]
) -> Iterator[SiteService]:
    kinds = {thing.sliver: thing.kind for thing in driver.stamped() if thing.sliver}
    for sliver, kind in kinds.items():
        found, noted = driver.find(sliver), booked(sliver)
        told = (found.resource_type if found else "") or _TYPES.get(kind, kind)
        named = noted if noted in types else told
        yield SiteService(SliverRef(id=sliver, type=named or "L2Bridge"), found)
