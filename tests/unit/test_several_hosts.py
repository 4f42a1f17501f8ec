"""Sites with several hosts: one that hangs or fails is nobody's trouble but of who needs it."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fabric_direct.calls.deadline import wait_until
from fabric_direct.doctor.files import check_journal
from fabric_direct.drivers.fake import Substrate, substrate
from fabric_direct.errors import DriverError
from fabric_direct.model import NodeSliver, Operation, Outcome, SliverRef, Status
from fabric_direct.operations import locate
from fabric_direct.operations.locate import SliverLocator
from fabric_direct.placement.claims import Claims
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from fabric_direct.state.pending_looks import PendingLooks
from tests.outcomes import done
from tests.trust.clock import Clock, Later, await_in_earnest, skipping_faults
from tests.unit.several_hosts import processor, w1, w2

__all__ = ["processor", "w1", "w2"]

MakeVm = Callable[..., NodeSliver]
ENOUGH = 30.0
"""Seconds; half of what a call may take. Who waits for a host that hangs is not ready by then."""
GPU = {"type": "GPU", "id": "gpu"}


@pytest.fixture
def site(fake_site: Site) -> Site:
    values = fake_site.model_dump() | {
        "hosts": {"w1": {}, "w2": {}},
        "fake": {"hosts": {"w1": {"gpus": 1}, "w2": {"gpus": 1}}},
        "limits": {"busy": 0.1, "search": 2.0},
    }
    return Site.model_validate(values)


@pytest.fixture
def clock() -> Iterator[Clock]:
    """Nobody waits in earnest for a call that hangs."""
    with skipping_faults() as clock:
        yield clock


@pytest.fixture
def hasty(clock: Clock, processor: HandlerProcessor) -> HandlerProcessor:
    """A processor that gives a call up soon."""
    return processor


@pytest.fixture
def impatient(site: Site, processor: HandlerProcessor) -> Iterator[HandlerProcessor]:
    """A processor that looks on other hosts for a moment alone."""
    limits = site.limits.model_copy(update={"search": 0.05})
    with HandlerProcessor(site.model_copy(update={"limits": limits})) as impatient:
        yield impatient


REMOVE = "remove it while no process of the site runs"


def write_garbage(file: Path) -> None:
    file.write_text("garbage\n")


def put_directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


DAMAGED = pytest.mark.parametrize(
    "damage", [write_garbage, put_directory], ids=["garbage", "cannot be opened"]
)


def soon(future: "Future[Outcome]") -> Outcome:
    return future.result(ENOUGH)


def things_of(things: Substrate) -> list[str]:
    """Return the components that a host has anything of, and ``server``."""
    return sorted(
        ["server" for _ in things.servers] + [c for _, c in (*things.ports, *things.volumes)]
    )


def broken(*_: object) -> None:
    raise DriverError("the claims cannot be written")


def leave_volume(things: Substrate, other: Substrate) -> None:
    """Let a host have a volume of the sliver which is on another one."""
    key = ("sliver-1", "data")
    things.volumes[key] = other.volumes[key]


class TestLookedForByItsId:
    """It is looked for where it was last, and elsewhere if it is not there."""

    def test_where_it_was_last_is_asked_alone(
        self,
        processor: HandlerProcessor,
        w2: Substrate,
        vm: MakeVm,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(locate, "_HEAD_START", ENOUGH)
        done(soon(processor.create(vm(host="w1"))))
        before = w2.calls.copy()

        for _ in range(3):
            done(soon(processor.probe(vm().ref())))

        assert w2.calls == before

    def test_one_that_was_moved_is_found_where_it_is(
        self, processor: HandlerProcessor, w1: Substrate, w2: Substrate, vm: MakeVm
    ) -> None:
        done(soon(processor.create(vm(host="w1", components=()))))
        w2.servers["sliver-1"] = replace(w1.servers.pop("sliver-1"), host="w2")

        observed = done(soon(processor.probe(vm().ref()))).observed

        assert observed
        assert observed.host == "w2"

    def test_also_while_its_former_host_hangs(
        self,
        processor: HandlerProcessor,
        w1: Substrate,
        w2: Substrate,
        vm: MakeVm,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(locate, "_HEAD_START", 0.01)
        done(soon(processor.create(vm(host="w1", components=()))))
        w2.servers["sliver-1"] = replace(w1.servers.pop("sliver-1"), host="w2")
        w1.hang()

        observed = done(soon(processor.probe(vm().ref()))).observed

        assert observed
        assert observed.host == "w2"


class TestWhileAnotherHostHangs:
    """Nobody waits for it who names another one, or is found on another one."""

    def test_a_sliver_that_names_its_host_lives_there(
        self, processor: HandlerProcessor, w2: Substrate, vm: MakeVm
    ) -> None:
        w2.hang()
        sliver = vm(host="w1")

        done(soon(processor.plan(sliver)))
        done(soon(processor.create(sliver)))
        done(soon(processor.create(sliver)))
        done(soon(processor.probe(sliver)))
        done(soon(processor.poa(sliver, "reboot")))
        done(soon(processor.modify(vm(host="w1", components=sliver.components[:2]))))

    def test_one_that_leaves_its_devices_open_gets_those_of_its_host(
        self, processor: HandlerProcessor, w1: Substrate, w2: Substrate, vm: MakeVm
    ) -> None:
        w2.hang()

        done(soon(processor.create(vm(host="w1", components=()))))
        done(soon(processor.create(vm(id="other", host="w1", components=(GPU,)))))
        done(soon(processor.modify(vm(id="other", host="w1", components=(GPU,)))))

        assert set(w1.plugged) == {"other"}

    @pytest.mark.parametrize("host", [None, "auto"])
    def test_what_names_no_host_is_found_where_it_is(
        self, processor: HandlerProcessor, w2: Substrate, vm: MakeVm, host: str | None
    ) -> None:
        done(soon(processor.create(vm(host="w1"))))
        w2.hang()
        sliver = vm(host=host) if host else vm().ref()

        observed = done(soon(processor.probe(sliver))).observed
        done(soon(processor.poa(sliver, "reboot")))

        assert observed
        assert (observed.host, observed.differences) == ("w1", ())

    def test_an_unfinished_modification_is_undone(
        self, processor: HandlerProcessor, w1: Substrate, w2: Substrate, vm: MakeVm
    ) -> None:
        done(soon(processor.create(vm(host="w1"))))
        w1.fault("volume.delete", kind="fail")
        soon(processor.modify(vm(host="w1", components=vm().components[:2])))
        w2.hang()

        (outcome,) = [soon(future) for future in processor.recover(undo=True)]

        assert outcome.operation is Operation.MODIFY
        done(outcome)

    @pytest.mark.parametrize("named", [True, False], ids=["names its host", "by its id"])
    def test_a_deletion_is_done_where_the_books_say_and_tells_where_it_could_not_look(
        self, impatient: HandlerProcessor, w1: Substrate, w2: Substrate, vm: MakeVm, named: bool
    ) -> None:
        done(soon(impatient.create(vm(host="w1"))))
        w2.hang()

        for _ in range(2):
            outcome = done(soon(impatient.delete(vm(host="w1") if named else vm().ref())))

            assert things_of(w1) == []
            (warning,) = outcome.warnings
            assert warning.startswith("host w2 was not looked at, and will be: w2 did not answer")
            assert impatient.unfinished() == ()
            assert [look.host for look in impatient.pending_looks()] == ["w2"]

    def test_a_deletion_begins_where_it_can(
        self, processor: HandlerProcessor, site: Site, w1: Substrate, w2: Substrate, vm: MakeVm
    ) -> None:
        done(soon(processor.create(vm(host="w1"))))
        (site.state_dir / "placement.sqlite").unlink()  # nobody knows where it is
        w2.hang()

        deleting = processor.delete(vm().ref())
        wait_until("w1 to be cleared", lambda: not w1.servers, timeout=ENOUGH)
        assert not deleting.done()
        w2.mend()

        assert [left.endswith("(w2)") for left in soon(deleting).left] == [True]

    def test_slivers_are_placed_on_those_that_answer(
        self, site: Site, processor: HandlerProcessor, w2: Substrate, vm: MakeVm
    ) -> None:
        """What reading the hosts may take, and all that is asked after it, have the same limit.

        In earnest: while one host hangs another one is read.
        """
        limits = site.limits.model_copy(update={"call": 6.0, "probe": 6.0})
        w2.hang()

        with HandlerProcessor(site.model_copy(update={"limits": limits})) as hasty:
            plan = hasty.place([vm(host="auto")])

        assert [assignment.chosen.host for assignment in plan.assignments] == ["w1"]
        assert [warning.split(":")[0] for warning in plan.warnings] == ["host w2 is left out"]


class TestWhereItMayBe:
    def test_a_sliver_is_not_made_on_a_second_host_while_its_own_hangs(
        self, hasty: HandlerProcessor, w1: Substrate, w2: Substrate, vm: MakeVm
    ) -> None:
        done(soon(hasty.create(vm(host="w1"))))
        w1.hang()

        outcome = soon(hasty.create(vm(host="w2")))

        assert (outcome.status, outcome.error and outcome.error.kind) == (Status.FAILED, "TimedOut")
        assert things_of(w2) == []

    @pytest.mark.parametrize("came_to_nothing", ["failed", "deleted"])
    def test_but_where_nothing_of_it_can_be_on_the_first(
        self,
        processor: HandlerProcessor,
        w1: Substrate,
        w2: Substrate,
        vm: MakeVm,
        came_to_nothing: str,
    ) -> None:
        if came_to_nothing == "failed":
            w1.fault("compute.create", kind="fail")
        soon(processor.create(vm(host="w1")))
        if came_to_nothing == "deleted":
            done(soon(processor.delete(vm(host="w1"))))
        w1.hang()

        done(soon(processor.create(vm(host="w2"))))

        assert w2.servers

    def test_what_its_last_host_does_not_have_any_more_is_made_on_another(
        self, processor: HandlerProcessor, w1: Substrate, w2: Substrate, vm: MakeVm
    ) -> None:
        done(soon(processor.create(vm(host="w1"))))
        for things in (w1.servers, w1.ports, w1.volumes):
            things.clear()

        done(soon(processor.create(vm(host="w2"))))

        assert soon(processor.create(vm(host="w1"))).error

    @pytest.mark.parametrize("components", [(), (GPU,)], ids=["whole", "open"])
    def test_what_is_on_one_host_is_not_made_on_another(
        self, processor: HandlerProcessor, w2: Substrate, vm: MakeVm, components: tuple[object, ...]
    ) -> None:
        done(soon(processor.create(vm(host="w1", components=components))))

        outcome = soon(processor.create(vm(host="w2", components=components)))

        assert outcome.error
        assert outcome.error.message == "sliver sliver-1 is on w1, not on w2"
        assert things_of(w2) == []


class TestClaimsThatFail:
    def test_when_a_host_is_to_be_remembered_nothing_is_made(
        self,
        processor: HandlerProcessor,
        w1: Substrate,
        vm: MakeVm,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(Claims, "remember", broken)

        outcome = soon(processor.create(vm(host="w1")))

        assert (outcome.status, outcome.left) == (Status.FAILED, ())
        assert things_of(w1) == []
        assert processor.unfinished() == ()

    def test_when_a_host_is_to_be_forgotten_the_outcome_is_what_it_was(
        self,
        processor: HandlerProcessor,
        w1: Substrate,
        vm: MakeVm,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(Claims, "drop", broken)
        w1.fault("compute.create", kind="fail")

        outcome = soon(processor.create(vm(host="w1")))

        assert (outcome.status, outcome.left) == (Status.FAILED, ())
        assert outcome.error
        assert "compute.create failed" in outcome.error.message
        assert outcome.warnings == ("the claims cannot be written",)

    @DAMAGED
    @pytest.mark.parametrize("host", ["w1", "auto"])
    def test_if_they_are_damaged_nothing_is_created_and_the_error_says_how_to_go_on(
        self,
        processor: HandlerProcessor,
        site: Site,
        w1: Substrate,
        vm: MakeVm,
        damage: Callable[[Path], object],
        host: str,
    ) -> None:
        done(soon(processor.create(vm(id="other", host="w2", components=()))))
        damage(site.state_dir / "placement.sqlite")

        outcome = soon(processor.create(vm(host=host)))

        assert outcome.status is Status.FAILED
        assert outcome.error
        assert REMOVE in outcome.error.message
        assert things_of(w1) == []


class TestAHostThatWasNotLookedAt:
    """It did not answer a deletion, and has nothing of the sliver as far as the books say."""

    @pytest.fixture(autouse=True)
    def deleted(self, hasty: HandlerProcessor, w1: Substrate, w2: Substrate, vm: MakeVm) -> None:
        """A sliver of which the host has a volume all the same."""
        done(soon(hasty.create(vm(host="w1"))))
        leave_volume(w2, w1)
        w2.hang()
        done(soon(hasty.delete(vm().ref())))
        w2.mend()

    def test_is_looked_at_by_recovery(self, hasty: HandlerProcessor, w2: Substrate) -> None:
        assert [done(soon(future)).operation for future in hasty.recover()] == [Operation.DELETE]
        assert things_of(w2) == []
        assert hasty.pending_looks() == ()
        assert hasty.recover() == []

    def test_is_looked_at_by_the_next_operation_on_it(
        self, hasty: HandlerProcessor, w2: Substrate, vm: MakeVm
    ) -> None:
        done(soon(hasty.create(vm(id="other", host="w2", components=()))))
        await_in_earnest(lambda: not hasty.pending_looks())
        assert things_of(w2) == ["server"]

    def test_is_looked_at_by_the_next_deletion_of_the_sliver(
        self, hasty: HandlerProcessor, w2: Substrate, vm: MakeVm
    ) -> None:
        done(soon(hasty.delete(vm().ref())))
        assert things_of(w2) == []
        assert hasty.pending_looks() == ()

    def test_stays_to_be_looked_at_while_it_does_not_answer(
        self, hasty: HandlerProcessor, w2: Substrate
    ) -> None:
        w2.hang()
        assert [done(soon(future)).operation for future in hasty.recover()] == [Operation.DELETE]
        assert [look.host for look in hasty.pending_looks()] == ["w2"]

    def test_keeps_what_it_has_while_the_sliver_lives_elsewhere_again(
        self, hasty: HandlerProcessor, w1: Substrate, w2: Substrate, vm: MakeVm
    ) -> None:
        done(soon(hasty.create(vm(host="w1"))))
        there = things_of(w1)

        assert hasty.recover() == []
        assert things_of(w1) == there
        assert things_of(w2) == ["data"]

        done(soon(hasty.delete(vm().ref())))
        assert things_of(w2) == []

    def test_vouches_for_no_other_host_once_the_sliver_was_made_again(
        self, hasty: HandlerProcessor, site: Site, w1: Substrate, w2: Substrate, vm: MakeVm
    ) -> None:
        done(soon(hasty.create(vm(host="w1"))))
        (site.state_dir / "placement.sqlite").unlink()
        w1.hang()

        outcome = soon(hasty.delete(vm().ref()))

        assert not outcome.ok
        assert [left.endswith("(w1)") for left in outcome.left] == [True]

    def test_is_left_unknown_if_that_cannot_be_noted(
        self,
        hasty: HandlerProcessor,
        w2: Substrate,
        vm: MakeVm,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        done(soon(hasty.create(vm(id="other", host="w1"))))
        w2.hang()
        monkeypatch.setattr(PendingLooks, "write", broken)

        outcome = soon(hasty.delete(vm(id="other").ref()))

        assert outcome.left == ("unknown: w2: the claims cannot be written",)
        assert [entry.sliver["id"] for entry in hasty.unfinished()] == ["other"]

    def test_is_not_cleared_of_what_was_made_there_meanwhile(
        self, hasty: HandlerProcessor, site: Site, w2: Substrate, vm: MakeVm
    ) -> None:
        w2.volumes.clear()
        done(soon(hasty.create(vm(host="w2"))))
        (site.state_dir / "placement.sqlite").unlink()
        there = things_of(w2)

        assert hasty.pending_looks() == ()
        assert hasty.recover() == []
        assert things_of(w2) == there

    def test_that_the_site_has_no_more_is_forgotten(
        self, site: Site, hasty: HandlerProcessor
    ) -> None:
        fewer = site.model_copy(update={"hosts": {"w1": site.hosts["w1"]}})
        with HandlerProcessor(fewer) as processor:
            for future in processor.recover():
                done(soon(future))
            assert processor.pending_looks() == ()
            assert processor.recover() == []

    def test_is_told_by_doctor(self, site: Site) -> None:
        found = check_journal(site)
        assert "w2 was not looked at when sliver-1 was deleted" in found.found
        assert "recover looks there" in found.remedy


class TestDeletion:
    def test_is_not_done_while_a_host_that_does_not_answer_may_have_something(
        self, hasty: HandlerProcessor, site: Site, w1: Substrate, w2: Substrate, vm: MakeVm
    ) -> None:
        done(soon(hasty.create(vm(host="w1"))))
        (site.state_dir / "placement.sqlite").unlink()  # nobody knows where it is
        leave_volume(w2, w1)
        w2.hang()

        outcome = soon(hasty.delete(vm().ref()))

        assert outcome.status is Status.PARTIAL
        assert [left.endswith("(w2)") for left in outcome.left] == [True]
        w2.mend()
        assert [done(soon(future)).operation for future in hasty.recover()] == [Operation.DELETE]
        assert things_of(w1) + things_of(w2) == []
        assert hasty.unfinished() == ()

    @DAMAGED
    def test_looks_on_all_hosts_and_warns_if_the_claims_are_damaged(
        self,
        processor: HandlerProcessor,
        site: Site,
        w1: Substrate,
        w2: Substrate,
        vm: MakeVm,
        damage: Callable[[Path], object],
    ) -> None:
        done(soon(processor.create(vm(host="w1"))))
        leave_volume(w2, w1)
        damage(site.state_dir / "placement.sqlite")

        outcome = done(soon(processor.delete(vm().ref())))

        assert things_of(w1) + things_of(w2) == []
        (warning,) = outcome.warnings
        assert "cannot use the claims on hosts" in warning
        assert REMOVE in warning

    @DAMAGED
    def test_is_not_done_while_a_host_does_not_answer_if_the_claims_are_damaged(
        self,
        hasty: HandlerProcessor,
        site: Site,
        w1: Substrate,
        w2: Substrate,
        vm: MakeVm,
        damage: Callable[[Path], object],
    ) -> None:
        done(soon(hasty.create(vm(host="w1"))))
        damage(site.state_dir / "placement.sqlite")
        w2.hang()

        outcome = soon(hasty.delete(vm().ref()))

        assert outcome.status is Status.PARTIAL
        assert [left.endswith("(w2)") for left in outcome.left] == [True]
        assert things_of(w1) == []
        assert [entry.sliver["id"] for entry in hasty.unfinished()] == ["sliver-1"]
        assert "cannot use the claims on hosts" in outcome.warnings[0]
        w2.mend()
        done(soon(hasty.delete(vm().ref())))

    def test_of_what_was_found_nowhere_is_not_done_either(
        self, hasty: HandlerProcessor, w2: Substrate, vm: MakeVm
    ) -> None:
        w2.hang()
        outcome = soon(hasty.delete(vm().ref()))
        assert outcome.status is Status.FAILED
        assert outcome.left
        assert hasty.unfinished()

    def test_is_not_done_while_a_host_does_not_answer_that_could_not_be_cleared_before(
        self, hasty: HandlerProcessor, w1: Substrate, w2: Substrate, vm: MakeVm
    ) -> None:
        done(soon(hasty.create(vm(host="w1"))))
        leave_volume(w2, w1)
        w2.fault("volume.delete", at=0, kind="fail")
        assert soon(hasty.delete(vm().ref())).status is Status.PARTIAL
        w2.mend()
        w2.hang()

        outcome = soon(hasty.delete(vm().ref()))

        assert not outcome.ok
        assert [left.endswith("(w2)") for left in outcome.left] == [True]
        w2.mend()
        done(soon(hasty.delete(vm().ref())))
        assert things_of(w2) == []
        assert hasty.pending_looks() == ()

    @pytest.mark.parametrize("failing", ["w1", "w2"])
    def test_that_fails_on_one_of_two_hosts_names_it_and_is_finished_by_recovery(
        self,
        processor: HandlerProcessor,
        site: Site,
        w1: Substrate,
        w2: Substrate,
        vm: MakeVm,
        failing: str,
    ) -> None:
        done(soon(processor.create(vm(host="w1"))))
        leave_volume(w2, w1)
        substrate(site, failing).fault("volume.delete", at=0, kind="fail")

        outcome = soon(processor.delete(vm().ref()))

        assert outcome.status is Status.PARTIAL
        assert outcome.left == (f"/fake/sliver-1.data ({failing})",)
        assert [entry.operation for entry in processor.unfinished()] == [Operation.DELETE]
        substrate(site, failing).mend()
        assert [done(soon(future)).ok for future in processor.recover()] == [True]
        assert things_of(w1) + things_of(w2) == []
        assert processor.unfinished() == ()

    def test_names_a_call_that_may_still_take_effect_on_one_and_is_finished_when_it_does(
        self, hasty: HandlerProcessor, w1: Substrate, w2: Substrate, vm: MakeVm
    ) -> None:
        later = Later()
        done(soon(hasty.create(vm(host="w1"))))
        leave_volume(w2, w1)
        w1.fault("volume.delete", kind="fail")
        w2.fault("volume.delete", kind="late", until=later)

        outcome = soon(hasty.delete(vm().ref()))

        unknown = "unknown: volume.delete was given up and may still take effect"
        assert outcome.left == (
            "/fake/sliver-1.data (w1)",
            "/fake/sliver-1.data (w2)",
            unknown,
        )
        later.set()
        await_in_earnest(lambda: not hasty.unfinished())
        assert things_of(w1) + things_of(w2) == []

    @pytest.mark.parametrize("last_first", [False, True])
    def test_tells_the_same_whichever_host_answers_first(
        self,
        processor: HandlerProcessor,
        w1: Substrate,
        w2: Substrate,
        vm: MakeVm,
        monkeypatch: pytest.MonkeyPatch,
        last_first: bool,
    ) -> None:
        ask = SliverLocator.everywhere

        def everywhere(self: SliverLocator, sliver: SliverRef, may_have: Any) -> Any:
            answers = ask(self, sliver, may_have)
            return sorted(answers, key=lambda answer: answer[0], reverse=last_first)

        monkeypatch.setattr(SliverLocator, "everywhere", everywhere)
        done(soon(processor.create(vm(host="w1"))))
        leave_volume(w2, w1)
        for host in w1, w2:
            host.fault("volume.delete", at=0, kind="fail")

        outcome = soon(processor.delete(vm().ref()))

        assert outcome.left == ("/fake/sliver-1.data (w1)", "/fake/sliver-1.data (w2)")

    @pytest.mark.parametrize("method", ["network.ports", "volume.volumes"])
    def test_that_cannot_see_what_there_is_on_one_says_so_and_clears_the_other(
        self,
        processor: HandlerProcessor,
        w1: Substrate,
        w2: Substrate,
        vm: MakeVm,
        method: str,
    ) -> None:
        done(soon(processor.create(vm(host="w1"))))
        leave_volume(w2, w1)
        w2.fault(method, at=0, kind="fail")

        outcome = soon(processor.delete(vm().ref()))

        assert outcome.status is Status.PARTIAL
        assert not w1.servers
        assert [left.startswith("unknown: ") for left in outcome.left] == [True]
        assert processor.unfinished()


def test_a_look_that_was_due_on_the_only_host_deletes_nothing_that_was_made_again(
    fake_site: Site, vm: MakeVm
) -> None:
    with HandlerProcessor(fake_site) as processor:
        there = substrate(fake_site, "localhost")
        done(soon(processor.create(vm())))
        there.fault("volume.delete", kind="fail")
        assert not soon(processor.delete(vm().ref())).ok
        done(soon(processor.create(vm())))

        assert processor.recover() == []
        assert there.servers
