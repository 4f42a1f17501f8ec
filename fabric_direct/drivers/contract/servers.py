"""Servers: as described, as found, and the drivers that find, make and control them."""

from dataclasses import dataclass
from typing import Protocol, Self

from fabric_direct.calls.reading import reads, reads_once
from fabric_direct.drivers.contract.changes import Hearing, Tell
from fabric_direct.drivers.contract.networks import Port
from fabric_direct.drivers.contract.volumes import Volume
from fabric_direct.model import NodeSliver, Stamp, State, VNicInterface
from fabric_direct.site.config import Site


@dataclass(frozen=True, slots=True)
class PluggedPort:
    """A NIC of a server, as found."""

    component: str
    mac: str
    source: str
    bandwidth: int | None = None
    """Limit in Mbit/s in each direction, if any; 0 if it is another one in each, or no whole number."""
    enabled: bool = True
    """Whether its link is switched on."""

    def interface(self) -> VNicInterface:
        """Return the interface that asks for its limit; an uneven one cannot be asked for."""
        return VNicInterface(bandwidth=self.bandwidth or None)


@dataclass(frozen=True, slots=True)
class PluggedVolume:
    """A data volume of a server, as found."""

    component: str
    source: str
    target: str
    """Device name, for example ``vdb``."""
    serial: str = ""
    """Serial number that identifies it in the guest; virtio shows the first 20 characters."""


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
    """Its own NICs, without those whose ports other slivers hold."""
    volumes: tuple[PluggedVolume, ...] = ()
    domain: str | None = None
    """Name of its libvirt domain on the worker; None if the API does not tell."""
    flavor: str | None = None
    """Its flavor, where the API has flavors: cores and memory are then the flavor's, and may exceed the
    sliver's."""
    unfinished: bool = False
    """Whether its adoption is unfinished: something that belongs to it may bear no stamp."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image of the site."""

    name: str
    user: str
    """The user that logs in to its guests."""
    path: str | None = None
    """Path of its file on the host; None if the API stores it."""

    @classmethod
    def of(cls, site: Site, name: str) -> Self:
        """Return the image that a sliver names."""
        settings = site.image(name)
        return cls(name, str(settings.user), str(settings.path) if settings.path else None)


@dataclass(frozen=True, slots=True)
class ImageNeeds:
    """The requirements of an image's servers on their host, from the image's properties."""

    architecture: str | None = None
    required_traits: frozenset[str] = frozenset()
    forbidden_traits: frozenset[str] = frozenset()
    ram: int = 0
    """MiB, at least."""
    disk: int = 0
    """GiB, at least."""


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """The description from which a driver creates a server."""

    sliver: NodeSliver
    image: Image
    ports: tuple[Port, ...] = ()
    volumes: tuple[Volume, ...] = ()
    user_data: str = ""
    """The MIME multipart document of cloud-init."""


class ServerFinder(Protocol):
    """Finds the servers that bear a stamp of ours."""

    @reads_once
    def find(self, sliver_id: str) -> Server | None:
        """Return the server that carries the sliver's stamp, or None."""

    @reads
    def servers(self) -> tuple[Server, ...]:
        """Return all servers that bear a stamp of ours."""

    @reads
    def listen(self, tell: Tell, hearing: Hearing) -> None:
        """Tell of changes of servers, as a ``ChangeSource``.

        :raises FabricDirectError: if it cannot hear, or hears nothing any more.
        """


class ServerMaker(ServerFinder, Protocol):
    """Makes and removes servers."""

    def create(self, spec: ServerSpec) -> Server:
        """Create and start a server with its ports and volumes; it is running on return.

        What an earlier, interrupted call left is used or replaced.

        :raises NotOurs: if something with the server's name exists without this site's stamp.
        """

    def delete(self, sliver_id: str) -> None:
        """Delete the server, its root disk and its seed; they are gone on return."""

    @reads
    def leftovers(self, sliver_id: str) -> tuple[str, ...]:
        """Name everything of the server that is still there: domain, disks, seed."""


class ServerPower(ServerFinder, Protocol):
    """Starts and stops servers."""

    def start(self, sliver_id: str) -> None:
        """Start a stopped server."""

    def stop(self, sliver_id: str, *, timeout: float) -> None:
        """Shut the guest down, and power it off after ``timeout`` seconds; it is stopped on return."""

    def reboot(self, sliver_id: str, *, hard: bool, timeout: float) -> None:
        """Restart the guest; ``hard`` is a power cycle.

        :raises TimedOut: if a soft reboot was not observed within ``timeout`` seconds.
        """


class ServerStamps(ServerFinder, Protocol):
    """Writes stamps: the slivers that servers say they are."""

    def write_stamp(self, sliver_id: str, stamp: Stamp) -> None:
        """Replace the server's stamp."""

    def resize(self, stamp: Stamp) -> None:
        """Resize the server to the flavor or capacities of the stamp's sliver, and write this stamp.

        A server that ran before runs again on return.

        :raises InvalidSliver: if no flavor fits, its root disk would shrink, or its host has no room as
            far as the driver knows beforehand; nothing was touched then.
        :raises Unsupported: if the driver cannot resize.
        """
