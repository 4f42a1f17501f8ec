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

from fabric_direct.drivers.contract.bundle import HostDrivers
from fabric_direct.drivers.contract.devices import (
    DeviceDriver,
    DeviceRecord,
    HostDevice,
    PciFunction,
    PluggedDevice,
    Tenant,
)
from fabric_direct.drivers.contract.guests import GuestAddress, GuestDriver, GuestInterface
from fabric_direct.drivers.contract.hosts import (
    CommandResult,
    HostCapacity,
    HostDriver,
    HostInventory,
    HostNode,
)
from fabric_direct.drivers.contract.networks import BridgeDriver, Network, NetworkDriver, Port
from fabric_direct.drivers.contract.servers import (
    ComputeDriver,
    Image,
    ImageNeeds,
    Plug,
    PluggedPort,
    PluggedVolume,
    Server,
    ServerSpec,
    TuningDriver,
)
from fabric_direct.drivers.contract.uplinks import UplinkDriver, VfSettings
from fabric_direct.drivers.contract.volumes import Volume, VolumeDriver

__all__ = [
    "BridgeDriver",
    "CommandResult",
    "ComputeDriver",
    "DeviceDriver",
    "DeviceRecord",
    "GuestAddress",
    "GuestDriver",
    "GuestInterface",
    "HostCapacity",
    "HostDevice",
    "HostDriver",
    "HostDrivers",
    "HostInventory",
    "HostNode",
    "Image",
    "ImageNeeds",
    "Network",
    "NetworkDriver",
    "PciFunction",
    "Plug",
    "PluggedDevice",
    "PluggedPort",
    "PluggedVolume",
    "Port",
    "Server",
    "ServerSpec",
    "Tenant",
    "TuningDriver",
    "UplinkDriver",
    "VfSettings",
    "Volume",
    "VolumeDriver",
]
