"""Create a network by its strategy in site.yaml, modeled on Nova's former network managers.

========== ======================================================= ===================================
strategy   NICs are plugged into                                   addresses
========== ======================================================= ===================================
flat       an existing bridge                                      configured in the guest
flat_dhcp  a libvirt network: bridge, dnsmasq                      DHCP, router advertisement (IPv6)
vlan       the same, with a VLAN interface as a port of the bridge DHCP, router advertisement (IPv6)
========== ======================================================= ===================================

libvirt networks are named ``fd-<site>-<network>``, have a UUID derived from both names, and contain
the stamp ``<fd:network site= name=>`` in their ``<metadata>``. They are created with their first port,
start with the host, and are deleted with their last port, by their stamp alone, whatever site.yaml says
by then.
"""

from contextlib import suppress
from dataclasses import dataclass
from uuid import NAMESPACE_URL, UUID, uuid5
from xml.etree import ElementTree

import libvirt

from fabric_direct.calls.deadline import wait_until
from fabric_direct.calls.read_cache import read
from fabric_direct.drivers.contract import HostDriver
from fabric_direct.drivers.libvirt.connection.connections import Ignoring, connect
from fabric_direct.drivers.libvirt.networks import dnsmasq
from fabric_direct.drivers.libvirt.networks.address_pools import Held
from fabric_direct.drivers.libvirt.xml import STAMP_NAMESPACE, render
from fabric_direct.drivers.netlink import vlan
from fabric_direct.errors import Conflict, InvalidSliver, NotFound, NotOurs, NotVerified, TimedOut
from fabric_direct.model.networks import FlatDhcpNetwork, FlatNetwork, SiteNetwork, VlanNetwork
from fabric_direct.site.addresses import host_address, host_address6

_PASSES = ("failed to find list of interfaces", "Address already in use")
"""What dnsmasq says at its start if a link of the machine goes while it lists them, and if the network's
former dnsmasq has not ended yet."""
_STARTED = 5.0
"""Seconds within which a network is started again then."""


@dataclass(frozen=True, slots=True)
class NetworkHost:
    """The host that networks are made on."""

    name: str
    libvirt: str
    """URI of its libvirt."""
    kernel: HostDriver
    """What reaches its bridges, VLANs and DHCP server."""


class Flat:
    """An existing bridge; nothing is made."""

    dhcp, bridge = False, True

    def __init__(self, host: NetworkHost, settings: FlatNetwork) -> None:
        self._host, self.source = host, _needed(settings.bridge, "bridge")
        self.gateway = str(settings.gateway) if settings.gateway else None
        self._why = f"there is no bridge {self.source}"

    def check(self) -> None:
        """Raise InvalidSliver unless the bridge is there."""
        if not self._is_there():
            raise _lacking(self._host, self._why)

    def make(self, held: Held) -> None:  # noqa: ARG002 - the bridge serves any NIC
        """Raise NotFound unless the bridge is there."""
        if not self._is_there():
            raise NotFound("the network is not there", where=self._host.name, why=self._why)

    def plug(self, held: Held) -> None:
        """Do nothing: nothing is made for a single NIC."""

    def plugged(self, held: Held) -> bool:  # noqa: ARG002 - the bridge serves any NIC
        """Return whether the bridge is there."""
        return self._is_there()

    def _is_there(self) -> bool:
        return vlan.is_bridge(self.source, host=self._host.kernel)


class FlatDhcp:
    """A libvirt network: a bridge of its own, on which dnsmasq answers."""

    dhcp, bridge = True, False

    def __init__(self, host: NetworkHost, site: str, name: str, settings: SiteNetwork) -> None:
        self._host, self._site, self._name = host, site, name
        self._settings = settings
        self.source = network_name(site, name)
        self.gateway = self._gateway()

    def check(self) -> None:
        """Raise NotOurs if a libvirt network of its name is there without this site's stamp."""
        self._find()

    def make(self, held: Held) -> None:
        """Define and start the network.

        It gets the NIC's address before it starts: to change a running one takes libvirt as long as to
        start it.

        :raises NotOurs: if a network or bridge of its name is there without this site's stamp.
        """
        network = self._find() or self._define()
        network.setAutostart(1)
        if not network.isActive():
            dnsmasq.set_host(network, held.mac, str(held.ipv4))
            self._start(network)

    def plug(self, held: Held) -> None:
        """Assign the address to the NIC in dnsmasq.

        :raises NotVerified: if libvirt, read back, does not have it so.
        """
        network = self._connection().networkLookupByName(self.source)
        dnsmasq.set_host(network, held.mac, str(held.ipv4))
        dnsmasq.release_others(network, held.mac, str(held.ipv4), self._host.kernel)
        if not self.plugged(held):
            raise NotVerified(f"network {self.source} does not serve {held}")

    def plugged(self, held: Held) -> bool:
        """Return whether the network is active and hands out the address."""
        network = self._find()
        active = network is not None and network.isActive()
        return bool(active) and dnsmasq.has_host(network, held.mac, str(held.ipv4))

    def _find(self) -> libvirt.virNetwork | None:
        return find_network(self._connection(), self._site, self._name)

    def _connection(self) -> libvirt.virConnect:
        return connect(self._host.libvirt)

    def _define(self) -> libvirt.virNetwork:
        settings, subnet6 = self._settings, self._settings.subnet6
        xml = render(
            "network.xml.j2",
            name=self.source,
            uuid=network_uuid(self._site, self._name),
            site=self._site,
            network=self._name,
            forward=self._forward(),
            bridge=self._bridge_name(),
            address=host_address(settings),
            prefix=settings.subnet.prefixlen,
            address6=host_address6(subnet6) if subnet6 else None,
            prefix6=subnet6.prefixlen if subnet6 else None,
            options=self._options(),
        )
        return self._connection().networkDefineXML(xml)

    def _start(self, network: libvirt.virNetwork) -> None:
        bridge = network.bridgeName()
        if vlan.link_exists(bridge, host=self._host.kernel):
            raise NotOurs(
                f"network {self.source} cannot be started",
                where=self._host.name,
                why=f"link {bridge} exists already and is not ours",
                remedy="remove it, or give the network another bridge in site.yaml",
            )

        def started() -> bool:
            try:
                network.create()
            except libvirt.libvirtError as error:
                if not any(words in str(error) for words in _PASSES):
                    raise
                return False
            return True

        with suppress(TimedOut):
            wait_until(f"network {self.source} to start", started, timeout=_STARTED)
            return
        network.create()  # or it says why not

    def _bridge_name(self) -> str:
        assert not isinstance(self._settings, FlatNetwork)  # noqa: S101 - see strategy()
        return self._settings.bridge or vlan.short_name(self.source)

    def _forward(self) -> str:
        return self._settings.forward if isinstance(self._settings, FlatDhcpNetwork) else "none"

    def _gateway(self) -> str | None:
        """Return the router: the one of site.yaml, else the host where it forwards."""
        host = host_address(self._settings) if self._forward() != "none" else None
        gateway = self._settings.gateway or host
        return str(gateway) if gateway else None

    def _options(self) -> list[str]:
        """Return the DHCP options that dnsmasq does not send by default."""
        dns = ",".join(str(address) for address in self._settings.dns)
        options = {"router": self.gateway, "dns-server": dns}
        return [f"dhcp-option=option:{name},{value}" for name, value in options.items() if value]


class Vlan(FlatDhcp):
    """A libvirt network whose bridge has a VLAN interface of an uplink as a port."""

    def __init__(self, host: NetworkHost, site: str, name: str, settings: VlanNetwork) -> None:
        super().__init__(host, site, name, settings)
        self._uplink, self._vlan = _needed(settings.uplink, "uplink"), settings.vlan
        self._stamp = vlan_stamp(site, name)

    def check(self) -> None:
        """Raise InvalidSliver also unless the uplink is there."""
        super().check()
        if not vlan.link_exists(self._uplink, host=self._host.kernel):
            raise _lacking(self._host, f"there is no link {self._uplink}")

    def make(self, held: Held) -> None:
        """Create the VLAN interface, too, as a port of the bridge."""
        super().make(held)
        vlan.attach_vlan(self._port(), host=self._host.kernel)

    def plugged(self, held: Held) -> bool:
        """Return whether the VLAN interface is in the bridge, too."""
        served = super().plugged(held)
        return served and vlan.vlan_attached(self._port(), host=self._host.kernel)

    def _port(self) -> vlan.VlanPort:
        bridge = self._connection().networkLookupByName(self.source).bridgeName()
        return vlan.VlanPort(self._uplink, self._vlan, bridge, self._stamp)


Strategy = Flat | FlatDhcp
"""One network of the site, made in one of the three ways.

``dhcp`` says whether the network hands out the addresses, ``bridge`` whether ``source`` is a bridge of
the host rather than a libvirt network.

* ``check`` raises InvalidSliver (field ``network``) if the host lacks the network's bridge or uplink.
* ``make`` creates the network for a NIC if it does not exist; the caller holds the network's lock.
* ``plug`` registers a NIC at the network, which exists; ``plugged`` says whether it is registered.
"""


def strategy(host: NetworkHost, site: str, name: str, settings: SiteNetwork) -> Strategy:
    """Return what makes this network."""
    if isinstance(settings, FlatNetwork):
        return Flat(host, settings)
    if isinstance(settings, VlanNetwork):
        return Vlan(host, site, name, settings)
    return FlatDhcp(host, site, name, settings)


def _lacking(host: NetworkHost, why: str) -> InvalidSliver:
    return InvalidSliver("this host has no such network", field="network", where=host.name, why=why)


def _needed(link: str | None, field: str) -> str:
    if link is None:
        raise InvalidSliver(
            "this host has no such network",
            field="network",
            why=f"site.yaml gives it no {field}",
        )
    return link


def network_name(site: str, name: str) -> str:
    """Return the name of the site's network at libvirt."""
    return f"fd-{site}-{name}"


def network_uuid(site: str, name: str) -> UUID:
    """Return the UUID of the site's network at libvirt, which follows from the names alone."""
    return uuid5(NAMESPACE_URL, f"{STAMP_NAMESPACE}/network/{site}/{name}")


def vlan_stamp(site: str, name: str) -> str:
    """Return the alias of the network's VLAN interface."""
    return f"fabric-direct {site}/{name}"


@read
def find_network(connection: libvirt.virConnect, site: str, name: str) -> libvirt.virNetwork | None:
    """Return the libvirt network that carries this site's stamp, or None if there is none.

    :raises NotOurs: if one of its name or UUID is there without this site's stamp.
    """
    full = network_name(site, name)
    uuid = str(network_uuid(site, name))
    for network in _listed(connection):
        if network.UUIDString() == uuid and _stamp(network) == (site, name):
            return network
        if network.name() == full or network.UUIDString() == uuid:
            raise NotOurs(
                f"libvirt network {network.name()} is not ours",
                where=connection.getURI(),
                why="it has no stamp of ours",
                remedy="remove or rename it",
            )
    return None


def find_ours(connection: libvirt.virConnect, site: str, name: str) -> libvirt.virNetwork | None:
    """Return the libvirt network that carries this site's stamp, or None, also if its name is taken."""
    try:
        return find_network(connection, site, name)
    except NotOurs:
        return None


def networks_of(connection: libvirt.virConnect, site: str) -> dict[str, libvirt.virNetwork]:
    """Return all libvirt networks of a site by their names in site.yaml."""
    found: dict[str, libvirt.virNetwork] = {}
    prefix = network_name(site, "")
    for network in (n for n in _listed(connection) if n.name().startswith(prefix)):
        name = network.name().removeprefix(prefix)
        with Ignoring(libvirt.VIR_ERR_NO_NETWORK):
            if _stamp(network) == (site, name):
                found[name] = network
    return found


@read
def _listed(connection: libvirt.virConnect) -> list[libvirt.virNetwork]:
    return list(connection.listAllNetworks())


def is_idle(network: libvirt.virNetwork) -> bool:
    """Return whether no NIC is plugged in, and no DHCP entry waits for one; one that is gone is not."""
    with Ignoring(libvirt.VIR_ERR_NO_NETWORK):
        live = dnsmasq.definition(network, 0)
        entries = dnsmasq.hosts(network) | dnsmasq.hosts(network, libvirt.VIR_NETWORK_XML_INACTIVE)
        return live.get("connections", "0") == "0" and not entries
    return False


def is_shared(network: libvirt.virNetwork, held: Held) -> bool:
    """Return whether the network hands out addresses to other NICs than this one."""
    macs = dnsmasq.hosts(network) | dnsmasq.hosts(network, libvirt.VIR_NETWORK_XML_INACTIVE)
    return bool(macs.keys() - {held.mac})


def delete_network(network: libvirt.virNetwork) -> None:
    """Stop and undefine the network, with the leases that dnsmasq gave.

    :raises Conflict: if a running domain is plugged into it.
    """
    plugged = ElementTree.fromstring(network.XMLDesc(0)).get("connections", "0")
    if plugged != "0":
        raise Conflict(
            f"libvirt network {network.name()} is in use",
            why=f"{plugged} NICs are plugged into it",
            remedy="unplug them, and delete the port again",
        )
    if network.isActive():
        network.destroy()
    network.undefine()


def _stamp(network: libvirt.virNetwork) -> tuple[str | None, str | None] | None:
    """Return the site and network in a libvirt network's stamp."""
    xml = dnsmasq.definition(network, libvirt.VIR_NETWORK_XML_INACTIVE)
    element = xml.find(f"metadata/{{{STAMP_NAMESPACE}}}network")
    return None if element is None else (element.get("site"), element.get("name"))
