"""What a forked child resets: locks that a thread of the parent may hold, and the parent's connections.

Threads do not survive a fork, and connections must not be shared across one. Whoever has either
registers a reset here; this module alone registers with Python.
"""

import os
import threading
import weakref
from collections.abc import Callable
from itertools import count
from types import MethodType
from typing import TypeVar

Reset = Callable[[], object]
F = TypeVar("F", bound=Reset)

_resets: "dict[int, Callable[[], Reset | None]]" = {}
_numbers = count()


def in_child(reset: F) -> F:
    """Call a function in each forked child, in the order of registration.

    A bound method is called as long as its object lives; registering it does not keep the object alive.
    A function is kept for good. Can be used as a decorator.
    """
    number = next(_numbers)
    if isinstance(reset, MethodType):
        # Bound now: when the interpreter ends, the module may go before the object does.
        forget = _resets.pop
        _resets[number] = weakref.WeakMethod(reset, lambda _: forget(number, None))
    else:
        _resets[number] = lambda: reset
    return reset


class Lock:
    """A lock for ``with`` that is free in a forked child, whoever held it in the parent."""

    def __init__(self) -> None:
        self._reset()
        in_child(self._reset)

    def _reset(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def _after_fork() -> None:
    for reference in tuple(_resets.values()):
        reset = reference()
        if reset is not None:
            reset()


os.register_at_fork(after_in_child=_after_fork)
