"""Calls that operations gave up: what else may be done to their slivers until they have returned."""

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from threading import Lock
from typing import Any

from fabric_direct.calls.deadline import Call, Deadline, UnansweredRequest
from fabric_direct.errors import NotFound, Refused, SliverBusy, Unsupported
from fabric_direct.model import Operation


class LateCalls:
    """The calls of a process that were given up and have not returned, by sliver."""

    def __init__(self, wait: float) -> None:
        """Begin with none.

        :param wait: seconds that an operation waits for those of an earlier one on its sliver.
        """
        self._wait = wait
        self._lock = Lock()
        self._by_sliver: dict[str, tuple[Call[Any], ...]] = {}

    def of(self, sliver_id: str) -> tuple[Call[Any], ...]:
        """Return those of one sliver."""
        with self._lock:
            calls = self._by_sliver.get(sliver_id, ())
        return tuple(call for call in calls if not call.over.done())

    def number(self) -> int:
        """Return how many there are, of all slivers."""
        with self._lock:
            calls = [call for kept in self._by_sliver.values() for call in kept]
        return sum(not call.over.done() for call in calls)

    def recall(self, sliver_id: str, until: float) -> None:
        """Take over from another process what may still take effect, unless it is this one's own.

        :param until: when it cannot any more, in seconds since 1970.
        """
        request = None if self.of(sliver_id) else UnansweredRequest.of_another(until)
        if request:
            self._keep(sliver_id, (request,))

    def settle(self, sliver_id: str) -> bool:
        """Wait for those of one sliver; return whether all have returned."""
        wait([call.over for call in self.of(sliver_id)], self._wait)
        return not self.of(sliver_id)

    @contextmanager
    def kept(self, operation: Operation, sliver_id: str, deadline: Deadline) -> Iterator[None]:
        """Let an operation run if no earlier call may still take effect; keep those that it gives up.

        A deletion runs in any case: it may end what they wait for, and it tells of them.

        :raises SliverBusy: if a call of an earlier operation has not returned, unless it is a deletion.
        """
        deadline.give_up(self.of(sliver_id))
        try:
            if operation is not Operation.DELETE:
                _refuse_late(sliver_id, deadline)
            yield
        finally:
            self._keep(sliver_id, deadline.late())

    def _keep(self, sliver_id: str, calls: tuple[Call[Any], ...]) -> None:
        with self._lock:
            self._by_sliver.pop(sliver_id, None)
            if calls:
                self._by_sliver[sliver_id] = calls


def _refuse_late(sliver_id: str, deadline: Deadline) -> None:
    if late := deadline.late():
        raise SliverBusy(
            f"sliver {sliver_id} may still change",
            why="; ".join(named(late)),
            remedy="try again later, or delete the sliver",
        )


def named(calls: Iterable[Call[Any]]) -> tuple[str, ...]:
    """Return a message for each call whose outcome is unknown, for ``left`` of an outcome."""
    return tuple(sorted(f"unknown: {c.what} was given up and may still take effect" for c in calls))


def until(calls: Iterable[Call[Any]], shared: float | None = None) -> float:
    """Return when the last request among the calls cannot take effect any more, for the journal.

    :param shared: seconds from now for which other processes are to expect that of a call which has not
        returned; None if this process alone would build on it.
    """
    later = [] if shared is None else [time.time() + shared]
    return max(
        (
            at
            for call in calls
            for at in ([call.until] if isinstance(call, UnansweredRequest) else later)
        ),
        default=0.0,
    )


def in_effect(calls: Iterable[Call[Any]]) -> tuple[str, ...]:
    """Return a message for each call that may have taken effect, for ``left`` of an outcome."""
    known = (call for call in calls if not call.given_up.is_set() and _may_have_worked(call))
    return tuple(sorted({f"unknown: {call.what} may have taken effect" for call in known}))


def _may_have_worked(call: Call[Any]) -> bool:
    error = call.over.exception()
    if error and call.taken_back:
        return False
    if isinstance(error, NotFound):  # of what a request of many asked for
        return call.changed
    return not isinstance(error, Refused | Unsupported)
