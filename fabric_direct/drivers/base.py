"""The interfaces of the drivers, in the field's words.

A driver instance serves one host (or one cloud), is shared by many threads, opens its connections at
first use and keeps none across a fork. What all methods guarantee:

* a *make* (create, attach, set …) that finds the wanted thing there already, stamped for the same
  sliver and component, returns it: twice is the same as once;
* a *take away* (delete, detach …) of what is not there succeeds;
* only what bears our stamp is changed or taken away (:class:`~fabric_direct.errors.NotOurs`);
* a return means that the substrate has it so, as far as its API can tell;
* errors are those of :mod:`fabric_direct.errors`, with the native error as ``__cause__``;
* ``timeout`` is in seconds and bounds the waiting for an event, given by keyword.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv4Interface, IPv6Interface
from math import inf
from typing import Any, ClassVar, Protocol, Self

from fabric_direct.config import Site
from fabric_direct.deadline import Deadline, bounded
from fabric_direct.drivers.moment import Moment
from fabric_direct.errors import Unsupported
from fabric_direct.model import (
    DeviceState,
    Mbps,
    NodeSliver,
    PciAddress,
    PciComponent,
    Stamp,
    State,
    VNicInterface,
)
from fabric_direct.networks import NetworkSliver


@dataclass(frozen=True, slots=True)
class HostCapacity:
    """What a host has in all, used or not."""

    cores: int
    ram: int
    """MiB."""
    disk: int
    """GiB, free where volumes are kept."""


@dataclass(frozen=True, slots=True)
class HostNode:
    """A NUMA node of a host."""

    id: int
    cores: int
    ram: int
    """MiB."""
    distances: Mapping[int, int] = field(default_factory=dict)
    """To each node, as ACPI's SLIT has it: 10 is its own."""


@dataclass(frozen=True, slots=True)
class HostInventory:
    """What a host has for servers, and what those that are there take of it, whoever made them."""

    host: str
    cores: int
    """As ``ram`` and ``disk``: in all, without what the host keeps for itself."""
    ram: int
    """MiB."""
    disk: int
    """GiB."""
    cores_used: int = 0
    """Promised to servers, running or not."""
    ram_used: int = 0
    """MiB."""
    disk_used: int = 0
    """GiB."""
    cpu_ratio: float | None = None
    """How much of it the API lets be promised; None: it does not say."""
    ram_ratio: float | None = None
    disk_ratio: float | None = None
    nodes: tuple[HostNode, ...] = ()
    architectures: frozenset[str] = frozenset()
    """Whose machines it runs; empty: it does not say."""
    traits: frozenset[str] = frozenset()
    """As os-traits names them."""
    images: frozenset[str] | None = None
    """Names of the images that are at hand there; None: it does not say."""
    slivers: Mapping[str, str | None] = field(default_factory=dict)
    """The slivers that it has a server of, and their owners."""
    enabled: bool = True
    why_disabled: str = ""


@dataclass(frozen=True, slots=True)
class ImageNeeds:
    """What the servers of an image need of their host, as the image's own properties say."""

    architecture: str | None = None
    required_traits: frozenset[str] = frozenset()
    forbidden_traits: frozenset[str] = frozenset()
    ram: int = 0
    """MiB, at least."""
    disk: int = 0
    """GiB, at least."""


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


@dataclass(frozen=True, slots=True)
class Volume:
    """A data volume."""

    sliver: str
    """Empty for a volume that is not ours."""
    component: str
    source: str
    """Absolute path, or id at the API."""
    size: int
    """GiB."""


@dataclass(frozen=True, slots=True)
class PluggedPort:
    """A NIC of a server, as found."""

    component: str
    mac: str
    source: str
    bandwidth: int | None = None
    """Mbit/s."""


@dataclass(frozen=True, slots=True)
class Plug:
    """A NIC of a server whose port another sliver holds, as found."""

    server: str
    """The server's sliver; empty if the server is not ours."""
    instance: str
    """Domain name or server id."""
    nic: PluggedPort
    whole: bool = True
    """Whether it is there now and for later starts."""


@dataclass(frozen=True, slots=True)
class PluggedVolume:
    """A data volume of a server, as found."""

    component: str
    source: str
    target: str
    """Device name, for example ``vdb``."""
    serial: str = ""
    """Serial number by which the guest can tell it; its first 20 characters are what virtio shows."""


@dataclass(frozen=True, slots=True)
class Server:
    """A virtual machine, as found."""

    sliver: str
    instance: str
    """Domain name or server id."""
    state: State
    cores: int
    ram: int
    """MiB."""
    stamp: Stamp
    host: str = ""
    """Name of the worker; empty if the API does not tell."""
    ports: tuple[PluggedPort, ...] = ()
    """Its own NICs; those whose ports other slivers hold are left out."""
    volumes: tuple[PluggedVolume, ...] = ()
    domain: str | None = None
    """Name of its libvirt domain on the worker; None if the API does not tell."""
    flavor: str | None = None
    """Its flavor, where the API has them: cores and memory are the flavor's then, and may be more than
    the sliver's."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image of the site."""

    name: str
    user: str
    """The user that logs in to its guests."""
    path: str | None = None
    """Where its file is on the host; none if the API keeps it."""

    @classmethod
    def of(cls, site: Site, name: str) -> Self:
        """Return the image that a sliver names."""
        settings = site.image(name)
        return cls(name, str(settings.user), str(settings.path) if settings.path else None)


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """All that a compute driver needs to make a server."""

    sliver: NodeSliver
    image: Image
    ports: tuple[Port, ...] = ()
    volumes: tuple[Volume, ...] = ()
    user_data: str = ""
    """The MIME multipart document of cloud-init."""


class ComputeDriver(Protocol):
    """The life cycle of servers."""

    cloud: ClassVar[bool]
    """Whether it serves all workers at once: a cloud finds a server wherever it is, and may be left to
    choose its worker."""

    def check(self, sliver: NodeSliver, image: Image) -> None:
        """Return if the sliver's server can be made: it has the size, and can be made of the image.

        :raises InvalidSliver: with the field: ``image`` if it is missing or none, ``capacities.disk`` if
            it is larger than the disk, ``capacities.…`` if the host is too small, ``flavor`` if there is
            none that fits, ``host`` if it cannot be had.
        """

    def inventory(self) -> tuple[HostInventory, ...]:
        """Return the host, or all workers of the cloud that the site names; all, if it names none.

        What a sliver takes that is told is counted: slivers are read before what is taken.

        :raises Denied: if only an administrator may know.
        """

    def image_needs(self, image: Image) -> ImageNeeds:
        """Return what servers of the image need.

        :raises InvalidSliver: with the field ``image`` if there is none.
        """

    def find(self, sliver_id: str) -> Server | None:
        """Return the server that bears the sliver's stamp, or None."""

    def servers(self) -> tuple[Server, ...]:
        """Return all servers that bear a stamp of ours."""

    def create(self, spec: ServerSpec) -> Server:
        """Make and start a server with its ports and volumes; it is running on return.

        What an earlier, interrupted call left is used or replaced.

        :raises NotOurs: if something of the server's name exists without our stamp.
        """

    def delete(self, sliver_id: str) -> None:
        """Remove the server, its root disk and its seed; they are gone on return."""

    def leftovers(self, sliver_id: str) -> tuple[str, ...]:
        """Name everything of the server that is still there: domain, disks, seed."""

    def start(self, sliver_id: str) -> None:
        """Start a stopped server."""

    def stop(self, sliver_id: str, *, timeout: float) -> None:
        """Shut the guest down, by force after ``timeout`` seconds; it is stopped on return."""

    def reboot(self, sliver_id: str, *, hard: bool, timeout: float) -> None:
        """Restart the guest; ``hard`` is a power cycle.

        :raises TimedOut: if a soft reboot was not seen within ``timeout`` seconds.
        """

    def resize(self, stamp: Stamp) -> None:
        """Give the server the flavor or capacities of the stamp's sliver; it runs if it did before.

        It bears this stamp then.

        :raises InvalidSliver: if no flavor fits, or its root disk would shrink.
        :raises Unsupported: if the driver cannot.
        """

    def attach_port(self, sliver_id: str, port: Port, interface: VNicInterface) -> None:
        """Plug a NIC in, now and for later starts.

        :param sliver_id: the server's sliver; the port may be held for another one.
        """

    def detach_port(
        self, sliver_id: str, component: str, *, timeout: float, holder: str | None = None
    ) -> None:
        """Unplug a NIC, now and for later starts; the guest has let go of it on return.

        :param holder: the sliver that holds its port; the server's own if absent.
        :raises TimedOut: if the guest did not let go of it in time. It is still plugged in then.
        """

    def set_bandwidth(
        self, sliver_id: str, component: str, bandwidth: Mbps | None, holder: str | None = None
    ) -> None:
        """Limit a NIC to ``bandwidth`` Mbit/s in each direction; None lifts the limit.

        :param holder: the sliver that holds its port; the server's own if absent.
        """

    def plugs(self, holder: str) -> tuple[Plug, ...]:
        """Return the NICs that servers have by ports which another sliver holds.

        :param holder: that sliver.
        """

    def attach_volume(self, sliver_id: str, component: str, volume: Volume) -> None:
        """Plug a data volume in, now and for later starts."""

    def detach_volume(self, sliver_id: str, component: str, *, timeout: float) -> None:
        """Unplug a data volume, now and for later starts; the guest has let go on return.

        :raises TimedOut: if the guest did not let go of it in time.
        """

    def write_stamp(self, sliver_id: str, stamp: Stamp) -> None:
        """Replace what the server says of its sliver."""

    def console(self, sliver_id: str, lines: int) -> str:
        """Return the last ``lines`` lines that the guest wrote to its serial console."""


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


class VolumeDriver(Protocol):
    """Data volumes."""

    def check(self, name: str) -> None:
        """Return if there is a present volume of that name that may be attached.

        :raises InvalidSliver: with the field ``volume`` if not.
        """

    def existing(self, name: str) -> Volume:
        """Return a present volume that we did not make.

        :raises NotFound: if there is none.
        """

    def find(self, sliver_id: str, component: str) -> Volume | None:
        """Return the volume made for this component, or None."""

    def volumes(self, sliver_id: str) -> tuple[Volume, ...]:
        """Return all volumes made for the sliver."""

    def create(self, sliver_id: str, component: str, size: int) -> Volume:
        """Make an empty volume of ``size`` GiB."""

    def delete(self, sliver_id: str, component: str) -> None:
        """Remove the volume; it is gone on return."""

    def leftovers(self, sliver_id: str) -> tuple[str, ...]:
        """Name every volume of the sliver that is still there."""


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


@dataclass(frozen=True, slots=True)
class PciFunction:
    """A PCI function as the host's kernel shows it."""

    address: PciAddress
    vendor: str
    """Four hexadecimal digits, as is ``product``."""
    product: str
    kind: str = ""
    """The class code, six hexadecimal digits: ``010802`` is an NVMe controller."""
    label: str = ""
    """Vendor and product in words, where the host knows them."""
    driver: str | None = None
    iommu_group: int | None = None
    numa_node: int | None = None
    physical: PciAddress | None = None
    """Its PF, if it is a VF."""
    vf: int | None = None
    """Its number among the VFs of its PF."""
    virtual: tuple[PciAddress, ...] = ()
    """Its VFs by number, if it is a PF."""
    links: tuple[str, ...] = ()
    """Names of the network interfaces that the host has of it."""
    link_up: bool | None = None
    """Whether one of these has a carrier."""
    uses: tuple[str, ...] = ()
    """What the host itself uses it for, a sentence each: ``nvme0n1 is mounted on /srv``."""
    alive: bool = True
    """Whether its configuration space answers (a vendor of ``ffff`` is none)."""


@dataclass(frozen=True, slots=True)
class HostDevice:
    """A PCI function of a host, and whether it may be passed through."""

    function: PciFunction
    state: DeviceState
    why: str = ""
    """The reason of the state, where there is one to tell."""
    peers: tuple[PciAddress, ...] = ()
    """The other functions of its IOMMU group, bridges left out."""
    type: str | None = None
    """Resource type by the allow-list."""
    model: str | None = None
    """Model by the allow-list, if it names one."""
    owner: str | None = None
    """``<sliver>/<component>`` or the name of a domain that is not ours."""
    uplink: str | None = None
    """Of a VF: the network interface of its PF."""
    bridge_mode: str | None = None
    """Of the uplink: ``veb`` or ``vepa``; None if it has no such mode."""

    @property
    def address(self) -> PciAddress:
        """Where it is on the host."""
        return self.function.address


@dataclass(frozen=True, slots=True)
class Tenant:
    """The domain that a device is passed through to."""

    sliver: str
    domain: str | None = None
    """libvirt's UUID of the domain, where a cloud made it; None for a domain of our own."""


@dataclass(frozen=True, slots=True)
class PluggedDevice:
    """A PCI function of a server, as found."""

    component: str
    alias: str
    """``ua-<sliver>-<component>-<n>``, the stamp of the device."""
    host_address: PciAddress
    guest_address: PciAddress | None = None
    """Where libvirt put it: bus numbers are those of libvirt's controllers."""
    guest_port: PciAddress | None = None
    """The root port that it hangs on, whose address the guest sees as libvirt does."""
    mac: str | None = None
    vlan: int | None = None
    settings: "VfSettings | None" = None
    """What the PF enforces on it, if it is a VF of an uplink."""
    bridge_mode: str | None = None
    """Of the uplink, if it is a VF: ``veb`` or ``vepa``."""


@dataclass(frozen=True, slots=True)
class DeviceRecord:
    """What is written down of a function from before it is passed through until it is clean again."""

    address: PciAddress
    type: str
    """Resource type of the component."""
    model: str | None
    sliver: str
    component: str
    vendor: str
    product: str
    quarantined: str = ""
    """Why it is quarantined; empty if it is not."""
    baseline: "VfSettings | None" = None
    """What the PF enforced on it before, if it is a VF."""


class DeviceDriver(Protocol):
    """PCI functions passed through to servers."""

    cold: ClassVar[bool]
    """Whether a device becomes the guest's, or the host's again, only with the domain's next start."""

    def inventory(self) -> tuple[HostDevice, ...]:
        """Return the PCI functions of the host, with their states and owners."""

    def check(self, component: PciComponent, tenant: Tenant) -> None:
        """Return if the sliver may have the device.

        What the sliver has of it already is not taken.

        :raises InvalidSliver: if an address is not on the host or not in the allow-list. The field is
            relative to the component, for example ``bdf[0]``.
        :raises DeviceClaimed: if another domain of the host, live or defined, has it, its PF, one of its
            VFs, or another function of its IOMMU group.
        :raises DeviceInUse: if the host itself uses it, or a function of its IOMMU group.
        :raises DeviceUnclean: if it was not cleaned after its last use, or is quarantined.
        """

    def plugged(self, tenant: Tenant) -> tuple[PluggedDevice, ...]:
        """Return the functions that the sliver's server has by our stamp."""

    def differences(self, component: PciComponent, tenant: Tenant) -> tuple[str, ...]:
        """Say where the device is not what the component wants, a sentence each."""

    def keeps(self, tenant: Tenant, component: str) -> bool:
        """Return whether the domain has anything of the component, live or defined.

        Of a cold device what is defined counts: until its next start the domain has it still.
        """

    def free_ports(self, tenant: Tenant) -> int | None:
        """Return how many more devices fit into the running domain; None if it does not run."""

    def pending(self, tenant: Tenant) -> bool:
        """Return whether the running domain gets or loses a device with its next start."""

    def restart(self, tenant: Tenant, *, timeout: float) -> None:
        """Power-cycle the domain, as it is defined; it runs on return.

        :param timeout: seconds that the guest gets to shut down before it is forced to.
        """

    def rescan(self, tenant: Tenant, component: PciComponent, *, timeout: float) -> None:
        """Take the device from the guest and from the host's bus, find it again, and give it back.

        :param timeout: seconds that the guest gets to let go of it.
        :raises NotVerified: if the bus does not have it again, with the same ids.
        """

    def attach(self, tenant: Tenant, component: PciComponent) -> tuple[PluggedDevice, ...]:
        """Pass all functions of the component through, now (if it runs) and for later starts.

        What is there and differs (a VF that was pulled, its settings) is put right. Before, each is
        written down as in use.

        :raises Conflict: as :meth:`check` does.
        """

    def detach(self, tenant: Tenant, component: str, *, timeout: float) -> None:
        """Take the component's functions back; the guest has let go of them on return.

        :raises TimedOut: if it did not in time. The device is still the sliver's then.
        """

    def records(self, sliver_id: str) -> tuple[DeviceRecord, ...]:
        """Return what is written down of the sliver's devices: they are not free yet."""

    def clean(self, record: DeviceRecord) -> None:
        """Make a device that no domain has any more fit for the next tenant, and strike its record.

        A VF gets its former settings back, a drive is erased and read, a function is reset.

        :raises DeviceClaimed: if a domain still has it.
        :raises DeviceUnclean: if that could not be verified; the device is quarantined then. Also if it
            was quarantined before: only a person sets it free.
        """

    def release(self, address: PciAddress, *, force: bool) -> None:
        """Clean a device once more, also one that is quarantined, and strike its record.

        :param force: do not clean it: a person answers for it.
        :raises DeviceClaimed: if a domain still has it.
        :raises DeviceUnclean: if it could not be verified to be clean; it is quarantined then.
        """


@dataclass(frozen=True, slots=True)
class VfSettings:
    """What a PF enforces on one of its VFs. None: left as it is when set, not reported when read."""

    mac: str | None = None
    vlan: int | None = None
    """VLAN id; 0 is none."""
    qos: int | None = None
    trust: bool | None = None
    spoof_check: bool | None = None
    max_tx_rate: int | None = None
    """Mbit/s; 0 is no limit."""
    min_tx_rate: int | None = None
    """Mbit/s; 0 is none."""
    link_state: int | None = None
    """0 follows the PF, 1 is up, 2 is down (IFLA_VF_LINK_STATE)."""


class UplinkDriver(Protocol):
    """The bridge mode of an uplink and the settings of its VFs, by netlink."""

    def bridge_mode(self, link: str) -> str:
        """Return ``veb`` or ``vepa``, as the NIC says.

        :raises Unsupported: if the NIC has no such mode.
        :raises NotFound: if there is no such link.
        """

    def set_bridge_mode(self, link: str, mode: str) -> None:
        """Set ``veb`` or ``vepa`` and read it back.

        :raises Unsupported: if the NIC refuses (EOPNOTSUPP).
        :raises NotVerified: if the NIC says otherwise afterwards.
        """

    def vfs(self, link: str) -> tuple[VfSettings, ...]:
        """Return the settings of all VFs, the index being the VF's number."""

    def set_vf(self, link: str, vf: int, settings: VfSettings) -> None:
        """Change those settings of a VF that are not None and read them back."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a command on a host or in a guest came to."""

    code: int
    stdout: bytes = b""
    stderr: bytes = b""


class HostDriver(Protocol):
    """What only a program on the worker can do.

    The functions of :mod:`fabric_direct.drivers.worker` run there: by SSH, or, for this machine, here.
    """

    def call(self, function: str, *, timeout: float, **arguments: Any) -> Any:
        """Call a function on the worker: ``pci.survey``, for example.

        Arguments and answer are JSON values.

        :param timeout: seconds until an answer.
        :raises Unreachable: if the worker does not answer, or its connection breaks in the call.
        :raises Denied: if it does not let us in, or the function lacks a right (EPERM, EACCES).
        :raises NotFound: if what the function is about is not there (ENOENT, ENODEV).
        :raises Unsupported: if the kernel or device does not know how (EOPNOTSUPP, ENOTTY).
        :raises TimedOut: if no answer came in time.
        :raises DriverError: in the words of any other error there.
        """

    def run(self, argv: tuple[str, ...], stdin: bytes = b"", *, timeout: float) -> CommandResult:
        """Run a command; no shell reads its arguments. It is ended after ``timeout`` seconds."""

    def read_file(self, path: str, *, timeout: float) -> bytes:
        """Return the content of a file."""

    def write_file(self, path: str, content: bytes, mode: int = 0o600, *, timeout: float) -> None:
        """Replace a file in one step, and make its directory."""

    def netlink(self, netns: str | None = None) -> AbstractContextManager[Any]:
        """Give a pyroute2 ``IPRoute`` that speaks with the worker's kernel, for one thread and block.

        :param netns: name of a network namespace there; the host's own if absent.
        """


@dataclass(frozen=True, slots=True)
class GuestInterface:
    """A network interface as the guest sees it."""

    name: str
    mac: str
    addresses: tuple[str, ...] = ()
    """With prefix length."""


@dataclass(frozen=True, slots=True)
class GuestAddress:
    """How a guest may be reached: what the drivers for guests are called with."""

    sliver: str
    instance: str
    """Domain name, or the server's id where the name is not told."""
    user: str
    """The user of its image."""
    addresses: tuple[str, ...] = ()
    """IP addresses without prefix, the best first."""


class GuestDriver(Protocol):
    """What must be seen or set inside the guest."""

    name: str
    """How it reaches guests: ``agent``, ``ssh``."""
    keys: tuple[str, ...]
    """Public keys that a guest must let in for the driver to reach it; none if it needs no login.
    A driver that has any asks a guest's host key to be pinned before (:meth:`learn`)."""

    def listens(self, guest: GuestAddress) -> bool:
        """Return whether something answers at the guest's addresses: cheap, and no proof of who."""

    def learn(self, guest: GuestAddress, console: str) -> bool:
        """Pin the host key that the guest showed on its console; return whether it is known now."""

    def pins(self, guest: GuestAddress) -> tuple[str, ...]:
        """Return the guest's addresses that have a pinned host key."""

    def forget(self, guest: GuestAddress) -> None:
        """Pin no host key to the guest's addresses any more."""

    def ping(self, guest: GuestAddress) -> bool:
        """Return whether the guest answers now."""

    def wait(self, guest: GuestAddress, *, timeout: float) -> None:
        """Return when the guest answers.

        :raises Unreachable: if it did not within ``timeout`` seconds.
        """

    def boot_finished(self, guest: GuestAddress) -> bool | None:
        """Return whether cloud-init, or what stands in for it, is through; None if that is unknown."""

    def ssh_host_key(self, guest: GuestAddress) -> str | None:
        """Return the guest's SSH host key, ``algorithm base64``, if it can be read in a trusted way."""

    def interfaces(self, guest: GuestAddress) -> tuple[GuestInterface, ...]:
        """Return the guest's network interfaces, without its loopback."""

    def run(
        self, guest: GuestAddress, argv: tuple[str, ...], stdin: bytes = b"", *, timeout: float
    ) -> CommandResult:
        """Run a command in the guest; no shell reads its arguments."""

    def authorized_keys(self, guest: GuestAddress) -> tuple[str, ...]:
        """Return the public keys that may log in as the image's user."""

    def add_keys(self, guest: GuestAddress, keys: tuple[str, ...]) -> None:
        """Let these public keys log in as the image's user."""

    def remove_keys(self, guest: GuestAddress, keys: tuple[str, ...]) -> None:
        """Let these public keys no longer log in as the image's user."""


class TuningDriver(Protocol):
    """Placement of a running server's CPUs and memory on its host."""

    def cpu_info(self, instance: str) -> dict[str, Any]:
        """Return ``{"vcpus": [{"vcpu", "cpu", "state", "cpu_time", "affinity"}], …}``.

        Beside it ``host_cpus``, their number, and ``pinned``: those that exactly one virtual CPU of
        another running domain is pinned to. ``cpu_time`` is in nanoseconds; ``affinity`` lists host
        CPUs.
        """

    def numa_info(self, instance: str) -> dict[str, Any]:
        """Return ``{"nodes": [{"node", "memory", "free", "cpus"}], "node_set", "mode", "usage"}``.

        ``memory`` and ``free`` are in MiB, of the host's nodes. ``usage`` has the MiB that the server's
        process has on each node, by their kind: ``{0: {"Private": 1.5, "Heap": …, "Stack", "Huge"}}``;
        it is empty while the server does not run, and None, with a warning, if it cannot be read.
        """

    def pin_cpus(self, instance: str, pins: dict[int, int]) -> None:
        """Pin virtual CPUs to host CPUs, now and for later starts, and read it back.

        :raises InvalidSliver: if a CPU does not exist.
        """

    def set_numa_nodes(self, instance: str, nodes: frozenset[int]) -> None:
        """Take memory from these host nodes only, now and for later starts, and read it back.

        :raises InvalidSliver: if a node does not exist.
        """


@dataclass(frozen=True, slots=True)
class HostDrivers:
    """The drivers that serve one host, or a cloud and the host that it chose."""

    host: str
    """Empty while a cloud has not chosen one."""
    compute: ComputeDriver
    network: NetworkDriver
    volume: VolumeDriver
    tuning: TuningDriver | None = None
    """None where the host's libvirt is not known to the site."""
    guest: GuestDriver | None = None
    """None where the site does not look into its guests (``guest: none``)."""
    bridge: BridgeDriver | None = None
    """None where the site serves no ``L2Bridge``."""
    uplink: UplinkDriver | None = None
    """None where the site does not know the host."""
    devices: dict[str, DeviceDriver] = field(default_factory=dict)
    """By resource type, ``Type_Model`` or ``Type``."""
    deadline: Deadline = field(default_factory=lambda: Deadline(inf))
    """When the operation that they are used for ends."""
    moment: Moment = field(default_factory=Moment)
    """Answers that they share until something is changed."""

    def device(self, component: PciComponent | DeviceRecord) -> DeviceDriver:
        """Return the driver for a device, by ``Type_Model`` or else ``Type``.

        :raises Unsupported: if the host has none.
        """
        key = f"{component.type}_{component.model}"
        found = self.devices.get(key, self.devices.get(component.type))
        if found is None:
            raise Unsupported(
                f"no {component.type} can be passed through",
                where=self.host,
                why="the site does not know the libvirt of the host",
                remedy="name the host in the sliver and below hosts in site.yaml",
            )
        return found

    def functions(self) -> tuple[HostDevice, ...]:
        """Return the host's PCI functions, which each of its drivers for devices tells all of.

        None where the site does not know the host's libvirt.
        """
        return next((driver.inventory() for driver in self.devices.values()), ())

    def within(
        self, deadline: Deadline, limit: float, moment: Moment | None = None
    ) -> "HostDrivers":
        """Return the same drivers for one operation.

        Each call ends by ``limit`` seconds and the deadline, and all share one moment. What a cloud
        builds takes as long as it takes, and so does the erasing of a drive: calls of these drivers end
        by the deadline, each of their requests by a limit of its own.
        """
        moment = moment or Moment()
        limited = partial(bounded, deadline=deadline, limit=limit, within=moment.lasting)
        patient = partial(limited, limit=inf) if self.compute.cloud else limited
        cleaning = partial(limited, limit=inf)
        return HostDrivers(
            host=self.host,
            compute=patient(self.compute, "compute"),
            network=patient(self.network, "network"),
            volume=patient(self.volume, "volume"),
            tuning=self.tuning and limited(self.tuning, "tuning"),
            guest=self.guest and limited(self.guest, "guest"),
            bridge=self.bridge and patient(self.bridge, "bridge"),
            uplink=self.uplink and limited(self.uplink, "uplink"),
            devices={t: cleaning(d, "device") for t, d in self.devices.items()},
            deadline=deadline,
            moment=moment,
        )
