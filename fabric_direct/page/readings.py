"""A question to the substrate that many viewers share: asked now and then, whoever looks."""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from fabric_direct.engine.run import attempt

T = TypeVar("T")
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class CachedReading(Generic[T]):
    """The last answer to a question, with the last error and the try under way."""

    value: T | None = None
    """The last answer; None before the first one."""
    at: float = 0.0
    """When it came, by the clock."""
    error: str = ""
    """Why the last try failed; empty if it did not."""
    asked: float | None = None
    """When the try that is under way was begun; None if there is none."""


class SharedReading(Generic[T]):
    """The answers to one question, asked at most once every so many seconds and never twice at a time.

    Use it in one event loop.
    """

    def __init__(
        self,
        ask: Callable[[], T],
        every: float,
        limiter: CapacityLimiter,
        clock: Clock = time.monotonic,
    ) -> None:
        """Ask nothing yet.

        :param ask: answers, in a thread; it ends in time of its own.
        :param every: seconds between the beginnings of two tries, at least.
        :param limiter: how many threads ask at once, of all questions.
        """
        self._ask, self._every, self._limiter, self._clock = ask, every, limiter, clock
        self._due = float("-inf")
        self._task: asyncio.Task[None] | None = None
        self.latest: CachedReading[T] = CachedReading()
        self.version = 0
        """Counts the answers that were other ones than those before."""

    @property
    def trusted(self) -> bool:
        """Return whether waiting for an answer is worthwhile: the last try did not fail."""
        return not self.latest.error

    def begin(self) -> "asyncio.Task[None] | None":
        """Ask if it is time to; return the try that is under way, if any."""
        if self._task is None and self._clock() >= self._due:
            self._due = self._clock() + self._every
            self.latest = replace(self.latest, asked=self._clock())
            self._task = asyncio.create_task(self._try())
        return self._task

    async def _try(self) -> None:
        try:
            answer = await run_sync(
                attempt, self._ask, limiter=self._limiter, abandon_on_cancel=True
            )
            self._take(answer)
        finally:
            self._task = None

    def _take(self, answer: T | Exception) -> None:
        before = self.latest
        if isinstance(answer, Exception):
            said = str(answer) or type(answer).__name__
            self.latest = CachedReading(before.value, before.at, said)
        else:
            self.latest = CachedReading(answer, self._clock())
        same = (before.value, before.error) == (self.latest.value, self.latest.error)
        self.version += not same


async def ask_all(readings: Iterable[SharedReading[Any]], patience: float) -> None:
    """Ask what is due, and wait a moment for the answers; not for who did not answer last time.

    :param patience: seconds.
    """
    begun = [(each, each.begin()) for each in readings]
    awaited = [task for each, task in begun if task and each.trusted]
    if awaited:
        await asyncio.wait(awaited, timeout=patience)
