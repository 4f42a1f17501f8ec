"""Networks: the three strategies by which they are made, and the sliver that is one.

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

from pydantic import Field, StringConstraints, model_validator

from fabric_direct.model import Frozen, Name, SliverRef, Vlan

# A Linux interface name: IFNAMSIZ (16) less the terminating zero.
LinkName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,14}$")]


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
