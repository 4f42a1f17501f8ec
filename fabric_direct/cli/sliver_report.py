"""Print a sliver as it was observed."""

from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from fabric_direct.cli.options import printable
from fabric_direct.cli.show import say, style_of, table
from fabric_direct.model import (
    Component,
    NodeSliver,
    Observed,
    ObservedDevice,
    ObservedInterface,
    ObservedVolume,
    SliverRef,
)

_NIC = ["NIC", "NETWORK", "MAC", "ADDRESSES", "FLOATING IP", "MBIT/S", "IN THE GUEST"]
_INTERFACE = ["INTERFACE", "DEVICE", "PORT", "VLAN", "INNER", "MAC", "MBIT/S"]
_VOLUME = ["VOLUME", "DEVICE", "SIZE", "SOURCE", "IN THE GUEST"]
_DEVICE = ["DEVICE", "HOST PCI", "MAC", "VLAN", "MBIT/S", "UPLINK", "IN THE GUEST"]


def show(of: Observed, sliver: SliverRef, out: Console) -> None:
    """Print state, NICs, volumes, devices and guest, and the differences.

    If the whole sliver is given, its components are compared with what was found.
    """
    wanted = sliver if isinstance(sliver, NodeSliver) else None
    state = Text(f"{sliver.id}: ").append(of.state.value, style_of(of.state.value))
    out.print(state.append(_where(of)), soft_wrap=True)
    if of.gateway:
        say(out, f"gateway: {of.gateway.address}{_with_mac(of.gateway.mac)}")
    if of.guest:
        say(out, f"guest: {_guest(of)}")
    if of.instance:
        nics = [nic for nic in of.interfaces if nic.device is None]
        _section(out, _NIC, map(_nic, nics), wanted.vnics() if wanted else None)
        of_service = [each for each in of.interfaces if each.device is not None]
        _section(out, _INTERFACE, map(_interface, of_service), None)
        _section(out, _VOLUME, map(_volume, of.volumes), wanted.volumes() if wanted else None)
        _section(out, _DEVICE, map(_device, of.devices), wanted.devices() if wanted else None)
    if of.state.value != "absent":
        _differences(of, out)


def _where(of: Observed) -> str:
    place = f", {of.instance}" if of.instance else ""
    place += f" on {of.host}" if of.instance and of.host else ""
    size = f", {of.cores} core{'s' if of.cores != 1 else ''}, {of.ram} MiB" if of.cores else ""
    return printable(place + size)


def _guest(of: Observed) -> str:
    guest = of.guest
    if guest is None or not guest.reachable:
        return "does not answer"
    boot = {True: ", boot script has run", False: ", has not said that its boot is over", None: ""}[
        guest.boot_finished
    ]
    key = f", SSH host key {guest.ssh_host_key}" if guest.ssh_host_key else ""
    return f"answers by {guest.via}{boot}{key}"


def _nic(nic: ObservedInterface) -> list[str]:
    limit = "uneven" if nic.bandwidth == 0 else str(nic.bandwidth or "")
    addresses = ", ".join(nic.addresses)
    floating = nic.floating_ip or ""
    return [nic.component, nic.network or "", nic.mac, addresses, floating, limit, _inside(nic)]


def _with_mac(mac: str | None) -> str:
    return f", MAC address {mac}" if mac else ""


def _interface(each: ObservedInterface) -> list[str]:
    """Return the row of a network service's interface."""
    vlan = str(each.vlan or "untagged")
    inner, limit = str(each.inner_vlan or ""), str(each.bandwidth or "")
    return [each.component, each.device or "", each.port or "", vlan, inner, each.mac, limit]


def _worth_a_word(addresses: Iterable[str]) -> list[str]:
    """Return the addresses without link-local ones."""
    return [address for address in addresses if not address.startswith("fe80:")]


def _inside(nic: ObservedInterface) -> str:
    """Return the NIC's name and addresses in the guest."""
    if not nic.guest_name:
        return ""
    has = _worth_a_word(nic.guest_addresses)
    if set(nic.addresses) <= set(has):
        has = ["same addresses", *(a for a in has if a not in nic.addresses)]
    return f"{nic.guest_name}: {', '.join(has) or 'no address'}"


def _volume(volume: ObservedVolume) -> list[str]:
    size = f"{volume.size} GiB" if volume.size else ""
    mounted = ", ".join(volume.mounted)
    inside = ": ".join(filter(None, [volume.guest_name, mounted]))
    return [volume.component, volume.target, size, volume.source, inside]


def _device(device: ObservedDevice) -> list[str]:
    of_vf = [device.mac, device.vlan, device.bandwidth, device.bridge_mode]
    addresses = ", ".join(_worth_a_word(device.guest_addresses))
    inside = [device.guest_name or "", ", ".join(device.guest_interfaces), addresses]
    return [
        device.component,
        str(device.host_address),
        *(str(value or "") for value in of_vf),
        ": ".join(filter(None, inside)),
    ]


def _section(
    out: Console,
    headers: list[str],
    found: Iterable[list[str]],
    wanted: Iterable[Component] | None,
) -> None:
    """Print a table; if other components are wanted than found, with a column that says so."""
    rows, ids = list(found), [component.id for component in wanted or ()]
    there = {row[0] for row in rows}
    if wanted is not None and set(ids) != there:
        headers = [*headers, "STATUS"]
        rows = [[*row, "found" if row[0] in ids else "not wanted"] for row in rows]
        blanks = [""] * (len(headers) - 2)
        rows += [[name, *blanks, "missing"] for name in ids if name not in there]
    if rows:
        say(out, "")
        table(out, headers, rows)


def _differences(of: Observed, out: Console) -> None:
    if of.differences:
        say(out, "\ndiffers from what is wanted:", "yellow")
    for difference in of.differences:
        say(out, f"  {difference}")
