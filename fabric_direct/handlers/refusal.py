"""What a host cannot serve, and what cannot be changed: refused before anything is touched."""

from fabric_direct.drivers.base import HostDrivers, Server
from fabric_direct.errors import InvalidSliver
from fabric_direct.handlers.base import field_below
from fabric_direct.model import Component, NodeSliver, Storage, VNic

# What a modification may not touch: the guest was made from it.
_FIXED = ("name", "host", "image", "flavor", "capacities", "ssh_keys")


def refuse_components(drivers: HostDrivers, sliver: NodeSliver) -> None:
    """Return if the host's drivers can serve each component.

    :raises InvalidSliver: with the path of the field that they cannot.
    """
    for number, component in enumerate(sliver.components):
        with field_below(f"components[{number}]"):
            _refuse_component(drivers, sliver, component)


def _refuse_component(drivers: HostDrivers, sliver: NodeSliver, component: Component) -> None:
    if isinstance(component, VNic):
        drivers.network.check(component.network, component.interface, sliver.id)
    elif isinstance(component, Storage):
        if component.volume is not None:
            drivers.volume.check(component.volume)
    elif drivers.compute.cloud:
        raise InvalidSliver("PCI devices are not attached to servers of a cloud yet")
    else:
        drivers.device(component).check(component, sliver.id)


def refuse_fixed(server: Server, sliver: NodeSliver) -> None:
    """Return if the server can become the sliver by changing its components.

    :raises InvalidSliver: if a field differs that was fixed when the server was made.
    """
    was, now = server.stamp, sliver.stamp()
    changed = [f for f in _FIXED if getattr(was.sliver, f) != getattr(now.sliver, f)]
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
                remedy="give the new one another id; only network and interface can be changed",
            )


def _changeable(was: Component, wanted: Component) -> bool:
    if isinstance(was, VNic) and isinstance(wanted, VNic):
        return was.model == wanted.model
    return was == wanted
