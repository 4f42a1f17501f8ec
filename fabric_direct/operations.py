"""What each operation consists of, from the sliver to the outcome."""

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any

from fabric_direct import engine, registry
from fabric_direct.config import Site
from fabric_direct.deadline import Deadline, call_within
from fabric_direct.drivers.base import DeviceDriver, HostDevice, HostDrivers, Server
from fabric_direct.drivers.moment import Moment
from fabric_direct.errors import (
    Conflict,
    FabricDirectError,
    InvalidSliver,
    NotFound,
    NotVerified,
)
from fabric_direct.handlers.base import Handler
from fabric_direct.journal import Entry, Journal, Unfinished
from fabric_direct.locks import exclusive, sliver_lock
from fabric_direct.model import (
    ErrorReport,
    NodeSliver,
    Operation,
    Outcome,
    PciAddress,
    SliverRef,
    Status,
    StepReport,
    StepStatus,
)
from fabric_direct.steps.base import Flow

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Progress:
    """A step of an operation has begun or ended."""

    sliver: str
    operation: Operation
    step: str
    status: StepStatus | None
    """None: it has begun."""
    seconds: float
    done: int
    """How many steps have ended so far."""
    total: int


class Operations:
    """The operations of a site, each in the thread of its caller."""

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

    def create(self, sliver: SliverRef, deadline: Deadline) -> Outcome:
        """Make the sliver; if that fails, nothing of it is left, or the outcome names it."""
        moment = Moment()
        handler = self._handler(sliver, deadline, moment)
        job = _Job(Operation.CREATE, sliver, handler, handler.create(sliver), moment)
        return self._apply(job, deadline)

    def modify(self, sliver: SliverRef, deadline: Deadline) -> Outcome:
        """Change the sliver; if that fails, it is as it was, or the outcome names what is not."""
        moment = Moment()
        handler = self._handler(sliver, deadline, moment)
        job = _Job(Operation.MODIFY, sliver, handler, handler.modify(sliver), moment)
        return self._apply(job, deadline)

    def delete(self, sliver: SliverRef, deadline: Deadline) -> Outcome:
        """Remove the sliver from every host that has anything of it; what cannot be is named."""
        ref, moment = sliver.ref(), Moment()
        outcomes = [
            self._delete_on(host, ref, deadline, moment)
            for host in self._hosts_to_clear(ref, deadline, moment)
        ]
        return max(outcomes, key=lambda outcome: not outcome.ok)

    def _hosts_to_clear(self, ref: SliverRef, deadline: Deadline, moment: Moment) -> list[str]:
        hosts = list(self._site.hosts)
        if self._cloud():
            return [self._host_in_cloud(ref, deadline, moment)]
        return hosts if len(hosts) == 1 else self._hosts_with(ref, deadline) or hosts[:1]

    def _delete_on(self, host: str, ref: SliverRef, deadline: Deadline, moment: Moment) -> Outcome:
        handler = self._handler_on(host, ref, deadline, moment)
        job = _Job(Operation.DELETE, ref, handler, handler.delete(ref), moment)
        return self._apply(job, deadline)

    def recover(
        self, entry: Unfinished, sliver: SliverRef, deadline: Deadline, *, undo: bool
    ) -> Outcome:
        """Finish or undo an unfinished operation, unless it has been ended meanwhile."""
        if entry not in self._journal.unfinished():
            return Outcome(operation=entry.operation, sliver=sliver.ref(), status=Status.DONE)
        if entry.operation is Operation.DELETE or type(sliver) is SliverRef:
            return self.delete(sliver, deadline)
        if entry.operation is Operation.MODIFY:
            return self.modify(self._stamped(sliver) if undo else sliver, deadline)
        return self.delete(sliver, deadline) if undo else self.create(sliver, deadline)

    def _stamped(self, sliver: SliverRef) -> SliverRef:
        """Return the sliver as the server says it was, until a modification is finished."""
        server = next((s for s in self.servers() if s.sliver == sliver.id), None)
        if server is None or not isinstance(sliver, NodeSliver):
            return sliver
        return server.stamp.sliver.model_copy(update={"boot_script": sliver.boot_script})

    def probe(self, sliver: SliverRef, deadline: Deadline) -> Outcome:
        """Read the sliver."""
        observed = self._handler(sliver, deadline).observe(sliver)
        return Outcome(
            operation=Operation.PROBE, sliver=sliver.ref(), status=Status.DONE, observed=observed
        )

    def poa(
        self, sliver: SliverRef, action: str, data: dict[str, Any], deadline: Deadline
    ) -> Outcome:
        """Carry an operational action out."""
        moment = Moment()
        handler = self._handler(sliver, deadline, moment)
        with moment.lasting():
            answer = handler.act(sliver, action, data)
        return Outcome(
            operation=Operation.POA,
            sliver=sliver.ref(),
            status=Status.DONE,
            data=answer,
            warnings=tuple(moment.warnings),
        )

    def plan(self, sliver: SliverRef, operation: Operation | None, deadline: Deadline) -> Outcome:
        """Ask each step of an operation what it would do, within one limit for all of them.

        :param operation: modify if the sliver is there and create if not, if absent.
        """
        make: type[Handler] = registry.handler_for(sliver.type)
        moment = Moment(still=True)
        host = self._host_of(sliver, deadline, moment)

        def ask() -> tuple[StepReport, ...]:
            with moment.lasting():
                handler = make(self._site, self._drivers_of(host))
                usual = Operation.MODIFY if handler.exists(sliver) else Operation.CREATE
                return engine.survey(getattr(handler, (operation or usual).value)(sliver))

        steps = call_within(deadline.remaining(), f"the plan to {operation or 'change it'}", ask)
        return Outcome(
            operation=Operation.PLAN, sliver=sliver.ref(), status=Status.DONE, steps=steps
        )

    def _apply(self, job: "_Job", deadline: Deadline) -> Outcome:
        """Run a flow and say what came of it.

        :raises SliverBusy: if others work on a sliver that it touches, all the time.
        """
        with self._alone(job, deadline):
            return self._run(job, deadline)

    @contextmanager
    def _alone(self, job: "_Job", deadline: Deadline) -> Iterator[None]:
        """Keep others from changing the slivers that a flow touches beside its own.

        They are waited for here and not in a step: many steps that wait could keep those from running
        which they wait for. All take them in the same order, so that no two wait for each other.
        """
        with ExitStack() as stack:
            for sliver in sorted(set(job.flow.touches)):
                path = sliver_lock(self._site.state_dir, sliver)
                limit = deadline.remaining()
                stack.enter_context(exclusive(path, f"sliver {sliver}", timeout=limit))
                job.moment.over()
            yield

    def _run(self, job: "_Job", deadline: Deadline) -> Outcome:
        sliver = job.sliver.model_dump(mode="json", exclude_none=True)
        entry = self._journal.begin(job.operation, sliver, whole=job.flow.whole)
        result = engine.run(
            job.flow,
            self._steps,
            deadline=deadline,
            undo_limit=self._site.limits.undo,
            entry=entry,
            on_step=self._reporter(job),
        )
        left = self._left(job, result, entry, deadline)
        outcome = _failure(job, result, left) if result.error else _success(job, result, left)
        if not outcome.left:
            self._journal.end(job.sliver.id)
        return outcome

    def _left(
        self, job: "_Job", result: engine.Result, entry: Entry, deadline: Deadline
    ) -> tuple[str, ...]:
        """Name what an operation left, after taking back what unfinished ones before it made."""
        if not result.error:
            return self._still_there(job, entry, deadline)
        if job.operation is Operation.MODIFY:
            return _not_taken_back(result) or (_drift(job) if entry.resumed else ())
        if job.operation is Operation.CREATE and not entry.whole:
            return _not_taken_back(result)
        left = _leftovers(job)
        if job.operation is Operation.CREATE and left:
            deadline.renew(self._site.limits.undo)
            return self._left_of_removal(job, deadline)
        return left

    def _left_of_removal(self, job: "_Job", deadline: Deadline) -> tuple[str, ...]:
        """Remove all there is of the sliver and name what is left then."""
        engine.run(job.handler.delete(job.sliver.ref()), self._steps, deadline=deadline)
        return _leftovers(job)

    def _still_there(self, job: "_Job", entry: Entry, deadline: Deadline) -> tuple[str, ...]:
        """Name what a deletion left.

        A request of a process that was killed may have been carried out after this deletion looked for
        what to remove: what has come since is removed as well.
        """
        if job.operation is not Operation.DELETE:
            return ()
        left = _leftovers(job)
        return self._left_of_removal(job, deadline) if left and entry.resumed else left

    def _reporter(self, job: "_Job") -> engine.OnStep:
        operation, sliver, total = job.operation, job.sliver.id, len(job.flow.steps())

        def tell(report: StepReport | None, step: str, done: int) -> None:
            status = report.status if report else None
            seconds = report.seconds if report else 0.0
            log.debug("%s %s: %s %s", operation, sliver, step, status or "begins")
            if self._on_progress:
                self._on_progress(Progress(sliver, operation, step, status, seconds, done, total))

        return tell

    def _handler(
        self, sliver: SliverRef, deadline: Deadline, moment: Moment | None = None
    ) -> Handler:
        moment = moment or Moment()
        host = self._host_of(sliver, deadline, moment)
        return self._handler_on(host, sliver, deadline, moment)

    def _handler_on(
        self, host: str, sliver: SliverRef, deadline: Deadline, moment: Moment | None = None
    ) -> Handler:
        make: type[Handler] = registry.handler_for(sliver.type)
        return make(self._site, self._bounded(host, deadline, moment))

    def _cloud(self) -> bool:
        return self._drivers_of(next(iter(self._site.hosts), "")).compute.cloud

    def _host_in_cloud(self, sliver: SliverRef, deadline: Deadline, moment: Moment) -> str:
        """Return the worker that has the sliver's server, or the one that it names, if any.

        What is no node has no worker.

        :raises Conflict: if another one has it than it names.
        """
        wanted: str = getattr(sliver, "host", None) or ""
        if not issubclass(registry.handler_for(sliver.type).sliver_model, NodeSliver):
            return wanted
        server = self._bounded(wanted, deadline, moment).compute.find(sliver.id)
        has = server.host if server else ""
        if has and wanted and has != wanted:
            raise Conflict(f"sliver {sliver.id} is on {has}, not on {wanted}")
        return has or wanted

    def _host_of(self, sliver: SliverRef, deadline: Deadline, moment: Moment) -> str:
        """Return the only host, the one that has the sliver, or the one that it names.

        :raises InvalidSliver: if it names an unknown one, or none where there are several.
        :raises Conflict: if another one has it than it names.
        """
        if self._cloud():
            return self._host_in_cloud(sliver, deadline, moment)
        hosts, wanted = list(self._site.hosts), getattr(sliver, "host", None)
        known = f"known: {', '.join(hosts)}"
        if wanted is not None and wanted not in hosts:
            raise InvalidSliver(f"no host {wanted!r}", field="host", why=known)
        if len(hosts) == 1:
            return hosts[0]
        having = self._hosts_with(sliver, deadline)
        if having and wanted not in {None, *having}:
            raise Conflict(f"sliver {sliver.id} is on {having[0]}, not on {wanted}")
        if not having and wanted is None and isinstance(sliver, NodeSliver):
            raise InvalidSliver("must be given, for the site has several", field="host", why=known)
        return str(wanted or (having or hosts)[0])

    def _hosts_with(self, sliver: SliverRef, deadline: Deadline) -> list[str]:
        """Return the hosts that have anything of the sliver.

        :raises Unreachable: if none of those that answer has, and one does not answer.
        """
        having: list[str] = []
        silent: list[Exception] = []
        for host in self._site.hosts:
            handler = self._handler_on(host, sliver, deadline)
            found: list[str] = []
            error = engine.attempt(lambda h=handler, f=found: f.extend(h.leftovers(sliver)))
            having += [host] if found else []
            silent += [error] if error else []
        if silent and not having and getattr(sliver, "host", None) is None:
            raise silent[0]
        return having

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
        return self._any_device(host, Deadline.within(self._site.limits.probe)).inventory()

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

    def _bounded(self, host: str, deadline: Deadline, moment: Moment | None = None) -> HostDrivers:
        return self._drivers_of(host).within(deadline, self._site.limits.call, moment)

    def _drivers_of(self, host: str) -> HostDrivers:
        with self._lock:
            if host not in self._drivers:
                self._drivers[host] = registry.host_drivers(self._site, host)
            return self._drivers[host]


def report(error: Exception | None) -> ErrorReport:
    """Return an error as a value."""
    field = error.field if isinstance(error, FabricDirectError) else ""
    return ErrorReport(kind=type(error).__name__, message=str(error), field=field)


@dataclass(frozen=True, slots=True)
class _Job:
    """A flow, and what it is for."""

    operation: Operation
    sliver: SliverRef
    handler: Handler
    flow: Flow
    moment: Moment
    """What the handler's drivers share; it has their warnings."""

    def outcome(self, status: Status, result: engine.Result, **values: Any) -> Outcome:
        return Outcome(
            operation=self.operation,
            sliver=self.sliver.ref(),
            status=status,
            steps=result.reports,
            warnings=tuple(self.moment.warnings),
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
    found: list[str] = []
    error = engine.attempt(lambda: found.extend(job.handler.observe(ref).differences))
    return (f"unknown: {error}",) if error else tuple(found)


def _leftovers(job: _Job) -> tuple[str, ...]:
    left: list[str] = []
    error = engine.attempt(lambda: left.extend(job.handler.leftovers(job.sliver)))
    return (f"unknown: {error}",) if error else tuple(left)


def _not_taken_back(result: engine.Result) -> tuple[str, ...]:
    bad = {StepStatus.UNDO_FAILED} if result.undone else {StepStatus.FAILED, StepStatus.SKIPPED}
    return tuple(f"{r.step}: {r.error or r.status}" for r in result.reports if r.status in bad)
