"""What the engine costs on top of the steps: a flow of 20 that do nothing, in two layers."""

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fabric_direct.deadline import Deadline
from fabric_direct.engine import run
from fabric_direct.journal import Journal
from fabric_direct.model import Finding, Operation
from fabric_direct.steps.base import Flow, Step
from tests.bench.measure import line, median_seconds

STEPS = 20


class Nothing(Step):
    """A step that has nothing to do, or something of no effect."""

    def __init__(self, name: str, *, makes: bool) -> None:
        super().__init__(name)
        self._so = not makes

    def check(self) -> Finding:
        """Say whether it was made."""
        return Finding.ALREADY_SO if self._so else Finding.WILL_CREATE

    def make(self) -> None:
        """Note that it was made."""
        self._so = True


def main() -> None:
    """Print the figures."""
    with ThreadPoolExecutor(STEPS) as pool, tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder))
        for makes in (False, True):
            kind = "that make something" if makes else "with nothing to do"
            bare = _per_step(lambda makes=makes: _run(pool, None, makes=makes))
            kept = _per_step(lambda makes=makes: _run(pool, journal, makes=makes))
            line(f"engine, a step of {STEPS} {kind}", bare, "ms", "<= 2", bare <= 2)
            line(f"engine with journal, a step of {STEPS} {kind}", kept, "ms", "<= 4", kept <= 4)


def _per_step(function: object) -> float:
    return median_seconds(function) * 1000 / STEPS  # type: ignore[arg-type]


def _run(pool: ThreadPoolExecutor, journal: Journal | None, *, makes: bool) -> None:
    names = [f"step {n}" for n in range(STEPS)]
    half = STEPS // 2
    flow = Flow.of(
        [Nothing(n, makes=makes) for n in names[:half]],
        [Nothing(n, makes=makes) for n in names[half:]],
    )
    entry = journal.begin(Operation.CREATE, {"id": "bench", "type": "VM"}) if journal else None
    assert run(flow, pool, deadline=Deadline.within(60), entry=entry).error is None
    if journal:
        journal.end("bench")
