"""The compute driver of a host or cloud."""

from typing import ClassVar, Protocol

from fabric_direct.calls.reading import reads, reads_once
from fabric_direct.drivers.contract.changes import Hearing, Tell
from fabric_direct.drivers.contract.hosts import HostInventory
from fabric_direct.drivers.contract.networks import Port
from fabric_direct.drivers.contract.servers import Image, ImageNeeds, Plug, Server, ServerSpec
from fabric_direct.drivers.contract.stamped import StampFinder
from fabric_direct.drivers.contract.volumes import Volume
from fabric_direct.model import Mbps, NodeSliver, Stamp, VNicInterface


class ComputeDriver(StampFinder, Protocol):
    """Finds, makes and controls servers, and plugs ports and volumes into them.

    An entry point of ``fabric_direct.compute`` provides it.
    """

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

    def start(self, sliver_id: str) -> None:
        """Start a stopped server."""

    def stop(self, sliver_id: str, *, timeout: float) -> None:
        """Shut the guest down, and power it off after ``timeout`` seconds; it is stopped on return."""

    def reboot(self, sliver_id: str, *, hard: bool, timeout: float) -> None:
        """Restart the guest; ``hard`` is a power cycle.

        :raises TimedOut: if a soft reboot was not observed within ``timeout`` seconds.
        """

    def write_stamp(self, sliver_id: str, stamp: Stamp) -> None:
        """Replace the server's stamp."""

    def resize(self, stamp: Stamp) -> None:
        """Resize the server to the flavor or capacities of the stamp's sliver, and write this stamp.

        A server that ran before runs again on return.

        :raises InvalidSliver: if no flavor fits, its root disk would shrink, or its host has no room as
            far as the driver knows beforehand; nothing was touched then.
        :raises Unsupported: if the driver cannot resize.
        """

    def attach_port(self, sliver_id: str, port: Port, interface: VNicInterface) -> None:
        """Plug a NIC in, now and for later starts.

        :param sliver_id: the server's sliver; the port may be held for another sliver.
        :raises Unsupported: if the interface has a bandwidth and the driver cannot limit a NIC.
        """

    def detach_port(
        self, sliver_id: str, component: str, *, timeout: float, holder: str | None = None
    ) -> None:
        """Unplug a NIC, now and for later starts; on return the guest has released it.

        :param holder: the sliver that holds its port; the server's own if absent.
        :raises TimedOut: if the guest did not release it in time. It is still plugged in then.
        """

    def set_bandwidth(
        self, sliver_id: str, component: str, bandwidth: Mbps | None, holder: str | None = None
    ) -> None:
        """Limit a NIC to ``bandwidth`` Mbit/s in each direction; None lifts the limit.

        :param holder: the sliver that holds its port; the server's own if absent.
        :raises Unsupported: if the driver cannot limit a NIC.
        """

    @reads
    def plugs(self, holder: str) -> tuple[Plug, ...]:
        """Return the NICs of servers whose ports another sliver holds.

        :param holder: that sliver.
        """

    def attach_volume(self, sliver_id: str, component: str, volume: Volume) -> None:
        """Plug a data volume in, now and for later starts."""

    def detach_volume(self, sliver_id: str, component: str, *, timeout: float) -> None:
        """Unplug a data volume, now and for later starts; on return the guest has released it.

        :raises TimedOut: if the guest did not release it in time.
        """
