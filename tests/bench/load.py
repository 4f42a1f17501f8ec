"""200 slivers on fake drivers that take 50 ms a call, with 32 threads, and the memory it takes."""

import resource
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
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
    with tempfile.TemporaryDirectory() as folder:
        fakes = {"delay": DELAY, "hosts": {"localhost": {"cores": SLIVERS}}}
        site = fake_site(Path(folder), guest="fake", fake=fakes)
        seconds = _create_all(site)
        calls = sum(substrate(site, "localhost").calls.values())
    ideal = _bare(calls // SLIVERS)
    what = (
        f"{SLIVERS} slivers of {calls // SLIVERS} calls of 50 ms: {THREADS} bare threads over ours"
    )
    line(what, ideal / seconds, "", ">= 0.9", ideal / seconds >= 0.9)
    share = calls * DELAY / THREADS / seconds
    line("the same calls without a gap on any thread, over ours", share, "", "-", True)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    line("resident memory at that load", memory, "MB", "<= 90", memory <= 90)


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
