"""Checks before anything is changed: what a host cannot serve, and what a modification cannot change."""

from collections.abc import Callable, Collection, Iterable

from fabric_direct.drivers.contract import DeviceDomain, HostDrivers, PluggedDevice, Server, Volume
from fabric_direct.errors import InvalidSite, InvalidSliver
from fabric_direct.handlers.handler import field_below
from fabric_direct.handlers.vm.found import OtherDisk, plugged_in
from fabric_direct.model import (
    Component,
    Interface,
    NodeSliver,
    SharedNic,
    SmartNic,
    Storage,
    VNic,
)

# Fields of a device's interface that can be changed.
_SETTINGS = {"ipv4": None, "ipv6": None, "auto_config": False, "bandwidth": None, "vlan": None}
_ANEW = "leave the component out first, and add it again: it is plugged in anew then"
_NEW = "delete the sliver and create it again"
RESIZE = f"write what the server has into the file, resize it (poa resize), or {_NEW}"
"""What to do where the size differs, which an action changes and a modification does not."""
SIZE = ("flavor", "capacities")
"""Fields of the size."""
FIXED = ("name", "host", "image", "flavor", "capacities", "ssh_keys")
"""Fields that a modification cannot change: the guest was created from them."""


def refuse_components(drivers: HostDrivers, sliver: NodeSliver, tenant: DeviceDomain) -> None:
    """Raise InvalidSliver or Conflict unless the host's drivers can serve each component.

    :param tenant: the sliver's domain, if it exists.
    :raises InvalidSliver: with the path of the field that they cannot serve.
    :raises Conflict: if another sliver has a device, the host uses it, or it is not clean.
    """
    for number, component in enumerate(sliver.components):
        with field_below(f"components[{number}]"):
            _refuse_component(drivers, sliver, component, tenant)


def _refuse_component(
    drivers: HostDrivers, sliver: NodeSliver, component: Component, tenant: DeviceDomain
) -> None:
    if isinstance(component, VNic):
        drivers.network.check(component.network, component.interface, sliver.id)
    elif isinstance(component, Storage):
        if component.volume is not None or not drivers.has_volumes:
            drivers.volume.check(component.volume or "")
    elif component.bdf:
        drivers.device(component).check(component, tenant)
    else:
        raise InvalidSliver("names no function", field="bdf")


def refuse_crowd(
    drivers: HostDrivers,
    was: NodeSliver,
    sliver: NodeSliver,
    tenant: DeviceDomain,
    plugged: Collection[str] = (),
) -> None:
    """Raise InvalidSliver unless the running server has a free root port for each new component.

    :param plugged: NICs and disks that are there already: an unfinished modification left them.
    """
    former = {component.id for component in was.components} | set(plugged)
    added = [component for component in sliver.components if component.id not in former]
    devices = [device for device in sliver.devices() if device in added]
    if not devices:
        return
    free = drivers.device(devices[0]).free_ports(tenant)
    there = {f.host_address for d in devices for f in drivers.device(d).plugged(tenant)}
    needed = len(added) - len(devices) + sum(len(set(d.bdf) - there) for d in devices)
    if free is not None and needed > free:
        raise InvalidSliver(
            f"too few free PCIe root ports: {needed} needed, {free} free",
            field="components",
            where=drivers.host,
            why="each device that is plugged into a guest takes one, and none is added while it runs",
            remedy="detach devices first, or create the sliver again with all of its components",
        )


def at_its_host(sliver: NodeSliver, server: Server) -> NodeSliver:
    """Return a sliver with the host of its stamp, where one of them names the host that has the server.

    The other one leaves the host open or names the same: that is no difference.
    """
    was = server.stamp.sliver.host
    same = {sliver.host, was} <= {None, server.host}
    return sliver.model_copy(update={"host": was}) if same else sliver


def refuse_fixed(server: Server, sliver: NodeSliver) -> None:
    """Raise InvalidSliver if a field differs that was fixed when the server was created.

    The boot script may be absent: only its digest is kept.
    """
    was, now = server.stamp, sliver.stamp()
    changed = [f for f in FIXED if getattr(was.sliver, f) != getattr(now.sliver, f)]
    if now.sliver.host is None:  # placement, or the cloud, has chosen it
        changed = [field for field in changed if field != "host"]
    if now.boot_script_sha256 not in {None, was.boot_script_sha256}:
        changed.append("boot_script")
    if changed:
        raise InvalidSliver(
            "cannot be changed after the server is created",
            field=changed[0],
            remedy=RESIZE if changed[0] in SIZE else _NEW,
        )
    _refuse_other_kinds(was.sliver, sliver)


def refuse_other_sizes(volumes: Iterable[Volume], sliver: NodeSliver) -> None:
    """Raise InvalidSliver if a volume that is there has another size: its data may be wanted."""
    sizes = {volume.component: volume.size for volume in volumes}
    for number, component in enumerate(sliver.components):
        size = component.size if isinstance(component, Storage) else None
        if size is not None and sizes.get(component.id, size) != size:
            raise InvalidSliver(
                f"volume {component.id} is there with {sizes[component.id]} GiB",
                field=f"components[{number}].size",
                why="a volume keeps its size, and is not removed for another one",
                remedy="leave the component out first: that removes the volume with its data",
            )


def refuse_own_volumes(drivers: HostDrivers, server: Server) -> None:
    """Raise InvalidSite if the server has volumes that no driver of the site would remove."""
    if drivers.has_volumes:
        return
    stamped = {storage.id: storage for storage in server.stamp.sliver.volumes()}
    plugged = {each.id: each for each in plugged_in(server) if isinstance(each, Storage)}
    has = plugged | stamped
    if own := sorted(name for name, each in has.items() if each.size or name not in stamped):
        raise InvalidSite(
            f"sliver {server.sliver} has volumes of its own: {', '.join(own)}",
            where=server.instance,
            why="the site has no driver for Storage, so that they would be left",
            remedy="name the driver that made them below drivers in site.yaml: Storage",
        )


def refuse_other_disks(others: Iterable[OtherDisk], sliver: NodeSliver) -> None:
    """Raise InvalidSliver if a disk is another volume, for example a snapshot: its data may be wanted.

    One whose own volume is not there is no snapshot of it.
    """
    for other in (each for each in others if each.own):
        raise InvalidSliver(
            str(other),
            field=f"components[{sliver.components.index(other.component)}]",
            remedy="plug its volume in again, or leave the component out first",
        )


def _refuse_other_kinds(was: NodeSliver, sliver: NodeSliver) -> None:
    former = {c.id: c for c in was.components}
    for number, component in enumerate(sliver.components):
        with field_below(f"components[{number}]"):
            _refuse_other_mac(former.get(component.id), component)
        if not _changeable(former.get(component.id, component), component):
            raise InvalidSliver(
                f"{component.type} {component.id} cannot be replaced by another one of the same id",
                field=f"components[{number}]",
                remedy="give the new one another id; only these can be changed: network and interface "
                "of a vNIC, VLAN and bandwidth of a SharedNIC, and settings in the guest (a NIC's "
                "addresses, whether a volume is mounted)",
            )


def _refuse_other_mac(was: Component | None, wanted: Component) -> None:
    if not (isinstance(was, SharedNic) and isinstance(wanted, SharedNic)):
        return
    if was.interface.mac != wanted.interface.mac and was.bdf == wanted.bdf:
        raise InvalidSliver(
            f"the MAC of SharedNIC {wanted.id} cannot be changed",
            field="interface.mac",
            why="the guest's driver keeps the MAC that the VF was plugged in with",
            remedy=_ANEW,
        )


def refuse_adopted_vlans(
    was: NodeSliver, sliver: NodeSliver, plugged: Callable[[], Iterable[PluggedDevice]]
) -> None:
    """Raise InvalidSliver if a VF is to change its VLAN that others plugged in: theirs is not known.

    :param plugged: returns the functions that the server has.
    """
    vlans = {nic.id: nic.interface.vlan for nic in was.components if isinstance(nic, SharedNic)}
    changed = {
        nic.id: number
        for number, nic in enumerate(sliver.components)
        if isinstance(nic, SharedNic)
        and vlans.get(nic.id, nic.interface.vlan) != nic.interface.vlan
    }
    for device in plugged() if changed else ():
        if device.adopted and device.component in changed:
            raise InvalidSliver(
                f"the VLAN of SharedNIC {device.component} cannot be changed",
                field=f"components[{changed[device.component]}].interface.vlan",
                why="others plugged it in, and its VLAN is theirs",
                remedy=_ANEW,
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
    """Return a component without its settings in the guest, and without a VF's VLAN and bandwidth."""
    if isinstance(component, Storage):
        return component.model_copy(update={"mount": None})
    if isinstance(component, SharedNic):
        interface = component.interface.model_copy(update=_SETTINGS)
        return component.model_copy(update={"interface": interface})
    if isinstance(component, SmartNic):
        kept = tuple(i.model_copy(update=_SETTINGS) for i in component.interfaces)
        return component.model_copy(update={"interfaces": kept})
    return component
