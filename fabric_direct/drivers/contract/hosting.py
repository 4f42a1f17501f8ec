"""What hosts have for servers, and what a server needs of its host."""

from dataclasses import dataclass
from typing import Protocol

from fabric_direct.drivers.contract.hosts import HostInventory
from fabric_direct.drivers.contract.servers import Image
from fabric_direct.model import NodeSliver


@dataclass(frozen=True, slots=True)
class ImageNeeds:
    """What servers of an image need of their host, by the image's properties."""

    architecture: str | None = None
    required_traits: frozenset[str] = frozenset()
    forbidden_traits: frozenset[str] = frozenset()
    ram: int = 0
    """MiB, at least."""
    disk: int = 0
    """GiB, at least."""


class ServerHosting(Protocol):
    """Says what the hosts can run."""

    def check(self, sliver: NodeSliver, image: Image) -> None:
        """Raise InvalidSliver unless the host can run this sliver from this image.

        :raises InvalidSliver: with the field: ``image`` if it is missing or not an image,
            ``capacities.disk`` if the image is larger than the disk, ``capacities.…`` if the host is too
            small, ``flavor`` if none fits, ``host`` if the host is not available.
        """

    def inventory(self) -> tuple[HostInventory, ...]:
        """Return the host, or the cloud's workers that the site names; all of them if it names none.

        Slivers are read before usage, so the usage of every listed sliver is counted.

        :raises Denied: if only an administrator may read this.
        """

    def image_needs(self, image: Image) -> ImageNeeds:
        """Return the requirements of servers that are made from the image.

        :raises InvalidSliver: with the field ``image`` if there is no such image.
        """
