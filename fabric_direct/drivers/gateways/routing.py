"""Gateways of services: made in namespaces of a switch's host, compared with the kernel, removed."""

from collections.abc import Iterator, Mapping
from ipaddress import ip_address, ip_network

from fabric_direct.drivers.gateways.bgp import Speaker
from fabric_direct.drivers.gateways.firewall import enforce, enforced
from fabric_direct.drivers.gateways.gateway import (
    UPLINK,
    RouterUplink,
    ServiceGateway,
    ServiceNamespace,
    Subnet,
)
from fabric_direct.drivers.gateways.namespaces import NamespaceLink, NamespaceRoute, Namespaces
from fabric_direct.errors import InvalidSliver, NotOurs, NotVerified
from fabric_direct.model import ObservedGateway

_ROUTER, _SERVICE = "fe80::1", "fe80::2"
"""The addresses of a pair."""
_EVERYTHING: dict[int, Subnet] = {4: ip_network("0.0.0.0/0"), 6: ip_network("::/0")}


class NamespaceRouting:
    """The namespaces of services on the host of a switch.

    :param netns: the namespace of the switch's links; None is the host's own.
    :param bgp: whether any of them may have BGP.
    """

    def __init__(self, device: str, host: Namespaces, netns: str | None, *, bgp: bool) -> None:
        self._device, self._host, self._netns, self._bgp = device, host, netns, bgp

    # --- reading

    def refuse_without_bgp(self, wanted: ServiceNamespace) -> None:
        """Raise InvalidSliver if the namespace is to have BGP, and the host has no FRR."""
        if wanted.bgp and not Speaker(self._host, wanted.name).installed():
            why = f"FRR is not installed on the host of {self._device}"
            raise InvalidSliver("cannot be served", field="type", why=why, remedy="install frr")

    def there(self, name: str, stamp: str) -> bool:
        """Return whether a service has its namespace, complete or not.

        :raises NotOurs: if one of that name carries another stamp.
        """
        if name not in self._host.names():
            return False
        if self._host.links(name)["lo"].alias not in {stamp, ""}:
            raise NotOurs(f"namespace {name} is there without the stamp", where=self._device)
        return True

    def observed(self, wanted: ServiceNamespace) -> ObservedGateway | None:
        """Return the first gateway of a service as the kernel has it."""
        if not self.there(wanted.name, wanted.stamp):
            return None
        links, gateway = self._host.links(wanted.name), wanted.gateways[0]
        link = links.get(gateway.link)
        addresses = sorted(map(str, link.addresses)) if link else []
        return ObservedGateway(address=addresses[0], mac=link.mac) if link and addresses else None

    def differences(self, wanted: ServiceNamespace) -> tuple[str, ...]:
        """Return what the kernel has that is not as wanted, a sentence each."""
        if not self.there(wanted.name, wanted.stamp):
            return (f"namespace {wanted.name} is missing",)
        return tuple(self._differences(wanted))

    def _differences(self, wanted: ServiceNamespace) -> Iterator[str]:
        links, elsewhere = self._host.links(wanted.name), self._host.links(self._netns)
        if links["lo"].alias != wanted.stamp:
            yield f"namespace {wanted.name} has no stamp"
        for gateway in wanted.gateways:
            yield from _gateway_differences(gateway, links, gateway.link in elsewhere)
        for name in sorted(links.keys() - _names(wanted)):
            yield f"link {name} is there and not asked for"
        if not self._host.forwards(wanted.name, wanted.versions):
            yield f"namespace {wanted.name} does not forward"
        if not self._filtered(wanted):
            yield f"namespace {wanted.name} lets other packets pass"
        if wanted.uplink:
            yield from self._uplink_differences(wanted, wanted.uplink, links)
        if wanted.bgp:
            yield from Speaker(self._host, wanted.name).differences(wanted.bgp)

    def _filtered(self, wanted: ServiceNamespace) -> bool:
        if wanted.public is None:
            return True
        (version,) = wanted.versions
        return enforced(self._host, wanted.name, version, wanted.public)

    def _uplink_differences(
        self, wanted: ServiceNamespace, uplink: RouterUplink, links: Mapping[str, NamespaceLink]
    ) -> Iterator[str]:
        there = self._host.links(uplink.router)
        for link, local in ((links.get(UPLINK), _SERVICE), (there.get(uplink.link), _ROUTER)):
            if link is None or not link.carries or f"{local}/64" not in link.local:
                yield f"the pair to {uplink.router} is not as it was made"
        if self._outward(wanted) != self._routes(wanted.name, wanted.versions, UPLINK):
            yield f"namespace {wanted.name} has other routes"
        if self._inward(uplink) != self._routes(uplink.router, wanted.versions, uplink.link):
            yield f"namespace {uplink.router} has other routes to the service"
        if not self._host.forwards(uplink.router, wanted.versions):
            yield f"namespace {uplink.router} does not forward"

    def _routes(
        self, netns: str, versions: tuple[int, ...], link: str
    ) -> frozenset[NamespaceRoute]:
        found = (route for version in versions for route in self._host.routes(netns, version))
        return frozenset(route for route in found if route.link == link)

    def _outward(self, wanted: ServiceNamespace) -> frozenset[NamespaceRoute]:
        router = ip_address(_ROUTER)
        return frozenset(
            NamespaceRoute(_EVERYTHING[version], UPLINK, router) for version in wanted.versions
        )

    def _inward(self, uplink: RouterUplink) -> frozenset[NamespaceRoute]:
        service = ip_address(_SERVICE)
        return frozenset(NamespaceRoute(subnet, uplink.link, service) for subnet in uplink.subnets)

    def lost(self, wanted: ServiceNamespace) -> frozenset[str]:
        """Return the ports that are neither in the namespace nor where the switch makes them."""
        links = {gateway.link for gateway in wanted.gateways} - self._host.links(self._netns).keys()
        if links and self.there(wanted.name, wanted.stamp):
            links -= self._host.links(wanted.name).keys()
        return frozenset(links)

    # --- changing

    def apply(self, wanted: ServiceNamespace) -> None:
        """Make the namespace what is wanted; what is as wanted is not touched.

        :raises NotOurs: if one of its name carries another stamp, or a link of a name is there.
        """
        if not self.differences(wanted):
            return
        if not self.there(wanted.name, wanted.stamp):
            self._host.change(None, f"netns add {wanted.name}")
        self._host.change(wanted.name, f"link set lo alias {wanted.stamp} up")
        for gateway in wanted.gateways:
            self._bring(wanted.name, gateway.link)
        self._set_links(wanted)
        self._filter(wanted)
        self._host.forward(wanted.name, wanted.versions)
        if wanted.uplink:
            self._connect(wanted, wanted.uplink)
        if wanted.bgp:
            Speaker(self._host, wanted.name).apply(wanted.bgp)

    def settle(self, wanted: ServiceNamespace) -> None:
        """Block until BGP has its sessions.

        :raises NotVerified: if a neighbor that answers is not established.
        """
        if wanted.bgp:
            Speaker(self._host, wanted.name).settle(wanted.bgp)

    def _bring(self, name: str, link: str) -> None:
        """Move a port into the namespace: the switch's own is the newest of that name."""
        if link not in self._host.links(self._netns):
            return
        if link in self._host.links(name):
            self._host.change(name, f"link delete {link}")
        self._host.change(self._netns, f"link set {link} netns {name}")

    def _set_links(self, wanted: ServiceNamespace) -> None:
        while surplus := sorted((links := self._host.links(wanted.name)).keys() - _names(wanted)):
            self._host.change(wanted.name, f"link delete {surplus[0]}")  # a pair goes as one
        for gateway in (gateway for gateway in wanted.gateways if gateway.link not in links):
            raise NotVerified(f"port {gateway.link} of {self._device} is not there")
        for gateway in wanted.gateways:
            self._host.change(wanted.name, *_set_link(gateway, links[gateway.link]))

    def _filter(self, wanted: ServiceNamespace) -> None:
        if wanted.public is not None and not self._filtered(wanted):
            (version,) = wanted.versions
            enforce(self._host, wanted.name, version, wanted.public)

    def _connect(self, wanted: ServiceNamespace, uplink: RouterUplink) -> None:
        name, router = wanted.name, uplink.router
        if UPLINK not in self._host.links(name) or not self._paired(uplink, wanted.stamp):
            self._pair(name, uplink)
        self._host.change(router, f"link set {uplink.link} alias {wanted.stamp}")
        for netns, link, local in ((name, UPLINK, _SERVICE), (router, uplink.link, _ROUTER)):
            self._host.change(netns, *_local(link, local))
        self._reroute(name, wanted.versions, UPLINK, self._outward(wanted))
        self._reroute(router, wanted.versions, uplink.link, self._inward(uplink))

    def _paired(self, uplink: RouterUplink, stamp: str) -> bool:
        link = self._host.links(uplink.router).get(uplink.link)
        return link is not None and link.alias in {stamp, ""}

    def _pair(self, name: str, uplink: RouterUplink) -> None:
        """Make the pair; one that led to another router goes."""
        if UPLINK in self._host.links(name):
            self._host.change(name, f"link delete {UPLINK}")
        if uplink.link in self._host.links(uplink.router):
            raise NotOurs(f"link {uplink.link} is there without the stamp", where=uplink.router)
        pair = f"type veth peer name {uplink.link} netns {uplink.router}"
        self._host.change(name, f"link add {UPLINK} {pair}")

    def _reroute(
        self, netns: str, versions: tuple[int, ...], link: str, wanted: frozenset[NamespaceRoute]
    ) -> None:
        there = self._routes(netns, versions, link)
        surplus = [f"route delete {_said(route)}" for route in there - wanted]
        self._host.change(netns, *surplus, *(f"route add {_said(r)}" for r in wanted - there))

    def left(self, name: str, stamp: str) -> tuple[str, ...]:
        """Name a service's namespace, and daemons of it, which outlive its deletion by others."""
        there = (f"namespace {name}",) if self.there(name, stamp) else ()
        return (
            (*there, f"BGP of {name}") if self._bgp and Speaker(self._host, name).pids() else there
        )

    def remove(self, name: str, stamp: str) -> None:
        """Remove a service's namespace with all that is in it."""
        there = self.there(name, stamp)
        if self._bgp:
            Speaker(self._host, name).stop()
        if not there:
            return
        if UPLINK in self._host.links(name):  # the kernel takes a namespace down later
            self._host.change(name, f"link delete {UPLINK}")
        self._host.change(None, f"netns delete {name}")


def _names(wanted: ServiceNamespace) -> set[str]:
    uplink = {UPLINK} if wanted.uplink else set()
    return {"lo", *uplink, *(gateway.link for gateway in wanted.gateways)}


def _gateway_differences(
    gateway: ServiceGateway, links: Mapping[str, NamespaceLink], anew: bool
) -> Iterator[str]:
    link = links.get(gateway.link)
    if link is None or anew or not link.carries:
        yield f"port {gateway.link} is not connected to the service"
    elif link.mac != gateway.mac:
        yield f"its gateway's MAC is {link.mac}, not {gateway.mac}"
    if link and link.addresses != gateway.addresses:
        has = ", ".join(sorted(map(str, link.addresses))) or "none"
        yield f"its gateway is {has}, not {', '.join(sorted(map(str, gateway.addresses)))}"


def _set_link(gateway: ServiceGateway, link: NamespaceLink) -> Iterator[str]:
    name = gateway.link
    for other in sorted(link.addresses - gateway.addresses, key=str):
        yield f"address delete {other} dev {name}"
    if link.mac != gateway.mac:
        yield f"link set {name} address {gateway.mac}"
    yield f"link set {name} up"
    for address in sorted(gateway.addresses, key=str):
        yield f"address replace {address} dev {name}{' nodad' if address.version > 4 else ''}"


def _local(link: str, address: str) -> tuple[str, ...]:
    own = f"address replace {address}/64 dev {link} nodad"
    return f"link set {link} addrgenmode none", own, f"link set {link} up"


def _said(route: NamespaceRoute) -> str:
    via = f"inet6 {route.via}" if route.subnet.version == 4 else str(route.via)
    return f"{route.subnet} via {via} dev {route.link}"
