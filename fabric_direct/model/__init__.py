"""The data model: slivers, components, observations, outcomes.

All values are immutable, validated on creation, and serializable to JSON (``model_dump_json``,
``model_validate_json``). Nothing here does I/O. Unless a field says otherwise, RAM and disk are in
GiB, bandwidth in Mbit/s and times in seconds.

::

    base.py          frozen models, identifiers, names, keys
    devices.py       PCI addresses, states of devices
    vm.py            VMs with their components; references to slivers, stamps
    networks.py      networks, and slivers that are a network or ports of one
    services.py      network services: interfaces, gateways, peers
    p4_switches.py   whole P4 switches
    bare_metal.py    whole machines
    adoption.py      slivers that others made
    observed.py      what a sliver really has
    outcome.py       how operations and steps end
    references.py    which slivers name which: their order in a batch
    fabric_am.py     names that the FABRIC AM gives in a cloud
"""

from fabric_direct.model.base import (
    AUTO,
    ComponentId,
    Frozen,
    ImageName,
    LinkName,
    LocalPath,
    Mac,
    Mbps,
    ModelName,
    Name,
    PortName,
    SliverId,
    SshPublicKey,
    Trait,
    TypeAndModel,
    Vlan,
    refuse_twice,
    shown_model,
    with_prefix,
)
from fabric_direct.model.devices import DeviceState, PciAddress
from fabric_direct.model.observed import (
    Observed,
    ObservedDevice,
    ObservedGateway,
    ObservedGuest,
    ObservedInterface,
    ObservedVolume,
    State,
)
from fabric_direct.model.outcome import (
    ErrorReport,
    FieldChange,
    Finding,
    Operation,
    Outcome,
    Status,
    StepReport,
    StepStatus,
)
from fabric_direct.model.vm import (
    Capacities,
    Component,
    Fpga,
    Gpu,
    Interface,
    NodeSliver,
    Nvme,
    PciComponent,
    PlacementRules,
    Route,
    ServiceEnd,
    SharedNic,
    Sliver,
    SliverRef,
    SmartNic,
    Stamp,
    Storage,
    VNic,
    VNicInterface,
    WaitFor,
)

__all__ = [
    "AUTO",
    "Capacities",
    "Component",
    "ComponentId",
    "DeviceState",
    "ErrorReport",
    "FieldChange",
    "Finding",
    "Fpga",
    "Frozen",
    "Gpu",
    "ImageName",
    "Interface",
    "LinkName",
    "LocalPath",
    "Mac",
    "Mbps",
    "ModelName",
    "Name",
    "NodeSliver",
    "Nvme",
    "Observed",
    "ObservedDevice",
    "ObservedGateway",
    "ObservedGuest",
    "ObservedInterface",
    "ObservedVolume",
    "Operation",
    "Outcome",
    "PciAddress",
    "PciComponent",
    "PlacementRules",
    "PortName",
    "Route",
    "ServiceEnd",
    "SharedNic",
    "Sliver",
    "SliverId",
    "SliverRef",
    "SmartNic",
    "SshPublicKey",
    "Stamp",
    "State",
    "Status",
    "StepReport",
    "StepStatus",
    "Storage",
    "Trait",
    "TypeAndModel",
    "VNic",
    "VNicInterface",
    "Vlan",
    "WaitFor",
    "refuse_twice",
    "shown_model",
    "with_prefix",
]
