"""Run a flow of steps: one stage after the other, the steps of a stage in parallel.

If a step that can be undone fails, the steps that were made are undone: the last stage first, the
steps of a stage in parallel. The flow runs in the thread of its caller, its steps in a pool. The
caller's thread also emits every :class:`Event`, for progress and logs. See docs/decisions/0036.
"""

import logging
import time
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import nullcontext
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from threading import current_thread, main_thread
from typing import Any, TypeVar

from fabric_direct.calls.deadline import (
    Call,
    Deadline,
    Interruption,
    in_one_piece,
    interruption,
    uninterrupted,
)
from fabric_direct.calls.log_context import about
from fabric_direct.calls.tracing import span
from fabric_direct.calls.waiting import Waiting, heard_by
from fabric_direct.engine.step import Flow, Step
from fabric_direct.errors import DriverError, FabricDirectError, Interrupted, NotVerified
from fabric_direct.model import Finding, StepReport, StepStatus

log = logging.getLogger(__name__)
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
_AT_ONCE = 32
"""Number of calls of :func:`attempt_each` that run in parallel."""


@dataclass(frozen=True, slots=True)
class Event:
    """A step begins, waits, ends or is undone."""

    step: str
    report: StepReport | None
    """None: it begins, or waits."""
    ended: int
    """How many steps of the flow have ended so far."""
    kind: str
    """The class of the step: there are as many as in the code, whatever a flow is about."""
    waiting: Waiting | None = None
    """What the step, or its undoing, waits for from now on."""


Listener = Callable[[Event], object]


@dataclass(frozen=True, slots=True)
class Result:
    """The result of running a flow."""

    reports: tuple[StepReport, ...]
    """One for each step that was begun, in the order of the flow."""
    error: Exception | None = None
    """The first failure, if any."""
    undone: bool = False
    """Whether the flow was undone, because a step that can be undone failed."""
    late: tuple[Call[Any], ...] = ()
    """The calls that were given up and had not returned when undoing began, or given up by it."""


def preview(flow: Flow) -> tuple[StepReport, ...]:
    """Return what each step would do. Nothing is changed."""
    return tuple(_planned(step) for step in flow.steps() if step.planned and not step.is_implied())


def _planned(step: Step) -> StepReport:
    finding = step.check()
    changes = step.changes() if finding is Finding.WILL_CHANGE else ()
    return _report(step, StepStatus.PLANNED, finding=finding, changes=changes)


def run(
    flow: Flow,
    executor: Executor,
    *,
    deadline: Deadline,
    undo_limit: float = 60.0,
    listener: Listener | None = None,
) -> Result:
    """Make every step so, or undo what was made.

    :param executor: a thread pool for the steps. It must not be the pool that this is called in: one
        bounded pool for both can starve itself.
    :param deadline: when the drivers of the steps give up. Undoing renews it.
    :param undo_limit: seconds for undoing. At most half of it is spent on waiting for calls that were
        given up: what they make is undone, too, if they return by then.
    :param listener: called with each event, in the thread of the caller. Its errors are logged.

    If an interruption that applies to the caller begins, the steps that have begun to change something
    come to their end, unless they only wait; no other call is begun, and nothing is undone unless a step
    failed. The result then has the error Interrupted, and reports as skipped what is not so.
    """
    running = _Run(executor, deadline, undo_limit, listener)
    running.make(flow.stages)
    reports = (running.reports.get(step.name) for step in flow.steps())
    late = running.late | set(deadline.late())
    return Result(tuple(filter(None, reports)), running.error, running.undoing, tuple(late))


def attempt(function: Callable[..., T], *args: Any) -> T | Exception:
    """Call a function; return its result, or the exception that it raised.

    A callback or a driver may raise what would end a program, as :func:`sys.exit` does. In a thread it
    ends only the thread, and nobody hears of it: there it is an error as any other. In the main thread
    it passes, as an interruption from the keyboard must.

    Beside it only the door of the command line (``cli/options.py``) catches every exception.
    """
    try:
        return function(*args)
    except Exception as error:
        if not isinstance(error, FabricDirectError):
            log.debug("unexpected error", exc_info=error)
        return error
    except BaseException as error:
        if current_thread() is main_thread():
            raise
        log.debug("unexpected error", exc_info=error)
        stopped = DriverError("the code that was called tried to end its thread", why=repr(error))
        stopped.__cause__ = error
        return stopped


def attempt_each(function: Callable[[K], T], keys: Iterable[K]) -> dict[K, T | Exception]:
    """Call a function with each of some keys, in parallel and in the caller's context.

    :returns: the results, or the exceptions that were raised, in the order of the keys.
    """
    with ThreadPoolExecutor(_AT_ONCE, "fabric-direct-each") as pool:
        begun = {key: pool.submit(copy_context().run, attempt, function, key) for key in keys}
        return {key: answer.result() for key, answer in begun.items()}


class _Run:
    """One run of a flow."""

    def __init__(
        self, executor: Executor, deadline: Deadline, undo_limit: float, listener: Listener | None
    ) -> None:
        self._executor, self._listener = executor, listener
        self._deadline, self._undo_limit = deadline, undo_limit
        self._interruption = interruption() or Interruption()
        self._news: SimpleQueue[Future[StepReport] | tuple[Step, Waiting]] = SimpleQueue()
        self._made: set[Step] = set()
        self._kinds: dict[str, str] = {}
        self.reports: dict[str, StepReport] = {}
        self.error: Exception | None = None
        self.undoing = False
        self.late: set[Call[Any]] = set()

    def make(self, stages: tuple[tuple[Step, ...], ...]) -> None:
        begun: list[tuple[Step, ...]] = []
        for steps in stages:
            begun.append(steps)
            self._refuse_interrupted()
            function = _skip if self.error else self._make
            self._collect({self._begin(function, step): step for step in steps})
            if self.undoing:
                self._deadline.renew(self._undo_limit)
                break
        if self.error:
            self._deadline.settle(self._undo_limit / 2)
        self.late.update(self._deadline.late())
        if self.undoing:
            with uninterrupted():
                self._undo_stages(reversed(begun))

    def _refuse_interrupted(self) -> None:
        if self._interruption.begun.is_set() and self.error is None:
            self.error = Interrupted("the operation was interrupted")

    def _undo_stages(self, stages: Iterable[tuple[Step, ...]]) -> None:
        for steps in stages:
            made = [step for step in steps if step in self._made and step.planned]
            undo = self._keep if self._is_something_left() else self._undo
            self._collect({self._executor.submit(undo, step): step for step in made})

    def _is_something_left(self) -> bool:
        """Return whether something that was made is there, or may come."""
        failed = any(r.status is StepStatus.UNDO_FAILED for r in self.reports.values())
        return failed or bool(self._deadline.late())

    def _begin(self, function: Callable[[Step], StepReport], step: Step) -> "Future[StepReport]":
        self._kinds[step.name] = type(step).__name__
        self._emit(step.name)
        return self._executor.submit(function, step)

    def _collect(self, running: "dict[Future[StepReport], Step]") -> None:
        """Wait for steps; emit what happens to them meanwhile, as it happens."""
        for future in tuple(running):
            future.add_done_callback(self._news.put)
        while running:
            news = self._news.get()
            if isinstance(news, Future):
                del running[news]
                self._end(news.result())
            elif news[0] in running.values():  # else from a call that its step gave up
                self._emit(news[0].name, waiting=news[1])

    def _end(self, report: StepReport) -> None:
        if report != self.reports.get(report.step):
            self.reports[report.step] = report
            self._emit(report.step, report)

    def _emit(
        self, step: str, report: StepReport | None = None, waiting: Waiting | None = None
    ) -> None:
        if self._listener is None:
            return
        event = Event(step, report, len(self.reports), self._kinds[step], waiting)
        error = attempt(self._listener, event)
        if isinstance(error, Exception):
            log.warning("the listener of step %s failed", step, exc_info=error)

    # --- in the threads of the pool

    def _make(self, step: Step) -> StepReport:
        if self._interruption.begun.is_set():
            self._refuse_interrupted()
            return _skip(step)
        began = time.monotonic()
        finding = self._traced(step, step.name, self._ensure)
        seconds = time.monotonic() - began
        if isinstance(finding, Interrupted):
            self.error = self.error or finding
            return _report(step, StepStatus.SKIPPED, seconds=seconds, error=str(finding))
        if isinstance(finding, Exception):
            interrupted = isinstance(self.error, Interrupted)
            self.error = finding if interrupted else self.error or finding
            self.undoing = self.undoing or step.undoable
            return _report(step, StepStatus.FAILED, seconds=seconds, error=str(finding))
        already = finding is Finding.ALREADY_SO
        status = StepStatus.ALREADY_SO if already else StepStatus.DONE
        return _report(step, status, seconds=seconds, finding=finding)

    def _ensure(self, step: Step) -> Finding:
        finding = step.check()
        if finding is not Finding.ALREADY_SO or not step.trusts_check:
            step.look()
            self._made.add(step)
            step.make()
            if (still := step.check()) is not Finding.ALREADY_SO:
                differs = step.differs() if still is Finding.WILL_CHANGE else ()
                raise NotVerified(
                    f"{step.name} was made, but is not so when read back",
                    why="; ".join(differs),
                    remedy="look at the host: something undoes it, or its API reports success too early",
                )
        return finding

    def _keep(self, step: Step) -> StepReport:
        """Undo a step, unless what is left of later ones may use it."""
        if not step.used_later:
            return self._undo(step)
        kept = {"status": StepStatus.UNDO_FAILED, "error": "kept: something may use it still"}
        return self.reports[step.name].model_copy(update=kept)

    def _undo(self, step: Step) -> StepReport:
        report, error = self.reports[step.name], self._traced(step, f"undo {step.name}", _undo)
        if error:
            change = {"status": StepStatus.UNDO_FAILED, "error": str(error)}
            return report.model_copy(update=change)
        if report.status is StepStatus.FAILED:
            return report
        return report.model_copy(update={"status": StepStatus.UNDONE})

    def _traced(self, step: Step, name: str, function: Callable[[Step], T]) -> T | Exception:
        """Return what :func:`attempt` does of a step; tell logs, traces and listeners of it."""
        hearing = nullcontext() if self._listener is None else heard_by(partial(self._hear, step))
        with about(step=step.name), span(name, step=step.name) as traced, hearing, in_one_piece():
            answer = attempt(function, step)
            if isinstance(answer, Exception):
                traced.failed(type(answer).__name__, str(answer))
        return answer

    def _hear(self, step: Step, waiting: Waiting) -> None:
        self._news.put((step, waiting))


def _undo(step: Step) -> None:
    step.undo()
    if not step.is_undone():
        raise NotVerified(f"{step.name} was taken back, but is still there")


def _skip(step: Step) -> StepReport:
    return _report(step, StepStatus.SKIPPED)


def _report(step: Step, status: StepStatus, **values: Any) -> StepReport:
    return StepReport(step=step.name, status=status, **values)
