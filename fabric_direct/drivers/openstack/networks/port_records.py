"""Ports and floating IPs that Neutron holds for the NICs of a sliver.

One request lists all ports of a sliver, another all its floating IPs: always the same two, so that the
read cache serves them. A floating IP whose port is gone counts as a port without a MAC address,
``floating-192-0-2-7``: so it is seen, and deleted like one.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from ipaddress import ip_address, ip_interface, ip_network
from typing import Any

from openstack.connection import Connection
from openstack.exceptions import NotFoundException
from openstack.network.v2.floating_ip import FloatingIP
from openstack.network.v2.port import Port as NeutronPort

from fabric_direct.drivers.contract import Port, Stamped
from fabric_direct.drivers.openstack.client.answers import invalid
from fabric_direct.drivers.openstack.client.stamp import (
    UNFINISHED_TAG,
    component_of,
    described_sliver,
    description,
    tagged_component,
)
from fabric_direct.drivers.openstack.networks.neutron import KnownNetwork, Neutron, own

_STRAY = "floating-"


def ports_of(cloud: Connection, site: str, sliver_id: str) -> list[NeutronPort]:
    """Return the ports of the sliver, the oldest first."""
    return own(cloud, cloud.network.ports(description=description(site, sliver_id)))


def floating_ips_of(cloud: Connection, site: str, sliver_id: str) -> list[FloatingIP]:
    """Return the floating IPs of the sliver, the oldest first."""
    return own(cloud, cloud.network.ips(description=description(site, sliver_id)))


@dataclass(frozen=True, slots=True)
class PortRecord:
    """What Neutron holds for one NIC."""

    sliver: str
    component: str
    ports: tuple[NeutronPort, ...]
    """One; more after a request whose response was lost, none if only a floating IP is left. The first
    one counts: it is bound to a server, or else has a floating IP, or else is the oldest."""
    floating: tuple[FloatingIP, ...]

    def names(self) -> Iterator[str]:
        """Yield the names of its parts, for messages."""
        for port in self.ports:
            yield f"port {port.name} ({port.id})"
        for ip in self.floating:
            yield f"floating IP {ip.floating_ip_address} ({ip.id})"


def records_of(neutron: Neutron, sliver_id: str) -> list[PortRecord]:
    """Return the record of each NIC of the sliver."""
    cloud, site = neutron.connection(), neutron.site.site
    ports = ports_of(cloud, site, sliver_id)
    return _records(sliver_id, ports, floating_ips_of(cloud, site, sliver_id))


def all_records(neutron: Neutron) -> list[PortRecord]:
    """Return the record of each NIC of all slivers of the site.

    Neutron finds descriptions only by the whole of them, so all of the project are listed.
    """
    cloud, prefix = neutron.connection(), description(neutron.site.site, "")
    project = cloud.current_project_id
    ports = _by_sliver(own(cloud, cloud.network.ports(project_id=project)), prefix)
    floating = _by_sliver(own(cloud, cloud.network.ips(project_id=project)), prefix)
    slivers = sorted(ports.keys() | floating.keys())
    return [
        record
        for sliver in slivers
        for record in _records(sliver, ports.get(sliver, []), floating.get(sliver, []))
    ]


def _by_sliver(found: Iterable[Any], prefix: str) -> dict[str, list[Any]]:
    there: dict[str, list[Any]] = {}
    for thing in found:
        if (thing.description or "").startswith(prefix):
            there.setdefault(thing.description.removeprefix(prefix), []).append(thing)
    return there


def _records(
    sliver_id: str, ports: Iterable[NeutronPort], floating: list[FloatingIP]
) -> list[PortRecord]:
    by_name: dict[str, list[NeutronPort]] = {}
    for port in ports:
        by_name.setdefault(component_of(port, sliver_id), []).append(port)
    nics = [_nic(sliver_id, name, same, floating) for name, same in by_name.items()]
    strays = [ip for ip in floating if ip.port_id is None]
    kept = [ip for ip in strays if tagged_component(ip) not in by_name]
    return nics + [_stray(sliver_id, ip) for ip in kept]


def stamped_of(neutron: Neutron) -> Iterator[Stamped]:
    """Yield the ports and floating IPs of all slivers: Neutron finds descriptions by the whole alone."""
    cloud, site = neutron.connection(), neutron.site.site
    mine = {"project_id": cloud.current_project_id}
    for port in own(cloud, cloud.network.ports(**mine)):
        if (sliver := described_sliver(site, port)) is not None:
            addresses = tuple(address["ip_address"] for address in port.fixed_ips)
            yield Stamped(sliver, "port", f"{port.name} ({port.id})", addresses)
    for ip in own(cloud, cloud.network.ips(**mine)):
        if (sliver := described_sliver(site, ip)) is not None:
            address = ip.floating_ip_address
            yield Stamped(sliver, "floating IP", f"{address} ({ip.id})", (address,))


def find_record(neutron: Neutron, sliver_id: str, component: str) -> PortRecord | None:
    """Return the record of one NIC, or None."""
    there = (record for record in records_of(neutron, sliver_id) if record.component == component)
    return next(there, None)


def _nic(
    sliver_id: str, component: str, ports: list[NeutronPort], floating: list[FloatingIP]
) -> PortRecord:
    with_ip = {ip.port_id for ip in floating}
    ports = sorted(ports, key=lambda port: (not port.device_id, port.id not in with_ip))
    mine = [ip for port in ports for ip in floating if ip.port_id == port.id]
    mine += [ip for ip in floating if ip.port_id is None and tagged_component(ip) == component]
    return PortRecord(sliver_id, component, tuple(ports), tuple(mine))


def _stray(sliver_id: str, ip: FloatingIP) -> PortRecord:
    """Return the record of a floating IP without a port: of its component, if it says which.

    Nova deletes the ports that it made with their server, and leaves their floating IPs.
    """
    if component := tagged_component(ip):
        return PortRecord(sliver_id, component, (), (ip,))
    address = str(ip.floating_ip_address).replace(".", "-")
    return PortRecord(sliver_id, f"{_STRAY}{address}", (), (ip,))


def port_of(neutron: Neutron, record: PortRecord) -> Port:
    """Return a record as a port."""
    if not record.ports:
        return _stray_port(neutron, record)
    port, *_ = record.ports
    found = Port(
        sliver=record.sliver,
        component=record.component,
        network=port.network_id,
        network_id=port.network_id,
        source=port.id,
        mac=port.mac_address,
        floating_ip=next((ip.floating_ip_address for ip in record.floating), None),
        port_security=port.is_port_security_enabled,
        enabled=port.is_admin_state_up is not False,
        down=port.status == "DOWN",
        unfinished=UNFINISHED_TAG in (port.tags or ()),
    )
    with suppress(NotFoundException):  # the project may not see the network any more
        known = neutron.known(port.network_id, [ip["subnet_id"] for ip in port.fixed_ips])
        return replace(found, network=known.network.name, **_addressing(port, known))
    return found


def _stray_port(neutron: Neutron, record: PortRecord) -> Port:
    ip, *_ = record.floating
    network = neutron.known(ip.floating_network_id).network.name
    return Port(record.sliver, record.component, network, source=ip.id, mac="")


def _addressing(port: NeutronPort, known: KnownNetwork) -> dict[str, Any]:
    """Return the port's addresses, and gateway, DNS servers and DHCP of its subnets."""
    ipv4, main = known.subnet(4), known.subnet(4) or known.subnet(6)
    return {
        **_addresses(port, known),
        "gateway": ipv4.gateway_ip if ipv4 else None,
        "dns": tuple(main.dns_nameservers) if main else (),
        "dhcp": bool(main and main.is_dhcp_enabled),
    }


def _addresses(port: NeutronPort, known: KnownNetwork) -> dict[str, Any]:
    """Return the port's first address of each family."""
    blocks = {subnet.id: ip_network(subnet.cidr) for subnet in known.subnets}
    found: dict[str, Any] = {}
    for address in (ip for ip in port.fixed_ips if ip["subnet_id"] in blocks):
        block = blocks[address["subnet_id"]]
        if ip_address(address["ip_address"]) not in block:
            raise invalid(port, "fixed_ips", f"{address['ip_address']} is not in {block}")
        interface = ip_interface(f"{address['ip_address']}/{block.prefixlen}")
        found.setdefault(f"ipv{interface.version}", interface)
    return found
