"""`make bench-conductors`: operations that conductors carry out, on the PostgreSQL of labs/postgresql.

All processes, the database's too, share the machine's processors.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg.sql import SQL, Identifier

from fabric_direct.model import NodeSliver, SliverRef
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from fabric_direct.state.postgresql.schema import migrate
from tests.bench.measure import keep, line, median_seconds

URL = os.environ.get("FABRIC_DATABASE", "postgresql://fabric@127.0.0.1:25432/fabric")
DELAY = 0.05
"""Seconds that a call of a fake driver takes in a creation."""
CREATES, LOOKS, WAITING = 1000, 1000, 1000
SLOTS = 5
_MAIN = "from fabric_direct.cli import main; main()"
_IDLE = 10.0
"""Seconds for which a conductor is watched that has nothing to do."""


@contextmanager
def site(delay: float) -> Iterator[Site]:
    """Give a site on the fakes, with a state of its own."""
    with tempfile.TemporaryDirectory(prefix="fdbench-") as folder:
        it = Site.model_validate(
            {
                "site": f"bench-{os.getpid()}-{time.monotonic_ns()}",
                "state_dir": f"{folder}/state",
                "state_database": {"url": URL},
                "conductors": {},
                "drivers": {"VM": "fake", "vNIC": "fake", "Storage": "fake"},
                "guest": "fake",
                "images": {"tiny": {}},
                "networks": {"red": {"strategy": "flat_dhcp", "subnet": "10.20.0.0/16"}},
                "fake": {
                    "delay": delay,
                    "hosts": {"localhost": {"cores": 10**6, "ram": 10**6, "disk": 10**6}},
                },
            }
        )
        migrate(it)
        Path(folder, "site.json").write_text(it.model_dump_json(exclude_defaults=True))
        yield it
        with psycopg.connect(URL, autocommit=True) as connection:
            connection.execute(SQL("DROP SCHEMA {} CASCADE").format(Identifier(it.site)))


@contextmanager
def conductors(of: Site, number: int, slots: int = SLOTS) -> Iterator[list[int]]:
    """Run conductors of a site; give their processes."""
    command = [
        *(sys.executable, "-c", _MAIN, "conductor", "--slots", str(slots)),
        *("--site", str(of.state_dir.parent / "site.json")),
    ]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(number)]
    try:
        for each in running:
            assert each.stdout
            assert each.stdout.readline(), "the conductor has ended"
        yield [each.pid for each in running]
    finally:
        for each in running:
            each.terminate()
        for each in running:
            each.communicate()


def vm(name: str) -> NodeSliver:
    """Return a VM with a NIC and a volume."""
    return NodeSliver.model_validate(
        {
            "id": name,
            "name": name,
            "image": "tiny",
            "capacities": {"core": 1, "ram": 1, "disk": 1},
            "components": [
                {"type": "vNIC", "id": "nic", "network": "red"},
                {"type": "Storage", "id": "data", "size": 1},
            ],
        }
    )


def creates_each_second(number: int) -> float:
    """Return how many creations so many conductors end in a second."""
    with site(DELAY) as it, conductors(it, number), HandlerProcessor(it) as front:
        front.create(vm("first")).result()
        many = max(100, CREATES * number // 4)
        began = time.monotonic()
        asked = [front.create(vm(f"vm-{n}")) for n in range(many)]
        assert all(future.result().ok for future in asked)
        return many / (time.monotonic() - began)


def looks_each_second(front: HandlerProcessor) -> float:
    """Return how many operations that only look are ended in a second."""
    began = time.monotonic()
    asked = [front.probe(SliverRef(id=f"look-{n}", type="VM")) for n in range(LOOKS)]
    assert all(future.result().ok for future in asked)
    return LOOKS / (time.monotonic() - began)


def processor_time(pid: int) -> float:
    """Return the seconds of processor time of a process."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Print the figures."""
    with site(0.0) as it, HandlerProcessor(it) as front:
        with conductors(it, 1) as (pid,):
            look = SliverRef(id="look", type="VM")
            took = 1000 * median_seconds(lambda: front.probe(look).result(), rounds=101)
            line("post to outcome of an operation that looks", took, "ms", "<= 25", took <= 25)
            began = processor_time(pid)
            time.sleep(_IDLE)
            share = 100 * (processor_time(pid) - began) / _IDLE
            line("an idle conductor, of a core", share, "%", "<= 1", share <= 1)
        with conductors(it, 4):
            rate = looks_each_second(front)
            line("operations that look, 4 conductors", rate, "1/s", ">= 100", rate >= 100)
    with site(0.0) as it, HandlerProcessor(it) as front:
        waiting = [front.create(vm("busy")) for _ in range(WAITING)]
        with conductors(it, 1):
            began = time.monotonic()
            waiting[0].result()
            first = time.monotonic() - began
            for future in waiting:
                future.result()
            each = 1000 * (time.monotonic() - began - first) / (WAITING - 1)
            line(f"each of {WAITING} that wait for a sliver", each, "ms", "-", True)
            alone = 1000 * median_seconds(lambda: front.create(vm("busy")).result(), rounds=51)
            line("the same, alone", alone, "ms", "-", True)
            name = f"one of {WAITING} that wait for a sliver, to one alone"
            line(name, each / alone, "times", "<= 1.1", each <= 1.1 * alone)
    one, four = creates_each_second(1), creates_each_second(4)
    line(f"creates, {1000 * DELAY:.0f} ms a call, 1 conductor", one, "1/s", "-", True)
    line(f"creates, {1000 * DELAY:.0f} ms a call, 4 conductors", four, "1/s", "-", True)
    share = 100 * four / one / 4
    line("creates of 4 conductors, of 4 times one", share, "%", ">= 90", share >= 90)
    keep("conductors")


if __name__ == "__main__":
    main()
