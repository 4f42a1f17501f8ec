"""The life of a network that is a sliver of its own, on the fake drivers, and what fails in it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from fabric_direct.cli import main
from fabric_direct.drivers.fake import Substrate
from fabric_direct.model import (
    Finding,
    NodeSliver,
    Operation,
    Outcome,
    SliverRef,
    State,
    Status,
    StepStatus,
)
from fabric_direct.model.networks import NetworkSliver
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import OpenStackSettings, Site
from tests.unit.faults import at_each_call

MakeVm = Callable[..., NodeSliver]
REF = SliverRef(id="net-1", type="L2Bridge")


def lab(name: str = "lab", **network: Any) -> NetworkSliver:
    settings = {
        "strategy": "vlan",
        "vlan": 101,
        "physical_network": "physnet1",
        "subnet": "10.30.0.0/24",
    }
    return NetworkSliver.model_validate(
        {"id": "net-1", "name": name, "network": settings | network}
    )


@pytest.fixture
def site(fake_site: Site) -> Site:
    drivers = {**fake_site.drivers, "L2Bridge": "fake"}
    cloud = OpenStackSettings(cloud="lab", external_network="public")
    return fake_site.model_copy(update={"drivers": drivers, "openstack": cloud})


def created(processor: HandlerProcessor, sliver: NodeSliver | NetworkSliver) -> Outcome:
    outcome = processor.create(sliver).result()
    assert outcome.status is Status.DONE, outcome.error
    return outcome


def error_of(outcome: Outcome) -> tuple[Status, str, str]:
    assert outcome.error
    return outcome.status, outcome.error.kind, outcome.error.field


@pytest.fixture
def on_lab(vm: MakeVm) -> NodeSliver:
    """A server with a NIC on the network."""
    return vm(components=[{"type": "vNIC", "id": "nic1", "network": "lab"}])


class TestCreate:
    def test_makes_the_network(self, processor: HandlerProcessor, fakes: Substrate) -> None:
        outcome = created(processor, lab())

        assert fakes.networks == {"net-1": lab()}
        assert outcome.observed
        assert outcome.observed.state is State.RUNNING
        assert outcome.observed.instance == "fake-lab"

    def test_twice_is_the_same_as_once(self, processor: HandlerProcessor, fakes: Substrate) -> None:
        created(processor, lab())

        second = created(processor, lab())

        assert [step.status for step in second.steps] == [StepStatus.ALREADY_SO] * 2
        assert fakes.calls["service.apply"] == 1

    def test_of_another_network_with_the_same_id_is_a_conflict_and_touches_nothing(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        created(processor, lab())

        outcome = processor.create(lab(vlan=102)).result()

        assert error_of(outcome) == (Status.FAILED, "Conflict", "")
        assert "use modify" in str(outcome.error)
        assert fakes.networks == {"net-1": lab()}

    @at_each_call({"service.find": (1, 2, 3), "service.apply": (1,), "service.differences": (1, 2)})
    def test_leaves_nothing_when_a_call_fails(
        self, processor: HandlerProcessor, fakes: Substrate, method: str, at: int
    ) -> None:
        fakes.fault(method, at=at, kind="fail")

        outcome = processor.create(lab()).result()

        assert outcome.status is Status.FAILED
        assert fakes.networks == {}
        assert outcome.left == ()

    def test_with_a_driver_that_lies_is_not_called_done(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        fakes.fault("service.apply", kind="lie")

        assert error_of(processor.create(lab()).result())[:2] == (Status.FAILED, "NotVerified")

    def test_names_what_is_left_when_undoing_fails_too(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        fakes.fault("service.differences", at=2, kind="fail")
        fakes.fault("service.remove", at=0, kind="fail")

        outcome = processor.create(lab()).result()

        assert outcome.status is Status.PARTIAL
        assert outcome.left == ("lab",)

    def test_of_a_name_that_the_site_has_is_refused(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        outcome = processor.create(lab("red")).result()

        assert error_of(outcome) == (Status.REFUSED, "InvalidSliver", "name")
        assert fakes.calls["service.apply"] == 0

    def test_is_refused_where_the_site_serves_no_networks(self, fake_site: Site) -> None:
        with HandlerProcessor(fake_site) as processor:
            for operation in (processor.create, processor.delete, processor.probe):
                outcome = operation(lab()).result()

                assert error_of(outcome) == (Status.REFUSED, "InvalidSite", "drivers")
                assert "L2Bridge: openstack" in str(outcome.error)


class TestModify:
    def test_changes_what_can_be_changed(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        created(processor, lab())
        wanted = lab(dns=["9.9.9.9"], router=True)

        outcome = processor.modify(wanted).result()

        assert outcome.ok
        assert fakes.networks == {"net-1": wanted}

    @pytest.mark.parametrize(
        ("wanted", "field"),
        [
            (lab(vlan=102), "network.vlan"),
            (lab(subnet="10.31.0.0/24"), "network.subnet"),
            (lab("other"), "name"),
        ],
    )
    def test_of_what_is_fixed_is_refused_and_touches_nothing(
        self, processor: HandlerProcessor, fakes: Substrate, wanted: NetworkSliver, field: str
    ) -> None:
        created(processor, lab())

        outcome = processor.modify(wanted).result()

        assert error_of(outcome) == (Status.REFUSED, "InvalidSliver", field)
        assert fakes.networks == {"net-1": lab()}

    def test_of_what_is_not_there_fails(self, processor: HandlerProcessor) -> None:
        assert error_of(processor.modify(lab()).result())[1] == "NotFound"

    def test_that_fails_removes_nothing_and_says_what_is_not_done(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        created(processor, lab())
        fakes.fault("service.apply", kind="fail")

        outcome = processor.modify(lab(dns=["9.9.9.9"])).result()

        assert not outcome.ok
        assert outcome.left[0].startswith("service: ")
        assert fakes.networks == {"net-1": lab()}

    def test_that_lies_is_not_called_done(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        created(processor, lab())
        fakes.fault("service.apply", kind="lie")

        assert not processor.modify(lab(dns=["9.9.9.9"])).result().ok


class TestDelete:
    def test_removes_the_network_and_succeeds_again(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        created(processor, lab())

        assert processor.delete(REF).result().ok
        assert processor.delete(REF).result().ok

        assert fakes.networks == {}

    def test_while_a_server_is_on_it_is_a_conflict_that_names_it(
        self, processor: HandlerProcessor, fakes: Substrate, on_lab: NodeSliver
    ) -> None:
        created(processor, lab())
        created(processor, on_lab)

        outcome = processor.delete(REF).result()

        assert error_of(outcome)[:2] == (Status.FAILED, "Conflict")
        assert "sliver-1/nic1" in str(outcome.error)
        assert outcome.left == ("lab",)
        assert processor.delete(on_lab).result().ok
        assert processor.delete(REF).result().ok

    def test_that_leaves_something_is_not_called_done(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        created(processor, lab())
        fakes.fault("service.remove", kind="lie")

        outcome = processor.delete(REF).result()

        assert outcome.status is not Status.DONE
        assert outcome.left == ("lab",)


class TestLooking:
    def test_a_plan_says_what_would_be_done_and_does_nothing(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        def plan(sliver: SliverRef, operation: Operation | None = None) -> list[Any]:
            steps = processor.plan(sliver, operation).result().steps
            return [(step.step, step.finding) for step in steps]

        assert plan(lab()) == [("service", Finding.WILL_CREATE)]
        created(processor, lab())
        assert plan(lab()) == [("service", Finding.ALREADY_SO)]
        assert plan(lab(dns=["9.9.9.9"])) == [("service", Finding.WILL_CHANGE)]
        assert plan(REF, Operation.DELETE) == [("remove service", Finding.WILL_DELETE)]
        assert fakes.calls["service.apply"] == 1

    def test_a_probe_compares_a_whole_sliver(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        def probe(sliver: SliverRef) -> Any:
            observed = processor.probe(sliver).result().observed
            return observed and (observed.state, observed.differences)

        assert probe(REF) == (State.ABSENT, ("there is no such service",))
        created(processor, lab())
        assert probe(REF) == (State.RUNNING, ())
        assert probe(lab(router=True)) == (State.RUNNING, ("network.router differs",))

    def test_a_network_that_is_not_whole_is_an_error(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        created(processor, lab())
        fakes.fault("service.find", kind="lie")

        observed = processor.probe(REF).result().observed

        assert observed
        assert observed.state is State.ERROR
        assert observed.differences == ("not all of it is there, only lab",)

    def test_it_has_no_actions(self, processor: HandlerProcessor) -> None:
        created(processor, lab())

        assert processor.actions("L2Bridge") == ()
        assert error_of(processor.poa(REF, "reboot").result()) == (
            Status.REFUSED,
            "InvalidSliver",
            "action",
        )


class TestRecovery:
    @pytest.mark.parametrize("undo", [False, True])
    def test_what_was_interrupted_is_finished_or_taken_back(
        self, site: Site, processor: HandlerProcessor, fakes: Substrate, undo: bool
    ) -> None:
        fakes.fault("service.remove", at=0, kind="fail")
        fakes.fault("service.differences", at=2, kind="fail")
        processor.create(lab()).result()
        fakes.mend()

        (outcome,) = (future.result() for future in processor.recover(undo=undo))

        assert outcome.ok
        assert fakes.networks == ({} if undo else {"net-1": lab()})
        assert processor.unfinished() == ()

    def test_a_modification_is_finished_in_place_of_undone_and_said_to_be(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        """Nothing says what the network was."""
        created(processor, lab())
        fakes.fault("service.apply", kind="fail")
        wanted = lab(dns=["9.9.9.9"])
        assert not processor.modify(wanted).result().ok

        (outcome,) = (future.result() for future in processor.recover(undo=True))

        assert outcome.ok
        assert "finished, not undone" in str(outcome.warnings)
        assert fakes.networks == {"net-1": wanted}


class TestAVmOnIt:
    def test_has_its_nic_there(
        self, processor: HandlerProcessor, fakes: Substrate, on_lab: NodeSliver
    ) -> None:
        assert error_of(processor.create(on_lab).result())[2] == "components[0].network"

        created(processor, lab())
        outcome = created(processor, on_lab)

        assert outcome.observed
        assert outcome.observed.interfaces[0].addresses == ("10.30.0.2/24",)

    def test_is_deleted_with_networks_that_nobody_uses(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        created(processor, vm())
        fakes.unused.add("network red")

        outcome = processor.delete(vm()).result()

        assert outcome.ok
        assert outcome.steps[-1].step == "remove unused networks"
        assert fakes.unused == set()


class TestOnTheCommandLine:
    @pytest.fixture
    def run(self, tmp_path: Path, fakes: Substrate, site: Site) -> Callable[..., Any]:
        path = tmp_path / "site.yaml"
        path.write_text(yaml.safe_dump(json.loads(site.model_dump_json(exclude_none=True))))

        def run(*words: str) -> Any:
            return CliRunner().invoke(main, ["--site", str(path), *words])

        return run

    @pytest.fixture
    def file(self, tmp_path: Path) -> str:
        path = tmp_path / "net.yaml"
        path.write_text(lab().model_dump_json(exclude_none=True))
        return str(path)

    def test_it_lives_and_dies_like_a_server(self, run: Callable[..., Any], file: str) -> None:
        assert "will create   service" in run("plan", file).output
        assert "net-1: created in" in run("create", file).output
        probed = run("probe", file)
        assert probed.exit_code == 0
        assert "net-1: running, fake-lab\n" in probed.output
        assert run("probe", "net-1", "--type", "L2Bridge").exit_code == 0
        assert run("delete", "net-1", "--type", "L2Bridge").exit_code == 0
        assert run("probe", file).exit_code == 1

    def test_a_wrong_field_is_refused_with_its_line(
        self, run: Callable[..., Any], tmp_path: Path
    ) -> None:
        path = tmp_path / "net.yaml"
        path.write_text("id: n\ntype: L2Bridge\nname: lab\nnetwork: {strategy: vlan}\n")

        result = run("create", str(path))

        assert result.exit_code == 2
        assert "net.yaml:4: network" in result.output
