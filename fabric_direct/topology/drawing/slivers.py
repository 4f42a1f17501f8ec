"""The picture of slivers: VMs as cards with their parts, and the networks that their NICs meet."""

from collections.abc import Iterable, Iterator, Sequence

from fabric_direct.topology.drawing.canvas import (
    GAP,
    MARGIN,
    Block,
    Canvas,
    grid,
    headline,
    stacked,
)
from fabric_direct.topology.drawing.devices import short
from fabric_direct.topology.drawing.text import clipped, listed, number, width, wrapped
from fabric_direct.topology.drawing.wires import Card, Joint, Row, Wiring, letters, network_cards
from fabric_direct.topology.values import (
    AttachedVolume,
    Device,
    Join,
    Network,
    Nic,
    ServiceConnection,
    SliverTopology,
    Vm,
)

WIDTH = 1000.0
_CARD, _SAID = 470.0, 230.0
_MACHINES = {"BareMetal": "bare-metal node", "Switch": "P4 switch"}
"""Types of slivers that are neither VMs nor networks."""


def draw_slivers(of: SliverTopology) -> str:
    """Return the picture of slivers."""
    wiring = _wiring(of, _CARD, _SAID)
    if (spare := (WIDTH - 2 * MARGIN - wiring.width) / 2) > 0:
        wiring = _wiring(of, _CARD + spare, _SAID + spare)
    across = max(WIDTH, wiring.width + 2 * MARGIN)
    canvas, title = Canvas(), _title(of)
    y = headline(canvas, across, title, list(_about(of, across))) + 8
    whole = stacked([wiring.block(), *networks_section(of.networks, across)], 20)
    whole.draw(canvas, MARGIN, y)
    return canvas.svg(across, y + whole.height + MARGIN, title, _description(of))


def _wiring(of: SliverTopology, room: float, said: float) -> Wiring:
    parts = _Parts(of.networks, room)
    cards = [*map(parts.vm, of.vms), *parts.switches()]
    return Wiring(cards, letters(of.networks), room, said)


def _title(of: SliverTopology) -> str:
    kinds = {network.key: network.type for network in of.networks}
    if len(of.asked) == 1:
        return f"{kinds.get(of.asked[0], 'VM')} {of.asked[0]}"
    return f"Slivers {', '.join(of.asked)}"


def counts(networks: Sequence[Network]) -> tuple[int, int, str]:
    """Return how many services and networks there are, and how many machines in words."""
    machines = [network.type for network in networks if network.type in _MACHINES]
    told = listed(
        number(machines.count(kind), noun) for kind, noun in _MACHINES.items() if kind in machines
    )
    services = len([network for network in networks if network.id]) - len(machines)
    return services, len(networks) - services - len(machines), told


def _about(of: SliverTopology, across: float) -> Iterator[str]:
    services, networks, machines = counts(of.networks)
    asked = len([vm for vm in of.vms if vm.asked])
    yield listed(
        (
            f"site {of.site}",
            number(asked, "VM") if asked else None,
            number(services, "network service") if services else None,
            number(networks, "network") if networks else None,
            machines,
        )
    )
    if services or networks:
        yield "A letter is where a NIC meets a network; lines that cross without one are not connected."
    yield from silent_lines(of.silent, across)


def silent_lines(silent: dict[str, str], across: float) -> Iterator[str]:
    """Yield what is not in the picture because it does not answer."""
    for name, error in silent.items():
        yield from wrapped(f"{name} does not answer: {error}", "text", across - 2 * MARGIN, 3)


def _description(of: SliverTopology) -> str:
    vms = (
        f"{vm.id} ({vm.state}{f' on {vm.host}' if vm.host else ''}): "
        + (", ".join(f"{nic.component} on {_met(nic, of.networks)}" for nic in vm.nics) or "no NIC")
        for vm in of.vms
    )
    return ". ".join(vms)


def _met(nic: Nic, networks: Sequence[Network]) -> str:
    names = {network.key: network.name for network in networks}
    return " and ".join(names[j.network] for j in nic.joins if j.network in names) or "no network"


def networks_section(networks: Sequence[Network], across: float) -> Iterator[Block]:
    """Yield what the letters stand for, in three columns."""
    if networks:
        room = (across - 2 * MARGIN - 2 * GAP) / 3
        *of_packets, machines = counts(networks)
        parts = ("Networks" if any(of_packets) else "", "machines" if machines else "")
        title = " and ".join(filter(None, parts)).capitalize()
        yield stacked(
            [heading(title), grid(network_cards(networks, letters(networks), room), 3, room)]
        )


def heading(text: str) -> Block:
    """Return the heading of a section."""
    return Block(16, lambda canvas, x, y: canvas.text(x, y + 14, text, "head"))


# --- cards


class _Parts:
    """The cards of slivers, and of what else is on their networks, in a width."""

    def __init__(self, networks: Sequence[Network], room: float) -> None:
        self._networks, self._room = networks, room
        self._keys = {network.key: network for network in networks}

    def vm(self, vm: Vm) -> Card:
        rows = (
            *(self._nic(nic, vm) for nic in vm.nics),
            *map(self._device, vm.devices),
            *map(self._volume, vm.volumes),
        )
        return Card(self._head(vm), rows, ("card",) if vm.asked else ("panel", "open"))

    def _head(self, vm: Vm) -> Block:
        said = vm.state if vm.asked else f"{vm.state}, stitched"
        about = wrapped(_about_vm(vm), "small", self._room - 28, 3)
        notes = [line for note in vm.notes for line in wrapped(note, "small", self._room - 48, 4)]
        height = 30 + len(about) * 14 + (len(notes) * 14 + 6 if notes else 0) + 2

        def draw(canvas: Canvas, x: float, y: float) -> None:
            if vm.asked:
                canvas.box(x + 1, y + 1, self._room - 2, height - 1, "band", round_=5)
            canvas.mark(x + 18, y + 15, vm.state)
            canvas.text(x + self._room - 14, y + 20, said, "text", "soft", end=True)
            room = self._room - 32 - 28 - width(said, "text")
            canvas.text(x + 30, y + 20, clipped(vm.name or vm.id, "head", room), "head")
            canvas.lines(x + 14, y + 36, about, "small", "soft")
            if notes:
                at = y + 36 + len(about) * 14 + 4
                canvas.mark(x + 20, at - 4, "warning")
                canvas.lines(x + 34, at, notes, "small")

        return Block(height, draw)

    def _nic(self, nic: Nic, vm: Vm) -> Row:
        number_ = f" {nic.number}" if nic.number else ""
        about = listed((*nic.addresses, f"floating {nic.floating_ip}" if nic.floating_ip else None))
        more = listed(
            (
                ", ".join(map(short, nic.pci)) or None,
                f"VLAN {nic.vlan}" if nic.vlan else None,
                f"{nic.bandwidth} Mbit/s" if nic.bandwidth else None,
                None if nic.link == "up" else f"link {nic.link}",
            )
        )
        joints = tuple(
            _joint(join, self._keys[join.network], nic)
            for join in nic.joins
            if join.network in self._keys
        )
        block = self._part(
            "network", f"{nic.component}{number_}", nic.type, nic.mac or "", (about, more)
        )
        return Row(block, joints, "" if joints else _tag(nic, vm))

    def _device(self, device: Device) -> Row:
        kind = f"{device.type} {device.model or ''}".strip()
        where = [short(address) for address in device.pci]
        guest_name = (device.guest_name or "").removeprefix("0000:")
        inside = f"in the guest {guest_name}" if guest_name else ""
        right, more = (where[0], []) if len(where) == 1 else ("", where)
        lines = (", ".join(more), inside)
        return Row(self._part("device", device.component, kind, right, lines))

    def _volume(self, volume: AttachedVolume) -> Row:
        size = f"volume, {volume.size} GiB" if volume.size else "volume"
        mounted = f"mounted on {', '.join(volume.mounted)}" if volume.mounted else ""
        return Row(
            self._part("volume", volume.component, size, volume.target, (volume.source, mounted))
        )

    def _part(self, kind: str, name: str, type_: str, right: str, about: Iterable[str]) -> Block:
        """Return a part of a VM: its name, what it is, where it is, and more lines."""
        lines = [line for text in about for line in wrapped(text, "small", self._room - 48, 3)]
        height = max(28 + len(lines) * 14, 38 if kind == "network" else 28)
        top = 19 if lines or kind != "network" else 23

        def draw(canvas: Canvas, x: float, y: float) -> None:
            canvas.mark(x + 20, y + top - 4, kind, "kind")
            shown = clipped(name, "name", 200)
            canvas.text(x + 34, y + top, shown, "name")
            at = x + 34 + width(shown, "name") + 8
            room = self._room - 34 - width(shown, "name") - 8 - width(right, "small") - 24
            canvas.text(at, y + top, clipped(type_, "text", room), "text", "soft")
            canvas.text(x + self._room - 14, y + top, right, "small", "soft", end=True)
            canvas.lines(x + 34, y + top + 15, lines, "small", "soft")

        return Block(height, draw)

    def switches(self) -> Iterator[Card]:
        """Yield the devices of services with the interfaces to which no VM is stitched."""
        met: dict[str, list[Row]] = {}
        for network in self._networks:
            for interface in network.interfaces:
                if interface.sliver is None:
                    met.setdefault(interface.device or "", []).append(self._end(interface, network))
        for device, rows in sorted(met.items()):
            yield Card(self._device_head(device), tuple(rows), ("panel",))

    def _device_head(self, device: str) -> Block:
        name = f"Switch {device}" if device else "Elsewhere"

        def draw(canvas: Canvas, x: float, y: float) -> None:
            canvas.text(x + 14, y + 20, clipped(name, "name", self._room - 28), "name")

        return Block(30, draw)

    def _end(self, interface: ServiceConnection, network: Network) -> Row:
        port = f"port {interface.port}" if interface.port else interface.id
        about = listed(
            (interface.address, f"BGP with {interface.peer}" if interface.peer else None)
        )
        block = self._part("network", port, "", interface.mac or "", (about,))
        return Row(
            block, (Joint(network.key, f"{network.name} / {interface.id}", _where(interface)),)
        )


def _about_vm(vm: Vm) -> str:
    return listed(
        (
            f"id {vm.id}" if vm.name and vm.id != vm.name else None,
            f"on {vm.host}" if vm.host else None,
            number(vm.cores, "core") if vm.cores else None,
            memory(vm.ram) if vm.ram else None,
            f"image {vm.image}" if vm.image else None,
            vm.instance,
        )
    )


def memory(mib: int) -> str:
    """Return ``4 GiB``, or MiB where that is no whole number."""
    return f"{mib} MiB" if mib % 1024 else f"{mib // 1024} GiB"


def _tag(nic: Nic, vm: Vm) -> str:
    """Return what a NIC is connected to that is no network of the site."""
    if nic.uplink:
        mode = f" · {nic.bridge_mode.upper()}" if nic.bridge_mode else ""
        return f"uplink {nic.uplink}{f' of {vm.host}' if vm.host else ''}{mode}"
    return f"switch {nic.network}, not stitched" if nic.network else "not stitched"


def _joint(join: Join, network: Network, nic: Nic) -> Joint:
    """Return where a NIC meets a network, with what is said of it: interface, port, VLAN, limit."""
    above = f"{network.name} / {join.interface}" if join.interface else network.name
    interface = next((i for i in network.interfaces if i.id == join.interface), None)
    uplink = None
    if nic.uplink:
        uplink = f"{nic.uplink} {(nic.bridge_mode or '').upper()}".strip()
    return Joint(network.key, above, listed((_where(interface) if interface else None, uplink)))


def _where(interface: ServiceConnection) -> str:
    return listed(
        (
            " ".join(filter(None, (interface.device, interface.port))) or None,
            _vlan(interface),
            f"{interface.bandwidth} Mbit/s" if interface.bandwidth else None,
        )
    )


def _vlan(interface: ServiceConnection) -> str | None:
    inner = f".{interface.inner_vlan}" if interface.inner_vlan else ""
    if interface.vlan:
        return f"VLAN {interface.vlan}{inner}"
    return "untagged" if interface.port else None
