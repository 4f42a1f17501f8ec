"""Values that pictures show of a host, of slivers and of a site, without how they are drawn."""

from typing import Annotated, Literal

from pydantic import Field, RootModel

from fabric_direct.drivers.contract import HostDevice
from fabric_direct.model import Frozen, PciAddress

# --- a host


class Function(Frozen):
    """A PCI function, with its VFs."""

    device: HostDevice
    vfs: tuple[HostDevice, ...] = ()
    """By their numbers."""


class Slot(Frozen):
    """A device: the functions of one slot of a bus."""

    functions: tuple[Function, ...]


class Bus(Frozen):
    """The devices of one bus that are worth showing."""

    name: str
    """Domain and bus, ``0000:25``."""
    bridge: PciAddress | None = None
    """The root port, or the switch's port, that it is behind, where that is known."""
    slots: tuple[Slot, ...]


class NumaBuses(Frozen):
    """The buses whose devices are on one NUMA node."""

    number: int | None
    """None for those that are on none, or whose node is not known."""
    buses: tuple[Bus, ...]


class Belonging(Frozen):
    """The functions of a host that belong to one owner."""

    owner: str
    """A sliver, or a domain that is not ours."""
    component: str
    """Empty for such a domain."""
    addresses: tuple[PciAddress, ...]


class HostTopology(Frozen):
    """The PCI functions of a host, and whose they are."""

    kind: Literal["host"] = "host"
    site: str
    host: str
    maintenance: str | None = None
    silent: str = ""
    """Why its devices are not known; empty if they are."""
    nodes: tuple[NumaBuses, ...] = ()
    belongings: tuple[Belonging, ...] = ()
    states: dict[str, int] = {}
    """How many of the functions that are shown are in which state."""
    others: int = 0
    """How many functions of the host are not shown: bridges, controllers and the like."""


# --- slivers


class Join(Frozen):
    """The point where a NIC meets a network."""

    network: str
    """The network's key."""
    interface: str = ""
    """The service's interface; empty if it has none of that name."""


class Nic(Frozen):
    """A network interface of a VM."""

    component: str
    number: int = 0
    """Of a SmartNIC: of its interfaces."""
    type: str
    network: str | None = None
    """Of a vNIC: the network, or the switch."""
    mac: str | None = None
    addresses: tuple[str, ...] = ()
    """With prefix length; floating IPs are beside them."""
    floating_ip: str | None = None
    vlan: int | None = None
    bandwidth: int | None = None
    """Mbit/s in each direction."""
    link: str = "up"
    pci: tuple[PciAddress, ...] = ()
    """Its functions on the host."""
    uplink: str | None = None
    """Of a VF: the NIC of the host that it belongs to."""
    bridge_mode: str | None = None
    """Of the uplink: ``veb`` or ``vepa``."""
    joins: tuple[Join, ...] = ()


class Device(Frozen):
    """A PCI device of a VM that is no NIC."""

    component: str
    type: str
    model: str | None = None
    pci: tuple[PciAddress, ...] = ()
    """Its functions on the host."""
    guest_name: str | None = None


class AttachedVolume(Frozen):
    """A data volume of a VM."""

    component: str
    size: int | None = None
    """GiB."""
    source: str = ""
    target: str = ""
    mounted: tuple[str, ...] = ()


class Vm(Frozen):
    """A VM with what it has."""

    id: str
    name: str = ""
    state: str
    """As observed; ``unknown`` if it could not be read."""
    host: str | None = None
    instance: str | None = None
    cores: int | None = None
    ram: int | None = None
    """MiB."""
    image: str | None = None
    asked: bool = True
    """Whether it is shown whole; of one that is only stitched to what is shown, only that NIC is."""
    nics: tuple[Nic, ...] = ()
    devices: tuple[Device, ...] = ()
    volumes: tuple[AttachedVolume, ...] = ()
    notes: tuple[str, ...] = ()
    """Differences from what is wanted, or why it could not be read; a sentence each."""


class ServiceConnection(Frozen):
    """A point at which a network service is connected."""

    id: str
    device: str | None = None
    port: str | None = None
    vlan: int | None = None
    inner_vlan: int | None = None
    bandwidth: int | None = None
    """Mbit/s in each direction."""
    mac: str | None = None
    address: str | None = None
    """Of who is connected, or of the service there."""
    peer: str | None = None
    """The BGP neighbor there."""
    sliver: str | None = None
    """The VM that it is stitched to."""
    component: str | None = None


class Network(Frozen):
    """A carrier of packets between slivers: a network service, or a network of the site."""

    key: str
    """Unique in the picture."""
    id: str | None = None
    """The sliver's; None for a network of the site."""
    type: str
    """The service's type, or ``network``."""
    name: str
    asked: bool = False
    subnets: tuple[str, ...] = ()
    gateway: str | None = None
    """Its own address, with prefix length."""
    vlan: int | None = None
    interfaces: tuple[ServiceConnection, ...] = ()
    notes: tuple[str, ...] = ()


class SliverTopology(Frozen):
    """Slivers, and the networks between them."""

    kind: Literal["slivers"] = "slivers"
    site: str
    asked: tuple[str, ...]
    vms: tuple[Vm, ...] = ()
    networks: tuple[Network, ...] = ()
    silent: dict[str, str] = {}
    """Hosts and controllers that did not answer, and why: what is there is not shown."""


# --- a site


class HostSliver(Frozen):
    """A VM on a host, in few words."""

    id: str
    name: str
    state: str
    cores: int
    ram: int
    """MiB."""
    nics: int
    volumes: int
    devices: int
    differences: int = 0
    """In how many points it differs from its stamp."""
    networks: tuple[str, ...] = ()
    """The keys of those that it is connected to, each as often as it is."""


class DeviceCount(Frozen):
    """The number of a host's devices of one type that may be passed through."""

    type: str
    free: int
    used: int
    unfit: int
    """Unclean, lost or quarantined, or used by the host."""


class SiteHost(Frozen):
    """A host of a site."""

    name: str
    maintenance: str | None = None
    silent: str = ""
    """Why it is not known what it has; empty if it is."""
    slivers: tuple[HostSliver, ...] = ()
    devices: tuple[DeviceCount, ...] = ()


class SiteTopology(Frozen):
    """The hosts of a site, their slivers, and the networks between these."""

    kind: Literal["site"] = "site"
    site: str
    hosts: tuple[SiteHost, ...]
    networks: tuple[Network, ...] = ()
    silent: dict[str, str] = {}
    """Controllers of services that did not answer, and why."""


Topology = HostTopology | SliverTopology | SiteTopology


class AnyTopology(RootModel[Annotated[Topology, Field(discriminator="kind")]]):
    """A topology of whatever kind."""
