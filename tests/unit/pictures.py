"""Pictures as tests look at them: their boxes, lines and texts, with how much room these take."""

from collections.abc import Iterator
from itertools import takewhile
from typing import NamedTuple
from xml.etree import ElementTree

from fabric_direct.topology.drawing.text import FACES, width

NAMESPACE = "{http://www.w3.org/2000/svg}"


class Box(NamedTuple):
    """A part of a picture: a box, or what surrounds a text."""

    left: float
    top: float
    right: float
    bottom: float
    what: str = ""

    def apart_from(self, other: "Box") -> bool:
        return (
            self.right <= other.left
            or other.right <= self.left
            or self.bottom <= other.top
            or other.bottom <= self.top
        )

    def within(self, other: "Box") -> bool:
        return (
            other.left <= self.left
            and self.right <= other.right
            and other.top <= self.top
            and self.bottom <= other.bottom
        )


class Picture:
    """An SVG document."""

    def __init__(self, svg: str) -> None:
        self.root = ElementTree.fromstring(svg)
        self.boxes = [_box(rect) for rect in self.root.iter(f"{NAMESPACE}rect")]
        self.writing = [_writing(text) for text in self.root.iter(f"{NAMESPACE}text")]
        self.texts = [box.what for box in self.writing]

    @property
    def titles(self) -> list[str]:
        """What viewers show of parts that are pointed at."""
        return [title.text or "" for title in self.root.iter(f"{NAMESPACE}title")]

    def marks(self) -> list[str]:
        """Return the states whose marks are drawn."""
        paths = self.root.iter(f"{NAMESPACE}path")
        classes = (path.get("class", "").split() for path in paths)
        return [names[-1].removeprefix("fd-m-") for names in classes if "fd-mark" in names]

    def lines(self, kind: str) -> int:
        """Return how many lines of a kind there are."""
        paths = self.root.iter(f"{NAMESPACE}path")
        return sum(f"fd-{kind}" in path.get("class", "").split() for path in paths)

    def faults(self) -> Iterator[str]:
        """Yield what cannot be read: boxes or texts that overlap, texts that leave their box."""
        for one, other in _beside(self.boxes):
            if not (one.apart_from(other) or one.within(other) or other.within(one)):
                yield f"{one} overlaps {other}"
        for one, other in _beside(self.writing):
            if not one.apart_from(other):
                yield f"{one} is over {other}"
        for text in self.writing:
            around = self._around(text)
            if not text.within(around):
                yield f"{text} leaves {around}"

    def _around(self, text: Box) -> Box:
        """Return the smallest box in which a text begins."""
        start = Box(text.left, text.bottom - 2, text.left, text.bottom - 2)
        there = [box for box in self.boxes if start.within(box)]
        return min(there, key=lambda box: (box.right - box.left) * (box.bottom - box.top))


def _beside(boxes: list[Box]) -> Iterator[tuple[Box, Box]]:
    """Yield the pairs that meet in height."""
    ordered = sorted(boxes, key=lambda box: box.top)
    for number, one in enumerate(ordered):
        for other in takewhile(lambda box, one=one: box.top < one.bottom, ordered[number + 1 :]):
            yield one, other


def _box(rect: ElementTree.Element) -> Box:
    x, y, across, down = (float(rect.get(name, "0")) for name in ("x", "y", "width", "height"))
    return Box(x, y, x + across, y + down, rect.get("class", ""))


def _writing(text: ElementTree.Element) -> Box:
    """Return the room of a text: of a capital letter above its base line, and of a tail below it."""
    kind, said = text.get("class", "").split()[0].removeprefix("fd-"), text.text or ""
    x, y, across = float(text.get("x", "0")), float(text.get("y", "0")), width(said, kind)
    left = {"end": x - across, "middle": x - across / 2}.get(text.get("text-anchor", ""), x)
    size = FACES[kind].size
    return Box(left, y - 0.76 * size, left + across, y + 0.24 * size, said)
