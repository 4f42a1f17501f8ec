"""The look of all pictures: one style sheet, and the shapes of marks.

No state is told by a colour alone: each has a mark of its own shape, and its name beside it. Classes
begin with ``fd-``, and nothing has an id: pictures may be many on a page.
"""

from typing import NamedTuple

from fabric_direct.topology.drawing.text import FACES

FONTS = "'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"

MARKS = {
    "free": "M-4 0A4 4 0 1 1 4 0A4 4 0 1 1 -4 0Z",
    "used": "M-5 0A5 5 0 1 1 5 0A5 5 0 1 1 -5 0Z",
    "host-used": "M-4.5 -4.5H4.5V4.5H-4.5Z",
    "unclean": "M0 -5.2L5.4 4.6H-5.4Z",
    "lost": "M-4.5 0A4.5 4.5 0 1 1 4.5 0A4.5 4.5 0 1 1 -4.5 0ZM-5.4 5.4L5.4 -5.4",
    "quarantined": "M-4.2 -4.2L4.2 4.2M4.2 -4.2L-4.2 4.2",
    "not-allowed": "M-4.5 0H4.5",
    "running": "M-3.8 -5L5 0L-3.8 5Z",
    "stopped": "M-4 -4H4V4H-4Z",
    "paused": "M-2.6 -4.4V4.4M2.6 -4.4V4.4",
    "error": "M-4.2 -4.2L4.2 4.2M4.2 -4.2L-4.2 4.2",
    "absent": "M-4 -4L4 4M-4.8 0A4.8 4.8 0 1 1 4.8 0A4.8 4.8 0 1 1 -4.8 0Z",
    "unknown": "M0 -5.4L5.4 0L0 5.4L-5.4 0Z",
    "warning": "M0 -5.2L5.4 4.6H-5.4Z",
    "network": "M-5 -3.5H5V2H2V4.5H-2V2H-5Z",
    "device": "M-4.5 -4.5H4.5V4.5H-4.5ZM-1.6 -1.6H1.6V1.6H-1.6Z",
    "volume": "M-4.5 -3.2C-4.5 -5.4 4.5 -5.4 4.5 -3.2V3.2C4.5 5.4 -4.5 5.4 -4.5 3.2Z"
    "M-4.5 -3.2C-4.5 -1 4.5 -1 4.5 -3.2",
}
"""The shapes by state or kind, around their middle."""
_HOLLOW = ("free", "lost", "stopped", "absent", "unknown", "network", "device", "volume")
"""Those that are drawn as lines; so are those that consist of lines."""
_LINES = ("quarantined", "not-allowed", "paused", "error")

_TONES = {
    **dict.fromkeys(("free", "host-used", "stopped", "paused", "kind"), "grey"),
    "not-allowed": "pale",
    "used": "blue",
    "running": "green",
    "lost": "purple",
    **dict.fromkeys(("quarantined", "error", "absent"), "red"),
    **dict.fromkeys(("unclean", "unknown", "warning"), "amber"),
}
"""The tones of states and kinds."""


class Palette(NamedTuple):
    """The colours of a picture on light or dark ground."""

    page: str
    ink: str
    soft: str
    """Of text that matters less."""
    line: str
    faint: str
    """Of lines that matter less."""
    panel: str
    card: str
    band: str
    tones: dict[str, tuple[str, str]]
    """Of marks and borders, and of what they are filled with."""
    wires: tuple[str, ...]


LIGHT = Palette(
    page="#ffffff",
    ink="#1f2933",
    soft="#52606d",
    line="#9aa5b1",
    faint="#d9dfe5",
    panel="#f5f7fa",
    card="#ffffff",
    band="#e9eef3",
    tones={
        "grey": ("#52606d", "#ffffff"),
        "pale": ("#7b8794", "#fafbfc"),
        "blue": ("#0b6cad", "#e3f0f9"),
        "green": ("#00735a", "#e0f4ee"),
        "purple": ("#93408f", "#f8e8f6"),
        "red": ("#c02f0c", "#fce7e0"),
        "amber": ("#9a5b00", "#fdf1dc"),
    },
    wires=("#0b6cad", "#bd4b00", "#00735a", "#93408f", "#7a5800", "#475569"),
)
DARK = Palette(
    page="#14181d",
    ink="#e8ecf0",
    soft="#a8b3be",
    line="#6b7885",
    faint="#333d47",
    panel="#1b2127",
    card="#222930",
    band="#2c353e",
    tones={
        "grey": ("#a8b3be", "#222930"),
        "pale": ("#8794a1", "#1d2329"),
        "blue": ("#62b5ee", "#17354b"),
        "green": ("#4fcfa9", "#123c31"),
        "purple": ("#dd93d8", "#42233f"),
        "red": ("#ff8f6e", "#4a2116"),
        "amber": ("#f0b24d", "#43310f"),
    },
    wires=("#62b5ee", "#ff9a57", "#4fcfa9", "#dd93d8", "#e0bb55", "#b4c0cc"),
)


WIRES = len(LIGHT.wires)
"""How many colours of wires there are."""


def css_class(state: str) -> str:
    """Return the end of the class of a state: ``not-allowed``."""
    return state.replace(" ", "-")


def style_sheet() -> str:
    """Return the rules of all classes; dark ones for a screen whose user asks for dark pages."""
    dark = "".join(_colours(DARK))
    on_screen = f"@media screen and (prefers-color-scheme:dark){{{dark}}}"
    return "".join((*_shapes(), *_colours(LIGHT), on_screen))


def _shapes() -> list[str]:
    faces = [
        f".fd-{name}{{font-size:{face.size}px;font-weight:{'bold' if face.bold else 'normal'}}}"
        for name, face in FACES.items()
    ]
    hollow = ",".join(f".fd-mark.fd-m-{name}" for name in (*_HOLLOW, *_LINES))
    return [
        f".fd-topology{{font-family:{FONTS}}}",
        *faces,
        ".fd-mark{stroke-width:1.6;stroke-linejoin:round;stroke-linecap:round}",
        f"{hollow}{{fill:none}}",
        ".fd-m-quarantined,.fd-m-error{stroke-width:2.6}",
        ".fd-card,.fd-panel,.fd-chip{stroke-width:1}",
        ".fd-open{stroke-dasharray:5 4}",
        ".fd-tree,.fd-rule{stroke-width:1;fill:none}",
        ".fd-wire{stroke-width:2;fill:none}",
        ".fd-rail{stroke-width:3.5;fill:none}",
        ".fd-gap{stroke-width:8;fill:none}",
    ]


def _colours(of: Palette) -> list[str]:
    plain = [
        f".fd-page,.fd-on-wire{{fill:{of.page}}}",
        f".fd-ink{{fill:{of.ink}}}",
        f".fd-soft{{fill:{of.soft}}}",
        f".fd-panel{{fill:{of.panel};stroke:{of.faint}}}",
        f".fd-card{{fill:{of.card};stroke:{of.line}}}",
        f".fd-band{{fill:{of.band}}}",
        f".fd-rule{{stroke:{of.faint}}}",
        f".fd-tree{{stroke:{of.line}}}",
        f".fd-gap{{stroke:{of.page}}}",
    ]
    states = [
        f".fd-s-{name}{{stroke:{of.tones[tone][0]};fill:{of.tones[tone][0]}}}"
        f".fd-b-{name}{{fill:{of.tones[tone][1]};stroke:{of.tones[tone][0]}}}"
        for name, tone in _TONES.items()
    ]
    wires = [
        f".fd-w-{n}{{stroke:{colour}}}.fd-f-{n}{{fill:{colour}}}"
        for n, colour in enumerate(of.wires)
    ]
    return [*plain, *states, *wires]
