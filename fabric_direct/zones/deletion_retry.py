"""Sources are told to delete what shall not be there, until they have heard."""

import asyncio
from collections.abc import Mapping
from functools import partial

from anyio.to_thread import run_sync
from tenacity import AsyncRetrying, retry_if_exception_type, wait_exponential

from fabric_direct.errors import FabricDirectError, NotFound, Unreachable
from fabric_direct.zones.fan_out import ask
from fabric_direct.zones.source import Source
from fabric_direct.zones.store import Part, Store

_SOONEST, _LATEST = 0.5, 60.0
"""Seconds until a source that did not answer is told again: the first time, and in the long run."""


class Clearing:
    """Tells the sources of a zone."""

    def __init__(self, sources: Mapping[str, Source], store: Store, seconds: float) -> None:
        """Tell nobody yet.

        :param seconds: how long one attempt may take.
        """
        self._sources, self._store, self._seconds = sources, store, seconds
        self._under_way: dict[str, asyncio.Task[None]] = {}

    async def begin(self) -> "tuple[asyncio.Task[None], ...]":
        """Begin to tell of all that the store says; return what was begun."""
        parts = await run_sync(self._store.to_delete)
        new = [p for p in parts if p.id not in self._under_way and p.source in self._sources]
        for part in new:
            task = asyncio.create_task(self._tell(part))
            self._under_way[part.id] = task
            task.add_done_callback(partial(self._ended, part.id))
        return tuple(self._under_way[part.id] for part in new)

    def _ended(self, part: str, _: "asyncio.Task[None]") -> None:
        del self._under_way[part]

    def close(self) -> None:
        """Stop; the store knows whom to tell."""
        for task in self._under_way.values():
            task.cancel()

    async def _tell(self, part: Part) -> None:
        patience = AsyncRetrying(
            retry=retry_if_exception_type(FabricDirectError),
            wait=wait_exponential(_SOONEST, max=_LATEST),
        )
        await patience(self._tell_once, part)
        await run_sync(self._store.gone, part.id)

    async def _tell_once(self, part: Part) -> None:
        """Tell the source; that it knows of nothing is as good."""
        call = self._sources[part.source].delete(part.theirs, deadline=self._seconds)
        answer = (await ask({part.source: call}, self._seconds))[part.source]
        if isinstance(answer, Exception) and not isinstance(answer, NotFound):
            raise Unreachable(f"{part.source} does not hear") from answer
