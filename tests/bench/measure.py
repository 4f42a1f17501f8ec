"""Measuring: medians, and a line for each figure with what is wanted of it."""

import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
"""Where the figures of each part are kept, for :mod:`tests.bench.report`."""


@dataclass(frozen=True, slots=True)
class Figure:
    """What one thing took."""

    what: str
    value: float
    unit: str
    """``times`` is a ratio to the bare calls of the same run."""
    wanted: str
    """``<= 1.1``, for example; ``-`` if nothing is."""
    ok: bool


_figures: list[Figure] = []


def median_seconds(function: Callable[[], object], rounds: int = 15) -> float:
    """Return the median duration of a call, in seconds, after one call that is not counted."""
    function()
    return statistics.median(_seconds(function) for _ in range(rounds))


def _seconds(function: Callable[[], object]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def ratio(one: Callable[[], object], other: Callable[[], object], rounds: int = 15) -> float:
    """Return the median of the durations of ``one`` over those of ``other``, taken in turns."""
    one(), other()
    pairs = [(_seconds(one), _seconds(other)) for _ in range(rounds)]
    return statistics.median(a for a, _ in pairs) / statistics.median(b for _, b in pairs)


def line(what: str, value: float, unit: str, wanted: str, ok: bool) -> None:
    """Print one figure, and remember it for :func:`keep`."""
    _figures.append(Figure(what, float(value), unit, wanted, bool(ok)))
    print(f"{what:<62} {value:>9.3f} {unit:<6} wanted {wanted:<10} {'ok' if ok else 'MISSED'}")  # noqa: T201


def keep(part: str) -> None:
    """Keep the figures of this run, with the machine that they are of.

    :param part: one of ``ABOUT`` of :mod:`tests.bench.report`; those of its last run are replaced.
    """
    RESULTS.mkdir(parents=True, exist_ok=True)
    run = {"of": machine(), "figures": [asdict(figure) for figure in _figures]}
    (RESULTS / f"{part}.json").write_text(json.dumps(run, indent=1))


def machine() -> str:
    """Return in a line what was measured where, and when."""
    model = next(
        (
            text.partition(": ")[2].strip()
            for text in Path("/proc/cpuinfo").read_text().splitlines()
            if text.startswith("model name")
        ),
        platform.machine(),
    )
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[2]
    linux = ".".join(platform.release().split(".")[:2])
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, {cores} cores of {model}, Linux {linux}, "
        f"Python {platform.python_version()}, fabric_direct {version('fabric_direct')}; "
        f"load of the last 15 minutes at the end {load:.1f}"
    )
