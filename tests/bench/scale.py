"""`make bench-scale`: many creates and deletes at once, on a stand-in for OpenStack.

*Ideal* is a sliver's longest chain of requests, each as long as the stand-in takes for it, in as many
threads as ours: nobody can be quicker who waits for a port before a server is asked for with it. The
stand-in and ours share the machine's processors. *Processor time* is what one process takes for a
sliver: it has one processor for all of its threads.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fabric_direct.model import NodeSliver, Outcome
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.bench.cloud_stand_in import LATENCY, READ, TAKES
from tests.bench.measure import keep, line

NUMBERS, THREADS = (1, 10, 100, 1000), 100
CREATE = sum(LATENCY["POST", kind] for kind in ("ports", "floatingips", "servers")) + TAKES + READ
DELETE = READ + LATENCY["DELETE", "servers"] + TAKES + LATENCY["DELETE", "ports"] + READ
POLLED = ("GET compute servers",)


class Cloud:
    """The stand-in, as the bench asks it."""

    def __init__(self, base: str, folder: Path) -> None:
        self._base, self._folder = base, folder

    def requests(self) -> dict[str, int]:
        """Return how many requests there were of each kind since the last time."""
        with urllib.request.urlopen(f"{self._base}/bench") as answer:  # noqa: S310 - on the loopback
            return dict(json.loads(answer.read()))

    def site(self) -> Site:
        """Return a site on it."""
        cloud = {"cloud": "test", "clouds_file": self._folder / "clouds.yaml"}
        values: dict[str, Any] = {
            "site": "BENCH",
            "state_dir": self._folder / "state",
            "drivers": {"VM": "openstack"},
            "guest": "none",
            "openstack": {**cloud, "external_network": "public"},
        }
        return Site.model_validate(values)


@contextmanager
def standing_in() -> Iterator[Cloud]:
    """Run the stand-in while the block runs."""
    with tempfile.TemporaryDirectory(prefix="fdbench-") as folder:
        command = [sys.executable, "-m", "tests.bench.cloud_stand_in", folder]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
            assert process.stdout
            yield Cloud(process.stdout.readline().strip(), Path(folder))
            assert process.stdin
            process.stdin.close()


def main() -> None:
    """Print the figures."""
    with (
        standing_in() as cloud,
        HandlerProcessor(cloud.site(), workers=THREADS, step_workers=2 * THREADS) as ours,
    ):
        _live(ours, cloud, 1)  # learns the cloud's names
        for number in NUMBERS:
            _live(ours, cloud, number, told=True)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    line(
        f"memory of a process that has done all that with {THREADS} threads",
        memory,
        "MB",
        "-",
        True,
    )
    keep("scale")


def _live(processor: HandlerProcessor, cloud: Cloud, number: int, *, told: bool = False) -> None:
    slivers = [sliver(n) for n in range(number)]
    for what, operation, ideal in (
        ("create", processor.create, CREATE),
        ("delete", lambda sliver: processor.delete(sliver.ref()), DELETE),
    ):
        cloud.requests()
        began, busy = time.perf_counter(), time.process_time()
        outcomes: list[Outcome] = [f.result() for f in [operation(s) for s in slivers]]
        seconds, busy = time.perf_counter() - began, time.process_time() - busy
        bad = [outcome for outcome in outcomes if not outcome.ok]
        assert not bad, bad[:3]
        if told:
            _tell(what, number, seconds, ideal, cloud.requests())
            line(f"processor time of a {what}, of {number}", busy / number * 1000, "ms", "-", True)


def _tell(what: str, number: int, seconds: float, ideal: float, asked: dict[str, int]) -> None:
    waves = -(-number // THREADS)
    line(f"{what} of {number} at once, to the ideal", seconds / (waves * ideal), "times", "-", True)
    calls = sum(count for kind, count in asked.items() if kind not in POLLED)
    line(
        f"requests for a {what}, of {number}, beside looks at servers",
        calls / number,
        "",
        "-",
        True,
    )


def sliver(number: int) -> NodeSliver:
    """Return a sliver with a NIC that has a floating IP."""
    nic = {"type": "vNIC", "id": "nic1", "network": "lab", "interface": {"floating_ip": True}}
    return NodeSliver.model_validate(
        {
            "id": f"s{number}",
            "name": "node",
            "image": "tiny",
            "flavor": "small",
            "capacities": {"core": 1, "ram": 1, "disk": 1},
            "components": [nic],
        }
    )


if __name__ == "__main__":
    main()
