"""Calls of the fakes' methods, each of which fails once."""

from collections.abc import Collection

import pytest


def at_each_call(calls: dict[str, Collection[int]]) -> pytest.MarkDecorator:
    """Parametrize ``method`` and ``at``: the calls of a method, by their number from 1."""
    cases = [(method, at) for method, numbers in calls.items() for at in numbers]
    return pytest.mark.parametrize(("method", "at"), cases)
