"""An interruption during any call of any operation: nothing is lost, and no outcome lies.

Each operation is carried out once to count its calls, then interrupted during each of them, at a site of
its own: two hosts, of which one has the sliver or is to have it.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fabric_direct.calls.deadline import interruption
from fabric_direct.drivers.contract import Volume
from fabric_direct.drivers.fake import FakeCompute, Substrate, substrate
from fabric_direct.errors import Conflict, DriverError
from fabric_direct.model import Capacities, NodeSliver, Operation, Outcome, SliverRef
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from fabric_direct.state.file_store import FileStore
from fabric_direct.state.journal import Journal
from fabric_direct.state.pending_looks import PendingLook, PendingLooks
from tests.outcomes import done
from tests.reading import only_reads
from tests.unit.test_behind_our_back import fake_site, fakes, node, without_disk

__all__ = ["fake_site", "fakes", "node"]

Ask = Callable[[HandlerProcessor, NodeSliver], Future[Outcome]]


class Case(NamedTuple):
    """An operation on a sliver."""

    ask: Ask
    there: bool = True
    """Whether the sliver is there before."""
    drifted: bool = False
    """Whether others have taken something away from it."""


def fewer(sliver: NodeSliver) -> NodeSliver:
    """Return the sliver without its vNIC and its GPU."""
    kept = tuple(each for each in sliver.components if each.id not in {"nic1", "gpu"})
    return sliver.model_copy(update={"components": kept})


CHANGING = {
    "create": Case(lambda p, sliver: p.create(sliver), there=False),
    "modify": Case(lambda p, sliver: p.modify(fewer(sliver))),
    "delete": Case(lambda p, sliver: p.delete(sliver)),
    "delete by id": Case(lambda p, sliver: p.delete(SliverRef(id=sliver.id))),
    "reconcile": Case(lambda p, sliver: p.reconcile(sliver.ref()), drifted=True),
    "stop": Case(lambda p, sliver: p.poa(sliver, "stop")),
}
LOOKING = {
    "probe": Case(lambda p, sliver: p.probe(sliver)),
    "plan of a creation": Case(lambda p, sliver: p.plan(sliver), there=False),
    "plan of a modification": Case(lambda p, sliver: p.plan(fewer(sliver))),
    "plan of a deletion": Case(lambda p, sliver: p.plan(sliver, operation=Operation.DELETE)),
    "plan of a repair": Case(lambda p, sliver: p.plan(sliver.ref(), operation=Operation.RECONCILE)),
}


class Calls:
    """The calls of all fake drivers, of which one interrupts a processor."""

    def __init__(self, at: int | str, processor: HandlerProcessor) -> None:
        self._at, self._processor = at, processor
        self._lock = threading.Lock()
        self.all: list[str] = []
        self.after: list[str] | None = None
        """Those that were begun after the interruption; None without one."""

    def begin(self, method: str) -> None:
        ours = self._processor._interruption
        if interruption() not in {None, ours, *ours._parts}:
            return  # a call that an earlier processor gave up, and that begins only now
        with self._lock:
            self.all.append(method)
            if self.after is not None:
                self.after.append(method)
            elif self._at in {len(self.all), method}:
                self.after = []
                self._processor.interrupt()


@contextmanager
def interrupted(at: int | str, processor: HandlerProcessor) -> Iterator[Calls]:
    """Interrupt the processor during a call.

    :param at: its number, from 1, or its method, of which it is the first call; 0 is none.
    """
    calls, call = Calls(at, processor), Substrate.call

    def noted(things: Substrate, method: str, effect: Callable[[], Any]) -> Any:
        calls.begin(method)
        return call(things, method, effect)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Substrate, "call", noted)
        yield calls


class Place:
    """A site on the fake drivers, with the sliver or without."""

    def __init__(self, site: Site, case: Case, sliver: NodeSliver) -> None:
        self.site, self._case, self._sliver = site, case, sliver
        here = substrate(site, "localhost")
        here.existing["shared"] = Volume("", "", "/fake/shared", 1)
        if case.there:
            with HandlerProcessor(site) as processor:
                done(processor.create(sliver).result())
        if case.drifted:
            without_disk("data")(here)

    def has(self) -> list[tuple[object, ...]]:
        """Return what the hosts have, by its names."""
        every = [substrate(self.site, host) for host in self.site.hosts]
        return [
            (
                {(each.sliver, each.state, each.volumes) for each in things.servers.values()},
                *({*things.ports}, {*things.volumes}, {*things.records}),
                {
                    (id_, device.component)
                    for id_, all_ in things.plugged.items()
                    for device in all_
                },
            )
            for things in every
        ]

    def carry_out(self, at: int = 0, *, steps: int = 8) -> tuple[Outcome, Calls]:
        """Carry out the operation, at most so many steps at once; interrupt it during a call."""
        with (
            HandlerProcessor(self.site, step_workers=steps) as processor,
            interrupted(at, processor) as calls,
        ):
            return self._case.ask(processor, self._sliver).result(), calls

    def undo(self) -> list[Outcome]:
        """Undo what is unfinished."""
        with HandlerProcessor(self.site) as processor:
            return [future.result() for future in processor.recover(undo=True)]

    def unfinished(self) -> bool:
        """Return whether an operation is to be finished, or a host to be looked at."""
        with HandlerProcessor(self.site) as processor:
            return bool(processor.unfinished() or processor.pending_looks())


@pytest.fixture
def place(fake_site: Site, tmp_path: Path, node: NodeSliver) -> Callable[[Case], Place]:
    number = count()

    def new(case: Case) -> Place:
        own = {"state_dir": tmp_path / f"site-{next(number)}"}
        return Place(fake_site.model_copy(update=own), case, node)

    return new


def is_changing(call: str) -> bool:
    return not only_reads(call)


def is_interrupted(outcome: Outcome) -> bool:
    return outcome.error is not None and outcome.error.kind == "Interrupted"


@pytest.mark.parametrize("operation", CHANGING)
class TestAChange:
    @pytest.mark.parametrize("steps", [1, 8])
    def test_is_done_or_tells_what_is_left_and_is_finished_by_the_same_again(
        self, operation: str, steps: int, place: Callable[[Case], Place]
    ) -> None:
        case = CHANGING[operation]
        usual = place(case)
        before, calls = usual.has(), usual.carry_out(steps=steps)[1].all
        for at in range(1, len(calls) + 1):
            there = place(case)

            outcome, _ = there.carry_out(at, steps=steps)

            assert outcome.ok or is_interrupted(outcome)
            assert there.has() == usual.has() or not outcome.ok
            assert there.has() == before or outcome.ok or outcome.left
            done(there.carry_out()[0])
            assert there.has() == usual.has()
            assert not there.unfinished()

    def test_that_is_not_done_is_undone_by_recover(
        self, operation: str, place: Callable[[Case], Place]
    ) -> None:
        case = CHANGING[operation]
        usual = place(case)
        before, calls = usual.has(), usual.carry_out()[1].all
        undoable = operation in {"create", "modify"}
        for at in range(1, len(calls) + 1):
            there = place(case)
            if there.carry_out(at)[0].ok or not there.unfinished():
                continue

            for outcome in there.undo():
                done(outcome)

            assert there.has() == (before if undoable else usual.has())
            assert not there.unfinished()


@pytest.mark.parametrize("operation", CHANGING)
def test_no_change_begins_after_an_interruption(
    operation: str, place: Callable[[Case], Place]
) -> None:
    case = CHANGING[operation]
    calls = place(case).carry_out(steps=1)[1].all
    first = next(at for at, call in enumerate(calls, 1) if is_changing(call))
    for at in range(1, first):
        there = place(case)
        outcome, made = there.carry_out(at, steps=1)

        assert made.after is not None
        before = made.all[: len(made.all) - len(made.after)]
        if any(map(is_changing, before)):  # of two hosts, which one is asked first is not said
            assert at > 1
            continue
        assert is_interrupted(outcome)
        assert not any(map(is_changing, made.after))
        assert outcome.left == ()
        assert not there.unfinished()


@pytest.mark.parametrize("operation", LOOKING)
def test_what_only_looks_tells_that_it_was_interrupted(
    operation: str, place: Callable[[Case], Place]
) -> None:
    case = LOOKING[operation]
    there = place(case)
    usual, before = there.carry_out()[1].all, there.has()
    for at in range(1, len(usual) + 1):
        outcome, _ = there.carry_out(at)

        assert outcome.ok or is_interrupted(outcome)
        assert there.has() == before


def test_a_probe_that_is_interrupted_begins_no_other_call(place: Callable[[Case], Place]) -> None:
    there = place(LOOKING["probe"])
    usual = there.carry_out()[1].all
    for at in range(1, len(usual)):
        outcome, calls = there.carry_out(at)

        assert is_interrupted(outcome)
        assert len(calls.all) == at


def test_undoing_a_modification_leaves_the_size_that_a_server_has_by_now(
    fake_site: Site, fakes: Substrate, vm: Callable[..., NodeSliver]
) -> None:
    was, now = vm(host="localhost", components=()), vm(host="localhost")
    larger = was.model_copy(update={"capacities": Capacities(core=2, ram=2, disk=1)})
    with HandlerProcessor(fake_site) as processor:
        done(processor.create(larger).result())
        data, before = (s.model_dump(mode="json", exclude_none=True) for s in (now, was))
        Journal(FileStore(fake_site.state_dir)).begin(Operation.MODIFY, data, before=before)

        for future in processor.recover(undo=True):
            done(future.result())

    assert fakes.servers["sliver-1"].cores == 2


class TestOnSeveralHosts:
    def test_the_search_for_a_host_asks_no_other_one(
        self, processor: HandlerProcessor, vm: Callable[..., NodeSliver]
    ) -> None:
        with interrupted("compute.inventory", processor) as calls:
            outcome = processor.create(vm(host="auto", components=())).result()

        assert is_interrupted(outcome)
        # the two hosts are asked at once
        assert set(calls.after or ()) <= {"compute.inventory"}

    def test_it_is_told_as_that_where_another_host_is_tried(
        self,
        processor: HandlerProcessor,
        vm: Callable[..., NodeSliver],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        def create(*_: object) -> None:
            processor.interrupt()
            raise DriverError("it has no room")

        monkeypatch.setattr(FakeCompute, "create", create)

        outcome = processor.create(vm(host="auto", components=())).result()

        assert is_interrupted(outcome)

    def test_a_host_that_a_deletion_could_not_look_at_stays_to_be_looked_at(
        self, fake_site: Site, processor: HandlerProcessor, vm: Callable[..., NodeSliver]
    ) -> None:
        sliver = vm(host="localhost", components=())
        look = PendingLook(sliver.ref(), "other", found=False)
        PendingLooks(FileStore(fake_site.state_dir), timeout=60).write([look])

        with interrupted("compute.find", processor):
            (outcome,) = [future.result() for future in processor.recover()]

        assert is_interrupted(outcome)
        assert [each.host for each in processor.pending_looks()] == ["other"]

    def test_a_sweep_removes_nothing_more(
        self, fake_site: Site, processor: HandlerProcessor
    ) -> None:
        there = [substrate(fake_site, host) for host in fake_site.hosts]
        for things in there:
            things.unused.add("blue")
        found = processor.find_unexpected(["expected"])

        with interrupted("network.remove_unused", processor) as calls, suppress(Conflict):
            processor.sweep(["expected"], found.token, at_most=100)

        assert "network.remove_unused" not in (calls.after or ())
        assert sum(len(things.unused) for things in there) == 1
