"""What a contract says of its methods: which of them only read, and which of these are asked once.

::

    class NetworkDriver(Protocol):
        @reads_once
        def ports(self, sliver_id: str) -> tuple[Port, ...]: ...

        def delete_port(self, sliver_id: str, component: str) -> None: ...

A method without a mark may change something: a call of it that is given up may still take effect.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

M = TypeVar("M", bound=Callable[..., Any])
_MARK = "__fabric_direct_reads__"


@dataclass(frozen=True, slots=True)
class Reading:
    """The methods of a contract that change nothing, by name."""

    all: frozenset[str] = frozenset()
    once: frozenset[str] = frozenset()
    """Those whose answer holds until the operation changes something."""


def reads(method: M) -> M:
    """Mark a method that changes nothing: it does not matter when a call that is given up returns."""
    setattr(method, _MARK, "each time")
    return method


def reads_once(method: M) -> M:
    """Mark a method that changes nothing, and is asked once until the operation changes something.

    Its arguments are hashable, and its answer immutable.
    """
    setattr(method, _MARK, "once")
    return method


@cache
def reading(*contracts: type) -> Reading:
    """Return the methods that contracts, or those that they are composed of, mark."""
    named = {
        name: mark
        for contract in contracts
        for name in dir(contract)
        if (mark := getattr(getattr(contract, name), _MARK, ""))
    }
    once = frozenset(name for name, mark in named.items() if mark == "once")
    return Reading(frozenset(named), once)
