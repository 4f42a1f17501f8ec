"""The compute driver of a host or cloud, composed of small interfaces."""

from typing import ClassVar, Protocol

from fabric_direct.calls.reading import reads
from fabric_direct.drivers.contract.hosts import HostInventory
from fabric_direct.drivers.contract.hot_plug import PortPlugging, VolumePlugging
from fabric_direct.drivers.contract.servers import (
    Image,
    ImageNeeds,
    ServerMaker,
    ServerPower,
    ServerStamps,
)
from fabric_direct.drivers.contract.stamped import StampFinder
from fabric_direct.model import NodeSliver


class ComputeDriver(
    ServerMaker, ServerPower, ServerStamps, PortPlugging, VolumePlugging, StampFinder, Protocol
):
    """All that an entry point of ``fabric_direct.compute`` provides; steps use only a part of it."""

    cloud: ClassVar[bool]
    """Whether it serves all workers at once: a cloud finds a server wherever it is, and may be left to
    choose its worker."""
    unserved: ClassVar[tuple[str, ...]]
    """Fields of a sliver that ``check`` refuses."""

    @reads
    def check(self, sliver: NodeSliver, image: Image) -> None:
        """Raise InvalidSliver unless the host can run this sliver from this image.

        :raises InvalidSliver: with the field: ``image`` if it is missing or not an image,
            ``capacities.disk`` if the image is larger than the disk, ``capacities.…`` if the host is too
            small, ``flavor`` if none fits, ``host`` if the host is not available, and those that are not
            served.
        """

    @reads
    def inventory(self) -> tuple[HostInventory, ...]:
        """Return the host, or the cloud's workers that the site names; all of them if it names none.

        Slivers are read before usage, so the usage of every listed sliver is counted.

        :raises Denied: if only an administrator may read this.
        """

    @reads
    def image_needs(self, image: Image) -> ImageNeeds:
        """Return the requirements of servers that are made from the image.

        :raises InvalidSliver: with the field ``image`` if there is no such image.
        """

    @reads
    def console(self, sliver_id: str, lines: int) -> str:
        """Return the last ``lines`` lines of the guest's serial console."""
