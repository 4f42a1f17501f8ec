"""Query many sources at once, each within its share of the deadline.

A zone passes nine tenths of its own deadline on to the sources that it queries and keeps one tenth to
merge their answers. Child zones do the same, so every level has time left to use the answers of the
level below. A source that does not answer in time is left out.
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
_LONGEST_REASON = 300


def share(seconds: float) -> float:
    """Return how much of a deadline is passed on to the sources, in seconds."""
    return seconds * (1 - _KEPT)


async def ask_all(
    calls: Mapping[str, Coroutine[Any, Any, T]], seconds: float
) -> dict[str, T | Exception]:
    """Return the result of each call: its answer or its error.

    A call that takes longer than ``seconds`` is cancelled; its error is :class:`Unreachable`. An
    exception that is not one of this library's is a bug in the source: it is logged and reported as
    :class:`Unreachable`.
    """
    tasks = {name: asyncio.create_task(call) for name, call in calls.items()}
    try:
        if tasks:
            await asyncio.wait(tasks.values(), timeout=seconds)
        return {name: _result(task, seconds) for name, task in tasks.items()}
    finally:
        for task in tasks.values():
            task.cancel()


async def ask_one(call: Coroutine[Any, Any, T], seconds: float) -> T | Exception:
    """Return the result of one call; see :func:`ask_all`."""
    return (await ask_all({"": call}, seconds))[""]


def _result(task: "asyncio.Task[T]", seconds: float) -> T | Exception:
    if not task.done() or task.cancelled():
        return Unreachable("it does not answer", why=f"timed out after {seconds:.1f} s")
    error = task.exception()
    if error is None:
        return task.result()
    if isinstance(error, FabricDirectError):
        return error
    log.error("a source failed", exc_info=error)
    return Unreachable("it failed", why=type(error).__name__)


def left_out(zone: str, error: Exception) -> LeftOut:
    """Return the entry for a source that is left out because of an error."""
    words = [error.what, error.why] if isinstance(error, FabricDirectError) else [str(error)]
    return LeftOut(zone=zone, why=": ".join(filter(None, words))[:_LONGEST_REASON])
