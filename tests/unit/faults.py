"""Calls of the fakes' methods, each of which fails once."""

from collections.abc import Callable, Collection
from typing import Any, TypeVar

import pytest

F = TypeVar("F", bound=Callable[..., Any])


def at_each_call(calls: dict[str, Collection[int]]) -> Callable[[F], F]:
    """Parametrize ``method`` and ``at``: the calls of a method, by their number from 1.

    The test's ``processor`` runs one step at a time. Where steps run in parallel, one may use what
    another has just read, or has to read again since another has just changed something: the number of
    calls differs from run to run.
    """
    cases = [(method, at) for method, numbers in calls.items() for at in numbers]

    def marked(test: F) -> F:
        return pytest.mark.serial_steps(pytest.mark.parametrize(("method", "at"), cases)(test))

    return marked
