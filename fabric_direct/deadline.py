"""Time limits: of an operation, of each call that it makes, and of waiting.

A driver's call is limited from outside, by :func:`bounded`, because a call into libvirt cannot be
interrupted. A request to a cloud is limited in its transport, which also decides whether it is
retried: one call of those drivers is many requests, and may wait as long as the operation lasts.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any, ClassVar, Self, TypeVar, cast

from fabric_direct import forks
from fabric_direct.errors import TimedOut

T = TypeVar("T")
Within = Callable[[], AbstractContextManager[None]]


class Deadline:
    """The time by which an operation must end."""

    def __init__(self, at: float) -> None:
        self._at = at

    @classmethod
    def within(cls, seconds: float) -> Self:
        """Return a deadline ``seconds`` from now."""
        return cls(time.monotonic() + seconds)

    def renew(self, seconds: float) -> None:
        """Move the deadline to ``seconds`` from now: undoing has time of its own."""
        self._at = time.monotonic() + seconds

    def remaining(self, at_most: float = float("inf")) -> float:
        """Return the seconds left, never negative, never more than ``at_most``."""
        return max(0.0, min(self._at - time.monotonic(), at_most))


def call_within(seconds: float, what: str, function: Callable[..., T], *args: Any, **kw: Any) -> T:
    """Call ``function`` in the caller's context and wait at most ``seconds`` for its result.

    A call cannot be interrupted: after the timeout it continues in a daemon thread, blocks neither the
    operation nor the exit of the process, and its result is dropped.

    :raises TimedOut: if the call has not returned in time.
    """
    if seconds <= 0:
        raise TimedOut(f"{what} was not begun", why="the time for the operation is spent")
    answer: Future[T] = Future()
    context = copy_context()
    _Caller.take().calls.put(lambda: context.run(_answer, answer, function, args, kw))
    try:
        return answer.result(seconds)
    except TimeoutError as error:
        if answer.done():
            raise
        raise TimedOut(f"{what} gave no answer", why=f"waited {seconds:.1f} s") from error


class _Caller:
    """A daemon thread that makes one call after the other, and is idle in between.

    The pools of the standard library wait at exit, also for a call that never returns.
    """

    idle: ClassVar[list["_Caller"]] = []

    def __init__(self) -> None:
        self.calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        threading.Thread(target=self._run, name="fabric-direct-call", daemon=True).start()

    @classmethod
    def take(cls) -> "_Caller":
        try:
            return cls.idle.pop()
        except IndexError:
            return cls()

    def _run(self) -> None:
        while True:
            self.calls.get()()
            self.idle.append(self)


forks.in_child(_Caller.idle.clear)


def _answer(answer: "Future[T]", function: Callable[..., T], args: Any, kw: Any) -> None:
    try:
        answer.set_result(function(*args, **kw))
    except BaseException as error:  # noqa: BLE001 - carried to the waiting thread, not swallowed
        answer.set_exception(error)


def wait_until(what: str, so: Callable[[], bool], *, timeout: float, where: str = "") -> None:
    """Block until a condition holds; poll it.

    The pause between two polls is a twentieth of the time waited so far or as long as the last poll
    took, whichever is longer, but from 0.1 s to 2 s.

    :param what: the condition, as in *waiting for* ``the guest to shut down``.
    :raises TimedOut: if it is not so after ``timeout`` seconds.
    """
    began = time.monotonic()
    while True:
        asked = time.monotonic()
        if so():
            return
        now = time.monotonic()
        if now - began >= timeout:
            break
        time.sleep(min(2.0, max(0.1, (now - began) / 20, now - asked)))
    raise TimedOut(f"timed out after {timeout:.0f} s waiting for {what}", where=where)


class _Bounded:
    """A driver whose methods have a time limit."""

    def __init__(
        self, driver: Any, name: str, deadline: Deadline, limit: float, within: Within
    ) -> None:
        self._driver, self._name, self._deadline = driver, name, deadline
        self._limit, self._within = limit, within

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(self._driver, attribute)
        if not callable(value):
            return value

        def bounded(*args: Any, **kw: Any) -> Any:
            limit = self._limit
            if "timeout" in kw:
                kw["timeout"] = self._deadline.remaining(kw["timeout"])
                limit += kw["timeout"]
            with self._within():
                return call_within(
                    self._deadline.remaining(limit), f"{self._name}.{attribute}", value, *args, **kw
                )

        return bounded


def bounded(
    driver: T, name: str, deadline: Deadline, limit: float, within: Within = nullcontext
) -> T:
    """Return ``driver`` with a time limit on each call.

    A call may take ``limit`` seconds, plus its own ``timeout`` if it is given one by keyword, but never
    longer than the deadline allows.

    :param within: makes the context manager for each call.
    """
    return cast(T, _Bounded(driver, name, deadline, limit, within))
