"""200 slivers on fake drivers that take 50 ms a call, with 32 threads, and the memory it takes.

They are made in a process of its own, so that the memory is what they take, and no other benchmark.
"""

import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from fabric_direct.drivers.fake import substrate
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.bench.fakes import fake_site, node
from tests.bench.measure import line

SLIVERS, THREADS, DELAY = 200, 32, 0.05
VOLUME = {"type": "Storage", "id": "data", "size": 1}


def main() -> None:
    """Print the figures."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        seconds, calls, memory = process.submit(_run).result()
    ideal = _bare(calls // SLIVERS)
    what = (
        f"{SLIVERS} slivers of {calls // SLIVERS} calls of 50 ms: {THREADS} bare threads over ours"
    )
    line(what, ideal / seconds, "", ">= 0.9", ideal / seconds >= 0.9)
    share = calls * DELAY / THREADS / seconds
    line("the same calls without a gap on any thread, over ours", share, "", "-", True)
    line("resident memory of that process", memory, "MiB", "<= 90", memory <= 90)


def _run() -> tuple[float, int, float]:
    """Return the seconds that it took, the calls, and the memory of this process at its peak in MiB."""
    with tempfile.TemporaryDirectory() as folder:
        fakes = {"delay": DELAY, "hosts": {"localhost": {"cores": SLIVERS}}}
        site = fake_site(Path(folder), guest="fake", fake=fakes)
        seconds = _create_all(site)
        calls = sum(substrate(site, "localhost").calls.values())
    return seconds, calls, _peak()


def _peak() -> float:
    """Return the memory of this process at its peak, in MiB.

    ``getrusage`` counts that of the process which started it, too: exec keeps the maximum.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(each.split()[1]) for each in lines if each.startswith("VmHWM:")) / 1024


def _create_all(site: Site) -> float:
    slivers = [node(number, VOLUME) for number in range(SLIVERS)]
    with HandlerProcessor(site, workers=THREADS, step_workers=THREADS) as processor:
        began = time.perf_counter()
        outcomes = [future.result() for future in [processor.create(s) for s in slivers]]
        seconds = time.perf_counter() - began
    assert all(outcome.ok for outcome in outcomes)
    return seconds


def _bare(calls: int) -> float:
    """Return the seconds that the threads take for the calls alone, one sliver after the other."""

    def sliver(_: int) -> None:
        for _ in range(calls):
            time.sleep(DELAY)

    with ThreadPoolExecutor(THREADS) as pool:
        began = time.perf_counter()
        list(pool.map(sliver, range(SLIVERS)))
        return time.perf_counter() - began
