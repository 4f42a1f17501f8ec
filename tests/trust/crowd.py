"""Many at once: 500 operations on 100 slivers, by 16 threads in each of 4 processes, while calls fail.

The processes share everything: the journal, the locks and the claims are files, and so are the fakes
here. Each call of a driver reads its host from a file, takes effect and writes it back, alone. One in
two hundred fails, fails after it took effect, or takes effect when its caller has given it up. A call
of a device comes late only by the limit of its operation, and is not kept so long here.

Each operation is judged while it holds the lock of its sliver. If it is done, the sliver has what was
asked for and nothing beside it. If it failed and says that nothing is left, all is as it was. In the end
every sliver is deleted, and nothing is left on the hosts, in the journal, of locks or of claims.

Not shown: calls that take effect after their operation has ended (the matrix has those), and drivers
whose calls interleave.
"""

import fcntl
import logging
import multiprocessing
import pickle
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from fabric_direct import processor
from fabric_direct.config import Site
from fabric_direct.deadline import Deadline, current_call
from fabric_direct.drivers.contract.bundle import READING
from fabric_direct.drivers.fake import Substrate, substrate
from fabric_direct.errors import DriverError
from fabric_direct.model import NodeSliver, Outcome, SliverRef
from fabric_direct.operations import Operations
from fabric_direct.placement.claims import Claims
from fabric_direct.processor import HandlerProcessor
from tests.trust.matrix import memory
from tests.trust.scenes import DRIVERS, forget, node
from tests.trust.tap import OUR_OWN
from tests.trust.things import Things, differing, things_of

_PROCESSES, _THREADS = 4, 16
_HOSTS = tuple(f"w{number}" for number in range(1, 5))
_ONE_IN = 200
"""Of so many calls one goes wrong."""
_OPERATIONS = ("create", "create", "create", "modify", "modify", "delete", "probe", "poa")
_CHOICES: tuple[dict[str, Any], ...] = (
    {"type": "vNIC", "id": "nic1", "network": "red", "interface": {"port_security": True}},
    {"type": "vNIC", "id": "nic2", "network": "blue", "interface": {"port_security": True}},
    {"type": "Storage", "id": "data", "size": 1},
    {"type": "GPU", "id": "gpu", "model": "A30"},
)


def _site(folder: Path) -> Site:
    networks = {
        name: {"strategy": "flat_dhcp", "subnet": f"10.20.{number}.0/24"}
        for number, name in enumerate(("red", "blue"), 1)
    }
    return Site.model_validate(
        {
            "site": "TEST",
            "state_dir": folder / "state",
            "drivers": DRIVERS,
            "guest": "fake",
            "images": {"tiny": {}},
            "networks": networks,
            "hosts": {host: {"devices": []} for host in _HOSTS},
            "fake": {"hosts": {h: {"cores": 256, "ram": 512, "gpus": 4} for h in _HOSTS}},
            "limits": {"call": 1, "busy": 120, "guest_boot": 2, "guest_devices": 2, "detach": 2},
        }
    )


# --- fakes in files


class Shelf:
    """The hosts of a site, each in a file that all processes share."""

    def __init__(self, site: Site, folder: Path) -> None:
        self._folder = folder
        self.hosts = {host: substrate(site, host) for host in _HOSTS}
        self._read: dict[str, tuple[int, ...]] = {}

    def put(self) -> None:
        """Write down all hosts."""
        for host in self.hosts:
            self._write(host)

    def things(self, sliver: SliverRef) -> Things:
        """Return what there is of a sliver outside of its guest."""
        for host in self.hosts:
            with self.alone(host):
                pass
        every = things_of(self.hosts).items()
        return {t: so for t, so in every if t[1] == sliver.id and t[0] != "guest"}

    @contextmanager
    def alone(self, host: str, *, change: bool = False) -> Iterator[None]:
        """Have a host as it is now, alone, and write it back if it is changed."""
        with self.hosts[host]._lock, (self._folder / f"{host}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._load(host)
            try:
                yield
            finally:
                if change:
                    self._write(host)

    def _file(self, host: str) -> Path:
        return self._folder / host

    def _load(self, host: str) -> None:
        seen = self._file(host).stat()
        if self._read.get(host) != (seen.st_ino, seen.st_mtime_ns):
            vars(self.hosts[host]).update(pickle.loads(self._file(host).read_bytes()))  # noqa: S301
            self._read[host] = (seen.st_ino, seen.st_mtime_ns)

    def _write(self, host: str) -> None:
        has = vars(self.hosts[host]).items()
        new = self._folder / f"{host}.new"
        new.write_bytes(pickle.dumps({name: value for name, value in has if name not in OUR_OWN}))
        new.replace(self._file(host))
        seen = self._file(host).stat()
        self._read[host] = (seen.st_ino, seen.st_mtime_ns)

    def serve(self, chance: random.Random | None) -> None:
        """Let all calls go to the files; with a chance, some of them go wrong."""
        for host, has in self.hosts.items():
            has.call = self._calls(host, has, chance)  # type: ignore[method-assign,assignment]

    def _calls(
        self, host: str, has: Substrate, chance: random.Random | None
    ) -> Callable[[str, Callable[[], Any]], Any]:
        def call(method: str, effect: Callable[[], Any]) -> Any:
            reads = method.partition(".")[2] in READING
            fault = chance.choice(("fail", "after", "late")) if chance and _is_one(chance) else ""
            under_way = None if method.startswith("device") else current_call()
            if fault == "late" and under_way:
                under_way.given_up.wait()
            if fault == "fail":
                raise DriverError(f"{method} failed", why="by chance")
            with self.alone(host, change=not reads):
                result = effect()
            if fault == "after":
                raise DriverError(f"{method} failed", why="by chance, after it took effect")
            return result

        return call


def _is_one(chance: random.Random) -> bool:
    return chance.randrange(_ONE_IN) == 0


# --- operations that are judged


def _judged(shelf: Shelf, wrong: list[str]) -> type[Operations]:
    """Return operations that are judged while they hold the lock of their sliver."""

    class Judged(Operations):
        def create(self, sliver: Any, deadline: Deadline, planned: Any = None) -> Outcome:
            before = shelf.things(sliver)
            return judge(sliver, before, super().create(sliver, deadline, planned))

        def modify(self, sliver: SliverRef, deadline: Deadline) -> Outcome:
            before = shelf.things(sliver)
            return judge(sliver, before, super().modify(sliver, deadline))

        def delete(self, sliver: SliverRef, deadline: Deadline) -> Outcome:
            before = shelf.things(sliver)
            return judge(None, before, super().delete(sliver, deadline), sliver)

    def judge(
        wanted: SliverRef | None, before: Things, outcome: Outcome, sliver: SliverRef | None = None
    ) -> Outcome:
        now = shelf.things(wanted or sliver or outcome.sliver)
        unlike = set(_of(wanted)) ^ set(_names(now)) if outcome.ok else differing(before, now)
        gone = wanted is None and not now
        if unlike and not outcome.left and not gone:
            said = outcome.error.message if outcome.error else ""
            wrong.append(f"{outcome.operation} {outcome.status} {said}: {sorted(unlike)}")
        return outcome

    return Judged


def _of(wanted: SliverRef | None) -> Iterator[tuple[str, str]]:
    """Yield what there must be of a sliver."""
    if not isinstance(wanted, NodeSliver):
        return
    yield from (("compute", "server"), ("tuning", "server"))
    for component in wanted.components:
        kind = {"vNIC": "network", "Storage": "volume"}.get(component.type, "device")
        if kind != "device":
            yield "compute", component.id
        yield kind, component.id


def _names(things: Things) -> Iterator[tuple[str, str]]:
    return ((driver, name.split()[0]) for driver, _, name in things)


# --- the crowd


def main(operations: int = 500, slivers: int = 100) -> bool:
    """Run it, print what came of it, and return whether all is as promised."""
    folder = Path(tempfile.mkdtemp(prefix="fabric-direct-", dir=memory()))
    try:
        said, wrong = _crowd(folder, operations, slivers)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for sentence in wrong:
        print(sentence)  # noqa: T201
    counts = ", ".join(f"{number} {status}" for status, number in sorted(said.items()))
    print(f"many at once: {operations} operations: {counts}; {len(wrong)} wrong")  # noqa: T201
    return not wrong


def _crowd(folder: Path, operations: int, slivers: int) -> tuple[Counter[str], list[str]]:
    site = _site(folder)
    shelf = Shelf(site, folder)
    shelf.put()
    forked = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(_PROCESSES, mp_context=forked) as pool:
        each = operations // _PROCESSES
        tasks = [pool.submit(_work, folder, seed, each, slivers) for seed in range(_PROCESSES)]
        results = [task.result() for task in tasks]
    wrong = [sentence for _, sentences in results for sentence in sentences]
    said: Counter[str] = sum((counts for counts, _ in results), Counter())
    wrong += _deleted(site, shelf, slivers)
    forget(site)
    return said, wrong


def _work(folder: Path, seed: int, operations: int, slivers: int) -> tuple[Counter[str], list[str]]:
    """Run operations on slivers by chance, in this process."""
    logging.disable(logging.CRITICAL)
    chance = random.Random(seed)  # noqa: S311 - no secret
    site = _site(folder)
    shelf, wrong = Shelf(site, folder), list[str]()
    shelf.serve(random.Random(seed))  # noqa: S311
    with (
        patch.object(processor, "Operations", _judged(shelf, wrong)),
        HandlerProcessor(site, workers=_THREADS) as running,
    ):
        futures = [_ask(running, chance, slivers) for _ in range(operations)]
        outcomes = [future.result() for future in futures]
    return Counter(outcome.status.value for outcome in outcomes), wrong


def _ask(running: HandlerProcessor, chance: random.Random, slivers: int) -> Any:
    number = chance.randrange(slivers)
    wanted = [each for each in _CHOICES if chance.random() < 0.5]
    sliver = _sliver(number, *wanted)
    operation = chance.choice(_OPERATIONS)
    if operation == "poa":
        return running.poa(sliver, chance.choice(("cpuinfo", "reboot", "stamp")))
    return getattr(running, operation)(sliver.ref() if operation == "delete" else sliver)


def _sliver(number: int, *components: dict[str, Any]) -> NodeSliver:
    return node(*components, id=f"sliver-{number}", host=_HOSTS[number % len(_HOSTS)])


def _deleted(site: Site, shelf: Shelf, slivers: int) -> list[str]:
    """Delete every sliver without a fault; return what is left."""
    shelf.serve(None)
    with HandlerProcessor(site) as running:
        futures = [running.delete(_sliver(number).ref()) for number in range(slivers)]
        wrong = [f"{o.sliver.id}: {o.error}" for o in (f.result() for f in futures) if not o.ok]
        wrong += [f"in the journal: {entry.sliver['id']}" for entry in running.unfinished()]
    left = [thing for thing in things_of(shelf.hosts) if thing[0] != "guest"]
    locks = [path.name for path in (site.state_dir / "locks").glob("*")]
    claims = Claims(site.state_dir, lifetime=0, timeout=60).since(0)
    return wrong + [f"left: {each}" for each in (*left, *locks, *claims)]
