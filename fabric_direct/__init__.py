"""Provision the slivers of a FABRIC site's Aggregate Manager by talking straight to the APIs.

The names below are the public interface. They are imported at first use, so that ``import
fabric_direct`` costs next to nothing in a process that only may need it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fabric_direct.calls.waiting import Waiting
    from fabric_direct.drivers.contract import (
        BareMetalNode,
        FoundPort,
        FoundServer,
        HostDevice,
        NodeCondition,
        NodePort,
        Server,
    )
    from fabric_direct.errors import (
        Conflict,
        Denied,
        DeviceClaimed,
        DeviceInUse,
        DeviceLost,
        DeviceUnclean,
        DriverError,
        FabricDirectError,
        Interrupted,
        InvalidSite,
        InvalidSliver,
        LockLost,
        NoHost,
        NotFound,
        NotOurs,
        NotVerified,
        PoolExhausted,
        QuotaExceeded,
        Refused,
        SliverBusy,
        TimedOut,
        Unreachable,
        Unsupported,
    )
    from fabric_direct.handlers.sliver_documents import load_sliver, load_slivers
    from fabric_direct.handlers.vm.adoption_draft import Draft
    from fabric_direct.model import (
        Capacities,
        DeviceState,
        ErrorReport,
        FieldChange,
        Finding,
        Fpga,
        Gpu,
        Interface,
        NodeSliver,
        Nvme,
        Observed,
        ObservedDevice,
        ObservedGateway,
        ObservedGuest,
        ObservedInterface,
        ObservedVolume,
        Operation,
        Outcome,
        PciAddress,
        PlacementRules,
        Route,
        ServiceEnd,
        SharedNic,
        Sliver,
        SliverRef,
        SmartNic,
        State,
        Status,
        StepReport,
        StepStatus,
        Storage,
        VNic,
        VNicInterface,
    )
    from fabric_direct.model.adoption import Adoption, Adoptions, ServiceAdoption
    from fabric_direct.model.bare_metal import BareMetalSliver, NodeNic, NodeSize, RootDevice
    from fabric_direct.model.networks import NetworkSliver, VNicPortsSliver
    from fabric_direct.model.p4_switches import Switch
    from fabric_direct.model.services import (
        L2PTP,
        L2STS,
        L3VPN,
        Attachment,
        Ero,
        FABNetv4,
        FABNetv4Ext,
        FABNetv6,
        FABNetv6Ext,
        Gateway,
        L2Bridge,
        Mirror,
        Peer,
        PortMirror,
        ServiceInterface,
    )
    from fabric_direct.operations.operation_future import OperationFuture
    from fabric_direct.operations.progress import Progress
    from fabric_direct.operations.saved_plan import SavedPlan
    from fabric_direct.placement.plan import BuildPlan, Explanation
    from fabric_direct.placement.state import HostState
    from fabric_direct.processor import HandlerProcessor, Sweep
    from fabric_direct.site.config import Site, load_site
    from fabric_direct.state.audit_trail import Record, asked_by
    from fabric_direct.state.journal import Unfinished
    from fabric_direct.state.pending_looks import PendingLook
    from fabric_direct.state.repair_history import Note
    from fabric_direct.state.step_notes import StepNote
    from fabric_direct.upkeep.device_owners import Lacks
    from fabric_direct.upkeep.drift import SiteDrift
    from fabric_direct.upkeep.services import SitePorts, SiteService, SiteServices
    from fabric_direct.upkeep.sweep.findings import Findings
    from fabric_direct.upkeep.watch import Watcher

__all__ = [
    "L2PTP",
    "L2STS",
    "L3VPN",
    "Adoption",
    "Adoptions",
    "Attachment",
    "BareMetalNode",
    "BareMetalSliver",
    "BuildPlan",
    "Capacities",
    "Conflict",
    "Denied",
    "DeviceClaimed",
    "DeviceInUse",
    "DeviceLost",
    "DeviceState",
    "DeviceUnclean",
    "Draft",
    "DriverError",
    "Ero",
    "ErrorReport",
    "Explanation",
    "FABNetv4",
    "FABNetv4Ext",
    "FABNetv6",
    "FABNetv6Ext",
    "FabricDirectError",
    "FieldChange",
    "Finding",
    "Findings",
    "FoundPort",
    "FoundServer",
    "Fpga",
    "Gateway",
    "Gpu",
    "HandlerProcessor",
    "HostDevice",
    "HostState",
    "Interface",
    "Interrupted",
    "InvalidSite",
    "InvalidSliver",
    "L2Bridge",
    "Lacks",
    "LockLost",
    "Mirror",
    "NetworkSliver",
    "NoHost",
    "NodeCondition",
    "NodeNic",
    "NodePort",
    "NodeSize",
    "NodeSliver",
    "NotFound",
    "NotOurs",
    "NotVerified",
    "Note",
    "Nvme",
    "Observed",
    "ObservedDevice",
    "ObservedGateway",
    "ObservedGuest",
    "ObservedInterface",
    "ObservedVolume",
    "Operation",
    "OperationFuture",
    "Outcome",
    "PciAddress",
    "Peer",
    "PendingLook",
    "PlacementRules",
    "PoolExhausted",
    "PortMirror",
    "Progress",
    "QuotaExceeded",
    "Record",
    "Refused",
    "RootDevice",
    "Route",
    "SavedPlan",
    "Server",
    "ServiceAdoption",
    "ServiceEnd",
    "ServiceInterface",
    "SharedNic",
    "Site",
    "SiteDrift",
    "SitePorts",
    "SiteService",
    "SiteServices",
    "Sliver",
    "SliverBusy",
    "SliverRef",
    "SmartNic",
    "State",
    "Status",
    "StepNote",
    "StepReport",
    "StepStatus",
    "Storage",
    "Sweep",
    "Switch",
    "TimedOut",
    "Unfinished",
    "Unreachable",
    "Unsupported",
    "VNic",
    "VNicInterface",
    "VNicPortsSliver",
    "Waiting",
    "Watcher",
    "asked_by",
    "load_site",
    "load_sliver",
    "load_slivers",
]

_HOMES = {
    "calls.waiting": "Waiting",
    "drivers.contract": "BareMetalNode FoundPort FoundServer HostDevice NodeCondition NodePort Server",
    "errors": (
        "Conflict Denied DeviceClaimed DeviceInUse DeviceLost DeviceUnclean DriverError "
        "FabricDirectError Interrupted InvalidSite InvalidSliver LockLost NoHost NotFound NotOurs "
        "NotVerified PoolExhausted QuotaExceeded Refused SliverBusy TimedOut Unreachable Unsupported"
    ),
    "handlers.sliver_documents": "load_sliver load_slivers",
    "handlers.vm.adoption_draft": "Draft",
    "model": (
        "Capacities DeviceState ErrorReport FieldChange Finding Fpga Gpu Interface NodeSliver "
        "Nvme Observed ObservedDevice ObservedGateway ObservedGuest ObservedInterface "
        "ObservedVolume Operation Outcome PciAddress PlacementRules Route ServiceEnd SharedNic "
        "Sliver SliverRef SmartNic State Status StepReport StepStatus Storage VNic VNicInterface"
    ),
    "model.adoption": "Adoption Adoptions ServiceAdoption",
    "model.networks": "NetworkSliver VNicPortsSliver",
    "model.bare_metal": "BareMetalSliver NodeNic NodeSize RootDevice",
    "model.p4_switches": "Switch",
    "model.services": (
        "Attachment Ero FABNetv4 FABNetv4Ext FABNetv6 FABNetv6Ext Gateway L2Bridge L2PTP L2STS "
        "L3VPN Mirror Peer PortMirror ServiceInterface"
    ),
    "operations.operation_future": "OperationFuture",
    "operations.progress": "Progress",
    "operations.saved_plan": "SavedPlan",
    "placement.plan": "BuildPlan Explanation",
    "placement.state": "HostState",
    "processor": "HandlerProcessor Sweep",
    "site.config": "Site load_site",
    "state.audit_trail": "Record asked_by",
    "state.journal": "Unfinished",
    "state.pending_looks": "PendingLook",
    "state.repair_history": "Note",
    "state.step_notes": "StepNote",
    "upkeep.device_owners": "Lacks",
    "upkeep.drift": "SiteDrift",
    "upkeep.services": "SitePorts SiteService SiteServices",
    "upkeep.sweep.findings": "Findings",
    "upkeep.watch": "Watcher",
}
"""The modules of these names, below this package."""
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
