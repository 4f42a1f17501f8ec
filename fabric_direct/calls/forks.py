"""Reset, in a forked child, locks that a thread of the parent may hold, and the parent's connections.

Threads do not survive a fork, and connections must not be shared across one. Code that has either
registers a reset here; only this module registers with Python.

The locks of OpenSSL cannot be reset. A thread that has used it takes one when it ends, after Python is
done with it: a fork waits until no thread is ending.
"""

import os
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from time import monotonic, sleep
from types import MethodType
from typing import Any, Generic, Self, TypeVar, cast, overload

Reset = Callable[[], object]
F = TypeVar("F", bound=Reset)
T = TypeVar("T")

_resets: "dict[int, Callable[[], Reset | None]]" = {}
_numbers = count()

ENDING = 0.1
"""Seconds that a fork waits, at most, for threads that are ending."""

_not_pythons: set[int] = set()
"""Threads that are none of Python's: an earlier fork waited for them in vain."""


def in_child(reset: F) -> F:
    """Call a function in each forked child, in the order of registration.

    A bound method is called as long as its object lives; registering it does not keep the object alive.
    A function is kept for good. Can be used as a decorator.
    """
    number = next(_numbers)
    _resets[number] = _weak(reset, number) if isinstance(reset, MethodType) else lambda: reset
    return reset


def _weak(method: MethodType, number: int) -> Callable[[], Reset | None]:
    """Return what gives the method as long as its object lives; forget the number when that goes."""
    # Bound now: when the interpreter ends, the module may go before the object does.
    # weakref.WeakMethod would say "Exception ignored" if it goes before its object, too.
    forget, function = _resets.pop, method.__func__
    owner = weakref.ref(method.__self__, lambda _: forget(number, None))

    def bound() -> Reset | None:
        alive = owner()
        return None if alive is None else MethodType(function, alive)

    return bound


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


class cached_property(Generic[T]):  # noqa: N801 - named as that of functools
    """A property that is computed once for each object.

    Before Python 3.12 that of functools has a lock for all objects of a class, which a child forked
    while a thread computes would wait for in vain. This one has none: threads that ask at the same time
    may each compute it, and all get the same value.
    """

    def __init__(self, function: Callable[[Any], T]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> T: ...
    def __get__(self, instance: object | None, owner: type | None = None) -> T | Self:
        if instance is None:
            return self
        value = self._function(instance)
        return cast(T, vars(instance).setdefault(self._function.__name__, value))


def _unknown_threads() -> set[int]:
    """Return the ids of the process's threads that Python does not know, or no more."""
    with suppress(OSError):  # no /proc
        every = {int(task.name) for task in Path("/proc/self/task").iterdir()}
        known = {thread.native_id for thread in threading.enumerate()}
        return every - known - {threading.get_native_id()}  # the own one is stale after a fork
    return set()


def _before_fork() -> None:
    until = monotonic() + ENDING
    while (unknown := _unknown_threads()) - _not_pythons and monotonic() < until:
        sleep(0.0005)
    _not_pythons.clear()
    _not_pythons.update(unknown)


def _after_fork() -> None:
    _not_pythons.clear()
    for reference in tuple(_resets.values()):
        reset = reference()
        if reset is not None:
            reset()


os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
