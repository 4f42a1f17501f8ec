"""Resources that others made in a cloud, as found, and the driver that puts this site's stamp on them.

An adoption writes stamps only: the stamped resources stay as they are.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from fabric_direct.calls.reading import reads
from fabric_direct.model import Stamp


class Adopted(StrEnum):
    """The progress of the adoption of a resource."""

    NO = "no"
    UNFINISHED = "unfinished"
    """Its stamp is there, and something that belongs to it may lack one: only an adoption goes on."""
    DONE = "done"


@dataclass(frozen=True, slots=True)
class FoundThing:
    """A port, floating IP or volume of the project, as found."""

    id: str
    name: str
    owner: str = ""
    """``<site>/<sliver>`` of its stamp; another description as it is; empty if it has none."""
    component: str = ""
    """Of its stamp."""


@dataclass(frozen=True, slots=True)
class FoundPort(FoundThing):
    """A port of a server, as found."""

    mac: str = ""
    network: str = ""
    network_id: str = ""
    addresses: tuple[str, ...] = ()
    server: str = ""
    """Id of the server that has it; empty if none has."""
    floating: tuple[FoundThing, ...] = ()
    """Its floating IPs; the name of each is its address."""
    unfinished: bool = False
    """Whether other ports of its sliver may lack their stamps."""


@dataclass(frozen=True, slots=True)
class FoundVolume(FoundThing):
    """A volume of a server, as found."""

    size: int = 0
    """GiB."""


@dataclass(frozen=True, slots=True)
class FoundServer:
    """A server of the project, ours or not, as found."""

    id: str
    name: str
    host: str
    cores: int
    ram: int
    """MiB."""
    disk: int
    """GiB; 0 if its flavor has none."""
    flavor: str | None
    image: str | None
    """Name of its image; None if it has none, the cloud does not know it, or it was not read."""
    hostname: str | None
    """What its maker noted as its guest's host name (metadata ``hostname``)."""
    owner: str = ""
    """``<site>/<sliver>`` of its stamp; empty if it has none."""
    stamp: Stamp | None = None
    tagged: bool = False
    """Whether the sliver of the stamp finds it."""
    adopted: Adopted = Adopted.NO
    ports: tuple[FoundPort, ...] = ()
    volumes: tuple[FoundVolume, ...] = ()

    def __str__(self) -> str:
        return f"server {self.name} ({self.id})"


class AdoptionDriver(Protocol):
    """Finds what is in a cloud's project, whoever made it, and stamps it.

    A driver of servers that can be adopted has it as a class attribute ``adoption``, a factory as all
    drivers have. Where there is none, nothing can be adopted.
    """

    @reads
    def strangers(self, prefix: str = "") -> tuple[FoundServer, ...]:
        """Return the servers whose names begin so and that the site's slivers do not have.

        Also those whose adoption is unfinished. They are not read whole, see :meth:`server`.
        """

    @reads
    def server(self, name: str, *, whole: bool = True) -> FoundServer | None:
        """Return the server of that id, or exact name.

        :param whole: whether to read its image, and all that is plugged into it, as well.
        :raises Conflict: if several have the name.
        """

    @reads
    def ports_named(self, names: tuple[str, ...]) -> tuple[FoundPort, ...]:
        """Return the project's ports that have one of these ids, names or MAC addresses."""

    @reads
    def volume(self, volume: str) -> FoundVolume | None:
        """Return the project's volume of that id."""

    def stamp_server(self, server: str, stamp: Stamp, *, finished: bool) -> None:
        """Write the stamp of a server's sliver, and how far its adoption is.

        The sliver finds the server by it from the last request on, with the whole stamp.
        """

    def unstamp_server(self, server: str, sliver: str) -> None:
        """Remove the stamp of a server's sliver; after the first request it is not found any more."""

    def stamp_port(self, port: str, sliver: str, component: str, *, finished: bool = True) -> None:
        """Write the stamp of a port, and whether all ports of its sliver have theirs."""

    def unstamp_port(self, port: str) -> None:
        """Remove the stamp of a port."""

    def stamp_floating_ip(self, address: str, sliver: str, component: str) -> None:
        """Write the stamp of a floating IP, by its id."""

    def unstamp_floating_ip(self, address: str) -> None:
        """Remove the stamp of a floating IP."""

    def stamp_volume(self, volume: str, sliver: str, component: str) -> None:
        """Write the stamp of a volume, which is deleted with the sliver from then on."""

    def unstamp_volume(self, volume: str) -> None:
        """Remove the stamp of a volume."""
