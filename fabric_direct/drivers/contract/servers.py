"""Servers, as described and as found."""

from dataclasses import dataclass
from typing import Self

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
class Plug:
    """A NIC of a server whose port another sliver holds, as found."""

    server: str
    """The server's sliver; empty if the server is not ours."""
    instance: str
    """Domain name or server id."""
    nic: PluggedPort
    whole: bool = True
    """Whether it is plugged in both now and for later starts."""


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
