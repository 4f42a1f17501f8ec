"""NICs and data volumes plugged into servers and out of them, now and for later starts."""

from dataclasses import dataclass
from typing import Protocol

from fabric_direct.calls.reading import reads
from fabric_direct.drivers.contract.networks import Port
from fabric_direct.drivers.contract.servers import PluggedPort, ServerFinder
from fabric_direct.drivers.contract.volumes import Volume
from fabric_direct.model import Mbps, VNicInterface


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


class PortPlugging(ServerFinder, Protocol):
    """Plugs ports into servers."""

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


class VolumePlugging(ServerFinder, Protocol):
    """Plugs data volumes into servers."""

    def attach_volume(self, sliver_id: str, component: str, volume: Volume) -> None:
        """Plug a data volume in, now and for later starts."""

    def detach_volume(self, sliver_id: str, component: str, *, timeout: float) -> None:
        """Unplug a data volume, now and for later starts; on return the guest has released it.

        :raises TimedOut: if the guest did not release it in time.
        """
