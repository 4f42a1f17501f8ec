"""`make bench-hosts`: what is asked of 200 hosts that have 10,000 slivers.

They are made on fakes whose calls take no time, and asked for on fakes whose calls take 50 ms.
"""

import resource
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fabric_direct.drivers.fake import substrate
from fabric_direct.handlers import registry
from fabric_direct.model import SliverRef
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.bench.fakes import fake_site, node
from tests.bench.measure import keep, line, ratio
from tests.bench.upkeep import bare_listing

HOSTS = tuple(f"w{number}" for number in range(200))
SLIVERS, THREADS, DELAY, PROBES = 10_000, 32, 0.05, 1000


def main() -> None:
    """Print the figures."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory() as folder:
        site = _site(Path(folder))
        with HandlerProcessor(site, workers=THREADS, step_workers=THREADS) as processor:
            _create(site, processor)
            for host in HOSTS:
                substrate(site, host).delay = DELAY
            _ask(site, processor)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    line(
        f"memory that {SLIVERS:,} slivers take, with the fakes that have them",
        grown,
        "MB",
        "-",
        True,
    )
    keep("hosts")


def _create(site: Site, processor: HandlerProcessor) -> None:
    busy = time.process_time()
    futures = [processor.create(node(n, host=HOSTS[n % len(HOSTS)])) for n in range(SLIVERS)]
    assert all(future.result().ok for future in futures)
    busy = (time.process_time() - busy) / SLIVERS * 1000
    what = f"{SLIVERS:,} creates on {len(HOSTS)} hosts"
    line(f"{what}: processor time of a sliver", busy, "ms", "-", True)
    line(f"{what}: calls of a sliver", _calls(site) / SLIVERS, "", "-", True)


def _ask(site: Site, processor: HandlerProcessor) -> None:
    of = f"of {SLIVERS:,} slivers on {len(HOSTS)} hosts"
    drivers = [registry.host_drivers(site, host) for host in HOSTS]
    for what, question in (("list", processor.slivers), ("drift", processor.drift)):
        calls = _calls_of(site, question) / len(HOSTS)
        line(f"{what} {of}: calls of a host", calls, "", "-", True)
    with ThreadPoolExecutor(THREADS) as pool:
        value = ratio(processor.drift, lambda: list(pool.map(bare_listing, drivers)), rounds=5)
    line(f"drift {of}, to bare listings", value, "times", "-", True)

    def probe() -> None:
        futures = [processor.probe(SliverRef(id=f"s{number}")) for number in range(PROBES)]
        assert all(future.result().ok for future in futures)

    calls = _calls_of(site, probe) / PROBES
    line(f"probe of one {of} by its id: calls", calls, "", "-", True)


def _calls_of(site: Site, question: Callable[[], object]) -> int:
    before = _calls(site)
    question()
    return _calls(site) - before


def _calls(site: Site) -> int:
    return sum(sum(substrate(site, host).calls.values()) for host in HOSTS)


def _site(folder: Path) -> Site:
    return fake_site(
        folder,
        fake={"hosts": {host: {"cores": SLIVERS} for host in HOSTS}},
        hosts={host: {} for host in HOSTS},
    )


if __name__ == "__main__":
    main()
