"""The current steps of operations, and for how long they have run, as their processor reports."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from fabric_direct.calls.waiting import Waiting
    from fabric_direct.model import Outcome
    from fabric_direct.operations.progress import Progress

Clock = Callable[[], float]
Report = Callable[["Outcome", Console, Console], None]
"""Prints an outcome: results to the first console, what failed to the second."""


@dataclass
class StepUnderWay:
    """A step that has begun and not ended."""

    name: str
    """Empty while the operation waits before its first step."""
    since: float
    waiting: "Waiting | None" = None
    waiting_since: float = 0.0
    told: float = 0.0
    """When somebody was told last that it is under way."""

    def waits(self, now: float) -> str:
        """Return what it waits for, and for how long; empty if that is not known."""
        if not self.waiting:
            return ""
        waited, what = seconds(now - self.waiting_since), self.waiting.what
        if self.waiting.seen:
            return f"{self.waiting.seen} for {waited}, waiting for {what}"
        return f"{waited} waiting for {what}"


@dataclass
class SliverUnderWay:
    """A sliver with an operation that has begun and not ended."""

    name: str
    """Its id, and its host if placement chose it."""
    done: int = 0
    total: int = 0
    steps: dict[str, StepUnderWay] = field(default_factory=dict)


class UnderWay:
    """All slivers with an operation under way, by id; it is told from any thread."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        """Begin with none."""
        self.clock, self.began = clock, clock()
        self._lock = Lock()
        self._slivers: dict[str, SliverUnderWay] = {}

    def note(self, progress: "Progress") -> None:
        """Note that a step has begun, waits or has ended."""
        with self._lock:
            sliver = self._slivers.setdefault(progress.sliver, SliverUnderWay(progress.sliver))
            sliver.name = named(progress)
            sliver.done, sliver.total = progress.done, progress.total
            if progress.status is not None:
                sliver.steps.pop(progress.step, None)
            else:
                self._note_step(sliver.steps, progress)

    def _note_step(self, steps: dict[str, StepUnderWay], progress: "Progress") -> None:
        now = self.clock()
        step = steps.setdefault(progress.step, StepUnderWay(progress.step, now, told=now))
        if progress.waiting is not None:
            step.waiting = progress.waiting if progress.waiting.what else None
            step.waiting_since = now
        if not (step.name or step.waiting):
            del steps[step.name]

    def end(self, sliver: str) -> None:
        """Note that the operation on a sliver has ended."""
        with self._lock:
            self._slivers.pop(sliver, None)

    def slivers(self) -> list[SliverUnderWay]:
        """Return those that are under way now, in the order in which they began."""
        with self._lock:
            return [
                SliverUnderWay(each.name, each.done, each.total, dict(each.steps))
                for each in self._slivers.values()
            ]

    def long_running(self, every: float) -> list[tuple[SliverUnderWay, StepUnderWay]]:
        """Return the steps of which nobody was told for so many seconds, as told from now on."""
        now = self.clock()
        found = [(sliver, step) for sliver in self.slivers() for step in sliver.steps.values()]
        due = [(sliver, step) for sliver, step in found if now - step.told >= every]
        for _, step in due:
            step.told = now
        return due


def named(progress: "Progress") -> str:
    """Return the sliver's id, and its host if placement chose it."""
    return f"{progress.sliver} on {progress.host}" if progress.host else progress.sliver


def seconds(duration: float) -> str:
    """Return a duration in whole seconds, from 100 s on with minutes."""
    whole = int(duration)
    return f"{whole} s" if whole < 100 else f"{whole // 60} min {whole % 60:02} s"
