"""Repairs slivers when others change them: it listens, and reconciles what it hears of.

A source of changes has a thread that listens. When it hears nothing any more, it says so and tries again
with growing pauses. A few threads handle what is heard: what was heard twice meanwhile is handled once,
and one sliver by one thread. A source that begins to hear does not know what was changed before: then
the whole site is looked at, by listings. Nothing is asked while nothing is heard.

A repair under way is in the journal, and its sliver locked: so a watcher may be killed, and several may
run.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol, Self

from fabric_direct.calls import forks, metrics
from fabric_direct.calls.metrics import Measurement
from fabric_direct.drivers.contract import Server
from fabric_direct.drivers.contract.changes import Change, ChangeSource, Hearing
from fabric_direct.engine.run import attempt
from fabric_direct.errors import Conflict, NotFound, NotOurs, SliverBusy, Unsupported
from fabric_direct.model import NodeSliver, Operation, Outcome, SliverRef, Status
from fabric_direct.site.config import Site, WatchSettings
from fabric_direct.state.audit_trail import asked_by
from fabric_direct.state.journal import Unfinished
from fabric_direct.state.lines import now
from fabric_direct.state.pending_looks import PendingLook
from fabric_direct.state.repair_history import History, Note, RepairResult
from fabric_direct.state.site_store import store_of
from fabric_direct.upkeep.drift import SiteDrift

log = logging.getLogger(__name__)
_NAME = "watch"
_THREADS = 8
_HOUR = 3600.0
# Seconds until a source that cannot hear is tried again, or a repair that failed; then twice as many.
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_REPAIR_PAUSE = 15.0
_VEPA = "vepa"
# These do not pass by themselves: an unfinished operation, a sliver that is gone or of another type.
_FINAL = (Conflict, NotFound, NotOurs, Unsupported)
_REPAIRS = frozenset({RepairResult.REPAIRED, RepairResult.REPORTED, RepairResult.FAILED})
Later = Callable[[float, Callable[[], None]], None]
"""Calls a function after some seconds."""


class WatchedSite(Protocol):
    """The interface through which a watcher reads and repairs a site; the processor implements it."""

    def slivers(self) -> tuple[Server, ...]:
        """Return the servers of the site."""

    def drift(self, *, services: bool) -> SiteDrift:
        """Return which slivers differ, of VMs, and of network services if that is asked for."""

    def unfinished(self) -> tuple[Unfinished, ...]:
        """Return the operations that have begun and not ended."""

    def pending_looks(self) -> tuple[PendingLook, ...]:
        """Return the hosts where slivers that were deleted were not looked for."""

    def look_again(self, host: str) -> None:
        """Begin to look at a host for what it has of slivers that were deleted."""

    def reconcile(self, sliver: SliverRef) -> "Future[Outcome]":
        """Repair a sliver."""

    def differences(self, sliver: SliverRef) -> "Future[Outcome]":
        """Look what a repair of a sliver would do."""

    def bridge_mode(self, host: str, link: str, mode: str | None = None) -> str:
        """Return, or set, the bridge mode of an uplink."""


@dataclass(frozen=True, slots=True)
class WatchedSource:
    """Something that is listened to."""

    name: str
    """For people: ``servers of w1``."""
    host: str
    """Empty for a cloud."""
    source: ChangeSource
    uplinks: bool = False
    """Whether it tells of the host's uplinks, not of servers."""


def after(seconds: float, function: Callable[[], None]) -> None:
    """Call a function after some seconds, unless the process has ended."""
    timer = threading.Timer(seconds, function)
    timer.daemon = True
    timer.start()


def _growing(tries: int) -> float:
    """Return the seconds until what failed so often is tried again."""
    return min(_REPAIR_PAUSE * 2.0**tries, _HOUR)


def _may_pass(outcome: Outcome) -> bool:
    """Return whether what failed may succeed later: nothing was read back, for a reason that passes."""
    if outcome.ok or outcome.observed is not None:
        return False
    return not outcome.failed_by(*_FINAL) or _misses_a_part(outcome)


def _misses_a_part(outcome: Outcome) -> bool:
    """Return whether what the repair did not find is something else than the sliver: it had begun."""
    return outcome.failed_by(NotFound) and bool(outcome.steps)


def _by_name(servers: Iterable[Server]) -> dict[str, NodeSliver]:
    """Return the slivers of servers, by the names that changes bear."""
    names = ((name, s) for s in servers for name in (s.instance, s.domain) if name)
    return {name: server.stamp.sliver for name, server in names}


class RepairBudget:
    """The number of repairs an hour that a subject, and the site, may still have."""

    def __init__(self, settings: WatchSettings, clock: Callable[[], float]) -> None:
        self._settings, self._clock = settings, clock
        self._repairs: deque[tuple[float, str]] = deque()
        self._lock = threading.Lock()

    def allow(self, subject: str) -> bool:
        """Return whether one more is allowed."""
        with self._lock:
            while self._repairs and self._repairs[0][0] <= self._clock() - _HOUR:
                self._repairs.popleft()
            own = sum(name == subject for _, name in self._repairs)
            settings = self._settings
            return own < settings.per_sliver and len(self._repairs) < settings.per_site

    def count(self, subject: str) -> None:
        """Count a repair, whatever came of it."""
        with self._lock:
            self._repairs.append((self._clock(), subject))


@dataclass(slots=True)
class _Case:
    """The work under way for one sliver."""

    heard: float
    cause: str
    again: str = ""
    """What was heard meanwhile; empty if nothing was."""
    failures: int = 0


class Watcher:
    """Listens and repairs until it is stopped.

    :param on_note: called with each note of the history; its errors are logged.
    :param clock: seconds, for the limits and the times of the history.
    :param later: calls a function after some seconds.
    """

    def __init__(
        self,
        site: Site,
        desk: WatchedSite,
        sources: Iterable[WatchedSource],
        *,
        on_note: Callable[[Note], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        later: Later = after,
    ) -> None:
        self._site, self._desk, self._sources = site, desk, tuple(sources)
        self._settings, self._on_note = site.watch, on_note
        self._clock, self._later = clock, later
        self._history = History(store_of(site), site.watch.history * 1024)
        self._limits = RepairBudget(site.watch, clock)
        self._begin()
        forks.in_child(self._forked)
        metrics.observe(self._readings)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._hearings: dict[str, Hearing] = {}
        self._deaf: set[str] = set()
        self._asked: set[tuple[object, ...]] = set()
        self._cases: dict[str, _Case] = {}
        self._said: dict[str, tuple[str, ...]] = {}
        self._broken_off: dict[str, tuple[str, ...]] = {}
        self._known: dict[str, NodeSliver] = {}
        self._pool = ThreadPoolExecutor(_THREADS, "fabric-direct-watch")

    def _forked(self) -> None:
        """Watch nothing in a forked child: its parent does."""
        self._begin()
        self._stopped.set()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to listen."""
        for source in self._sources:
            name = f"fabric-direct-listen {source.name}"
            threading.Thread(target=self._listen, args=(source,), name=name, daemon=True).start()

    def stop(self) -> None:
        """Listen no more; repairs that have begun go on."""
        self._stopped.set()
        with self._lock:
            hearings = list(self._hearings.values())
        for hearing in hearings:
            hearing.end()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def wait(self, seconds: float | None = None) -> bool:
        """Block until it is stopped, or for some seconds; return whether it is stopped."""
        return self._stopped.wait(seconds)

    # --- hearing

    def _listen(self, source: WatchedSource) -> None:
        """Listen to a source for as long as the watcher runs."""
        pause = _FIRST_PAUSE
        while not self._stopped.is_set():
            began = self._clock()
            error = attempt(self._hear, source)
            if self._stopped.is_set():
                return
            heard = self._clock() - began > _LONGEST_PAUSE
            pause = _FIRST_PAUSE if heard else pause
            self._tell_deaf(source, str(error or "it ended"))
            self._stopped.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _hear(self, source: WatchedSource) -> None:
        hearing = Hearing()
        with self._lock:
            self._hearings[source.name] = hearing
        if self._stopped.is_set():
            hearing.end()
        source.source.listen(partial(self._heard, source), hearing)

    def _tell_deaf(self, source: WatchedSource, why: str) -> None:
        with self._lock:
            known = source.name in self._deaf
            self._deaf.add(source.name)
        if not known:
            self._note(RepairResult.DEAF, source.name, why=why)

    def _heard(self, source: WatchedSource, change: Change) -> None:
        """Take a change; what was heard already and is not handled yet is handled once."""
        key = (change.kind, *change.names, source.uplinks and source.host)
        with self._lock:
            again = change.kind == "unknown" and source.name in self._deaf
            if again:
                self._deaf.discard(source.name)
            new = key not in self._asked and not self._stopped.is_set()
            self._asked.add(key)
        if again:
            self._note(RepairResult.HEARS, source.name)
        if new:
            heard = self._clock()
            self._submit(lambda: self._handle(key, source, change, heard))

    def _submit(self, work: Callable[[], None], tries: int = 0) -> None:
        with suppress(RuntimeError):  # it is stopped
            self._pool.submit(self._try, work, tries)

    def _try(self, work: Callable[[], None], tries: int) -> None:
        """Do what is to be done; try again later if that is not possible now."""
        error = attempt(work)
        if isinstance(error, Exception):
            log.warning("the watcher could not handle a change: %s", error)
            self._later(_growing(tries), lambda: self._submit(work, tries + 1))

    def _handle(
        self, key: tuple[object, ...], source: WatchedSource, change: Change, heard: float
    ) -> None:
        with self._lock:
            self._asked.discard(key)
        before = f"{source.name}: what was changed before"
        if source.uplinks:
            links = change.names or self._vepa_links(source.host)
            self._keep_vepa(source.host, links, change.what or before, heard)
        elif change.kind == "server":
            self._look_at(change, heard)
        else:
            self._look_at_all(before, heard)

    def _readings(self) -> list[Measurement]:
        """Return where it hears, for metrics; nothing any more once it is stopped."""
        with self._lock:
            deaf, sources = set(self._deaf), () if self._stopped.is_set() else self._sources
        hears = metrics.WATCH_HEARS
        return [
            Measurement(hears, int(s.name not in deaf), {"watch.source": s.name}) for s in sources
        ]

    # --- repairing slivers

    def _look_at(self, change: Change, heard: float) -> None:
        sliver = self._sliver_of(change.names)
        if sliver is not None and self._watched(sliver):
            self._mend(sliver.ref(), change.what, heard)

    def _sliver_of(self, names: tuple[str, ...]) -> NodeSliver | None:
        """Return the sliver of a server; the servers are listed if none of its names is known."""
        if self._known.keys().isdisjoint(names):
            self._known = _by_name(self._desk.slivers())
        return next((self._known[name] for name in names if name in self._known), None)

    def _watched(self, sliver: NodeSliver) -> bool:
        asks = sliver.watch
        return self._settings.slivers == "all" if asks is None else asks

    def _look_at_all(self, cause: str, heard: float) -> None:
        """Repair all that was changed while nobody listened; then raise the error of what is silent.

        A network service cannot ask for repairs, nor decline them: it goes by the site.
        """
        look = self._desk.drift(services=self._settings.slivers == "all")
        self._known = _by_name(look.servers)
        watched = {s.id for s in self._known.values() if self._watched(s)}
        watched |= {ref.id for ref in look.services}
        for ref in (*(drift.sliver for drift in look.drifts), *self._begun()):
            if ref.id in watched:
                self._mend(ref, cause, heard)
        for host in {pending.host for pending in self._desk.pending_looks()} - look.silent.keys():
            self._desk.look_again(host)
        for error in look.silent.values():
            raise error

    def _begun(self) -> list[SliverRef]:
        """Return the slivers whose repair was begun, for example by a watcher that was killed."""
        entries = (e for e in self._desk.unfinished() if e.operation is Operation.RECONCILE)
        return [SliverRef(id=e.sliver["id"], type=e.sliver["type"]) for e in entries]

    def _mend(self, ref: SliverRef, cause: str, heard: float, failures: int = 0) -> None:
        """Repair a sliver, or look again when the repair that is under way has ended."""
        with self._lock:
            under_way = self._cases.get(ref.id)
            if under_way is not None:
                under_way.again = cause
                return
            case = self._cases[ref.id] = _Case(heard, cause, failures=failures)
        allowed = self._limits.allow(ref.id)
        ask = self._desk.reconcile if allowed else self._desk.differences
        with asked_by(_NAME):
            future = attempt(ask, ref)
        if isinstance(future, Exception):
            self._end(ref)
            raise future
        future.add_done_callback(
            lambda done: self._submit(lambda: self._ended(ref, case, done, allowed=allowed))
        )

    def _ended(
        self, ref: SliverRef, case: _Case, future: "Future[Outcome]", *, allowed: bool
    ) -> None:
        if future.cancelled():
            self._end(ref)
            return
        outcome = future.result()
        if allowed and outcome.steps:
            self._limits.count(ref.id)
        again = self._end(ref)
        self._tell(ref, case, outcome, allowed=allowed)
        if _may_pass(outcome):
            # What was heard meanwhile is most likely what the failed repair did.
            self._try_later(ref, case, _growing(case.failures))
        elif again:
            self._mend(ref, again, self._clock())
        elif not allowed and outcome.observed and outcome.observed.differences:
            self._try_later(ref, case, _HOUR)

    def _try_later(self, ref: SliverRef, case: _Case, pause: float) -> None:
        again = partial(self._mend, ref, case.cause, self._clock(), case.failures + 1)
        self._later(pause, lambda: self._submit(again))

    def _end(self, ref: SliverRef) -> str:
        with self._lock:
            return self._cases.pop(ref.id).again

    def _tell(self, ref: SliverRef, case: _Case, outcome: Outcome, *, allowed: bool) -> None:
        """Write what came of it; the same is not reported twice in a row."""
        error, seconds = outcome.error, self._clock() - case.heard
        if outcome.failed_by(SliverBusy):
            return
        if outcome.failed_by(NotFound) and not _misses_a_part(outcome):
            self._broken_off.pop(ref.id, None)
            return
        found, differed = outcome.observed, tuple(outcome.data.get("differences", ()))
        still = found.differences if found else differed
        repaired = self._repaired(ref, outcome) if allowed else ()
        if repaired:
            self._note(
                RepairResult.REPAIRED,
                ref.id,
                cause=case.cause,
                differences=repaired,
                seconds=seconds,
            )
        why = error.message if error else "" if allowed else "the limit of repairs is reached"
        if not (error or (still and not allowed)):
            self._said.pop(ref.id, None)
            return
        if self._said.get(ref.id) != (why, *still):
            self._said[ref.id] = (why, *still)
            did = (
                RepairResult.FAILED
                if outcome.steps and allowed and not repaired
                else RepairResult.REPORTED
            )
            self._note(did, ref.id, cause=case.cause, differences=still, why=why)

    def _repaired(self, ref: SliverRef, outcome: Outcome) -> tuple[str, ...]:
        """Return what is repaired by now, with what repairs did that broke off before they read back."""
        before = self._broken_off.pop(ref.id, ())
        if outcome.observed:
            gone = dict.fromkeys((*before, *outcome.data.get("repaired", ())))
            return tuple(each for each in gone if each not in outcome.observed.differences)
        if before or outcome.status is Status.PARTIAL:
            differed = outcome.data.get("differences", ())
            self._broken_off[ref.id] = tuple(dict.fromkeys((*before, *differed)))
        return ()

    # --- repairing uplinks

    def _vepa_links(self, host: str) -> tuple[str, ...]:
        entries = self._site.hosts[host].devices if host in self._site.hosts else ()
        return tuple({entry.uplink: None for entry in entries if entry.uplink and entry.vepa})

    def _keep_vepa(self, host: str, links: Iterable[str], cause: str, heard: float) -> None:
        """Set the uplinks that site.yaml wants in VEPA mode to it again."""
        for link in set(links) & set(self._vepa_links(host)):
            mode = self._desk.bridge_mode(host, link)
            if mode != _VEPA:
                self._set_vepa(host, link, f"it is in mode {mode}, not {_VEPA}", cause, heard)

    def _set_vepa(self, host: str, link: str, said: str, cause: str, heard: float) -> None:
        subject = f"{host}/{link}"
        tell = partial(self._note, subject=subject, cause=cause, differences=(said,))
        if not self._limits.allow(subject):
            tell(RepairResult.REPORTED, why="the limit of repairs is reached")
            return
        self._limits.count(subject)
        with asked_by(_NAME):
            error = attempt(self._desk.bridge_mode, host, link, _VEPA)
        if isinstance(error, Exception):
            tell(RepairResult.FAILED, why=str(error))
        else:
            tell(RepairResult.REPAIRED, seconds=self._clock() - heard)

    # --- telling

    def _note(
        self,
        did: RepairResult,
        subject: str,
        *,
        cause: str = "",
        differences: tuple[str, ...] = (),
        why: str = "",
        seconds: float = 0.0,
    ) -> None:
        note = Note(
            at=now(),
            did=did,
            subject=subject,
            cause=cause,
            differences=differences,
            why=why,
            seconds=round(seconds, 3),
        )
        self._history.add(note)
        if did in _REPAIRS:
            metrics.record(metrics.WATCH_REPAIRS, watch_result=did.value)
        error = attempt(self._on_note, note) if self._on_note else None
        if isinstance(error, Exception):
            log.error("on_note failed for %s", subject, exc_info=error)
