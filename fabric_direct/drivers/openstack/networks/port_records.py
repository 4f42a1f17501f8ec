"""Ports, floating IPs and QoS policies that Neutron holds for the NICs of a sliver.

One request lists all ports of a sliver, another all its floating IPs, a third all its policies, in a
cloud that has them: always the same, so that the read cache serves them. A floating IP or policy whose
port is gone counts as a port without a MAC address, of its component or ``floating-192-0-2-7``: so it
is seen, and deleted like one.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from ipaddress import ip_address, ip_interface, ip_network
from typing import Any

from openstack.connection import Connection
from openstack.exceptions import NotFoundException
from openstack.network.v2.floating_ip import FloatingIP
from openstack.network.v2.port import Port as NeutronPort
from openstack.network.v2.qos_policy import QoSPolicy

from fabric_direct.calls.deadline import at_once
from fabric_direct.drivers.contract import Port, Stamped
from fabric_direct.drivers.openstack.client.answers import invalid
from fabric_direct.drivers.openstack.client.session import uncached
from fabric_direct.drivers.openstack.client.stamp import (
    UNFINISHED_TAG,
    component_of,
    described_sliver,
    description,
    tagged_component,
)
from fabric_direct.drivers.openstack.networks.neutron import KnownNetwork, Neutron, own

BARE_METAL = "baremetal"
"""The type of the ports for NICs of bare-metal nodes, which are not those of VMs."""
_STRAY = "floating-"
_PARTS = ("ports", "floating", "policies")
# The name of the network of a port that is gone.
_NO_NETWORK = "unknown"


def ports_of(cloud: Connection, site: str, sliver_id: str) -> list[NeutronPort]:
    """Return the ports of the sliver, the oldest first."""
    return own(cloud, cloud.network.ports(description=description(site, sliver_id)))


def floating_ips_of(cloud: Connection, site: str, sliver_id: str) -> list[FloatingIP]:
    """Return the floating IPs of the sliver, the oldest first."""
    return own(cloud, cloud.network.ips(description=description(site, sliver_id)))


def policies_of(cloud: Connection, site: str, sliver_id: str) -> list[QoSPolicy]:
    """Return the QoS policies of the sliver; there is one for a port at most."""
    return own(cloud, cloud.network.qos_policies(description=description(site, sliver_id)))


def port_name(sliver_id: str, component: str) -> str:
    """Return the name of the port that is made for a NIC, and of its QoS policy."""
    return f"{sliver_id}-{component}"


@dataclass(frozen=True, slots=True)
class PortRecord:
    """The resources of Neutron for one NIC."""

    sliver: str
    component: str
    ports: tuple[NeutronPort, ...]
    """One; more after a request whose response was lost, none if only something else is left. The first
    one counts: it is bound to a server, or else has a floating IP, or else is the oldest."""
    floating: tuple[FloatingIP, ...]
    policies: tuple[QoSPolicy, ...] = ()

    def names(self) -> Iterator[str]:
        """Yield the names of its parts, for messages."""
        for port in self.ports:
            yield f"port {port.name} ({port.id})"
        for ip in self.floating:
            yield f"floating IP {ip.floating_ip_address} ({ip.id})"
        for policy in self.policies:
            yield f"QoS policy {policy.name} ({policy.id})"


def records_of(neutron: Neutron, sliver_id: str) -> list[PortRecord]:
    """Return the record of each NIC of the sliver."""
    mine = neutron.connection(), neutron.site.site, sliver_id
    policies = partial(policies_of, *mine) if neutron.names.limits_ports() else list
    lists = at_once(partial(ports_of, *mine), policies, partial(floating_ips_of, *mine))
    return _records(sliver_id, *lists)


def all_records(neutron: Neutron, vnic_type: str | None) -> list[PortRecord]:
    """Return the record of each NIC of all slivers of the site, of bare-metal nodes or of all others."""
    kinds = [_by_sliver(neutron, found) for found in _of_project(neutron, vnic_type)]
    slivers = sorted(set().union(*kinds))
    return [
        record
        for sliver in slivers
        for record in _records(sliver, *(found.get(sliver, []) for found in kinds))
    ]


def _of_project(neutron: Neutron, vnic_type: str | None) -> tuple[list[Any], ...]:
    """Return the project's ports of such a type, QoS policies and floating IPs.

    Neutron finds descriptions only by the whole of them, so all are listed.
    """
    mine = {"project_id": neutron.connection().current_project_id}
    policies = partial(neutron.api.qos_policies, **mine) if neutron.names.limits_ports() else tuple
    lists = partial(neutron.api.ports, **mine), policies, partial(neutron.api.ips, **mine)
    ports, *others = at_once(*(partial(_read, neutron, question) for question in lists))
    of_nodes = vnic_type == BARE_METAL
    kept = [port for port in ports if (port.binding_vnic_type == BARE_METAL) == of_nodes]
    return kept, *others


def _read(neutron: Neutron, question: Callable[[], Iterable[Any]]) -> list[Any]:
    return neutron.mine(question())


def _by_sliver(neutron: Neutron, found: Iterable[Any]) -> dict[str, list[Any]]:
    there: dict[str, list[Any]] = {}
    for thing in found:
        if (sliver := described_sliver(neutron.site.site, thing)) is not None:
            there.setdefault(sliver, []).append(thing)
    return there


def _records(
    sliver_id: str,
    ports: list[NeutronPort],
    policies: list[QoSPolicy],
    floating: list[FloatingIP],
) -> list[PortRecord]:
    """Return the records; a floating IP of a port that is not listed is a stray, as one without.

    The lists are read at the same time: the port may have gone in between.
    """
    by_name: dict[str, list[NeutronPort]] = {}
    for port in ports:
        by_name.setdefault(component_of(port, sliver_id), []).append(port)
    there = {port.id for port in ports}
    strays = [ip for ip in floating if ip.port_id not in there]
    nics = [_nic(sliver_id, name, same, floating, strays) for name, same in by_name.items()]
    kept = [ip for ip in strays if tagged_component(ip) not in by_name]
    nics += [_stray(sliver_id, ip) for ip in kept]
    named = ((component_of(policy, sliver_id), policy) for policy in policies)
    return _merged([*nics, *(PortRecord(sliver_id, name, (), (), (p,)) for name, p in named)])


def _merged(records: Iterable[PortRecord]) -> list[PortRecord]:
    """Return one record for each component."""
    found: dict[str, PortRecord] = {}
    for new in records:
        was = found.setdefault(new.component, replace(new, ports=(), floating=(), policies=()))
        parts = {name: getattr(was, name) + getattr(new, name) for name in _PARTS}
        found[new.component] = replace(was, **parts)
    return list(found.values())


def stamped_of(neutron: Neutron, vnic_type: str | None) -> Iterator[Stamped]:
    """Yield what is held for all slivers; ports of bare-metal nodes, or all others."""
    site, (ports, policies, floating) = neutron.site.site, _of_project(neutron, vnic_type)
    for port in ports:
        if (sliver := described_sliver(site, port)) is not None:
            addresses = tuple(address["ip_address"] for address in port.fixed_ips)
            yield Stamped(sliver, "port", f"{port.name} ({port.id})", addresses)
    for ip in floating:
        if (sliver := described_sliver(site, ip)) is not None:
            address = ip.floating_ip_address
            yield Stamped(sliver, "floating IP", f"{address} ({ip.id})", (address,))
    for policy in policies:
        if (sliver := described_sliver(site, policy)) is not None:
            yield Stamped(sliver, "QoS policy", f"{policy.name} ({policy.id})")


def find_record(neutron: Neutron, sliver_id: str, component: str) -> PortRecord | None:
    """Return the record of one NIC, or None.

    A port that the list by description lacks is looked for by its name: then all is read again.
    """
    record = record_of(neutron, sliver_id, component)
    if record is not None and record.ports:
        return record
    named = neutron.mine(neutron.api.ports(name=port_name(sliver_id, component)))
    stamp = description(neutron.site.site, sliver_id)
    if not any(port.description == stamp for port in named):
        return record
    with uncached():
        return record_of(neutron, sliver_id, component)


def record_of(neutron: Neutron, sliver_id: str, component: str) -> PortRecord | None:
    """Return the record of one NIC as the lists by description have it, or None."""
    there = (record for record in records_of(neutron, sliver_id) if record.component == component)
    return next(there, None)


def _nic(
    sliver_id: str,
    component: str,
    ports: list[NeutronPort],
    floating: list[FloatingIP],
    strays: list[FloatingIP],
) -> PortRecord:
    with_ip = {ip.port_id for ip in floating}
    ports = sorted(ports, key=lambda port: (not port.device_id, port.id not in with_ip))
    mine = [ip for port in ports for ip in floating if ip.port_id == port.id]
    mine += [ip for ip in strays if tagged_component(ip) == component]
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
    if not record.floating:
        policy, *_ = record.policies
        return Port(record.sliver, record.component, _NO_NETWORK, source=policy.id, mac="")
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
