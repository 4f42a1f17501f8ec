"""What a zone last heard of its sources: they are looked at in the background."""

import asyncio
import time
from collections.abc import Callable

from fabric_direct.zones.fan_out import ask, left_out
from fabric_direct.zones.source import Source
from fabric_direct.zones.wire import Capabilities, ChildView

_SILENCES = 3
"""After how many looks without an answer a source is not asked."""


class Watched:
    """A source whose capabilities are looked at again and again."""

    def __init__(
        self, source: Source, refresh: float, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Look at nothing yet.

        :param refresh: seconds between two looks, and that one may take.
        """
        self.source = source
        self._refresh, self._clock = refresh, clock
        self._heard: float | None = None
        self._capabilities: Capabilities | None = None
        self._why = ""

    async def watch(self) -> None:
        """Look at it without an end."""
        while True:
            await self.look(self._refresh)
            await asyncio.sleep(self._refresh)

    async def look(self, seconds: float) -> None:
        """Ask the source what it has."""
        name = self.source.name
        call = self.source.capabilities(deadline=seconds)
        answer = (await ask({name: call}, seconds))[name]
        if isinstance(answer, Capabilities):
            self._heard, self._capabilities, self._why = self._clock(), answer, ""
        else:
            self._why = left_out(name, answer).why

    @property
    def asked(self) -> bool:
        """Whether it is asked: it answered not long ago, or nobody has looked yet."""
        if self._heard is None:
            return not self._why
        return self._clock() - self._heard <= _SILENCES * self._refresh

    @property
    def why(self) -> str:
        """Why it is not asked."""
        return "" if self.asked else f"not heard from: {self._why or 'no answer yet'}"

    def counted(self, zone_id: str) -> Capabilities | None:
        """Return what it has, unless it is not asked, or has the zone itself below it."""
        known = self._capabilities if self.asked else None
        return None if known is None or zone_id in known.zones else known

    def view(self) -> ChildView:
        """Return what is known of it."""
        return ChildView(
            zone=self.source.name,
            heard=self.asked,
            age=None if self._heard is None else self._clock() - self._heard,
            why=self.why,
            capabilities=self._capabilities,
        )
