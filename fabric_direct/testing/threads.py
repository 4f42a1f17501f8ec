"""What drivers promise of threads: they are shared by many, and tell of changes in one."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TypeVar

from fabric_direct.drivers.contract.changes import Change, ChangeSource, Hearing

T = TypeVar("T")
_LONG = 60.0
"""Seconds after which something that should happen at once does not happen."""
_WHILE = 0.5
"""Seconds for which a source must go on listening; a longer wait would find more, but no right one."""


def at_once(*calls: Callable[[], T]) -> list[T]:
    """Call each in a thread of its own, all at the same moment; return what they return, in order."""
    start = threading.Barrier(len(calls))
    answers: list[Future[T]] = [Future() for _ in calls]

    def called(call: Callable[[], T], answer: Future[T]) -> None:
        try:
            start.wait(_LONG)
            answer.set_result(call())
        except Exception as error:  # noqa: BLE001 - raised below, where the test sees it
            answer.set_exception(error)

    for pair in zip(calls, answers, strict=True):  # those that never return keep nobody from ending
        threading.Thread(target=called, args=pair, daemon=True).start()
    return [answer.result(_LONG) for answer in answers]


def hears(source: ChangeSource) -> None:
    """Assert that a source tells that it hears, listens until its hearing ends, and returns then."""
    told: SimpleQueue[Change | None] = SimpleQueue()
    hearing, returned = Hearing(), threading.Event()
    errors: list[Exception] = []

    def listen() -> None:
        try:
            source.listen(told.put, hearing)
        except Exception as error:  # noqa: BLE001 - raised below, where the test sees it
            errors.append(error)
        finally:
            told.put(None)
            returned.set()

    threading.Thread(target=listen, daemon=True).start()
    try:
        for change in iter(lambda: told.get(timeout=_LONG), Change("unknown")):
            assert not errors, errors
            assert change is not None, "listen returned before its hearing ended"
        assert not returned.wait(_WHILE), "listen returned before its hearing ended"
    finally:
        hearing.end()
    assert returned.wait(_LONG), "listen did not return when its hearing ended"
    assert not errors, errors
