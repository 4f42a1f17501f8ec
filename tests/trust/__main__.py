"""`make test-trust`: every part in one run. Each figure but the number of points must be 0."""

import logging
import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from tests.trust import page
from tests.trust.matrix import SCENES, Point, Verdict, judge, points, without_gaps

_FIGURES = ("wrong", "unnamed", "not_converged", "late")


def main() -> int:
    """Try every point, print what was found, and write it into the page."""
    logging.disable(logging.CRITICAL)
    began = time.monotonic()
    chosen = [point for name in SCENES for point in without_gaps(points(name))]
    verdicts = _judged(chosen)
    _print(verdicts)
    page.write(verdicts)
    print(f"{len(verdicts)} points in {time.monotonic() - began:.0f} s")  # noqa: T201
    return int(any(verdict.sentences() for verdict in verdicts))


def _judged(chosen: Sequence[Point]) -> list[Verdict]:
    workers = len(os.sched_getaffinity(0))
    forked = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(workers, mp_context=forked) as pool:
        return list(pool.map(judge, chosen, chunksize=8))


def _print(verdicts: Sequence[Verdict]) -> None:
    print(f"{'':24}{'points':>8}{'wrong':>8}{'unnamed':>9}{'not converged':>15}{'late':>6}")  # noqa: T201
    for scene in SCENES:
        of = [verdict for verdict in verdicts if verdict.point.scene == scene]
        numbers = [sum(bool(getattr(verdict, name)) for verdict in of) for name in _FIGURES]
        print("{:24}{:8}{:8}{:9}{:15}{:6}".format(scene, len(of), *numbers))  # noqa: T201
    for verdict in verdicts:
        for sentence in verdict.sentences():
            print(f"{verdict.point}: {sentence}")  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
