"""Reports of what the work of this context waits for, from loops that wait to the display of progress.

Without a listener nothing is reported, and it costs nothing.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Waiting:
    """The thing that is waited for, from the moment at which it is reported."""

    what: str
    """As in *waiting for* ``the guest to answer``; empty: the waiting is over."""
    seen: str = ""
    """What was seen last: ``server BUILD``; empty if nothing tells."""

    def __str__(self) -> str:
        """Return it for logs: ``waits for the guest to answer``."""
        if not self.what:
            return "waits no more"
        return f"waits for {self.what}" + (f": {self.seen}" if self.seen else "")


_OVER = Waiting("")
Hear = Callable[[Waiting], object]
_hear: ContextVar[Hear | None] = ContextVar("hear", default=None)


@contextmanager
def heard_by(hear: Hear) -> Iterator[None]:
    """Have what the work in the block waits for told to a function, whenever that changes.

    :param hear: called from any thread that works for the block, also after its end, if a call was given
        up. It must not block.
    """
    last = _OVER

    def hear_changes(waiting: Waiting) -> None:
        nonlocal last
        if waiting != last:
            last = waiting
            hear(waiting)

    before = _hear.set(hear_changes)
    try:
        yield
    finally:
        _hear.reset(before)


@contextmanager
def waiting_for(what: str) -> Iterator[Callable[[str], object]]:
    """Yield a function that says that ``what`` is still waited for, and what was seen of it.

    It may be called from any thread. Nothing is waited for any more when the block ends.
    """
    hear = _hear.get()
    if hear is None:
        yield _nobody
        return
    try:
        yield lambda seen: hear(Waiting(what, seen))
    finally:
        hear(_OVER)


def _nobody(_seen: str) -> None:
    """Hear nothing."""
