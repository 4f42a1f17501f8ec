"""Each operation, from the sliver to the outcome, in the thread of its caller."""

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any

from fabric_direct import engine, registry
from fabric_direct.config import Site
from fabric_direct.deadline import Deadline, call_within
from fabric_direct.drivers.contract import DeviceDriver, HostDevice, HostDrivers, Server
from fabric_direct.drivers.read_cache import ReadCache
from fabric_direct.errors import (
    Conflict,
    DriverError,
    FabricDirectError,
    NotFound,
    NotVerified,
)
from fabric_direct.handlers.base import Handler
from fabric_direct.journal import Entry, Journal, Unfinished
from fabric_direct.late_calls import named
from fabric_direct.locate_sliver import Placing, named_host, none_named, refuse_unknown
from fabric_direct.locks import exclusive, sliver_lock
from fabric_direct.model import (
    NodeSliver,
    Operation,
    Outcome,
    PciAddress,
    SliverRef,
    Status,
    StepReport,
    StepStatus,
)
from fabric_direct.outcomes import Refusals, failed, report
from fabric_direct.placement.claims import Claims
from fabric_direct.placement.placer import Placement, Placer
from fabric_direct.steps.base import Flow

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Progress:
    """A step of an operation begins or ends."""

    sliver: str
    operation: Operation
    step: str
    status: StepStatus | None
    """None: it begins."""
    seconds: float
    done: int
    """How many steps have ended so far."""
    total: int
    host: str = ""
    """The host that placement chose; empty if the sliver names its host."""


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
        lifetime = site.limits.create + site.limits.undo
        self._claims = Claims(site.state_dir, lifetime=lifetime, timeout=site.limits.call)

    def create(
        self, sliver: SliverRef, deadline: Deadline, planned: Placement | None = None
    ) -> Outcome:
        """Create the sliver; if that fails, remove all of it, or name in the outcome what is left.

        A sliver that leaves its host or devices open is placed. If the host refuses it, the next host
        is tried.

        :param planned: its placement in a build plan, which has claimed what it takes.
        """
        if isinstance(sliver, NodeSliver) and (sliver.open or planned):
            return self._ending(
                sliver, deadline, lambda: self._create_placed(sliver, deadline, planned)
            )
        return self._ending(sliver, deadline, lambda: self._create(sliver, deadline))

    def _create_placed(
        self, sliver: NodeSliver, deadline: Deadline, planned: Placement | None
    ) -> Outcome:
        """Try one host after the other until one does not refuse the sliver."""
        refusals = Refusals(self._site.placement.retries)
        while True:
            turn = deadline.of_its_own()
            try:
                placement = self._placing(turn).place(sliver, planned, without=refusals.hosts)
            except FabricDirectError as error:
                return refusals.none_left(error)
            outcome = self._create_there(placement, turn)
            next_one = refusals.take(placement.sliver.host, outcome)
            if not next_one or not deadline.remaining():
                return refusals.told(outcome)

    def _create_there(self, placement: Placement, deadline: Deadline) -> Outcome:
        sliver, host = placement.sliver, placement.sliver.host or ""
        outcome = engine.attempt(self._create, sliver, deadline, host)
        if isinstance(outcome, Exception):
            outcome = failed(Operation.CREATE, sliver, outcome)
        warnings = placement.warnings + outcome.warnings
        if placement.new and not (outcome.ok or outcome.left):
            warnings += _noted(self._claims.drop, sliver.id)
        return outcome.model_copy(update={"warnings": warnings, "data": {"host": host}})

    def _create(self, sliver: SliverRef, deadline: Deadline, host: str = "") -> Outcome:
        """Create the sliver on the chosen host, or on the one that it names."""
        reads = ReadCache()
        handler = (
            self._handler_on(host, sliver, deadline, reads)
            if host
            else self._handler(sliver, deadline, reads)
        )
        job = _Job(Operation.CREATE, sliver, handler, handler.create(sliver), reads, host)
        return self._apply(job, deadline)

    def _ending(
        self, sliver: SliverRef, deadline: Deadline, work: Callable[[], Outcome]
    ) -> Outcome:
        """Settle the claims of the sliver when the operation ends, whatever its result.

        What a late call may still make is not visible on its host: its claim stays until it expires.
        """
        outcome = engine.attempt(work)
        warnings = () if deadline.late() else _noted(self._claims.settle, sliver.id)
        if isinstance(outcome, Exception):
            raise outcome
        return _with_warnings(outcome, warnings)

    def _placing(self, deadline: Deadline) -> Placing:
        def drivers_of(host: str) -> HostDrivers:
            return self._bounded(host, deadline)

        return Placing(self._site, self._journal, self._claims, drivers_of)

    def modify(self, sliver: SliverRef, deadline: Deadline) -> Outcome:
        """Modify the sliver; if that fails, restore it, or name in the outcome what is not restored.

        What the sliver leaves open stays as it is; placement chooses the functions of new devices.
        """
        if not (isinstance(sliver, NodeSliver) and sliver.open):
            return self._modify(sliver, deadline)
        return self._ending(
            sliver,
            deadline,
            lambda: self._modify(self._placing(deadline).change(sliver), deadline),
        )

    def _modify(self, sliver: SliverRef, deadline: Deadline) -> Outcome:
        reads = ReadCache()
        handler = self._handler(sliver, deadline, reads)
        job = _Job(Operation.MODIFY, sliver, handler, handler.modify(sliver), reads)
        return self._apply(job, deadline)

    def delete(self, sliver: SliverRef, deadline: Deadline) -> Outcome:
        """Delete the sliver from every host that has anything of it; the outcome names what is left."""
        ref, reads = sliver.ref(), ReadCache()
        outcomes = [
            self._delete_on(host, ref, deadline, reads)
            for host in self._hosts_to_clear(ref, deadline, reads)
        ]
        worst = max(outcomes, key=lambda outcome: not outcome.ok)
        return _with_warnings(worst, _noted(self._claims.drop, ref.id)) if worst.ok else worst

    def _hosts_to_clear(self, ref: SliverRef, deadline: Deadline, reads: ReadCache) -> list[str]:
        hosts = list(self._site.hosts)
        if self._cloud():
            return [self._host_in_cloud(ref, deadline, reads)]
        return hosts if len(hosts) == 1 else self._hosts_with(ref, deadline) or hosts[:1]

    def _delete_on(
        self, host: str, ref: SliverRef, deadline: Deadline, reads: ReadCache
    ) -> Outcome:
        handler = self._handler_on(host, ref, deadline, reads)
        job = _Job(Operation.DELETE, ref, handler, handler.delete(ref), reads)
        return self._apply(job, deadline)

    def recover(self, entry: Unfinished, deadline: Deadline, *, undo: bool) -> Outcome:
        """Finish or undo an unfinished operation, unless it has ended meanwhile."""
        model: type[SliverRef] = registry.handler_for(entry.sliver["type"]).sliver_model
        whole = entry.sliver.keys() - {"id", "type"}
        sliver = (model if whole else SliverRef).model_validate(entry.sliver)
        if entry != self._journal.of(sliver.id):
            return Outcome(operation=entry.operation, sliver=sliver.ref(), status=Status.DONE)
        if entry.operation is Operation.DELETE or type(sliver) is SliverRef:
            return self.delete(sliver, deadline)
        if entry.operation is Operation.MODIFY:
            return self.modify(self._stamped(sliver) if undo else sliver, deadline)
        return self.delete(sliver, deadline) if undo else self.create(sliver, deadline)

    def _stamped(self, sliver: SliverRef) -> SliverRef:
        """Return the sliver as it was before an unfinished modification, by the server's stamp."""
        server = next((s for s in self.servers() if s.sliver == sliver.id), None)
        if server is None or not isinstance(sliver, NodeSliver):
            return sliver
        return server.stamp.sliver.model_copy(update={"boot_script": sliver.boot_script})

    def probe(self, sliver: SliverRef, deadline: Deadline) -> Outcome:
        """Read the sliver; what it leaves open is taken as it is."""
        if isinstance(sliver, NodeSliver) and sliver.open:
            sliver = self._placing(deadline).known(sliver).sliver
        observed = self._handler(sliver, deadline).observe(sliver)
        return Outcome(
            operation=Operation.PROBE, sliver=sliver.ref(), status=Status.DONE, observed=observed
        )

    def poa(
        self, sliver: SliverRef, action: str, data: dict[str, Any], deadline: Deadline
    ) -> Outcome:
        """Carry out an operational action."""
        reads = ReadCache()
        handler = self._handler(sliver, deadline, reads)
        with reads.active():
            answer = engine.attempt(handler.act, sliver, action, data)
        if isinstance(answer, Exception):
            return failed(Operation.POA, sliver, answer, named(deadline.given_up))
        return Outcome(
            operation=Operation.POA,
            sliver=sliver.ref(),
            status=Status.DONE,
            data=answer,
            warnings=tuple(reads.warnings),
        )

    def plan(self, sliver: SliverRef, operation: Operation | None, deadline: Deadline) -> Outcome:
        """Return what each step of an operation would do. One limit holds for all steps together.

        For a sliver that is not there and leaves its host open, the data of the outcome name the host
        that placement would choose.

        :param operation: by default modify if the sliver is there, else create.
        """
        make: type[Handler] = registry.handler_for(sliver.type)
        reads = ReadCache(read_only=True)
        placement = self._foreseen(sliver, operation, deadline)
        wanted = placement.sliver if placement else sliver
        host = self._host_of(wanted, deadline, reads)

        def ask() -> tuple[StepReport, ...]:
            with reads.active():
                handler = make(self._site, self._drivers_of(host))
                usual = Operation.MODIFY if handler.exists(wanted) else Operation.CREATE
                return engine.plan(getattr(handler, (operation or usual).value)(wanted))

        steps = call_within(deadline.remaining(), f"the plan to {operation or 'change it'}", ask)
        return Outcome(
            operation=Operation.PLAN,
            sliver=sliver.ref(),
            status=Status.DONE,
            steps=steps,
            data=placement.data() if placement else {},
            warnings=placement.warnings if placement else (),
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

        :raises SliverBusy: if the lock of a sliver that it touches is not released before the deadline.
        """
        with self._touched_slivers_locked(job, deadline):
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
        entry = self._begin(job)
        result = engine.run(
            job.flow,
            self._steps,
            deadline=deadline,
            undo_limit=self._site.limits.undo,
            listener=self._listener(job),
        )
        left = self._left(job, result, entry, deadline) + _may_come(job, result, deadline)
        outcome = _failure(job, result, left) if result.error else _success(job, result, left)
        if left:
            return outcome
        return _with_warnings(outcome, _noted(self._journal.end, job.sliver.id))

    def _begin(self, job: "_Job") -> Entry:
        """Note in the journal that an operation begins.

        A deletion goes by stamp and needs no memory, so that it can free a disk that is full.

        :raises DriverError: if the journal cannot be written, except for a deletion.
        """
        sliver = job.sliver.model_dump(mode="json", exclude_none=True)
        begin = partial(self._journal.begin, job.operation, sliver)
        try:
            return begin(owns_everything=job.flow.owns_everything)
        except DriverError as error:
            if job.operation is not Operation.DELETE:
                raise
            job.reads.warnings.append(str(error))
            return Entry(resumed=True, owns_everything=True)

    def _left(
        self, job: "_Job", result: engine.Result, entry: Entry, deadline: Deadline
    ) -> tuple[str, ...]:
        """Name what an operation left, after removing what unfinished ones before it made."""
        if not result.error:
            return self._still_there(job, entry, deadline)
        if job.operation is Operation.MODIFY:
            return _not_taken_back(result) or (_drift(job) if entry.resumed else ())
        if job.operation is Operation.CREATE and not entry.owns_everything:
            return _not_taken_back(result)
        left = _leftovers(job)
        if job.operation is Operation.CREATE and left:
            deadline.renew(self._site.limits.undo)
            return self._left_of_removal(job, deadline)
        return left

    def _left_of_removal(self, job: "_Job", deadline: Deadline) -> tuple[str, ...]:
        """Delete all of the sliver and name what is still left."""
        removal = engine.attempt(job.handler.delete, job.sliver.ref())
        if isinstance(removal, Flow):
            limit = deadline.remaining()
            engine.run(removal, self._steps, deadline=deadline, undo_limit=limit)
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

    def _listener(self, job: "_Job") -> engine.Listener:
        operation, sliver, total = job.operation, job.sliver.id, len(job.flow.steps())
        where = f" on {job.host}" if job.host else ""

        def tell(event: engine.Event) -> None:
            step, status = event.step, event.report.status if event.report else None
            seconds = event.report.seconds if event.report else 0.0
            log.debug("%s %s%s: %s %s", operation, sliver, where, step, status or "begins")
            if self._on_progress:
                self._on_progress(
                    Progress(sliver, operation, step, status, seconds, event.ended, total, job.host)
                )

        return tell

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

    def _cloud(self) -> bool:
        return self._drivers_of(next(iter(self._site.hosts), "")).compute.cloud

    def _host_in_cloud(self, sliver: SliverRef, deadline: Deadline, reads: ReadCache) -> str:
        """Return the worker that has the sliver's server, or the one that it names, if any.

        What is no node has no worker.

        :raises Conflict: if another one has it than it names.
        """
        wanted = named_host(sliver) or ""
        if not issubclass(registry.handler_for(sliver.type).sliver_model, NodeSliver):
            return wanted
        server = self._bounded(wanted, deadline, reads).compute.find(sliver.id)
        has = server.host if server else ""
        if has and wanted and has != wanted:
            raise Conflict(f"sliver {sliver.id} is on {has}, not on {wanted}")
        return has or wanted

    def _host_of(self, sliver: SliverRef, deadline: Deadline, reads: ReadCache) -> str:
        """Return the only host, the one that has the sliver, or the one that it names.

        :raises InvalidSliver: if it names an unknown one, or none where there are several.
        :raises Conflict: if another one has it than it names.
        """
        if self._cloud():
            return self._host_in_cloud(sliver, deadline, reads)
        refuse_unknown(self._site, sliver, cloud=False)
        hosts, wanted = list(self._site.hosts), named_host(sliver)
        if len(hosts) == 1:
            return hosts[0]
        having = self._hosts_with(sliver, deadline)
        if having and wanted not in {None, *having}:
            raise Conflict(f"sliver {sliver.id} is on {having[0]}, not on {wanted}")
        if not having and isinstance(sliver, NodeSliver) and sliver.host is None:
            raise none_named(self._site)
        return str(wanted or (having or hosts)[0])

    def _hosts_with(self, sliver: SliverRef, deadline: Deadline) -> list[str]:
        """Return the hosts that have anything of the sliver.

        :raises Unreachable: if none of those that answer has, and one does not answer.
        """
        holders = self._placing(deadline).holders(sliver)
        if holders.silent and not holders.having and named_host(sliver) is None:
            raise next(iter(holders.silent.values()))
        return list(holders.having)

    # --- many slivers

    def placer(self) -> Placer:
        """Return what places many slivers at once, with drivers bounded by the limit of a probe."""
        deadline = Deadline.within(self._site.limits.probe)
        return Placer(self._site, self._claims, lambda host: self._bounded(host, deadline))

    def end_claim(self, sliver: SliverRef, *, begun: bool) -> None:
        """End what a plan has claimed for a sliver, whose creation was begun or not."""
        end = self._claims.settle if begun else self._claims.drop
        end(sliver.id)

    # --- what there is

    def servers(self) -> tuple[Server, ...]:
        """Return the servers with our stamp on all hosts."""
        deadline = Deadline.within(self._site.limits.probe)
        names = [""] if self._cloud() else self._site.hosts
        hosts = (self._bounded(host, deadline) for host in names)
        return tuple(server for drivers in hosts for server in drivers.compute.servers())

    def devices(self, host: str) -> tuple[HostDevice, ...]:
        """Return the PCI devices of a host.

        :raises NotFound: if the site has no such host.
        """
        self._site.host(host)
        return self._bounded(host, Deadline.within(self._site.limits.probe)).functions()

    def release(self, host: str, address: PciAddress, *, force: bool) -> None:
        """Clean a device of a host and strike its record, or only strike it.

        :raises NotFound: if the site has no such host, or the host no such device, unless by force.
        """
        deadline = Deadline.within(self._site.limits.clean)
        there = {d.address: d for d in self._any_device(host, deadline).inventory()}
        if address not in there and not force:
            raise NotFound(f"there is no PCI function {address}", where=host)
        self._device_driver(host, there.get(address), deadline).release(address, force=force)

    def _device_driver(
        self, host: str, device: HostDevice | None, deadline: Deadline
    ) -> DeviceDriver:
        """Return the driver that serves a device by the allow-list; any for one that is not in it."""
        drivers = self._bounded(host, deadline).devices
        names = (f"{device.type}_{device.model}", device.type or "") if device else ()
        named = (drivers[name] for name in names if name in drivers)
        return next(named, self._any_device(host, deadline))

    def _any_device(self, host: str, deadline: Deadline) -> DeviceDriver:
        self._site.host(host)
        return next(iter(self._bounded(host, deadline).devices.values()))

    def bridge_mode(self, host: str, link: str, mode: str | None = None) -> str:
        """Return the bridge mode of a host's uplink, ``veb`` or ``vepa``; set it before, if given.

        :raises NotFound: if the site has no such host, or the host no such link.
        :raises Unsupported: if the link's driver has no such mode.
        """
        self._site.host(host)
        uplink = self._bounded(host, Deadline.within(self._site.limits.probe)).uplink
        assert uplink is not None  # noqa: S101 - the site knows the host
        if mode is not None:
            uplink.set_bridge_mode(link, mode)
        return uplink.bridge_mode(link)

    def _bounded(
        self, host: str, deadline: Deadline, reads: ReadCache | None = None
    ) -> HostDrivers:
        return self._drivers_of(host).within(deadline, self._site.limits.call, reads)

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

    def outcome(self, status: Status, result: engine.Result, **values: Any) -> Outcome:
        return Outcome(
            operation=self.operation,
            sliver=self.sliver.ref(),
            status=status,
            steps=result.reports,
            warnings=tuple(self.reads.warnings),
            **values,
        )


def _success(job: _Job, result: engine.Result, left: tuple[str, ...]) -> Outcome:
    if not left:
        return job.outcome(Status.DONE, result, observed=job.handler.observed)
    error = NotVerified(f"sliver {job.sliver.id} was deleted, but is not gone", why=", ".join(left))
    return job.outcome(Status.PARTIAL, result, error=report(error), left=left)


def _failure(job: _Job, result: engine.Result, left: tuple[str, ...]) -> Outcome:
    done = result.undone or any(r.status is StepStatus.DONE for r in result.reports)
    status = Status.PARTIAL if left and done else Status.FAILED
    return job.outcome(status, result, error=report(result.error), left=left)


def _drift(job: _Job) -> tuple[str, ...]:
    """Name what is not as the stamp says, which an unfinished modification may have changed."""
    ref = job.sliver.ref()
    found = engine.attempt(job.handler.observe, ref)
    return (f"unknown: {found}",) if isinstance(found, Exception) else found.differences


def _may_come(job: _Job, result: engine.Result, deadline: Deadline) -> tuple[str, ...]:
    """Name the calls that may still change what an operation read in the end."""
    verified = not result.error and job.operation is not Operation.DELETE
    return () if verified else named({*result.late, *deadline.late()})


def _noted(note: Callable[[str], None], sliver_id: str) -> tuple[str, ...]:
    """Note something of a sliver; return what fails there as a warning: it changes no outcome."""
    error = engine.attempt(note, sliver_id)
    return (str(error),) if isinstance(error, Exception) else ()


def _with_warnings(outcome: Outcome, warnings: tuple[str, ...]) -> Outcome:
    return outcome.model_copy(update={"warnings": outcome.warnings + warnings})


def _leftovers(job: _Job) -> tuple[str, ...]:
    left = engine.attempt(job.handler.leftovers, job.sliver)
    return (f"unknown: {left}",) if isinstance(left, Exception) else tuple(left)


def _not_taken_back(result: engine.Result) -> tuple[str, ...]:
    bad = {StepStatus.UNDO_FAILED} if result.undone else {StepStatus.FAILED, StepStatus.SKIPPED}
    return tuple(f"{r.step}: {r.error or r.status}" for r in result.reports if r.status in bad)
