"""The networks of a site at one moment: services and networks of site.yaml, and which NICs meet them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from fabric_direct.drivers.contract import Server, Service
from fabric_direct.model import ObservedInterface
from fabric_direct.model.references import interfaces_of
from fabric_direct.model.services import NetworkService, ServiceInterface
from fabric_direct.site.config import Site
from fabric_direct.topology.values import Join, Network, ServiceConnection
from fabric_direct.upkeep.services import SiteService, SiteServices

NETWORK = "network"
"""The type of a network of site.yaml, or of the cloud, that is no sliver."""

Part = tuple[str, str, int]
"""A sliver, its component, and the number of that one's interface."""


@dataclass(frozen=True, slots=True)
class Joins:
    """Which NICs meet which networks, by the stamps of both ends."""

    of: Mapping[Part, tuple[Join, ...]]

    def slivers(self, network: str) -> frozenset[str]:
        """Return the slivers that have a NIC on a network."""
        return frozenset(
            sliver for (sliver, _, _), joins in self.of.items() if network in _networks(joins)
        )

    def networks(self, sliver: str) -> tuple[str, ...]:
        """Return the networks of a sliver's NICs, each as often as it has one there."""
        return tuple(
            join.network
            for (each, _, _), joins in self.of.items()
            if each == sliver
            for join in joins
        )

    def ends(self, network: str) -> dict[str, tuple[str, str]]:
        """Return the sliver and component that each interface of a service is stitched to."""
        return {
            join.interface: (sliver, component)
            for (sliver, component, _), joins in self.of.items()
            for join in joins
            if join.network == network and join.interface
        }


def _networks(joins: Iterable[Join]) -> frozenset[str]:
    return frozenset(join.network for join in joins)


def joins(servers: Iterable[Server], services: Iterable[SiteService], site: Site) -> Joins:
    """Return where NICs and networks meet."""
    services = tuple(services)
    found: dict[Part, dict[Join, None]] = {}
    said = (*_of_services(services), *_of_servers(servers), *_of_networks(servers, services, site))
    for part, join in said:
        found.setdefault(part, {})[join] = None
    return Joins({part: tuple(each) for part, each in found.items()})


def _of_services(services: Iterable[SiteService]) -> Iterator[tuple[Part, Join]]:
    """Yield what services say by themselves: whom their interfaces name, whose ports are on them."""
    for each in services:
        key, service = each.ref.id, each.service
        for interface in _wanted(service):
            if end := interface.attach:
                part = (end.sliver, end.component, end.interface)
                yield part, Join(network=key, interface=interface.id)
        for user in service.users if service else ():
            sliver, _, component = user.partition("/")
            if component:
                yield (sliver, component, 0), Join(network=key)


def _wanted(service: Service | None) -> tuple[ServiceInterface, ...]:
    """Return the interfaces that a service's stamp says; a network of a cloud has none."""
    stamp = service.stamp if service else None
    return stamp.interfaces if isinstance(stamp, NetworkService) else ()


def _of_servers(servers: Iterable[Server]) -> Iterator[tuple[Part, Join]]:
    """Yield what servers say by themselves: which services the interfaces of their NICs name."""
    for server in servers:
        for component in server.stamp.sliver.components:
            for number, (_, interface) in enumerate(interfaces_of(component)):
                if end := interface.service:
                    part = (server.sliver, component.id, number)
                    yield part, Join(network=end.id, interface=end.interface)


def _of_networks(
    servers: Iterable[Server], services: Iterable[SiteService], site: Site
) -> Iterator[tuple[Part, Join]]:
    """Yield the vNICs with the networks that they name, unless these are switches."""
    there = ((each.ref.id, each.service) for each in services if each.service)
    named = {service.name: sliver for sliver, service in there if not _wanted(service)}
    for server in servers:
        for vnic in server.stamp.sliver.vnics():
            if vnic.network not in site.switches:
                key = named.get(vnic.network, f"{NETWORK} {vnic.network}")
                yield (server.sliver, vnic.id, 0), Join(network=key)


def networks(
    keys: Iterable[str],
    services: SiteServices,
    met: Joins,
    site: Site,
    asked: Iterable[str] = (),
) -> tuple[Network, ...]:
    """Return the networks of these keys: services first, each kind by name.

    A service that a NIC names and that is not there is told as such.
    """
    by_id = {each.ref.id: each for each in services.found}
    absent = "not found; not all services could be listed" if services.silent else "it is not there"

    def network(key: str) -> Network:
        if is_plain(key):
            return _plain_network(key, site)
        if key in by_id:
            return _network(key, by_id[key], met.ends(key), asked=key in asked)
        return Network(key=key, id=key, type="service", name=key, notes=(absent,))

    found = map(network, dict.fromkeys(keys))
    return tuple(sorted(found, key=lambda each: (each.type == NETWORK, each.name, each.key)))


def is_plain(key: str) -> bool:
    """Return whether a key is of a network that is no sliver."""
    return key.startswith(f"{NETWORK} ")


def _plain_network(key: str, site: Site) -> Network:
    name = key.removeprefix(f"{NETWORK} ")
    settings = site.networks.get(name)
    return Network(
        key=key,
        type=NETWORK,
        name=name,
        subnets=tuple(map(str, settings.blocks())) if settings else (),
        vlan=getattr(settings, "vlan", None),
    )


def _network(
    key: str, known: SiteService, ends: Mapping[str, tuple[str, str]], *, asked: bool
) -> Network:
    service, kind = known.service, known.ref.type
    if service is None:
        note = "not all of it is there"
        return Network(key=key, id=key, type=kind, name=key, asked=asked, notes=(note,))
    return Network(
        key=key,
        id=key,
        type=kind,
        name=service.name or key,
        asked=asked,
        subnets=service.subnets,
        gateway=service.gateway.address if service.gateway else None,
        vlan=service.vlan,
        interfaces=tuple(_interfaces(service, ends)),
    )


def _interfaces(
    service: Service, ends: Mapping[str, tuple[str, str]]
) -> Iterator[ServiceConnection]:
    """Yield the interfaces as observed, with what the stamp says of their addresses."""
    seen = {interface.component: interface for interface in service.interfaces}
    wanted = {interface.id: interface for interface in _wanted(service)}
    for name in dict.fromkeys((*wanted, *seen)):
        sliver, component = ends.get(name, (None, None))
        interface = _interface(name, seen.get(name), wanted.get(name))
        yield interface.model_copy(update={"sliver": sliver, "component": component})


def _interface(
    name: str, seen: ObservedInterface | None, wanted: ServiceInterface | None
) -> ServiceConnection:
    values = {field: getattr(seen, field) for field in _OBSERVED} if seen else {}
    return ServiceConnection(
        id=name,
        **values,
        mac=(seen.mac if seen else "") or None,
        address=_address(wanted),
        peer=f"AS {wanted.peer.asn} at {wanted.peer.address}" if wanted and wanted.peer else None,
    )


_OBSERVED = ("device", "port", "vlan", "inner_vlan", "bandwidth")


def _address(wanted: ServiceInterface | None) -> str | None:
    """Return the address of who is connected, or else the service's own there."""
    if wanted is None:
        return None
    own = wanted.gateway.address if wanted.gateway else None
    found = wanted.address or own or (wanted.peer.local if wanted.peer else None)
    return str(found) if found else None
