"""Ports on networks, and their drivers."""

from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv6Interface
from typing import ClassVar, Protocol

from fabric_direct.calls.reading import reads, reads_once
from fabric_direct.drivers.contract.stamped import StampFinder
from fabric_direct.model import VNicInterface


@dataclass(frozen=True, slots=True)
class Port:
    """A MAC and addresses on a network, reserved for one NIC."""

    sliver: str
    """Its owner: the server's own sliver, or one of type ``vNICPorts``."""
    component: str
    network: str
    """Its name."""
    source: str
    """What the compute driver plugs the NIC into: libvirt network, bridge, tap, or Neutron port id."""
    mac: str
    ipv4: IPv4Interface | None = None
    ipv6: IPv6Interface | None = None
    gateway: str | None = None
    """IPv4 address of the router, if the network has one."""
    dns: tuple[str, ...] = ()
    dhcp: bool = True
    """Whether DHCP assigns the address; otherwise it is configured in the guest."""
    bridge: bool = False
    """Whether ``source`` is a bridge of the host rather than a network of the API."""
    tap: bool = False
    """Whether ``source`` is a tap, and ``network`` the switch whose port it is."""
    mtu: int | None = None
    """Bytes of an IP packet; the network's default if absent."""
    routes: tuple[tuple[str, str], ...] = ()
    """Routes of the guest beside the gateway's: network and router."""
    floating_ip: str | None = None
    """Public IPv4 address."""
    port_security: bool | None = None
    """Whether the network filters the port's traffic; None if the network does not say."""
    network_id: str | None = None
    """The network's id at the API; a sliver may name the network by it."""
    enabled: bool = True
    """Whether it is switched on."""
    down: bool = False
    """Whether the network says that it carries no traffic, as that of a stopped server does not."""
    unfinished: bool = False
    """Whether other ports of its sliver, which is being adopted, may lack their stamps."""


class NetworkDriver(StampFinder, Protocol):
    """Holds a port with fixed addresses for each NIC, and makes the networks of its strategies.

    An entry point of ``fabric_direct.network`` provides it.
    """

    unserved: ClassVar[tuple[str, ...]]
    """Fields of a vNIC's interface that ``check`` refuses."""

    @reads
    def check(self, network: str, interface: VNicInterface, sliver_id: str | None = None) -> None:
        """Raise InvalidSliver unless the network can serve the interface.

        :param sliver_id: the sliver that asks; what is held for it is available to it. If absent,
            only ``create_port`` finds out whether something is taken.
        :raises InvalidSliver: if there is no such network, or an address is outside of it, reserved or
            taken. The field is relative to the component, for example ``interface.ipv4``.
        """

    @reads
    def leftovers(self, sliver_id: str) -> tuple[str, ...]:
        """Name everything held for the sliver (ports, leases), and the unused networks."""

    @reads_once
    def find_port(self, sliver_id: str, component: str) -> Port | None:
        """Return the port held for this NIC if it is complete, or None."""

    @reads_once
    def ports(self, sliver_id: str) -> tuple[Port, ...]:
        """Return the ports held for the sliver."""

    @reads
    def all_ports(self) -> tuple[Port, ...]:
        """Return the ports held for all slivers: as many requests for one sliver as for a thousand."""

    def create_port(
        self, sliver_id: str, component: str, network: str, interface: VNicInterface
    ) -> Port:
        """Hold a port on the network: a MAC and one fixed address of each of its address families.

        The network is created with its first port. A port that is already held gets the floating IP and
        the port security of ``interface``, and is switched on.

        :raises PoolExhausted: if no address is free.
        :raises Conflict: if the MAC or address is held for another NIC, or the NIC has another port.
        :raises NotOurs: if a network of its name exists without this site's stamp.
        :raises Unsupported: if the host's kernel cannot carry the network (VLANs).
        """

    def create_floating_ip(self, sliver_id: str, component: str) -> None:
        """Give a port a floating IP, unless it has one.

        Called only for ports of an interface with ``floating_ip`` that ``check`` has let pass.

        :raises NotFound: if there is no such port.
        """

    def delete_floating_ip(self, sliver_id: str, component: str) -> None:
        """Delete the floating IP of a port, which stays; do nothing if it has none."""

    def delete_port(self, sliver_id: str, component: str) -> None:
        """Release the port. A network that we made is deleted with its last port."""

    @reads
    def unused(self) -> tuple[str, ...]:
        """Return the names of the networks that we made and that nobody uses."""

    def remove_unused(self) -> None:
        """Delete these networks."""
