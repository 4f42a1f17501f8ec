"""Each operation, from the sliver to the outcome, in the thread of its caller."""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import cache, partial
from threading import Lock
from typing import Any

from fabric_direct.calls.deadline import Deadline, in_one_piece, read_within, uninterrupted
from fabric_direct.calls.read_cache import ReadCache
from fabric_direct.calls.waiting import Waiting, heard_by
from fabric_direct.drivers.contract import (
    FoundPort,
    FoundServer,
    HostDevice,
    HostDrivers,
    Server,
)
from fabric_direct.engine.run import Event, Listener, Result, attempt, attempt_each, preview, run
from fabric_direct.engine.step import Flow, Step
from fabric_direct.errors import (
    Conflict,
    DriverError,
    FabricDirectError,
    Interrupted,
    NotFound,
    NotVerified,
    Unsupported,
)
from fabric_direct.handlers import registry
from fabric_direct.handlers.handler import Handler, Repair
from fabric_direct.handlers.vm.adoption import adoption_driver, server_name
from fabric_direct.handlers.vm.adoption_draft import Draft, draft
from fabric_direct.handlers.vm.refusal import FIXED
from fabric_direct.handlers.vm.steps.adoption import TakeBack
from fabric_direct.model import (
    NodeSliver,
    Observed,
    Operation,
    Outcome,
    PciAddress,
    SliverRef,
    Status,
    StepReport,
    StepStatus,
)
from fabric_direct.model.adoption import Adoption, ServiceAdoption, of_journal
from fabric_direct.model.fabric_am import parts_of
from fabric_direct.model.references import Needs
from fabric_direct.model.services import NetworkService
from fabric_direct.operations.late_calls import in_effect, named
from fabric_direct.operations.locate import (
    Answer,
    SliverLocator,
    SliverPresence,
    named_host,
    none_named,
    refuse_elsewhere,
    refuse_unknown,
)
from fabric_direct.operations.outcomes import (
    HostRefusals,
    failed,
    is_interrupted,
    joined,
    reconciled,
    report,
)
from fabric_direct.operations.saved_plan import PlannedSliver, placement_devices
from fabric_direct.operations.site_metrics import count_step
from fabric_direct.operations.sliver_ids import SliverIds, TypeMatch
from fabric_direct.operations.stitches import SiteStitches
from fabric_direct.operations.stitching import EndsNow
from fabric_direct.operations.whole_cards import with_whole_cards
from fabric_direct.placement.claims import Claims
from fabric_direct.placement.placer import Placement, Placer
from fabric_direct.site.config import Site
from fabric_direct.state.journal import Entry, Journal, Unfinished
from fabric_direct.state.locks import exclusive, sliver_lock
from fabric_direct.state.pending_looks import PendingLook, PendingLooks
from fabric_direct.upkeep.device_owners import Lacks
from fabric_direct.upkeep.devices import SiteDevices
from fabric_direct.upkeep.drift import SiteDrift, site_drift
from fabric_direct.upkeep.service_drift import ServiceDrift, service_drift
from fabric_direct.upkeep.services import SitePorts, SiteServices, port_slivers, site_services
from fabric_direct.upkeep.sweep.books import LocalRecords
from fabric_direct.upkeep.sweep.dry_runs import DryRuns
from fabric_direct.upkeep.sweep.sweeper import Sweeper
from fabric_direct.upkeep.watch import WatchedSource

log = logging.getLogger(__name__)
_Around = Callable[[Flow, SliverRef, Deadline], Flow]
_AT_ONCE = 32
"""Number of hosts that a sliver is deleted from in parallel."""
_NOT_UNDONE = "nothing says what it was before: its modification was finished, not undone"


@dataclass(frozen=True, slots=True)
class Progress:
    """A step of an operation begins, waits or ends."""

    sliver: str
    operation: Operation
    step: str
    """Empty while the operation itself waits, before its first step: for a lock."""
    status: StepStatus | None
    """None: it begins, or waits."""
    seconds: float
    done: int
    """How many steps have ended so far."""
    total: int
    host: str = ""
    """The host that placement chose; empty if the sliver names its host."""
    waiting: Waiting | None = None
    """What it waits for from now on, or, if that is empty, that the waiting is over; None: it begins or
    ends."""


class Operations:
    """The operations of a site."""

    def __init__(
        self,
        site: Site,
        journal: Journal,
        steps: Executor,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> None:
        """Connect to nothing yet.

        :param steps: the pool that steps run in; not the one that operations are called in.
        """
        self._site, self._journal, self._steps = site, journal, steps
        self._on_progress = on_progress
        self._lock = Lock()
        self._drivers: dict[str, HostDrivers] = {}
        self._devices = SiteDevices(site, self._bounded, self._cloud)
        self._stitches = SiteStitches(site, journal, self._bounded, self._host_with)
        lifetime = site.limits.create + site.limits.undo
        self._claims = Claims(site.state_dir, lifetime=lifetime, timeout=site.limits.call)
        self._pending_looks = PendingLooks(site.state_dir, timeout=site.limits.call)
        self._ids = SliverIds(site, journal, self._pending_looks, self._look_for, self._one_host)

    def create(
        self,
        sliver: SliverRef,
        deadline: Deadline,
        planned: Placement | None = None,
        expected: PlannedSliver | None = None,
    ) -> Outcome:
        """Create the sliver; if that fails, remove all of it, or name in the outcome what is left.

        A sliver that leaves its host or devices open is placed. If the host refuses it, the next host
        is tried.

        :param planned: its placement in a build plan, which has claimed what it takes.
        :param expected: what a saved plan says of it: nothing else is done.
        :raises Refused: if that is not what would be done now.
        :raises Conflict: if a sliver of another type has the id, as far as that can be read.
        """
        return self._taking_id(
            sliver, lambda: self._create_requested(sliver, deadline, planned, expected)
        )

    def _taking_id(self, sliver: SliverRef, make: Callable[[], Outcome]) -> Outcome:
        """Make a sliver, with its id taken before; the id is free again if nothing was made.

        :raises Conflict: if a sliver of another type has the id, as far as that can be read.
        """
        new = self._ids.take(sliver)
        outcome = attempt(make)
        if new and (isinstance(outcome, Exception) or not (outcome.ok or outcome.left)):
            attempt(self._ids.free, sliver.id)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _create_requested(
        self,
        sliver: SliverRef,
        deadline: Deadline,
        planned: Placement | None,
        expected: PlannedSliver | None,
    ) -> Outcome:
        sliver = self._requested(sliver, deadline)
        if isinstance(sliver, NodeSliver) and (sliver.open or planned):
            return self._ending(
                sliver, deadline, lambda: self._create_placed(sliver, deadline, planned, expected)
            )
        return self._ending(
            sliver, deadline, lambda: self._create_named(sliver, deadline, expected)
        )

    def _create_placed(
        self,
        sliver: NodeSliver,
        deadline: Deadline,
        planned: Placement | None,
        expected: PlannedSliver | None,
    ) -> Outcome:
        """Try one host after the other until one does not refuse the sliver.

        A saved plan has one host: no other is tried.
        """
        refusals = HostRefusals(0 if expected else self._site.placement.retries)
        chosen = expected.host if expected else None
        others = {host for host in self._site.hosts if chosen not in {None, host}}
        while True:
            turn = deadline.of_its_own()
            without = others.union(refusals.hosts)
            try:
                placement = self._placing(turn).place(sliver, planned, without=without)
            except FabricDirectError as error:
                return refusals.none_left(error)
            outcome = self._create_there(placement, turn, expected)
            next_one = refusals.take(placement.sliver.host, outcome)
            if not next_one or not deadline.remaining():
                return refusals.told(outcome)

    def _create_there(
        self, placement: Placement, deadline: Deadline, expected: PlannedSliver | None
    ) -> Outcome:
        sliver, host = placement.sliver, placement.sliver.host or ""

        def create() -> Outcome:
            if expected:
                expected.refuse_other_place(sliver)
            return self._create(sliver, host, deadline, ReadCache(), expected, chosen=host)

        outcome = self._tried(create, sliver, new=placement.new)
        warnings = placement.warnings + outcome.warnings
        return outcome.model_copy(update={"warnings": warnings, "data": {"host": host}})

    def _create_named(
        self, sliver: SliverRef, deadline: Deadline, expected: PlannedSliver | None
    ) -> Outcome:
        """Create the sliver on the host that it names, or where nothing else can have it."""
        reads = ReadCache()
        host = self._host_of(sliver, deadline, reads)
        new = self._remember(sliver, host)
        return self._tried(
            lambda: self._create(sliver, host, deadline, reads, expected), sliver, new=new
        )

    def _tried(self, create: Callable[[], Outcome], sliver: SliverRef, *, new: bool) -> Outcome:
        """Return the outcome of a creation; forget its host if that is new and nothing is there."""
        outcome = attempt(create)
        if isinstance(outcome, Exception):
            outcome = failed(Operation.CREATE, sliver, outcome)
        if not new or outcome.ok or outcome.left:
            return outcome
        return _with_warnings(outcome, _noted(self._claims.drop, sliver.id))

    def _create(
        self,
        sliver: SliverRef,
        host: str,
        deadline: Deadline,
        reads: ReadCache,
        expected: PlannedSliver | None,
        *,
        chosen: str = "",
    ) -> Outcome:
        """Create the sliver on a host.

        :param chosen: the host, if placement has chosen it.
        """
        handler = self._handler_on(host, sliver, deadline, reads)
        with self._devices.lost_named(host, sliver, deadline):
            flow = self._stitches.around(handler.create(sliver), sliver, deadline)
        job = _Job(Operation.CREATE, sliver, handler, flow, reads, chosen, expected=expected)
        self._pending_looks.made(sliver.id, host)
        return self._apply(job, deadline)

    def _remember(self, sliver: SliverRef, host: str) -> bool:
        """Remember on which host a sliver is, and return whether that is new.

        So it is not created on another one as well, and no other has to be asked whether it has it.
        """
        new = not self._one_host() and self._claims.home(sliver.id) != host
        if new:
            self._claims.remember(sliver.id, host)
        return new

    def _ending(
        self, sliver: SliverRef, deadline: Deadline, work: Callable[[], Outcome]
    ) -> Outcome:
        """Settle the claims of the sliver when the operation ends, whatever its result.

        What a late call may still make is not visible on its host: its claim stays until it expires.
        """
        outcome = attempt(work)
        warnings = () if deadline.late() else _noted(self._claims.settle, sliver.id)
        if isinstance(outcome, Exception):
            raise outcome
        return _with_warnings(outcome, warnings)

    def _placing(self, deadline: Deadline) -> SliverLocator:
        def drivers_of(host: str) -> HostDrivers:
            return self._bounded(host, deadline)

        return SliverLocator(self._site, self._journal, self._claims, drivers_of)

    def _requested(self, sliver: SliverRef, deadline: Deadline) -> SliverRef:
        """Return the sliver with what it takes from the ends that it names, and with whole cards."""
        return self._with_whole_cards(self._stitches.stitched(sliver, deadline))

    def _with_whole_cards(self, sliver: SliverRef) -> SliverRef:
        return with_whole_cards(self._site, sliver) if isinstance(sliver, NodeSliver) else sliver

    def modify(
        self, sliver: SliverRef, deadline: Deadline, expected: PlannedSliver | None = None
    ) -> Outcome:
        """Modify the sliver; if that fails, restore it, or name in the outcome what is not restored.

        What the sliver leaves open stays as it is; placement chooses the functions of new devices.

        :param expected: what a saved plan says of it: nothing else is done.
        :raises Refused: if that is not what would be done now.
        """

        def modify() -> Outcome:
            wanted = self._requested(sliver, deadline)
            return self._modify_into(wanted, deadline, self._stitches.around, expected)

        outcome = self._taking_id(sliver, modify)
        if not outcome.ok:
            return outcome
        return _with_warnings(outcome, _told(self._stitches.outdated, sliver, deadline))

    def _modify_into(
        self,
        sliver: SliverRef,
        deadline: Deadline,
        around: _Around,
        expected: PlannedSliver | None = None,
    ) -> Outcome:
        if not (isinstance(sliver, NodeSliver) and sliver.open):
            return self._modify(sliver, deadline, around, expected)

        def modify() -> Outcome:
            placed = self._placing(deadline).change(sliver)
            if expected:
                expected.refuse_other_place(placed)
            return self._modify(placed, deadline, around, expected)

        return self._ending(sliver, deadline, modify)

    def _modify(
        self,
        sliver: SliverRef,
        deadline: Deadline,
        around: _Around,
        expected: PlannedSliver | None,
    ) -> Outcome:
        reads = ReadCache()
        host = self._host_of(sliver, deadline, reads)
        handler = self._handler_on(host, sliver, deadline, reads)
        with self._devices.lost_named(host, sliver, deadline):
            flow = around(handler.modify(sliver), sliver, deadline)
        job = _Job(Operation.MODIFY, sliver, handler, flow, reads, expected=expected)
        return self._apply(job, deadline)

    def reconcile(self, sliver: SliverRef, deadline: Deadline) -> Outcome:
        """Make the sliver again what its stamp says; name what cannot be repaired.

        :raises Conflict: if another operation on it is unfinished: its stamp may be outdated; or if a
            sliver of another type has the id, by the books.
        """
        self._refuse_unfinished(sliver.id)
        sliver, reads = self._ids.typed(sliver), ReadCache()
        self._ids.refuse_other(sliver)
        host = self._host_of(sliver.ref(), deadline, reads)
        handler = self._handler_on(host, sliver, deadline, reads)
        with self._devices.lost_named(host, sliver, deadline):
            repair: Repair = handler.reconcile(sliver.ref())
        if not repair.flow.stages:
            outcome = reconciled(sliver, repair, (), repair.found)
            return self._end(outcome) if self._journal.of(sliver.id) else outcome
        job = _Job(Operation.RECONCILE, repair.sliver, handler, repair.flow, reads)
        outcome = self._apply(job, deadline)
        if not outcome.ok:
            return outcome
        found = handler.observed or repair.found
        if found.differences:  # an answer may lack what is there: once more, before it is said
            reads.invalidate()
            with self._devices.lost_named(host, sliver, deadline):
                again = attempt(handler.reconcile, sliver.ref())
            if isinstance(again, Repair):
                found, repair = again.found, replace(repair, beyond=again.beyond)
        return reconciled(sliver, repair, outcome.steps, found)

    def _refuse_unfinished(self, sliver_id: str) -> None:
        entry = self._journal.of(sliver_id)
        if entry and entry.operation is not Operation.RECONCILE:
            raise Conflict(
                f"an operation on sliver {sliver_id} is unfinished: {entry.operation}",
                remedy="finish or undo it first: fabric-direct recover",
            )

    def delete(self, sliver: SliverRef, deadline: Deadline) -> Outcome:
        """Delete the sliver from every host that has anything of it; the outcome names what is left.

        :raises Conflict: if it is a network service that nodes are stitched to, or if the id is a
            network service's, and the type is not.
        """
        sliver = self._ids.typed(sliver)
        self._ids.refuse_other(sliver)
        self._stitches.refuse_used(sliver)
        outcome = self._delete(sliver, deadline)
        if not outcome.ok:
            return outcome
        orphaned = _told(self._stitches.orphaned, sliver)
        forgotten = (*_noted(self._claims.drop, sliver.id), *_noted(self._ids.free, sliver.id))
        return _with_warnings(outcome, (*forgotten, *orphaned))

    def _look_for(self, ref: SliverRef) -> TypeMatch:
        """Return what the site has of a sliver, on the hosts that answer within ``limits.search``.

        :raises Refused: if the site serves no slivers of its type.
        """
        deadline, hosts = Deadline.within(self._site.limits.of_search), [self._some_host]
        if self._cloud():
            hosts = [self._host_of_devices(ref)]
        elif not self._one_host() and registry.handler_for(ref.type).hosted:
            hosts = [*self._placing(deadline).holders(ref).having]
        there = [self._handler_on(host, ref, deadline) for host in hosts]
        things = frozenset(thing for each in there for thing in each.leftovers(ref))
        service = self._bounded(self._some_host, deadline).services.get(ref.type)
        if service is None:
            return TypeMatch(any(each.exists(ref) for each in there), things)
        found = service.find(ref.id)
        return TypeMatch(found is not None and found.resource_type in {"", ref.type}, things)

    def _delete(self, sliver: SliverRef, deadline: Deadline) -> Outcome:
        """Delete the sliver from each host as soon as the host says that it has anything of it.

        The journal's entry is about all of them: it ends once nothing is left on any.
        """
        ref, earlier = sliver.ref(), deadline.late()
        placing = self._placing(deadline)
        may_have, unread = self._may_have(sliver, placing)
        answers = placing.everywhere(sliver, may_have)
        entry, warnings = self._begin_deletion(ref)
        warnings += unread
        unlooked: list[str] = []
        turns: list[Deadline] = []

        def clear(host: str, answer: Answer) -> Outcome:
            unknown = host in may_have or isinstance(answer, Interrupted)
            if isinstance(answer, Exception) and not unknown:
                unlooked.append(host)
                return _not_looked_at(host, answer, ref)
            turns.append(deadline.of_its_own())
            return self._clear(host, answer, ref, turns[-1], entry)

        with ThreadPoolExecutor(_AT_ONCE, "fabric-direct-delete") as pool:
            clearing = {
                host: pool.submit(copy_context().run, clear, host, answer)
                for host, answer in answers
            }
        # the same, whichever host answers first
        outcomes = {host: clearing[host].result() for host in sorted(clearing)}
        untouched = not (entry.resumed or any(turn.changing for turn in turns))
        if untouched and any(map(is_interrupted, outcomes.values())):
            nothing = failed(Operation.DELETE, ref, _before_any_change(Operation.DELETE, ref))
            return _with_warnings(self._end(nothing), warnings)
        unnoted = attempt(self._note_looks, ref, outcomes, unlooked)
        outcome = _with_left(joined(ref, outcomes), named({*earlier, *deadline.late()}))
        if isinstance(unnoted, Exception):
            outcome = _with_left(outcome, tuple(f"unknown: {host}: {unnoted}" for host in unlooked))
            warnings += (str(unnoted),)
        if outcome.ok:
            warnings += _noted(self._stitches.forget, ref.id)
        return _with_warnings(self._end(outcome), warnings)

    def _may_have(
        self, sliver: SliverRef, placing: SliverLocator
    ) -> tuple[frozenset[str], tuple[str, ...]]:
        """Return the hosts that may have the sliver; all, with a warning, if the books are damaged."""
        try:
            return placing.may_have(sliver, self._pending_looks.of(sliver.id)), ()
        except DriverError as error:
            return frozenset(self._site.hosts), (str(error),)

    def _note_looks(
        self, ref: SliverRef, outcomes: Mapping[str, Outcome], unlooked: Collection[str]
    ) -> None:
        """Note the hosts where a deletion could not look, or left something; strike the others."""
        due = [host for host in outcomes if host in unlooked or not outcomes[host].ok]
        if len(outcomes) > 1:
            looks = (PendingLook(ref, host, found=host not in unlooked) for host in due)
            self._pending_looks.write(looks)
        for look in self._pending_looks.of(ref.id):
            if look.host not in due:  # it was looked at, or is no host of the site any more
                self._pending_looks.strike(ref.id, look.host)

    def pending_looks(self) -> tuple[PendingLook, ...]:
        """Return the hosts where slivers that were deleted, and not made again, were not looked for."""
        looks, homes = self._pending_looks.all(), self._claims.homes()
        return tuple(
            look for look in looks if look.latest and not look.found and look.sliver.id not in homes
        )

    def look_again(self, look: PendingLook, deadline: Deadline) -> Outcome:
        """Look at a host for what it has of a deleted sliver, and delete that, and nothing elsewhere.

        :raises Conflict: if the sliver was made again meanwhile.
        """
        ref, host = look.sliver, look.host
        outcome = Outcome(operation=Operation.DELETE, sliver=ref, status=Status.DONE)
        due = self._pending_looks.of(ref.id)
        if look not in due or host not in self._site.hosts:
            self._pending_looks.strike(ref.id, host)
            return outcome
        if self._claims.home(ref.id) is not None:
            raise Conflict(
                f"sliver {ref.id} was made again", remedy="its next deletion looks there"
            )
        answer = attempt(self._placing(deadline).presence, ref, host)
        if isinstance(answer, Interrupted):
            raise answer
        if isinstance(answer, Exception):
            return _not_looked_at(host, answer, ref)
        entry = Entry(resumed=False, owns_everything=True)
        outcome = self._clear(host, answer, ref, deadline, entry)
        if outcome.ok:
            self._pending_looks.strike(ref.id, host)
        return outcome

    def _clear(
        self, host: str, answer: Answer, ref: SliverRef, deadline: Deadline, entry: Entry
    ) -> Outcome:
        """Delete what a host has of a sliver; an outcome that cannot be known leaves it unknown."""
        if answer is SliverPresence.NOTHING:
            return Outcome(operation=Operation.DELETE, sliver=ref, status=Status.DONE)
        outcome = (
            answer
            if isinstance(answer, Exception)
            else attempt(self._delete_on, host, ref, deadline, entry)
        )
        if isinstance(outcome, Exception):
            said = failed(Operation.DELETE, ref, outcome)
            return said.model_copy(update={"left": (f"unknown: {outcome}",)})
        return outcome

    def _delete_on(self, host: str, ref: SliverRef, deadline: Deadline, entry: Entry) -> Outcome:
        """Delete what a host has; of a server that its cloud has moved, on its former worker, too."""
        reads = ReadCache()
        if not self._cloud():
            return self._delete_from(host, ref, deadline, entry, reads)
        server = self._server_in_cloud(ref, deadline, reads)
        host, former = server.host if server else "", _former_worker(server)
        found = host or self._host_of_devices(ref)
        outcome = self._delete_from(found, ref, deadline, entry, reads)
        if not (former and outcome.ok):
            return outcome
        rest = self._delete_from(former, ref, deadline, entry, ReadCache())
        return joined(ref, {host: outcome, former: rest})

    def _delete_from(
        self, host: str, ref: SliverRef, deadline: Deadline, entry: Entry, reads: ReadCache
    ) -> Outcome:
        handler = self._handler_on(host, ref, deadline, reads)
        job = _Job(Operation.DELETE, ref, handler, handler.delete(ref), reads, entry=entry)
        return self._apply(job, deadline)

    def adopt(
        self, wanted: Adoption | ServiceAdoption, deadline: Deadline, *, plan: bool = False
    ) -> Outcome:
        """Stamp a sliver that others made; if that fails, remove the stamps, or name what is left.

        :param plan: only return what each step would do.
        """
        reads = ReadCache(read_only=plan)
        job = self._adoption(wanted, deadline, reads)
        if not plan:
            return self._taking_id(job.sliver, lambda: self._apply(job, deadline))
        steps = read_within(deadline.remaining(), "the plan to adopt it", lambda: preview(job.flow))
        return Outcome(
            operation=Operation.PLAN,
            sliver=wanted.sliver.ref(),
            status=Status.DONE,
            steps=steps,
            warnings=tuple(reads.warnings),
        )

    def _adoption(
        self, wanted: Adoption | ServiceAdoption, deadline: Deadline, reads: ReadCache
    ) -> "_Job":
        if isinstance(wanted, Adoption):
            whole = with_whole_cards(self._site, wanted.sliver)
            wanted = wanted.model_copy(update={"sliver": whole})
        sliver = wanted.sliver
        host = self._host_to_adopt(wanted, deadline) if isinstance(wanted, Adoption) else ""
        handler = self._handler_on(host, sliver, deadline, reads)
        with reads.active():
            flow = handler.adopt(wanted)
        return _Job(Operation.ADOPT, sliver, handler, flow, reads, data=wanted.journal_data())

    def _host_to_adopt(self, wanted: Adoption, deadline: Deadline) -> str:
        """Return the worker of the server to adopt; empty if it is not there."""
        driver = adoption_driver(self._bounded("", deadline))
        found = driver.server(server_name(wanted), whole=False)
        return found.host if found else ""

    def _disown(self, wanted: Adoption | ServiceAdoption, deadline: Deadline) -> Outcome:
        """Remove the stamps of an unfinished adoption."""
        reads = ReadCache()
        job = self._adoption(wanted, deadline, reads)
        stages = [map(TakeBack, filter(_planned, stage)) for stage in reversed(job.flow.stages)]
        return self._apply(replace(job, flow=Flow.of(*stages)), deadline)

    def strangers(self, prefix: str = "") -> tuple[FoundServer, ...]:
        """Return the unstamped servers whose name starts with ``prefix``.

        Also those whose adoption is unfinished. Empty if servers of others cannot be adopted.
        """
        deadline = Deadline.within(self._site.limits.probe)
        driver = self._bounded("", deadline).adoption if self._cloud() else None
        return driver.strangers(prefix) if driver else ()

    def ports_named(self, names: Sequence[str]) -> tuple[FoundPort, ...]:
        """Return the project's ports of these ids, names or MAC addresses; none but in a cloud."""
        deadline = Deadline.within(self._site.limits.probe)
        driver = self._bounded("", deadline).adoption if self._cloud() else None
        return driver.ports_named(tuple(names)) if driver and names else ()

    def drafts(self, prefix: str = "") -> tuple[Draft, ...]:
        """Return fabric_am's servers whose name starts with ``prefix``, each as it would be adopted.

        :raises Unsupported: if the site's servers cannot be adopted.
        """
        deadline = Deadline.within(self._site.limits.modify)
        found = adoption_driver(self._bounded("", deadline)).strangers(prefix)
        named = {server.id: server for server in found if parts_of(server.name)}
        drafted = attempt_each(lambda s: self._drafted(named[s], deadline), named)
        return tuple(_draft(named[s], each) for s, each in drafted.items())

    def _drafted(self, server: FoundServer, deadline: Deadline) -> Adoption:
        drivers = self._bounded(server.host, deadline)
        whole = adoption_driver(drivers).server(server.id)
        if whole is None:
            raise NotFound(f"{server} is gone")
        return draft(self._site, drivers, whole)

    def recover(self, entry: Unfinished, deadline: Deadline, *, undo: bool) -> Outcome:
        """Finish or undo an unfinished operation, unless it has ended meanwhile.

        A creation of what was there before is finished: undoing would delete what it did not make.
        """
        if entry.operation is Operation.ADOPT:
            return self._recover_adoption(entry, deadline, undo=undo)
        model = registry.sliver_model(entry.sliver)
        whole = entry.sliver.keys() - {"id", "type"}
        sliver = (model if whole else SliverRef).model_validate(entry.sliver)
        if entry != self._journal.of(sliver.id):
            return Outcome(operation=entry.operation, sliver=sliver.ref(), status=Status.DONE)
        if entry.operation is Operation.RECONCILE:
            return self.reconcile(sliver, deadline)
        if entry.operation is Operation.DELETE or type(sliver) is SliverRef:
            return self.delete(sliver, deadline)
        if entry.operation is Operation.MODIFY:
            finish = partial(self._modify_back, entry) if undo else self.modify
            return finish(sliver, deadline)
        undo = undo and entry.owns_everything
        return self.delete(sliver, deadline) if undo else self.create(sliver, deadline)

    def _modify_back(self, entry: Unfinished, sliver: SliverRef, deadline: Deadline) -> Outcome:
        """Make the sliver what it was, whatever has become of what it is stitched to.

        Where nothing says what a network was, or ports, their modification is finished, and a warning
        says so.

        :raises Unsupported: where nothing says what a network service was.
        """
        former = self._former(entry, sliver, deadline)
        outcome = self._modify_into(former, deadline, self._stitches.back)
        finished = former is sliver and outcome.ok
        return _with_warnings(outcome, (_NOT_UNDONE,) if finished else ())

    def _recover_adoption(self, entry: Unfinished, deadline: Deadline, *, undo: bool) -> Outcome:
        wanted = of_journal(entry.sliver)
        if entry != self._journal.of(wanted.sliver.id):
            ref = wanted.sliver.ref()
            return Outcome(operation=entry.operation, sliver=ref, status=Status.DONE)
        return self._disown(wanted, deadline) if undo else self.adopt(wanted, deadline)

    def _former(self, entry: Unfinished, sliver: SliverRef, deadline: Deadline) -> SliverRef:
        """Return the sliver as it was before an unfinished modification.

        The journal says so; of what no modification changes in a server, its stamp: it may have been
        resized since.
        """
        former = type(sliver).model_validate(entry.before) if entry.before else sliver
        if isinstance(former, NetworkService) and not entry.before:
            raise Unsupported(
                f"the modification of {sliver.id} cannot be undone",
                why="nothing says what it was: secrets of its peers are kept nowhere",
                remedy="modify it with its former file, or finish it: recover without --undo",
            )
        if not isinstance(former, NodeSliver):
            return former
        host = self._host_of(sliver, deadline, ReadCache())
        server = self._bounded(host, deadline).compute.find(sliver.id)
        if server is None:
            return former
        stamped = server.stamp.sliver
        if not entry.before:
            return stamped.model_copy(update={"boot_script": former.boot_script})
        return former.model_copy(update={field: getattr(stamped, field) for field in FIXED})

    def probe(self, sliver: SliverRef, deadline: Deadline) -> Outcome:
        """Read the sliver, on whatever host it is; what it leaves open is taken as it is.

        :raises Conflict: if a sliver of another type has the id, by the books.
        """
        sliver, reads = self._ids.typed(sliver), ReadCache()
        self._ids.refuse_other(sliver)
        ends = attempt(self._stitches.ends_now, sliver, deadline)
        if isinstance(ends, Exception):
            ends = EndsNow(sliver, unknown=(str(ends),))
        asked = self._requested(sliver, deadline) if ends.agree else None
        known = asked or self._with_whole_cards(ends.sliver)
        try:
            observed = self._observe(known, deadline, reads)
        except Conflict:
            observed = self._handler(known.ref(), deadline, reads).observe(known)
        every = (*observed.differences, *ends.differences)
        observed = observed.model_copy(update={"differences": every})
        return Outcome(
            operation=Operation.PROBE,
            sliver=sliver.ref(),
            status=Status.DONE,
            observed=observed,
            warnings=(*ends.unknown, *reads.warnings),
        )

    def _observe(self, sliver: SliverRef, deadline: Deadline, reads: ReadCache) -> Observed:
        """Observe the sliver on the host that it names.

        :raises Conflict: if another one has it.
        """
        if isinstance(sliver, NodeSliver) and sliver.open:
            sliver = self._placing(deadline).known(sliver).sliver
        return self._handler(sliver, deadline, reads).observe(sliver)

    def poa(
        self, sliver: SliverRef, action: str, data: dict[str, Any], deadline: Deadline
    ) -> Outcome:
        """Carry out an operational action; one that fails is not undone, but what it called is named."""
        sliver, reads = self._ids.typed(sliver), ReadCache()
        handler = self._handler(sliver, deadline, reads)
        with reads.active(), in_one_piece():
            answer = attempt(handler.act, sliver, action, data)
        if isinstance(answer, Exception):
            left = named(deadline.given_up) + in_effect(deadline.changing)
            return failed(Operation.POA, sliver, answer, left)
        return Outcome(
            operation=Operation.POA,
            sliver=sliver.ref(),
            status=Status.DONE,
            data=answer,
            warnings=tuple(reads.warnings),
        )

    def plan(self, sliver: SliverRef, operation: Operation | None, deadline: Deadline) -> Outcome:
        """Return what each step of an operation would do. One limit holds for all steps together.

        The data of the outcome have the ``operation``. Of a sliver that leaves its host or devices open,
        they name the functions of its ``devices`` and, if it is not there, the ``host`` that placement
        would choose. Of a service whose controller shows what it would send to its devices, they have
        that as ``device_changes``, by the names of the devices.

        :param operation: by default modify if the sliver is there, else create.
        :raises Conflict: if the id is a network service's, and the type is not.
        """
        sliver = self._ids.typed(sliver)
        self._ids.refuse_other(sliver)
        if operation is Operation.RECONCILE:
            return self._plan_repair(sliver.ref(), deadline)
        make: type[Handler] = registry.handler_for(sliver.type)
        reads = ReadCache(read_only=True)
        if operation is not Operation.DELETE:
            sliver = self._requested(sliver, deadline)
        placement = self._foreseen(sliver, operation, deadline)
        wanted = placement.sliver if placement else sliver
        host = self._host_of(wanted, deadline, reads)

        def ask() -> tuple[Operation, tuple[StepReport, ...]]:
            with reads.active():
                handler = make(self._site, self._drivers_of(host))
                usual = Operation.MODIFY if handler.exists(wanted) else Operation.CREATE
                chosen = operation or usual
                flow = getattr(handler, chosen.value)(wanted)
                if operation is not Operation.DELETE:
                    flow = self._stitches.around(flow, wanted, deadline)
                return chosen, preview(flow)

        with self._devices.lost_named(host, sliver, deadline):
            what = f"the plan to {operation or 'change it'}"
            planned, steps = read_within(deadline.remaining(), what, ask)
        return Outcome(
            operation=Operation.PLAN,
            sliver=sliver.ref(),
            status=Status.DONE,
            steps=steps,
            data={
                "operation": planned.value,
                **_placement_data(placement),
                **({"device_changes": reads.device_changes} if reads.device_changes else {}),
            },
            warnings=(placement.warnings if placement else ()) + tuple(reads.warnings),
        )

    def _plan_repair(self, ref: SliverRef, deadline: Deadline) -> Outcome:
        """Return how the sliver differs from its stamp, and what each step of its repair would do."""
        make: type[Handler] = registry.handler_for(ref.type)
        reads = ReadCache(read_only=True)
        host = self._host_of(ref, deadline, reads)

        def ask() -> tuple[Repair, tuple[StepReport, ...]]:
            with reads.active():
                repair: Repair = make(self._site, self._drivers_of(host)).reconcile(ref)
                return repair, preview(repair.flow)

        repair, steps = read_within(deadline.remaining(), "the plan to reconcile it", ask)
        return Outcome(
            operation=Operation.PLAN,
            sliver=ref,
            status=Status.DONE,
            steps=steps,
            observed=repair.found,
            warnings=tuple(reads.warnings),
            data={"beyond": list(repair.beyond)} if repair.beyond else {},
        )

    def _foreseen(
        self, sliver: SliverRef, operation: Operation | None, deadline: Deadline
    ) -> Placement | None:
        """Return the placement of a sliver that leaves its host or devices open, without a claim."""
        if not (isinstance(sliver, NodeSliver) and sliver.open) or operation is Operation.DELETE:
            return None
        placing = self._placing(deadline)
        placement = placing.place(sliver, claim=False)
        if placement.new or not placement.sliver.open:
            return placement
        return Placement(placing.change(sliver, claim=False))

    def _apply(self, job: "_Job", deadline: Deadline) -> Outcome:
        """Run a flow and return its outcome.

        :raises Refused: if its steps find something else than the saved plan that it carries out.
        :raises SliverBusy: if the lock of a sliver that it touches is not released before the deadline.
        """
        with self._touched_slivers_locked(job, deadline):
            if job.expected:
                job.expected.refuse_other_steps(preview(job.flow))
            return self._run(job, deadline)

    @contextmanager
    def _touched_slivers_locked(self, job: "_Job", deadline: Deadline) -> Iterator[None]:
        """Hold the locks of the slivers that a flow touches beside its own.

        No step waits for them: waiting steps could fill the pool and block those that they wait for. All
        operations take the locks in the same order, so that no two wait for each other.
        """
        with ExitStack() as stack:
            for sliver in sorted(set(job.flow.touches)):
                path = sliver_lock(self._site.state_dir, sliver)
                limit = deadline.remaining()
                stack.enter_context(exclusive(path, f"sliver {sliver}", timeout=limit))
                job.reads.invalidate()
            yield

    def _run(self, job: "_Job", deadline: Deadline) -> Outcome:
        everything = job.flow.owns_everything
        entry = job.entry or self._begin(
            job.operation,
            job.data or _data(job.sliver),
            owns_everything=everything,
            before=job.flow.before,
        )
        result = run(
            job.flow,
            self._steps,
            deadline=deadline,
            undo_limit=self._site.limits.undo,
            listener=self._listener(job),
        )
        interrupted = isinstance(result.error, Interrupted) and not result.undone
        find_left = _left_by_interruption if interrupted else self._left
        with uninterrupted():
            left = find_left(job, result, entry, deadline)
        if job.entry is None:
            left += _may_come(result, deadline)
        outcome_of = _interrupted if interrupted else _failure if result.error else _success
        outcome = outcome_of(job, result, left)
        return self._end(outcome) if job.entry is None else outcome

    def _begin(
        self,
        operation: Operation,
        sliver: dict[str, Any],
        *,
        owns_everything: bool,
        before: SliverRef | None = None,
    ) -> Entry:
        was = _data(before) if before else None
        return self._journal.begin(operation, sliver, owns_everything=owns_everything, before=was)

    def _begin_deletion(self, ref: SliverRef) -> tuple[Entry, tuple[str, ...]]:
        """Note in the journal that a deletion begins; return the entry, and what failed as a warning.

        A deletion goes by stamp and needs no memory, so that it can free a disk that is full.
        """
        try:
            return self._begin(Operation.DELETE, _data(ref), owns_everything=True), ()
        except DriverError as error:
            return Entry(resumed=True, owns_everything=True), (str(error),)

    def _end(self, outcome: Outcome) -> Outcome:
        """End the journal's entry of an operation that left nothing."""
        if outcome.left:
            return outcome
        return _with_warnings(outcome, _noted(self._journal.end, outcome.sliver.id))

    def _left(
        self, job: "_Job", result: Result, entry: Entry, deadline: Deadline
    ) -> tuple[str, ...]:
        """Name what an operation left, after removing what unfinished ones before it made."""
        if not result.error:
            return self._still_there(job, entry, deadline)
        if job.operation in {Operation.MODIFY, Operation.RECONCILE}:
            return _not_taken_back(result) or (_drift(job) if entry.resumed else ())
        if job.operation is Operation.ADOPT:
            return _not_taken_back(result)
        if job.operation is Operation.CREATE and not entry.owns_everything:
            return _not_taken_back(result)
        if job.operation is Operation.CREATE:
            return self._left_of_creation(job, result, deadline)
        return _leftovers(job)

    def _left_of_creation(self, job: "_Job", result: Result, deadline: Deadline) -> tuple[str, ...]:
        """Delete what a creation left and name what is still left; what is gone is stitched to nothing.

        Undoing keeps the stitches where a step could not be undone, also if that is deleted here.
        """
        left = _leftovers(job)
        if left and not deadline.late():
            deadline.renew(self._site.limits.undo)
            left = self._left_of_removal(job, deadline)
        if left or _may_come(result, deadline):
            return left
        return _noted(self._stitches.forget, job.sliver.id)

    def _left_of_removal(self, job: "_Job", deadline: Deadline) -> tuple[str, ...]:
        """Delete all of the sliver and name what is still left."""
        removal = attempt(job.handler.delete, job.sliver.ref())
        if isinstance(removal, Flow):
            limit = deadline.remaining()
            run(removal, self._steps, deadline=deadline, undo_limit=limit)
        return _leftovers(job)

    def _still_there(self, job: "_Job", entry: Entry, deadline: Deadline) -> tuple[str, ...]:
        """Name what a deletion left.

        A request of a killed process may take effect after this deletion looked for what to delete.
        What it made is deleted, too.
        """
        if job.operation is not Operation.DELETE:
            return ()
        left = _leftovers(job)
        return self._left_of_removal(job, deadline) if left and entry.resumed else left

    def _listener(self, job: "_Job") -> Listener:
        operation, sliver, total = job.operation, job.sliver.id, len(job.flow.steps())
        where = f" on {job.host}" if job.host else ""

        def tell(event: Event) -> None:
            step, report = event.step, event.report
            said = event.waiting or (report.status if report else "begins")
            log.debug("%s %s%s: %s %s", operation, sliver, where, step, said, extra={"step": step})
            count_step(event)
            if self._on_progress:
                status, seconds = (report.status, report.seconds) if report else (None, 0.0)
                count = event.ended, total
                self._on_progress(
                    Progress(
                        *(sliver, operation, step, status, seconds, *count, job.host, event.waiting)
                    )
                )

        return tell

    @contextmanager
    def telling(self, operation: Operation, sliver: str) -> Iterator[None]:
        """Tell what an operation waits for in the block, before its first step."""
        tell = self._on_progress
        if tell is None:
            yield
            return

        def hear(waiting: Waiting) -> None:
            attempt(tell, Progress(sliver, operation, "", None, 0.0, 0, 0, "", waiting))

        with heard_by(hear):
            yield

    def _handler(
        self, sliver: SliverRef, deadline: Deadline, reads: ReadCache | None = None
    ) -> Handler:
        reads = reads or ReadCache()
        host = self._host_of(sliver, deadline, reads)
        return self._handler_on(host, sliver, deadline, reads)

    def _handler_on(
        self, host: str, sliver: SliverRef, deadline: Deadline, reads: ReadCache | None = None
    ) -> Handler:
        make: type[Handler] = registry.handler_for(sliver.type)
        return make(self._site, self._bounded(host, deadline, reads))

    def _one_host(self) -> bool:
        """Return whether there is nowhere else to look for a sliver."""
        return len(self._site.hosts) <= 1 or self._cloud()

    @property
    def _some_host(self) -> str:
        """A host, for what is on none or in a cloud."""
        return next(iter(self._site.hosts), "")

    def _cloud(self) -> bool:
        return self._drivers_of(self._some_host).compute.cloud

    def _host_in_cloud(self, sliver: SliverRef, deadline: Deadline, reads: ReadCache) -> str:
        """Return the worker that has the sliver's server, or the one that it names, if any.

        :raises Conflict: if another one has it than it names.
        """
        wanted, server = named_host(sliver) or "", self._server_in_cloud(sliver, deadline, reads)
        has = server.host if server else ""
        if has and wanted and has != wanted:
            raise Conflict(f"sliver {sliver.id} is on {has}, not on {wanted}")
        return has or wanted

    def _server_in_cloud(
        self, sliver: SliverRef, deadline: Deadline, reads: ReadCache
    ) -> Server | None:
        """Return the sliver's server; None if there is none, as of what is no node."""
        if not _is_node(sliver):
            return None
        drivers = self._bounded(named_host(sliver) or "", deadline, reads)
        return drivers.compute.find(sliver.id)

    def _host_of_devices(self, ref: SliverRef) -> str:
        """Return the worker that keeps records of a node whose server is gone; empty if none does.

        Each has ``limits.search`` to answer.
        """
        if not _is_node(ref):
            return ""
        return self._devices.recorded_on(ref.id, Deadline.within(self._site.limits.of_search))

    def _host_of(self, sliver: SliverRef, deadline: Deadline, reads: ReadCache) -> str:
        """Return the only host, the one that has the sliver, or the one that it names.

        What is on no host is reached from any.

        :raises InvalidSliver: if it names an unknown one, or none where there are several.
        :raises Conflict: if another one has it than it names.
        """
        if self._cloud():
            return self._host_in_cloud(sliver, deadline, reads)
        refuse_unknown(self._site, sliver, cloud=False)
        hosts, wanted = list(self._site.hosts), named_host(sliver)
        if len(hosts) <= 1 or not registry.handler_for(sliver.type).hosted:
            return next(iter(hosts), "")
        if self._placing(deadline).candidates(sliver) == (wanted,):
            return str(wanted)
        having = self._hosts_with(sliver, deadline)
        refuse_elsewhere(sliver, having)
        if not having and isinstance(sliver, NodeSliver) and sliver.host is None:
            raise none_named(self._site)
        return str(wanted or (having or hosts)[0])

    def _hosts_with(self, sliver: SliverRef, deadline: Deadline) -> list[str]:
        """Return the hosts that have anything of the sliver.

        :raises Unreachable: if none has, and one that the sliver does not name may have, but does not
            answer.
        """
        holders, named = self._placing(deadline).holders(sliver), named_host(sliver)
        silent = [error for host, error in holders.silent.items() if host != named]
        if silent and not holders.having:
            raise silent[0]
        return list(holders.having)

    def _host_with(self, sliver: SliverRef, deadline: Deadline) -> str:
        return self._host_of(sliver, deadline, ReadCache())

    # --- many slivers

    def needs(self, refs: Sequence[SliverRef]) -> Needs:
        """Return what slivers that are there are stitched to, as far as that can be read."""
        found = attempt(self._stitches.needs, refs)
        return {} if isinstance(found, Exception) else found

    def placer(self) -> Placer:
        """Return what places many slivers at once, with drivers bounded by the limit of a probe.

        A host that hangs takes the limit of a call while the others are read, and none of that.
        """
        deadline = Deadline.within(self._site.limits.call + self._site.limits.probe)
        return Placer(self._site, self._claims, lambda host: self._bounded(host, deadline))

    def end_claim(self, sliver: SliverRef, *, begun: bool) -> None:
        """End what a plan has claimed for a sliver, whose creation was begun or not."""
        end = self._claims.settle if begun else self._claims.drop
        end(sliver.id)

    def sweeper(self, dry_runs: DryRuns) -> Sweeper:
        """Return a sweeper whose calls end by the probe limit, like those of :meth:`placer`."""
        deadline = Deadline.within(self._site.limits.call + self._site.limits.probe)
        books = LocalRecords(self._site, self._journal, self._claims)
        return Sweeper(self._site, books, dry_runs, lambda host: self._bounded(host, deadline))

    # --- what there is

    @property
    def in_cloud(self) -> bool:
        """Return whether the site's servers belong to a cloud, whatever host they are on."""
        return self._cloud()

    def drift(self, hosts: Collection[str] | None = None, *, services: bool = True) -> SiteDrift:
        """Return which slivers of the site differ from their stamps.

        :param hosts: look at these; at all by default.
        :param services: look at network services, too, unless hosts are named: they are on none.
        :raises FabricDirectError: if the cloud cannot be read.
        """
        deadline = Deadline.within(self._site.limits.call + self._site.limits.probe)

        @cache
        def drivers_of(host: str) -> HostDrivers:
            return self._bounded(host, deadline, ReadCache(read_only=True))

        def of_services() -> ServiceDrift:
            return service_drift(drivers_of(self._some_host), self._ids.booked)

        asked = of_services if services and hosts is None else None
        return site_drift(self._site, drivers_of, asked, hosts)

    def sources(self) -> tuple[WatchedSource, ...]:
        """Return what tells of changes: the cloud, each host's libvirt, and uplinks in VEPA mode."""
        if not self._site.serves_vms:
            return ()
        cloud = [""] if self._cloud() else []
        hosts = {host: self._drivers_of(host) for host in self._site.hosts}
        found = [
            WatchedSource("servers of the cloud", "", self._drivers_of(c).compute) for c in cloud
        ]
        for host, drivers in hosts.items():
            domains = drivers.compute if not cloud else next(iter(drivers.devices.values()), None)
            if domains and (not cloud or self._site.passes_devices(host)):
                found.append(WatchedSource(f"domains of {host}", host, domains))
            if drivers.uplink and any(entry.vepa for entry in self._site.hosts[host].devices):
                found.append(
                    WatchedSource(f"uplinks of {host}", host, drivers.uplink, uplinks=True)
                )
        return tuple(found)

    def servers(self) -> tuple[Server, ...]:
        """Return the servers with this site's stamp on all hosts."""
        return self._devices.servers(Deadline.within(self._site.limits.probe))

    def devices(self, host: str) -> tuple[HostDevice, ...]:
        """Return the PCI devices of a host; see :meth:`SiteDevices.of`."""
        return self._devices.of(host, Deadline.within(self._site.limits.probe))

    def services(self) -> SiteServices:
        """Return the network services with this site's stamp."""
        deadline = Deadline.within(self._site.limits.probe)
        return site_services(self._bounded(self._some_host, deadline), self._ids.booked)

    def port_slivers(self) -> tuple[SitePorts, ...]:
        """Return the slivers that have ports and no server, on all hosts; VMs are so by the books.

        :raises FabricDirectError: if the cloud, or any host, does not answer.
        """
        if not self._site.serves_vms:
            return ()
        deadline = Deadline.within(self._site.limits.probe)
        servers = {server.sliver for server in self._devices.servers(deadline)}

        def of(host: str) -> list[SitePorts]:
            drivers = self._bounded(host, deadline, ReadCache(read_only=True))
            make: type[Handler] = registry.handler_for("vNICPorts")
            with drivers.reads.active():
                refs, handler = port_slivers(drivers, servers), make(self._site, drivers)
                return [SitePorts(self._by_books(ref), handler.observe(ref)) for ref in refs]

        answers = attempt_each(of, [self._some_host] if self._cloud() else self._site.hosts)
        for error in (each for each in answers.values() if isinstance(each, Exception)):
            raise error
        return tuple(p for each in answers.values() if isinstance(each, list) for p in each)

    def _by_books(self, ports: SliverRef) -> SliverRef:
        vm = SliverRef(id=ports.id, type="VM")
        return vm if self._ids.booked(ports.id) == vm.type else ports

    def lacking(self, servers: Sequence[Server]) -> Lacks:
        """Return what servers lack of their devices; see :meth:`SiteDevices.lacking`."""
        return self._devices.lacking(servers, Deadline.within(self._site.limits.probe))

    def release(self, host: str, address: PciAddress, *, force: bool) -> None:
        """Clean a device of a host, or only remove its record; see :meth:`SiteDevices.release`."""
        self._devices.release(host, address, Deadline.within(self._site.limits.clean), force=force)

    def bridge_mode(self, host: str, link: str, mode: str | None = None) -> str:
        """Return the bridge mode of a host's uplink, ``veb`` or ``vepa``; set it before, if given.

        :raises NotFound: if the site has no such host, or the host no such link.
        :raises Unsupported: if the link's driver has no such mode, or the site no driver for uplinks.
        """
        self._site.host(host)
        drivers = self._bounded(host, Deadline.within(self._site.limits.probe))
        uplink = drivers.uplink
        if uplink is None:
            raise drivers.unsupported(f"the bridge mode of {link} is not known", "uplink")
        if mode is not None:
            uplink.set_bridge_mode(link, mode)
        return uplink.bridge_mode(link)

    def _bounded(
        self, host: str, deadline: Deadline, reads: ReadCache | None = None
    ) -> HostDrivers:
        limits = self._site.limits
        return self._drivers_of(host).within(
            deadline, limits.call, reads, guest_limit=limits.guest_boot
        )

    def _drivers_of(self, host: str) -> HostDrivers:
        with self._lock:
            if host not in self._drivers:
                self._drivers[host] = registry.host_drivers(self._site, host)
            return self._drivers[host]


@dataclass(frozen=True, slots=True)
class _Job:
    """A flow, and what it is for."""

    operation: Operation
    sliver: SliverRef
    handler: Handler
    flow: Flow
    reads: ReadCache
    """What the handler's drivers share; it has their warnings."""
    host: str = ""
    """Which was chosen for the sliver; empty if it names it."""
    entry: Entry | None = None
    """The journal's, of an operation that this is a part of; None if it is all of it."""
    data: dict[str, Any] = field(default_factory=dict)
    """What the journal notes of the sliver; all of the sliver if empty."""
    expected: PlannedSliver | None = None
    """What a saved plan says of it, if it is carried out."""

    def outcome(self, status: Status, result: Result, **values: Any) -> Outcome:
        return Outcome(
            operation=self.operation,
            sliver=self.sliver.ref(),
            status=status,
            steps=result.reports,
            warnings=tuple(self.reads.warnings),
            **values,
        )


def _is_node(sliver: SliverRef) -> bool:
    return issubclass(registry.handler_for(sliver.type).sliver_model, NodeSliver)


def _former_worker(server: Server | None) -> str | None:
    """Return the worker whose devices a server's stamp names, if the server is on another one."""
    if server is None or not server.host:
        return None
    stamped = server.stamp.sliver
    moved = stamped.devices() and stamped.host != server.host
    return stamped.host if moved else None


def _data(sliver: SliverRef) -> dict[str, Any]:
    return sliver.model_dump(mode="json", exclude_none=True)


def _placement_data(placement: Placement | None) -> dict[str, Any]:
    if placement is None:
        return {}
    return {**placement.data(), "devices": placement_devices(placement.sliver)}


def _planned(step: Step) -> bool:
    return step.planned


def _success(job: _Job, result: Result, left: tuple[str, ...]) -> Outcome:
    return _with_left(job.outcome(Status.DONE, result, observed=job.handler.observed), left)


def _with_left(outcome: Outcome, left: tuple[str, ...]) -> Outcome:
    """Add to the outcome of a deletion what it left: one that was done is partial then."""
    if not left:
        return outcome
    update: dict[str, Any] = {"left": outcome.left + left}
    if outcome.ok:
        gone = f"sliver {outcome.sliver.id} was deleted, but is not gone"
        error = NotVerified(gone, why=", ".join(left))
        update |= {"status": Status.PARTIAL, "error": report(error)}
    return outcome.model_copy(update=update)


def _some_done(result: Result) -> bool:
    return any(report.status is StepStatus.DONE for report in result.reports)


def _failure(job: _Job, result: Result, left: tuple[str, ...]) -> Outcome:
    done = result.undone or _some_done(result)
    status = Status.PARTIAL if left and done else Status.FAILED
    return job.outcome(status, result, error=report(result.error), left=left)


def _interrupted(job: _Job, result: Result, left: tuple[str, ...]) -> Outcome:
    """Return the outcome of an operation that was interrupted and not undone."""
    if not left:
        error = _before_any_change(job.operation, job.sliver)
        return job.outcome(Status.FAILED, result, error=report(error))
    not_done = [r.step for r in result.reports if r.status is StepStatus.SKIPPED]
    done = [r.step for r in result.reports if r.step not in not_done]
    error = Interrupted(
        f"{job.operation} of {job.sliver.id} was interrupted",
        why=f"done: {', '.join(done) or 'nothing'}; not done: {', '.join(not_done)}",
    )
    return job.outcome(Status.PARTIAL, result, error=report(error), left=left)


def _before_any_change(operation: Operation, sliver: SliverRef) -> Interrupted:
    return Interrupted(f"{operation} of {sliver.id} was interrupted before it changed anything")


def _left_by_interruption(
    job: _Job, result: Result, entry: Entry, deadline: Deadline
) -> tuple[str, ...]:
    """Name what there is of a sliver, or what is not done; nothing if nothing was changed."""
    if not (deadline.changing or entry.resumed or _some_done(result)):
        return ()
    removal = job.operation is Operation.DELETE
    about_all = removal or (job.operation is Operation.CREATE and entry.owns_everything)
    skipped = (r.step for r in result.reports if r.status is StepStatus.SKIPPED)
    return (_leftovers(job) if about_all else ()) or tuple(f"not done: {step}" for step in skipped)


def _not_looked_at(host: str, why: Exception, ref: SliverRef) -> Outcome:
    """Return the outcome of a deletion on a host that does not answer, and has nothing by the books."""
    said = f"host {host} was not looked at, and will be: {why}"
    return Outcome(operation=Operation.DELETE, sliver=ref, status=Status.DONE, warnings=(said,))


def _draft(server: FoundServer, drafted: Adoption | Exception) -> Draft:
    if isinstance(drafted, Exception):
        return Draft(server, None, report(drafted))
    return Draft(server, drafted)


def _drift(job: _Job) -> tuple[str, ...]:
    """Name what is not as the stamp says, which an unfinished modification may have changed."""
    ref = job.sliver.ref()
    found = attempt(job.handler.observe, ref)
    return (f"unknown: {found}",) if isinstance(found, Exception) else found.differences


def _may_come(result: Result, deadline: Deadline) -> tuple[str, ...]:
    """Name the calls that may still change what a failed operation read in the end."""
    return named({*result.late, *deadline.late()}) if result.error else ()


def _told(tell: Callable[..., tuple[str, ...]], *about: object) -> tuple[str, ...]:
    """Return what is to be said of an operation that is done; what fails there changes no outcome."""
    said = attempt(tell, *about)
    return (str(said),) if isinstance(said, Exception) else said


def _noted(note: Callable[[str], None], sliver_id: str) -> tuple[str, ...]:
    """Note something of a sliver; return what fails there as a warning: it changes no outcome."""
    error = attempt(note, sliver_id)
    return (str(error),) if isinstance(error, Exception) else ()


def _with_warnings(outcome: Outcome, warnings: tuple[str, ...]) -> Outcome:
    """Add warnings to an outcome, each once: what cannot be read cannot be written either."""
    every = tuple(dict.fromkeys(outcome.warnings + warnings))
    return outcome.model_copy(update={"warnings": every})


def _leftovers(job: _Job) -> tuple[str, ...]:
    left = attempt(job.handler.leftovers, job.sliver)
    return (f"unknown: {left}",) if isinstance(left, Exception) else tuple(left)


def _not_taken_back(result: Result) -> tuple[str, ...]:
    bad = {StepStatus.UNDO_FAILED} if result.undone else {StepStatus.FAILED, StepStatus.SKIPPED}
    return tuple(f"{r.step}: {r.error or r.status}" for r in result.reports if r.status in bad)
