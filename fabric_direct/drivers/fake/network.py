"""Ports in memory."""

from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv4Interface, IPv6Interface
from typing import ClassVar, TypeVar

from fabric_direct.drivers.contract import Port, Stamped
from fabric_direct.drivers.contract.fields import refuse_fields
from fabric_direct.drivers.contract.site_checks import (
    known_network,
    known_tap,
    refuse_floating_ip,
    refuse_port,
    taken,
)
from fabric_direct.drivers.fake.substrate import Fake, held
from fabric_direct.errors import Conflict, InvalidSliver, NotFound, PoolExhausted
from fabric_direct.model import VNicInterface
from fabric_direct.model.networks import SiteNetwork
from fabric_direct.site.addresses import candidates, candidates6, check_addresses
from fabric_direct.state.service_claims import ServiceClaims

T = TypeVar("T")


class FakeNetwork(Fake):
    """A :class:`~fabric_direct.drivers.contract.NetworkDriver` in memory, with the site's networks."""

    kind = "network"
    unserved: ClassVar[tuple[str, ...]] = ("vlan",)

    def check(self, network: str, interface: VNicInterface, sliver_id: str | None = None) -> None:
        """Refuse what no real driver serves, and what another sliver holds."""
        refuse_fields(interface, self.unserved, "in memory", "interface.")
        if network in self.site.switches:
            self._known_tap(network, interface, sliver_id)
            return
        refuse_port(interface)
        self._refuse_floating_ip(network, interface)
        check_addresses(self._settings(network), interface)
        for field, port in self._clashes(network, interface):
            if sliver_id not in {None, port.sliver}:
                raise taken(f"interface.{field}", getattr(port, field), _name(port))

    def _known_tap(self, switch: str, interface: VNicInterface, but: str | None) -> str:
        taken = {port.source for port in self._on(switch) if port.sliver != but}
        connected = ServiceClaims(self.site).ports(switch)
        return known_tap(self.site, switch, interface, taken, connected)

    def _refuse_floating_ip(self, network: str, interface: VNicInterface) -> None:
        """Refuse one where no cloud routes it to: a libvirt host has none, whatever the network."""
        refuse_floating_ip(self.site, interface)
        settings = self._settings(network)
        if interface.floating_ip and not (settings.physical_network and settings.router):
            raise InvalidSliver(
                f"cannot be had: no router connects network {network} with the external network",
                field="interface.floating_ip",
                remedy="set physical_network and router of the network",
            )

    def _settings(self, network: str) -> SiteNetwork:
        """Return a network of the site, or one that is a sliver."""
        self.substrate.refuse_foreign(network)
        made = {sliver.name: sliver.network for sliver in self.substrate.networks.values()}
        return known_network(self.site.networks | made, network)

    def _clashes(self, network: str, interface: VNicInterface) -> Iterator[tuple[str, Port]]:
        """Yield the fields that are set to what a port of the network has, each with that port."""
        for port in self._on(network):
            for field in ("mac", "ipv4", "ipv6"):
                if getattr(interface, field) in {getattr(port, field)} - {None}:
                    yield field, port

    def _on(self, network: str) -> list[Port]:
        return [port for port in self.substrate.ports.values() if port.network == network]

    def find_port(self, sliver_id: str, component: str) -> Port | None:
        """Return the port."""
        return self.substrate.ports.get((sliver_id, component))

    def ports(self, sliver_id: str) -> tuple[Port, ...]:
        """Return the sliver's ports."""
        return held(self.substrate.ports, sliver_id)

    def all_ports(self) -> tuple[Port, ...]:
        """Return all ports."""
        return tuple(self.substrate.ports.values())

    def create_port(
        self, sliver_id: str, component: str, network: str, interface: VNicInterface
    ) -> Port:
        """Hold the lowest free address of each family, and a MAC."""
        there = self.substrate.ports.get((sliver_id, component))
        if there:
            _refuse_other(there, network, interface)
            return self._settle(there, interface)
        if network in self.site.switches:
            return self._tap(sliver_id, component, network, interface)
        settings = self._settings(network)
        check_addresses(settings, interface)
        for field, port in self._clashes(network, interface):
            raise Conflict(f"{getattr(port, field)} is held for {_name(port)}")
        mac = interface.mac or f"52:54:00:{self._free_mac()}"
        return self._settle(
            Port(
                sliver=sliver_id,
                component=component,
                network=network,
                source=f"fake-{network}",
                mac=mac,
                ipv4=interface.ipv4 or self._free_ipv4(network, settings),
                ipv6=interface.ipv6 or self._free_ipv6(network, settings, mac),
            ),
            interface,
        )

    def _tap(self, sliver_id: str, component: str, switch: str, interface: VNicInterface) -> Port:
        port = Port(
            sliver=sliver_id,
            component=component,
            network=switch,
            source=self._known_tap(switch, interface, None),
            mac=interface.mac or f"52:54:00:{self._free_mac()}",
            ipv4=interface.ipv4,
            ipv6=interface.ipv6,
            dhcp=False,
            tap=True,
            mtu=interface.mtu,
            routes=tuple((str(route.to), str(route.via)) for route in interface.routes),
        )
        return self._settle(port, interface)

    def _settle(self, port: Port, interface: VNicInterface) -> Port:
        floating = (port.floating_ip or self._free_floating_ip()) if interface.floating_ip else None
        security = interface.port_security is not False
        settled = replace(port, floating_ip=floating, port_security=security, enabled=True)
        self.substrate.ports[port.sliver, port.component] = settled
        return settled

    def _free_floating_ip(self) -> str:
        held = {port.floating_ip for port in self.substrate.ports.values()}
        return next(ip for n in range(1, 255) if (ip := f"203.0.113.{n}") not in held)

    def _free_mac(self) -> str:
        macs = {port.mac for port in self.substrate.ports.values()}
        ends = (f"{n >> 16:02x}:{n >> 8 & 255:02x}:{n & 255:02x}" for n in range(1 << 24))
        return next(end for end in ends if f"52:54:00:{end}" not in macs)

    def _free_ipv4(self, network: str, settings: SiteNetwork) -> IPv4Interface:
        held = {port.ipv4.ip for port in self._on(network) if port.ipv4}
        free = _first_free(candidates(settings), held, network)
        return IPv4Interface((free, settings.subnet.prefixlen))

    def _free_ipv6(self, network: str, settings: SiteNetwork, mac: str) -> IPv6Interface | None:
        if settings.subnet6 is None:
            return None
        held = {port.ipv6.ip for port in self._on(network) if port.ipv6}
        free = _first_free(candidates6(settings.subnet6, mac), held, network)
        return IPv6Interface((free, settings.subnet6.prefixlen))

    def create_floating_ip(self, sliver_id: str, component: str) -> None:
        """Give the port a floating IP, unless it has one."""
        port = self.substrate.ports.get((sliver_id, component))
        if port is None:
            raise NotFound(f"port {component} of sliver {sliver_id} is not there")
        floating = port.floating_ip or self._free_floating_ip()
        self.substrate.ports[sliver_id, component] = replace(port, floating_ip=floating)

    def delete_floating_ip(self, sliver_id: str, component: str) -> None:
        """Take the floating IP from the port."""
        port = self.substrate.ports.get((sliver_id, component))
        if port:
            self.substrate.ports[sliver_id, component] = replace(port, floating_ip=None)

    def delete_port(self, sliver_id: str, component: str) -> None:
        """Delete the port."""
        self.substrate.ports.pop((sliver_id, component), None)

    def leftovers(self, sliver_id: str) -> tuple[str, ...]:
        """Name the sliver's ports."""
        return tuple(f"port {port.component}" for port in held(self.substrate.ports, sliver_id))

    def stamped(self) -> tuple[Stamped, ...]:
        """Return all ports but those of bare-metal nodes, which go with their nodes."""
        nodes = {node.sliver for node in self.substrate.bare_metal.values()}
        return tuple(
            Stamped(p.sliver, "port", f"{p.component} on {p.network}", tuple(_addresses(p)))
            for p in self.substrate.ports.values()
            if p.sliver not in nodes
        )

    def unused(self) -> tuple[str, ...]:
        """Name the networks that are left without a user."""
        return tuple(sorted(self.substrate.unused))

    def remove_unused(self) -> None:
        """Delete them."""
        self.substrate.unused.clear()


def _name(port: Port) -> str:
    return f"{port.sliver}/{port.component} on {port.network}"


def _addresses(port: Port) -> Iterator[str]:
    yield from (str(each.ip) for each in (port.ipv4, port.ipv6) if each)
    yield from (port.floating_ip,) if port.floating_ip else ()


def _refuse_other(there: Port, network: str, interface: VNicInterface) -> None:
    """Raise Conflict unless the port that a NIC holds is the one that is asked for."""
    asked = {"network": network, **{f: getattr(interface, f) for f in ("mac", "ipv4", "ipv6")}}
    for field, value in asked.items():
        if value not in {None, getattr(there, field)}:
            raise Conflict(f"{_name(there)} holds another port, whose {field} is not {value}")


def _first_free(addresses: Iterator[T], held: set[T], network: str) -> T:
    free = next((address for address in addresses if address not in held), None)
    if free is None:
        raise PoolExhausted(f"network {network} has no free address")
    return free
