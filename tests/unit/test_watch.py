"""A watcher repairs what others change when it hears of it; on fake drivers, without a clock."""

import multiprocessing
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from fabric_direct.drivers.contract.changes import Change
from fabric_direct.drivers.fake import Substrate, substrate
from fabric_direct.drivers.fake.guest import FakeGuest
from fabric_direct.errors import InvalidSite, Unreachable
from fabric_direct.handlers.vm.guest import nics
from fabric_direct.model import NodeSliver, Operation, Outcome, SliverRef, State
from fabric_direct.model.services import SERVICES
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site, WatchSettings
from fabric_direct.state.file_store import FileStore
from fabric_direct.state.journal import Journal
from fabric_direct.state.locks import exclusive
from fabric_direct.state.repair_history import History, Note, RepairResult
from fabric_direct.state.store import sliver_lock
from fabric_direct.upkeep.drift import SiteDrift
from fabric_direct.upkeep.watch import RepairBudget, WatchedSource, Watcher
from tests.outcomes import done
from tests.unit.test_behind_our_back import (
    CHANGES,
    FOREIGN,
    REF,
    UPLINK,
    fake_site,
    fakes,
    living,
    node,
    server,
    without_device,
)
from tests.unit.test_service_handler import SWITCHES, bridge, port

__all__ = ["fakes", "living", "node"]

other_hosts = fake_site
MakeVm = Callable[..., NodeSliver]
SOON = 20.0
"""Seconds after which a test gives up."""
STARTED = Change("server", ("sliver-1-node",), "the domain was started")


class Times:
    """A clock that stands still, and what is to be done later."""

    def __init__(self) -> None:
        self.now = 0.0
        self.later: SimpleQueue[tuple[float, Callable[[], None]]] = SimpleQueue()

    def clock(self) -> float:
        return self.now

    def after(self, seconds: float, function: Callable[[], None]) -> None:
        self.later.put((seconds, function))


class Work:
    """Counts what is under way, so that its end can be waited for."""

    def __init__(self) -> None:
        self._changed, self._under_way = threading.Condition(), 0

    def count(self, more: int) -> None:
        with self._changed:
            self._under_way += more
            self._changed.notify_all()

    def wait(self) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: not self._under_way, SOON)


class Threads(ThreadPoolExecutor):
    """The threads of a watcher, whose work is counted."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        self._counted = work

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        future = super().submit(fn, *args, **kwargs)
        self._counted.count(1)
        future.add_done_callback(lambda _: self._counted.count(-1))
        return future


class Desk:
    """A processor whose ended looks and repairs can be waited for."""

    def __init__(self, processor: HandlerProcessor, work: Work) -> None:
        self._processor, self._work = processor, work
        self.ended: SimpleQueue[Outcome] = SimpleQueue()
        self.looked: SimpleQueue[SiteDrift] = SimpleQueue()
        self.slivers, self.bridge_mode = processor.slivers, processor.bridge_mode
        self.unfinished = processor.unfinished
        self.pending_looks, self.look_again = processor.pending_looks, processor.look_again

    def drift(self, *, services: bool) -> SiteDrift:
        found = self._processor.drift(services=services)
        self.looked.put(found)
        return found

    def reconcile(self, sliver: SliverRef) -> "Future[Outcome]":
        return self._told(self._processor.reconcile(sliver))

    def differences(self, sliver: SliverRef) -> "Future[Outcome]":
        return self._told(self._processor.differences(sliver))

    def _told(self, asked: "Future[Outcome]") -> "Future[Outcome]":
        told: Future[Outcome] = Future()
        self._work.count(1)

        def end(answer: "Future[Outcome]") -> None:
            told.set_result(answer.result())
            self.ended.put(answer.result())
            self._work.count(-1)

        asked.add_done_callback(end)
        return told


class Watched:
    """A watcher, and what it notes."""

    def __init__(self, processor: HandlerProcessor) -> None:
        self.notes: SimpleQueue[Note] = SimpleQueue()
        self.work = Work()
        self.times, self.desk = Times(), Desk(processor, self.work)
        self.site = processor.site
        self.watcher = Watcher(
            processor.site,
            self.desk,
            processor._queries.sources(),
            on_note=self.notes.put,
            clock=self.times.clock,
            later=self.times.after,
        )
        self.watcher._pool = Threads(self.work)

    def note(self) -> Note:
        """Wait for the next note."""
        return self.notes.get(timeout=SOON)

    def quiet(self) -> bool:
        """Return whether nothing more was noted when all is done that was begun."""
        self.work.wait()
        return self.notes.empty()


@pytest.fixture
def fake_site(other_hosts: Site) -> Site:
    """A site that asks for repairs, on one of the hosts."""
    hosts = {"localhost": other_hosts.hosts["localhost"]}
    watch = WatchSettings(enabled=True, per_sliver=2, per_site=3)
    return other_hosts.model_copy(update={"hosts": hosts, "watch": watch})


@pytest.fixture
def watched(processor: HandlerProcessor, living: NodeSliver) -> Iterator[Watched]:
    made = Watched(processor)
    yield made
    made.watcher.stop()


@pytest.fixture
def listening(watched: Watched, fakes: Substrate) -> Watched:
    """A watcher that has looked at the whole site, which nobody has touched."""
    hears = [_heard(each) for each in (fakes.listeners, fakes.uplink_listeners)]
    watched.watcher.start()
    for each in hears:
        each.get(timeout=SOON)
    assert watched.desk.looked.get(timeout=SOON).drifts == ()
    assert watched.quiet()
    return watched


def _heard(listeners: object) -> "SimpleQueue[None]":
    """Return where it is told that somebody listens."""
    told: SimpleQueue[None] = SimpleQueue()
    listen = listeners.listen  # type: ignore[attr-defined]

    def noted(tell: Callable[[Change], None], hearing: object) -> None:
        def and_told(change: Change) -> None:
            tell(change)
            told.put(None)

        listen(and_told, hearing)

    listeners.listen = noted  # type: ignore[attr-defined]
    return told


def has(fakes: Substrate) -> set[str]:
    return {device.component for device in fakes.plugged["sliver-1"]}


class TestADomainThatStarts:
    def test_gets_its_devices_back(self, listening: Watched, fakes: Substrate) -> None:
        without_device("gpu")(fakes)

        fakes.listeners.fire(STARTED)

        note = listening.note()
        assert (note.did, note.subject) == (RepairResult.REPAIRED, "sliver-1")
        assert (note.cause, note.differences) == (STARTED.what, ("GPU gpu is missing",))
        assert has(fakes) == {"vf", "gpu"}

    def test_and_has_all_costs_a_look_and_no_note(
        self, listening: Watched, fakes: Substrate
    ) -> None:
        fakes.calls.clear()

        fakes.listeners.fire(STARTED)

        assert done(listening.desk.ended.get(timeout=SOON)).steps == ()
        assert listening.quiet()
        assert not fakes.calls["device.attach"]

    def test_that_is_not_ours_is_not_touched(self, listening: Watched, fakes: Substrate) -> None:
        without_device("gpu")(fakes)

        fakes.listeners.fire(Change("server", ("0815", "theirs"), "the domain was started"))
        fakes.listeners.fire(STARTED)

        assert listening.note().subject == "sliver-1"
        assert listening.desk.ended.get(timeout=SOON).sliver == REF
        assert listening.desk.ended.empty()

    def test_and_is_gone_by_now_is_not_noted(self, listening: Watched, fakes: Substrate) -> None:
        fakes.servers.clear()

        fakes.listeners.fire(STARTED)

        assert listening.quiet()
        assert listening.times.later.empty()

    def test_again_while_it_is_repaired_is_looked_at_once_more(
        self, listening: Watched, fakes: Substrate, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ask = listening.desk.reconcile

        def heard_meanwhile(sliver: SliverRef) -> "Future[Outcome]":
            monkeypatch.undo()
            listening.watcher._mend(sliver, "the domain was defined anew", 0.0)
            return ask(sliver)

        monkeypatch.setattr(listening.desk, "reconcile", heard_meanwhile)

        fakes.listeners.fire(STARTED)

        assert listening.quiet()
        assert listening.desk.ended.qsize() == 2


class TestAnUplink:
    VEB = Change("uplink", (UPLINK,), "uplink ens1 was changed")

    def test_that_leaves_vepa_mode_is_set_to_it_again(
        self, listening: Watched, fakes: Substrate
    ) -> None:
        fakes.uplinks[UPLINK] = "veb"

        fakes.uplink_listeners.fire(self.VEB)

        note = listening.note()
        assert (note.did, note.subject) == (RepairResult.REPAIRED, f"localhost/{UPLINK}")
        assert note.differences == ("it is in mode veb, not vepa",)
        assert fakes.uplinks[UPLINK] == "vepa"

    def test_that_the_site_does_not_want_in_vepa_mode_is_left_alone(
        self, listening: Watched, fakes: Substrate
    ) -> None:
        fakes.uplinks["ens9"] = "veb"

        fakes.uplink_listeners.fire(Change("uplink", ("ens9",), "uplink ens9 was changed"))

        assert listening.quiet()
        assert fakes.uplinks["ens9"] == "veb"

    def test_of_one_host_is_not_taken_for_that_of_another(
        self, watched: Watched, fakes: Substrate, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        begun: list[Callable[[], None]] = []
        monkeypatch.setattr(watched.watcher, "_submit", begun.append)
        one, other = (
            WatchedSource(h, h, fakes.uplink_listeners, uplinks=True) for h in ("w1", "w2")
        )

        for source in (one, other, one):
            watched.watcher._heard(source, self.VEB)

        assert len(begun) == 2

    def test_that_cannot_be_set_is_named(self, listening: Watched, fakes: Substrate) -> None:
        fakes.uplinks[UPLINK] = "veb"
        fakes.fault("uplink.set_bridge_mode", kind="fail")

        fakes.uplink_listeners.fire(self.VEB)

        note = listening.note()
        assert (note.did, note.why.split(" (")[0]) == (
            RepairResult.FAILED,
            "uplink.set_bridge_mode failed: it was told to, at call 1",
        )

    def test_is_set_again_only_so_often_in_an_hour(
        self, listening: Watched, fakes: Substrate
    ) -> None:
        said = []
        for _ in range(3):
            fakes.uplinks[UPLINK] = "veb"
            fakes.uplink_listeners.fire(self.VEB)
            said.append(listening.note().did)

        assert said == [RepairResult.REPAIRED, RepairResult.REPAIRED, RepairResult.REPORTED]
        assert fakes.uplinks[UPLINK] == "veb"


class TestWhatWasChangedBefore:
    def test_is_repaired_when_it_begins_to_listen(self, watched: Watched, fakes: Substrate) -> None:
        without_device("gpu")(fakes)

        watched.watcher.start()

        note = watched.note()
        assert (note.did, note.subject) == (RepairResult.REPAIRED, "sliver-1")
        assert note.cause == "domains of localhost: what was changed before"

    def test_is_an_uplink_too(self, watched: Watched, fakes: Substrate) -> None:
        fakes.uplinks[UPLINK] = "veb"

        watched.watcher.start()

        assert watched.note().subject in {f"localhost/{UPLINK}", "sliver-1"}
        assert fakes.uplinks[UPLINK] == "vepa"

    def test_is_a_repair_that_a_killed_watcher_had_begun(
        self, watched: Watched, fakes: Substrate, living: NodeSliver
    ) -> None:
        journal, begun = Journal(FileStore(watched.site.state_dir)), living.model_dump(mode="json")
        journal.begin(Operation.RECONCILE, begun, owns_everything=False)

        watched.watcher.start()

        done(watched.desk.ended.get(timeout=SOON))
        assert watched.desk.unfinished() == ()

    def test_is_looked_for_again_if_the_site_could_not_be_read(
        self, watched: Watched, fakes: Substrate
    ) -> None:
        without_device("gpu")(fakes)
        fakes.fault("compute.servers", kind="fail")

        watched.watcher.start()
        seconds, again = watched.times.later.get(timeout=SOON)
        again()

        assert watched.note().did is RepairResult.REPAIRED
        assert seconds == 15.0


class TestANetworkServiceThatWasChangedBefore:
    """Nobody tells of it: it is looked at with the whole site."""

    @pytest.fixture
    def fake_site(self, fake_site: Site) -> Site:
        values = fake_site.model_dump() | {
            "drivers": fake_site.drivers | dict.fromkeys(SERVICES, "fake"),
            "switches": SWITCHES,
        }
        del values["fake"]["hosts"]["other"]
        return Site.model_validate(values)

    @pytest.fixture
    def changed(self, watched: Watched, processor: HandlerProcessor, fakes: Substrate) -> None:
        done(processor.create(bridge(port("a", 100))).result())
        fakes.services["net-1"] = bridge(port("a", 102))
        fakes.calls.clear()

    @pytest.mark.usefixtures("changed")
    def test_is_repaired_as_reconcile_does(self, watched: Watched, fakes: Substrate) -> None:
        watched.watcher.start()

        note = watched.note()
        assert (note.did, note.subject) == (RepairResult.REPAIRED, "net-1")
        assert note.differences == ("interface a: its VLAN is 102, not 100",)
        assert fakes.services["net-1"].interfaces[0].vlan == 100

    @pytest.mark.usefixtures("changed")
    def test_without_a_record_of_what_it_should_be_is_left_alone(
        self, watched: Watched, fakes: Substrate
    ) -> None:
        fakes.service_stamps.clear()

        watched.watcher.start()

        assert watched.desk.looked.get(timeout=SOON).unknown
        assert watched.quiet()
        assert not fakes.calls["service.apply"]

    @pytest.mark.usefixtures("changed")
    def test_is_not_looked_at_where_only_who_asks_is_repaired(
        self, watched: Watched, fakes: Substrate
    ) -> None:
        asking = watched.site.watch.model_copy(update={"slivers": "asking"})
        watched.watcher._settings = asking

        watched.watcher.start()

        assert watched.desk.looked.get(timeout=SOON).services == ()
        assert watched.quiet()
        assert not fakes.calls["service.stamped"]


class TestAHostThatDoesNotAnswer:
    @pytest.fixture
    def fake_site(self, fake_site: Site) -> Site:
        hosts = dict.fromkeys(("localhost", "other"), fake_site.hosts["localhost"])
        return fake_site.model_copy(update={"hosts": hosts})

    def test_keeps_no_other_from_being_repaired_and_is_looked_at_again(
        self, watched: Watched, fakes: Substrate, fake_site: Site
    ) -> None:
        substrate(fake_site, "other").fault("compute.servers", at=0, kind="fail")
        without_device("gpu")(fakes)

        watched.watcher.start()

        assert watched.note().did is RepairResult.REPAIRED
        assert has(fakes) == {"vf", "gpu"}
        assert watched.times.later.get(timeout=SOON)[0] == 15.0


class TestASourceThatHearsNothing:
    @pytest.fixture(autouse=True)
    def at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("fabric_direct.upkeep.watch._FIRST_PAUSE", 0.001)
        monkeypatch.setattr("fabric_direct.upkeep.watch._LONGEST_PAUSE", 0.001)

    def test_says_so_once_and_is_tried_until_it_hears_again(
        self, watched: Watched, fakes: Substrate
    ) -> None:
        fakes.listeners.deaf = Unreachable("libvirt does not answer")
        watched.watcher.start()
        note = watched.note()
        assert (note.did, note.subject) == (RepairResult.DEAF, "domains of localhost")
        assert note.why == "libvirt does not answer"
        without_device("gpu")(fakes)

        fakes.listeners.deaf = None

        assert watched.note().did is RepairResult.HEARS
        assert watched.note().did is RepairResult.REPAIRED

    def test_hears_again_whatever_it_tells_first(self, watched: Watched, fakes: Substrate) -> None:
        fakes.listeners.deaf = Unreachable("libvirt does not answer")
        watched.watcher.start()
        assert watched.note().did is RepairResult.DEAF
        fakes.listeners.first = STARTED

        fakes.listeners.deaf = None

        assert watched.note().did is RepairResult.HEARS

    def test_does_not_hear_again_by_what_comes_late(
        self, listening: Watched, fakes: Substrate
    ) -> None:
        ((tell, _),) = fakes.listeners._there.values()
        fakes.listeners.deaf = Unreachable("libvirt does not answer")
        fakes.listeners.lose(Unreachable("the connection to libvirt was lost"))
        assert listening.note().did is RepairResult.DEAF

        tell(STARTED)

        assert listening.quiet()

    def test_keeps_no_other_from_being_heard(self, watched: Watched, fakes: Substrate) -> None:
        fakes.listeners.deaf = Unreachable("libvirt does not answer")
        told = _heard(fakes.uplink_listeners)
        watched.watcher.start()
        assert watched.note().did is RepairResult.DEAF
        told.get(timeout=SOON)
        fakes.uplinks[UPLINK] = "veb"

        fakes.uplink_listeners.fire(TestAnUplink.VEB)

        assert watched.note().subject == f"localhost/{UPLINK}"

    def test_may_lose_its_connection_and_misses_nothing(
        self, listening: Watched, fakes: Substrate
    ) -> None:
        without_device("gpu")(fakes)

        fakes.listeners.lose(Unreachable("the connection to libvirt was lost"))

        said = [listening.note() for _ in range(3)]
        assert [note.did for note in said] == [
            RepairResult.DEAF,
            RepairResult.HEARS,
            RepairResult.REPAIRED,
        ]
        assert said[0].why == "the connection to libvirt was lost"


class TestWhatCannotBeRepaired:
    def test_is_reported_once(self, listening: Watched, fakes: Substrate) -> None:
        fakes.intruders["sliver-1"] = (FOREIGN,)

        for _ in range(2):
            fakes.listeners.fire(STARTED)
            listening.desk.ended.get(timeout=SOON)

        note = listening.note()
        assert note.did is RepairResult.REPORTED
        assert note.differences == (CHANGES["somebody passed a function through"][1],)
        assert listening.quiet()

    def test_is_reported_again_when_it_was_right_meanwhile(
        self, listening: Watched, fakes: Substrate
    ) -> None:
        for intruders in ((FOREIGN,), (), (FOREIGN,)):
            fakes.intruders["sliver-1"] = intruders
            fakes.listeners.fire(STARTED)
            listening.work.wait()

        assert [listening.note().did for _ in range(2)] == [
            RepairResult.REPORTED,
            RepairResult.REPORTED,
        ]

    def test_before_a_person_has_done_something_is_not_tried_again(
        self, listening: Watched, fakes: Substrate, living: NodeSliver
    ) -> None:
        without_device("gpu")(fakes)
        journal = Journal(FileStore(listening.site.state_dir))
        journal.begin(Operation.MODIFY, living.model_dump(mode="json"))

        fakes.listeners.fire(STARTED)

        assert listening.note().did is RepairResult.REPORTED
        assert listening.quiet()
        assert listening.times.later.empty()

    def test_now_is_tried_again_with_growing_pauses(
        self, listening: Watched, fakes: Substrate
    ) -> None:
        without_device("gpu")(fakes)
        fakes.fault("device.attach", kind="fail")

        fakes.listeners.fire(STARTED)

        assert listening.note().did is RepairResult.FAILED
        seconds, again = listening.times.later.get(timeout=SOON)
        again()
        assert listening.note().did is RepairResult.REPAIRED
        assert seconds == 15.0

    def test_is_not_tried_at_once_when_its_own_undoing_is_heard(
        self, listening: Watched, fakes: Substrate, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        without_device("gpu")(fakes)
        fakes.fault("device.attach", at=0, kind="fail")
        ask = listening.desk.reconcile

        def heard_meanwhile(sliver: SliverRef) -> "Future[Outcome]":
            listening.watcher._mend(sliver, "the domain was defined anew", 0.0)
            return ask(sliver)

        monkeypatch.setattr(listening.desk, "reconcile", heard_meanwhile)

        fakes.listeners.fire(STARTED)

        assert listening.times.later.get(timeout=SOON)[0] == 15.0
        assert fakes.calls["device.attach"] == 1

    def test_because_the_host_gives_no_answer_is_tried_again(
        self, listening: Watched, fakes: Substrate
    ) -> None:
        without_device("gpu")(fakes)
        fakes.fault("compute.find", kind="fail")

        fakes.listeners.fire(STARTED)

        _, again = listening.times.later.get(timeout=SOON)
        fakes.mend()
        again()
        assert {listening.note().did, listening.note().did} == {
            RepairResult.REPORTED,
            RepairResult.REPAIRED,
        }

    def test_because_another_process_works_on_it_is_tried_again(
        self, listening: Watched, fakes: Substrate
    ) -> None:
        without_device("gpu")(fakes)
        path = listening.site.state_dir / "locks" / sliver_lock("sliver-1")
        with exclusive(path, "sliver sliver-1", timeout=1):
            fakes.listeners.fire(STARTED)
            _, again = listening.times.later.get(timeout=SOON)
            assert listening.quiet()

        again()

        assert listening.note().did is RepairResult.REPAIRED


class TestARepairThatBreaksOff:
    """The guest of a domain that was made anew boots, and does not have its NIC yet."""

    MISSING = "SharedNIC vf is missing"
    UNSET = "SharedNIC vf does not have 10.9.9.7/24 in the guest"

    @pytest.fixture
    def node(self, node: NodeSliver, vm: MakeVm) -> NodeSliver:
        (vf,) = (each for each in node.devices() if each.id == "vf")
        interface = {"mac": "52:54:00:00:00:77", "ipv4": "10.9.9.7/24", "auto_config": True}
        given = {"type": "SharedNIC", "id": "vf", "bdf": list(map(str, vf.bdf))}
        return vm(host="localhost", components=[given | {"interface": interface}])

    @pytest.fixture
    def broken_off(
        self, listening: Watched, fakes: Substrate, monkeypatch: pytest.MonkeyPatch
    ) -> Callable[[], None]:
        """A repair that gave the VF back, and did not find its interface; how it is tried again."""
        without_device("vf")(fakes)
        fakes.inside["sliver-1"].files.clear()
        monkeypatch.setattr(FakeGuest, "interfaces", lambda *_: ())
        monkeypatch.setattr(nics, "_SHOWN", 0)
        fakes.listeners.fire(STARTED)
        seconds, again = listening.times.later.get(timeout=SOON)
        assert seconds == 15.0
        monkeypatch.undo()
        return again

    def test_is_told_with_what_differed_and_why(
        self, listening: Watched, broken_off: Callable[[], None]
    ) -> None:
        note = listening.note()

        assert (note.did, note.differences) == (RepairResult.FAILED, (self.MISSING,))
        assert "the guest has no interface for vf" in note.why

    def test_is_tried_again_and_then_all_is_told_that_is_repaired(
        self, listening: Watched, broken_off: Callable[[], None]
    ) -> None:
        listening.note()

        broken_off()

        note = listening.note()
        assert (note.did, note.differences) == (
            RepairResult.REPAIRED,
            (self.MISSING, self.UNSET),
        )

    def test_names_nothing_as_repaired_that_differs_again(
        self, listening: Watched, fakes: Substrate, broken_off: Callable[[], None]
    ) -> None:
        listening.note()
        (vf,) = fakes.plugged["sliver-1"]
        without_device("vf")(fakes)
        del fakes.devices[vf.host_address]

        broken_off()

        note = listening.note()
        assert (note.did, note.differences) == (RepairResult.REPORTED, (self.MISSING,))
        assert listening.quiet()

    def test_is_no_matter_any_more_when_the_sliver_is_gone(
        self, listening: Watched, fakes: Substrate, broken_off: Callable[[], None]
    ) -> None:
        listening.note()
        server = fakes.servers.pop("sliver-1")

        broken_off()

        assert listening.quiet()
        assert listening.times.later.empty()
        fakes.servers["sliver-1"] = server  # another of that name
        fakes.listeners.fire(STARTED)
        assert listening.note().differences == (self.UNSET,)


class TestTheLimits:
    def break_and_tell(self, listening: Watched, fakes: Substrate) -> Note:
        without_device("gpu")(fakes)
        fakes.listeners.fire(STARTED)
        return listening.note()

    def test_of_a_sliver_let_it_be_repaired_so_often_in_an_hour(
        self, listening: Watched, fakes: Substrate
    ) -> None:
        said = [self.break_and_tell(listening, fakes) for _ in range(3)]

        assert [note.did for note in said] == [
            RepairResult.REPAIRED,
            RepairResult.REPAIRED,
            RepairResult.REPORTED,
        ]
        assert said[-1].why == "the limit of repairs is reached"
        assert said[-1].differences == ("GPU gpu is missing",)
        assert has(fakes) == {"vf"}
        assert listening.times.later.get(timeout=SOON)[0] == 3600.0

    def test_are_over_when_the_hour_is(self, listening: Watched, fakes: Substrate) -> None:
        for _ in range(3):
            self.break_and_tell(listening, fakes)

        listening.times.now = 3601.0

        assert self.break_and_tell(listening, fakes).did is RepairResult.REPAIRED

    def test_of_a_site_count_all_of_it(self) -> None:
        limits = RepairBudget(WatchSettings(per_sliver=2, per_site=3), lambda: 0.0)
        for subject in ("s1", "s1", "s2"):
            assert limits.allow(subject)
            limits.count(subject)

        assert not limits.allow("s3")

    def test_do_not_count_looks(self, listening: Watched, fakes: Substrate) -> None:
        for _ in range(3):
            fakes.listeners.fire(STARTED)
            listening.desk.ended.get(timeout=SOON)

        assert self.break_and_tell(listening, fakes).did is RepairResult.REPAIRED


class TestWhoAsks:
    @pytest.mark.parametrize(
        "look", [lambda w: w._look_at(STARTED, 0.0), lambda w: w._look_at_all("its start", 0.0)]
    )
    @pytest.mark.parametrize(
        ("slivers", "sliver", "repaired"),
        [
            ("all", None, True),
            ("all", False, False),
            ("all", True, True),
            ("asking", None, False),
            ("asking", True, True),
        ],
    )
    def test_is_repaired(
        self,
        fake_site: Site,
        fakes: Substrate,
        node: NodeSliver,
        slivers: str,
        sliver: bool | None,
        repaired: bool,
        look: Callable[[Watcher], None],
    ) -> None:
        watch = fake_site.watch.model_copy(update={"slivers": slivers})
        asks = fake_site.model_copy(update={"watch": watch})
        with HandlerProcessor(asks) as processor:
            done(processor.create(node.model_copy(update={"watch": sliver})).result())
            without_device("gpu")(fakes)
            watched = Watched(processor)
            look(watched.watcher)
            watched.work.wait()
            watched.watcher.stop()
        assert (has(fakes) == {"vf", "gpu"}) is repaired

    def test_is_nobody_at_a_site_that_does_not(self, fake_site: Site) -> None:
        off = fake_site.model_copy(update={"watch": WatchSettings()})
        with HandlerProcessor(off) as processor, pytest.raises(InvalidSite, match="does not ask"):
            processor.watch()


class TestTwoWatchers:
    def test_repair_a_sliver_once(self, listening: Watched, fakes: Substrate) -> None:
        with HandlerProcessor(listening.site) as processor:
            other = Watched(processor)
            told = _heard(fakes.listeners)
            other.watcher.start()
            told.get(timeout=SOON)
            without_device("gpu")(fakes)
            fakes.calls.clear()

            fakes.listeners.fire(STARTED)

            for each in (listening, other):
                each.desk.ended.get(timeout=SOON)
            other.watcher.stop()
        assert fakes.calls["device.attach"] == 1
        assert has(fakes) == {"vf", "gpu"}


class TestAStoppedWatcher:
    def test_listens_no_more(self, listening: Watched) -> None:
        hearings = list(listening.watcher._hearings.values())
        assert [hearing.over for hearing in hearings] == [False, False]

        listening.watcher.stop()

        assert all(hearing.over for hearing in hearings)

    def test_repairs_nothing_more(self, listening: Watched, fakes: Substrate) -> None:
        listening.watcher.stop()
        without_device("gpu")(fakes)

        fakes.listeners.fire(STARTED)

        assert listening.watcher.wait(0)
        assert listening.quiet()

    def test_is_what_a_forked_child_has(self, listening: Watched) -> None:
        fork = multiprocessing.get_context("fork")
        said = fork.SimpleQueue()
        child = fork.Process(target=lambda: said.put(listening.watcher.wait(0)))
        child.start()
        child.join(SOON)

        assert said.get() is True
        assert not listening.watcher.wait(0)

    def test_goes_with_its_processor(self, fake_site: Site, fakes: Substrate) -> None:
        with HandlerProcessor(fake_site) as processor:
            watcher = processor.watch()
        assert watcher.wait(0)


class TestAServerThatSomebodyStopped:
    def test_stays_stopped(self, listening: Watched, fakes: Substrate) -> None:
        server(state=State.STOPPED)(fakes)

        fakes.listeners.fire(STARTED)

        done(listening.desk.ended.get(timeout=SOON))
        assert fakes.servers["sliver-1"].state is State.STOPPED


class TestTheHistory:
    NOTE = Note(at="2026-01-01T00:00:00.000+00:00", did=RepairResult.REPAIRED, subject="s1")

    def test_can_be_read(self, listening: Watched, fakes: Substrate) -> None:
        without_device("gpu")(fakes)
        fakes.listeners.fire(STARTED)
        note = listening.note()

        assert list(History(FileStore(listening.site.state_dir), 1024).notes()) == [note]

    def test_of_all_operations_names_the_watcher(
        self, listening: Watched, fakes: Substrate, processor: HandlerProcessor
    ) -> None:
        without_device("gpu")(fakes)
        fakes.listeners.fire(STARTED)
        listening.note()

        record = processor.history("sliver-1")[-1]
        assert (record.operation, record.asked_by) == ("reconcile", "watch")

    def test_is_bounded_and_keeps_the_latest(self, tmp_path: Path) -> None:
        history = History(FileStore(tmp_path), 500)
        for number in range(100):
            history.add(self.NOTE.model_copy(update={"subject": f"s{number}"}))

        files = list((tmp_path / "watch").iterdir())
        assert len(files) == 2
        assert sum(path.stat().st_size for path in files) < 1500
        assert [note.subject for note in history.notes()][-1] == "s99"

    def test_overlooks_what_is_no_note(self, tmp_path: Path) -> None:
        history = History(FileStore(tmp_path), 500)
        history.add(self.NOTE)
        with (tmp_path / "watch" / "history.jsonl").open("a") as file:
            file.write('half a li\n{"at": 3}\n')
        history.add(self.NOTE)

        assert list(history.notes()) == [self.NOTE, self.NOTE]

    def test_that_cannot_be_written_keeps_nothing_from_being_repaired(
        self, listening: Watched, fakes: Substrate
    ) -> None:
        (listening.site.state_dir / "watch" / "history.jsonl").mkdir(parents=True)
        without_device("gpu")(fakes)

        fakes.listeners.fire(STARTED)

        assert listening.note().did is RepairResult.REPAIRED
