"""What is found at the points of a matrix: tried side by side, counted, and told."""

import multiprocessing
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from fabric_direct.model import Outcome
from tests.trust.scenes import Request

A = TypeVar("A")
B = TypeVar("B")
FIGURES = ("wrong", "unnamed", "not_converged", "late")
_REAL = 20.0
"""Seconds for what the machine itself takes; a limit is much longer."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found at a point, a sentence each; nothing if all is as promised."""

    point: Any
    wrong: tuple[str, ...] = ()
    """The outcome says what is not so."""
    unnamed: tuple[str, ...] = ()
    """What is left, and not named."""
    not_converged: tuple[str, ...] = ()
    """The same operation again, or the deletion after it, does not do what it shall."""
    late: tuple[str, ...] = ()
    """What took longer than its limit."""

    def sentences(self) -> tuple[str, ...]:
        """Return all of them."""
        return (*self.wrong, *self.unnamed, *self.not_converged, *self.late)


class Trial:
    """One point, and what is found there."""

    def __init__(self, stage: Any, point: Any) -> None:
        self._stage, self._point = stage, point
        self._request: Request = stage.scene.request
        self._wrong: list[str] = []
        self._unnamed: list[str] = []
        self._not_converged: list[str] = []
        self._late: list[str] = []

    def _ask(self, request: Request) -> Outcome:
        outcome: Outcome
        outcome, seconds = self._stage.ask(request)
        limits = self._stage.site.limits
        named = outcome.operation.value.replace("reconcile", "modify")
        allowed = getattr(limits, named) + (0 if outcome.ok else limits.undo)
        if seconds > allowed + _REAL:
            said = f"{outcome.operation} took {seconds:.0f} s, and has {allowed:.0f} s"
            self._late.append(said)
        return outcome

    def _found(self) -> Verdict:
        found = (self._wrong, self._unnamed, self._not_converged, self._late)
        return Verdict(self._point, *map(tuple, found))


def spread(work: Callable[[A], B], over: Sequence[A], *, chunk: int) -> list[B]:
    """Work side by side, in as many processes as there are cores."""
    workers = len(os.sched_getaffinity(0))
    forked = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(workers, mp_context=forked) as pool:
        return list(pool.map(work, over, chunksize=chunk))


def told(scenes: Iterable[str], verdicts: Sequence[Verdict]) -> bool:
    """Print the figures of each operation and what was found; return whether nothing was."""
    print(f"{'':34}{'points':>8}{'wrong':>8}{'unnamed':>9}{'not converged':>15}{'late':>6}")  # noqa: T201
    for scene in scenes:
        of = [verdict for verdict in verdicts if verdict.point.scene == scene]
        numbers = [sum(bool(getattr(verdict, name)) for verdict in of) for name in FIGURES]
        print("{:34}{:8}{:8}{:9}{:15}{:6}".format(scene, len(of), *numbers))  # noqa: T201
    for verdict in verdicts:
        for sentence in verdict.sentences():
            print(f"{verdict.point}: {sentence}")  # noqa: T201
    print(f"{len(verdicts)} points")  # noqa: T201
    return not any(verdict.sentences() for verdict in verdicts)
