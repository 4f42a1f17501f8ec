"""Runs a flow of steps on TaskFlow: plan, apply, undo, progress, journal.

Each step becomes a TaskFlow task; the stages of a flow follow one another, the steps of a stage run in
parallel on a pool that all operations share. When a step fails, TaskFlow reverts what ran before it in
reverse order, and each step takes back what it made.

Everything that is reported (progress, times, the outcome's steps, the audit log) comes from TaskFlow's
notifications.
"""

import logging
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from taskflow import engines, states, task
from taskflow.patterns import linear_flow, unordered_flow
from taskflow.types import failure, notifier

from fabric_direct.deadline import Deadline
from fabric_direct.errors import FabricDirectError, NotVerified
from fabric_direct.journal import Entry
from fabric_direct.model import Finding, StepReport, StepStatus
from fabric_direct.steps.base import Flow, Step

log = logging.getLogger(__name__)

OnStep = Callable[[StepReport | None, str, int], None]
"""Called with the report of a step (None when it begins), its name, and how many have ended."""


@dataclass(frozen=True, slots=True)
class Result:
    """What running a flow came to."""

    reports: tuple[StepReport, ...]
    """One for each step that was begun, in the order of the flow."""
    error: Exception | None = None
    """The first failure, if any."""
    undone: bool = False
    """Whether the flow was taken back, because a step that can be undone failed."""


def survey(flow: Flow) -> tuple[StepReport, ...]:
    """Ask every step whether it is so already; nothing is changed."""
    return tuple(
        StepReport(step=step.name, status=StepStatus.PLANNED, finding=step.check())
        for step in flow.steps()
        if step.planned
    )


def run(
    flow: Flow,
    executor: Executor,
    *,
    deadline: Deadline,
    undo_limit: float = 60.0,
    entry: Entry | None = None,
    on_step: OnStep | None = None,
) -> Result:
    """Make everything so, or take back what was made.

    :param executor: a thread pool for the steps, not the one that this is called in: one bounded pool
        for both can starve itself.
    :param deadline: when the drivers of the steps give up; undoing gets ``undo_limit`` seconds more.
    :param entry: where the journal keeps the run; not kept if absent.
    :param on_step: told when a step begins and ends.
    """
    if not flow.stages:
        return Result(())
    state = _Run(deadline, undo_limit)
    recorder = _Recorder(flow, on_step)
    engine = _load(flow, state, executor, entry)
    engine.atom_notifier.register(notifier.Notifier.ANY, recorder)
    error = attempt(engine.run)
    return Result(recorder.reports(), state.error or error, undone=error is not None)


def _load(flow: Flow, state: "_Run", executor: Executor, entry: Entry | None) -> Any:
    kept = (
        {"backend": entry.backend, "book": entry.book, "flow_detail": entry.flow_detail}
        if entry
        else {}
    )
    return engines.load(_patterns(flow, state), engine="parallel", executor=executor, **kept)


def _patterns(flow: Flow, state: "_Run") -> Any:
    whole = linear_flow.Flow("flow")
    for number, steps in enumerate(flow.stages):
        tasks = (_StepTask(step, number, state) for step in steps)
        whole.add(unordered_flow.Flow(f"stage {number}").add(*tasks))
    return whole


def attempt(function: Callable[..., Any], *args: Any) -> Exception | None:
    """Call, and return what was raised: the one place where everything is caught."""
    try:
        function(*args)
    except Exception as error:
        if not isinstance(error, FabricDirectError):
            log.debug("unexpected", exc_info=error)
        return error
    return None


class StepFailed(Exception):
    """A step failed, for TaskFlow and the journal.

    It has the message alone: an error of a library may hold what no journal can, or should.
    """


@dataclass
class _Run:
    """What the steps of one run share."""

    deadline: Deadline
    undo_limit: float
    failed_stage: int | None = None
    error: Exception | None = None
    undoing: bool = False

    def begin_undo(self) -> None:
        if not self.undoing:
            self.undoing = True
            self.deadline.renew(self.undo_limit)

    def fail(self, stage: int) -> None:
        self.failed_stage = stage if self.failed_stage is None else min(stage, self.failed_stage)


class _StepTask(task.Task):  # type: ignore[misc]
    """A step as a TaskFlow task. What it returns goes to the journal."""

    def __init__(self, step: Step, stage: int, run: _Run) -> None:
        super().__init__(name=step.name)
        self.step, self.stage, self.run, self.made = step, stage, run, False

    def execute(self) -> dict[str, Any]:
        if self.run.failed_stage is not None and self.run.failed_stage < self.stage:
            return {"status": StepStatus.SKIPPED}
        results: list[dict[str, Any]] = []
        error = attempt(lambda: results.append(self._ensure()))
        if error is None:
            return results[0]
        self.run.error = self.run.error or error
        if self.step.undoable:
            raise StepFailed(str(error))
        self.run.fail(self.stage)
        return {"status": StepStatus.FAILED, "error": str(error)}

    def _ensure(self) -> dict[str, Any]:
        finding = self.step.check()
        if finding is Finding.ALREADY_SO:
            return {"status": StepStatus.ALREADY_SO, "finding": finding}
        self.made = True
        self.step.make()
        if self.step.check() is not Finding.ALREADY_SO:
            raise NotVerified(
                f"{self.step.name} was made, but is not so when read back",
                remedy="look at the host: something undoes it, or its API says done too early",
            )
        return {"status": StepStatus.DONE, "finding": finding}

    def revert(self, **_: Any) -> dict[str, Any]:
        if not (self.made and self.step.planned):
            return {}
        self.run.begin_undo()
        error = attempt(self._undo)
        return {"undone": error is None, "error": str(error) if error else None}

    def _undo(self) -> None:
        self.step.undo()
        if not self.step.is_undone():
            raise NotVerified(f"{self.step.name} was taken back, but is still there")


class _Recorder:
    """Turns TaskFlow's notifications into reports."""

    def __init__(self, flow: Flow, on_step: OnStep | None) -> None:
        self._order = [step.name for step in flow.steps()]
        self._on_step = on_step
        self._begun: dict[str, float] = {}
        self._reports: dict[str, StepReport] = {}

    def reports(self) -> tuple[StepReport, ...]:
        return tuple(self._reports[name] for name in self._order if name in self._reports)

    def __call__(self, state: str, details: dict[str, Any]) -> None:
        name, result = str(details["task_name"]), details.get("result")
        if state == states.RUNNING:
            self._begun[name] = time.monotonic()
            self._tell(None, name)
        elif state == states.SUCCESS and result:
            self._end(name, result)
        elif state == states.FAILURE:
            self._fail(name, result)
        elif state == states.REVERTED and result:
            self._revert(name, result)

    def _end(self, name: str, result: dict[str, Any]) -> None:
        self._report(
            name,
            status=StepStatus(result["status"]),
            finding=result.get("finding"),
            error=result.get("error"),
            seconds=time.monotonic() - self._begun[name],
        )

    def _fail(self, name: str, result: failure.Failure) -> None:
        seconds = time.monotonic() - self._begun[name]
        self._report(name, status=StepStatus.FAILED, error=str(result.exception), seconds=seconds)

    def _revert(self, name: str, result: dict[str, Any]) -> None:
        before = self._reports[name]
        if not result["undone"]:
            status, error = StepStatus.UNDO_FAILED, result["error"]
        elif before.status is StepStatus.FAILED:
            return
        else:
            status, error = StepStatus.UNDONE, before.error
        self._report(
            name, status=status, error=error, seconds=before.seconds, finding=before.finding
        )

    def _report(self, name: str, **values: Any) -> None:
        report = self._reports[name] = StepReport(step=name, **values)
        self._tell(report, name)

    def _tell(self, report: StepReport | None, name: str) -> None:
        if self._on_step:
            self._on_step(report, name, len(self._reports))
