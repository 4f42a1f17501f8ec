"""Networks of a site by strategy, and slivers that are a network or ports of one.

====================  ===================================  =========================================
strategy              on a libvirt host                    in a cloud (Neutron)
====================  ===================================  =========================================
``flat``              an existing bridge, no DHCP          provider network ``flat``, no DHCP
``flat_dhcp``         a bridge of its own, DHCP            provider network ``flat``, DHCP
``vlan``              a bridge over a VLAN interface of    provider network ``vlan``, DHCP, a router
                      an uplink, DHCP                      if requested
====================  ===================================  =========================================
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Network
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from fabric_direct.model.base import (
    ComponentId,
    Frozen,
    LinkName,
    Name,
    SliverId,
    Vlan,
    refuse_twice,
)
from fabric_direct.model.vm import Sliver, VNic, VNicInterface


class _Network(Frozen):
    subnet: IPv4Network
    """IPv4 addresses; the first is the host's own or the gateway's."""
    subnet6: IPv6Network | None = None
    """IPv6 addresses; a /64 if guests are to configure themselves."""
    gateway: IPv4Address | None = None
    """Default router of guests; none if absent."""
    dns: tuple[IPv4Address, ...] = ()
    pool: tuple[IPv4Address, IPv4Address] | None = None
    """First and last address for NICs; all but the first of the subnet if absent."""
    physical_network: Name | None = None
    """Neutron's name of the underlying physical network (``bridge_mappings`` of the agents)."""
    router: bool = False
    """Whether a router connects it to the cloud's external network. The router has the gateway's
    address, or the first of the subnet."""

    @model_validator(mode="after")
    def _inside(self) -> Self:
        for name, addresses in (("pool", self.pool or ()), ("gateway", (self.gateway,))):
            for address in addresses:
                if address is not None and address not in self.subnet:
                    raise ValueError(f"{name}: {address} is not in {self.subnet}")
        if self.pool and self.pool[0] > self.pool[1]:
            raise ValueError("pool: its first address is above its last")
        for block in self.blocks():
            if block.num_addresses < 4:
                raise ValueError(f"subnet: {block} is too small, it needs four addresses")
        return self

    def blocks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """Return the address blocks."""
        return (self.subnet, self.subnet6) if self.subnet6 else (self.subnet,)


class FlatNetwork(_Network):
    """An existing bridge, or a provider network, without DHCP: this library configures the guests."""

    strategy: Literal["flat"]
    bridge: LinkName | None = None
    """The bridge (libvirt)."""

    @model_validator(mode="after")
    def _on_something(self) -> Self:
        if not (self.bridge or self.physical_network):
            raise ValueError("needs 'bridge' (libvirt) or 'physical_network' (OpenStack)")
        return self


class FlatDhcpNetwork(_Network):
    """A bridge of its own, or a provider network, with DHCP, DNS and IPv6 router advertisement."""

    strategy: Literal["flat_dhcp"]
    bridge: LinkName | None = None
    """Name of the bridge to create (libvirt); derived from the network's name if absent."""
    forward: Literal["none", "route", "nat", "open"] = "none"
    """How the host forwards to other networks (libvirt); with ``open`` as its own firewall says."""


class VlanNetwork(_Network):
    """A VLAN of an uplink or of a physical network, with DHCP, DNS and IPv6 router advertisement."""

    strategy: Literal["vlan"]
    vlan: Vlan
    uplink: LinkName | None = None
    """The NIC of the host (libvirt)."""
    bridge: LinkName | None = None

    @model_validator(mode="after")
    def _on_something(self) -> Self:
        if not (self.uplink or self.physical_network):
            raise ValueError("needs 'uplink' (libvirt) or 'physical_network' (OpenStack)")
        return self


SiteNetwork = Annotated[
    FlatNetwork | FlatDhcpNetwork | VlanNetwork, Field(discriminator="strategy")
]


class NetworkSliver(Sliver):
    """A network (``L2Bridge``) that is created and deleted with the sliver."""

    type: Name = "L2Bridge"
    name: Name
    """Name of the network, by which vNICs of other slivers refer to it."""
    network: SiteNetwork


class ServerPort(Frozen):
    """A port of a network that is attached to the server of another sliver."""

    id: ComponentId
    """Unique within the sliver; a modification matches ports by it."""
    server: SliverId
    """The sliver of the server that has the port: a VM."""
    interface: VNicInterface = VNicInterface()


class VNicPortsSliver(Sliver):
    """Ports of one network (``vNICPorts``) that are created and deleted with the sliver."""

    type: Literal["vNICPorts"] = "vNICPorts"
    host: Name | None = None
    """The worker of the servers; may be absent in a cloud, or if the site has only one worker."""
    network: Name
    """A network of site.yaml, or the name or id of a network of the cloud."""
    ports: Annotated[tuple[ServerPort, ...], Field(max_length=128)] = ()

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        refuse_twice("ports: id", [port.id for port in self.ports])
        refuse_twice("ports: mac", [p.interface.mac for p in self.ports if p.interface.mac])
        if self.id in self.servers():
            raise ValueError(
                "ports: server is the sliver itself; a port is for another one's server"
            )
        return self

    def servers(self) -> tuple[str, ...]:
        """Return the slivers whose servers have the ports, each once."""
        return tuple(sorted({port.server for port in self.ports}))

    def vnic(self, port: ServerPort) -> VNic:
        """Return a port as a virtual NIC."""
        return VNic(id=port.id, network=self.network, interface=port.interface)
