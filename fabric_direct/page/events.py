"""Server-sent events of a site: operations under way, and notices that something changed."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from fabric_direct.page.watching import OperationUnderWay, StateView, Watching

_TICK = 1.0
"""Seconds between two looks at what is known."""
_BEAT = 15
"""Ticks without an event after which a comment shows that the connection is alive."""
Pause = Callable[[float], Awaitable[None]]


class Events:
    """The events of a site, for each browser that listens."""

    def __init__(
        self, watching: Watching, *, most: int = 100, pause: Pause = asyncio.sleep
    ) -> None:
        """Send nothing yet.

        :param most: how many may listen at once.
        """
        self._watching, self._most, self._pause = watching, most, pause
        self._listeners = 0
        self._ended = False

    @property
    def full(self) -> bool:
        """Return whether no more browsers may listen."""
        return self._listeners >= self._most

    def end(self) -> None:
        """End all streams within a moment. May be called from a signal's handler."""
        self._ended = True

    async def stream(self) -> AsyncIterator[str]:
        """Yield events until the end, or until the client goes.

        ``operations`` has what is under way, when it changes; ``change`` says that pages show something
        else by now.
        """
        self._listeners += 1
        try:
            told: tuple[str, ...] = ()
            silent = 0
            while not self._ended:
                await self._watching.look(patience=0)
                events = _events(self._watching)
                news = "".join(event for event in events if event not in told)
                silent = 0 if news else silent + 1
                if news or silent % _BEAT == 0:
                    yield news or ": nothing new\n\n"
                told = events
                await self._pause(_TICK)
        finally:
            self._listeners -= 1


def _events(watching: Watching) -> tuple[str, ...]:
    books = watching.books.latest.value or StateView()
    operations = [_data(each) for each in books.under_way]
    return (
        f"event: operations\ndata: {json.dumps(operations)}\n\n",
        f"event: change\ndata: {watching.version}\n\n",
    )


def _data(each: OperationUnderWay) -> dict[str, Any]:
    """Return an operation that is under way, for programs."""
    return {
        "sliver": each.record.subject,
        "operation": each.record.operation,
        "since": each.record.at,
        "works": each.works,
        "steps": [step.model_dump(mode="json") for step in each.steps],
    }
