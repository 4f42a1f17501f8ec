"""What is held in Neutron for the NICs of a sliver: ports and floating IPs.

All ports of a sliver are found by one list, all its floating IPs by another: always the same two
requests, so that a read cache answers them. A floating IP whose port is gone is a port of its own,
``floating-192-0-2-7``, without a MAC: so it is seen, and given up like one.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from ipaddress import ip_interface
from typing import Any

from openstack.connection import Connection
from openstack.exceptions import NotFoundException
from openstack.network.v2.floating_ip import FloatingIP
from openstack.network.v2.port import Port as NeutronPort

from fabric_direct.drivers.contract import Port
from fabric_direct.drivers.openstack.client.stamp import description
from fabric_direct.drivers.openstack.networks.neutron import Known, Neutron, own

_STRAY = "floating-"


def ports_of(cloud: Connection, site: str, sliver_id: str) -> list[NeutronPort]:
    """Return the ports that are held for the sliver, the oldest first."""
    return own(cloud, cloud.network.ports(description=description(site, sliver_id)))


def floating_ips_of(cloud: Connection, site: str, sliver_id: str) -> list[FloatingIP]:
    """Return the floating IPs that were made for the sliver, the oldest first."""
    return own(cloud, cloud.network.ips(description=description(site, sliver_id)))


@dataclass(frozen=True, slots=True)
class Held:
    """What is held for one NIC."""

    sliver: str
    component: str
    ports: tuple[NeutronPort, ...]
    """One; more after a request whose answer got lost, none if only a floating IP is left. The first is
    the one that counts: which is plugged in, or else has a floating IP, or else is the oldest."""
    floating: tuple[FloatingIP, ...]

    def names(self) -> Iterator[str]:
        """Yield what it is, for people."""
        for port in self.ports:
            yield f"port {port.name} ({port.id})"
        for ip in self.floating:
            yield f"floating IP {ip.floating_ip_address} ({ip.id})"


def held_for(neutron: Neutron, sliver_id: str) -> list[Held]:
    """Return what is held for each NIC of the sliver."""
    cloud, site = neutron.connection(), neutron.site.site
    ports = ports_of(cloud, site, sliver_id)
    floating = floating_ips_of(cloud, site, sliver_id)
    by_name: dict[str, list[NeutronPort]] = {}
    for port in ports:
        by_name.setdefault(port.name.removeprefix(f"{sliver_id}-"), []).append(port)
    nics = [_nic(sliver_id, name, same, floating) for name, same in by_name.items()]
    return nics + [_stray(sliver_id, ip) for ip in floating if ip.port_id is None]


def find_held(neutron: Neutron, sliver_id: str, component: str) -> Held | None:
    """Return what is held for one NIC, if anything is."""
    there = (held for held in held_for(neutron, sliver_id) if held.component == component)
    return next(there, None)


def _nic(
    sliver_id: str, component: str, ports: list[NeutronPort], floating: list[FloatingIP]
) -> Held:
    with_ip = {ip.port_id for ip in floating}
    ports = sorted(ports, key=lambda port: (not port.device_id, port.id not in with_ip))
    mine = [ip for port in ports for ip in floating if ip.port_id == port.id]
    return Held(sliver_id, component, tuple(ports), tuple(mine))


def _stray(sliver_id: str, ip: FloatingIP) -> Held:
    address = str(ip.floating_ip_address).replace(".", "-")
    return Held(sliver_id, f"{_STRAY}{address}", (), (ip,))


def port_of(neutron: Neutron, held: Held) -> Port:
    """Return what is held as a port."""
    if not held.ports:
        return _stray_port(neutron, held)
    port, *_ = held.ports
    found = Port(
        sliver=held.sliver,
        component=held.component,
        network=port.network_id,
        network_id=port.network_id,
        source=port.id,
        mac=port.mac_address,
        floating_ip=next((ip.floating_ip_address for ip in held.floating), None),
        port_security=port.is_port_security_enabled,
    )
    with suppress(NotFoundException):  # the project may not see the network any more
        known = neutron.known(port.network_id, [ip["subnet_id"] for ip in port.fixed_ips])
        return replace(found, network=known.network.name, **_addressing(port, known))
    return found


def _stray_port(neutron: Neutron, held: Held) -> Port:
    ip, *_ = held.floating
    network = neutron.known(ip.floating_network_id).network.name
    return Port(held.sliver, held.component, network, source=ip.id, mac="")


def _addressing(port: NeutronPort, known: Known) -> dict[str, Any]:
    """Return the port's addresses, and what its subnets say: gateway, DNS servers, DHCP."""
    ipv4, main = known.subnet(4), known.subnet(4) or known.subnet(6)
    return {
        **_addresses(port, known),
        "gateway": ipv4.gateway_ip if ipv4 else None,
        "dns": tuple(main.dns_nameservers) if main else (),
        "dhcp": bool(main and main.is_dhcp_enabled),
    }


def _addresses(port: NeutronPort, known: Known) -> dict[str, Any]:
    """Return the port's first address of each family."""
    cidrs = {subnet.id: subnet.cidr for subnet in known.subnets}
    found: dict[str, Any] = {}
    for address in (ip for ip in port.fixed_ips if ip["subnet_id"] in cidrs):
        length = cidrs[address["subnet_id"]].partition("/")[2]
        interface = ip_interface(f"{address['ip_address']}/{length}")
        found.setdefault(f"ipv{interface.version}", interface)
    return found
