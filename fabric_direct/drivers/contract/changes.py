"""Reports by a driver of changes that others, or the substrate itself, make to what it serves."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol


@dataclass(frozen=True, slots=True)
class Change:
    """Something has changed; how, its driver says when it is asked."""

    kind: Literal["server", "uplink", "unknown"]
    """``unknown``: whatever changed before the driver heard anything."""
    names: tuple[str, ...] = ()
    """Of a server its id, or its domain's UUID and name; of an uplink its link."""
    what: str = ""
    """What happened, in a few words: ``the domain was started``."""


Tell = Callable[[Change], None]
"""Takes a change, and returns at once."""


class Hearing:
    """The time in which a source tells of changes: until either side ends it."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._error: Exception | None = None

    @property
    def over(self) -> bool:
        """Return whether it was ended."""
        return self._over.is_set()

    def end(self, error: Exception | None = None) -> None:
        """End it; a source that hears nothing any more says why."""
        if not self.over:
            self._error = error
        self._over.set()

    def wait(self, seconds: float | None = None) -> bool:
        """Block until its end, or for some seconds; return whether it has ended."""
        return self._over.wait(seconds)

    def raise_error(self) -> None:
        """Raise what ended it, unless it was ended on purpose."""
        if self._error is not None:
            raise self._error


class ChangeSource(Protocol):
    """Tells of changes."""

    def listen(self, tell: Tell, hearing: Hearing) -> None:
        """Call ``tell`` for each change, and block until the hearing ends.

        Once it hears, it tells of an ``unknown`` change: what changed before is not known. A change
        that it hears meanwhile may come before that.

        :raises FabricDirectError: if it cannot hear, or hears nothing any more.
        """
