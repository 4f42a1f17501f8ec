"""What must still hold when something is about to be changed.

A lock that others can take over does not keep its holder from going on: one that was frozen wakes, and
knows nothing of it. So each call of a driver that may change something asks first.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class Fence(Protocol):
    """A lock that is held in a context, and can be lost."""

    def check(self, seconds: float) -> None:
        """Return if the lock is still held.

        :param seconds: how long to wait, at most, until that is known.
        :raises LockLost: if it is not held any more, or that is not known by then.
        """


_fences: ContextVar[tuple[Fence, ...]] = ContextVar("fences", default=())


@contextmanager
def behind(fence: Fence) -> Iterator[None]:
    """Have nothing changed in the block, nor in contexts copied in it, once the lock is lost."""
    before = _fences.set((*_fences.get(), fence))
    try:
        yield
    finally:
        _fences.reset(before)


@contextmanager
def outside() -> Iterator[None]:
    """Have none of the locks of the context concern the block: it goes on when they are released."""
    before = _fences.set(())
    try:
        yield
    finally:
        _fences.reset(before)


def fences() -> tuple[Fence, ...]:
    """Return the locks that are held in this context, the first one first."""
    return _fences.get()


def refuse_lost(seconds: float) -> None:
    """Raise LockLost unless all of them are still held; see :meth:`Fence.check`."""
    for fence in _fences.get():
        fence.check(seconds)
