"""The picture of a host: in each NUMA node the buses as a tree, with devices and their VFs."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from fabric_direct.model import DeviceState
from fabric_direct.topology.drawing.canvas import (
    GAP,
    MARGIN,
    Block,
    Canvas,
    beside,
    grid,
    headline,
    line_height,
    stacked,
)
from fabric_direct.topology.drawing.devices import SAID, short, slot_block
from fabric_direct.topology.drawing.text import (
    listed,
    number,
    width,
    wrapped,
)
from fabric_direct.topology.values import Belonging, Bus, HostTopology, NumaBuses

WIDTH = 1000.0
_PAD, _TREE = 14.0, 22.0
"""Within boxes; and the room of the tree's lines, left of the devices."""


def draw_host(of: HostTopology) -> str:
    """Return the picture of a host."""
    canvas, title = Canvas(), f"Host {of.host}"
    y = headline(canvas, WIDTH, title, list(_about(of))) + 4
    parts = (
        [_silent(of)] if of.silent else [_legend(of), *_nodes(of.nodes), *_owners(of.belongings)]
    )
    whole = stacked(parts)
    whole.draw(canvas, MARGIN, y)
    return canvas.svg(WIDTH, y + whole.height + MARGIN, title, _description(of))


def _about(of: HostTopology) -> Iterator[str]:
    nodes = len([node for node in of.nodes if node.number is not None])
    yield listed(
        (
            f"site {of.site}",
            number(nodes, "NUMA node") if nodes else None,
            None if of.silent else number(sum(of.states.values()), "PCI function"),
            f"{of.others} others not shown (bridges, controllers)" if of.others else None,
        )
    )
    if of.maintenance:
        yield f"in maintenance: {of.maintenance}"


def _description(of: HostTopology) -> str:
    if of.silent:
        return f"It does not answer: {of.silent}"
    states = ", ".join(f"{count} {state}" for state, count in of.states.items())
    owners = "; ".join(f"{_owner(b)} has {', '.join(map(str, b.addresses))}" for b in of.belongings)
    return f"PCI functions: {states or 'none'}. {owners}"


def _owner(of: Belonging) -> str:
    return f"{of.owner}/{of.component}" if of.component else of.owner


def _silent(of: HostTopology) -> Block:
    room = WIDTH - 2 * MARGIN
    lines = wrapped(of.silent, "text", room - 60, 6)

    def draw(canvas: Canvas, x: float, y: float) -> None:
        canvas.box(x, y, room, 52 + len(lines) * line_height("text"), "b-unknown", "card", "open")
        canvas.mark(x + 24, y + 26, "unknown")
        canvas.text(x + 40, y + 31, "does not answer", "head")
        canvas.lines(x + 40, y + 52, lines, "text")

    return Block(52 + len(lines) * line_height("text"), draw)


def _legend(of: HostTopology) -> Block:
    """Return the states that are in the picture, each with its mark and how many there are."""
    entries = [(s, f"{of.states[s.value]} {SAID[s]}") for s in DeviceState if s.value in of.states]

    def draw(canvas: Canvas, x: float, y: float) -> None:
        for state, said in entries:
            canvas.mark(x + 6, y + 8, state.value)
            canvas.text(x + 17, y + 12, said, "text")
            x += 17 + width(said, "text") + 20

    return Block(20, draw)


# --- NUMA nodes and buses


def _nodes(nodes: Sequence[NumaBuses]) -> Iterator[Block]:
    """Yield rows of NUMA nodes, two in each; one that is alone has the whole width."""
    room = WIDTH - 2 * MARGIN
    if not nodes:
        yield _nothing()
    for pair in (nodes[n : n + 2] for n in range(0, len(nodes), 2)):
        if len(pair) == 1:
            yield _panels([_node(pair[0], room, min(len(pair[0].buses), 2))], room)
        else:
            half = (room - GAP) / 2
            yield _panels([_node(node, half, 1) for node in pair], half)


def _nothing() -> Block:
    def draw(canvas: Canvas, x: float, y: float) -> None:
        canvas.text(
            x,
            y + 14,
            "No devices: site.yaml allows none, and no driver tells of others.",
            "text",
            "soft",
        )

    return Block(20, draw)


def _panels(blocks: Sequence[Block], room: float) -> Block:
    """Return a row of panels, each as high as the highest."""
    highest = max(block.height for block in blocks)

    def panel(block: Block) -> Block:
        def draw(canvas: Canvas, x: float, y: float) -> None:
            canvas.box(x, y, room, highest, "panel", round_=8)
            block.draw(canvas, x, y)

        return Block(highest, draw)

    return beside([panel(block) for block in blocks], room + GAP)


def _node(node: NumaBuses, room: float, columns: int) -> Block:
    """Return a NUMA node with its buses; the panel around it is drawn by :func:`_panels`."""
    inner = (room - 2 * _PAD - (columns - 1) * GAP) / columns
    buses = _balanced([_bus(bus, inner - _TREE) for bus in node.buses], columns)
    trees = beside([_tree(column) for column in buses], inner + GAP)
    functions = [f for bus in node.buses for slot in bus.slots for f in slot.functions]
    total = sum(1 + len(function.vfs) for function in functions)
    name = "NUMA node unknown" if node.number is None else f"NUMA node {node.number}"

    def draw(canvas: Canvas, x: float, y: float) -> None:
        canvas.text(x + _PAD, y + 24, name, "head")
        canvas.text(x + room - _PAD, y + 24, number(total, "function"), "small", "soft", end=True)
        trees.draw(canvas, x + _PAD, y + 38)

    return Block(38 + trees.height + _PAD, draw)


def _balanced(blocks: Sequence[Block], columns: int) -> list[list[Block]]:
    """Return blocks in their order in columns of about the same height."""
    share = sum(block.height + GAP for block in blocks) / columns
    found, taken = [list[Block]() for _ in range(columns)], 0.0
    for block in blocks:
        at = min(int((taken + block.height / 2) / share), columns - 1) if share else 0
        found[at].append(block)
        taken += block.height + GAP
    return [column for column in found if column]


def _tree(blocks: Sequence[Block]) -> Block:
    """Return buses as branches of one line on the left."""
    whole = stacked(blocks)

    def draw(canvas: Canvas, x: float, y: float) -> None:
        at = y
        for number_, block in enumerate(blocks):
            up = GAP + blocks[number_ - 1].height if number_ else 0
            canvas.path(f"M{x + 4:.1f} {at + 8 - up:.1f}V{at + 8:.1f}H{x + _TREE - 4:.1f}", "tree")
            at += block.height + GAP
        whole.draw(canvas, x + _TREE, y)

    return whole if not blocks else Block(whole.height, draw)


def _bus(bus: Bus, room: float) -> Block:
    slots = stacked([slot_block(slot, room) for slot in bus.slots], 8)
    name = f"bus {bus.name.removeprefix('0000:')}"

    def draw(canvas: Canvas, x: float, y: float) -> None:
        canvas.text(x, y + 12, name, "name")
        if bus.bridge:
            after = x + width(name, "name") + 8
            canvas.text(after, y + 12, f"behind port {short(bus.bridge)}", "small", "soft")
        slots.draw(canvas, x, y + 20)

    return Block(20 + slots.height, draw)


# --- owners


def _owners(belongings: Iterable[Belonging]) -> Iterator[Block]:
    """Yield a heading and who has what, with names at full length."""
    by_owner = [(o, list(these)) for o, these in groupby(belongings, key=lambda each: each.owner)]
    if by_owner:
        room = (WIDTH - 2 * MARGIN - 2 * GAP) / 3
        cards = [_owner_card(owner, these, room) for owner, these in by_owner]
        yield Block(16, lambda canvas, x, y: canvas.text(x, y + 14, "Who has what", "head"))
        yield grid(cards, 3, room)


def _owner_card(owner: str, has: Sequence[Belonging], room: float) -> Block:
    names = wrapped(owner, "name", room - 24)
    rows = [_row(each, room - 24) for each in has]
    height = 12 + len(names) * 16 + sum(len(row) for row in rows) * 15 + 6

    def draw(canvas: Canvas, x: float, y: float) -> None:
        canvas.box(x, y, room, height, "card")
        canvas.lines(x + 12, y + 20, names, "name")
        at = y + 20 + len(names) * 16
        for lines in rows:
            for line in lines:
                canvas.text(x + 12, at, line, "small", "soft")
                at += 15

    return Block(height, draw)


def _row(of: Belonging, room: float) -> list[str]:
    has = ", ".join(map(short, of.addresses))
    return wrapped(f"{of.component}: {has}" if of.component else has, "small", room)
