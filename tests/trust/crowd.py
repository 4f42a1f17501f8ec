"""Many at once: 500 operations on 100 slivers, by 16 threads in each of 4 processes, while calls fail.

The processes share everything: the journal, the locks and the claims are files, and so are the fakes
here (``fake: {keep: true}``). One call in two hundred fails, fails after it took effect, or takes effect
when its caller has given it up. A call of a device comes late only by the limit of its operation, and is
not kept so long here.

Each operation is judged while it holds the lock of its sliver. If it is done, the sliver has what was
asked for and nothing beside it. If it failed and says that nothing is left, all is as it was. In the end
every sliver is deleted, and nothing is left on the hosts, in the journal, of locks or of claims.

Not shown: calls that take effect after their operation has ended (the matrix has those), and drivers
whose calls interleave.
"""

import logging
import multiprocessing
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

from fabric_direct.calls.deadline import Deadline, current_call
from fabric_direct.drivers.fake import Substrate, substrate
from fabric_direct.errors import DriverError
from fabric_direct.model import NodeSliver, Outcome, SliverRef
from fabric_direct.operations.create import Create
from fabric_direct.operations.delete import Delete
from fabric_direct.operations.modify import Modify
from fabric_direct.placement.claims import Claims
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from fabric_direct.state.file_store import FileStore
from tests.trust.matrix import memory
from tests.trust.scenes import DRIVERS, forget, node
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
            "fake": {
                "keep": True,
                "hosts": {h: {"cores": 256, "ram": 512, "gpus": 4} for h in _HOSTS},
            },
            "limits": {"call": 1, "busy": 120, "guest_boot": 2, "guest_devices": 2, "detach": 2},
        }
    )


# --- hosts whose calls go wrong


def _things(hosts: dict[str, Substrate], sliver: SliverRef) -> Things:
    """Return what there is of a sliver outside of its guest."""
    every = _now(hosts).items()
    return {t: so for t, so in every if t[1] == sliver.id and t[0] != "guest"}


def _now(hosts: dict[str, Substrate]) -> Things:
    """Return what there is, whichever process made it."""
    for has in hosts.values():
        with has.current():
            pass
    return things_of(hosts)


def _go_wrong(hosts: dict[str, Substrate], chance: random.Random) -> None:
    """Let some calls of each host go wrong."""
    for has in hosts.values():
        has.call = _by_chance(has.call, chance)  # type: ignore[method-assign]


def _by_chance(serve: Callable[..., Any], chance: random.Random) -> Callable[..., Any]:
    def call(method: str, effect: Callable[[], Any]) -> Any:
        fault = chance.choice(("fail", "after", "late")) if _is_one(chance) else ""
        under_way = None if method.startswith("device") else current_call()
        if fault == "late" and under_way:
            under_way.given_up.wait()
        if fault == "fail":
            raise DriverError(f"{method} failed", why="by chance")
        result = serve(method, effect)
        if fault == "after":
            raise DriverError(f"{method} failed", why="by chance, after it took effect")
        return result

    return call


def _is_one(chance: random.Random) -> bool:
    return chance.randrange(_ONE_IN) == 0


# --- operations that are judged


@contextmanager
def _judged(hosts: dict[str, Substrate], wrong: list[str]) -> Iterator[None]:
    """In the block, judge operations while they hold the lock of their sliver."""
    create, modify, delete = Create.__call__, Modify.__call__, Delete.__call__

    def judged_create(
        self: Create, sliver: Any, deadline: Deadline, planned: Any = None
    ) -> Outcome:
        before = _things(hosts, sliver)
        return judge(sliver, before, create(self, sliver, deadline, planned))

    def judged_modify(self: Modify, sliver: SliverRef, deadline: Deadline) -> Outcome:
        before = _things(hosts, sliver)
        return judge(sliver, before, modify(self, sliver, deadline))

    def judged_delete(self: Delete, sliver: SliverRef, deadline: Deadline) -> Outcome:
        before = _things(hosts, sliver)
        return judge(None, before, delete(self, sliver, deadline), sliver)

    def judge(
        wanted: SliverRef | None, before: Things, outcome: Outcome, sliver: SliverRef | None = None
    ) -> Outcome:
        now = _things(hosts, wanted or sliver or outcome.sliver)
        unlike = set(_of(wanted)) ^ set(_names(now)) if outcome.ok else differing(before, now)
        gone = wanted is None and not now
        if unlike and not outcome.left and not gone:
            said = outcome.error.message if outcome.error else ""
            wrong.append(f"{outcome.operation} {outcome.status} {said}: {sorted(unlike)}")
        return outcome

    with (
        patch.object(Create, "__call__", judged_create),
        patch.object(Modify, "__call__", judged_modify),
        patch.object(Delete, "__call__", judged_delete),
    ):
        yield


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
    hosts = {host: substrate(site, host) for host in _HOSTS}
    forked = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(_PROCESSES, mp_context=forked) as pool:
        each = operations // _PROCESSES
        tasks = [pool.submit(_work, folder, seed, each, slivers) for seed in range(_PROCESSES)]
        results = [task.result() for task in tasks]
    wrong = [sentence for _, sentences in results for sentence in sentences]
    said: Counter[str] = sum((counts for counts, _ in results), Counter())
    wrong += _deleted(site, hosts, slivers)
    forget(site)
    return said, wrong


def _work(folder: Path, seed: int, operations: int, slivers: int) -> tuple[Counter[str], list[str]]:
    """Run operations on slivers by chance, in this process."""
    logging.disable(logging.CRITICAL)
    chance = random.Random(seed)  # noqa: S311 - no secret
    site = _site(folder)
    hosts, wrong = {host: substrate(site, host) for host in _HOSTS}, list[str]()
    _go_wrong(hosts, random.Random(seed))  # noqa: S311
    with _judged(hosts, wrong), HandlerProcessor(site, workers=_THREADS) as running:
        futures = [_ask(running, chance, slivers) for _ in range(operations)]
        outcomes = [future.result() for future in futures]
    for has in hosts.values():
        del has.call  # type: ignore[method-assign]
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


def _deleted(site: Site, hosts: dict[str, Substrate], slivers: int) -> list[str]:
    """Delete every sliver without a fault; return what is left."""
    with HandlerProcessor(site) as running:
        futures = [running.delete(_sliver(number).ref()) for number in range(slivers)]
        wrong = [f"{o.sliver.id}: {o.error}" for o in (f.result() for f in futures) if not o.ok]
        wrong += [f"in the journal: {entry.sliver['id']}" for entry in running.unfinished()]
    left = [thing for thing in _now(hosts) if thing[0] != "guest"]
    locks = [path.name for path in (site.state_dir / "locks").glob("*")]
    claims = Claims(FileStore(site.state_dir), lifetime=0, timeout=60).since(0)
    return wrong + [f"left: {each}" for each in (*left, *locks, *claims)]
