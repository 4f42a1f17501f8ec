"""The picture of a site: hosts as cards with their slivers, and the networks between them."""

from collections.abc import Iterator, Sequence

from fabric_direct.topology.drawing.canvas import MARGIN, Block, Canvas, headline, stacked
from fabric_direct.topology.drawing.slivers import (
    WIDTH,
    counts,
    memory,
    networks_section,
    silent_lines,
)
from fabric_direct.topology.drawing.text import clipped, listed, number, width, wrapped
from fabric_direct.topology.drawing.wires import Card, Joint, Row, Wiring, letters
from fabric_direct.topology.values import DeviceCount, HostSliver, Network, SiteHost, SiteTopology

_CARD, _SAID, _ROW = 600.0, 26.0, 27.0


def draw_site(of: SiteTopology) -> str:
    """Return the picture of a site."""
    wiring = _wiring(of, _CARD)
    if (spare := WIDTH - 2 * MARGIN - wiring.width) > 0:
        wiring = _wiring(of, _CARD + spare)
    across = max(WIDTH, wiring.width + 2 * MARGIN)
    canvas, title = Canvas(), f"Site {of.site}"
    y = headline(canvas, across, title, list(_about(of, across))) + 8
    whole = stacked([wiring.block(), *networks_section(of.networks, across)], 20)
    whole.draw(canvas, MARGIN, y)
    return canvas.svg(across, y + whole.height + MARGIN, title, _description(of))


def _wiring(of: SiteTopology, room: float) -> Wiring:
    parts = _Parts(room)
    cards = [*map(parts.host, of.hosts), *parts.switches(of.networks)]
    return Wiring(cards, letters(of.networks), room, _SAID)


def _about(of: SiteTopology, across: float) -> Iterator[str]:
    services, networks, machines = counts(of.networks)
    silent = [host for host in of.hosts if host.silent]
    states = [sliver.state for host in of.hosts for sliver in host.slivers]
    yield listed(
        (
            number(len(of.hosts), "host"),
            f"{len(silent)} without an answer" if silent else None,
            f"{number(len(states), 'VM')} ({states.count('running')} running)",
            number(services, "network service"),
            number(networks, "network"),
            machines,
        )
    )
    if services or networks:
        yield "A letter is where a VM meets a network; lines that cross without one are not connected."
    yield from silent_lines(of.silent, across)


def _description(of: SiteTopology) -> str:
    hosts = (
        f"{host.name}: {'does not answer' if host.silent else _listed(host.slivers)}"
        for host in of.hosts
    )
    return ". ".join(hosts)


def _listed(slivers: Sequence[HostSliver]) -> str:
    return ", ".join(f"{sliver.id} ({sliver.state})" for sliver in slivers) or "no VMs"


# --- cards


class _Parts:
    """The cards of hosts, and of switches, in a width."""

    def __init__(self, room: float) -> None:
        self._room = room

    def host(self, host: SiteHost) -> Card:
        kinds = ("b-unknown", "card", "open") if host.silent else ("card",)
        return Card(self._head(host), tuple(map(self._sliver, host.slivers)), kinds)

    def _head(self, host: SiteHost) -> Block:
        about = [
            *wrapped(_devices(host.devices), "small", self._room - 28, 3),
            *wrapped(
                f"in maintenance: {host.maintenance}" if host.maintenance else "",
                "small",
                self._room - 28,
                2,
            ),
            *wrapped(
                f"does not answer: {host.silent}" if host.silent else "",
                "small",
                self._room - 28,
                4,
            ),
        ]
        height = 32 + len(about) * 14
        right = "" if host.silent else number(len(host.slivers), "VM") if host.slivers else "no VMs"

        def draw(canvas: Canvas, x: float, y: float) -> None:
            if not host.silent:
                canvas.box(x + 1, y + 1, self._room - 2, height - 2, "band", round_=5)
            start = x + 14
            if host.silent:
                canvas.mark(x + 20, y + 15, "unknown")
                start = x + 34
            canvas.text(
                start,
                y + 20,
                clipped(f"Host {host.name or 'not known'}", "head", self._room - 140),
                "head",
            )
            canvas.text(x + self._room - 14, y + 20, right, "text", "soft", end=True)
            canvas.lines(x + 14, y + 37, about, "small", "soft")

        return Block(height, draw)

    def _sliver(self, sliver: HostSliver) -> Row:
        has = listed(
            (
                number(sliver.cores, "core"),
                memory(sliver.ram),
                number(sliver.nics, "vNIC") if sliver.nics else None,
                number(sliver.devices, "device") if sliver.devices else None,
                number(sliver.volumes, "volume") if sliver.volumes else None,
            )
        )
        said = listed(
            (
                sliver.name if sliver.name != sliver.id else None,
                sliver.state if sliver.state != "running" else None,
                f"differs in {number(sliver.differences, 'point')}" if sliver.differences else None,
            )
        )

        def draw(canvas: Canvas, x: float, y: float) -> None:
            canvas.mark(x + 20, y + 13, sliver.state)
            left = self._room - 34 - width(has, "small") - 28
            if sliver.differences:
                canvas.mark(x + self._room - 26 - width(has, "small"), y + 13, "warning")
                left -= 18
            shown = clipped(sliver.id, "name", left)
            canvas.text(x + 34, y + 17.5, shown, "name")
            taken = width(shown, "name") + 8
            if left - taken > 30:
                canvas.text(
                    x + 34 + taken,
                    y + 17.5,
                    clipped(said, "text", left - taken),
                    "text",
                    "soft",
                )
            canvas.text(x + self._room - 14, y + 17.5, has, "small", "soft", end=True)

        return Row(Block(_ROW, draw), tuple(Joint(key) for key in sliver.networks))

    def switches(self, networks: Sequence[Network]) -> Iterator[Card]:
        """Yield the devices of services that have interfaces to which no VM is stitched, as one card."""
        ports: dict[str, list[tuple[str, str]]] = {}
        for network in networks:
            for interface in network.interfaces:
                if interface.sliver is None and interface.device:
                    ports.setdefault(interface.device, []).append(
                        (network.key, interface.port or "")
                    )
        if ports:
            yield Card(
                self._ports_head(),
                tuple(self._ports(d, met) for d, met in sorted(ports.items())),
                ("panel",),
            )

    def _ports_head(self) -> Block:
        return Block(
            30,
            lambda canvas, x, y: canvas.text(
                x + 14, y + 20, "Ports of switches without a VM", "name"
            ),
        )

    def _ports(self, device: str, met: Sequence[tuple[str, str]]) -> Row:
        ports = ", ".join(dict.fromkeys(port for _, port in met if port))

        def draw(canvas: Canvas, x: float, y: float) -> None:
            canvas.mark(x + 20, y + 13, "network", "kind")
            shown = clipped(device, "name", 300)
            canvas.text(x + 34, y + 17.5, shown, "name")
            taken = 34 + width(shown, "name") + 8
            canvas.text(
                x + taken,
                y + 17.5,
                clipped(ports, "small", self._room - taken - 14),
                "small",
                "soft",
            )

        return Row(Block(_ROW, draw), tuple(Joint(key) for key, _ in met))


def _devices(counts: Sequence[DeviceCount]) -> str:
    return listed(_count(each) for each in counts)


def _count(of: DeviceCount) -> str:
    """Return ``GPU: 1 of 2 free``, and how many are unfit."""
    unfit = f" ({of.unfit} unfit)" if of.unfit else ""
    return f"{of.type}: {of.free} of {of.free + of.used + of.unfit} free{unfit}"
