"""Servers, and the drivers that make and tune them."""

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

from fabric_direct.config import Site
from fabric_direct.drivers.contract.hosts import HostInventory
from fabric_direct.drivers.contract.networks import Port
from fabric_direct.drivers.contract.volumes import Volume
from fabric_direct.model import Mbps, NodeSliver, Stamp, State, VNicInterface


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
