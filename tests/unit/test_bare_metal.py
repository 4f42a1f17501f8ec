"""Bare-metal slivers on nodes in memory."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from pydantic import ValidationError

from fabric_direct.drivers.contract import NodeCondition
from fabric_direct.drivers.fake import Substrate
from fabric_direct.model import Operation, Outcome, SliverRef, State, Status, StepStatus
from fabric_direct.model.bare_metal import BareMetalSliver
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.outcomes import done, made
from tests.unit.faults import at_each_call

Make = Callable[..., BareMetalSliver]
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKXZk8H0Ah3gd9vMvb8p2jbGR0W0iRr0d4n0ZzV2LJmN someone"
MAC, OTHER = "52:54:00:00:00:01", "52:54:00:00:00:02"
REF = SliverRef(id="metal", type="BareMetal")
NODES = {
    "small": {"cores": 8, "ram": 32, "disk": 100, "macs": [MAC]},
    "big": {"cores": 64, "ram": 512, "disk": 4000, "resource_class": "large", "traits": ["HW_A"]},
}
IMAGES = {
    "debian-12": {"disk": "https://images.example.org/debian-12.raw", "checksum": "0" * 64},
    "probe": {"kernel": "http://192.0.2.1/kernel", "ramdisk": "http://192.0.2.1/initrd"},
}


@pytest.fixture
def site(fake_site: Site) -> Site:
    values = fake_site.model_dump() | {
        "drivers": {"BareMetal": "fake"},
        "images": {},
        "networks": {},
        "fake": {"nodes": NODES},
        "ironic": {"images": IMAGES},
    }
    return Site.model_validate(values)


@pytest.fixture
def metal() -> Make:
    def make(**values: Any) -> BareMetalSliver:
        usual = {"id": "metal", "name": "metal", "image": "debian-12", "ssh_keys": [KEY]}
        return BareMetalSliver.model_validate(usual | values)

    return make


def error_of(outcome: Outcome) -> tuple[Status, str, str]:
    error = outcome.error
    return outcome.status, error.kind if error else "", error.field if error else ""


def holders(fakes: Substrate) -> dict[str, str | None]:
    return {name: node.tenant for name, node in fakes.bare_metal.items()}


class TestCreate:
    def test_gives_the_smallest_node_that_fits_and_switches_it_on(
        self, processor: HandlerProcessor, fakes: Substrate, metal: Make
    ) -> None:
        outcome = done(processor.create(metal()).result())

        node = fakes.bare_metal["small"]
        assert (node.tenant, node.condition, node.power) == ("metal", NodeCondition.ACTIVE, "on")
        assert made(outcome) == {"node", "system"}
        assert outcome.observed
        assert (outcome.observed.host, outcome.observed.instance) == ("small", "fake-small")
        assert outcome.observed.state is State.RUNNING
        assert outcome.observed.guest
        assert (outcome.observed.guest.reachable, outcome.warnings) == (True, ())

    @pytest.mark.parametrize(
        "asked",
        [
            {"node": "big"},
            {"resource_class": "large"},
            {"traits": ["HW_A"]},
            {"capacities": {"ram": 33}},
            {"capacities": {"core": 9}},
            {"capacities": {"disk": 101}},
        ],
    )
    def test_gives_one_that_has_what_is_asked_for(
        self, processor: HandlerProcessor, fakes: Substrate, metal: Make, asked: dict[str, Any]
    ) -> None:
        done(processor.create(metal(**asked)).result())

        assert holders(fakes) == {"small": None, "big": "metal"}

    def test_again_changes_nothing(
        self, processor: HandlerProcessor, fakes: Substrate, metal: Make
    ) -> None:
        done(processor.create(metal()).result())

        outcome = done(processor.create(metal()).result())

        assert made(outcome) == {"system"}  # looked at again
        assert outcome.warnings == ()
        assert holders(fakes) == {"small": "metal", "big": None}

    def test_of_another_sliver_with_the_same_id_is_a_conflict(
        self, processor: HandlerProcessor, fakes: Substrate, metal: Make
    ) -> None:
        done(processor.create(metal()).result())

        outcome = processor.create(metal(image="probe")).result()

        assert error_of(outcome)[:2] == (Status.FAILED, "Conflict")
        assert outcome.error
        assert "image differs" in outcome.error.message

    @pytest.mark.parametrize(
        ("asked", "field", "why"),
        [
            ({"image": "absent"}, "image", "debian-12, probe"),
            ({"node": "absent"}, "node", "known: big, small"),
            ({"resource_class": "gold"}, "resource_class", "small has baremetal"),
            ({"traits": ["HW_B"]}, "traits", "big lacks HW_B"),
            ({"capacities": {"core": 65}}, "capacities", "big has too little core"),
            ({"node": "small", "traits": ["HW_A"]}, "traits", "small lacks HW_A"),
            ({"nics": [{"id": "n1", "mac": OTHER}]}, "nics", f"small has no {OTHER}"),
            ({"resource_class": "large", "capacities": {"core": 65}}, "capacities", "big has"),
        ],
    )
    def test_of_what_no_node_can_serve_is_refused_by_its_field(
        self,
        processor: HandlerProcessor,
        fakes: Substrate,
        metal: Make,
        asked: dict[str, Any],
        field: str,
        why: str,
    ) -> None:
        outcome = processor.create(metal(**asked)).result()

        assert error_of(outcome) == (Status.REFUSED, "InvalidSliver", field)
        assert outcome.error
        assert why in outcome.error.message
        assert holders(fakes) == {"small": None, "big": None}

    def test_without_a_free_node_says_who_has_them(
        self, processor: HandlerProcessor, fakes: Substrate, metal: Make
    ) -> None:
        for name in ("a", "b"):
            done(processor.create(metal(id=name)).result())

        outcome = processor.create(metal()).result()

        assert error_of(outcome)[:2] == (Status.FAILED, "NoHost")
        assert outcome.error
        assert "small is active by a; big is active by b" in outcome.error.message

    @pytest.mark.parametrize("condition", [c for c in NodeCondition if c.value != "free"])
    def test_takes_no_node_that_is_not_free(
        self, processor: HandlerProcessor, fakes: Substrate, metal: Make, condition: NodeCondition
    ) -> None:
        fakes.bare_metal["small"] = replace(fakes.bare_metal["small"], condition=condition)

        outcome = processor.create(metal(node="small")).result()

        assert error_of(outcome)[:2] == (Status.FAILED, "NoHost")
        assert holders(fakes) == {"small": None, "big": None}

    @at_each_call({"service.find": (1, 2, 3), "service.apply": (1,), "service.differences": (1, 2)})
    @pytest.mark.parametrize("kind", ["fail", "after", "lie"])
    def test_that_fails_leaves_nothing_and_none_lies(
        self,
        processor: HandlerProcessor,
        fakes: Substrate,
        metal: Make,
        method: str,
        at: int,
        kind: Any,
    ) -> None:
        fakes.fault(method, at=at, kind=kind)

        outcome = processor.create(metal()).result()

        if outcome.ok:
            assert holders(fakes) == {"small": "metal", "big": None}
        else:
            assert holders(fakes) == {"small": None, "big": None}
            assert outcome.left == ()

    def test_of_two_for_the_last_node_gives_it_to_one(
        self, processor: HandlerProcessor, fakes: Substrate, metal: Make
    ) -> None:
        futures = [processor.create(metal(id=name, node="big")) for name in ("a", "b")]

        outcomes = [future.result() for future in futures]

        assert sorted(outcome.ok for outcome in outcomes) == [False, True]
        winner = next(outcome.sliver.id for outcome in outcomes if outcome.ok)
        assert holders(fakes) == {"small": None, "big": winner}

    def test_never_takes_away_a_node_that_is_deployed_otherwise(
        self, processor: HandlerProcessor, fakes: Substrate, metal: Make
    ) -> None:
        done(processor.create(metal()).result())
        there = fakes.bare_metal
        there["small"] = replace(there["small"], condition=NodeCondition.FAILED, state="error")

        outcome = processor.create(metal(image="probe", rebuild=True)).result()

        assert error_of(outcome) == (Status.REFUSED, "InvalidSliver", "image")
        assert holders(fakes) == {"small": "metal", "big": None}

    def test_goes_on_with_a_node_that_is_not_deployed_yet(
        self, processor: HandlerProcessor, fakes: Substrate, metal: Make
    ) -> None:
        done(processor.create(metal()).result())
        there = fakes.bare_metal
        there["small"] = replace(there["small"], condition=NodeCondition.FAILED, state="error")

        done(processor.create(metal()).result())

        assert holders(fakes) == {"small": "metal", "big": None}
        assert there["small"].condition is NodeCondition.ACTIVE


class TestDelete:
    def test_gives_the_node_back_clean(
        self, processor: HandlerProcessor, fakes: Substrate, metal: Make
    ) -> None:
        done(processor.create(metal()).result())

        outcome = done(processor.delete(REF).result())

        node = fakes.bare_metal["small"]
        assert (node.condition, node.stamp, node.power) == (NodeCondition.FREE, None, "off")
        assert made(outcome) == {"remove node"}
        assert processor.probe(REF).result().observed.state is State.ABSENT  # type: ignore[union-attr]

    def test_by_its_id_alone_finds_it(
        self, processor: HandlerProcessor, fakes: Substrate, metal: Make
    ) -> None:
        done(processor.create(metal()).result())

        done(processor.delete(SliverRef(id="metal")).result())

        assert holders(fakes) == {"small": None, "big": None}

    def test_names_a_node_that_cannot_be_cleaned_and_nobody_gets_it(
        self, processor: HandlerProcessor, fakes: Substrate, metal: Make
    ) -> None:
        done(processor.create(metal(node="big")).result())
        fakes.dirty_nodes.add("big")

        outcome = processor.delete(REF).result()

        assert error_of(outcome)[1] == "DeviceUnclean"
        assert outcome.left == ("node big (quarantined)",)
        other = processor.create(metal(id="next", node="big")).result()
        assert error_of(other)[:2] == (Status.FAILED, "NoHost")

    def test_again_takes_it_away_once_it_can_be_cleaned(
        self, processor: HandlerProcessor, fakes: Substrate, metal: Make
    ) -> None:
        done(processor.create(metal()).result())
        fakes.dirty_nodes.add("small")
        assert not processor.delete(REF).result().ok
        fakes.dirty_nodes.clear()

        done(processor.delete(REF).result())

        assert holders(fakes) == {"small": None, "big": None}

    def test_of_what_is_not_there_is_done(self, processor: HandlerProcessor) -> None:
        done(processor.delete(REF).result())


class TestModify:
    def test_changes_the_name_in_place(
        self, processor: HandlerProcessor, fakes: Substrate, metal: Make
    ) -> None:
        done(processor.create(metal()).result())

        done(processor.modify(metal(name="other")).result())

        stamp = fakes.bare_metal["small"].stamp
        assert stamp
        assert stamp.sliver.name == "other"

    @pytest.mark.parametrize(("first", "then"), [(None, "small"), ("small", None)])
    def test_that_names_the_node_it_has_or_leaves_it_open_changes_nothing(
        self, processor: HandlerProcessor, metal: Make, first: str | None, then: str | None
    ) -> None:
        done(processor.create(metal(node=first)).result())

        modified = processor.modify(metal(node=then)).result()

        assert [step.status for step in modified.steps] == [StepStatus.ALREADY_SO] * 2
        assert processor.probe(metal(node=then)).result().ok

    @pytest.mark.parametrize(
        ("asked", "field"),
        [
            ({"image": "probe"}, "image"),
            ({"ssh_keys": []}, "ssh_keys"),
            ({"nics": [{"id": "nic1", "ipv4": "192.0.2.5/24"}]}, "nics"),
            ({"boot_script": "#!/bin/sh\n"}, "boot_script"),
        ],
    )
    def test_refuses_what_needs_another_deployment(
        self,
        processor: HandlerProcessor,
        fakes: Substrate,
        metal: Make,
        asked: dict[str, Any],
        field: str,
    ) -> None:
        done(processor.create(metal()).result())
        before = dict(fakes.bare_metal)

        outcome = processor.modify(metal(**asked)).result()

        assert error_of(outcome) == (Status.REFUSED, "InvalidSliver", field)
        assert outcome.error
        assert "set rebuild: true" in outcome.error.message
        assert fakes.bare_metal == before

    @pytest.mark.parametrize("rebuild", [False, True])
    @pytest.mark.parametrize(
        ("asked", "field"),
        [
            ({"node": "big"}, "node"),
            ({"resource_class": "large"}, "resource_class"),
            ({"traits": ["HW_A"]}, "traits"),
            ({"capacities": {"core": 1}}, "capacities"),
            ({"root_device": {"serial": "S1"}}, "root_device"),
        ],
    )
    def test_refuses_what_needs_another_node(
        self,
        processor: HandlerProcessor,
        fakes: Substrate,
        metal: Make,
        asked: dict[str, Any],
        field: str,
        rebuild: bool,
    ) -> None:
        done(processor.create(metal()).result())
        before = dict(fakes.bare_metal)

        outcome = processor.modify(metal(rebuild=rebuild, **asked)).result()

        assert error_of(outcome) == (Status.REFUSED, "InvalidSliver", field)
        assert outcome.error
        assert "delete the sliver and create it again" in outcome.error.message
        assert fakes.bare_metal == before

    def test_of_what_is_not_there_is_refused(
        self, processor: HandlerProcessor, metal: Make
    ) -> None:
        assert error_of(processor.modify(metal()).result())[1] == "NotFound"

    def test_that_fails_is_taken_back(
        self, processor: HandlerProcessor, fakes: Substrate, metal: Make
    ) -> None:
        done(processor.create(metal()).result())
        before = dict(fakes.bare_metal)
        fakes.fault("service.apply", kind="after")

        assert not processor.modify(metal(name="other")).result().ok

        assert fakes.bare_metal == before

    def test_a_plan_shows_the_name_and_no_boot_script(
        self, processor: HandlerProcessor, metal: Make
    ) -> None:
        script = "#!/bin/sh\necho secret\n"
        done(processor.create(metal(boot_script=script)).result())

        wanted = metal(name="other", boot_script=script)
        (step,) = done(processor.plan(wanted).result()).steps

        assert [str(change) for change in step.changes] == ["name metal → other"]


class TestRebuild:
    """By a modification: a sliver says so, or nothing is lost."""

    SCRIPT = "#!/bin/sh\necho secret\n"

    @pytest.fixture(autouse=True)
    def there(self, processor: HandlerProcessor, metal: Make) -> None:
        done(processor.create(metal()).result())

    @pytest.mark.parametrize(
        "asked",
        [
            {"image": "probe"},
            {"ssh_keys": []},
            {"nics": [{"id": "nic1", "ipv4": "192.0.2.5/24"}]},
            {"boot_script": SCRIPT},
            {"image": "probe", "name": "other"},
        ],
    )
    def test_deploys_the_same_node_anew(
        self, processor: HandlerProcessor, fakes: Substrate, metal: Make, asked: dict[str, Any]
    ) -> None:
        wanted = metal(rebuild=True, **asked)

        outcome = done(processor.modify(wanted).result())

        assert made(outcome) == {"rebuild node", "system"}
        assert fakes.bare_metal["small"].stamp == wanted.stamp()
        assert holders(fakes) == {"small": "metal", "big": None}
        assert fakes.calls["service.rebuild"] == 1
        assert done(processor.probe(metal(**asked)).result()).observed.differences == ()  # type: ignore[union-attr]

    @pytest.mark.parametrize("asked", [{}, {"name": "other"}, {"node": "small"}])
    def test_is_not_done_for_what_needs_none(
        self, processor: HandlerProcessor, fakes: Substrate, metal: Make, asked: dict[str, Any]
    ) -> None:
        done(processor.modify(metal(rebuild=True, **asked)).result())

        assert fakes.calls["service.rebuild"] == 0

    def test_is_of_the_request_and_no_difference(
        self, processor: HandlerProcessor, fakes: Substrate, metal: Make
    ) -> None:
        done(processor.create(metal(rebuild=True)).result())
        done(processor.modify(metal(image="probe", rebuild=True)).result())

        stamp = fakes.bare_metal["small"].stamp
        assert stamp
        assert stamp.sliver.rebuild is False
        observed = done(processor.probe(metal(image="probe")).result()).observed
        assert observed
        assert observed.differences == ()

    def test_ends_what_is_on_the_disk(
        self, processor: HandlerProcessor, fakes: Substrate, metal: Make
    ) -> None:
        done(processor.poa(REF, "addkey", {"keys": [{"key": KEY}]}).result())
        assert fakes.keys["metal"]

        done(processor.modify(metal(image="probe", rebuild=True)).result())

        assert "metal" not in fakes.keys

    def test_is_planned_by_its_fields_without_the_script(
        self, processor: HandlerProcessor, fakes: Substrate, metal: Make
    ) -> None:
        wanted = metal(image="probe", boot_script=self.SCRIPT, rebuild=True)

        (step,) = done(processor.plan(wanted).result()).steps

        assert step.step == "rebuild node"
        assert [str(change) for change in step.changes] == ["image debian-12 → probe"]
        assert fakes.calls["service.rebuild"] == 0

    def test_of_a_node_that_does_not_fit_is_refused_before_anything_is_lost(
        self, processor: HandlerProcessor, fakes: Substrate, metal: Make
    ) -> None:
        nics = [{"id": "nic1", "mac": OTHER}]

        outcome = processor.modify(metal(nics=nics, rebuild=True)).result()

        assert error_of(outcome) == (Status.REFUSED, "InvalidSliver", "nics")
        assert fakes.calls["service.rebuild"] == 0

    def test_without_the_boot_script_that_it_had_warns(
        self, processor: HandlerProcessor, fakes: Substrate, metal: Make
    ) -> None:
        with_script = metal(boot_script=self.SCRIPT, rebuild=True)
        assert done(processor.modify(with_script).result()).warnings == ()

        outcome = done(processor.modify(metal(image="probe", rebuild=True)).result())

        (warning,) = outcome.warnings
        assert "none is run" in warning
        stamp = fakes.bare_metal["small"].stamp
        assert stamp
        assert stamp.boot_script_sha256 is None

    @at_each_call(
        {
            "service.rebuild": (1,),
            "service.find": (1, 2, 3, 4),
            "service.differences": (1, 2),
            "guest.wait": (1,),
        }
    )
    @pytest.mark.parametrize("kind", ["fail", "after", "lie"])
    def test_that_fails_is_gone_on_with_and_never_takes_the_node_away(
        self,
        processor: HandlerProcessor,
        fakes: Substrate,
        metal: Make,
        method: str,
        at: int,
        kind: Any,
    ) -> None:
        fakes.fault(method, at=at, kind=kind)
        wanted = metal(image="probe", rebuild=True)

        outcome = processor.modify(wanted).result()
        fakes.mend()

        assert holders(fakes) == {"small": "metal", "big": None}
        stamp = fakes.bare_metal["small"].stamp
        if outcome.ok:
            assert stamp == wanted.stamp()
        elif outcome.left:
            (finished,) = (future.result() for future in processor.recover())
            assert finished.ok
            assert fakes.bare_metal["small"].stamp == wanted.stamp()
        else:
            assert stamp == metal().stamp()
            assert processor.unfinished() == ()

    def test_that_has_begun_is_not_undone(
        self, processor: HandlerProcessor, fakes: Substrate, metal: Make
    ) -> None:
        fakes.fault("service.rebuild", kind="after")
        assert not processor.modify(metal(image="probe", rebuild=True)).result().ok

        (outcome,) = (future.result() for future in processor.recover(undo=True))

        assert error_of(outcome)[1] == "Unsupported"
        assert outcome.error
        assert "ends what is on its disk" in outcome.error.message
        assert fakes.bare_metal["small"].stamp == metal(image="probe").stamp()

    def test_that_has_not_begun_is_undone(
        self, processor: HandlerProcessor, fakes: Substrate, metal: Make
    ) -> None:
        fakes.fault("service.rebuild", kind="fail")
        assert not processor.modify(metal(image="probe", rebuild=True)).result().ok

        (outcome,) = (future.result() for future in processor.recover(undo=True))

        assert (outcome.ok, outcome.warnings) == (True, ())
        assert fakes.bare_metal["small"].stamp == metal().stamp()
        assert processor.unfinished() == ()


class TestARebuildThatIsDue:
    """A node with the record that a rebuild was begun: who began it was killed."""

    @pytest.fixture(autouse=True)
    def due(self, processor: HandlerProcessor, fakes: Substrate, metal: Make) -> None:
        done(processor.create(metal()).result())
        stamp = metal().stamp().model_copy(update={"rebuild_due": True})
        fakes.bare_metal["small"] = replace(fakes.bare_metal["small"], stamp=stamp)

    def test_is_a_difference(self, processor: HandlerProcessor) -> None:
        observed = done(processor.probe(REF).result()).observed

        assert observed
        (difference,) = observed.differences
        assert "node small is to be rebuilt" in difference

    def test_is_not_repaired(self, processor: HandlerProcessor, fakes: Substrate) -> None:
        outcome = processor.reconcile(REF).result()

        assert outcome.error
        assert "the action rebuild" in outcome.error.message
        assert fakes.calls["service.rebuild"] == 0

    @pytest.mark.parametrize("asked", [{}, {"name": "other"}])
    def test_is_not_gone_on_with_unless_the_sliver_says_so(
        self, processor: HandlerProcessor, fakes: Substrate, metal: Make, asked: dict[str, Any]
    ) -> None:
        outcome = processor.modify(metal(**asked)).result()

        assert error_of(outcome) == (Status.REFUSED, "InvalidSliver", "rebuild")
        assert not processor.create(metal()).result().ok
        assert fakes.calls["service.rebuild"] == 0

    @pytest.mark.parametrize("condition", [NodeCondition.FAILED, NodeCondition.CHANGING])
    @pytest.mark.parametrize("asked", [{}, {"image": "probe"}])
    def test_is_not_gone_on_with_by_a_creation_which_would_take_the_node_away_if_it_fails(
        self,
        processor: HandlerProcessor,
        fakes: Substrate,
        metal: Make,
        condition: NodeCondition,
        asked: dict[str, Any],
    ) -> None:
        node = replace(fakes.bare_metal["small"], condition=condition, state="deploying")
        fakes.bare_metal["small"] = node

        outcome = processor.create(metal(rebuild=True, **asked)).result()

        assert error_of(outcome)[1] == "Conflict"
        assert outcome.error
        assert "modify it with rebuild: true" in outcome.error.message
        assert fakes.bare_metal["small"] == node

    def test_is_gone_on_with_by_the_same_modification(
        self, processor: HandlerProcessor, fakes: Substrate, metal: Make
    ) -> None:
        done(processor.modify(metal(rebuild=True)).result())

        assert fakes.calls["service.rebuild"] == 1
        assert fakes.bare_metal["small"].stamp == metal().stamp()

    def test_is_gone_on_with_by_the_action(
        self, processor: HandlerProcessor, fakes: Substrate, metal: Make
    ) -> None:
        done(processor.poa(REF, "rebuild").result())

        assert fakes.bare_metal["small"].stamp == metal().stamp()

    def test_is_deleted(self, processor: HandlerProcessor, fakes: Substrate) -> None:
        done(processor.delete(REF).result())

        assert holders(fakes) == {"small": None, "big": None}


class TestTheBootScript:
    SCRIPT = "#!/bin/sh\necho secret\n"

    def test_is_in_no_stamp(
        self, processor: HandlerProcessor, fakes: Substrate, metal: Make
    ) -> None:
        done(processor.create(metal(boot_script=self.SCRIPT)).result())

        stamp = fakes.bare_metal["small"].stamp
        assert stamp
        assert "secret" not in stamp.model_dump_json()
        assert stamp.boot_script_sha256

    def test_is_compared_by_its_digest(self, processor: HandlerProcessor, metal: Make) -> None:
        done(processor.create(metal(boot_script=self.SCRIPT)).result())

        same = processor.probe(metal(boot_script=self.SCRIPT)).result().observed
        other = processor.probe(metal(boot_script="#!/bin/sh\n")).result().observed

        assert same
        assert other
        assert (same.differences, other.differences) == ((), ("boot_script differs",))

    def test_stays_known_when_the_name_changes(
        self, processor: HandlerProcessor, fakes: Substrate, metal: Make
    ) -> None:
        done(processor.create(metal(boot_script=self.SCRIPT)).result())
        before = fakes.bare_metal["small"].stamp

        done(processor.modify(metal(name="other")).result())

        after = fakes.bare_metal["small"].stamp
        assert before
        assert after
        assert after.boot_script_sha256 == before.boot_script_sha256


class TestWhatOthersDo:
    def test_a_node_that_is_off_is_stopped_and_does_not_differ(
        self, processor: HandlerProcessor, fakes: Substrate, metal: Make
    ) -> None:
        done(processor.create(metal()).result())
        fakes.bare_metal["small"] = replace(fakes.bare_metal["small"], power="off")

        observed = done(processor.probe(metal()).result()).observed

        assert observed
        assert (observed.state, observed.differences) == (State.STOPPED, ())

    def test_a_node_that_failed_is_told_and_not_repaired(
        self, processor: HandlerProcessor, fakes: Substrate, metal: Make
    ) -> None:
        done(processor.create(metal()).result())
        there = fakes.bare_metal
        there["small"] = replace(there["small"], resource_class="other")
        wanted = metal(resource_class="baremetal")
        stamp = wanted.stamp()
        there["small"] = replace(there["small"], stamp=stamp)

        outcome = processor.reconcile(REF).result()

        assert outcome.status is Status.FAILED
        assert outcome.error
        assert "resource_class: small has other" in outcome.error.message
        assert "delete the sliver and create it again" in outcome.error.message
        assert holders(fakes) == {"small": "metal", "big": None}

    def test_nothing_differs_after_a_creation(
        self, processor: HandlerProcessor, metal: Make
    ) -> None:
        done(processor.create(metal()).result())

        done(processor.reconcile(REF).result())

        drift = processor.drift()
        assert (drift.services, drift.drifts) == ((REF,), ())

    def test_it_is_listed(self, processor: HandlerProcessor, metal: Make) -> None:
        done(processor.create(metal()).result())

        (found,) = processor.services().found

        assert found.ref == REF
        assert found.service
        assert (found.service.name, found.service.host) == ("metal", "small")


class TestActions:
    @pytest.mark.parametrize(
        ("action", "data", "state"),
        [
            ("stop", {}, "stopped"),
            ("stop", {"hard": True}, "stopped"),
            ("start", {}, "running"),
            ("reboot", {}, "running"),
            ("reboot", {"hard": True}, "running"),
        ],
    )
    def test_switch_the_node(
        self,
        processor: HandlerProcessor,
        fakes: Substrate,
        metal: Make,
        action: str,
        data: dict[str, Any],
        state: str,
    ) -> None:
        done(processor.create(metal()).result())

        outcome = done(processor.poa(REF, action, data).result())

        assert outcome.data == {"state": state}
        assert fakes.bare_metal["small"].power == ("off" if state == "stopped" else "on")

    def test_a_driver_that_lies_is_not_believed(
        self, processor: HandlerProcessor, fakes: Substrate, metal: Make
    ) -> None:
        done(processor.create(metal()).result())
        fakes.fault("service.set_power", kind="lie")

        assert error_of(processor.poa(REF, "stop").result())[1] == "NotVerified"

    @pytest.mark.parametrize(
        ("action", "data", "field"),
        [
            ("stopp", {}, "action"),
            ("stop", {"hard": "yes"}, "data.hard"),
            ("start", {"hard": True}, "data.hard"),
        ],
    )
    def test_what_is_wrong_is_refused(
        self,
        processor: HandlerProcessor,
        fakes: Substrate,
        metal: Make,
        action: str,
        data: dict[str, Any],
        field: str,
    ) -> None:
        done(processor.create(metal()).result())

        outcome = processor.poa(REF, action, data).result()

        assert error_of(outcome) == (Status.REFUSED, "InvalidSliver", field)
        assert fakes.calls["service.set_power"] == 0

    def test_of_what_is_not_there_fail(self, processor: HandlerProcessor) -> None:
        assert error_of(processor.poa(REF, "stop").result())[1] == "NotFound"


class TestTheActionRebuild:
    SCRIPT = "#!/bin/sh\necho secret\n"

    def test_deploys_the_node_anew_as_its_stamp_says(
        self, processor: HandlerProcessor, fakes: Substrate, metal: Make
    ) -> None:
        done(processor.create(metal(node="big")).result())
        done(processor.poa(REF, "addkey", {"keys": [{"key": KEY}]}).result())
        done(processor.poa(REF, "stop").result())

        outcome = done(processor.poa(REF, "rebuild").result())

        node = fakes.bare_metal["big"]
        assert outcome.data == {"state": "running"}
        assert (node.stamp, node.power, node.sliver) == (metal(node="big").stamp(), "on", "metal")
        assert fakes.calls["service.rebuild"] == 1
        assert "metal" not in fakes.keys

    def test_of_a_node_that_had_a_boot_script_needs_one_or_null(
        self, processor: HandlerProcessor, fakes: Substrate, metal: Make
    ) -> None:
        done(processor.create(metal(boot_script=self.SCRIPT)).result())

        refused = processor.poa(REF, "rebuild").result()

        assert error_of(refused) == (Status.REFUSED, "InvalidSliver", "data.boot_script")
        assert fakes.calls["service.rebuild"] == 0

    @pytest.mark.parametrize("script", [None, SCRIPT, "#!/bin/sh\necho other\n"])
    def test_runs_the_boot_script_that_it_is_given(
        self, processor: HandlerProcessor, fakes: Substrate, metal: Make, script: str | None
    ) -> None:
        done(processor.create(metal(boot_script=self.SCRIPT)).result())

        done(processor.poa(REF, "rebuild", {"boot_script": script}).result())

        assert fakes.bare_metal["small"].stamp == metal(boot_script=script).stamp()

    def test_deploys_a_node_whose_deployment_failed(
        self, processor: HandlerProcessor, fakes: Substrate, metal: Make
    ) -> None:
        done(processor.create(metal()).result())
        there = fakes.bare_metal
        failed = NodeCondition.FAILED
        there["small"] = replace(there["small"], condition=failed, state="deploy failed")

        done(processor.poa(REF, "rebuild").result())

        assert there["small"].condition is NodeCondition.ACTIVE

    @pytest.mark.parametrize("fault", ["service.rebuild", "guest.wait"])
    def test_that_fails_says_so_and_keeps_the_node(
        self, processor: HandlerProcessor, fakes: Substrate, metal: Make, fault: str
    ) -> None:
        done(processor.create(metal()).result())
        fakes.fault(fault, kind="fail")

        assert error_of(processor.poa(REF, "rebuild").result())[:2] == (
            Status.FAILED,
            "DriverError",
        )
        assert holders(fakes) == {"small": "metal", "big": None}

    def test_of_a_driver_that_lies_is_not_believed(
        self, processor: HandlerProcessor, fakes: Substrate, metal: Make
    ) -> None:
        done(processor.create(metal()).result())
        fakes.fault("service.rebuild", kind="lie")

        outcome = processor.poa(REF, "rebuild", {"boot_script": self.SCRIPT}).result()

        assert error_of(outcome)[1] == "NotVerified"

    @pytest.mark.parametrize("data", [{"image": "probe"}, {"boot_script": 1}])
    def test_of_anything_else_is_refused(
        self, processor: HandlerProcessor, fakes: Substrate, metal: Make, data: dict[str, Any]
    ) -> None:
        done(processor.create(metal()).result())

        outcome = processor.poa(REF, "rebuild", data).result()

        assert error_of(outcome)[:2] == (Status.REFUSED, "InvalidSliver")
        assert "#!" not in str(outcome.error)
        assert fakes.calls["service.rebuild"] == 0

    def test_of_what_is_not_there_fails(self, processor: HandlerProcessor) -> None:
        assert error_of(processor.poa(REF, "rebuild").result())[1] == "NotFound"


class TestTheSliver:
    @pytest.mark.parametrize(
        "values",
        [
            {"nics": [{"id": "a"}, {"id": "a"}]},
            {"nics": [{"id": "a", "mac": MAC}, {"id": "b", "mac": MAC}]},
            {"nics": [{"id": "a", "ipv4": "192.0.2.1"}]},
            {"ssh_keys": [KEY, KEY]},
            {"capacities": {"core": 0}},
            {"capacities": {"core": "8"}},
            {"traits": ["avx"]},
            {"root_device": {"size": 0}},
            {"root_device": {"colour": "red"}},
            {"host": "small"},
        ],
    )
    def test_that_cannot_be_is_refused(self, metal: Make, values: dict[str, Any]) -> None:
        with pytest.raises(ValidationError):
            metal(**values)

    def test_is_planned_as_it_is_made(self, processor: HandlerProcessor, metal: Make) -> None:
        outcome = done(processor.plan(metal(), Operation.CREATE).result())

        assert [step.step for step in outcome.steps] == ["node"]

    @pytest.mark.parametrize(
        "values",
        [
            {},
            {"disk": "https://images.example.org/a"},
            {"kernel": "http://192.0.2.1/k"},
            {**IMAGES["debian-12"], "kernel": "http://192.0.2.1/k"},
            {"disk": "/srv/a", "checksum": "0" * 64},
        ],
    )
    def test_an_image_that_is_none_is_refused(self, site: Site, values: dict[str, Any]) -> None:
        with pytest.raises(ValidationError):
            Site.model_validate(site.model_dump() | {"ironic": {"images": {"a": values}}})


class TestOnANetwork:
    NIC: ClassVar[dict[str, Any]] = {"id": "nic1", "network": "lan"}

    @pytest.fixture
    def site(self, site: Site) -> Site:
        networks = {"lan": {"strategy": "flat_dhcp", "subnet": "192.0.2.0/24"}}
        return Site.model_validate(site.model_dump(exclude_unset=True) | {"networks": networks})

    def test_a_nic_has_the_nodes_mac_and_an_address_of_the_network(
        self, processor: HandlerProcessor, fakes: Substrate, metal: Make
    ) -> None:
        outcome = done(processor.create(metal(nics=[self.NIC])).result())

        assert outcome.observed
        (nic,) = outcome.observed.interfaces
        port = fakes.ports["metal", "nic1"]
        assert (nic.mac, nic.network, nic.addresses) == (MAC, "lan", (str(port.ipv4),))
        assert outcome.warnings == ()  # it was logged in to

    def test_its_port_is_not_listed_as_that_of_a_sliver_of_its_own_and_goes_with_it(
        self, processor: HandlerProcessor, fakes: Substrate, metal: Make
    ) -> None:
        done(processor.create(metal(nics=[self.NIC])).result())

        assert [each.ref for each in processor.services().found] == [REF]
        assert processor.port_slivers() == ()
        done(processor.delete(REF).result())
        assert fakes.ports == {}

    def test_a_rebuild_keeps_its_port_and_moves_it_to_no_other_network(
        self, processor: HandlerProcessor, fakes: Substrate, metal: Make
    ) -> None:
        done(processor.create(metal(nics=[self.NIC])).result())
        port = fakes.ports["metal", "nic1"]

        done(processor.modify(metal(nics=[self.NIC], image="probe", rebuild=True)).result())
        assert fakes.ports == {("metal", "nic1"): port}

        for nics in ([], [{"id": "nic1"}], [self.NIC | {"ipv4": "192.0.2.99/24"}]):
            refused = processor.modify(metal(nics=nics, image="probe", rebuild=True)).result()
            assert error_of(refused) == (Status.REFUSED, "InvalidSliver", "nics.network")
        assert fakes.ports == {("metal", "nic1"): port}

    def test_one_that_the_site_has_not_is_refused_by_its_field(
        self, processor: HandlerProcessor, fakes: Substrate, metal: Make
    ) -> None:
        outcome = processor.create(metal(nics=[self.NIC | {"network": "absent"}])).result()

        assert error_of(outcome) == (Status.REFUSED, "InvalidSliver", "nics[0].network")
        assert holders(fakes) == {"small": None, "big": None}
