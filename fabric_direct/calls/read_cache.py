"""A read cache for each operation: the same read is made once, however many steps ask for it.

A plan checks every step, and many of them read the same: the server, its ports, the network of each.
A plan changes nothing, so one answer serves them all: a read-only :class:`ReadCache`, and :func:`read`.

An operation that changes things has a :class:`ReadCache`, too. It keeps what drivers answer to questions
that are marked so (:mod:`.reading`), until one of them changes something. A driver may use it for an API
each call of which costs a round trip. Each change invalidates it. What changes by itself (a server that
is being built) must be read past it, or after :meth:`ReadCache.invalidate`.
"""

import logging
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
log = logging.getLogger(__name__)


class ReadCache:
    """Answers that hold until something is changed; shared by the threads of one operation."""

    def __init__(self, *, read_only: bool = False) -> None:
        """Start with no answers.

        :param read_only: whether the operation changes nothing at all, as a plan.
        """
        self.read_only = read_only
        self._lock = threading.Lock()
        self._answers: dict[str, dict[Hashable, Any]] = {}
        self._of_drivers: dict[Hashable, Any] = {}
        self._changes = 0
        self.warnings: list[str] = []
        """What was found wrong and corrected along the way, a sentence each."""
        self.device_changes: dict[str, str] = {}
        """What a controller would send to its devices, by their names, as its dry run shows it."""
        self.facts: dict[Hashable, Any] = {}
        """What stays true in the operation, whatever it changes."""

    @contextmanager
    def active(self) -> Iterator[None]:
        """Make this the :func:`current` cache of what is called within the block."""
        before = _current.set(self)
        try:
            yield
        finally:
            _current.reset(before)

    def use(self) -> None:
        """Make this the :func:`current` cache of the caller's context, until that ends."""
        _current.set(self)

    def get(self, key: Hashable, question: Callable[[], R], about: str = "") -> R:
        """Return the answer to a question, asked once for each key.

        An answer is not kept if the cache was invalidated meanwhile. Errors are not kept.

        :param about: what the question is about, for :meth:`invalidate`.
        """
        with self._lock:
            known = self._answers.get(about, {})
            if key in known:
                return known[key]  # type: ignore[no-any-return]
            changes = self._changes
        answer = question()
        with self._lock:
            if changes == self._changes:
                self._answers.setdefault(about, {})[key] = answer
        return answer

    def once(self, key: Hashable, question: Callable[[], R]) -> R:
        """Return a driver's answer, asked for once until anything is changed or invalidated."""
        with self._lock:
            if key in self._of_drivers:
                return self._of_drivers[key]  # type: ignore[no-any-return]
            changes = self._changes
        answer = question()
        with self._lock:
            if changes == self._changes:
                self._of_drivers[key] = answer
        return answer

    def changed(self) -> None:
        """Forget what drivers answered: one of them may have changed something."""
        with self._lock:
            self._changes += 1
            self._of_drivers.clear()

    def put(self, key: Hashable, answer: Any, about: str = "") -> None:
        """Keep the answer to a question that was asked elsewhere, just now."""
        with self._lock:
            self._answers.setdefault(about, {})[key] = answer

    def invalidate(self, *about: str) -> None:
        """Forget the answers about some things, for example ``servers``, or all if none is named."""
        self.changed()
        with self._lock:
            for each in about or tuple(self._answers):
                self._answers.pop(each, None)


_current: ContextVar[ReadCache | None] = ContextVar("read cache", default=None)


def current() -> ReadCache | None:
    """Return the read cache of the caller, if any."""
    return _current.get()


@contextmanager
def reading_once() -> Iterator[None]:
    """Change nothing within the block, so that what it reads, or all its caller reads, is read once."""
    reads = _current.get()
    with reads.active() if reads and reads.read_only else ReadCache(read_only=True).active():
        yield


def warn(text: str) -> None:
    """Warn the caller of the operation of what was found wrong and corrected along the way."""
    log.warning(text)
    reads = _current.get()
    if reads is not None and text not in reads.warnings:
        reads.warnings.append(text)


def read(function: Callable[P, R]) -> Callable[P, R]:
    """Cache the answers of a function that only reads, for each of its arguments, in a read-only cache.

    The arguments must be hashable.
    """

    @wraps(function)
    def once(*args: P.args, **kwargs: P.kwargs) -> R:
        reads = _current.get()
        if reads is None or not reads.read_only:
            return function(*args, **kwargs)
        key = (function, args, frozenset(kwargs.items()))
        return reads.get(key, lambda: function(*args, **kwargs))

    return once
