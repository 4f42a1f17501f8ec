"""Ports in Neutron: one for each NIC, with its addresses and floating IP.

A vNIC names a network of site.yaml, which is created with its first port and deleted with its last
(:mod:`.own_networks`), or any other network of the cloud by its name or id, which is only used.

Creating a network with its first port, and deleting it, take the network's lock. A port on an existing
network needs no lock: Neutron deletes no network that has ports, and if the network was deleted just
before, Neutron answers 404 and the network is created again.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from ipaddress import IPv4Interface, IPv6Interface, ip_address
from typing import Any, ClassVar

from openstack.exceptions import NotFoundException, SDKException
from openstack.network.v2.floating_ip import FloatingIP
from openstack.network.v2.port import Port as NeutronPort

from fabric_direct.calls.read_cache import current
from fabric_direct.drivers.contract import Port, Stamped
from fabric_direct.drivers.contract.fields import refuse_fields
from fabric_direct.drivers.contract.site_checks import refuse_floating_ip, taken
from fabric_direct.drivers.openstack.client.base import CloudDriver
from fabric_direct.drivers.openstack.client.hidden_servers import is_marked_deleted, server_by_id
from fabric_direct.drivers.openstack.client.name_cache import LIMITS_PORTS
from fabric_direct.drivers.openstack.client.session import uncached
from fabric_direct.drivers.openstack.client.stamp import description, network_description
from fabric_direct.drivers.openstack.networks.address_blocks import (
    AddressBlock,
    check_address,
    fixed_ips,
    of_settings,
    of_subnets,
)
from fabric_direct.drivers.openstack.networks.desired_network import (
    DesiredNetwork,
    of_site,
    refuse_impossible,
)
from fabric_direct.drivers.openstack.networks.neutron import KnownNetwork
from fabric_direct.drivers.openstack.networks.orphans import orphans, users
from fabric_direct.drivers.openstack.networks.own_networks import OwnNetworks
from fabric_direct.drivers.openstack.networks.port_records import (
    PortRecord,
    all_records,
    find_record,
    floating_ips_of,
    port_name,
    port_of,
    ports_of,
    record_of,
    records_of,
    stamped_of,
)
from fabric_direct.errors import (
    Conflict,
    FabricDirectError,
    InvalidSliver,
    NotFound,
    NotVerified,
)
from fabric_direct.model import VNicInterface
from fabric_direct.site.config import Site


class OpenStackNetwork(CloudDriver):
    """The :class:`~fabric_direct.drivers.contract.NetworkDriver` of a cloud."""

    unserved: ClassVar[tuple[str, ...]] = ("service", "vlan", "port", "mtu", "routes")
    vnic_type: ClassVar[str | None] = None
    """The type of the ports that it makes, and lists for all slivers; Neutron's usual one if None."""

    def __init__(self, site: Site, host: str) -> None:
        super().__init__(site, host)
        self._networks = OwnNetworks(site)

    # --- check

    def check(self, network: str, interface: VNicInterface, sliver_id: str | None = None) -> None:
        """Raise an error unless the network can serve such an interface.

        Neutron refuses a MAC address that is in use when the port is created.

        :param sliver_id: the sliver that asks: addresses that it holds already are not taken. If absent,
            taken addresses are left to ``create_port``.
        :raises InvalidSliver: if there is no such network (field ``network``), or more than one; if an
            address is outside of it, reserved or taken (``interface.ipv4``, ``.ipv6``); if the cloud
            does not serve a field, or cannot provide the floating IP.
        :raises InvalidSite: if site.yaml lacks a setting to create the network, or names what the cloud
            does not have.
        :raises NotOurs: if a network of its name exists without this site's stamp.
        """
        with self.translated(f"look for network {network}"):
            self._refuse_impossible(interface)
            known = self._look_for(network)
            for field, asked in _asked(interface):
                check_address(asked, self._blocks(network, known), interface.mac, field)
            if known and sliver_id is not None:
                self._refuse_taken(known, interface, sliver_id)

    def _refuse_impossible(self, interface: VNicInterface) -> None:
        refuse_fields(interface, self.unserved, "in a cloud", "interface.")
        if interface.bandwidth is not None:
            self.names.chosen("extension", self._refuse_limit)
        refuse_floating_ip(self.site, interface)
        if interface.floating_ip:
            self._networks.with_external(str)

    def _refuse_limit(self) -> None:
        if not self.names.limits_ports():
            raise InvalidSliver(
                "is not available in this cloud",
                why=f"its Neutron lacks the extensions {', '.join(sorted(LIMITS_PORTS))}",
                field="interface.bandwidth",
                remedy="leave it out, or let Neutron load the service plugin qos",
            )

    def _look_for(self, network: str) -> KnownNetwork | None:
        """Return a network; None if it is one of site.yaml that does not exist yet."""
        if network not in self.site.networks:
            return self._other(network)
        desired = of_site(self.site, network)
        refuse_impossible(desired, self.settings.external_network)
        memory = self._networks.memory
        if desired.stamp in memory.by_stamp:
            return memory.by_stamp[desired.stamp]
        found = self._networks.find(desired.stamp)
        if found is None:
            self._networks.refuse_taken(desired)
            return None
        return memory.by_id.get(found.id) or self._networks.recall(found)

    def _other(self, network: str) -> KnownNetwork:
        """Return a network that is not of site.yaml."""
        found = self.names.network(network)
        known = self._networks.memory.by_id.get(found.id)
        return known or self._networks.recall(found)

    def _blocks(self, network: str, known: KnownNetwork | None) -> list[AddressBlock]:
        settings = self.site.networks.get(network)
        return of_settings(settings) if settings else of_subnets(known.subnets if known else ())

    def _refuse_taken(self, known: KnownNetwork, interface: VNicInterface, sliver_id: str) -> None:
        asked = [f"ip_address={address.ip}" for _, address in _asked(interface)]
        if not asked:
            return
        stamp = description(self.site.site, sliver_id)
        ports = self._networks.api.ports(network_id=known.network.id, fixed_ips=asked)
        for port in (port for port in ports if port.description != stamp):
            held = {ip_address(address["ip_address"]) for address in port.fixed_ips}
            for field, address in _asked(interface):
                if address.ip in held:
                    raise taken(field, address.ip, self._networks.owner(port))

    # --- read

    def find_port(self, sliver_id: str, component: str) -> Port | None:
        """Return the port of this NIC, or None."""
        with self.translated(f"look for the port of {sliver_id}/{component}"):
            record = find_record(self._networks, sliver_id, component)
            return port_of(self._networks, record) if record else None

    def ports(self, sliver_id: str) -> tuple[Port, ...]:
        """Return the ports of the sliver, also floating IPs and QoS policies that have lost theirs."""
        with self.translated(f"list the ports of {sliver_id}"):
            records = records_of(self._networks, sliver_id)
            return tuple(port_of(self._networks, record) for record in records)

    def all_ports(self) -> tuple[Port, ...]:
        """Return the ports of all slivers of the site: one list of each kind."""
        with self.translated("list the ports of the site"):
            records = all_records(self._networks, self.vnic_type)
            return tuple(port_of(self._networks, record) for record in records)

    def leftovers(self, sliver_id: str) -> tuple[str, ...]:
        """Name what is held for the sliver, and the networks of site.yaml without a user."""
        with self.translated(f"look for what is left of {sliver_id}"):
            records = records_of(self._networks, sliver_id)
        return (*(name for record in records for name in record.names()), *self.unused())

    def stamped(self) -> tuple[Stamped, ...]:
        """Return all ports, floating IPs and QoS policies of slivers."""
        with self.translated("list the ports, floating IPs and QoS policies"):
            return tuple(stamped_of(self._networks, self.vnic_type))

    # --- create

    def create_port(
        self, sliver_id: str, component: str, network: str, interface: VNicInterface
    ) -> Port:
        """Create the port of a NIC, with one fixed address of each of the network's families.

        A network of site.yaml is created with its first port. An existing port gets the floating IP and
        the port security that ``interface`` asks for.

        :raises InvalidSliver: as ``check`` does.
        :raises PoolExhausted: if no address is free.
        :raises QuotaExceeded: if the project's quota is used up.
        :raises Conflict: if another port has the MAC or IP address, or this NIC's port has others.
        :raises NotOurs: if the network's name or segment belongs to another network.
        :raises Denied: if only an administrator may create the network.
        :raises SliverBusy: if another thread or process holds the network's lock longer than
            ``limits.call``.
        """
        with self.translated(f"make port {sliver_id}-{component} on network {network}"):
            record = find_record(self._networks, sliver_id, component)
            if record:
                # What a port has is changed by what is read now: an earlier answer may have lacked some.
                if reads := current():
                    reads.invalidate()
                record = find_record(self._networks, sliver_id, component) or record
                self._refuse_other_place(record, network, interface)
            else:
                record = self._hold(sliver_id, component, network, interface)
            return port_of(self._networks, self._settle(record, interface))

    def _refuse_other_place(
        self, record: PortRecord, network: str, interface: VNicInterface
    ) -> None:
        port = port_of(self._networks, record)
        pairs = (
            (interface.mac, port.mac),
            (interface.ipv4, port.ipv4),
            (interface.ipv6, port.ipv6),
        )
        if network in {port.network, port.network_id} and all(a in {None, b} for a, b in pairs):
            return
        raise Conflict(
            f"{record.sliver}/{record.component} has another port",
            why=f"{port.mac}, {port.ipv4 or port.ipv6} on network {port.network}",
            remedy="delete that port first",
        )

    def _hold(
        self, sliver_id: str, component: str, network: str, interface: VNicInterface
    ) -> PortRecord:
        def post(known: KnownNetwork) -> NeutronPort:
            for field, asked in _asked(interface):
                check_address(asked, of_subnets(known.subnets), interface.mac, field)
            return self._post(sliver_id, component, known, interface)

        ours = network in self.site.networks
        port = self._post_on_ours(network, post) if ours else self._post_on(network, post)
        return PortRecord(sliver_id, component, (port,), ())

    def _post_on(self, network: str, post: Callable[[KnownNetwork], NeutronPort]) -> NeutronPort:
        """Create a port on a network that is not of site.yaml; look it up again if it is gone."""
        known = self._other(network)
        try:
            return post(known)
        except NotFoundException:
            self.names.forget("network", network)
            self._forget(known)
        return post(self._other(network))

    def _post_on_ours(
        self, network: str, post: Callable[[KnownNetwork], NeutronPort]
    ) -> NeutronPort:
        """Create a port on a network of site.yaml, and the network if it does not exist."""
        desired, made = of_site(self.site, network), self._networks.memory.by_stamp
        while True:
            if known := made.get(desired.stamp):
                try:
                    return post(known)
                except NotFoundException:
                    self._forget(known)
            with self._networks.alone(network):
                # Unless another thread has created it while this one waited.
                if desired.stamp not in made:
                    return self._post_first(desired, post)

    def _post_first(
        self, desired: DesiredNetwork, post: Callable[[KnownNetwork], NeutronPort]
    ) -> NeutronPort:
        try:
            return post(self._networks.make(desired))
        except BaseException:
            # If the network cannot be deleted either, it is a leftover.
            with suppress(FabricDirectError, SDKException):
                self._networks.remove_unused(desired.stamp)
            raise

    def _forget(self, known: KnownNetwork) -> None:
        self._networks.memory.forget(known.network.id)
        for group in self.settings.security_groups:
            self.names.forget("security_group", group)

    def _post(
        self, sliver_id: str, component: str, known: KnownNetwork, interface: VNicInterface
    ) -> NeutronPort:
        asked = {
            "name": port_name(sliver_id, component),
            "description": description(self.site.site, sliver_id),
            "network_id": known.network.id,
            **self._settings_of(known, interface),
        }

        def find() -> NeutronPort | None:
            found = ports_of(self.connection(), self.site.site, sliver_id)
            return next((port for port in found if port.name == asked["name"]), None)

        return self.once(lambda: self._networks.api.create_port(**asked), find)

    def _settings_of(self, known: KnownNetwork, interface: VNicInterface) -> dict[str, Any]:
        """Return the attributes of a port that Neutron does not choose by itself.

        A member may not choose addresses on a network that another project shares.
        """
        secure, named = interface.port_security, self.settings.security_groups
        effective = known.network.is_port_security_enabled if secure is None else secure
        chosen = self._networks.name_of_ours(known.network) or _asked(interface)
        filtered = named and effective is not False and known.subnets
        asked = {
            "mac_address": interface.mac,
            "fixed_ips": fixed_ips(known.subnets, interface) if chosen else None,
            "is_port_security_enabled": secure,
            "security_groups": self._groups(named) if filtered else None,
            "binding_vnic_type": self.vnic_type,
        }
        return {name: value for name, value in asked.items() if value is not None}

    def _groups(self, named: Iterable[str]) -> list[str]:
        return [self.names.security_group(name).id for name in named]

    # --- settings of an existing port

    def _settle(self, record: PortRecord, interface: VNicInterface) -> PortRecord:
        """Switch the port on, with the floating IP and the port security that are asked for."""
        port, *_ = record.ports
        if interface.port_security not in {None, port.is_port_security_enabled}:
            port = self._secure(port, secure=bool(interface.port_security))
        if port.is_admin_state_up is False:
            port = self._networks.api.update_port(port, is_admin_state_up=True)
        unwanted = record.floating[1 if interface.floating_ip else 0 :]
        for ip in unwanted:
            self._networks.api.delete_ip(ip)
        floating = record.floating[: len(record.floating) - len(unwanted)]
        if interface.floating_ip and not floating:
            floating = (self._float(record, port),)
        return replace(record, ports=(port,), floating=floating)

    def _secure(self, port: NeutronPort, *, secure: bool) -> NeutronPort:
        """Switch port security on or off; without it a port cannot have security groups."""
        named = self.settings.security_groups or ("default",)
        changes: dict[str, Any] = {
            "is_port_security_enabled": secure,
            "security_groups": self._groups(named) if secure else [],
        }
        return self._networks.api.update_port(port, **changes)

    def _float(self, record: PortRecord, port: NeutronPort) -> FloatingIP:
        """Create a floating IP for the port, in one request: nobody else can take it."""
        site = self.site.site
        first = next((ip["ip_address"] for ip in port.fixed_ips if "." in ip["ip_address"]), None)
        asked = {
            "description": description(site, record.sliver),
            "port_id": port.id,
            **({"fixed_ip_address": first} if first else {}),
        }

        def find() -> FloatingIP | None:
            found = floating_ips_of(self.connection(), site, record.sliver)
            return next((ip for ip in found if ip.port_id == port.id), None)

        with self.translated(f"make the floating IP of {record.sliver}/{record.component}"):
            return self._networks.with_external(
                lambda external: self.once(
                    lambda: self._networks.api.create_ip(floating_network_id=external, **asked),
                    find,
                )
            )

    def create_floating_ip(self, sliver_id: str, component: str) -> None:
        """Give a port a floating IP, unless it has one.

        :raises NotFound: if there is no such port, or its network does not reach the external one.
        :raises QuotaExceeded: if the project's quota is used up.
        """
        with self.translated(f"give {sliver_id}/{component} a floating IP"):
            record = find_record(self._networks, sliver_id, component)
            if record is None or not record.ports:
                raise NotFound(f"port {component} of sliver {sliver_id} is not there")
            if not record.floating:
                self._float(record, record.ports[0])

    # --- delete

    def delete_floating_ip(self, sliver_id: str, component: str) -> None:
        """Delete the floating IP of the port; without one do nothing."""
        with self.translated(f"delete the floating IP of {sliver_id}/{component}"):
            record = find_record(self._networks, sliver_id, component)
            for ip in record.floating if record else ():
                self._networks.api.delete_ip(ip)

    def delete_port(self, sliver_id: str, component: str) -> None:
        """Delete the port with floating IP and QoS policy, and a network of site.yaml with its last one.

        :raises Conflict: if a server has it that Nova has only marked as deleted.
        :raises NotVerified: if any of it still exists.
        :raises SliverBusy: if another thread or process holds the network's lock longer than
            ``limits.call``.
        :raises Unreachable: if a server has it whose cell does not answer.
        """
        with self.translated(f"delete port {sliver_id}-{component}"):
            record = find_record(self._networks, sliver_id, component)
            if record is None:
                # The request for its network may have taken effect, unlike that for the port.
                self.remove_unused()
                return
            home = self._home(record)
            if home is None:
                self._delete(record)
                return
            with self._networks.leaving(home, f"{sliver_id}-{component}"):
                self._delete(record)
                self._leave(home, record.ports[0].network_id)

    def _home(self, record: PortRecord) -> str | None:
        """Return the name of the network of site.yaml that the port is on, or None."""
        with suppress(NotFoundException):
            for port in record.ports[:1]:
                return self._networks.name_of_ours(self._networks.known(port.network_id).network)
        return None

    def _delete(self, record: PortRecord) -> None:
        """Delete all of the record, and what the lists that it is of may have left out."""
        for _ in range(2):
            self._delete_parts(record)
            left = record_of(self._networks, record.sliver, record.component)
            if left is None:
                return
            record = left
        raise NotVerified("the port is not gone", why=", ".join(record.names()))

    def _delete_parts(self, record: PortRecord) -> None:
        for port in record.ports:
            self._refuse_hidden_server(port)
        for ip in record.floating:
            self._networks.api.delete_ip(ip)
        for port in record.ports:
            self._networks.api.delete_port(port)
        for policy in record.policies:
            self._networks.api.delete_qos_policy(policy)

    def _refuse_hidden_server(self, port: NeutronPort) -> None:
        """Raise an error if a server has the port that no list of Nova shows."""
        if not str(port.device_owner or "").startswith("compute:"):
            return
        server = server_by_id(self.connection(), port.device_id)
        if server is not None and is_marked_deleted(server):
            raise Conflict(
                f"port {port.id} is plugged into server {server.name} ({server.id})",
                why="Nova has only marked it as deleted, and keeps it for a while",
                remedy="delete it by force: openstack server delete --force",
            )

    def _leave(self, name: str, network_id: str) -> None:
        """Delete the network if this was its last port."""
        with uncached():
            if not users(self._networks, [network_id]):
                self._remove_unused(name)

    def _remove_unused(self, name: str) -> None:
        with self._networks.alone(name):
            self._networks.remove_unused(network_description(self.site.site, name))

    # --- networks without a user

    def unused(self) -> tuple[str, ...]:
        """Name the networks of site.yaml that exist without a user."""
        with self.translated("look for networks that nobody uses"):
            return tuple(
                name for w in orphans(self._networks) for name in self._networks.left(w.stamp)
            )

    def remove_unused(self) -> None:
        """Delete the networks of site.yaml that have no user."""
        with self.translated("delete the networks that nobody uses"):
            for desired in orphans(self._networks):
                self._remove_unused(desired.name)


def _asked(interface: VNicInterface) -> list[tuple[str, IPv4Interface | IPv6Interface]]:
    pairs = (("interface.ipv4", interface.ipv4), ("interface.ipv6", interface.ipv6))
    return [(field, address) for field, address in pairs if address is not None]
