"""The canvas of a picture: boxes, lines, marks and text, as elements of SVG."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from xml.etree import ElementTree

from fabric_direct.topology.drawing.style import MARKS, css_class, style_sheet
from fabric_direct.topology.drawing.text import FACES, clipped

MARGIN = 28.0
"""Around the picture."""
GAP = 14.0
"""Between boxes."""


class Canvas:
    """A picture that is being drawn. Units are pixels of a screen that shows it at its full size."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._top = ElementTree.Element("g")
        self._into = self._top

    @contextmanager
    def group(self, title: str = "") -> Iterator[None]:
        """Group what is drawn in the block, with a text that viewers show on pointing at it."""
        outer, self._into = self._into, ElementTree.SubElement(self._into, "g")
        if title:
            ElementTree.SubElement(self._into, "title").text = _legal(title)
        yield
        self._into = outer

    def box(
        self, x: float, y: float, width: float, height: float, *kinds: str, round_: float = 4
    ) -> None:
        """Draw a box."""
        self._add("rect", kinds, x=x, y=y, width=width, height=height, rx=round_)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        kind: str,
        colour: str = "ink",
        *,
        end: bool = False,
        middle: bool = False,
    ) -> None:
        """Write a line of text; y is its base line, x its left end, its right end, or its middle."""
        anchor = {"text_anchor": "end"} if end else {"text_anchor": "middle"} if middle else {}
        self._add("text", (kind, colour), x=x, y=y, **anchor).text = _legal(text)

    def lines(
        self, x: float, y: float, lines: Iterable[str], kind: str, colour: str = "ink"
    ) -> None:
        """Write lines of text, the first one with its base line at y."""
        for number, line in enumerate(lines):
            self.text(x, y + number * line_height(kind), line, kind, colour)

    def path(self, path: str, *kinds: str) -> None:
        """Draw a line."""
        self._add("path", kinds, d=path)

    def mark(self, x: float, y: float, state: str, colour: str | None = None) -> None:
        """Draw the mark of a state, or of a kind, around a point."""
        name = css_class(state)
        shape = self._add("path", ("mark", f"s-{colour or name}", f"m-{name}"), d=MARKS[name])
        shape.set("transform", f"translate({_number(x)} {_number(y)})")

    def badge(self, x: float, y: float, letter: str, colour: int) -> None:
        """Draw the letter of a network around a point."""
        self._add("circle", (f"f-{colour}",), cx=x, cy=y, r=9)
        self.text(x, y + 3.6, letter, "badge", "on-wire", middle=True)

    def _add(
        self, tag: str, kinds: Sequence[str], **attributes: float | str
    ) -> ElementTree.Element:
        named = {k.replace("_", "-"): _number(v) for k, v in attributes.items()}
        named["class"] = " ".join(f"fd-{kind}" for kind in kinds)
        return ElementTree.SubElement(self._into, tag, named)

    def svg(self, width: float, height: float, title: str, description: str) -> str:
        """Return the document.

        :param title: what a screen reader says of the picture; the description tells the facts.
        """
        root = ElementTree.Element(
            "svg",
            {
                "xmlns": "http://www.w3.org/2000/svg",
                "viewBox": f"0 0 {_number(width)} {_number(height)}",
                "class": "fd-topology",
                "role": "img",
                "aria-label": _legal(title),
            },
        )
        ElementTree.SubElement(root, "title").text = _legal(title)
        ElementTree.SubElement(root, "desc").text = _legal(description)
        ElementTree.SubElement(root, "style").text = style_sheet()
        page = {"width": _number(width), "height": _number(height), "class": "fd-page"}
        ElementTree.SubElement(root, "rect", page)
        root.extend(self._top)
        ElementTree.indent(root)
        return ElementTree.tostring(root, encoding="unicode") + "\n"


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")


def _legal(text: str) -> str:
    """Return a text with the characters alone that XML may have."""
    return "".join(
        c if c.isprintable() else " " if c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text
    )


def line_height(kind: str) -> float:
    """Return the distance between two lines of text."""
    return round(FACES[kind].size * 1.35, 1)


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a picture: how high it is, and what draws it at a place."""

    height: float
    draw: Callable[[Canvas, float, float], None]


def stacked(blocks: Sequence[Block], gap: float = GAP) -> Block:
    """Return blocks one below the other."""

    def draw(canvas: Canvas, x: float, y: float) -> None:
        for block in blocks:
            block.draw(canvas, x, y)
            y += block.height + gap

    return Block(sum(b.height for b in blocks) + gap * max(len(blocks) - 1, 0), draw)


def beside(columns: Sequence[Block], step: float) -> Block:
    """Return blocks one beside the other.

    :param step: from the left end of one to that of the next.
    """

    def draw(canvas: Canvas, x: float, y: float) -> None:
        for number, column in enumerate(columns):
            column.draw(canvas, x + number * step, y)

    return Block(max((column.height for column in columns), default=0), draw)


def grid(blocks: Sequence[Block], columns: int, width: float) -> Block:
    """Return blocks in rows of so many, each of this width."""
    rows = [blocks[n : n + columns] for n in range(0, len(blocks), columns)]
    return stacked([beside(row, width + GAP) for row in rows])


def headline(canvas: Canvas, width: float, title: str, about: Sequence[str]) -> float:
    """Write the title of a picture, and lines about it; return where the rest may begin."""
    room = width - 2 * MARGIN
    canvas.text(MARGIN, MARGIN + 18, clipped(title, "title", room), "title")
    y = MARGIN + 40
    for line in about:
        canvas.text(MARGIN, y, clipped(line, "text", room), "text", "soft")
        y += line_height("text")
    return y
