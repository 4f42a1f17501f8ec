"""A sliver as it was found, for people."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from fabric_direct.cli.options import printable
from fabric_direct.cli.show import say, style_of, table

if TYPE_CHECKING:
    from fabric_direct.model import (
        NodeSliver,
        Observed,
        ObservedDevice,
        ObservedInterface,
        ObservedVolume,
        SliverRef,
    )


def show(of: "Observed", sliver: "SliverRef", out: Console) -> None:
    """Print state, NICs, volumes, devices and guest, and what differs.

    A whole sliver is compared: what it wants and what is missing stand in a column of their own.
    """
    from fabric_direct.model import NodeSliver  # noqa: PLC0415 - see the package

    wanted = sliver if isinstance(sliver, NodeSliver) else None
    state = Text(f"{sliver.id}: ").append(of.state.value, style_of(of.state.value))
    out.print(state.append(_where(of)), soft_wrap=True)
    if of.guest:
        say(out, f"guest: {_guest(of)}")
    if of.instance:
        _nics(of, wanted, out)
        _volumes(of, wanted, out)
        _devices(of, wanted, out)
    if of.state.value != "absent":
        _differences(of, out)


def _where(of: "Observed") -> str:
    place = f", {of.instance}" if of.instance else ""
    place += f" on {of.host}" if of.instance and of.host else ""
    size = f", {of.cores} core{'s' if of.cores != 1 else ''}, {of.ram} MiB" if of.cores else ""
    return printable(place + size)


def _guest(of: "Observed") -> str:
    guest = of.guest
    if guest is None or not guest.reachable:
        return "does not answer"
    boot = {True: ", boot script has run", False: ", still booting", None: ""}[guest.boot_finished]
    key = f", SSH host key {guest.ssh_host_key}" if guest.ssh_host_key else ""
    return f"answers by {guest.via}{boot}{key}"


def _nics(of: "Observed", wanted: "NodeSliver | None", out: Console) -> None:
    headers = ["NIC", "NETWORK", "MAC", "ADDRESSES", "FLOATING IP", "MBIT/S", "IN THE GUEST"]
    rows = [_nic(nic) for nic in of.interfaces]
    _section(out, headers, rows, [vnic.id for vnic in wanted.vnics()] if wanted else None)


def _nic(nic: "ObservedInterface") -> list[str]:
    limit = str(nic.bandwidth or "")
    addresses = ", ".join(nic.addresses)
    floating = nic.floating_ip or ""
    return [nic.component, nic.network or "", nic.mac, addresses, floating, limit, _inside(nic)]


def _worth_a_word(addresses: Iterable[str]) -> list[str]:
    """Return the addresses but those that are link-local."""
    return [address for address in addresses if not address.startswith("fe80:")]


def _inside(nic: "ObservedInterface") -> str:
    """Say what the guest has on the NIC."""
    if not nic.guest_name:
        return ""
    has = _worth_a_word(nic.guest_addresses)
    if set(nic.addresses) <= set(has):
        has = ["the same", *(a for a in has if a not in nic.addresses)]
    return f"{nic.guest_name}: {', '.join(has) or 'no address'}"


def _volumes(of: "Observed", wanted: "NodeSliver | None", out: Console) -> None:
    rows = [_volume(volume) for volume in of.volumes]
    ids = [volume.id for volume in wanted.volumes()] if wanted else None
    _section(out, ["VOLUME", "DEVICE", "SIZE", "SOURCE", "IN THE GUEST"], rows, ids)


def _volume(volume: "ObservedVolume") -> list[str]:
    size = f"{volume.size} GiB" if volume.size else ""
    mounted = ", ".join(volume.mounted)
    inside = ": ".join(filter(None, [volume.guest_name, mounted]))
    return [volume.component, volume.target, size, volume.source, inside]


def _devices(of: "Observed", wanted: "NodeSliver | None", out: Console) -> None:
    headers = ["DEVICE", "HOST PCI", "MAC", "VLAN", "MBIT/S", "UPLINK", "IN THE GUEST"]
    rows = [_device(device) for device in of.devices]
    ids = [device.id for device in wanted.devices()] if wanted else None
    _section(out, headers, rows, ids)


def _device(device: "ObservedDevice") -> list[str]:
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
    out: Console, headers: list[str], rows: list[list[str]], wanted: list[str] | None
) -> None:
    if wanted is not None and set(wanted) != {row[0] for row in rows}:
        headers = [*headers, "STATUS"]
        rows = [[*row, "found" if row[0] in wanted else "not wanted"] for row in rows]
        rows += list(_missing(wanted, rows, len(headers) - 2))
    if rows:
        say(out, "")
        table(out, headers, rows)


def _missing(wanted: list[str], rows: list[list[str]], blanks: int) -> Iterable[list[str]]:
    there = {row[0] for row in rows}
    return ([name, *[""] * blanks, "missing"] for name in wanted if name not in there)


def _differences(of: "Observed", out: Console) -> None:
    if of.differences:
        say(out, "\ndiffers from what is wanted:", "yellow")
    for difference in of.differences:
        say(out, f"  {difference}")
