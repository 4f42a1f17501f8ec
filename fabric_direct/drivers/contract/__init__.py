"""The contract of every driver; authors of code that calls drivers need to read nothing else.

Each file covers one subject: its values, and the protocol of its driver. There is one protocol for each
group of entry points.

A callable ``(site, host) -> driver``, usually a class, makes a driver. If the driver takes settings, the
callable has a pydantic model as its attribute ``settings_model``; ``site.settings_of(name, model)``
returns the settings. Files and directories in them are :data:`LocalPath`: relative to site.yaml.

The callable of a compute driver may have ``default_drivers(site)``, which returns the drivers of other
kinds that serve its servers where site.yaml names none: by key of ``drivers``, as ``vNIC``, ``GPU`` and
``tuning``, and ``guest``. Without it, these are the drivers of its own name. What needs a driver that is
neither raises :class:`~fabric_direct.errors.Unsupported`.

A driver instance serves one host (or one cloud), is shared by many threads, opens its connections at
first use and keeps none across a fork. All methods guarantee:

* Creation is idempotent: a create, attach or set that finds the wanted resource, stamped for the same
  sliver and component, returns it.
* Removal is idempotent: a delete or detach of a resource that does not exist succeeds.
* Only resources with this site's stamp are changed or removed (:class:`~fabric_direct.errors.NotOurs`).
* When a call returns, the change is in effect, as far as the API can tell.
* Errors are those of :mod:`fabric_direct.errors`, with the native error as ``__cause__``.
* ``timeout`` is in seconds, limits the wait for an event, and is passed by keyword.

A protocol marks a method that changes nothing with :func:`~fabric_direct.calls.reading.reads`. One with
:func:`~fabric_direct.calls.reading.reads_once` is asked once until its operation changes something, or
waits. A driver's own methods have no marks: those of the protocol count.
"""

from fabric_direct.drivers.contract.adoption import (
    Adopted,
    AdoptionDriver,
    FoundPort,
    FoundServer,
    FoundThing,
    FoundVolume,
)
from fabric_direct.drivers.contract.bare_metal import (
    BareMetalDriver,
    BareMetalNode,
    NodeAccess,
    NodeCondition,
    NodePort,
)
from fabric_direct.drivers.contract.bundle import HostDrivers
from fabric_direct.drivers.contract.compute import ComputeDriver
from fabric_direct.drivers.contract.devices import (
    UNREADABLE,
    AdoptedFunction,
    Belongings,
    DeviceDomain,
    DeviceDriver,
    DeviceRecord,
    PluggedDevice,
)
from fabric_direct.drivers.contract.guests import (
    GuestAddress,
    GuestDriver,
    GuestInterface,
    HostKey,
)
from fabric_direct.drivers.contract.hosts import (
    CommandResult,
    HostCapacity,
    HostDriver,
    HostInventory,
    HostNode,
)
from fabric_direct.drivers.contract.kinds import KINDS, promised
from fabric_direct.drivers.contract.listed_volumes import ListedVolumes
from fabric_direct.drivers.contract.network_services import Service, ServiceDriver
from fabric_direct.drivers.contract.networks import (
    NetworkDriver,
    Port,
)
from fabric_direct.drivers.contract.no_driver import NoDriver
from fabric_direct.drivers.contract.pci_functions import (
    Holder,
    HostDevice,
    PciFunction,
    ProgramHolder,
)
from fabric_direct.drivers.contract.servers import (
    Image,
    ImageNeeds,
    Plug,
    PluggedPort,
    PluggedVolume,
    Server,
    ServerSpec,
)
from fabric_direct.drivers.contract.stamped import QUARANTINED, Stamped, StampFinder
from fabric_direct.drivers.contract.tuning import TuningDriver
from fabric_direct.drivers.contract.uplinks import UplinkDriver, VfSettings
from fabric_direct.drivers.contract.volumes import Volume, VolumeDriver
from fabric_direct.model import LocalPath

__all__ = [
    "KINDS",
    "QUARANTINED",
    "UNREADABLE",
    "Adopted",
    "AdoptedFunction",
    "AdoptionDriver",
    "BareMetalDriver",
    "BareMetalNode",
    "Belongings",
    "CommandResult",
    "ComputeDriver",
    "DeviceDomain",
    "DeviceDriver",
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
    "HostKey",
    "HostNode",
    "Image",
    "ImageNeeds",
    "ListedVolumes",
    "LocalPath",
    "NetworkDriver",
    "NoDriver",
    "NodeAccess",
    "NodeCondition",
    "NodePort",
    "PciFunction",
    "Plug",
    "PluggedDevice",
    "PluggedPort",
    "PluggedVolume",
    "Port",
    "ProgramHolder",
    "Server",
    "ServerSpec",
    "Service",
    "ServiceDriver",
    "StampFinder",
    "Stamped",
    "TuningDriver",
    "UplinkDriver",
    "VfSettings",
    "Volume",
    "VolumeDriver",
    "promised",
]
