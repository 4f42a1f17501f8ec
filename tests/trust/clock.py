"""Time that passes at once: who waits for a call that hangs does not wait in earnest.

So a call may hang until the limit that a real site has, on a busy machine as on an idle one.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from typing import Any, cast
from unittest.mock import patch

import tenacity

from fabric_direct.calls import deadline
from fabric_direct.drivers.fake import Substrate
from fabric_direct.operations import late_calls

_IN_EARNEST = 60.0
"""Seconds after which something hangs that was not told to."""


class Clock:
    """The machine's clock, and what was skipped."""

    def __init__(self) -> None:
        self.skipped = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.skipped

    def time(self) -> float:
        return time.time() + self.skipped

    def sleep(self, seconds: float) -> None:
        self.skipped += seconds
        time.sleep(0)

    def wait(self, futures: Collection["Over"], timeout: float) -> None:
        """Wait for calls; if one of them hangs and will not return, skip the time instead."""
        for future in futures:
            (future.ended if future.returns else future.known).wait(_IN_EARNEST)
        if not all(future.done() for future in futures):
            self.skipped += timeout


class Over(Future[Any]):
    """The future of a call that may be told to hang."""

    clock: Clock

    def __init__(self) -> None:
        super().__init__()
        self.known = threading.Event()
        """Set when it is done, or hangs."""
        self.ended = threading.Event()
        """Set when it is done."""
        self.returns = False
        """Whether it will return, though it hangs longer than its caller waits."""
        self.add_done_callback(self._end)

    def _end(self, _: Future[Any]) -> None:
        self.known.set()
        self.ended.set()

    def result(self, timeout: float | None = None) -> Any:
        if timeout is not None and not self.done():
            self.known.wait(_IN_EARNEST)
            if not self.done():
                self.clock.skipped += timeout
                raise TimeoutError
        return super().result()


def current() -> Over:
    """Return the future of the current call."""
    call = deadline.current_call()
    assert call is not None
    return cast(Over, call.over)


def hang(*, returns: bool) -> None:
    """Let the current call hang until its caller has given it up."""
    call, over = deadline.current_call(), current()
    assert call is not None
    over.returns = returns
    over.known.set()
    call.given_up.wait()


@contextmanager
def skipping() -> Iterator[Clock]:
    """Let time be skipped while the block runs."""
    clock = Clock()
    over = type("_Over", (Over,), {"clock": clock})
    with (
        patch.object(deadline, "time", clock),
        patch.object(deadline, "wait", clock.wait),
        patch.object(deadline, "Future", over),
        patch.object(late_calls, "wait", clock.wait),
    ):
        yield clock


@contextmanager
def skipping_pauses() -> Iterator[Clock]:
    """Let time be skipped between polls and between tries; what hangs does so in earnest."""
    clock = Clock()
    with ExitStack() as stack:
        for module in (deadline, tenacity, tenacity.nap):
            stack.enter_context(patch.object(module, "time", clock))
        yield clock


class Later(threading.Event):
    """What calls wait for that come late: they hang until it is set, and then return."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[Over] = []

    def hold(self, over: Over) -> None:
        """Hold a call that has begun."""
        self._calls.append(over)
        over.returns = self.is_set()

    def promise(self) -> None:
        """Let those that wait for the calls wait in earnest: it will be set."""
        for over in self._calls:
            over.returns = True

    def set(self) -> None:
        self.promise()
        super().set()


@contextmanager
def skipping_faults() -> Iterator[Clock]:
    """Let time be skipped also where the fakes let a call hang or come late."""
    with (
        skipping() as clock,
        patch.object(Substrate, "_await_mending", staticmethod(_await_mending)),
        patch.object(Substrate, "_await_given_up", staticmethod(_await_given_up)),
    ):
        yield clock


def _await_mending(released: threading.Event) -> None:
    if deadline.current_call() is not None:
        current().known.set()
    released.wait()


def _await_given_up(until: Later | None) -> None:
    if until is not None:
        until.hold(current())
    hang(returns=until is None or until.is_set())
    if until is not None:
        until.wait()


def await_in_earnest(so: Callable[[], bool]) -> None:
    """Block until a condition holds, also while time is skipped."""
    until = time.monotonic() + _IN_EARNEST
    while not so():
        assert time.monotonic() < until, "it does not come about"
        time.sleep(0.005)
