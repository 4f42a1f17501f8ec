"""The compute driver of a host or cloud, composed of small interfaces."""

from typing import ClassVar, Protocol

from fabric_direct.drivers.contract.hosting import ServerHosting
from fabric_direct.drivers.contract.hot_plug import PortPlugging, VolumePlugging
from fabric_direct.drivers.contract.servers import (
    ServerConsole,
    ServerMaker,
    ServerPower,
    ServerStamps,
)


class ComputeDriver(
    ServerHosting,
    ServerMaker,
    ServerPower,
    ServerStamps,
    ServerConsole,
    PortPlugging,
    VolumePlugging,
    Protocol,
):
    """All that an entry point of ``fabric_direct.compute`` provides; steps use only a part of it."""

    cloud: ClassVar[bool]
    """Whether it serves all workers at once: a cloud finds a server wherever it is, and may be left to
    choose its worker."""
