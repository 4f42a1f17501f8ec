"""Networks and ports for VMs without OpenStack.

Each NIC holds a MAC and one fixed address of each family of its network, in the site's address pools
(:mod:`.address_pools`). A strategy makes the network itself (:mod:`.strategies`). A port is created in
this order: row in the pool, network, DHCP entry (that of the first port before the network starts); and
deleted in the reverse order. The row in the pool thus exists as long as anything else of the port does,
so that a call which was killed anywhere is completed by calling again.

Only creating and deleting a network takes a lock. A DHCP entry needs none, because a network is not
deleted while another NIC has a row in its pool.

A router advertises the IPv6 prefix, and a guest that forms its address from its MAC gets the one that is
held. Any other address (asked for, or in a prefix other than /64) must be configured in the guest.

Bridges, VLANs and leases need netlink and sockets of the host. So a host whose libvirt runs on another
machine must have ``ssh`` in site.yaml; only :meth:`LibvirtNetwork.leftovers` does without.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from ipaddress import IPv4Interface, IPv6Interface
from typing import ClassVar
from urllib.parse import urlsplit

import libvirt

from fabric_direct.calls.read_cache import read
from fabric_direct.drivers.contract import Port, Stamped
from fabric_direct.drivers.contract.fields import refuse_fields
from fabric_direct.drivers.contract.site_checks import known_network, refuse_port, taken
from fabric_direct.drivers.hosts.choice import host_driver
from fabric_direct.drivers.libvirt.connection.connections import connect, translated
from fabric_direct.drivers.libvirt.networks import dnsmasq, strategies
from fabric_direct.drivers.libvirt.networks.address_pools import Held, Pools
from fabric_direct.drivers.libvirt.networks.strategies import NetworkHost, Strategy, is_idle
from fabric_direct.drivers.libvirt.networks.taps import Taps
from fabric_direct.drivers.netlink import vlan
from fabric_direct.errors import InvalidSite, InvalidSliver
from fabric_direct.model import VNicInterface
from fabric_direct.model.networks import SiteNetwork
from fabric_direct.site.addresses import check_addresses
from fabric_direct.site.config import Site
from fabric_direct.state.site_store import store_of


class LibvirtNetwork:
    """A :class:`~fabric_direct.drivers.contract.NetworkDriver` for the networks of one host."""

    unserved: ClassVar[tuple[str, ...]] = ("vlan", "floating_ip", "port_security")

    def __init__(self, site: Site, host: str) -> None:
        """Create the driver; nothing is opened.

        :raises NotFound: if the site has no such host.
        """
        self._site = site
        self._host = NetworkHost(host, site.host(host).libvirt, host_driver(site, host))
        self._taps = Taps(site, host, self._host.kernel)
        self._pools = Pools(store_of(site), timeout=site.limits.call)

    def check(self, network: str, interface: VNicInterface, sliver_id: str | None = None) -> None:
        """Raise InvalidSliver unless the network can serve the interface.

        :param sliver_id: the sliver that asks; what is held for it is available to it. If absent,
            only ``create_port`` finds out whether something is taken.
        :raises InvalidSliver: if there is no such network (field ``network``); if an address is
            outside of it, reserved or taken (``interface.ipv4``, ``.ipv6``), or a MAC (``.mac``).
        :raises NotOurs: if a libvirt network of its name exists without this site's stamp.
        :raises InvalidSite: if libvirt runs on another machine and the host has no ``ssh``.
        """
        refuse_fields(interface, self.unserved, "on libvirt", "interface.")
        if network in self._site.switches:
            self._taps.check(network, interface, sliver_id)
            return
        refuse_port(interface)
        check_addresses(self._settings(network), interface)
        with self._within_reach(f"look for network {network}"):
            self._strategy(network).check()
        clashes = () if sliver_id is None else self._pools.taken(network, interface, sliver_id)
        for field, holder in clashes:
            raise taken(f"interface.{field}", getattr(holder, field), str(holder))

    @read
    def find_port(self, sliver_id: str, component: str) -> Port | None:
        """Return the port held for this NIC if it is complete, or None."""
        if tap := self._taps.find(sliver_id, component):
            return tap
        held = self._held(sliver_id, component)
        if held is None or held.network not in self._site.networks:
            return None
        with self._within_reach(f"look for the port {held}"):
            if not self._strategy(held.network).plugged(held):
                return None
        return self._port(held)

    def ports(self, sliver_id: str) -> tuple[Port, ...]:
        """Return the ports held for the sliver, also incomplete ones."""
        held = self._pools.of_sliver(sliver_id, self._host.name)
        return (*map(self._port, held), *self._taps.ports(sliver_id))

    def all_ports(self) -> tuple[Port, ...]:
        """Return the ports held for all slivers on the host, also incomplete ones."""
        held = self._pools.of_host(self._host.name)
        return (*map(self._port, held), *self._taps.ports())

    def create_port(
        self, sliver_id: str, component: str, network: str, interface: VNicInterface
    ) -> Port:
        """Hold a port on the network: a MAC and one fixed address of each of its address families.

        The network is created with its first port. What is missing of a port or its network is
        completed, and a network that was not started with the host is started.

        :raises InvalidSliver, InvalidSite: as ``check`` does.
        :raises PoolExhausted: if no address is free.
        :raises Conflict: if the MAC or address is held for another NIC, or another one for this NIC.
        :raises NotFound: if the bridge of a ``flat`` network does not exist.
        :raises NotOurs: if a libvirt network or link of its name exists without this site's stamp.
        :raises NotVerified: if libvirt, read back, does not serve the port.
        :raises SliverBusy: if the network's lock is not released within the limit of a call.
        :raises Unsupported: if the host's kernel has no VLANs.
        """
        if network in self._site.switches:
            return self._taps.make(sliver_id, component, network, interface)
        refuse_port(interface)
        settings = self._settings(network)
        check_addresses(settings, interface)
        with self._within_reach(f"make a port on {network}"):
            held = self._pools.hold(
                sliver_id, component, self._host.name, network, settings, interface
            )
            with self._alone(network):
                self._strategy(network).make(held)
            self._strategy(network).plug(held)
            return self._port(held)

    def create_floating_ip(self, sliver_id: str, component: str) -> None:
        """Raise InvalidSliver, as ``check`` does: libvirt has no floating IPs."""
        what = f"no floating IP for {sliver_id}/{component}"
        raise InvalidSliver(what, field="interface.floating_ip", why="libvirt has none")

    def delete_floating_ip(self, sliver_id: str, component: str) -> None:
        """Do nothing: libvirt has no floating IPs."""

    def delete_port(self, sliver_id: str, component: str) -> None:
        """Release the port. A network that we made is deleted with its last port.

        :raises InvalidSite: as ``check`` does.
        :raises Conflict: if the network would be deleted, and a running domain is plugged into it.
        :raises TimedOut: if dnsmasq does not end the NIC's lease.
        :raises SliverBusy: if the network's lock is not released within the limit of a call.
        """
        self._taps.remove(sliver_id, component)
        held = self._held(sliver_id, component)
        if held is None:
            return
        with self._within_reach(f"delete port {held}") as connection:
            self._unplug(connection, held)
            with self._alone(held.network):
                self._delete_network(connection, held)
                self._pools.release(sliver_id, component)

    def leftovers(self, sliver_id: str) -> tuple[str, ...]:
        """Name everything held for the sliver: ports, DHCP entries, leases."""
        there = self._pools.of_sliver(sliver_id, self._host.name)
        taps = self._taps.leftovers(sliver_id)
        if not there:
            return taps
        with self._libvirt(f"look for what is left of {sliver_id}") as connection:
            return (*taps, *(name for held in there for name in self._left(connection, held)))

    def stamped(self) -> tuple[Stamped, ...]:
        """Return the ports that are held on the host, by the rows of the address pools."""
        held = (
            Stamped(held.sliver, "port", f"{held.component} on {held.network}", _ips(held))
            for held in self._pools.of_host(self._host.name)
        )
        return (*held, *self._taps.stamped())

    def unused(self) -> tuple[str, ...]:
        """Return the names of the site's networks without a port, a DHCP entry and a plugged NIC.

        A network has a row in the pool as long as anything of it exists, unless the pools were lost.
        """
        with self._libvirt("look for networks that nobody uses") as connection:
            there = strategies.networks_of(connection, self._site.site)
            # Read after the networks: a row comes before its network, and goes after it.
            held = {row.network for row in self._pools.of_host(self._host.name)}
            return tuple(n for n, found in there.items() if n not in held and is_idle(found))

    def remove_unused(self) -> None:
        """Delete these networks, unless they get a port meanwhile."""
        for name in self.unused():
            with self._within_reach(f"delete network {name}") as connection, self._alone(name):
                self._remove_network(connection, name)

    def _remove_network(self, connection: libvirt.virConnect, name: str) -> None:
        if self._pools.of_network(name, self._host.name):
            return
        stamp = strategies.vlan_stamp(self._site.site, name)
        vlan.remove_vlans(stamp, host=self._host.kernel)
        network = strategies.find_ours(connection, self._site.site, name)
        if network and is_idle(network):
            strategies.delete_network(network)

    def _unplug(self, connection: libvirt.virConnect, held: Held) -> None:
        """Remove the NIC from a network that others use; otherwise it goes with the network."""
        network = strategies.find_ours(connection, self._site.site, held.network)
        if network and (self._others(held) or strategies.is_shared(network, held)):
            dnsmasq.release(network, held.mac, self._host.kernel)
            dnsmasq.remove_host(network, held.mac)

    def _delete_network(self, connection: libvirt.virConnect, held: Held) -> None:
        """Delete the network unless others use it; a user may have come since the last look."""
        self._unplug(connection, held)
        if self._others(held):
            return
        stamp = strategies.vlan_stamp(self._site.site, held.network)
        vlan.remove_vlans(stamp, host=self._host.kernel)
        network = strategies.find_ours(connection, self._site.site, held.network)
        if network and not strategies.is_shared(network, held):
            strategies.delete_network(network)

    def _others(self, held: Held) -> set[Held]:
        return set(self._pools.of_network(held.network, self._host.name)) - {held}

    def _left(self, connection: libvirt.virConnect, held: Held) -> Iterator[str]:
        yield f"port {held}: {held.mac}, {held.ipv4}"
        network = strategies.find_ours(connection, self._site.site, held.network)
        if network and held.mac in dnsmasq.hosts(network):
            yield f"DHCP entry of {held}: {held.mac}"
        if network and dnsmasq.leases(network, held.mac):
            yield f"DHCP lease of {held}: {held.mac}"

    def _held(self, sliver_id: str, component: str) -> Held | None:
        there = self._pools.of_sliver(sliver_id, self._host.name)
        return next((held for held in there if held.component == component), None)

    def _settings(self, network: str) -> SiteNetwork:
        return known_network(self._site.networks, network)

    def _strategy(self, network: str) -> Strategy:
        return strategies.strategy(self._host, self._site.site, network, self._settings(network))

    def _port(self, held: Held) -> Port:
        settings = self._site.networks.get(held.network)
        if settings is None:  # no longer in site.yaml: enough is known to delete it
            source = strategies.network_name(self._site.site, held.network)
            return Port(held.sliver, held.component, held.network, source, held.mac)
        subnet6, by = settings.subnet6, self._strategy(held.network)
        return Port(
            sliver=held.sliver,
            component=held.component,
            network=held.network,
            source=by.source,
            mac=held.mac,
            ipv4=IPv4Interface((held.ipv4, settings.subnet.prefixlen)),
            ipv6=IPv6Interface((held.ipv6, subnet6.prefixlen)) if held.ipv6 and subnet6 else None,
            gateway=by.gateway,
            dns=tuple(str(address) for address in settings.dns),
            dhcp=by.dhcp,
            bridge=by.bridge,
            port_security=False,
        )

    def _alone(self, network: str) -> AbstractContextManager[None]:
        lock, limit = f"network-{self._host.name}-{network}", self._site.limits.call
        return store_of(self._site).exclusive(lock, f"network {network}", timeout=limit)

    def _within_reach(self, what: str) -> AbstractContextManager[libvirt.virConnect]:
        """Connect to libvirt on a host whose bridges, VLANs and leases can be reached, too.

        :raises InvalidSite: if they cannot.
        """
        name, uri = self._host.name, self._host.libvirt
        if urlsplit(uri).hostname and self._site.host(name).ssh is None:
            raise InvalidSite(
                f"cannot {what}",
                where=f"site.yaml: hosts.{name}",
                why=f"{uri} is on another machine, whose bridges and leases need a login there",
                remedy=f"set hosts.{name}.ssh, for example ssh://root@…",
            )
        return self._libvirt(what)

    @contextmanager
    def _libvirt(self, what: str) -> Iterator[libvirt.virConnect]:
        with translated(what, self._host.libvirt):
            yield connect(self._host.libvirt)


def _ips(held: Held) -> tuple[str, ...]:
    return tuple(str(address) for address in (held.ipv4, held.ipv6) if address)
