"""Ports in Neutron: a place on a network for each NIC, with its addresses and floating IP.

A vNIC names a network of site.yaml, which is made with its first port and deleted with its last
(:mod:`.own_networks`), or any other network of the cloud by its name or id,
which is only used.

Only making a network with its first port, and deleting it, exclude others. A port on a network that is
there needs no lock: Neutron deletes no network that has ports, and if it was deleted a moment before,
Neutron answers 404 and it is made again.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import replace
from ipaddress import IPv4Interface, IPv6Interface, ip_address
from typing import Any

from openstack.exceptions import NotFoundException, SDKException
from openstack.network.v2.floating_ip import FloatingIP
from openstack.network.v2.port import Port as NeutronPort

from fabric_direct.config import Site
from fabric_direct.drivers.contract import Port
from fabric_direct.drivers.openstack.client.errors import translated
from fabric_direct.drivers.openstack.client.name_cache import names
from fabric_direct.drivers.openstack.client.session import uncached
from fabric_direct.drivers.openstack.client.stamp import description, network_description
from fabric_direct.drivers.openstack.networks.address_blocks import (
    Block,
    check_address,
    fixed_ips,
    of_settings,
    of_subnets,
)
from fabric_direct.drivers.openstack.networks.desired_network import (
    Wanted,
    of_site,
    refuse_impossible,
)
from fabric_direct.drivers.openstack.networks.neutron import Known
from fabric_direct.drivers.openstack.networks.orphans import deserted, users
from fabric_direct.drivers.openstack.networks.own_networks import Networks
from fabric_direct.drivers.openstack.networks.port_records import (
    Held,
    find_held,
    floating_ips_of,
    held_for,
    port_of,
    ports_of,
)
from fabric_direct.errors import (
    Conflict,
    FabricDirectError,
    InvalidSliver,
    NotVerified,
)
from fabric_direct.model import VNicInterface


class OpenStackNetwork:
    """The :class:`~fabric_direct.drivers.contract.NetworkDriver` of a cloud.

    :param site: the site.
    :param host: name of the worker, or empty; networks are the same for all.
    """

    def __init__(self, site: Site, host: str) -> None:  # noqa: ARG002 - as for all drivers
        """Make the driver; nothing is asked yet.

        :raises InvalidSite: if the site names no cloud.
        """
        self._site, self._networks = site, Networks(site)

    # --- what can be had

    def check(self, network: str, interface: VNicInterface, sliver_id: str | None = None) -> None:
        """Return if the network can serve such an interface.

        A MAC that is in use is refused by Neutron when the port is made.

        :param sliver_id: who asks: what is held for that sliver already is not taken. If absent,
            whether an address is taken is left to ``create_port``.
        :raises InvalidSliver: if there is no such network (field ``network``), or more than one; if an
            address is outside of it, reserved or taken (``interface.ipv4``, ``.ipv6``); if a bandwidth
            or a floating IP is wanted that cannot be had.
        :raises InvalidSite: if site.yaml says too little to make the network, or what is not there.
        :raises NotOurs: if a network of its name is there without our stamp.
        """
        with self._translated(f"look for network {network}"):
            self._refuse_impossible(interface)
            known = self._look_for(network)
            for field, asked in _asked(interface):
                check_address(asked, self._blocks(network, known), interface.mac, field)
            if known and sliver_id is not None:
                self._refuse_taken(known, interface, sliver_id)

    def _refuse_impossible(self, interface: VNicInterface) -> None:
        if interface.bandwidth is not None:
            raise InvalidSliver(
                "cannot be limited in a cloud", field="interface.bandwidth", remedy="leave it out"
            )
        if not interface.floating_ip:
            return
        if self._networks.settings.external_network is None:
            raise InvalidSliver(
                "cannot be had: the site names no external network",
                field="interface.floating_ip",
                remedy="set openstack.external_network in site.yaml",
            )
        self._networks.with_external(str)

    def _look_for(self, network: str) -> Known | None:
        """Return what is known of a network; None if it is one of site.yaml and not made yet."""
        if network not in self._site.networks:
            return self._other(network)
        wanted = of_site(self._site, network)
        refuse_impossible(wanted, self._networks.settings.external_network)
        memory = self._networks.memory
        if wanted.stamp in memory.by_stamp:
            return memory.by_stamp[wanted.stamp]
        found = self._networks.find(wanted.stamp)
        if found is None:
            self._networks.refuse_taken(wanted)
            return None
        return memory.by_id.get(found.id) or self._networks.recall(found)

    def _other(self, network: str) -> Known:
        """Return what is known of a network that is not ours."""
        found = names(self._networks.connection()).network(network)
        known = self._networks.memory.by_id.get(found.id)
        return known or self._networks.recall(found)

    def _blocks(self, network: str, known: Known | None) -> list[Block]:
        settings = self._site.networks.get(network)
        return of_settings(settings) if settings else of_subnets(known.subnets if known else ())

    def _refuse_taken(self, known: Known, interface: VNicInterface, sliver_id: str) -> None:
        asked = [f"ip_address={address.ip}" for _, address in _asked(interface)]
        if not asked:
            return
        stamp = description(self._site.site, sliver_id)
        ports = self._networks.api.ports(network_id=known.network.id, fixed_ips=asked)
        for port in (port for port in ports if port.description != stamp):
            taken = {ip_address(address["ip_address"]) for address in port.fixed_ips}
            for field, address in _asked(interface):
                if address.ip in taken:
                    raise InvalidSliver(
                        f"{address.ip} is taken",
                        field=field,
                        why=f"it is held for {self._networks.owner(port)}",
                    )

    # --- what is held

    def find_port(self, sliver_id: str, component: str) -> Port | None:
        """Return the port held for this NIC, or None."""
        found = (port for port in self.ports(sliver_id) if port.component == component)
        return next(found, None)

    def ports(self, sliver_id: str) -> tuple[Port, ...]:
        """Return the ports held for the sliver, also floating IPs that have lost theirs."""
        with self._translated(f"list the ports of {sliver_id}"):
            return tuple(
                port_of(self._networks, held) for held in held_for(self._networks, sliver_id)
            )

    def leftovers(self, sliver_id: str) -> tuple[str, ...]:
        """Name everything held for the sliver, and networks that we made and nobody uses."""
        with self._translated(f"look for what is left of {sliver_id}"):
            left = [name for held in held_for(self._networks, sliver_id) for name in held.names()]
        return (*left, *self.unused())

    def _find(self, sliver_id: str, component: str) -> Held | None:
        return find_held(self._networks, sliver_id, component)

    # --- making

    def create_port(
        self, sliver_id: str, component: str, network: str, interface: VNicInterface
    ) -> Port:
        """Hold a place on the network: a MAC and one fixed address of each of its families.

        A network of site.yaml is made with its first port. A port that is held already gets the
        floating IP and the port security that ``interface`` wants.

        :raises InvalidSliver: as ``check`` does.
        :raises PoolExhausted: if no address is free.
        :raises QuotaExceeded: if the project has no room for it.
        :raises Conflict: if the MAC or address is held for another NIC, or another one for this NIC.
        :raises NotOurs: if the network's name or segment is another one's.
        :raises Denied: if it takes an administrator to make the network.
        :raises SliverBusy: if others work on the network for longer than the limit of a call.
        """
        what = f"make port {sliver_id}-{component} on network {network}"
        with self._translated(what):
            held = self._find(sliver_id, component)
            if held:
                self._refuse_other_place(held, network, interface)
            else:
                held = self._hold(sliver_id, component, network, interface)
            return port_of(self._networks, self._settle(held, interface))

    def _refuse_other_place(self, held: Held, network: str, interface: VNicInterface) -> None:
        port = port_of(self._networks, held)
        pairs = (
            (interface.mac, port.mac),
            (interface.ipv4, port.ipv4),
            (interface.ipv6, port.ipv6),
        )
        if network in {port.network, port.network_id} and all(a in {None, b} for a, b in pairs):
            return
        raise Conflict(
            f"another place is held for {held.sliver}/{held.component}",
            where=self._networks.where,
            why=f"{port.mac}, {port.ipv4 or port.ipv6} on network {port.network}",
            remedy="give it up first",
        )

    def _hold(self, sliver_id: str, component: str, network: str, interface: VNicInterface) -> Held:
        def post(known: Known) -> NeutronPort:
            for field, asked in _asked(interface):
                check_address(asked, of_subnets(known.subnets), interface.mac, field)
            return self._post(sliver_id, component, known, interface)

        ours = network in self._site.networks
        port = self._post_on_ours(network, post) if ours else self._post_on(network, post)
        return Held(sliver_id, component, (port,), ())

    def _post_on(self, network: str, post: Callable[[Known], NeutronPort]) -> NeutronPort:
        """Make a port on a network that is not ours; look again if what is known of it is not so."""
        known = self._other(network)
        try:
            return post(known)
        except NotFoundException:
            names(self._networks.connection()).forget("network", network)
            self._forget(known)
        return post(self._other(network))

    def _post_on_ours(self, network: str, post: Callable[[Known], NeutronPort]) -> NeutronPort:
        """Make a port on a network of site.yaml; the network, too, if it is not there."""
        wanted, made = of_site(self._site, network), self._networks.memory.by_stamp
        while True:
            if known := made.get(wanted.stamp):
                try:
                    return post(known)
                except NotFoundException:
                    self._forget(known)
            with self._networks.alone(network):
                # Not if another thread has made it while this one waited.
                if wanted.stamp not in made:
                    return self._post_first(wanted, post)

    def _post_first(self, wanted: Wanted, post: Callable[[Known], NeutronPort]) -> NeutronPort:
        with ExitStack() as undo:
            undo.callback(self._drop, wanted.stamp)
            port = post(self._networks.make(wanted))
            undo.pop_all()
            return port

    def _drop(self, stamp: str) -> None:
        """Delete a network whose first port could not be made; if that fails, it is left over."""
        with suppress(FabricDirectError, SDKException):
            self._networks.remove_unused(stamp)

    def _forget(self, known: Known) -> None:
        self._networks.memory.forget(known.network.id)
        for group in self._networks.settings.security_groups:
            names(self._networks.connection()).forget("security_group", group)

    def _post(
        self, sliver_id: str, component: str, known: Known, interface: VNicInterface
    ) -> NeutronPort:
        asked = {
            "name": f"{sliver_id}-{component}",
            "description": description(self._site.site, sliver_id),
            "network_id": known.network.id,
            **self._settings_of(known, interface),
        }

        def find() -> NeutronPort | None:
            found = ports_of(self._networks.connection(), self._site.site, sliver_id)
            return next((port for port in found if port.name == asked["name"]), None)

        return self._networks.once(lambda: self._networks.api.create_port(**asked), find)

    def _settings_of(self, known: Known, interface: VNicInterface) -> dict[str, Any]:
        """Return what is asked for beyond what Neutron chooses by itself.

        A member may not choose addresses on a network that another project shares.
        """
        secure, named = interface.port_security, self._networks.settings.security_groups
        effective = known.network.is_port_security_enabled if secure is None else secure
        chosen = self._networks.name_of_ours(known.network) or _asked(interface)
        filtered = named and effective is not False and known.subnets
        asked = {
            "mac_address": interface.mac,
            "fixed_ips": fixed_ips(known.subnets, interface) if chosen else None,
            "is_port_security_enabled": secure,
            "security_groups": self._groups(named) if filtered else None,
        }
        return {name: value for name, value in asked.items() if value is not None}

    def _groups(self, named: Iterable[str]) -> list[str]:
        known = names(self._networks.connection())
        return [known.security_group(name).id for name in named]

    # --- settings of a port that is there

    def _settle(self, held: Held, interface: VNicInterface) -> Held:
        """Give the port the floating IP and the port security that are wanted."""
        port, *_ = held.ports
        if interface.port_security not in {None, port.is_port_security_enabled}:
            port = self._secure(port, secure=bool(interface.port_security))
        unwanted = held.floating[1 if interface.floating_ip else 0 :]
        for ip in unwanted:
            self._networks.api.delete_ip(ip)
        floating = held.floating[: len(held.floating) - len(unwanted)]
        if interface.floating_ip and not floating:
            floating = (self._float(held, port),)
        return replace(held, ports=(port,), floating=floating)

    def _secure(self, port: NeutronPort, *, secure: bool) -> NeutronPort:
        """Switch port security; without it Neutron lets a port have no security groups."""
        named = self._networks.settings.security_groups or ("default",)
        changes: dict[str, Any] = {
            "is_port_security_enabled": secure,
            "security_groups": self._groups(named) if secure else [],
        }
        return self._networks.api.update_port(port, **changes)

    def _float(self, held: Held, port: NeutronPort) -> FloatingIP:
        """Make a floating IP, by one request with the port: so nobody else can take it."""
        connection, site = self._networks.connection(), self._site.site
        first = next((ip["ip_address"] for ip in port.fixed_ips if "." in ip["ip_address"]), None)
        asked = {
            "description": description(site, held.sliver),
            "port_id": port.id,
            **({"fixed_ip_address": first} if first else {}),
        }

        def find() -> FloatingIP | None:
            found = floating_ips_of(connection, site, held.sliver)
            return next((ip for ip in found if ip.port_id == port.id), None)

        with self._translated(f"make the floating IP of {held.sliver}/{held.component}"):
            return self._networks.with_external(
                lambda external: self._networks.once(
                    lambda: self._networks.api.create_ip(floating_network_id=external, **asked),
                    find,
                )
            )

    # --- giving up

    def delete_port(self, sliver_id: str, component: str) -> None:
        """Give the place up, with its floating IP. A network that we made goes with its last port.

        :raises NotVerified: if it is still there.
        :raises SliverBusy: if others work on the network for longer than the limit of a call.
        """
        with self._translated(f"delete port {sliver_id}-{component}"):
            held = self._find(sliver_id, component)
            if held is None:
                return
            home = self._home(held)
            if home is None:
                self._delete(held)
                return
            with self._networks.leaving(home, f"{sliver_id}-{component}"):
                self._delete(held)
                self._leave(home, held.ports[0].network_id)

    def _home(self, held: Held) -> str | None:
        """Return the name of the network of the site that its port is on, if it is on one."""
        with suppress(NotFoundException):
            for port in held.ports[:1]:
                return self._networks.name_of_ours(self._networks.known(port.network_id).network)
        return None

    def _delete(self, held: Held) -> None:
        for ip in held.floating:
            self._networks.api.delete_ip(ip)
        for port in held.ports:
            self._networks.api.delete_port(port)
        self._verify_gone(held.sliver, held.component)

    def _verify_gone(self, sliver_id: str, component: str) -> None:
        still = self._find(sliver_id, component)
        if still:
            raise NotVerified(
                "what was deleted is not gone",
                where=self._networks.where,
                why=", ".join(still.names()),
            )

    def _leave(self, name: str, network_id: str) -> None:
        """Delete the network if this was its last port."""
        with uncached():
            if not users(self._networks, [network_id]):
                self._remove_unused(name)

    def _remove_unused(self, name: str) -> None:
        with self._networks.alone(name):
            self._networks.remove_unused(network_description(self._site.site, name))

    # --- networks without ports

    def unused(self) -> tuple[str, ...]:
        """Name the networks of site.yaml that are there and that nobody uses."""
        with self._translated("look for networks that nobody uses"):
            return tuple(
                name for w in deserted(self._networks) for name in self._networks.left(w.stamp)
            )

    def remove_unused(self) -> None:
        """Delete the networks of site.yaml that nobody uses."""
        with self._translated("delete the networks that nobody uses"):
            for wanted in deserted(self._networks):
                self._remove_unused(wanted.name)

    def _translated(self, what: str) -> AbstractContextManager[None]:
        return translated(what, self._networks.where)


def _asked(interface: VNicInterface) -> list[tuple[str, IPv4Interface | IPv6Interface]]:
    pairs = (("interface.ipv4", interface.ipv4), ("interface.ipv6", interface.ipv6))
    return [(field, address) for field, address in pairs if address is not None]
