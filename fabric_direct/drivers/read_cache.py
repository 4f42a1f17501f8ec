"""Reads that are made once in a moment, however many ask.

A plan asks every step *is it so already?*, and many of them read the same: the server, its ports, the
network of each. Nothing is changed meanwhile, so one answer serves them all: a still :class:`Moment`,
and :func:`read`.

An operation that changes things has a :class:`Moment`, too, which a driver may use for an API each
call of which costs a round trip. Its answers are dropped with each change; what changes by itself (a
server that is being built) must be read past it, or after :meth:`Moment.over`.
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


class Moment:
    """Answers that hold until something is changed; shared by the threads of one operation."""

    def __init__(self, *, still: bool = False) -> None:
        """Begin with no answers.

        :param still: nothing at all is changed in it, as in a plan.
        """
        self.still = still
        self._lock = threading.Lock()
        self._answers: dict[str, dict[Hashable, Any]] = {}
        self._changes = 0
        self.warnings: list[str] = []
        """What was put right by the way, a sentence each."""

    @contextmanager
    def lasting(self) -> Iterator[None]:
        """Make this the moment of what is called within the block."""
        before = _current.set(self)
        try:
            yield
        finally:
            _current.reset(before)

    def ask(self, key: Hashable, question: Callable[[], R], about: str = "") -> R:
        """Return the answer to a question, asked once for each key.

        An answer that something changed during is given, but not kept. Errors are not kept.

        :param about: what the question is about, for :meth:`over`.
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

    def know(self, key: Hashable, answer: Any, about: str = "") -> None:
        """Keep the answer to a question that was asked elsewhere, just now."""
        with self._lock:
            self._answers.setdefault(about, {})[key] = answer

    def over(self, about: str | None = None) -> None:
        """Forget what was answered: all, or what is about one thing, for example ``servers``."""
        with self._lock:
            self._changes += 1
            if about is None:
                self._answers.clear()
            else:
                self._answers.pop(about, None)


_current: ContextVar[Moment | None] = ContextVar("moment", default=None)


def current() -> Moment | None:
    """Return the moment that the caller is in, if any."""
    return _current.get()


def warn(text: str) -> None:
    """Tell who asked for the operation what was found wrong by the way, and put right."""
    log.warning(text)
    moment = _current.get()
    if moment is not None and text not in moment.warnings:
        moment.warnings.append(text)


def read(function: Callable[P, R]) -> Callable[P, R]:
    """Have a function that only reads answer once while nothing is changed, for each of its arguments.

    Its arguments must be hashable.
    """

    @wraps(function)
    def once(*args: P.args, **kwargs: P.kwargs) -> R:
        moment = _current.get()
        if moment is None or not moment.still:
            return function(*args, **kwargs)
        key = (function, args, frozenset(kwargs.items()))
        return moment.ask(key, lambda: function(*args, **kwargs))

    return once
