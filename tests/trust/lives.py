"""Many lives in one process: nothing grows after the first 100.

A life is a sliver that is created, modified, acted on and deleted; each has an id of its own. Measured
after 100 lives and at the end, in a processor that stays:

- the objects that Python's garbage collector knows: exact, and what one life leaves shows as thousands;
- the memory of the process (resident, of no file) when free memory was given back: what
  libraries in C keep;
- open descriptors, threads, and files below ``state_dir``.

``python -m tests.trust lives`` does it on the fakes, and with ``--libvirt`` on this machine's libvirt.
"""

import ctypes
import gc
import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fabric_direct.drivers.libvirt.storage.pool import OwnPool
from fabric_direct.model import NodeSliver, Outcome
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.trust.matrix import memory
from tests.trust.scenes import DRIVERS, forget, node

_FIRST = 100
"""Lives after which nothing may grow: by then each pool has its threads, each cache its size."""
_ALLOWED = {"objects": 100, "kib": 4096, "descriptors": 0, "threads": 2, "files": 0}
"""What may come and go by itself; what each of 150 lives leaves exceeds it: an object, or 32 KiB.

The first lives after those grow by up to 3 MiB of freed memory that is not given back, as threads meet
by chance; the next 1,000 by 0.5 MiB.
"""
_IMAGE = Path("/var/lib/fabric-direct/images/fabric-guest.qcow2")


@dataclass(frozen=True, slots=True)
class Measured:
    """What a process has."""

    objects: int
    kib: int
    """Memory that is resident and of no file: pages of files come and go."""
    descriptors: int
    threads: int
    files: int
    """Below ``state_dir``, and directories."""


def measure(state_dir: Path) -> Measured:
    """Measure this process, when what is not used is given back."""
    while gc.collect():
        pass
    ctypes.CDLL(None).malloc_trim(0)
    status = Path("/proc/self/status").read_text()
    resident = int(re.search(r"^RssAnon:\s+(\d+) kB", status, re.MULTILINE)[1])
    return Measured(
        objects=len(gc.get_objects()),
        kib=resident,
        descriptors=sum(1 for _ in Path("/proc/self/fd").iterdir()),
        threads=threading.active_count(),
        files=sum(1 for _ in state_dir.rglob("*")),
    )


def growth(site: Site, live: Callable[[HandlerProcessor, int], None], lives: int) -> dict[str, int]:
    """Live, and return what has grown by more than is allowed since the first lives, and by how much."""
    with HandlerProcessor(site, workers=1, step_workers=1) as processor:
        for number in range(_FIRST):
            live(processor, number)
        before = asdict(measure(site.state_dir))
        for number in range(_FIRST, lives):
            live(processor, number)
        after = asdict(measure(site.state_dir))
    print(f"  after {_FIRST}: {before}\n  after {lives}: {after}")  # noqa: T201
    grown = {name: after[name] - before[name] for name in before}
    return {name: more for name, more in grown.items() if more > _ALLOWED[name]}


def done(outcome: Outcome) -> None:
    """See that it was done."""
    assert outcome.ok, (outcome.operation, outcome.error, outcome.left)
    assert not outcome.left, outcome.left


# --- on the fakes


def _on_fakes(folder: Path) -> Site:
    red = {"strategy": "flat_dhcp", "subnet": "10.20.1.0/24"}
    return Site.model_validate(
        {
            "site": "TEST",
            "state_dir": folder / "state",
            "history": 16,  # KiB: it is full, and put away, within the first lives
            "drivers": DRIVERS,
            "guest": "fake",
            "images": {"tiny": {}},
            "openstack": {"cloud": "none", "external_network": "public"},
            "networks": {"red": red | {"physical_network": "physnet1", "router": True}},
            "hosts": {"w1": {"devices": []}, "w2": {"devices": []}},
            "fake": {"hosts": {"w1": {"gpus": 1}, "w2": {"gpus": 1}}},
        }
    )


_NIC = {"type": "vNIC", "id": "nic1", "network": "red", "interface": {"floating_ip": True}}
_DISK = {"type": "Storage", "id": "data", "size": 1}
_GPU = {"type": "GPU", "id": "gpu", "model": "A30"}


def _live(processor: HandlerProcessor, number: int) -> None:
    """Live as a sliver that is placed, and gets a volume in place of its NIC."""

    def sliver(*components: dict[str, Any]) -> NodeSliver:
        return node(*components, id=f"sliver-{number}", host="auto")

    first = sliver(_NIC, _GPU)
    done(processor.create(first).result())
    done(processor.modify(sliver(_DISK, _GPU)).result())
    done(processor.poa(first.ref(), "cpupin", {"vcpu_cpu_map": [{"vcpu": 0, "cpu": 1}]}).result())
    done(processor.probe(first.ref()).result())
    done(processor.delete(first.ref()).result())


# --- on this machine's libvirt


def _on_libvirt(folder: Path) -> Site:
    return Site.model_validate(
        {
            "site": "LIVES",
            "state_dir": folder / "state",
            "history": 16,  # KiB: it is full, and put away, within the first lives
            "volume_pool": folder / "volumes",
            "images": {"tiny": {"path": str(_IMAGE)}},
            "networks": {"red": {"strategy": "flat_dhcp", "subnet": "10.213.1.0/24"}},
            "guest": "none",
        }
    )


def _live_on_libvirt(processor: HandlerProcessor, number: int) -> None:
    """Live as a domain into which nobody looks: without guest, what needs its consent is left out."""

    def sliver(*components: dict[str, Any]) -> NodeSliver:
        nic = {"type": "vNIC", "id": "nic1", "network": "red"}
        size = {"core": 1, "ram": 1, "disk": 1}
        own = {"id": f"life-{number}", "capacities": size, "boot_script": None}
        return node(nic, *components, **own)

    first = sliver()
    done(processor.create(first).result())
    done(processor.modify(sliver(_DISK)).result())
    done(processor.poa(first.ref(), "cpuinfo").result())
    done(processor.delete(first.ref()).result())


@contextmanager
def _room(parent: str | None) -> Iterator[Path]:
    """Make a directory that QEMU's user can reach; nothing stays of it."""
    folder = Path(tempfile.mkdtemp(prefix="fabric-direct-", dir=parent))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _forget_pool(site: Site) -> None:
    pool = OwnPool.of(site, "localhost").pool()
    pool.destroy()
    pool.undefine()


def main(lives: int, *, libvirt: bool = False) -> bool:
    """Live, print what has grown, and return whether nothing has."""
    with _room("/var/tmp" if libvirt else memory()) as folder:
        if libvirt:
            site, live, end = _on_libvirt(folder), _live_on_libvirt, _forget_pool
        else:
            site, live, end = _on_fakes(folder), _live, forget
        try:
            grown = growth(site, live, lives)
        finally:
            end(site)
    print(f"lives: {lives}, grown: {grown or 'nothing'}")  # noqa: T201
    return not grown
