"""Cards on the left, and on the right the networks as rails, to which wires lead from the cards' rows.

A rail reaches from its first joint to its last. Rails that do not overlap in height take turns on one
track, and the short ones are next to the cards: so few wires cross a rail, and those at right angles. A
joint has the letter of its network; what crosses without a letter is not connected.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fabric_direct.topology.drawing.canvas import GAP, Block, Canvas
from fabric_direct.topology.drawing.style import WIRES
from fabric_direct.topology.drawing.text import clipped, listed, width, wrapped
from fabric_direct.topology.values import Network

STEP = 34.0
"""Between two tracks."""
_REST = 24.0
"""Between two rails on one track."""
_TAG = 24.0
_BETWEEN = GAP + 4


@dataclass(frozen=True, slots=True)
class Joint:
    """The point where a row meets a network."""

    network: str
    """Its key."""
    above: str = ""
    """What is said above the wire; where nothing is said, wires are short."""
    below: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a card, and what it is connected to."""

    block: Block
    joints: tuple[Joint, ...] = ()
    tag: str = ""
    """What it is connected to that is no network of the picture."""


@dataclass(frozen=True, slots=True)
class Card:
    """A thing with rows: a VM, a host, a switch."""

    head: Block
    rows: tuple[Row, ...]
    kinds: tuple[str, ...] = ("card",)


@dataclass(frozen=True, slots=True)
class Letter:
    """The letter, colour and dashes that distinguish a network from others."""

    text: str
    colour: int
    dashed: bool


def letters(networks: Sequence[Network]) -> dict[str, Letter]:
    """Return a letter and a colour for each network, by its key."""
    return {
        network.key: Letter(_letter(n), n % WIRES, n // WIRES % 2 == 1)
        for n, network in enumerate(networks)
    }


def _letter(number: int) -> str:
    return chr(ord("A") + number) if number < 26 else str(number + 1)


@dataclass(frozen=True, slots=True)
class _Wire:
    """The wire of a row, and how high it is."""

    y: float
    row: Row


class Wiring:
    """Cards one below the other, with their wires and rails.

    :param known: the letters of the networks, by key.
    :param room: width of the cards.
    :param said: room for what is said of wires.
    """

    def __init__(
        self, cards: Sequence[Card], known: Mapping[str, Letter], room: float, said: float
    ) -> None:
        self._cards, self._known, self._room, self._said = cards, known, room, said
        self._wires, self.height = _placed(cards)
        self._tracks = _tracks(self._wires)

    @property
    def width(self) -> float:
        """Return the width of all of it."""
        if self._tracks:
            return self._rail(max(self._tracks.values())) + STEP / 2
        return self._room + (self._said if any(wire.row.tag for wire in self._wires) else 0)

    def _rail(self, track: int) -> float:
        return self._room + self._said + STEP / 2 + track * STEP

    def block(self) -> Block:
        """Return all of it, to be drawn."""
        return Block(self.height, self._draw)

    def _draw(self, canvas: Canvas, x: float, y: float) -> None:
        for key, track in self._tracks.items():
            self._draw_rail(canvas, key, x + self._rail(track), y)
        for wire in self._wires:
            self._draw_wire(canvas, wire, x, y + wire.y)
        for wire in self._wires:
            for key in dict.fromkeys(joint.network for joint in wire.row.joints):
                self._draw_joint(canvas, wire.row, key, x, y + wire.y)
        for card in self._cards:
            y += _draw_card(canvas, card, x, y, self._room) + _BETWEEN

    def _draw_rail(self, canvas: Canvas, key: str, x: float, y: float) -> None:
        heights, letter = _heights(self._wires, key), self._known[key]
        kinds = ("rail", f"w-{letter.colour}", *(("open",) if letter.dashed else ()))
        if min(heights) < max(heights):
            canvas.path(f"M{x:.1f} {y + min(heights):.1f}V{y + max(heights):.1f}", *kinds)

    def _draw_wire(self, canvas: Canvas, wire: _Wire, x: float, y: float) -> None:
        x, row = x + self._room, wire.row
        if row.tag:
            _draw_tag(canvas, x, y, row.tag, self._said)
        for joint in row.joints[:1]:
            keys = {joint.network for joint in row.joints}
            colour = f"w-{self._known[joint.network].colour}" if len(keys) == 1 else "tree"
            end = max(self._rail(self._tracks[key]) for key in keys) - self._room
            canvas.path(f"M{x:.1f} {y:.1f}h{end:.1f}", "gap")
            canvas.path(f"M{x:.1f} {y:.1f}h{end:.1f}", "wire", colour)
            room = self._said - 20
            canvas.text(x + 12, y - 6, clipped(joint.above, "strong", room), "strong")
            canvas.text(x + 12, y + 14, clipped(joint.below, "small", room), "small", "soft")

    def _draw_joint(self, canvas: Canvas, row: Row, key: str, x: float, y: float) -> None:
        letter, at = self._known[key], x + self._rail(self._tracks[key])
        canvas.badge(at, y, letter.text, letter.colour)
        times = sum(joint.network == key for joint in row.joints)
        if times > 1:
            canvas.text(at + 10, y - 5, f"×{times}", "small", "soft")


def _placed(cards: Sequence[Card]) -> tuple[list[_Wire], float]:
    """Return the wires of cards that are one below the other, and how high these are."""
    wires, y = [], 0.0
    for card in cards:
        y += card.head.height
        for row in card.rows:
            if row.joints or row.tag:
                wires.append(_Wire(y + row.block.height / 2, row))
            y += row.block.height
        y += _BETWEEN
    return wires, max(y - _BETWEEN, 0)


def _heights(wires: Iterable[_Wire], key: str) -> list[float]:
    return [wire.y for wire in wires if any(joint.network == key for joint in wire.row.joints)]


def _tracks(wires: Sequence[_Wire]) -> dict[str, int]:
    """Return the track of each network: the short rails first, those on one track apart."""
    keys = dict.fromkeys(joint.network for wire in wires for joint in wire.row.joints)
    spans = {key: (min(at), max(at)) for key in keys if (at := _heights(wires, key))}
    taken: list[list[tuple[float, float]]] = []
    found = {}
    for key in sorted(spans, key=lambda key: (spans[key][1] - spans[key][0], spans[key][0])):
        free = (n for n, there in enumerate(taken) if _is_free(there, spans[key]))
        found[key] = next(free, len(taken))
        if found[key] == len(taken):
            taken.append([])
        taken[found[key]].append(spans[key])
    return found


def _is_free(taken: Iterable[tuple[float, float]], span: tuple[float, float]) -> bool:
    return all(last + _REST < span[0] or span[1] + _REST < first for first, last in taken)


def _draw_tag(canvas: Canvas, x: float, y: float, tag: str, room: float) -> None:
    """Draw what a row is connected to beside the networks of the picture: an uplink, a switch."""
    text = clipped(tag, "small", room - 44)
    canvas.path(f"M{x:.1f} {y:.1f}h12", "wire", "tree")
    canvas.box(
        x + 12, y - _TAG / 2, width(text, "small") + 20, _TAG, "panel", "open", round_=_TAG / 2
    )
    canvas.text(x + 22, y + 4, text, "small", "soft")


def _draw_card(canvas: Canvas, card: Card, x: float, y: float, room: float) -> float:
    """Draw a card; return how high it is."""
    height = card.head.height + sum(row.block.height for row in card.rows)
    canvas.box(x, y, room, height, *card.kinds, round_=6)
    card.head.draw(canvas, x, y)
    at = y + card.head.height
    for row in card.rows:
        canvas.path(f"M{x + 1:.1f} {at:.1f}h{room - 2:.1f}", "rule")
        row.block.draw(canvas, x, at)
        at += row.block.height
    return height


# --- what the letters stand for


def network_cards(
    networks: Sequence[Network], known: Mapping[str, Letter], room: float
) -> list[Block]:
    """Return a card for each network: its letter, name, type, addresses, and what is wrong with it."""
    return [_network_card(network, known[network.key], room) for network in networks]


def _network_card(network: Network, letter: Letter, room: float) -> Block:
    names = wrapped(network.name, "name", room - 52)
    told = [line for text in _about(network) for line in wrapped(text, "small", room - 52)]
    notes = [line for note in network.notes for line in wrapped(note, "small", room - 68)]
    height = 14 + len(names) * 16 + len(told) * 14 + (len(notes) * 14 + 4 if notes else 0) + 6
    kinds = ("card",) if network.id else ("card", "open")

    def draw(canvas: Canvas, x: float, y: float) -> None:
        canvas.box(x, y, room, height, *kinds, round_=6)
        canvas.badge(x + 22, y + 20, letter.text, letter.colour)
        canvas.lines(x + 40, y + 24, names, "name")
        at = y + 24 + len(names) * 16
        canvas.lines(x + 40, at, told, "small", "soft")
        at += len(told) * 14 + 4
        if notes:
            canvas.mark(x + 45, at - 4, "warning")
            canvas.lines(x + 56, at, notes, "small")

    return Block(height, draw)


def _about(network: Network) -> Iterable[str]:
    devices = dict.fromkeys(i.device for i in network.interfaces if i.device)
    yield listed(
        (
            network.type if network.id else "network of the site",
            f"id {network.id}" if network.id and network.id != network.name else None,
            f"VLAN {network.vlan}" if network.vlan else None,
        )
    )
    yield listed(network.subnets)
    yield f"gateway {network.gateway}" if network.gateway else ""
    yield f"on {', '.join(devices)}" if devices else ""
    for interface in (i for i in network.interfaces if i.peer):
        yield f"{interface.id}: BGP with {interface.peer}"
