"""Write results back into FIM's slivers: the contract's fields only, as strings and lists.

====================================  ================================================================
field                                 value
====================================  ================================================================
``label_allocations.instance``        name of the libvirt domain; None after a creation that failed
``management_ip``                     floating IP, or the management NIC's own address
capacities and their hints            the largest size, where that was less than asked for
``component.label_allocations``       ``bdf``: addresses in the guest; of a volume ``device_name``
``interface.label_allocations``       ``local_name``: the interface's name in the guest
====================================  ================================================================
"""

import copy
from ipaddress import ip_address

from fabric_direct.actor.fim import components_of, interfaces_of
from fabric_direct.actor.names import MANAGEMENT
from fabric_direct.actor.sliver import Component, Labels, Node, Sliver
from fabric_direct.errors import InvalidSliver, NotVerified
from fabric_direct.model import (
    Capacities,
    NodeSliver,
    Observed,
    ObservedDevice,
    ObservedInterface,
)


def write_made(node: Node, wanted: NodeSliver, found: Observed | None) -> None:
    """Write the observed values of a created VM.

    :raises NotVerified: if it was not read back.
    """
    _write_size(node, wanted.capacities, str(wanted.flavor))
    _write_node(node, found)


def write_changed(node: Node, modified: Node, found: Observed | None) -> None:
    """Write the observed values of a modified VM into the modified sliver and into the former one.

    The actor goes on with the first; from a handler in another process it takes the second.

    :raises NotVerified: if it was not read back.
    """
    if modified.label_allocations is None:
        modified.label_allocations = copy.copy(node.label_allocations)
    _write_node(modified, found)
    _write_node(node, found)


def write_absent(node: Node) -> None:
    """Write that the VM does not exist."""
    if node.label_allocations:
        node.label_allocations.instance = None


def _write_size(node: Node, capacities: Capacities, flavor: str) -> None:
    """Write a size other than the requested one, into copies: others may share the old values."""
    numbers = capacities.model_dump()
    asked, hints = node.capacity_allocations, node.capacity_hints
    if asked and any(getattr(asked, name) != value for name, value in numbers.items()):
        node.capacity_allocations = copy.copy(asked)
        node.capacity_allocations.__dict__.update(numbers)
    if hints and hints.instance_type != flavor:
        node.capacity_hints = copy.copy(hints)
        node.capacity_hints.instance_type = flavor


def _write_node(node: Node, found: Observed | None) -> None:
    if found is None:
        raise NotVerified("the VM was made, but not read back")
    labels = _allocations(node, node.label_allocations)
    labels.instance = found.domain or found.instance
    node.management_ip = management_ip(found) or node.management_ip
    for name, component in components_of(node).items():
        devices = [device for device in found.devices if device.component == name]
        if str(component.get_type()) == "Storage":
            _write_volume(component, name, found, labels)
        elif devices:
            _write_device(component, devices, labels)


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


def _write_volume(component: Component, name: str, found: Observed, like: Labels) -> None:
    for volume in found.volumes:
        if volume.component == name:
            device = volume.guest_name or volume.target
            _allocations(component, like).device_name = f"/dev/{device.removeprefix('/dev/')}"


def _write_device(component: Component, devices: list[ObservedDevice], like: Labels) -> None:
    """Write the functions in the order of the component's own."""
    guest_names = [device.guest_name for device in devices if device.guest_name]
    _allocations(component, like).bdf = guest_names
    for interface, device in zip(interfaces_of(component).values(), devices, strict=False):
        if device.guest_interfaces:
            _allocations(interface, like).local_name = device.guest_interfaces[0]


def _allocations(sliver: Sliver, like: Labels | None) -> Labels:
    """Return a sliver's label allocations; if it has none, new ones of the class of ``like``."""
    if sliver.label_allocations is None:
        sliver.label_allocations = type(like)() if like else None
    if sliver.label_allocations is None:
        raise InvalidSliver("is missing", field="label_allocations")
    return sliver.label_allocations
