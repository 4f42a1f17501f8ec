"""Measuring: medians, and a line for each figure with what is wanted of it."""

import statistics
import time
from collections.abc import Callable


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
    """Print one figure."""
    print(f"{what:<62} {value:>9.3f} {unit:<6} wanted {wanted:<10} {'ok' if ok else 'MISSED'}")  # noqa: T201
