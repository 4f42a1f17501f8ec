"""A sliver is made again what its stamp says, whatever others have changed; on fake drivers."""

from collections.abc import Callable

import pytest

from fabric_direct.drivers.fake import Substrate
from fabric_direct.drivers.fake.substrate import Fault
from fabric_direct.errors import Conflict
from fabric_direct.model import (
    NodeSliver,
    Operation,
    Outcome,
    SliverRef,
    State,
    Status,
)
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from fabric_direct.state.file_store import FileStore
from fabric_direct.state.journal import Journal
from tests.outcomes import done, made
from tests.unit.faults import at_each_call
from tests.unit.test_behind_our_back import (
    CHANGES,
    FOREIGN,
    REF,
    differences,
    fake_site,
    fakes,
    living,
    move,
    node,
    port,
    server,
    without_device,
    without_disk,
)

__all__ = ["fake_site", "fakes", "living", "node"]

MakeVm = Callable[..., NodeSliver]
WRITES = (
    *("compute.attach_port", "compute.detach_port", "compute.attach_volume"),
    *("compute.detach_volume", "compute.set_bandwidth", "compute.write_stamp", "compute.start"),
    *("network.create_port", "network.delete_port", "volume.create", "volume.delete"),
    *("device.attach", "device.detach", "device.clean", "device.write_record"),
)
BEYOND = {
    *("the domain was renamed", "it was paused", "it lost a core", "it lost memory"),
    *("a port is down", "a disk is another volume", "somebody passed a function through"),
    "the domain is gone",
}
"""What a repair names and leaves."""
STOPPED = "it was stopped"


def written(fakes: Substrate) -> list[str]:
    return sorted(call for call in WRITES if fakes.calls[call])


def begin(processor: HandlerProcessor, operation: Operation, sliver: NodeSliver) -> None:
    """Leave what a process leaves that was killed in an operation."""
    journal = Journal(FileStore(processor.site.state_dir))
    journal.begin(operation, sliver.model_dump(mode="json", exclude_none=True))


class TestASliverThatIsAsItsStampSays:
    def test_costs_no_change_and_no_entry_of_the_journal(
        self, processor: HandlerProcessor, fakes: Substrate, living: NodeSliver
    ) -> None:
        fakes.calls.clear()

        outcome = done(processor.reconcile(REF).result())

        assert written(fakes) == []
        assert (outcome.steps, outcome.data) == ((), {"repaired": []})
        assert not list((processor.site.state_dir / "journal").iterdir())

    def test_is_left_stopped_if_somebody_stopped_it(
        self, processor: HandlerProcessor, fakes: Substrate, living: NodeSliver
    ) -> None:
        server(state=State.STOPPED)(fakes)
        fakes.calls.clear()

        done(processor.reconcile(REF).result())

        assert written(fakes) == []
        assert fakes.servers["sliver-1"].state is State.STOPPED


class TestWhatOthersChanged:
    @pytest.mark.parametrize("what", sorted(CHANGES.keys() - BEYOND - {STOPPED}))
    def test_is_set_right(
        self, processor: HandlerProcessor, fakes: Substrate, living: NodeSliver, what: str
    ) -> None:
        change, sentence = CHANGES[what]
        change(fakes)

        outcome = done(processor.reconcile(REF).result())

        assert outcome.data == {"repaired": [sentence]}
        assert differences(processor) == ()
        assert fakes.servers["sliver-1"].stamp == living.stamp()

    @pytest.mark.parametrize("what", sorted(BEYOND))
    def test_beyond_repair_is_named_and_not_touched(
        self, processor: HandlerProcessor, fakes: Substrate, living: NodeSliver, what: str
    ) -> None:
        change, sentence = CHANGES[what]
        change(fakes)
        fakes.calls.clear()

        outcome = processor.reconcile(REF).result()

        assert (outcome.status, written(fakes)) == (Status.FAILED, [])
        assert outcome.error
        assert sentence in outcome.error.message
        assert differences(processor) == (sentence,)

    def test_is_set_right_beside_what_cannot_be(
        self, processor: HandlerProcessor, fakes: Substrate, living: NodeSliver
    ) -> None:
        without_device("gpu")(fakes)
        fakes.intruders["sliver-1"] = (FOREIGN,)

        outcome = processor.reconcile(REF).result()

        assert outcome.status is Status.PARTIAL
        assert outcome.data == {"repaired": ["GPU gpu is missing"]}
        assert outcome.left == ()
        assert differences(processor) == (CHANGES["somebody passed a function through"][1],)

    def test_of_a_stopped_server_is_put_into_its_definition_alone(
        self, processor: HandlerProcessor, fakes: Substrate, living: NodeSliver
    ) -> None:
        server(state=State.STOPPED)(fakes)
        without_device("vf")(fakes)

        done(processor.reconcile(REF).result())

        assert fakes.servers["sliver-1"].state is State.STOPPED
        assert {d.component for d in fakes.plugged["sliver-1"]} == {"vf", "gpu"}
        assert not fakes.calls["compute.start"]

    def test_has_its_settings_in_the_guest_again(
        self, processor: HandlerProcessor, fakes: Substrate, node: NodeSliver, vm: MakeVm
    ) -> None:
        (bdf,) = next(device.bdf for device in node.devices() if device.id == "vf")
        settings = {"mac": "52:54:00:00:00:77", "ipv4": "10.9.9.7/24", "auto_config": True}
        vf = {"type": "SharedNIC", "id": "vf", "bdf": [str(bdf)], "interface": settings}
        done(processor.create(vm(host="localhost", components=(vf,))).result())
        without_device("vf")(fakes)
        fakes.inside["sliver-1"].files.clear()

        outcome = done(processor.reconcile(REF).result())

        assert made(outcome) == {"device vf", "configure vf"}

    def test_twice_is_the_same_as_once(
        self, processor: HandlerProcessor, fakes: Substrate, living: NodeSliver
    ) -> None:
        without_device("gpu")(fakes)
        done(processor.reconcile(REF).result())
        fakes.calls.clear()

        done(processor.reconcile(REF).result())

        assert written(fakes) == []

    def test_leaves_no_entry_in_the_journal(
        self, processor: HandlerProcessor, fakes: Substrate, living: NodeSliver
    ) -> None:
        without_device("gpu")(fakes)

        assert made(done(processor.reconcile(REF).result())) == {"device gpu"}

        assert processor.unfinished() == ()


class TestData:
    """A repair removes no volume, makes none anew, and cleans no device."""

    def test_of_a_volume_that_is_gone_is_not_replaced_by_an_empty_one(
        self, processor: HandlerProcessor, fakes: Substrate, living: NodeSliver
    ) -> None:
        without_disk("data")(fakes)
        without_device("gpu")(fakes)
        del fakes.volumes["sliver-1", "data"]

        outcome = processor.reconcile(REF).result()

        assert outcome.status is Status.PARTIAL
        assert outcome.error
        assert "volume data is not there any more" in outcome.error.message
        assert ("sliver-1", "data") not in fakes.volumes
        assert {d.component for d in fakes.plugged["sliver-1"]} == {"vf", "gpu"}

    @pytest.mark.parametrize("method", ["volume.find", "volume.volumes"])
    @pytest.mark.parametrize("at", range(1, 8))
    def test_of_a_volume_that_one_answer_lacks_is_neither_given_up_nor_called_lost(
        self,
        processor: HandlerProcessor,
        fakes: Substrate,
        living: NodeSliver,
        method: str,
        at: int,
    ) -> None:
        without_disk("data")(fakes)
        fakes.calls.clear()
        fakes.faults.append(Fault(method, at, "incomplete"))

        outcome = processor.reconcile(REF).result()
        failed = not outcome.ok
        plugged = "data" in {disk.component for disk in fakes.servers["sliver-1"].volumes}
        fakes.faults.clear()

        assert failed != plugged, outcome.error
        assert outcome.status is not Status.PARTIAL
        done(processor.reconcile(REF).result())

    def test_on_what_the_stamp_does_not_name_stays(
        self, processor: HandlerProcessor, fakes: Substrate, living: NodeSliver
    ) -> None:
        fewer = tuple(c for c in living.components if c.id not in {"data", "gpu"})
        stamp = living.model_copy(update={"components": fewer}).stamp()
        server(stamp=stamp)(fakes)
        fakes.calls.clear()

        outcome = processor.reconcile(REF).result()

        assert outcome.error
        assert "volume data is there and not wanted" in outcome.error.message
        assert "device gpu is there and not wanted" in outcome.error.message
        assert written(fakes) == []

    def test_a_nic_that_the_stamp_does_not_name_is_unplugged_and_its_port_released(
        self, processor: HandlerProcessor, fakes: Substrate, living: NodeSliver
    ) -> None:
        fewer = tuple(c for c in living.components if c.id != "nic1")
        server(stamp=living.model_copy(update={"components": fewer}).stamp())(fakes)

        done(processor.reconcile(REF).result())

        assert (fakes.servers["sliver-1"].ports, fakes.ports) == ((), {})


class TestADevice:
    def test_that_another_sliver_has_meanwhile_stays_where_it_is(
        self, processor: HandlerProcessor, fakes: Substrate, living: NodeSliver
    ) -> None:
        gpu = next(d for d in fakes.plugged["sliver-1"] if d.component == "gpu")
        without_device("gpu")(fakes)
        fakes.own(gpu.host_address, "other/gpu")
        fakes.plugged["other"] = (gpu,)
        fakes.calls.clear()

        outcome = processor.reconcile(REF).result()

        assert outcome.status is Status.FAILED
        assert outcome.error
        assert f"GPU gpu cannot be put back: {gpu.host_address}" in outcome.error.message
        assert written(fakes) == []

    def test_of_a_server_that_moved_is_not_looked_for_on_its_new_host(
        self,
        processor: HandlerProcessor,
        fakes: Substrate,
        fake_site: Site,
        living: NodeSliver,
    ) -> None:
        other = move(fakes, fake_site)
        other.existing |= fakes.existing

        outcome = processor.reconcile(REF).result()

        assert outcome.status is not Status.DONE
        assert outcome.error
        assert "it is on host other, not on localhost" in outcome.error.message
        assert not other.plugged.get("sliver-1")
        assert not other.records


class TestARepairThatFails:
    @at_each_call({"device.attach": (1, 2), "compute.attach_port": (1,)})
    @pytest.mark.parametrize("kind", ["fail", "lie", "after"])
    def test_is_finished_by_the_next(
        self,
        processor: HandlerProcessor,
        fakes: Substrate,
        living: NodeSliver,
        method: str,
        at: int,
        kind: str,
    ) -> None:
        for component in ("vf", "gpu"):
            without_device(component)(fakes)
        server(ports=())(fakes)
        fakes.fault(method, at=at, kind=kind)  # type: ignore[arg-type]

        assert processor.reconcile(REF).result().status is not Status.DONE
        fakes.mend()

        done(processor.reconcile(REF).result())
        assert differences(processor) == ()
        assert processor.unfinished() == ()

    def test_takes_back_what_it_made_and_nothing_of_what_was_there(
        self, processor: HandlerProcessor, fakes: Substrate, living: NodeSliver
    ) -> None:
        without_device("gpu")(fakes)
        server(ports=())(fakes)
        fakes.fault("compute.attach_port", at=0, kind="fail")

        outcome = processor.reconcile(REF).result()

        assert outcome.status is Status.FAILED
        assert {d.component for d in fakes.plugged["sliver-1"]} == {"vf"}
        assert not fakes.calls["device.clean"]

    def test_of_a_sliver_that_is_not_there_says_so(self, processor: HandlerProcessor) -> None:
        outcome = processor.reconcile(SliverRef(id="nobody")).result()

        assert outcome.error
        assert outcome.error.kind == "NotFound"


class TestAnUnfinishedOperation:
    def test_is_to_be_finished_first(
        self, processor: HandlerProcessor, fakes: Substrate, living: NodeSliver
    ) -> None:
        begin(processor, Operation.MODIFY, living)
        without_device("gpu")(fakes)
        fakes.calls.clear()

        outcome = processor.reconcile(REF).result()

        assert outcome.error
        assert outcome.error.kind == Conflict.__name__
        assert "fabric-direct recover" in outcome.error.message
        assert written(fakes) == []

    @pytest.mark.parametrize("undo", [True, False])
    def test_if_a_repair_is_finished_by_recover(
        self, processor: HandlerProcessor, fakes: Substrate, living: NodeSliver, undo: bool
    ) -> None:
        begin(processor, Operation.RECONCILE, living)
        without_device("gpu")(fakes)

        for future in processor.recover(undo=undo):
            done(future.result())

        assert differences(processor) == ()
        assert processor.unfinished() == ()


class TestAPlan:
    def plan(self, processor: HandlerProcessor) -> Outcome:
        return done(processor.plan(REF, Operation.RECONCILE).result())

    def test_of_what_nobody_touched_has_no_step(
        self, processor: HandlerProcessor, living: NodeSliver
    ) -> None:
        outcome = self.plan(processor)

        assert outcome.observed
        assert (outcome.steps, outcome.observed.differences) == ((), ())

    def test_shows_the_differences_and_what_would_be_done_and_changes_nothing(
        self, processor: HandlerProcessor, fakes: Substrate, living: NodeSliver
    ) -> None:
        without_device("gpu")(fakes)
        port(down=True)(fakes)
        fakes.calls.clear()

        outcome = self.plan(processor)

        findings = {s.step: s.finding.value for s in outcome.steps if s.finding}
        assert findings["device gpu"] == "will create"
        assert {f for step, f in findings.items() if step != "device gpu"} == {"already so"}
        assert outcome.data == {"beyond": ["the port of vNIC nic1 is down"]}
        assert written(fakes) == []


class TestTwoAtOnce:
    def test_of_which_one_waits_and_finds_nothing_to_do(
        self, processor: HandlerProcessor, fakes: Substrate, living: NodeSliver
    ) -> None:
        without_device("gpu")(fakes)

        one, other = processor.reconcile(REF), processor.reconcile(REF)

        assert [len(done(each.result()).steps) > 0 for each in (one, other)] == [True, False]
        assert fakes.calls["device.attach"] == 3
