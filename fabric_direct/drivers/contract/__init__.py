"""The contract of every driver; authors of code that calls drivers need to read nothing else.

Each file covers one subject: its values, and protocols with the few methods that steps and handlers use.
``ComputeDriver``, ``DeviceDriver`` and ``GuestDriver`` combine these protocols; entry points provide
whole drivers.

A callable ``(site, host) -> driver``, usually a class, makes a driver. If the driver takes settings, the
callable has a pydantic model as its attribute ``settings_model``; ``site.settings_of(name, model)``
returns the settings.

A driver instance serves one host (or one cloud), is shared by many threads, opens its connections at
first use and keeps none across a fork. All methods guarantee:

* Creation is idempotent: a create, attach or set that finds the wanted resource, stamped for the same
  sliver and component, returns it.
* Removal is idempotent: a delete or detach of a resource that does not exist succeeds.
* Only resources with this site's stamp are changed or removed (:class:`~fabric_direct.errors.NotOurs`).
* When a call returns, the change is in effect, as far as the API can tell.
* Errors are those of :mod:`fabric_direct.errors`, with the native error as ``__cause__``.
* ``timeout`` is in seconds, limits the wait for an event, and is passed by keyword.
"""

from fabric_direct.drivers.contract.adoption import (
    Adopted,
    AdoptionDriver,
    FoundPort,
    FoundServer,
    FoundThing,
    FoundVolume,
)
from fabric_direct.drivers.contract.bundle import HostDrivers
from fabric_direct.drivers.contract.compute import ComputeDriver
from fabric_direct.drivers.contract.devices import (
    UNREADABLE,
    AdoptedFunction,
    Belongings,
    DeviceAdoption,
    DeviceCleaning,
    DeviceDomain,
    DeviceDriver,
    DevicePlugging,
    DevicePowerCycle,
    DeviceRecord,
    PluggedDevice,
)
from fabric_direct.drivers.contract.guests import (
    GuestAddress,
    GuestDriver,
    GuestInterface,
    HostKeys,
)
from fabric_direct.drivers.contract.hosts import (
    CommandResult,
    HostCapacity,
    HostDriver,
    HostInventory,
    HostNode,
)
from fabric_direct.drivers.contract.hot_plug import Plug, PortPlugging, VolumePlugging
from fabric_direct.drivers.contract.network_services import Service, ServiceDriver
from fabric_direct.drivers.contract.networks import (
    NetworkDriver,
    Port,
    PortHolder,
    UnusedNetworks,
)
from fabric_direct.drivers.contract.no_servers import NoServers
from fabric_direct.drivers.contract.pci_functions import (
    Holder,
    HostDevice,
    PciFunction,
    ProgramHolder,
)
from fabric_direct.drivers.contract.servers import (
    Image,
    ImageNeeds,
    PluggedPort,
    PluggedVolume,
    Server,
    ServerFinder,
    ServerMaker,
    ServerPower,
    ServerSpec,
    ServerStamps,
)
from fabric_direct.drivers.contract.stamped import QUARANTINED, Stamped, StampFinder
from fabric_direct.drivers.contract.tuning import TuningDriver
from fabric_direct.drivers.contract.uplinks import UplinkDriver, VfSettings
from fabric_direct.drivers.contract.volumes import Volume, VolumeDriver, VolumeFinder

__all__ = [
    "QUARANTINED",
    "UNREADABLE",
    "Adopted",
    "AdoptedFunction",
    "AdoptionDriver",
    "Belongings",
    "CommandResult",
    "ComputeDriver",
    "DeviceAdoption",
    "DeviceCleaning",
    "DeviceDomain",
    "DeviceDriver",
    "DevicePlugging",
    "DevicePowerCycle",
    "DeviceRecord",
    "FoundPort",
    "FoundServer",
    "FoundThing",
    "FoundVolume",
    "GuestAddress",
    "GuestDriver",
    "GuestInterface",
    "Holder",
    "HostCapacity",
    "HostDevice",
    "HostDriver",
    "HostDrivers",
    "HostInventory",
    "HostKeys",
    "HostNode",
    "Image",
    "ImageNeeds",
    "NetworkDriver",
    "NoServers",
    "PciFunction",
    "Plug",
    "PluggedDevice",
    "PluggedPort",
    "PluggedVolume",
    "Port",
    "PortHolder",
    "PortPlugging",
    "ProgramHolder",
    "Server",
    "ServerFinder",
    "ServerMaker",
    "ServerPower",
    "ServerSpec",
    "ServerStamps",
    "Service",
    "ServiceDriver",
    "StampFinder",
    "Stamped",
    "TuningDriver",
    "UnusedNetworks",
    "UplinkDriver",
    "VfSettings",
    "Volume",
    "VolumeDriver",
    "VolumeFinder",
    "VolumePlugging",
]
