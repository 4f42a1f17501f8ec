"""Eight instances selected in a tree of 21 zones on three levels, over the slowest leaf asked alone.

Each zone is a process of its own (``fabric-direct zone serve``) on loopback. Hosts are in memory: what
real inventories take (OpenStack's Placement and Nova, libvirt, a worker by SSH) is stood in for by a
fixed delay of each call of a driver at the leaves. All processes share the cores of this machine, where
real zones have their own; the second figure says what that, and the zones themselves, cost.
"""

import os
import secrets
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.bench.measure import line
from tests.zone_tree import ZoneProcess, fake_site, needs

MIDDLE, LEAVES, HOSTS = 4, 4, 4
"""Zones below the root, zones below each of these, and hosts in each of those."""
DELAY = 0.3
"""Seconds of each call of a driver at a leaf. A selection then takes one second, as it would with some
thirty workers of a cloud: eight are asked at a time, and one takes 0.26 s (docs/decisions/0034)."""
ROUNDS_OF_A_LEAF, ROUNDS = 3, 15
HOST = {"cores": 64, "ram": 256, "disk": 4096, "gpus": 2}


def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder, _tree(Path(folder)) as (root, leaves):
        _select(root)  # not counted: connections are made, modules read
        alone = max(_median(leaf, ROUNDS_OF_A_LEAF) for leaf in leaves)
        whole = _median(root, ROUNDS)
    ratio = whole / alone
    what = (
        f"select over {1 + MIDDLE + MIDDLE * LEAVES} zones, over the slowest leaf ({alone:.2f} s)"
    )
    line(what, ratio, "", "<= 1.2", ratio <= 1.2)
    line(f"what the tree adds, on {os.cpu_count()} cores", whole - alone, "s", "-", True)


@contextmanager
def _tree(folder: Path) -> Iterator[tuple[ZoneProcess, list[ZoneProcess]]]:
    leaves = [_leaf(folder, number) for number in range(MIDDLE * LEAVES)]
    middle = [
        _parent(folder, f"middle{n}", leaves[n * LEAVES : (n + 1) * LEAVES]) for n in range(MIDDLE)
    ]
    root = _parent(folder, "root", middle)
    with ExitStack() as stack:
        for level in (leaves, middle, [root]):
            for zone in level:
                zone.begin()
                stack.callback(zone.end)
            for zone in level:
                zone.wait()
        yield root, leaves


def _leaf(folder: Path, number: int) -> ZoneProcess:
    hosts = {f"host{number}-{n}": HOST for n in range(HOSTS)}
    site = fake_site(f"leaf{number}", folder, hosts, {"refresh": 10})
    site["fake"]["delay"] = DELAY
    return ZoneProcess(site, folder)


def _parent(folder: Path, name: str, children: list[ZoneProcess]) -> ZoneProcess:
    zone = {"children": {child.name: child.as_child() for child in children}, "refresh": 10}
    return ZoneProcess(fake_site(name, folder, {}, zone), folder)


def _median(zone: ZoneProcess, rounds: int) -> float:
    """Return the median seconds of a selection."""
    return statistics.median(_select(zone) for _ in range(rounds))


def _select(zone: ZoneProcess) -> float:
    began = time.perf_counter()
    found = zone.select(secrets.token_hex(16), small=needs("small", 5), gpu=needs("gpu", 3))
    seconds = time.perf_counter() - began
    assert len(found["offers"]) == 8, found
    return seconds
