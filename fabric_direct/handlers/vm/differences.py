"""Differences between what was found and what was wanted, a sentence for each."""

from collections.abc import Callable, Iterable, Iterator

from fabric_direct.handlers.vm.guest.settings import GuestNic, nics
from fabric_direct.model import (
    AUTO,
    Component,
    NodeSliver,
    Observed,
    ObservedInterface,
    State,
    Storage,
    VNic,
)

_PORT_SECURITY = {
    True: "has port security",
    False: "has no port security",
    None: "does not tell whether it has port security",
}
Key = tuple[str, str]
"""What a server has of a component (vNIC, volume or device), and the component's id."""


def differences(
    wanted: NodeSliver, found: Observed, *, runs: bool = True, devices: bool = True
) -> tuple[str, ...]:
    """Compare a node with what it should be.

    What the sliver leaves open (an address, a MAC) is not compared; what is there beside it, is.

    :param runs: whether the server should run.
    :param devices: whether its devices were looked at.
    """
    if found.state is State.ABSENT:
        return ("there is no such server",)
    return (
        *(power(found) if runs else ()),
        *place(wanted, found),
        *size(wanted, found),
        *_missing_and_unwanted(wanted, found, devices=devices),
        *(text for vnic in wanted.vnics() for text in vnic_differences(vnic, found)),
        *(text for storage in wanted.volumes() for text in _storage(storage, found)),
        *_inside(wanted, found),
    )


def power(found: Observed) -> Iterator[str]:
    """Yield that the server does not run."""
    if found.state is not State.RUNNING:
        yield f"the server is {found.state.value}, not running"


def place(wanted: NodeSliver, found: Observed) -> Iterator[str]:
    """Yield that the server is on another host than its sliver."""
    if wanted.host not in {None, AUTO, found.host or wanted.host}:
        yield f"it is on host {found.host}, not on {wanted.host}"


def repairable(wanted: NodeSliver, found: Observed) -> Iterator[str]:
    """Yield the differences that a repair removes, of the components that it may touch.

    NICs beside these are unplugged; volumes and devices are not: they may hold data.
    """
    mine = set(map(key_of, wanted.components))
    there = _only(found, lambda key: key in mine or key[0] == "vNIC")
    yield from _missing_and_unwanted(wanted, there)
    yield from (text for vnic in wanted.vnics() for text in vnic_differences(vnic, there))
    yield from _inside(wanted, there)
    yield from switched_off(found)


def switched_off(found: Observed) -> Iterator[str]:
    """Yield the NICs that were switched off."""
    for nic in found.interfaces:
        if nic.link == "off":
            yield f"vNIC {nic.component} is switched off"


def down(found: Observed) -> Iterator[str]:
    """Yield the NICs whose port carries no traffic, though it is on and the server runs."""
    for nic in found.interfaces:
        if nic.link == "down" and found.state is State.RUNNING:
            yield f"the port of vNIC {nic.component} is down"


def size(wanted: NodeSliver, found: Observed) -> Iterator[str]:
    """Compare the size; a flavor may be larger than the sliver, a domain not."""
    if wanted.flavor and found.flavor and found.flavor != wanted.flavor:
        yield f"it has flavor {found.flavor}, not {wanted.flavor}"
    pairs = (
        (found.cores, wanted.capacities.core, "cores"),
        (found.ram, wanted.capacities.ram * 1024, "MiB of memory"),
    )
    for has, wants, unit in pairs:
        if has != wants and (has is None or has < wants or not found.flavor):
            yield f"it has {has} {unit}, not {wants}"


def _missing_and_unwanted(
    wanted: NodeSliver, found: Observed, *, devices: bool = True
) -> Iterator[str]:
    every = {key_of(component): component.type for component in wanted.components}
    want = {key: kind for key, kind in every.items() if devices or key[0] != "device"}
    have = {("vNIC", i.component) for i in found.interfaces}
    have |= {("volume", v.component) for v in found.volumes}
    have |= {("device", d.component) for d in found.devices}
    for kind, component in sorted(want.keys() - have):
        yield f"{want[kind, component]} {component} is missing"
    for kind, component in sorted(have - want.keys()):
        yield f"{kind} {component} is there and not wanted"
    functions = {device.id: device.bdf for device in wanted.devices()} if found.devices else {}
    for device in found.devices:
        if device.host_address not in functions.get(device.component, (device.host_address,)):
            yield f"device {device.component} has {device.host_address}, which is not wanted"


def without(gone: Iterable[Component], found: Observed) -> Observed:
    """Return what was observed, but for some components."""
    keys = set(map(key_of, gone))
    return _only(found, lambda key: key not in keys)


def _only(found: Observed, counts: Callable[[Key], bool]) -> Observed:
    return found.model_copy(
        update={
            "interfaces": tuple(i for i in found.interfaces if counts(("vNIC", i.component))),
            "volumes": tuple(v for v in found.volumes if counts(("volume", v.component))),
            "devices": tuple(d for d in found.devices if counts(("device", d.component))),
        }
    )


def key_of(component: Component) -> Key:
    """Return what a server has of a component, and its id."""
    if isinstance(component, VNic):
        return "vNIC", component.id
    return "volume" if isinstance(component, Storage) else "device", component.id


def vnic_differences(vnic: VNic, found: Observed) -> Iterator[str]:
    """Yield where a NIC that is there is not what was wanted."""
    nic = next((i for i in found.interfaces if i.component == vnic.id), None)
    if nic is None:
        return
    wanted = vnic.interface
    if vnic.network not in {nic.network, nic.network_id}:
        yield f"vNIC {vnic.id} is on {nic.network or 'no network'}, not on {vnic.network}"
    if wanted.mac is not None and nic.mac != wanted.mac:
        yield f"vNIC {vnic.id} has MAC {nic.mac}, not {wanted.mac}"
    if nic.bandwidth != wanted.bandwidth:
        yield f"vNIC {vnic.id} {_limits(nic.bandwidth, wanted.bandwidth)}"
    if wanted.floating_ip and nic.floating_ip is None:
        yield f"vNIC {vnic.id} has no floating IP"
    if not wanted.floating_ip and nic.floating_ip is not None:
        yield f"vNIC {vnic.id} has floating IP {nic.floating_ip}, and none was asked for"
    if wanted.port_security not in {None, nic.port_security}:
        yield f"vNIC {vnic.id} {_PORT_SECURITY[nic.port_security]}"
    yield from _addresses(vnic, nic)


def _limits(has: int | None, wants: int | None) -> str:
    """Return how the limit of a NIC differs from the one that was asked for."""
    if has is None:
        return f"is not limited to {wants} Mbit/s"
    limit = "otherwise in each direction" if has == 0 else f"to {has} Mbit/s"
    other = "and no limit was asked for" if wants is None else f"not to {wants} Mbit/s"
    return f"is limited {limit}, {other}"


def _addresses(vnic: VNic, nic: ObservedInterface) -> Iterator[str]:
    for address in filter(None, (vnic.interface.ipv4, vnic.interface.ipv6)):
        if str(address) not in nic.addresses:
            yield f"vNIC {vnic.id} does not hold {address}"


def _storage(storage: Storage, found: Observed) -> Iterator[str]:
    volume = next((v for v in found.volumes if v.component == storage.id), None)
    if volume and storage.size is not None and volume.size != storage.size:
        yield f"volume {storage.id} has {volume.size} GiB, not {storage.size}"


def _inside(wanted: NodeSliver, found: Observed) -> Iterator[str]:
    """Compare what is set in the guest, if the guest could be asked."""
    if found.state is not State.RUNNING or not (found.guest and found.guest.reachable):
        return
    for nic in nics(wanted):
        has = _guest_addresses(nic, found)
        for address in nic.addresses if has is not None else ():
            if address not in (has or ()):
                yield f"{nic.component.type} {nic.label} does not have {address} in the guest"
    for storage in wanted.volumes():
        volume = next((v for v in found.volumes if v.component == storage.id), None)
        if volume and storage.mount and storage.mount not in volume.mounted:
            yield f"volume {storage.id} is not mounted at {storage.mount} in the guest"


def _guest_addresses(nic: GuestNic, found: Observed) -> tuple[str, ...] | None:
    """Return what the guest has on all interfaces of the component; None if it is missing."""
    vnics = [i.guest_addresses for i in found.interfaces if i.component == nic.component.id]
    devices = [d.guest_addresses for d in found.devices if d.component == nic.component.id]
    every = vnics + devices
    return tuple(address for addresses in every for address in addresses) if every else None
