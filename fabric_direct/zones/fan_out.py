"""Many sources asked at once, each within its share of the deadline.

Of the seconds that a zone has for an answer it gives nine tenths to those it asks, and keeps one to
merge and to answer. These do likewise; so on each level there is time left for the answers of the one
below, and who does not answer in time is left out.
"""

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from fabric_direct.errors import FabricDirectError, Unreachable
from fabric_direct.zones.wire import LeftOut

T = TypeVar("T")
log = logging.getLogger(__name__)

_KEPT = 0.1
_MOST_WORDS = 300


def share(seconds: float) -> float:
    """Return how many of the seconds that a zone has are given to those it asks."""
    return seconds * (1 - _KEPT)


async def ask(
    calls: Mapping[str, Coroutine[Any, Any, T]], seconds: float
) -> dict[str, T | Exception]:
    """Return what each call came to: its answer, or what it raised.

    One that has not ended after ``seconds`` is cancelled, and :class:`Unreachable`. What a source raises
    that is no error of this library is a mistake in it: it is logged, and is :class:`Unreachable` too.
    """
    tasks = {name: asyncio.create_task(call) for name, call in calls.items()}
    try:
        if tasks:
            await asyncio.wait(tasks.values(), timeout=seconds)
        return {name: _came_to(task, seconds) for name, task in tasks.items()}
    finally:
        for task in tasks.values():
            task.cancel()


def _came_to(task: "asyncio.Task[T]", seconds: float) -> T | Exception:
    if not task.done() or task.cancelled():
        return Unreachable("it does not answer", why=f"waited {seconds:.1f} s")
    error = task.exception()
    if error is None:
        return task.result()
    if isinstance(error, FabricDirectError):
        return error
    log.error("a source failed", exc_info=error)
    return Unreachable("it failed", why=type(error).__name__)


def left_out(zone: str, error: Exception) -> LeftOut:
    """Return that a source is left out, and why."""
    words = [error.what, error.why] if isinstance(error, FabricDirectError) else [str(error)]
    return LeftOut(zone=zone, why=": ".join(filter(None, words))[:_MOST_WORDS])
