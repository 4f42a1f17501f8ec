"""Ports on networks, networks that are slivers, and their drivers."""

from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv6Interface
from typing import Protocol

from fabric_direct.model import VNicInterface
from fabric_direct.networks import NetworkSliver


@dataclass(frozen=True, slots=True)
class Port:
    """A place on a network, held for one NIC."""

    sliver: str
    """Whose it is: the server's own sliver, or one of type ``vNICPorts``."""
    component: str
    network: str
    """Its name."""
    source: str
    """What the compute driver plugs into: libvirt network, bridge, or Neutron port id."""
    mac: str
    ipv4: IPv4Interface | None = None
    ipv6: IPv6Interface | None = None
    gateway: str | None = None
    """IPv4 address of the router, if the network has one."""
    dns: tuple[str, ...] = ()
    dhcp: bool = True
    """Whether the network hands the address out itself; otherwise the guest is configured with it."""
    bridge: bool = False
    """Whether ``source`` is a bridge of the host rather than a network of the API."""
    floating_ip: str | None = None
    """IPv4 address by which it is reached from outside."""
    port_security: bool | None = None
    """Whether the network filters what it sends; None if the network does not say."""
    network_id: str | None = None
    """The network's id at the API; a sliver may name it by that."""


class NetworkDriver(Protocol):
    """Networks, and a port with fixed addresses for each NIC."""

    def check(self, network: str, interface: VNicInterface, sliver_id: str | None = None) -> None:
        """Return if the network can serve such an interface.

        :param sliver_id: who asks: what is held for that sliver already is not taken. If absent,
            whether something is taken is left to ``create_port``.
        :raises InvalidSliver: if there is no such network, an address is outside of it, reserved or
            taken. The field is relative to the component, for example ``interface.ipv4``.
        """

    def find_port(self, sliver_id: str, component: str) -> Port | None:
        """Return the port held for this NIC if all of it is there, or None."""

    def ports(self, sliver_id: str) -> tuple[Port, ...]:
        """Return the ports held for the sliver."""

    def create_port(
        self, sliver_id: str, component: str, network: str, interface: VNicInterface
    ) -> Port:
        """Hold a place on the network: a MAC and one fixed address of each of its families.

        The network is made with its first port. A port that is held already gets the floating address
        and the port security that ``interface`` wants.

        :raises PoolExhausted: if no address is free.
        :raises Conflict: if the MAC or address is held for another NIC.
        """

    def delete_port(self, sliver_id: str, component: str) -> None:
        """Give the place up. A network that we made goes with its last port."""

    def leftovers(self, sliver_id: str) -> tuple[str, ...]:
        """Name everything held for the sliver (ports, leases), and what ``unused`` does."""

    def unused(self) -> tuple[str, ...]:
        """Name the networks that we made and that nobody uses: a call was killed midway."""

    def remove_unused(self) -> None:
        """Delete these networks."""


@dataclass(frozen=True, slots=True)
class Network:
    """A network that was made for a sliver of its own."""

    sliver: str
    source: str
    """Its id at the API."""
    name: str
    subnets: tuple[str, ...] = ()
    vlan: int | None = None
    users: tuple[str, ...] = ()
    """Whose ports are on it: ``<sliver>/<component>``, or the id of a port that is not ours."""


class BridgeDriver(Protocol):
    """Networks that are slivers of their own: resource type ``L2Bridge``."""

    def check(self, sliver: NetworkSliver) -> None:
        """Return if the network can be made.

        :raises InvalidSliver: with the field if the cloud cannot have it so.
        """

    def find(self, sliver_id: str) -> Network | None:
        """Return the network that bears the sliver's stamp if all of it is there, or None."""

    def differences(self, sliver: NetworkSliver) -> tuple[str, ...]:
        """Say where the network that is there is not what the sliver wants, a sentence each."""

    def create(self, sliver: NetworkSliver) -> Network:
        """Make the network, its subnets, and its router where one is asked for.

        :raises NotOurs: if a network of its name, or its segment, is there without the sliver's stamp.
        """

    def delete(self, sliver_id: str) -> None:
        """Remove the network with all that was made with it; it is gone on return.

        :raises Conflict: if ports of others are on it; they are named, and nothing is removed.
        """

    def leftovers(self, sliver_id: str) -> tuple[str, ...]:
        """Name everything of the network that is still there."""
