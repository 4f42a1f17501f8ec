"""Ports in memory."""

from dataclasses import replace
from ipaddress import IPv4Address, IPv4Interface
from typing import ClassVar

from fabric_direct.drivers.contract import Port
from fabric_direct.drivers.contract.fields import refuse_fields
from fabric_direct.drivers.fake.substrate import Fake, held
from fabric_direct.errors import (
    Conflict,
    InvalidSliver,
    PoolExhausted,
)
from fabric_direct.model import VNicInterface
from fabric_direct.networks import SiteNetwork


class FakeNetwork(Fake):
    """A :class:`~fabric_direct.drivers.contract.NetworkDriver` in memory, with the site's networks."""

    kind = "network"
    unserved: ClassVar[tuple[str, ...]] = ("vlan",)

    def check(
        self,
        network: str,
        interface: VNicInterface,
        sliver_id: str | None = None,  # noqa: ARG002
    ) -> None:
        """Refuse an unknown network and an address outside of it."""
        refuse_fields(interface, self.unserved, "in memory", "interface.")
        known = self._known().get(network)
        if known is None:
            raise InvalidSliver(f"no network {network!r}", field="network")
        if interface.ipv4 and interface.ipv4.ip not in known.subnet:
            raise InvalidSliver(
                f"{interface.ipv4} is not in {known.subnet}", field="interface.ipv4"
            )

    def _known(self) -> dict[str, SiteNetwork]:
        made = {sliver.name: sliver.network for sliver in self.substrate.networks.values()}
        return self.site.networks | made

    def find_port(self, sliver_id: str, component: str) -> Port | None:
        """Return the port."""
        return self.substrate.ports.get((sliver_id, component))

    def ports(self, sliver_id: str) -> tuple[Port, ...]:
        """Return the sliver's ports."""
        return held(self.substrate.ports, sliver_id)

    def create_port(
        self, sliver_id: str, component: str, network: str, interface: VNicInterface
    ) -> Port:
        """Hold the lowest free address, and a MAC."""
        there = self.substrate.ports.get((sliver_id, component))
        if there:
            return self._settle(there, interface)
        port = Port(
            sliver=sliver_id,
            component=component,
            network=network,
            source=f"fake-{network}",
            mac=interface.mac or f"52:54:00:{self._free_mac()}",
            ipv4=interface.ipv4 or self._free_address(network),
            ipv6=interface.ipv6,
        )
        self._refuse_taken(port)
        return self._settle(port, interface)

    def _settle(self, port: Port, interface: VNicInterface) -> Port:
        floating = f"203.0.113.{len(self.substrate.ports) + 1}" if interface.floating_ip else None
        security = interface.port_security is not False
        settled = replace(
            port, floating_ip=floating and (port.floating_ip or floating), port_security=security
        )
        self.substrate.ports[port.sliver, port.component] = settled
        return settled

    def _refuse_taken(self, port: Port) -> None:
        for other in self.substrate.ports.values():
            if other.network == port.network and (other.mac == port.mac or other.ipv4 == port.ipv4):
                raise Conflict(f"{port.mac} or {port.ipv4} is held for {other.sliver}")

    def _free_mac(self) -> str:
        macs = {port.mac for port in self.substrate.ports.values()}
        ends = (f"{n >> 16:02x}:{n >> 8 & 255:02x}:{n & 255:02x}" for n in range(1 << 24))
        return next(end for end in ends if f"52:54:00:{end}" not in macs)

    def _free_address(self, network: str) -> IPv4Interface:
        subnet = self._known()[network].subnet
        taken = {p.ipv4.ip for p in self.substrate.ports.values() if p.ipv4}
        hosts = (IPv4Address(int(subnet[1]) + n) for n in range(1, subnet.num_addresses - 2))
        free = next((address for address in hosts if address not in taken), None)
        if free is None:
            raise PoolExhausted(f"network {network} has no free address")
        return IPv4Interface(f"{free}/{subnet.prefixlen}")

    def delete_port(self, sliver_id: str, component: str) -> None:
        """Delete the port."""
        self.substrate.ports.pop((sliver_id, component), None)

    def leftovers(self, sliver_id: str) -> tuple[str, ...]:
        """Name the sliver's ports."""
        return tuple(f"port {port.component}" for port in held(self.substrate.ports, sliver_id))

    def unused(self) -> tuple[str, ...]:
        """Name the networks that are left without a user."""
        return tuple(sorted(self.substrate.unused))

    def remove_unused(self) -> None:
        """Delete them."""
        self.substrate.unused.clear()
