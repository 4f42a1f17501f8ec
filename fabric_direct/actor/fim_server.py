"""Translate FIM's whole machines, which are nodes of type Server, to our model."""

from collections.abc import Iterator
from typing import cast

from fabric_direct.actor.fim import addresses, boot_script, components_of, interfaces_of, ssh_keys
from fabric_direct.actor.fim_fields import below, label, made, refuse_other_type, text
from fabric_direct.actor.names import component_id, host_name
from fabric_direct.actor.sliver import FimNode, FimSliver, Unit
from fabric_direct.errors import InvalidSliver
from fabric_direct.model.bare_metal import BareMetalSliver, NodeNic, NodeSize
from fabric_direct.site.config import Site

_FIELDS = {
    "id": "reservation_id",
    "node": "label_allocations.instance_parent",
    "image": "image_ref",
    "capacities": "capacity_allocations",
    "nics": "attached_components_info.devices",
}
_NICS = frozenset({"SmartNIC", "SharedNIC"})


def server_of(sliver: object) -> FimNode:
    """Return a unit's sliver as a whole machine.

    :raises InvalidSliver: if there is none, or it has another type.
    """
    refuse_other_type(sliver, ["Server"], "attached_components_info")
    return cast(FimNode, sliver)


def bare_metal(site: Site, unit: Unit, node: FimNode) -> BareMetalSliver:
    """Return a unit's whole machine: the node that its labels name, or any that fits.

    Its capacities are the least that the node must have; of them, 0 is none.

    :raises InvalidSliver: with FIM's field, if one is missing or invalid.
    """
    labels, asked = node.label_allocations, node.capacity_allocations
    sizes = {name: getattr(asked, name, 0) or None for name in ("core", "ram", "disk")}
    return made(
        BareMetalSliver,
        _FIELDS,
        id=str(unit.get_reservation_id()),
        name=host_name(text(node.get_name(), "resource_name")),
        node=label(labels, "instance_parent") or None,
        resource_class=_resource_class(site, node),
        capacities=made(NodeSize, below("capacity_allocations", *sizes), **sizes),
        image=text(node.get_image_ref(), "image_ref"),
        nics=tuple(_nics(node)),
        ssh_keys=ssh_keys(unit),
        boot_script=boot_script(node),
    )


def changed(was: BareMetalSliver, node: FimNode) -> BareMetalSliver:
    """Return a machine with the NICs that a sliver has, and all else as it was."""
    return made(BareMetalSliver, _FIELDS, **dict(was) | {"nics": tuple(_nics(node))})


def _resource_class(site: Site, node: FimNode) -> str | None:
    """Return the resource class of the sliver's hardware model; None if it names none."""
    model, known = node.get_model(), site.actor.resource_classes
    if not model:
        return None
    if model not in known:
        why = f"actor.resource_classes of site.yaml has {', '.join(known) or 'none'}"
        raise InvalidSliver(f"no resource class for {model!r}", field="resource_model", why=why)
    return known[model]


def _nics(node: FimNode) -> Iterator[NodeNic]:
    """Yield the network interfaces that the sliver names; the machine has all of its devices."""
    for component in components_of(node).values():
        field = f"attached_components_info.devices[{component.get_name()}]"
        kind = str(component.get_type())
        if kind not in _NICS:
            raise InvalidSliver(
                f"{kind} is not attached to a whole machine, which has its own",
                field=f"{field}.resource_type",
            )
        for name, interface in interfaces_of(component).items():
            yield _nic(name, interface, f"{field}.interfaces[{name}].label_allocations")


def _nic(name: str, interface: FimSliver, field: str) -> NodeNic:
    return made(
        NodeNic,
        {"id": "interfaces", **below(field, "mac", "ipv4", "ipv6")},
        id=component_id(name),
        mac=label(interface.label_allocations, "mac"),
        **addresses(interface, field),
    )
