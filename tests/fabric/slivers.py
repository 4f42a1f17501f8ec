"""FIM's slivers as the actor gives them to its handlers, and the unit that carries them."""

from types import SimpleNamespace
from typing import Any

from fim.slivers.attached_components import AttachedComponentsInfo, ComponentSliver, ComponentType
from fim.slivers.capacities_labels import Capacities, CapacityHints, Flags, Labels
from fim.slivers.interface_info import InterfaceInfo, InterfaceSliver, InterfaceType
from fim.slivers.network_node import NodeSliver, NodeType
from fim.slivers.network_service import NetworkServiceInfo, NetworkServiceSliver, ServiceType

try:
    from fabric_cf.actor.core.core.unit import Unit
    from fabric_cf.actor.core.util.id import ID
except ImportError:
    Unit = None

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKXZk8H0Ah3gd9vMvb8p2jbGR0W0iRr0d4n0ZzV2LJmN someone"
RESERVATION = "0f8fad5b-d9cb-469f-a165-70867728950e"
PROJECT = "7c9e6679-7425-40de-944b-e07fc1f90ae7"


class StandIn:
    """A unit where there is no fabric_cf: a stand-in with the methods that handlers call."""

    def __init__(self, rid: str, sliver: Any, properties: dict[str, Any]) -> None:
        self.reservation_id, self.sliver, self.properties = rid, sliver, properties
        self.modified: Any = None

    def get_sliver(self) -> Any:
        return self.sliver

    def set_sliver(self, *, sliver: Any) -> None:
        self.sliver = sliver

    def get_modified(self) -> Any:
        return self.modified

    def set_modified(self, *, modified: Any) -> None:
        self.modified = modified

    def get_reservation_id(self) -> str:
        return self.reservation_id

    def get_properties(self) -> dict[str, Any]:
        return self.properties


def unit(sliver: Any, rid: str = RESERVATION, keys: str = KEY, modified: Any = None) -> Any:
    """Return the actor's own unit, or a stand-in where fabric_cf is not installed."""
    properties = {"user.ssh.key": keys, "project_id": PROJECT}
    make = StandIn if Unit is None else lambda r, s, p: Unit(rid=ID(uid=r), sliver=s, properties=p)
    made = make(rid, sliver, properties)
    made.set_modified(modified=modified)
    return made


def vm(*components: ComponentSliver, **values: Any) -> NodeSliver:
    """Return a VM; ``values`` replace or, with None, leave out what it has otherwise."""
    has = {
        "name": "node1",
        "image_ref": "default_rocky_9",
        "capacity_hints": CapacityHints(instance_type="fabric.c2.m4.d10"),
        "capacity_allocations": Capacities(core=2, ram=4, disk=10),
        "label_allocations": Labels(instance_parent="localhost"),
    } | values
    sliver = NodeSliver()
    sliver.set_properties(
        type=NodeType.VM, site="TEST", **{k: v for k, v in has.items() if v is not None}
    )
    if components:
        sliver.attached_components_info = AttachedComponentsInfo()
        for component in components:
            sliver.attached_components_info.add_device(device_info=component)
    return sliver


def component(
    kind: str, name: str, bdf: Any = None, model: str | None = None, *interfaces: InterfaceSliver
) -> ComponentSliver:
    """Return a component as the broker leaves it: its labels are a copy of its allocations."""
    sliver = ComponentSliver()
    labels, allocated = Labels(), Labels()
    labels.bdf = allocated.bdf = bdf
    sliver.set_properties(
        type=ComponentType[kind], name=name, labels=labels, label_allocations=allocated
    )
    if model:
        sliver.set_properties(model=model)
    if interfaces:
        sliver.network_service_info = NetworkServiceInfo()
        service = service_of(f"{name}-l2", ServiceType.OVS, *interfaces)
        sliver.network_service_info.add_network_service(service)
    return sliver


def service_of(name: str, kind: Any, *interfaces: InterfaceSliver) -> NetworkServiceSliver:
    service = NetworkServiceSliver()
    service.set_properties(name=name, type=kind)
    service.interface_info = InterfaceInfo()
    for each in interfaces:
        service.interface_info.add_interface(each)
    return service


def interface(
    name: str, *, flags: Flags | None = None, bw: int | None = None, **labels: Any
) -> InterfaceSliver:
    sliver = InterfaceSliver()
    sliver.set_properties(
        name=name, type=InterfaceType.SharedPort, label_allocations=Labels(**labels)
    )
    if flags:
        sliver.set_properties(flags=flags)
    if bw is not None:
        sliver.set_properties(capacities=Capacities(bw=bw))
    return sliver


def storage(name: str, volume: str | None, *, mount: bool | None = None) -> ComponentSliver:
    sliver = component("Storage", name)
    if volume:
        sliver.label_allocations = Labels(local_name=volume)
    if mount is not None:
        sliver.set_properties(flags=Flags(auto_mount=mount))
    return sliver


def bridge(*interfaces: InterfaceSliver, vlan: str | None = "201") -> NetworkServiceSliver:
    """Return a network service with vNICs of VMs."""
    service = service_of("net1", ServiceType.L2Bridge, *interfaces)
    service.label_allocations = Labels(vlan=vlan) if vlan else Labels()
    return service


def port(
    name: str, parent: str | None, mac: str | None = "52:54:00:00:00:aa", **values: Any
) -> InterfaceSliver:
    """Return an interface of a network service: labels say whose it is, allocations its addresses."""
    sliver = interface(name, **values)
    given = {"instance_parent": parent, "mac": mac}
    sliver.set_properties(labels=Labels(**{k: v for k, v in given.items() if v}))
    return sliver


def listed(values: list[Any]) -> Any:
    """Return a list of another class than Python's own, as a web framework makes them."""
    return type("FrameworkList", (list,), {})(values)


NOTHING = SimpleNamespace(get_type=lambda: "Switch", get_name=lambda: "switch1")
