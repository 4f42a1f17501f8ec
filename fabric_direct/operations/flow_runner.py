"""Run the flow of an operation: its locks, its entry in the journal, and the outcome."""

import logging
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from fabric_direct.calls.deadline import Deadline, uninterrupted
from fabric_direct.calls.fence import refuse_lost
from fabric_direct.calls.read_cache import ReadCache
from fabric_direct.engine.run import Event, Listener, Result, attempt, preview, run
from fabric_direct.engine.step import Flow
from fabric_direct.engine.verify import observed_by
from fabric_direct.errors import Interrupted, LockLost
from fabric_direct.handlers.handler import Handler
from fabric_direct.model import Operation, Outcome, SliverRef, Status, StepStatus
from fabric_direct.operations.late_calls import named
from fabric_direct.operations.outcomes import (
    before_any_change,
    report,
    warned,
    with_left,
    with_warnings,
)
from fabric_direct.operations.progress import Progress
from fabric_direct.operations.saved_plan import PlannedSliver
from fabric_direct.operations.site_hosts import SiteHosts
from fabric_direct.operations.site_metrics import count_step
from fabric_direct.operations.stitches import SiteStitches
from fabric_direct.state.journal import Entry
from fabric_direct.state.site_store import store_of
from fabric_direct.state.store import sliver_lock

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Job:
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
        """Return the outcome, with the steps that the flow took."""
        return Outcome(
            operation=self.operation,
            sliver=self.sliver.ref(),
            status=status,
            steps=result.reports,
            warnings=tuple(self.reads.warnings),
            **values,
        )


class FlowRunner:
    """Runs the flows of a site's operations."""

    def __init__(
        self,
        hosts: SiteHosts,
        stitches: SiteStitches,
        steps: Executor,
        tell: Callable[[Progress], None],
    ) -> None:
        """Begin nothing yet.

        :param steps: the pool that steps run in; not the one that operations are called in.
        :param tell: hears of each step.
        """
        self._site, self._journal, self._stitches = hosts.site, hosts.journal, stitches
        self._steps, self._tell = steps, tell

    def apply(self, job: Job, deadline: Deadline) -> Outcome:
        """Run a flow and return its outcome.

        It holds the locks of the slivers that it touches beside its own. No step waits for them: waiting
        steps could fill the pool and block those that they wait for. All operations take the locks in
        the same order, so that no two wait for each other.

        :raises Refused: if its steps find something else than the saved plan that it carries out.
        :raises SliverBusy: if the lock of a sliver that it touches is not released before the deadline.
        """
        with ExitStack() as locks:
            for sliver in sorted(set(job.flow.touches)):
                name, limit = sliver_lock(sliver), deadline.remaining()
                lock = store_of(self._site).exclusive(name, f"sliver {sliver}", timeout=limit)
                locks.enter_context(lock)
                job.reads.invalidate()
            if job.expected:
                job.expected.refuse_other_steps(preview(job.flow))
            return self._run(job, deadline)

    def _run(self, job: Job, deadline: Deadline) -> Outcome:
        entry = job.entry or self._journal.begin(
            job.operation,
            job.data or _data(job.sliver),
            owns_everything=job.flow.owns_everything,
            before=_data(job.flow.before) if job.flow.before else None,
        )
        undo_limit, listener = self._site.limits.undo, self._listener(job)
        result = run(
            job.flow, self._steps, deadline=deadline, undo_limit=undo_limit, listener=listener
        )
        result = _explained(result)
        interrupted = isinstance(result.error, Interrupted) and not result.undone
        find_left = _left_by_interruption if interrupted else self._left
        with uninterrupted():
            left = find_left(job, result, entry, deadline)
        if job.entry is None:
            left += _may_come(result, deadline)
        outcome_of = _interrupted if interrupted else _failure if result.error else _success
        outcome = outcome_of(job, result, left)
        return self.end(outcome) if job.entry is None else outcome

    def end(self, outcome: Outcome) -> Outcome:
        """End the journal's entry of an operation that left nothing."""
        if outcome.left:
            return outcome
        return with_warnings(outcome, warned(self._journal.end, outcome.sliver.id))

    def _listener(self, job: Job) -> Listener:
        operation, sliver, total = job.operation, job.sliver.id, len(job.flow.steps())
        where = f" on {job.host}" if job.host else ""

        def hear(event: Event) -> None:
            step, report, waiting = event.step, event.report, event.waiting
            said = waiting or (report.status if report else "begins")
            log.debug("%s %s%s: %s %s", operation, sliver, where, step, said, extra={"step": step})
            count_step(event)
            status, seconds = (report.status, report.seconds) if report else (None, 0.0)
            about = sliver, operation, step
            self._tell(Progress(*about, status, seconds, event.ended, total, job.host, waiting))

        return hear

    # --- what is left

    def _left(self, job: Job, result: Result, entry: Entry, deadline: Deadline) -> tuple[str, ...]:
        """Name what an operation left, after removing what unfinished ones before it made."""
        if not result.error:
            return self._still_there(job, entry, deadline)
        if job.operation in {Operation.MODIFY, Operation.RECONCILE}:
            return _not_taken_back(result) or (_drift(job) if entry.resumed else ())
        if job.operation is Operation.DELETE:
            return _leftovers(job)
        if job.operation is Operation.CREATE and entry.owns_everything:
            return self._left_of_creation(job, result, deadline)
        return _not_taken_back(result)

    def _still_there(self, job: Job, entry: Entry, deadline: Deadline) -> tuple[str, ...]:
        """Name what a deletion left.

        A request of a killed process may take effect after this deletion looked for what to delete.
        What it made is deleted, too.
        """
        if job.operation is not Operation.DELETE:
            return ()
        left = _leftovers(job)
        return self._left_of_removal(job, deadline) if left and entry.resumed else left

    def _left_of_creation(self, job: Job, result: Result, deadline: Deadline) -> tuple[str, ...]:
        """Delete what a creation left and name what is still left; what is gone is stitched to nothing.

        Undoing keeps the stitches where a step could not be undone, also if that is deleted here.
        """
        left = _leftovers(job)
        if left and not deadline.late():
            deadline.renew(self._site.limits.undo)
            left = self._left_of_removal(job, deadline)
        if left or _may_come(result, deadline):
            return left
        return warned(self._stitches.forget, job.sliver.id)

    def _left_of_removal(self, job: Job, deadline: Deadline) -> tuple[str, ...]:
        """Delete all of the sliver and name what is still left."""
        removal = attempt(job.handler.delete, job.sliver.ref())
        if isinstance(removal, Flow):
            run(removal, self._steps, deadline=deadline, undo_limit=deadline.remaining())
        return _leftovers(job)


def _data(sliver: SliverRef) -> dict[str, Any]:
    return sliver.model_dump(mode="json", exclude_none=True)


def _leftovers(job: Job) -> tuple[str, ...]:
    left = attempt(job.handler.leftovers, job.sliver)
    return (f"unknown: {left}",) if isinstance(left, Exception) else tuple(left)


def _drift(job: Job) -> tuple[str, ...]:
    """Name what is not as the stamp says, which an unfinished modification may have changed."""
    found = attempt(job.handler.observe, job.sliver.ref())
    return (f"unknown: {found}",) if isinstance(found, Exception) else found.differences


def _not_taken_back(result: Result) -> tuple[str, ...]:
    bad = {StepStatus.UNDO_FAILED} if result.undone else {StepStatus.FAILED, StepStatus.SKIPPED}
    return tuple(f"{r.step}: {r.error or r.status}" for r in result.reports if r.status in bad)


def _left_by_interruption(
    job: Job, result: Result, entry: Entry, deadline: Deadline
) -> tuple[str, ...]:
    """Name what there is of a sliver, or what is not done; nothing if nothing was changed."""
    if not (deadline.changing or entry.resumed or _some_done(result)):
        return ()
    removal = job.operation is Operation.DELETE
    about_all = removal or (job.operation is Operation.CREATE and entry.owns_everything)
    skipped = (r.step for r in result.reports if r.status is StepStatus.SKIPPED)
    return (_leftovers(job) if about_all else ()) or tuple(f"not done: {step}" for step in skipped)


def _explained(result: Result) -> Result:
    """Return a result whose error is that the locks are lost, if they are: others may be its cause."""
    lost = attempt(refuse_lost, 0) if result.error else None
    known = isinstance(lost, LockLost) and lost.__cause__ is None
    return replace(result, error=lost) if known else result


def _may_come(result: Result, deadline: Deadline) -> tuple[str, ...]:
    """Name the calls that may still change what a failed operation read in the end."""
    return named({*result.late, *deadline.late()}) if result.error else ()


def _some_done(result: Result) -> bool:
    return any(report.status is StepStatus.DONE for report in result.reports)


# --- outcomes


def _success(job: Job, result: Result, left: tuple[str, ...]) -> Outcome:
    return with_left(job.outcome(Status.DONE, result, observed=observed_by(job.flow)), left)


def _failure(job: Job, result: Result, left: tuple[str, ...]) -> Outcome:
    done = result.undone or _some_done(result)
    status = Status.PARTIAL if left and done else Status.FAILED
    return job.outcome(status, result, error=report(result.error), left=left)


def _interrupted(job: Job, result: Result, left: tuple[str, ...]) -> Outcome:
    """Return the outcome of an operation that was interrupted and not undone."""
    lost = result.error if isinstance(result.error, LockLost) else None
    if not left:
        error = lost or before_any_change(job.operation, job.sliver)
        return job.outcome(Status.FAILED, result, error=report(error))
    not_done = [r.step for r in result.reports if r.status is StepStatus.SKIPPED]
    done = [r.step for r in result.reports if r.step not in not_done]
    error = Interrupted(
        f"{job.operation} of {job.sliver.id} was interrupted",
        why=f"done: {', '.join(done) or 'nothing'}; not done: {', '.join(not_done)}",
    )
    return job.outcome(Status.PARTIAL, result, error=report(lost or error), left=left)
