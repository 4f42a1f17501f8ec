"""Reads that are made once in a moment, however many ask.

A plan asks every step *is it so already?*, and many of them read the same: the server, its ports, the
network of each. Nothing is changed meanwhile, so one answer serves them all. Outside of a moment, which
is where anything is changed, every question is asked.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_answers: ContextVar[dict[Any, Any] | None] = ContextVar("answers", default=None)


@contextmanager
def one_moment() -> Iterator[None]:
    """Make each read once at most within the block, in this thread; nothing may be changed in it."""
    before = _answers.set({})
    try:
        yield
    finally:
        _answers.reset(before)


def read(function: Callable[P, R]) -> Callable[P, R]:
    """Have a function that only reads answer once in a moment, for each of its arguments.

    Its arguments must be hashable. Errors are not kept.
    """

    @wraps(function)
    def once(*args: P.args, **kwargs: P.kwargs) -> R:
        answers = _answers.get()
        if answers is None:
            return function(*args, **kwargs)
        key = (function, args, frozenset(kwargs.items()))
        if key not in answers:
            answers[key] = function(*args, **kwargs)
        answer: R = answers[key]
        return answer

    return once
