"""Networks: the three strategies by which they are made; slivers that are one, or ports of one.

====================  ===================================  =========================================
strategy              on a libvirt host                    in a cloud (Neutron)
====================  ===================================  =========================================
``flat``              an existing bridge, no DHCP          provider network ``flat``, no DHCP
``flat_dhcp``         a bridge of its own, DHCP            provider network ``flat``, DHCP
``vlan``              a bridge over a VLAN interface of    provider network ``vlan``, DHCP, a router
                      an uplink, DHCP                      where asked for
====================  ===================================  =========================================
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Network
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from fabric_direct.model import (
    ComponentId,
    Frozen,
    LinkName,
    Name,
    SliverId,
    SliverRef,
    Vlan,
    VNic,
    VNicInterface,
    refuse_twice,
)


class _Network(Frozen):
    subnet: IPv4Network
    """Its IPv4 addresses; the first is the host's own or the gateway's."""
    subnet6: IPv6Network | None = None
    """Its IPv6 addresses, a /64 where guests shall configure themselves."""
    gateway: IPv4Address | None = None
    """Default router of the guests; none if absent."""
    dns: tuple[IPv4Address, ...] = ()
    pool: tuple[IPv4Address, IPv4Address] | None = None
    """First and last address that may be given out; all but the first of the subnet if absent."""
    physical_network: Name | None = None
    """Neutron's name of the physical network that it is on (``bridge_mappings`` of the agents)."""
    router: bool = False
    """Whether a router connects it with the cloud's external network; it has the gateway's address, the
    first of the subnet if that is absent."""

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
        """Return its address blocks."""
        return (self.subnet, self.subnet6) if self.subnet6 else (self.subnet,)


class FlatNetwork(_Network):
    """An existing bridge, or a provider network, without DHCP: guests are configured by us."""

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
    """Name of the bridge to make (libvirt); derived from the network's name if absent."""
    forward: Literal["none", "route", "nat"] = "none"
    """How it reaches other networks through the host (libvirt)."""


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


class NetworkSliver(SliverRef):
    """A network of its own (``L2Bridge``): made with the sliver, and deleted with it."""

    type: Name = "L2Bridge"
    name: Name
    """Name of the network; vNICs of other slivers name it by that."""
    network: SiteNetwork


class ServerPort(Frozen):
    """A port of a network, plugged into the server of another sliver."""

    id: ComponentId
    """Unique within the sliver; what a modification is told apart by."""
    server: SliverId
    """The sliver whose server has it: a VM."""
    interface: VNicInterface = VNicInterface()


class VNicPortsSliver(SliverRef):
    """Ports of one network (``vNICPorts``): made with the sliver, and deleted with it."""

    type: Literal["vNICPorts"] = "vNICPorts"
    host: Name | None = None
    """The worker that the servers are on; may be absent in a cloud, or where the site has only one."""
    network: Name
    """A network named in site.yaml, or of the cloud by its name or id."""
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
        """Return the slivers whose servers have ports, each once."""
        return tuple(sorted({port.server for port in self.ports}))

    def vnic(self, port: ServerPort) -> VNic:
        """Return a port as the virtual NIC that it is."""
        return VNic(id=port.id, network=self.network, interface=port.interface)
