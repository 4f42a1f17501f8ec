"""What a host cannot serve, and what cannot be changed: refused before anything is touched."""

from fabric_direct.drivers.contract import HostDrivers, Server, Tenant
from fabric_direct.errors import InvalidSliver
from fabric_direct.handlers.base import field_below
from fabric_direct.model import (
    Component,
    Interface,
    NodeSliver,
    SharedNic,
    SmartNic,
    Storage,
    VNic,
)

# Of a device's interface, what can be set anew.
_SETTINGS = {"ipv4": None, "ipv6": None, "auto_config": False, "bandwidth": None}
# What a modification may not touch: the guest was made from it.
_FIXED = ("name", "host", "image", "flavor", "capacities", "ssh_keys")


def refuse_components(drivers: HostDrivers, sliver: NodeSliver, tenant: Tenant) -> None:
    """Return if the host's drivers can serve each component.

    :param tenant: the sliver's domain, as far as there is one.
    :raises InvalidSliver: with the path of the field that they cannot.
    :raises Conflict: if others have a device, the host uses it, or it is not clean.
    """
    for number, component in enumerate(sliver.components):
        with field_below(f"components[{number}]"):
            _refuse_component(drivers, sliver, component, tenant)


def _refuse_component(
    drivers: HostDrivers, sliver: NodeSliver, component: Component, tenant: Tenant
) -> None:
    if isinstance(component, VNic):
        drivers.network.check(component.network, component.interface, sliver.id)
    elif isinstance(component, Storage):
        if component.volume is not None:
            drivers.volume.check(component.volume)
    elif component.bdf:
        drivers.device(component).check(component, tenant)
    else:
        raise InvalidSliver("names no function", field="bdf")


def refuse_crowd(drivers: HostDrivers, was: NodeSliver, sliver: NodeSliver, tenant: Tenant) -> None:
    """Return if the running server has a free root port for all that is plugged in anew.

    :raises InvalidSliver: if it has too few.
    """
    former = {component.id for component in was.components}
    added = [component for component in sliver.components if component.id not in former]
    devices = [device for device in sliver.devices() if device in added]
    if not devices:
        return
    free = drivers.device(devices[0]).free_ports(tenant)
    needed = len(added) - len(devices) + sum(len(device.bdf) for device in devices)
    if free is not None and needed > free:
        raise InvalidSliver(
            f"{needed} PCIe root ports are needed and {free} are free",
            field="components",
            where=drivers.host,
            why="each device that is plugged into a guest takes one, and none is added while it runs",
            remedy="take devices away first, or make the sliver anew with all of its components",
        )


def refuse_fixed(server: Server, sliver: NodeSliver) -> None:
    """Return if the server can become the sliver by changing its components.

    :raises InvalidSliver: if a field differs that was fixed when the server was made.
    """
    was, now = server.stamp, sliver.stamp()
    changed = [f for f in _FIXED if getattr(was.sliver, f) != getattr(now.sliver, f)]
    if now.sliver.host is None:  # it is where placement, or the cloud, has put it
        changed = [field for field in changed if field != "host"]
    if was.boot_script_sha256 != now.boot_script_sha256:
        changed.append("boot_script")
    if changed:
        raise InvalidSliver(
            "cannot be changed once the server is made",
            field=changed[0],
            remedy="delete the sliver and create it anew",
        )
    _refuse_other_kinds(was.sliver, sliver)


def _refuse_other_kinds(was: NodeSliver, sliver: NodeSliver) -> None:
    former = {c.id: c for c in was.components}
    for number, component in enumerate(sliver.components):
        if not _changeable(former.get(component.id, component), component):
            raise InvalidSliver(
                f"{component.type} {component.id} cannot become another one",
                field=f"components[{number}]",
                remedy="give the new one another id; what can be changed are network and interface of a "
                "vNIC, the bandwidth of a SharedNIC, and what is set in the guest: a NIC's addresses, "
                "and whether a volume is mounted",
            )


def _changeable(was: Component, wanted: Component) -> bool:
    if isinstance(was, VNic) and isinstance(wanted, VNic):
        return was.model == wanted.model
    if isinstance(was, Storage) and isinstance(wanted, Storage):
        moved = was.mount and wanted.mount and was.mount != wanted.mount
        return not moved and _on_host(was) == _on_host(wanted)
    if isinstance(was, SmartNic) and isinstance(wanted, SmartNic):
        pairs = zip(was.interfaces, wanted.interfaces, strict=False)
        return _on_host(was) == _on_host(wanted) and not any(_moved(*pair) for pair in pairs)
    return _on_host(was) == _on_host(wanted)


def _moved(was: Interface, wanted: Interface) -> bool:
    """Return whether an interface is configured on another VLAN than it was."""
    return was.auto_config and wanted.auto_config and was.vlan != wanted.vlan


def _on_host(component: Component) -> Component:
    """Return a component without what is set in the guest, and without a VF's bandwidth."""
    if isinstance(component, Storage):
        return component.model_copy(update={"mount": None})
    if isinstance(component, SharedNic):
        interface = component.interface.model_copy(update=_SETTINGS)
        return component.model_copy(update={"interface": interface})
    if isinstance(component, SmartNic):
        kept = tuple(i.model_copy(update=_SETTINGS | {"vlan": None}) for i in component.interfaces)
        return component.model_copy(update={"interfaces": kept})
    return component
