"""Devices in the picture of a host: cards with their functions, and VFs as small boxes."""

from collections.abc import Sequence
from itertools import groupby

from fabric_direct.drivers.contract import HostDevice
from fabric_direct.model import DeviceState, PciAddress
from fabric_direct.topology.drawing.canvas import Block, Canvas, beside, stacked
from fabric_direct.topology.drawing.style import css_class
from fabric_direct.topology.drawing.text import (
    clipped,
    clipped_owner,
    listed,
    number,
    width,
    wrapped,
)
from fabric_direct.topology.values import Function, Slot

_CHIP, _CHIP_HEIGHT, _CHIP_GAP = 92.0, 34.0, 6.0
_MANY = 8
"""VFs of a NIC that are shown one by one; of more, equal neighbours are shown as one."""
SAID = {
    DeviceState.FREE: "free",
    DeviceState.USED: "used",
    DeviceState.HOST_USED: "used by the host",
    DeviceState.UNCLEAN: "unclean",
    DeviceState.LOST: "lost by its server",
    DeviceState.QUARANTINED: "quarantined",
    DeviceState.NOT_ALLOWED: "not allowed",
}
"""The states in words."""
_CLASSES = {
    "01": "storage",
    "0108": "NVMe drive",
    "02": "NIC",
    "03": "display",
    "0403": "audio",
    "12": "accelerator",
}
"""Names of PCI classes, by the first digits of their code."""


def slot_block(slot: Slot, room: float) -> Block:
    """Return a device: a card with its functions."""
    functions = [_function(function, room) for function in slot.functions]
    whole = stacked(functions, 0)

    def draw(canvas: Canvas, x: float, y: float) -> None:
        canvas.box(x, y, room, whole.height, "card")
        at = y
        for number_, function in enumerate(functions):
            if number_:
                canvas.path(f"M{x:.1f} {at:.1f}h{room:.1f}", "rule")
            function.draw(canvas, x, at)
            at += function.height

    return Block(whole.height, draw)


def _function(function: Function, room: float) -> Block:
    """Return a function: what it is and where, whose it is, its details, its VFs."""
    device = function.device
    whose = wrapped(_whose(device), "text", room - 26, 4) if _tells(function) else []
    details = wrapped(_details(function), "small", room - 26, 3)
    chips = _chips(function.vfs, room - 24)
    texts = 26 + len(whose) * 16 + len(details) * 14
    height = texts + (chips.height + 10 if function.vfs else 0) + 2

    def draw(canvas: Canvas, x: float, y: float) -> None:
        with canvas.group(_told(device)):
            canvas.box(x, y, 5, height, _band(device.state), round_=2)
            canvas.mark(x + 18, y + 15, device.state.value)
            address = short(device.address)
            canvas.text(x + room - 10, y + 19, address, "name", end=True)
            name_room = room - 50 - width(address, "name")
            canvas.text(x + 30, y + 19, clipped(_what(function), "name", name_room), "name")
            canvas.lines(x + 14, y + 36, whose, "text")
            canvas.lines(x + 14, y + 36 + len(whose) * 16, details, "small", "soft")
        if function.vfs:
            chips.draw(canvas, x + 14, y + texts + 2)

    return Block(height, draw)


def _band(state: DeviceState) -> str:
    """Return the class of the band on the left of a function: what nobody has is not stressed."""
    idle = state in {DeviceState.FREE, DeviceState.NOT_ALLOWED}
    return "band" if idle else f"s-{css_class(state.value)}"


def _tells(function: Function) -> bool:
    """Return whether the state of a function is worth a line: a PF may only be there to give VFs."""
    device = function.device
    kept = device.state is DeviceState.NOT_ALLOWED and not device.why
    return not (function.vfs and kept)


def _what(function: Function) -> str:
    device = function.device
    if function.vfs or device.function.virtual:
        links = ", ".join(device.function.links)
        return f"PF {links}".strip()
    if device.type:
        return f"{device.type} {device.model or ''}".strip()
    kind = device.function.kind
    return _CLASSES.get(kind[:4]) or _CLASSES.get(kind[:2]) or "PCI function"


def _whose(device: HostDevice) -> str:
    """Return the state and the owner, with the reason, in words."""
    said = SAID[device.state]
    if device.state is DeviceState.USED and device.owner:
        return f"used by {device.owner}"
    if device.owner:
        return (
            f"{said}, of {device.owner}: {device.why}"
            if device.why
            else f"{said}, of {device.owner}"
        )
    return f"{said}: {device.why}" if device.why else said


def _group(device: HostDevice) -> str:
    """Return the IOMMU group, with its members in other slots: those of the slot are in the card."""
    if device.function.iommu_group is None:
        return ""
    others = [peer for peer in device.peers if peer.slot_address != device.address.slot_address]
    beside_ = (
        f" with {', '.join(map(short, others[:2]))}{'…' if others[2:] else ''}" if others else ""
    )
    return f"IOMMU group {device.function.iommu_group}{beside_}"


def _details(function: Function) -> str:
    device, at = function.device, function.device.function
    up = {True: "link up", False: "link down", None: None}[at.link_up]
    return listed(
        (
            _vfs(function.vfs),
            None if function.vfs else ", ".join(at.links) or None,
            (device.bridge_mode or "").upper() or None,
            up if at.links else None,
            _groups(function) or None,
            f"driver {at.driver}" if at.driver else None,
            at.label or f"{at.vendor}:{at.product}",
        )
    )


def _vfs(vfs: Sequence[HostDevice]) -> str | None:
    models = ", ".join(sorted({vf.model for vf in vfs if vf.model}))
    return f"{number(len(vfs), 'VF')}{models and f' ({models})'}" if vfs else None


def _groups(function: Function) -> str:
    """Return the IOMMU group of a function, and those of its VFs: a range if each has one of its own."""
    own = _group(function.device)
    groups = sorted({g for vf in function.vfs if (g := vf.function.iommu_group) is not None})
    if not groups:
        return own
    whole = groups[-1] - groups[0] + 1 == len(groups) == len(function.vfs)
    span = f"{groups[0]}–{groups[-1]}" if whole and len(groups) > 1 else _numbers(groups)
    return f"{own}, VFs {span}" if own else f"IOMMU groups {span}"


def _numbers(groups: Sequence[int]) -> str:
    shown = ", ".join(map(str, groups[:6]))
    return f"{shown} …" if groups[6:] else shown


def _told(device: HostDevice) -> str:
    """Return all that is known of a function, for who points at it."""
    at = device.function
    known = (
        f"{device.address} {at.vendor}:{at.product} {at.label}".strip(),
        f"VF {at.vf} of {at.physical}" if at.physical else None,
        _whose(device),
        f"IOMMU group {at.iommu_group}" if at.iommu_group is not None else None,
        f"driver {at.driver}" if at.driver else None,
        ", ".join(at.links) or None,
        *(f"domain {domain.name}" for domain in device.domains),
        *at.uses,
    )
    return "\n".join(line for line in known if line)


# --- VFs


def _chips(vfs: Sequence[HostDevice], room: float) -> Block:
    """Return the VFs of a NIC as small boxes in rows."""
    columns = max(int((room + _CHIP_GAP) / (_CHIP + _CHIP_GAP)), 1)
    across = (room - (columns - 1) * _CHIP_GAP) / columns
    chips = [_chip(run, across) for run in _runs(vfs)]
    rows = [chips[n : n + columns] for n in range(0, len(chips), columns)]
    return stacked([beside(row, across + _CHIP_GAP) for row in rows], _CHIP_GAP)


def _runs(vfs: Sequence[HostDevice]) -> list[list[HostDevice]]:
    """Return VFs one by one or, if they are many, equal neighbours together."""
    if len(vfs) <= _MANY:
        return [[vf] for vf in vfs]
    return [list(run) for _, run in groupby(vfs, key=lambda vf: (vf.state, vf.owner, vf.why))]


def _chip(run: Sequence[HostDevice], room: float) -> Block:
    first, last = run[0], run[-1]
    state = css_class(first.state.value)
    numbers = _vf_number(first) if first is last else f"{_vf_number(first)}–{_vf_number(last)}"
    where = short(first.address) if first is last else f"{len(run)} VFs"
    said = first.owner or SAID[first.state]

    def draw(canvas: Canvas, x: float, y: float) -> None:
        with canvas.group("\n\n".join(map(_told, run[:8]))):
            canvas.box(x, y, room, _CHIP_HEIGHT, f"b-{state}", "chip")
            canvas.mark(x + 10, y + 11, first.state.value)
            canvas.text(x + 19, y + 14.5, numbers, "strong")
            canvas.text(x + room - 6, y + 14.5, where, "small", "soft", end=True)
            canvas.text(x + 6, y + 28, clipped_owner(said, "small", room - 12), "small")

    return Block(_CHIP_HEIGHT, draw)


def _vf_number(device: HostDevice) -> str:
    return "?" if device.function.vf is None else str(device.function.vf)


def short(address: PciAddress) -> str:
    """Return an address without the domain, if that is the first."""
    return str(address).removeprefix("0000:")
