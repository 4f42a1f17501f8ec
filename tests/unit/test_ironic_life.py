"""Bare-metal slivers by Ironic: reserved, deployed, taken away, and what goes wrong meanwhile."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest
import requests

from fabric_direct.drivers.ironic.driver import IronicBareMetal
from fabric_direct.model import Outcome, SliverRef, State, Status
from fabric_direct.model.bare_metal import BareMetalSliver
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import NodeImage, Site
from tests.outcomes import done
from tests.trust.clock import skipping_pauses
from tests.unit.ironic import CHANGING, LOCKED, Ironic, node, refusal
from tests.unit.openstack_api import OpenStackApi

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKXZk8H0Ah3gd9vMvb8p2jbGR0W0iRr0d4n0ZzV2LJmN someone"
OTHER_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBtnZNdSU5PrnpaVI6AkLxqwFQqVvGFfI4mnLLq/AbCd you"
REF = SliverRef(id="metal", type="BareMetal")
DIGEST = "1" * 64
IMAGES = {
    "debian-12": {"disk": "https://images.example.org/debian-12.raw", "checksum": DIGEST},
    "probe": {
        "kernel": "http://192.0.2.1/kernel",
        "ramdisk": "http://192.0.2.1/initrd",
        "kernel_arguments": "console=ttyS0",
    },
}
PROVISION = ("PUT", "provision")
Make = Callable[..., BareMetalSliver]


@pytest.fixture(autouse=True)
def pauses() -> Iterator[None]:
    with skipping_pauses():
        yield


@pytest.fixture
def ironic(api: OpenStackApi) -> Ironic:
    made = Ironic(api, node("n1"), node("n2"), slivers=("metal", "other"))
    made.ports = [
        {"uuid": f"p-{name}", "address": f"52:54:00:00:00:0{name[1]}", "node_uuid": f"id-{name}"}
        for name in ("n1", "n2")
    ]
    return made


@pytest.fixture
def site(api: OpenStackApi, ironic: Ironic) -> Site:
    limits = {"unanswered": 0.0}
    return api.site(drivers={"BareMetal": "ironic"}, ironic={"images": IMAGES}, limits=limits)


@pytest.fixture
def processor(site: Site) -> Iterator[HandlerProcessor]:
    with HandlerProcessor(site) as processor:
        yield processor


@pytest.fixture
def metal() -> Make:
    def make(**values: Any) -> BareMetalSliver:
        usual = {"id": "metal", "name": "box", "image": "debian-12", "ssh_keys": [KEY]}
        return BareMetalSliver.model_validate(usual | values)

    return make


def kind(outcome: Outcome) -> tuple[Status, str]:
    return outcome.status, outcome.error.kind if outcome.error else ""


def is_untouched(ironic: Ironic) -> bool:
    free = all(
        (each["provision_state"], each["instance_uuid"], each["extra"]) == ("available", None, {})
        for each in ironic.nodes.values()
    )
    return free and not ironic.allocations


class Lost(requests.exceptions.ReadTimeout):
    """An answer that is lost after the request took effect."""

    takes_effect = True


class TestWhatIronicIsAsked:
    def test_is_of_all_nodes_only_to_choose_one_and_of_an_allocation_once_until_it_is_made(
        self, processor: HandlerProcessor, ironic: Ironic, metal: Make
    ) -> None:
        done(processor.create(metal()).result())
        asked = [(method, path) for method, _, path, _ in ironic.api.calls]
        before = asked[: asked.index(("POST", "/allocations"))]
        assert before.count(("GET", "/allocations/TEST.metal")) == 1
        assert asked.count(("GET", "/nodes/detail")) == 1

        ironic.api.calls.clear()
        done(processor.delete(REF).result())
        assert ("GET", "/nodes/detail") not in [(m, path) for m, _, path, _ in ironic.api.calls]


class TestCreate:
    def test_allocates_stamps_validates_and_deploys(
        self, processor: HandlerProcessor, ironic: Ironic, metal: Make
    ) -> None:
        outcome = done(processor.create(metal()).result())

        there = ironic.nodes["id-n1"]
        assert ironic.changes() == [("POST", "allocations"), ("PATCH", "id-n1"), PROVISION]
        assert there["extra"]["fabric-direct"]["sliver"] == "metal"
        assert there["instance_info"] == {
            "display_name": "box",
            "image_source": "https://images.example.org/debian-12.raw",
            "image_os_hash_algo": "sha256",
            "image_os_hash_value": DIGEST,
        }
        assert outcome.observed
        assert (outcome.observed.host, outcome.observed.state) == ("n1", State.RUNNING)
        (allocation,) = ironic.allocations.values()
        assert allocation["extra"]["fabric-direct"]["sliver"] == "metal"

    def test_gives_the_system_its_name_keys_script_and_addresses(
        self, processor: HandlerProcessor, ironic: Ironic, metal: Make
    ) -> None:
        nics = [{"id": "nic1", "ipv4": "192.0.2.5/24", "ipv6": "2001:db8::5/64"}]

        done(processor.create(metal(nics=nics, boot_script="#!/bin/sh\n")).result())

        (drive,) = ironic.drives
        assert drive["meta_data"]["hostname"] == "box"
        assert drive["meta_data"]["public_keys"] == {"key0": KEY}
        assert "x-shellscript" in drive["user_data"]
        assert drive["network_data"]["links"] == [
            {"id": "nic1", "type": "phy", "ethernet_mac_address": "52:54:00:00:00:01"}
        ]
        assert [
            (each["type"], each["ip_address"], each["netmask"])
            for each in drive["network_data"]["networks"]
        ] == [
            ("ipv4", "192.0.2.5", "255.255.255.0"),
            ("ipv6", "2001:db8::5", "ffff:ffff:ffff:ffff::"),
        ]

    def test_has_a_raw_image_written_as_it_comes(
        self, site: Site, ironic: Ironic, metal: Make
    ) -> None:
        raw = NodeImage.model_validate(IMAGES["debian-12"] | {"format": "raw"})
        settings = site.ironic.model_copy(update={"images": {"debian-12": raw}})

        with HandlerProcessor(site.model_copy(update={"ironic": settings})) as processor:
            done(processor.create(metal()).result())

        assert ironic.nodes["id-n1"]["instance_info"]["image_disk_format"] == "raw"

    def test_boots_a_kernel_and_a_ramdisk(
        self, processor: HandlerProcessor, ironic: Ironic, metal: Make
    ) -> None:
        done(processor.create(metal(image="probe")).result())

        assert ironic.nodes["id-n1"]["instance_info"] == {
            "display_name": "box",
            "kernel": "http://192.0.2.1/kernel",
            "ramdisk": "http://192.0.2.1/initrd",
            "ramdisk_kernel_arguments": "console=ttyS0",
        }

    def test_again_asks_for_nothing(
        self, processor: HandlerProcessor, ironic: Ironic, metal: Make
    ) -> None:
        done(processor.create(metal()).result())
        before = len(ironic.changes())

        done(processor.create(metal()).result())

        assert len(ironic.changes()) == before

    @pytest.mark.parametrize(
        ("where", "words", "times"),
        [
            (("PATCH", "id-n1"), LOCKED, 3),
            (PROVISION, LOCKED, 3),
            (("PATCH", "id-n1"), CHANGING, 1),
        ],
    )
    def test_waits_while_the_node_is_locked(
        self,
        processor: HandlerProcessor,
        ironic: Ironic,
        metal: Make,
        where: tuple[str, str],
        words: str,
        times: int,
    ) -> None:
        ironic.faults[where] = [(409, refusal(words))] * times

        done(processor.create(metal()).result())

        assert ironic.changes().count(where) == times + 1

    def test_does_not_repeat_another_conflict(
        self, processor: HandlerProcessor, ironic: Ironic, metal: Make
    ) -> None:
        ironic.faults["PATCH", "id-n1"] = [(409, refusal("Node n1 is associated."))]

        outcome = processor.create(metal()).result()

        assert kind(outcome) == (Status.FAILED, "Conflict")
        assert is_untouched(ironic)

    def test_of_a_node_that_is_not_valid_fails_and_gives_it_up(
        self, processor: HandlerProcessor, ironic: Ironic, metal: Make
    ) -> None:
        ironic.unfit = {"deploy": "no deploy_kernel", "console": "none"}

        outcome = processor.create(metal()).result()

        assert kind(outcome) == (Status.FAILED, "DriverError")
        assert outcome.error
        assert "deploy: no deploy_kernel" in outcome.error.message
        assert ironic.drives == []
        assert ironic.nodes["id-n1"]["instance_info"] == {}  # else the next one may get its disk
        assert is_untouched(ironic)

    def test_whose_deployment_fails_says_why_and_takes_it_away(
        self, processor: HandlerProcessor, ironic: Ironic, metal: Make
    ) -> None:
        ironic.ends["active"] = "deploy failed"
        ironic.nodes["id-n1"]["last_error"] = "no route to image"

        outcome = processor.create(metal()).result()

        assert kind(outcome) == (Status.FAILED, "DriverError")
        assert outcome.error
        assert "no route to image" in outcome.error.message
        assert is_untouched(ironic)

    def test_whose_node_somebody_took_first_gets_no_host(
        self, processor: HandlerProcessor, ironic: Ironic, metal: Make
    ) -> None:
        ironic.taken = True

        outcome = processor.create(metal()).result()

        assert kind(outcome) == (Status.FAILED, "NoHost")
        assert outcome.error
        assert "no available nodes" in outcome.error.message
        assert is_untouched(ironic)

    @pytest.mark.parametrize("where", [("POST", "allocations"), ("PATCH", "id-n1"), PROVISION])
    def test_whose_answer_is_lost_is_made_once_or_not_at_all(
        self, processor: HandlerProcessor, ironic: Ironic, metal: Make, where: tuple[str, str]
    ) -> None:
        ironic.faults[where] = [Lost()]

        outcome = processor.create(metal()).result()

        assert len(ironic.allocations) == int(outcome.ok)
        assert outcome.ok or is_untouched(ironic) or outcome.left
        assert len(ironic.drives) <= 1

    @pytest.mark.parametrize("status", [400, 403, 500, 503])
    @pytest.mark.parametrize(
        "where", [("POST", "allocations"), ("PATCH", "id-n1"), PROVISION, ("GET", "validate")]
    )
    def test_that_is_refused_leaves_nothing(
        self,
        processor: HandlerProcessor,
        ironic: Ironic,
        metal: Make,
        where: tuple[str, str],
        status: int,
    ) -> None:
        ironic.faults[where] = [(status, refusal("no"))] * 9

        outcome = processor.create(metal()).result()
        ironic.faults.clear()

        assert not outcome.ok
        if not is_untouched(ironic):
            assert outcome.left
            done(processor.delete(REF).result())
        assert is_untouched(ironic)

    def test_goes_on_after_an_allocation_that_came_to_nothing(
        self, processor: HandlerProcessor, ironic: Ironic, metal: Make
    ) -> None:
        extra = {"fabric-direct": {"site": "TEST", "sliver": "metal"}}
        failed = {"uuid": "a", "name": "TEST.metal", "state": "error", "node_uuid": None}
        ironic.allocations["TEST.metal"] = failed | {"extra": extra, "last_error": "none"}

        done(processor.create(metal()).result())

        assert ironic.nodes["id-n1"]["provision_state"] == "active"

    def test_on_another_node_than_one_that_is_only_allocated_gives_that_up(
        self, processor: HandlerProcessor, ironic: Ironic, metal: Make
    ) -> None:
        extra = {"fabric-direct": {"site": "TEST", "sliver": "metal"}}
        begun = {"uuid": "a", "name": "TEST.metal", "state": "active", "node_uuid": "id-n1"}
        ironic.allocations["TEST.metal"] = begun | {"extra": extra, "last_error": None}
        ironic.nodes["id-n1"].update(instance_uuid="a", allocation_uuid="a")

        done(processor.create(metal(node="n2")).result())

        assert ironic.nodes["id-n2"]["provision_state"] == "active"
        assert ironic.nodes["id-n1"]["instance_uuid"] is None

    def test_by_a_plan_is_on_its_node_alone(
        self, processor: HandlerProcessor, ironic: Ironic, metal: Make
    ) -> None:
        plan = processor.place([metal()])

        done(processor.build(plan, [metal()])[0].result())

        (asked,) = [sent for method, _, _, sent in ironic.api.calls if method == "POST"]
        assert asked["candidate_nodes"] == ["id-n1"]
        done(processor.create(metal()).result())

    def test_by_a_plan_on_a_node_that_others_take_meanwhile_leaves_nothing(
        self, processor: HandlerProcessor, ironic: Ironic, metal: Make
    ) -> None:
        plan = processor.place([metal()])
        ironic.taken = True

        outcome = processor.build(plan, [metal()])[0].result()

        assert kind(outcome) == (Status.FAILED, "NoHost")
        assert is_untouched(ironic)
        assert outcome.left == ()

    def test_of_a_name_that_another_site_has_is_not_touched(
        self, processor: HandlerProcessor, ironic: Ironic, metal: Make
    ) -> None:
        foreign = {"uuid": "a", "name": "TEST.metal", "state": "active", "node_uuid": "id-n2"}
        ironic.allocations["TEST.metal"] = foreign | {"extra": {}, "last_error": None}

        outcome = processor.create(metal()).result()

        assert kind(outcome) == (Status.FAILED, "NotOurs")
        assert ironic.changes() == []


class TestDelete:
    @pytest.fixture(autouse=True)
    def there(self, processor: HandlerProcessor, ironic: Ironic, metal: Make) -> None:
        done(processor.create(metal()).result())
        ironic.api.calls.clear()

    def test_takes_the_node_away_and_removes_the_stamp_when_it_is_clean(
        self, processor: HandlerProcessor, ironic: Ironic
    ) -> None:
        done(processor.delete(REF).result())

        assert ironic.changes() == [PROVISION, ("PATCH", "id-n1")]
        assert is_untouched(ironic)

    def test_waits_for_a_cleaning_as_long_as_a_deletion_may_take(
        self, site: Site, ironic: Ironic
    ) -> None:
        limits = site.limits.model_copy(update={"create": 0.001})
        ironic.ends["deleted"] = "cleaning"
        ironic.comes_to = ["cleaning", "clean wait", "available"]

        with HandlerProcessor(site.model_copy(update={"limits": limits})) as processor:
            done(processor.delete(REF).result())

        assert is_untouched(ironic)

    def test_of_a_node_that_cannot_be_cleaned_names_it_and_keeps_the_stamp(
        self, processor: HandlerProcessor, ironic: Ironic
    ) -> None:
        ironic.ends["deleted"] = "clean failed"
        ironic.nodes["id-n1"]["last_error"] = "erase timed out"

        outcome = processor.delete(REF).result()

        assert kind(outcome)[1] == "DeviceUnclean"
        assert outcome.error
        assert "erase timed out" in outcome.error.message
        assert outcome.left == ("node n1 (quarantined)",)
        assert ironic.nodes["id-n1"]["extra"]

    def test_of_a_node_that_was_cleaned_by_hand_removes_the_stamp(
        self, processor: HandlerProcessor, ironic: Ironic
    ) -> None:
        ironic.ends["deleted"] = "clean failed"
        assert not processor.delete(REF).result().ok
        ironic.nodes["id-n1"]["provision_state"] = "available"

        done(processor.delete(REF).result())

        assert is_untouched(ironic)

    @pytest.mark.parametrize("state", ["manageable", "clean failed"])
    def test_never_calls_clean_what_is_not_available(
        self, processor: HandlerProcessor, ironic: Ironic, state: str
    ) -> None:
        ironic.nodes["id-n1"].update(
            provision_state=state, instance_uuid=None, allocation_uuid=None
        )
        ironic.allocations.clear()

        outcome = processor.delete(REF).result()

        assert kind(outcome)[1] == "DeviceUnclean"
        assert ironic.changes() == []

    @pytest.mark.parametrize("state", ["deploy failed", "wait call-back", "error", "rescue"])
    def test_takes_away_what_is_in_another_state(
        self, processor: HandlerProcessor, ironic: Ironic, state: str
    ) -> None:
        ironic.nodes["id-n1"]["provision_state"] = state

        done(processor.delete(REF).result())

        assert is_untouched(ironic)

    def test_that_fails_in_ironic_says_why(
        self, processor: HandlerProcessor, ironic: Ironic
    ) -> None:
        ironic.ends["deleted"] = "error"
        ironic.nodes["id-n1"]["last_error"] = "no power"

        outcome = processor.delete(REF).result()

        assert kind(outcome)[1] == "DriverError"
        assert outcome.error
        assert "no power" in outcome.error.message
        assert outcome.left

    def test_gives_up_an_allocation_whose_node_has_no_stamp_yet(
        self, processor: HandlerProcessor, ironic: Ironic
    ) -> None:
        ironic.nodes["id-n1"].update(provision_state="available", extra={})

        done(processor.delete(REF).result())

        assert ironic.changes() == [("DELETE", "TEST.metal")]
        assert is_untouched(ironic)

    def test_touches_no_node_that_somebody_got_since_a_kill_left_the_stamp(
        self, processor: HandlerProcessor, ironic: Ironic
    ) -> None:
        ironic.allocations.clear()
        ironic.nodes["id-n1"].update(instance_uuid="of-others", allocation_uuid=None)
        before = dict(ironic.nodes["id-n1"])

        done(processor.delete(REF).result())

        assert ironic.nodes["id-n1"] == before
        assert ironic.changes() == []

    def test_touches_no_node_of_others(self, processor: HandlerProcessor, ironic: Ironic) -> None:
        other = ironic.nodes["id-n2"]
        other.update(
            provision_state="active",
            instance_uuid="i",
            extra={"fabric-direct": {"site": "OTHER", "sliver": "metal"}},
        )
        before = dict(other)

        done(processor.delete(REF).result())

        assert other == before

    def test_waits_while_the_node_is_locked(
        self, processor: HandlerProcessor, ironic: Ironic
    ) -> None:
        ironic.faults[PROVISION] = [(409, refusal(LOCKED))] * 2

        done(processor.delete(REF).result())

        assert is_untouched(ironic)

    def test_whose_answer_is_lost_goes_on(
        self, processor: HandlerProcessor, ironic: Ironic
    ) -> None:
        ironic.faults[PROVISION] = [Lost()]

        processor.delete(REF).result()
        done(processor.delete(REF).result())

        assert is_untouched(ironic)


class TestRebuild:
    """Marked on the node as due, asked for, and seen to have ended."""

    @pytest.fixture(autouse=True)
    def there(self, processor: HandlerProcessor, ironic: Ironic, metal: Make) -> None:
        done(processor.create(metal(root_device={"serial": "S1"})).result())
        ironic.api.calls.clear()

    @pytest.fixture
    def wanted(self, metal: Make) -> BareMetalSliver:
        return metal(
            image="probe", ssh_keys=[OTHER_KEY], root_device={"serial": "S1"}, rebuild=True
        )

    def asked(self, ironic: Ironic) -> dict[str, Any]:
        """Return what the stamp of n1 says that was asked for."""
        return ironic.nodes["id-n1"]["extra"]["fabric-direct"]["asked"]  # type: ignore[no-any-return]

    def is_rebuilt(self, ironic: Ironic, wanted: BareMetalSliver) -> bool:
        """Return whether n1 alone is the sliver's, and was deployed last as the sliver says."""
        there, other = ironic.nodes["id-n1"], ironic.nodes["id-n2"]
        assert (other["provision_state"], other["extra"]) == ("available", {})
        keys = [*ironic.drives[-1]["meta_data"]["public_keys"].values()]
        return (
            (there["provision_state"], there["power_state"]) == ("active", "power on")
            and keys == [*wanted.ssh_keys]
            and self.asked(ironic) == wanted.stamp().model_dump(mode="json", exclude_defaults=True)
        )

    def test_is_marked_before_it_is_asked_for_and_until_it_has_ended(
        self, processor: HandlerProcessor, ironic: Ironic, wanted: BareMetalSliver
    ) -> None:
        marks = []
        ironic.boot = lambda drive: marks.append(self.asked(ironic).get("rebuild_due"))

        done(processor.modify(wanted).result())

        assert ironic.changes() == [("PATCH", "id-n1"), PROVISION, ("PATCH", "id-n1")]
        ((_, _, _, sent),) = [call for call in ironic.api.calls if call[0] == "PUT"]
        assert sent["target"] == "rebuild"
        assert marks == [True]
        assert self.is_rebuilt(ironic, wanted)

    def test_deploys_the_new_image_and_nothing_of_the_former(
        self, processor: HandlerProcessor, ironic: Ironic, wanted: BareMetalSliver
    ) -> None:
        ironic.nodes["id-n1"]["instance_info"] |= {
            "traits": ["CUSTOM_A"],
            "image_type": "whole-disk",
        }

        done(processor.modify(wanted).result())

        assert ironic.nodes["id-n1"]["instance_info"] == {
            "display_name": "box",
            "kernel": "http://192.0.2.1/kernel",
            "ramdisk": "http://192.0.2.1/initrd",
            "ramdisk_kernel_arguments": "console=ttyS0",
            "root_device": {"serial": "S1"},
            "traits": ["CUSTOM_A"],
        }

    def test_by_the_action_has_the_same_keys_name_and_image(
        self, processor: HandlerProcessor, ironic: Ironic
    ) -> None:
        before = dict(ironic.nodes["id-n1"]["instance_info"])

        assert done(processor.poa(REF, "rebuild").result()).data == {"state": "running"}

        first, second = ironic.drives
        assert second["meta_data"] == first["meta_data"]
        assert ironic.nodes["id-n1"]["instance_info"] == before
        assert "rebuild_due" not in self.asked(ironic)

    def test_switches_a_node_on_that_is_off_afterwards(
        self, processor: HandlerProcessor, ironic: Ironic, wanted: BareMetalSliver
    ) -> None:
        ironic.boot = lambda drive: ironic.nodes["id-n1"].update(power_state="power off")

        done(processor.modify(wanted).result())

        assert self.is_rebuilt(ironic, wanted)

    def test_that_ironic_finds_invalid_leaves_the_node_as_it_was(
        self, processor: HandlerProcessor, ironic: Ironic, metal: Make, wanted: BareMetalSliver
    ) -> None:
        before = deepcopy(ironic.nodes["id-n1"])
        ironic.unfit = {"deploy": "no image_source"}

        outcome = processor.modify(wanted).result()

        assert kind(outcome)[1] == "DriverError"
        assert outcome.error
        assert "deploy: no image_source" in outcome.error.message
        assert ironic.nodes["id-n1"] == before
        assert len(ironic.drives) == 1
        done(processor.modify(metal(root_device={"serial": "S1"})).result())
        assert processor.unfinished() == ()

    @pytest.mark.parametrize(
        ("values", "why"),
        [
            ({"maintenance": True, "maintenance_reason": "new disks"}, "new disks"),
            ({"provision_state": "rescue"}, "is rescue"),
            ({"provision_state": "rescue failed"}, "is rescue failed"),
        ],
    )
    def test_in_a_state_in_which_ironic_deploys_nothing_is_refused_at_once(
        self,
        processor: HandlerProcessor,
        ironic: Ironic,
        wanted: BareMetalSliver,
        values: dict[str, Any],
        why: str,
    ) -> None:
        ironic.nodes["id-n1"].update(values)

        for future in (processor.modify(wanted), processor.poa(REF, "rebuild")):
            outcome = future.result()
            assert kind(outcome)[1] == "Conflict"
            assert outcome.error
            assert why in outcome.error.message
        assert ironic.changes() == []

    @pytest.mark.parametrize("fault", [Lost(), (400, refusal("no")), (503, refusal("no"))])
    @pytest.mark.parametrize(
        ("where", "times"),
        [(("PATCH", "id-n1"), 9), (PROVISION, 9), (("GET", "validate"), 9)],
    )
    def test_that_gets_no_good_answer_is_gone_on_with_to_its_end(
        self,
        processor: HandlerProcessor,
        ironic: Ironic,
        wanted: BareMetalSliver,
        where: tuple[str, str],
        times: int,
        fault: Any,
    ) -> None:
        ironic.faults[where] = [fault] * times

        outcome = processor.modify(wanted).result()
        assert not outcome.ok
        assert outcome.left
        ironic.faults.clear()
        for future in processor.recover():
            done(future.result())

        assert self.is_rebuilt(ironic, wanted)

    def test_whose_end_could_not_be_noted_is_done_again(
        self, processor: HandlerProcessor, ironic: Ironic, wanted: BareMetalSliver
    ) -> None:
        """Who finds an active node that is to be rebuilt cannot know that it was."""

        def refuse_the_next(drive: dict[str, Any]) -> None:
            ironic.faults["PATCH", "id-n1"] = [(400, refusal("no"))]

        ironic.boot = refuse_the_next
        assert not processor.modify(wanted).result().ok
        assert self.asked(ironic)["rebuild_due"] is True
        observed = processor.probe(REF).result().observed
        assert observed
        assert "to be rebuilt" in observed.differences[0]

        ironic.boot = lambda drive: None
        done(processor.modify(wanted).result())

        assert len(ironic.drives) == 3
        assert self.is_rebuilt(ironic, wanted)

    def test_that_fails_is_told_and_done_again_by_the_same_modification(
        self, processor: HandlerProcessor, ironic: Ironic, wanted: BareMetalSliver
    ) -> None:
        ironic.ends["rebuild"] = "deploy failed"
        ironic.nodes["id-n1"]["last_error"] = "no route to image"

        outcome = processor.modify(wanted).result()

        assert kind(outcome)[1] == "DriverError"
        assert outcome.error
        assert "no route to image" in outcome.error.message
        assert "rebuild node" in outcome.left[0]
        ironic.ends["rebuild"] = "active"
        done(processor.modify(wanted).result())
        assert self.is_rebuilt(ironic, wanted)
        assert processor.unfinished() == ()

    def test_that_failed_is_done_again_by_the_action(
        self, processor: HandlerProcessor, ironic: Ironic, wanted: BareMetalSliver
    ) -> None:
        ironic.ends["rebuild"] = "deploy failed"
        assert not processor.modify(wanted).result().ok
        ironic.ends["rebuild"] = "active"

        done(processor.poa(REF, "rebuild").result())

        assert self.is_rebuilt(ironic, wanted)

    def test_that_failed_is_deleted(
        self, processor: HandlerProcessor, ironic: Ironic, wanted: BareMetalSliver
    ) -> None:
        ironic.ends["rebuild"] = "deploy failed"
        assert not processor.modify(wanted).result().ok

        done(processor.delete(REF).result())

        assert is_untouched(ironic)

    @pytest.mark.parametrize("state", ["deploying", "wait call-back"])
    def test_that_is_under_way_is_waited_for(
        self, processor: HandlerProcessor, ironic: Ironic, wanted: BareMetalSliver, state: str
    ) -> None:
        """As after a kill: it is not asked for twice."""
        self.begun(ironic, wanted, state)
        drives = len(ironic.drives)

        done(processor.modify(wanted).result())

        assert len(ironic.drives) == drives
        assert ironic.changes() == [("PATCH", "id-n1")]
        assert "rebuild_due" not in self.asked(ironic)

    def test_with_other_values_than_the_one_under_way_comes_after_it(
        self, processor: HandlerProcessor, ironic: Ironic, metal: Make, wanted: BareMetalSliver
    ) -> None:
        self.begun(ironic, metal(image="probe", root_device={"serial": "S1"}), "deploying")

        done(processor.modify(wanted).result())

        assert self.is_rebuilt(ironic, wanted)

    def test_that_is_due_is_not_taken_for_what_others_did_to_the_node(
        self, processor: HandlerProcessor, ironic: Ironic, wanted: BareMetalSliver
    ) -> None:
        self.begun(ironic, wanted, "unrescuing")

        done(processor.modify(wanted).result())

        assert ironic.changes().count(PROVISION) == 1
        assert self.is_rebuilt(ironic, wanted)

    def test_that_is_due_is_not_forgotten_by_a_modification_without_it(
        self, processor: HandlerProcessor, ironic: Ironic, wanted: BareMetalSliver
    ) -> None:
        self.begun(ironic, wanted, "unrescuing")

        outcome = processor.modify(wanted.model_copy(update={"rebuild": False})).result()

        assert not outcome.ok
        assert self.asked(ironic)["rebuild_due"] is True

    def begun(self, ironic: Ironic, wanted: BareMetalSliver, state: str) -> None:
        """Leave n1 as who was killed leaves it: marked, and in a state that ends as active."""
        due = wanted.stamp().model_copy(update={"rebuild_due": True})
        stamp = ironic.nodes["id-n1"]["extra"]["fabric-direct"]
        stamp["asked"] = due.model_dump(mode="json", exclude_defaults=True)
        ironic.nodes["id-n1"].update(provision_state=state)
        # for longer than it is read before it is waited for
        ironic.comes_to = [state] * 20 + ["active"]

    def test_that_was_due_already_is_not_undone_either(
        self, processor: HandlerProcessor, ironic: Ironic, metal: Make, wanted: BareMetalSliver
    ) -> None:
        """As after an action whose process was killed: the journal does not know it."""
        self.begun(ironic, metal(root_device={"serial": "S1"}), "active")
        ironic.comes_to.clear()
        ironic.faults["PATCH", "id-n1"] = [(400, refusal("no"))]
        assert not processor.modify(wanted).result().ok

        (outcome,) = (future.result() for future in processor.recover(undo=True))

        assert kind(outcome)[1] == "Unsupported"
        assert len(ironic.drives) == 1

    @pytest.mark.parametrize("kind_of", ["marked", "failed"])
    def test_is_not_undone_once_it_is_marked(
        self, processor: HandlerProcessor, ironic: Ironic, wanted: BareMetalSliver, kind_of: str
    ) -> None:
        if kind_of == "marked":
            ironic.faults[PROVISION] = [(400, refusal("no"))]
        else:
            ironic.ends["rebuild"] = "deploy failed"
        assert not processor.modify(wanted).result().ok

        (outcome,) = (future.result() for future in processor.recover(undo=True))

        assert kind(outcome)[1] == "Unsupported"
        assert outcome.error
        assert "cannot be undone" in outcome.error.message
        assert self.asked(ironic)["rebuild_due"] is True


class TestWhatElse:
    @pytest.fixture(autouse=True)
    def there(self, processor: HandlerProcessor, ironic: Ironic, metal: Make) -> None:
        done(processor.create(metal()).result())
        ironic.api.calls.clear()

    def test_a_name_is_changed_in_place(
        self, processor: HandlerProcessor, ironic: Ironic, metal: Make
    ) -> None:
        done(processor.modify(metal(name="other")).result())

        assert ironic.changes() == [("PATCH", "id-n1")]
        assert ironic.nodes["id-n1"]["instance_info"]["display_name"] == "other"

    @pytest.mark.parametrize(
        ("action", "data", "target", "state"),
        [
            ("stop", {}, "soft power off", "stopped"),
            ("stop", {"hard": True}, "power off", "stopped"),
            ("start", {}, "power on", "running"),
            ("reboot", {}, "soft rebooting", "running"),
            ("reboot", {"hard": True}, "rebooting", "running"),
        ],
    )
    def test_power_is_switched_by_ironic(
        self,
        processor: HandlerProcessor,
        ironic: Ironic,
        action: str,
        data: dict[str, Any],
        target: str,
        state: str,
    ) -> None:
        assert done(processor.poa(REF, action, data).result()).data == {"state": state}

        ((_, _, _, sent),) = [call for call in ironic.api.calls if call[0] == "PUT"]
        assert sent == {"target": target}

    def test_a_reboot_is_over_when_the_node_is_unlocked(
        self, processor: HandlerProcessor, ironic: Ironic
    ) -> None:
        """Ironic answers before it begins: until then the node is on, as it is to be afterwards."""
        ironic.slow = 4

        done(processor.poa(REF, "reboot", {"hard": True}).result())

        assert ironic.nodes["id-n1"]["reservation"] is None

    def test_what_is_stamped_is_listed_once(self, site: Site, ironic: Ironic) -> None:
        (thing,) = IronicBareMetal(site).stamped()

        assert (thing.sliver, thing.kind, thing.name) == ("metal", "BareMetal", "n1")

    def test_an_allocation_alone_is_stamped_too(self, site: Site, ironic: Ironic) -> None:
        ironic.nodes["id-n1"]["extra"] = {}

        (thing,) = IronicBareMetal(site).stamped()

        assert (thing.sliver, thing.name) == ("metal", "TEST.metal")

    def test_a_node_that_is_not_to_be_cleaned_is_withheld(
        self, processor: HandlerProcessor, ironic: Ironic, metal: Make
    ) -> None:
        ironic.nodes["id-n2"]["automated_clean"] = False

        outcome = processor.create(metal(id="other")).result()

        assert kind(outcome) == (Status.FAILED, "NoHost")
        assert outcome.error
        assert "n2 is withheld (automated_clean is off)" in outcome.error.message
