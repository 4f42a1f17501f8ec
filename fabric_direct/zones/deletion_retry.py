"""Repeat the deletion of parts at their sources until each source has confirmed it."""

import asyncio
from collections.abc import Mapping
from functools import partial

from anyio.to_thread import run_sync
from tenacity import AsyncRetrying, retry_if_exception_type, wait_exponential

from fabric_direct.errors import FabricDirectError, NotFound, Unreachable
from fabric_direct.zones.fan_out import ask_one
from fabric_direct.zones.source import Source
from fabric_direct.zones.store import ReservationStore, SourceInstances

_FIRST_WAIT, _LONGEST_WAIT = 0.5, 60.0
"""Seconds before a deletion is retried; the wait doubles from the first to the longest."""


class DeletionRetry:
    """Deletes at the sources of a zone what the store says must go."""

    def __init__(
        self, sources: Mapping[str, Source], store: ReservationStore, seconds: float
    ) -> None:
        """Send nothing yet.

        :param seconds: time limit of one attempt.
        """
        self._sources, self._store, self._seconds = sources, store, seconds
        self._running: dict[str, asyncio.Task[None]] = {}

    async def start(self) -> "tuple[asyncio.Task[None], ...]":
        """Start a task for each part that the store wants deleted; return the new tasks."""
        parts = await run_sync(self._store.to_delete)
        new = [p for p in parts if p.id not in self._running and p.source in self._sources]
        for part in new:
            task = asyncio.create_task(self._delete(part))
            self._running[part.id] = task
            task.add_done_callback(partial(self._ended, part.id))
        return tuple(self._running[part.id] for part in new)

    def _ended(self, part: str, _: "asyncio.Task[None]") -> None:
        del self._running[part]

    def close(self) -> None:
        """Cancel the tasks; the store still has what they did not finish."""
        for task in self._running.values():
            task.cancel()

    async def _delete(self, part: SourceInstances) -> None:
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(FabricDirectError),
            wait=wait_exponential(_FIRST_WAIT, max=_LONGEST_WAIT),
        )
        await retrying(self._delete_once, part)
        await run_sync(self._store.gone, part.id)

    async def _delete_once(self, part: SourceInstances) -> None:
        """Ask the source to delete a part; a source that has no such part has deleted it."""
        call = self._sources[part.source].delete(part.theirs, deadline=self._seconds)
        answer = await ask_one(call, self._seconds)
        if isinstance(answer, Exception) and not isinstance(answer, NotFound):
            raise Unreachable(f"{part.source} did not confirm the deletion") from answer
