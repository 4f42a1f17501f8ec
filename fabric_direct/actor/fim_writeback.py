"""Write results back into FIM's slivers: the contract's fields only, as strings and lists.

====================================  ================================================================
field                                 value
====================================  ================================================================
``label_allocations.instance``        name of the libvirt domain, id of a bare-metal node; None after a
                                      creation that failed
``label_allocations.instance_parent`` of a whole machine: the node
``management_ip``                     floating IP, or the management NIC's own address; of a whole
                                      machine the first address of its NICs
capacities and their hints            the largest size, where that was less than asked for
``component.label_allocations``       ``bdf``: addresses in the guest; of a volume ``device_name``
``interface.label_allocations``       ``local_name``: the interface's name in the guest
of a service's interfaces             ``device_name``, ``local_name``, ``vlan``, ``inner_vlan`` as read;
                                      a VLAN that it does not have any more goes from its labels, too
``gateway.lab``                       ``mac`` as read, if the device says so
====================================  ================================================================
"""

import copy
import logging
from collections.abc import Iterator
from ipaddress import ip_address

from fabric_direct.actor.fim import components_of, interfaces_of
from fabric_direct.actor.fim_fields import label, number
from fabric_direct.actor.fim_services import ports_of
from fabric_direct.actor.names import MANAGEMENT, component_id
from fabric_direct.actor.sliver import (
    FimComponent,
    FimLabels,
    FimNetworkService,
    FimNode,
    FimServicePort,
    FimSliver,
)
from fabric_direct.errors import NotVerified
from fabric_direct.model import (
    Capacities,
    Observed,
    ObservedDevice,
    ObservedInterface,
)
from fabric_direct.model.services import NetworkService as Wanted
from fabric_direct.model.services import ServiceInterface

log = logging.getLogger(__name__)


def write_made(node: FimNode, capacities: Capacities, flavor: str, found: Observed | None) -> None:
    """Write the size and the observed values of a created VM.

    :raises NotVerified: if it was not read back.
    """
    _write_size(node, capacities, flavor)
    _write_node(node, found, _labels(node))


def write_server(node: FimNode, found: Observed | None) -> None:
    """Write which node a machine is, its id, and the first address of its NICs.

    :raises NotVerified: if it was not read back.
    """
    if found is None:
        raise NotVerified("the node was deployed, but not read back")
    addresses = [text for nic in found.interfaces for text in nic.addresses]
    if addresses:
        node.management_ip = addresses[0].partition("/")[0]
    like = _labels(node)
    if like is None:
        log.warning("%s has no label_allocations, so they are not written", node.get_name())
        return
    labels = _allocations(node, like)
    labels.instance, labels.instance_parent = found.instance, found.host


def write_changed(node: FimNode, modified: FimNode, found: Observed | None) -> None:
    """Write the observed values of a modified VM into the modified sliver and into the former one.

    The actor goes on with the first; from a handler in another process it takes the second.

    :raises NotVerified: if it was not read back.
    """
    write_allocations(node, modified)
    like = _labels(modified, node)
    _write_node(modified, found, like)
    _write_node(node, found, like)


def write_allocations(sliver: FimSliver, modified: FimSliver) -> None:
    """Give the modified sliver the allocations that it lacks."""
    if modified.label_allocations is None:
        modified.label_allocations = copy.copy(sliver.label_allocations)


def write_service(service: FimNetworkService, wanted: Wanted, found: Observed | None) -> None:
    """Write where a service's interfaces are, and its gateway's MAC, as read from the device.

    They are known by their places, for a controller numbers them as it likes.

    :raises NotVerified: if it was not read back.
    """
    if found is None:
        raise NotVerified("the service was made, but not read back")
    places = {each.id: _place(each, each.tag or None) for each in wanted.interfaces}
    there: dict[object, ObservedInterface] = {_place(i, i.vlan): i for i in found.interfaces}
    for name, port in ports_of(service).items():
        like = port.label_allocations or port.labels
        seen = there.get(places.get(component_id(name)))
        if like is not None and seen:
            _write_port(port, _allocations(port, like), seen)
    if service.gateway and service.gateway.lab and found.gateway and found.gateway.mac:
        service.gateway.lab.mac = found.gateway.mac


def _place(interface: ServiceInterface | ObservedInterface, vlan: int | None) -> object:
    return interface.device, interface.port, vlan, interface.inner_vlan


def _write_port(port: FimServicePort, labels: FimLabels, found: ObservedInterface) -> None:
    """Write where an interface is; what its allocations lack would be read from its labels."""
    labels.device_name, labels.local_name = found.device, found.port
    labels.vlan = _tag(found.vlan, labels.vlan)
    labels.inner_vlan = _tag(found.inner_vlan, labels.inner_vlan)
    if port.labels is not None and not found.vlan:
        port.labels.vlan = _tag(None, port.labels.vlan)
    if port.labels is not None and not found.inner_vlan:
        port.labels.inner_vlan = _tag(None, port.labels.inner_vlan)


def _tag(found: int | None, was: object) -> object:
    """Return a VLAN as FIM has it: none if there is none; a 0, which says the same, stays."""
    if found:
        return str(found)
    return None if number(was) else was


def write_absent(node: FimNode) -> None:
    """Write that the VM does not exist."""
    if node.label_allocations:
        node.label_allocations.instance = None


def _write_size(node: FimNode, capacities: Capacities, flavor: str) -> None:
    """Write a size other than the requested one, into copies: others may share the old values."""
    numbers = capacities.model_dump()
    asked, hints = node.capacity_allocations, node.capacity_hints
    if asked and any(getattr(asked, name) != value for name, value in numbers.items()):
        node.capacity_allocations = copy.copy(asked)
        node.capacity_allocations.__dict__.update(numbers)
    if hints and hints.instance_type != flavor:
        node.capacity_hints = copy.copy(hints)
        node.capacity_hints.instance_type = flavor


def _write_node(node: FimNode, found: Observed | None, like: FimLabels | None) -> None:
    if found is None:
        raise NotVerified("the VM was made, but not read back")
    node.management_ip = management_ip(found) or node.management_ip
    if like is None:
        log.warning("%s has no label_allocations, so they are not written", node.get_name())
        return
    _allocations(node, like).instance = found.domain or found.instance
    for name, component in components_of(node).items():
        devices = [device for device in found.devices if device.component == name]
        if str(component.get_type()) == "Storage":
            _write_volume(component, name, found, like)
        elif devices:
            _write_device(component, devices, like)


def _labels(*nodes: FimNode) -> FimLabels | None:
    """Return labels of FIM's class, of the nodes or their components; None if there are none."""
    slivers: list[FimSliver] = [*nodes]
    slivers += [component for node in nodes for component in components_of(node).values()]
    given = (labels for each in slivers for labels in (each.label_allocations, each.labels))
    return next((labels for labels in given if labels is not None), None)


def management_ip(found: Observed) -> str | None:
    """Return the management NIC's floating IP, else a global IPv6 address, else its first address."""
    nic = next((nic for nic in found.interfaces if nic.component == MANAGEMENT), None)
    return (nic.floating_ip or _own_address(nic)) if nic else None


def _own_address(nic: ObservedInterface) -> str | None:
    addresses = [ip_address(text.partition("/")[0]) for text in nic.addresses]
    outside = (a for a in addresses if a.version == 6 and a.is_global)
    inside = sorted(addresses, key=lambda address: address.version)
    best = next(outside, inside[0] if inside else None)
    return str(best) if best else None


def _write_volume(component: FimComponent, name: str, found: Observed, like: FimLabels) -> None:
    for volume in found.volumes:
        if volume.component == name:
            device = volume.guest_name or volume.target
            _allocations(component, like).device_name = f"/dev/{device.removeprefix('/dev/')}"


def _write_device(component: FimComponent, devices: list[ObservedDevice], like: FimLabels) -> None:
    """Write the functions in the order of the component's own."""
    guest_names = [device.guest_name for device in devices if device.guest_name]
    _allocations(component, like).bdf = guest_names
    interfaces = list(interfaces_of(component).values())
    for interface, name in zip(interfaces, _local_names(interfaces, devices), strict=False):
        if name:
            _allocations(interface, like).local_name = name


def _local_names(
    interfaces: list[FimSliver], devices: list[ObservedDevice]
) -> Iterator[str | None]:
    """Yield the name in the guest of each interface: by its MAC, or by its place if none is known."""
    named = (zip(d.guest_macs, d.guest_interfaces, strict=False) for d in devices)
    by_mac = {mac.lower(): name for pairs in named for mac, name in pairs}
    by_place = [next(iter(device.guest_interfaces), None) for device in devices]
    for place, interface in enumerate(interfaces):
        mac = label(interface.label_allocations, "mac")
        if mac and by_mac:
            yield by_mac.get(str(mac).lower())
        else:
            yield by_place[place] if place < len(by_place) else None


def _allocations(sliver: FimSliver, like: FimLabels) -> FimLabels:
    """Return a sliver's label allocations; if it has none, new ones of the class of ``like``."""
    if sliver.label_allocations is None:
        sliver.label_allocations = type(like)()
    return sliver.label_allocations
