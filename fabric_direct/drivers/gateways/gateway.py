"""Layout of a service with a gateway on one device: a network namespace, with names derived from both.

For each subnet, a port of a bridge of the service, which the switch's driver makes, is moved into the
namespace. A veth pair connects the namespace to the site's router, which has a route to the service
through it. Both ends have the same link-local addresses for all services, so the pairs use up no
addresses; when the namespace is deleted, the pair and the route are deleted with it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Interface,
    IPv6Network,
    ip_network,
)
from typing import get_args

from fabric_direct.drivers.contract.fields import refuse_given
from fabric_direct.drivers.contract.link_names import short
from fabric_direct.errors import InvalidSliver
from fabric_direct.model.services import (
    L3VPN,
    SERVICES,
    Address,
    FabNet,
    FABNetv4Ext,
    FABNetv6Ext,
    NetworkService,
    ServiceInterface,
    WithPrefix,
)
from fabric_direct.site.config import Site

Subnet = IPv4Network | IPv6Network
EXTERNAL = (FABNetv4Ext, FABNetv6Ext)
FABNETS = get_args(FabNet)
FABNET_TYPES = tuple(kind for kind, model in SERVICES.items() if issubclass(model, FABNETS))
ROUTED = (*FABNETS, L3VPN)
TRANSIT = "transit"
"""The segment between the devices of an L3VPN."""
UPLINK = "uplink"
"""The namespace's end of the pair."""


@dataclass(frozen=True, slots=True)
class ServiceGateway:
    """An own address of a service, on a port."""

    link: str
    addresses: frozenset[WithPrefix]
    mac: str


@dataclass(frozen=True, slots=True)
class RouterUplink:
    """The way from a namespace to the site's router."""

    router: str
    """The router's namespace."""
    link: str
    """The router's end of the pair."""
    subnets: frozenset[Subnet]
    """What the router sends here."""


@dataclass(frozen=True, slots=True)
class Neighbor:
    """A BGP neighbor."""

    address: Address
    asn: int
    key: str | None = field(default=None, repr=False)
    secret: bool = False
    """Whether it has a key that is not told here."""


@dataclass(frozen=True, slots=True)
class Bgp:
    """The BGP of a service on a device."""

    asn: int
    router_id: IPv4Address
    neighbors: tuple[Neighbor, ...]
    subnets: frozenset[Subnet]
    """What is announced."""
    learned: frozenset[Subnet]
    """What the service's other devices announce."""


@dataclass(frozen=True, slots=True)
class ServiceNamespace:
    """A service's namespace on a device."""

    name: str
    stamp: str
    """The alias of its links."""
    gateways: tuple[ServiceGateway, ...]
    uplink: RouterUplink | None = None
    public: frozenset[Address] | None = None
    """The only addresses that packets come from and go to; all may if None."""
    bgp: Bgp | None = None

    @property
    def versions(self) -> tuple[int, ...]:
        """The versions of IP that it forwards."""
        return tuple(sorted({a.version for gateway in self.gateways for a in gateway.addresses}))


def stamp(site: Site, sliver_id: str) -> str:
    """Return the alias of a service's links."""
    return f"fabric-direct:{site.site}:{sliver_id}"


def namespace_name(site: Site, sliver_id: str, device: str) -> str:
    """Return the name of a service's namespace on a device."""
    return short("n", site.site, sliver_id, device)


def gateway_port(site: Site, sliver_id: str, device: str, key: str = "") -> str:
    """Return the name of the link that is a service's gateway in a segment on a device."""
    return short("g", site.site, sliver_id, device, *filter(None, [key]))


def segment(interface: ServiceInterface) -> str:
    """Return what tells the segments of a service apart: each peer and gateway of an L3VPN has one."""
    if interface.gateway:
        return str(interface.gateway.address)
    return interface.id if interface.peer else ""


def namespace(site: Site, service: NetworkService, device: str) -> ServiceNamespace | None:
    """Return the namespace of a service on a device; None if it needs none there."""
    if isinstance(service, L3VPN) and device in service.devices():
        return _vpn(site, service, device)
    address, router = _address(site, service, device), _router(site, service, device)
    if address is None or router is None or device not in service.devices():
        return None
    port, public = gateway_port(site, service.id, device), getattr(service, "public", None)
    open_to = None if public is None else frozenset(public)
    return ServiceNamespace(
        namespace_name(site, service.id, device),
        stamp(site, service.id),
        (ServiceGateway(port, frozenset({address}), _mac(service) or own_mac(port)),),
        RouterUplink(router, short("u", site.site, service.id, device), _subnets(address, open_to)),
        open_to,
    )


def _subnets(address: WithPrefix, public: frozenset[Address] | None) -> frozenset[Subnet]:
    return frozenset([address.network] if public is None else map(ip_network, public))


def _vpn(site: Site, service: L3VPN, device: str) -> ServiceNamespace:
    name = namespace_name(site, service.id, device)
    here = [interface for interface in service.interfaces if interface.device == device]
    neighbors = (*_inner(site, service, device), *_outer(here))
    direct, learned = _direct(here), _direct(service.interfaces)
    bgp = Bgp(service.asn, _router_id(name), neighbors, direct, learned - direct)
    gateways = tuple(_vpn_gateways(site, service, device, here))
    return ServiceNamespace(name, stamp(site, service.id), gateways, bgp=bgp)


def _direct(interfaces: Iterable[ServiceInterface]) -> frozenset[Subnet]:
    return frozenset(i.gateway.address.network for i in interfaces if i.gateway)


def _vpn_gateways(
    site: Site, service: L3VPN, device: str, here: list[ServiceInterface]
) -> Iterator[ServiceGateway]:
    if len(service.devices()) > 1:
        link = gateway_port(site, service.id, device, TRANSIT)
        yield ServiceGateway(link, frozenset(_transit(site, device)), own_mac(link))
    for key, interface in {segment(interface): interface for interface in here}.items():
        link = gateway_port(site, service.id, device, key)
        own = interface.gateway.address if interface.gateway else None
        mac = interface.gateway.mac if interface.gateway else None
        local = interface.peer.local if interface.peer else None
        yield ServiceGateway(link, frozenset(filter(None, [own, local])), mac or own_mac(link))


def _transit(site: Site, device: str) -> tuple[WithPrefix, ...]:
    """Return the addresses of a device between the devices of a service: by its place in site.yaml."""
    number = [*site.switches].index(device) + 1
    return (
        IPv4Interface(f"169.254.{number >> 8}.{number & 255}/16"),
        IPv6Interface(f"fdfd::{number:x}/64"),
    )


def _inner(site: Site, service: L3VPN, device: str) -> Iterator[Neighbor]:
    for other in service.devices():
        if other != device:
            yield from (Neighbor(own.ip, service.asn) for own in _transit(site, other))


def _outer(here: list[ServiceInterface]) -> Iterator[Neighbor]:
    for peer in (interface.peer for interface in here if interface.peer):
        yield Neighbor(peer.address, peer.asn, peer.key, peer.secret)


def _router_id(name: str) -> IPv4Address:
    return IPv4Address(f"10.{'.'.join(map(str, sha256(name.encode()).digest()[:3]))}")


def _refuse_vpn(site: Site, service: L3VPN) -> None:
    for device in service.devices():
        if site.switches[device].routing is None:
            why = f"site.yaml: switches.{device} has no routing"
            raise InvalidSliver("cannot be routed", field="type", why=why)
    if len(service.devices()) > 2:
        raise InvalidSliver("is on two devices at most", field="interfaces")
    peers = [(number, i.peer) for number, i in enumerate(service.interfaces) if i.peer]
    for number, peer in peers:
        field = f"interfaces[{number}].peer"
        refuse_given(peer, ("cloud", "account"), "Open vSwitch has no clouds", field)
        if peer.asn == service.asn:
            raise InvalidSliver("is the service's own", field=f"{field}.asn")


def refuse_unrouted(site: Site, service: NetworkService) -> None:
    """Raise InvalidSliver unless the service's device has where its kind is routed."""
    if isinstance(service, L3VPN):
        _refuse_vpn(site, service)
    if not isinstance(service, FABNETS):
        return
    (device,) = service.devices()
    if _router(site, service, device) is None:
        why = f"site.yaml: switches.{device}.routing names no {_where(service)}"
        raise InvalidSliver("cannot be routed", field="type", why=why)
    address = _address(site, service, device)
    if address is None:
        raise InvalidSliver("must be given", field="gateway")
    for number, public in enumerate(getattr(service, "public", ())):
        if public not in address.network or public == address.ip:
            why = f"the gateway is {address}"
            raise InvalidSliver(f"cannot be {public}", field=f"public[{number}]", why=why)


def _where(service: NetworkService) -> str:
    return "outside" if isinstance(service, EXTERNAL) else "router"


def _router(site: Site, service: NetworkService, device: str) -> str | None:
    """Return the namespace that a FABNet's packets go to."""
    routing = site.switches[device].routing
    if routing is None or not isinstance(service, FABNETS):
        return None
    return routing.outside if isinstance(service, EXTERNAL) else routing.router


def _address(site: Site, service: NetworkService, device: str) -> WithPrefix | None:
    """Return a FABNet's own address: that of the site, if it is one that all share."""
    routing, gateway = site.switches[device].routing, getattr(service, "gateway", None)
    shared = routing.external if routing and isinstance(service, FABNetv4Ext) else None
    return gateway.address if gateway else shared


def _mac(service: NetworkService) -> str | None:
    gateway = getattr(service, "gateway", None)
    return gateway.mac if gateway else None


def own_mac(link: str) -> str:
    """Return the MAC of a gateway that names none: it stays when the link is made anew."""
    digits = sha256(link.encode()).hexdigest()[:10]
    return ":".join(["02", *(digits[i : i + 2] for i in range(0, 10, 2))])
