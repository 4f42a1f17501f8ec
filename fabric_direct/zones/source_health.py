"""The capabilities that each source of a zone last reported, polled in the background."""

import asyncio
import time
from collections.abc import Callable

from fabric_direct.zones.fan_out import ask_one, left_out
from fabric_direct.zones.source import Source
from fabric_direct.zones.wire import Capabilities, ChildView

_MISSED_REFRESHES = 3
"""Number of refreshes in a row without an answer after which a source is skipped."""


class SourceHealth:
    """A source, and the capabilities that it last reported."""

    def __init__(
        self, source: Source, refresh: float, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Query nothing yet.

        :param refresh: seconds between two queries, and time limit of each.
        """
        self.source = source
        self._interval, self._clock = refresh, clock
        self._heard: float | None = None
        self._missed = 0
        self._capabilities: Capabilities | None = None
        self._why = ""

    async def watch(self) -> None:
        """Refresh for ever."""
        while True:
            await self.refresh(self._interval)
            await asyncio.sleep(self._interval)

    async def refresh(self, seconds: float) -> None:
        """Query the source's capabilities, within ``seconds``."""
        answer = await ask_one(self.source.capabilities(deadline=seconds), seconds)
        if isinstance(answer, Capabilities):
            self._heard, self._capabilities, self._why = self._clock(), answer, ""
            self._missed = 0
        else:
            self._why = left_out(self.source.name, answer).why
            self._missed += 1

    @property
    def healthy(self) -> bool:
        """Return whether the source answered recently, or has not been queried yet."""
        if self._heard is None:
            return not self._why
        return self._missed < _MISSED_REFRESHES

    @property
    def why(self) -> str:
        """Why the source is skipped; empty if it is not."""
        return "" if self.healthy else f"not heard from: {self._why or 'no answer yet'}"

    def capabilities(self, zone_id: str) -> Capabilities | None:
        """Return what the source has; None if it is skipped, or if zone ``zone_id`` is below it."""
        known = self._capabilities if self.healthy else None
        return None if known is None or zone_id in known.zones else known

    def view(self) -> ChildView:
        """Return the state of the source as the zone reports it."""
        return ChildView(
            zone=self.source.name,
            heard=self.healthy,
            age=None if self._heard is None else self._clock() - self._heard,
            why=self.why,
            capabilities=self._capabilities,
        )
