"""Templates, and how values become text in them."""

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from fabric_direct.page.overview import host_link, sliver_link
from fabric_direct.templates import environment

_WORDS = {"": "not known", "host-used": "used by the host"}
_WRONG = frozenset(
    {
        "error",
        "silent",
        "quarantined",
        "lost",
        "unclean",
        "failed",
        "partial",
        "differs",
        "undo failed",
    }
)
_RIGHT = frozenset({"running", "answers", "free", "done", "already so", "repaired"})


def render(template: str, **values: Any) -> str:
    """Return a template filled in; a value that is not given is an error."""
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> Environment:
    made = environment("page", finalize=_shown)
    made.filters |= {
        "when": when,
        "ago": ago,
        "since": since,
        "kind": kind,
        "words": words,
        "counted": counted,
    }
    made.globals |= {"host_link": host_link, "sliver_link": sliver_link}
    return made


def _shown(value: Any) -> Any:
    """Escape control characters and what turns text around: guests and users can send them."""
    if isinstance(value, str) and not isinstance(value, Markup) and not value.isprintable():
        return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in value)
    return value


def when(at: str) -> str:
    """Return a time of ISO 8601 as the clocks of this machine say it, without their zone."""
    return datetime.fromisoformat(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def ago(seconds: float | None) -> str:
    """Return an age in words: ``4 s ago``."""
    if seconds is None:
        return "never"
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def since(at: str, wall: float) -> str:
    """Return how long ago a time of ISO 8601 was, by a time in seconds since 1970."""
    return ago(max(0.0, wall - datetime.fromisoformat(at).timestamp()))


def kind(state: str) -> str:
    """Return the class of a state, for its colour: the word itself says it, too."""
    return "wrong" if state in _WRONG else "right" if state in _RIGHT else "plain"


def words(state: str) -> str:
    """Return a state in words."""
    return _WORDS.get(state, state)


def counted(counts: Mapping[str, int]) -> str:
    """Return numbers by their names: ``3 free, 1 used``."""
    return ", ".join(f"{number} {words(state)}" for state, number in counts.items())
