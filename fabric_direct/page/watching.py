"""Read a site, each host by itself, so that a host that does not answer delays no other."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from anyio import CapacityLimiter

from fabric_direct.drivers.contract import HostDevice, Server
from fabric_direct.engine.run import attempt
from fabric_direct.errors import DriverError
from fabric_direct.model import Observed, SliverRef
from fabric_direct.page.readings import Clock, SharedReading, ask_all
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from fabric_direct.state.audit_trail import AuditTrail, Record
from fabric_direct.state.journal import Unfinished
from fabric_direct.state.repair_history import History, Note
from fabric_direct.state.site_store import store_of
from fabric_direct.state.step_notes import StepNote
from fabric_direct.state.store import sliver_lock
from fabric_direct.upkeep.drift import SiteDrift

T = TypeVar("T")
_AT_ONCE = 64
"""Questions that are asked at once."""
_BOOKS_EVERY = 1.0
"""Seconds between two looks at what is under way, which is in files of this machine."""
_LIMITS = {"call": 5.0, "probe": 10.0, "guest_boot": 5.0}
"""Seconds, at most, for what the page reads: who waits longer is told that there was no answer."""


@dataclass(frozen=True, slots=True)
class Look:
    """The state read from a host, or from the cloud."""

    servers: tuple[Server, ...] = ()
    differences: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """The slivers that differ from their stamps, and how."""
    devices: tuple[HostDevice, ...] = ()
    unread: str = ""
    """Why a part could not be read: its devices."""


@dataclass(frozen=True, slots=True)
class OperationUnderWay:
    """An operation that has begun and not ended."""

    record: Record
    works: bool
    """Whether a process works on its sliver; if not, it was killed."""
    steps: tuple[StepNote, ...] = ()

    @property
    def done(self) -> int:
        """Return the number of steps that have ended."""
        return sum(step.status is not None for step in self.steps)

    @property
    def total(self) -> int:
        """Return the number of steps; 0 if it is not known."""
        return max((step.total for step in self.steps), default=0)


@dataclass(frozen=True, slots=True)
class StateView:
    """The contents of the state directory, in chronological order."""

    under_way: tuple[OperationUnderWay, ...] = ()
    unfinished: tuple[Unfinished, ...] = ()
    """Operations that left something, or whose process was killed."""
    history: tuple[Record, ...] = ()
    repairs: tuple[Note, ...] = ()


class Watching:
    """The latest known state of a site, shared by all viewers.

    :param processor: of the site, with the limits of :func:`limited`. The caller shuts it down.
    :param every: seconds between two readings of the same thing.
    :param patience: seconds that a page waits for answers; it shows what is known then.
    """

    def __init__(
        self,
        processor: HandlerProcessor,
        every: float = 5.0,
        patience: float = 1.0,
        clock: Clock = time.monotonic,
    ) -> None:
        self.site, self.clock = processor.site, clock
        self._processor, self.every, self._patience = processor, every, patience
        self._limiter = CapacityLimiter(_AT_ONCE)
        self.cloud = self._shared(self._list_cloud) if processor.in_cloud else None
        # Comparing needs the workers, too, of which one may be silent.
        self.compared = self._shared(self._compare_cloud) if processor.in_cloud else None
        self.hosts = {host: self._shared(self._look_of(host)) for host in self.site.hosts}
        self.services = self._shared(processor.services)
        self.books = SharedReading(self._read_books, _BOOKS_EVERY, self._limiter, clock)
        self._some: dict[tuple[str, str], SharedReading[Any]] = {}
        self._store = store_of(self.site)
        self._trail = AuditTrail(self._store, self.site.history * 1024)
        self._repairs = History(self._store, self.site.watch.history * 1024)
        self._read = StateView()
        self._marks: tuple[tuple[int, int], ...] = ()

    def _shared(self, ask: Callable[[], T]) -> SharedReading[T]:
        return SharedReading(ask, self.every, self._limiter, self.clock)

    @property
    def version(self) -> int:
        """Counts what was found to be other than before."""
        return sum(each.version for each in (*self._of_site(), self.books))

    def _of_site(self) -> Iterator[SharedReading[Any]]:
        yield from filter(None, (self.cloud, self.compared, *self.hosts.values(), self.services))

    async def look(self, patience: float | None = None) -> None:
        """Ask what is due, and wait a moment for the answers.

        :param patience: seconds; by default those of all pages.
        """
        waiting = self._patience if patience is None else patience
        await ask_all([*self._of_site(), self.books], waiting)

    async def probe(self, sliver: SliverRef) -> SharedReading[Observed | None]:
        """Look at one sliver as it is, its guest included; it must be one of the site's."""
        probe = self._kept("probe", sliver.id, lambda: self._probe(sliver))
        await ask_all([probe], self._patience)
        return probe

    async def picture(
        self, name: str, draw: Callable[[HandlerProcessor], str]
    ) -> SharedReading[str]:
        """Draw a picture; it must be of the site, or of a host or sliver of it.

        :param name: what it is of.
        """
        picture = self._kept("picture", name, lambda: draw(self._processor))
        await ask_all([picture], _LIMITS["probe"])
        return picture

    def _kept(self, kind: str, name: str, ask: Callable[[], T]) -> SharedReading[T]:
        """Return what is read of one thing; only the last ones that somebody looked at are kept."""
        reading = self._some.pop((kind, name), None) or self._shared(ask)
        self._some[kind, name] = reading
        for old in [*self._some][:-_AT_ONCE]:
            del self._some[old]
        return reading

    # --- in threads

    def _list_cloud(self) -> Look:
        return Look(self._processor.slivers())

    def _compare_cloud(self) -> Look:
        return Look(differences=_differences(self._processor.drift(services=False)))

    def _look_of(self, host: str) -> Callable[[], Look]:
        def look() -> Look:
            drift = None if self._processor.in_cloud else self._processor.drift([host])
            if drift and host in drift.silent and not drift.servers:
                raise drift.silent[host]
            return self._with_devices(host, drift)

        return look

    def _with_devices(self, host: str, drift: SiteDrift | None) -> Look:
        """Add the devices of the host; if nothing else is read of it, they must be there."""
        passes = self.site.passes_devices(host)
        devices = attempt(self._processor.devices, host) if passes else ()
        if not isinstance(devices, Exception):
            found = drift or SiteDrift((), (), {})
            known = tuple(each for each in devices if each.type or each.owner)
            return Look(found.servers, _differences(found), known, _told(found.silent))
        if drift is None:
            raise devices
        return Look(drift.servers, _differences(drift), unread=str(devices))

    def _probe(self, sliver: SliverRef) -> Observed | None:
        outcome = self._processor.probe(sliver).result()
        if outcome.error:
            raise DriverError(outcome.error.message)
        return outcome.observed

    def _read_books(self) -> StateView:
        marks = (self._trail.mark(), self._repairs.mark())
        if marks != self._marks:  # the files may be long
            notes = tuple(self._repairs.notes())
            self._read = StateView(history=self._trail.records(), repairs=notes)
            self._marks = marks
        begun = map(self._under_way, _not_ended(self._read.history))
        unfinished = self._processor.unfinished()
        return replace(self._read, under_way=tuple(filter(None, begun)), unfinished=unfinished)

    def _under_way(self, record: Record) -> OperationUnderWay | None:
        """Return an operation on a sliver that has not ended; what is about devices is short."""
        if not record.type:
            return None
        lock = sliver_lock(record.subject)
        works = lock in self._store.held(lock)
        steps = self._processor.steps_under_way(record.subject) if works else ()
        return OperationUnderWay(record, works, steps)


def limited(site: Site) -> Site:
    """Return the site with limits that suit who looks at a page."""
    limits = site.limits
    lower = {name: min(most, getattr(limits, name)) for name, most in _LIMITS.items()}
    return site.model_copy(update={"limits": limits.model_copy(update=lower)})


def _not_ended(history: tuple[Record, ...]) -> tuple[Record, ...]:
    """Return what was begun last of each subject, if it has not ended."""
    last = {record.subject: record for record in history}
    return tuple(record for record in last.values() if record.status is None)


def _differences(drift: SiteDrift) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple((each.sliver.id, each.differences) for each in drift.drifts)


def _told(silent: Mapping[str, Exception]) -> str:
    return "; ".join(f"{host}: {error}" for host, error in silent.items())
