"""What the engine costs on top of the steps: a flow of 20 that do nothing, in two layers."""

import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fabric_direct.calls.deadline import Deadline
from fabric_direct.engine.run import Listener, run
from fabric_direct.engine.step import Flow, Step
from fabric_direct.model import Finding, Operation
from fabric_direct.operations.site_metrics import count_step
from fabric_direct.state.file_store import FileStore
from fabric_direct.state.journal import Journal
from tests.bench.measure import line, median_seconds, ratio

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
        journal = Journal(FileStore(Path(folder)))
        for makes in (False, True):
            kind = "that make something" if makes else "with nothing to do"
            bare = _milliseconds(lambda makes=makes: _run(pool, None, makes=makes))
            told = _milliseconds(lambda makes=makes: _run(pool, None, count_step, makes=makes))
            kept = _milliseconds(lambda makes=makes: _run(pool, journal, makes=makes))
            line(f"engine, {STEPS} steps {kind}", bare, "ms", "<= 5", bare <= 5)
            line(f"engine with metrics off, {STEPS} steps {kind}", told, "ms", "<= 5", told <= 5)
            line(f"engine with journal, {STEPS} steps {kind}", kept, "ms", "<= 8", kept <= 8)
        tasks = ratio(lambda: _run(pool, None, makes=False), lambda: _bare(pool))
        line(f"engine, {STEPS} steps, over the bare pool", tasks, "", "-", True)


def _milliseconds(function: Callable[[], object]) -> float:
    return median_seconds(function, rounds=51) * 1000


def _bare(pool: ThreadPoolExecutor) -> None:
    """Give the pool as many functions that do nothing, in two layers."""
    for _ in range(2):
        for future in [pool.submit(int) for _ in range(STEPS // 2)]:
            future.result()


def _run(
    pool: ThreadPoolExecutor,
    journal: Journal | None,
    listener: Listener | None = None,
    *,
    makes: bool,
) -> None:
    names = [f"step {n}" for n in range(STEPS)]
    half = STEPS // 2
    flow = Flow.of(
        [Nothing(n, makes=makes) for n in names[:half]],
        [Nothing(n, makes=makes) for n in names[half:]],
    )
    if journal:
        journal.begin(Operation.CREATE, {"id": "bench", "type": "VM"})
    assert run(flow, pool, deadline=Deadline.within(60), listener=listener).error is None
    if journal:
        journal.end("bench")
