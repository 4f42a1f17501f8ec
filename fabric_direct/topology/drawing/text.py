"""Measure the width of text, and make text fit.

The font of a viewer is not known. Widths are those of DejaVu Sans, the widest of the requested fonts:
text that fits in it fits in the others.
"""

from collections.abc import Iterable
from typing import NamedTuple
from unicodedata import east_asian_width

ELLIPSIS = "…"
SEPARATOR = " · "
"""Between the parts of a list in one line."""


class Face(NamedTuple):
    """The size of text, and whether it is bold."""

    size: float
    bold: bool = False


FACES = {
    "title": Face(21, bold=True),
    "head": Face(14, bold=True),
    "name": Face(12, bold=True),
    "text": Face(12),
    "small": Face(10.5),
    "strong": Face(10.5, bold=True),
    "badge": Face(10, bold=True),
}
"""The kinds of text, by the end of their CSS class."""


def _widths(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split()))


# Advance widths from the space to the tilde, in hundredths of the size (DejaVu Sans 2.37).
_PLAIN = _widths(
    "32 40 46 84 64 95 78 27 39 39 50 84 32 36 32 34 64 64 64 64 64 64 64 64 64 64 34 34 84 84 84 "
    "53 100 68 69 70 77 63 58 77 75 29 29 66 56 86 75 79 60 79 69 63 61 73 68 99 69 61 69 39 34 "
    "39 84 50 50 61 63 55 63 62 35 63 63 28 28 58 28 97 63 61 63 63 41 52 39 63 59 82 59 59 52 64 "
    "34 64 84"
)
_BOLD = _widths(
    "35 46 52 84 70 100 87 31 46 46 52 84 38 42 38 37 70 70 70 70 70 70 70 70 70 70 40 40 84 84 "
    "84 58 100 77 76 73 83 68 68 82 84 37 37 77 64 100 84 85 73 85 77 72 68 81 77 110 77 72 73 46 "
    "37 46 84 50 50 67 72 59 72 68 44 72 71 34 34 67 34 104 71 69 72 72 49 60 48 71 65 92 65 65 "
    "58 71 37 71 84"
)
_OTHER, _WIDE = 90, 120
"""Of a character beyond ASCII, and of one that East Asian fonts give the width of two."""


def width(text: str, kind: str) -> float:
    """Return how wide a text of a kind is at most, in units of the drawing."""
    face = FACES[kind]
    table = _BOLD if face.bold else _PLAIN
    return sum(_advance(c, table) for c in text) * face.size / 100


def _advance(character: str, table: tuple[int, ...]) -> int:
    place = ord(character) - 32
    if 0 <= place < len(table):
        return table[place]
    return 40 if character == "·" else _WIDE if east_asian_width(character) in "WF" else _OTHER


def clipped(text: str, kind: str, room: float) -> str:
    """Return a text as far as it has room, with an ellipsis for the rest."""
    if width(text, kind) <= room:
        return text
    end = _fitting(text, kind, room - width(ELLIPSIS, kind))
    return text[:end].rstrip() + ELLIPSIS if end else ELLIPSIS


def clipped_owner(owner: str, kind: str, room: float) -> str:
    """Return ``<sliver>/<component>`` as far as it has room: of both, the beginning is told."""
    sliver, slash, component = owner.partition("/")
    if not slash or width(owner, kind) <= room:
        return clipped(owner, kind, room)
    least = width(sliver[:4] + ELLIPSIS + slash, kind)
    component = clipped(component, kind, max(room - least, room / 2))
    return clipped(sliver, kind, room - width(slash + component, kind)) + slash + component


def _fitting(text: str, kind: str, room: float) -> int:
    """Return how many characters of a text have room."""
    end, taken = 0, 0.0
    for character in text:
        taken += width(character, kind)
        if taken > room:
            break
        end += 1
    return end


def wrapped(text: str, kind: str, room: float, most: int = 99) -> list[str]:
    """Return the lines of a text, broken between the parts of a list, at spaces, or within a long word.

    :param most: how many lines there may be; the last one is clipped.
    """
    lines = [""]
    for part in text.split(SEPARATOR):
        joined = f"{lines[-1]}{SEPARATOR}{part}" if lines[-1] else part
        if width(joined, kind) <= room:
            lines[-1] = joined
        else:
            lines += _filled(part, kind, room)
    lines = [line for line in lines if line]
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], clipped(" ".join(lines[most - 1 :]), kind, room)]


def _filled(text: str, kind: str, room: float) -> list[str]:
    lines = [""]
    for word in text.split():
        joined = f"{lines[-1]} {word}".strip()
        if width(joined, kind) <= room:
            lines[-1] = joined
        else:
            lines += _broken(word, kind, room)
    return lines


def _broken(word: str, kind: str, room: float) -> list[str]:
    parts = []
    while word:
        end = max(_fitting(word, kind, room), 1)
        within = max(word.rfind(mark, 0, end) for mark in "/-,") + 1
        end = within if end < len(word) and within > end / 2 else end
        parts.append(word[:end])
        word = word[end:]
    return parts


def listed(parts: Iterable[str | None]) -> str:
    """Return what there is of some parts, in one line: ``2 cores · 4 GiB``."""
    return SEPARATOR.join(part for part in parts if part)


def number(count: int, noun: str) -> str:
    """Return ``1 VF`` or ``2 VFs``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
