"""The life of a virtual machine on the fake drivers, and what happens when a call of it fails."""

from collections.abc import Callable
from dataclasses import replace
from threading import Barrier
from typing import Any

import pytest

from fabric_direct.drivers.contract import Volume
from fabric_direct.drivers.fake import FakeCompute, FakeNetwork, Substrate
from fabric_direct.model import (
    Finding,
    NodeSliver,
    Operation,
    Outcome,
    SliverRef,
    Stamp,
    State,
    Status,
    StepStatus,
)
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import OpenStackSettings, Site
from tests.outcomes import done, made
from tests.trust.clock import skipping_faults
from tests.unit.faults import at_each_call

MakeVm = Callable[..., NodeSliver]


@pytest.fixture
def fake_site(fake_site: Site) -> Site:
    """A site that has floating IPs on one of its networks."""
    cloud = OpenStackSettings(cloud="lab", external_network="public")
    routed = {"physical_network": "physnet1", "router": True}
    red = fake_site.networks["red"].model_copy(update=routed)
    networks = fake_site.networks | {"red": red}
    return fake_site.model_copy(update={"openstack": cloud, "networks": networks})


def things_of(fakes: Substrate) -> tuple[int, int, int]:
    """How many servers, ports and volumes there are."""
    return len(fakes.servers), len(fakes.ports), len(fakes.volumes)


NOTHING = (0, 0, 0)


def created(processor: HandlerProcessor, sliver: NodeSliver) -> Outcome:
    outcome = processor.create(sliver).result()
    assert outcome.status is Status.DONE, outcome.error
    return outcome


def with_nic(sliver: NodeSliver, **interface: object) -> NodeSliver:
    """The same sliver with other settings of its first vNIC."""
    nic = sliver.vnics()[0]
    changed = nic.model_copy(
        update={"interface": type(nic.interface).model_validate(interface, strict=False)}
    )
    return sliver.model_copy(update={"components": (changed, *sliver.components[1:])})


def without_volume_with_nic3(sliver: NodeSliver) -> NodeSliver:
    data = sliver.model_dump(mode="json")
    data["components"] = [c for c in data["components"] if c["type"] == "vNIC"]
    data["components"].append({"type": "vNIC", "id": "nic3", "network": "red"})
    return NodeSliver.model_validate(data)


class TestAFloatingIp:
    """Of a NIC: the cloud takes its time to make or delete one, so the server does not wait for it."""

    @pytest.fixture
    def public(self, vm: MakeVm) -> NodeSliver:
        return with_nic(vm(), floating_ip=True)

    def test_is_made_beside_the_server(
        self,
        processor: HandlerProcessor,
        fakes: Substrate,
        public: NodeSliver,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        both = Barrier(2)
        for driver, method in ((FakeCompute, "create"), (FakeNetwork, "create_floating_ip")):
            real = getattr(driver, method)

            def make(*args: Any, real: Any = real) -> Any:
                both.wait(60)
                return real(*args)

            monkeypatch.setattr(driver, method, make)

        outcome = created(processor, public)

        assert "floating IP nic1" in made(outcome)
        assert fakes.ports["sliver-1", "nic1"].floating_ip

    @pytest.mark.parametrize("kind", ["fail", "lie", "after"])
    def test_that_cannot_be_made_leaves_nothing(
        self, processor: HandlerProcessor, fakes: Substrate, public: NodeSliver, kind: str
    ) -> None:
        fakes.fault("network.create_floating_ip", kind=kind)

        outcome = processor.create(public).result()

        assert (outcome.status, outcome.left) == (Status.FAILED, ())
        assert things_of(fakes) == NOTHING
        created(processor, public)

    def test_of_a_server_that_is_there_stays_whatever_a_list_leaves_out(
        self, processor: HandlerProcessor, fakes: Substrate, public: NodeSliver
    ) -> None:
        created(processor, public)
        fakes.fault("network.ports", kind="incomplete")

        again = created(processor, public)

        assert [step for step in made(again) if "nic1" in step] == []

    def test_goes_beside_the_server(
        self, processor: HandlerProcessor, fakes: Substrate, public: NodeSliver
    ) -> None:
        created(processor, public)

        outcome = processor.delete(public.ref()).result()

        assert outcome.ok
        assert "release floating IP nic1" in made(outcome)
        assert things_of(fakes) == NOTHING

    @pytest.mark.parametrize("kind", ["fail", "lie"])
    def test_that_does_not_go_is_told_and_goes_the_next_time(
        self, processor: HandlerProcessor, fakes: Substrate, public: NodeSliver, kind: str
    ) -> None:
        created(processor, public)
        fakes.fault("network.delete_floating_ip", kind=kind)

        outcome = processor.delete(public.ref()).result()

        assert outcome.status is Status.PARTIAL
        assert "port nic1" in outcome.left
        assert processor.delete(public.ref()).result().ok
        assert things_of(fakes) == NOTHING

    def test_of_fakes_are_each_others_never(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        created(processor, with_nic(vm(), floating_ip=True))
        created(processor, with_nic(vm(id="sliver-2", name="other"), floating_ip=True))

        addresses = [port.floating_ip for port in fakes.ports.values() if port.floating_ip]
        assert len(set(addresses)) == 2


class TestCreate:
    def test_makes_the_server_with_its_nics_and_volume(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        outcome = created(processor, vm())

        assert things_of(fakes) == (1, 2, 1)
        assert outcome.observed
        assert outcome.observed.state is State.RUNNING
        assert [i.network for i in outcome.observed.interfaces] == ["red", "blue"]
        assert outcome.observed.differences == ()

    def test_twice_is_the_same_as_once(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        first = created(processor, vm())
        second = created(processor, vm())

        assert things_of(fakes) == (1, 2, 1)
        assert second.observed == first.observed
        assert not [s for s in second.steps if s.status is StepStatus.DONE and s.step != "guest"]

    def test_of_another_sliver_with_the_same_id_is_a_conflict_and_touches_nothing(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        created(processor, vm())
        before = dict(fakes.servers)

        outcome = processor.create(vm(name="other")).result()

        assert outcome.status is Status.FAILED
        assert outcome.error
        assert outcome.error.kind == "Conflict"
        assert fakes.servers == before

    @at_each_call(
        {
            "network.find_port": (1, 2, 3),
            "network.create_port": (1, 2),
            "volume.find": (1, 2, 3),
            "volume.create": (1,),
            "compute.create": (1,),
            "compute.find": (1, 2, 3),
            "guest.wait": (1,),
            "network.ports": (1, 2, 3),
        }
    )
    def test_leaves_nothing_when_a_call_fails(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm, method: str, at: int
    ) -> None:
        fakes.fault(method, at=at, kind="fail")

        outcome = processor.create(vm()).result()

        assert things_of(fakes) == NOTHING
        assert outcome.status is Status.FAILED
        assert outcome.left == ()

    @at_each_call({"guest.boot_finished": (1, 2), "guest.interfaces": (1, 2)})
    def test_goes_on_when_the_guest_fails_to_answer_once(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm, method: str, at: int
    ) -> None:
        fakes.fault(method, at=at, kind="fail")

        assert processor.create(vm()).result().ok

    def test_with_a_driver_that_lies_is_not_called_done(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        fakes.fault("volume.create", kind="lie")

        outcome = processor.create(vm()).result()

        assert outcome.status is Status.FAILED
        assert outcome.error
        assert outcome.error.kind == "NotVerified"
        assert things_of(fakes) == NOTHING

    def test_names_what_is_left_when_undoing_fails_too(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        fakes.fault("guest.wait", kind="fail")
        fakes.fault("volume.delete", at=0, kind="fail")

        outcome = processor.create(vm()).result()

        assert outcome.status is Status.PARTIAL
        assert outcome.left == ("/fake/sliver-1.data",)
        assert things_of(fakes) == (0, 0, 1)

    def test_that_left_something_is_cleaned_by_delete(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        fakes.fault("guest.wait", kind="fail")
        fakes.fault("volume.delete", at=1, kind="fail")
        processor.create(vm()).result()

        assert processor.delete(SliverRef(id="sliver-1")).result().ok

        assert things_of(fakes) == NOTHING

    def test_that_fails_over_an_existing_sliver_leaves_it_as_it_was(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        created(processor, vm())
        before = (dict(fakes.servers), dict(fakes.ports), dict(fakes.volumes))
        fakes.fault("guest.wait", kind="fail")

        outcome = processor.create(vm()).result()

        assert outcome.status is Status.FAILED
        assert (fakes.servers, fakes.ports, fakes.volumes) == before

    def test_starts_a_server_that_was_stopped(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        created(processor, vm())
        processor.poa(vm(), "stop").result()

        created(processor, vm())

        assert fakes.servers["sliver-1"].state is State.RUNNING

    def test_does_not_power_off_a_paused_server_that_it_cannot_start(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        created(processor, vm())
        fakes.servers["sliver-1"] = replace(fakes.servers["sliver-1"], state=State.PAUSED)
        fakes.fault("compute.start", kind="fail")

        outcome = processor.create(vm()).result()

        assert outcome.status is Status.FAILED
        assert fakes.servers["sliver-1"].state is State.PAUSED

    def test_ends_when_a_call_hangs(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        fakes.fault("volume.create", kind="hang")

        with skipping_faults():
            outcome = processor.create(vm()).result()

        assert outcome.error
        assert outcome.error.kind == "TimedOut"
        assert "volume.create" in outcome.error.message
        assert outcome.left == ("unknown: volume.create was given up and may still take effect",)
        assert things_of(fakes) == NOTHING

    def test_ends_when_its_budget_is_spent_and_still_undoes(
        self, fake_site: object, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        limits = processor.site.limits.model_copy(update={"create": 30.0, "call": 60.0})
        site = processor.site.model_copy(update={"limits": limits})
        fakes.fault("compute.create", kind="hang")

        with skipping_faults(), HandlerProcessor(site) as hasty:
            outcome = hasty.create(vm()).result()

        assert outcome.error
        assert outcome.error.kind == "TimedOut"
        assert things_of(fakes) == NOTHING


class TestRefusal:
    @pytest.mark.parametrize(
        ("values", "field"),
        [
            ({"capacities": {"core": 65, "ram": 1, "disk": 1}}, "capacities.core"),
            ({"capacities": {"core": 1, "ram": 257, "disk": 1}}, "capacities.ram"),
            ({"capacities": {"core": 1, "ram": 1, "disk": 4097}}, "capacities.disk"),
            ({"image": "unknown"}, "image"),
            ({"host": "elsewhere"}, "host"),
            ({"type": "Toaster"}, "type"),
            (
                {"components": [{"type": "vNIC", "id": "n", "network": "green"}]},
                "components[0].network",
            ),
            (
                {
                    "components": [
                        {
                            "type": "vNIC",
                            "id": "n",
                            "network": "red",
                            "interface": {"ipv4": "10.9.9.9/24"},
                        }
                    ]
                },
                "components[0].interface.ipv4",
            ),
            (
                {"components": [{"type": "Storage", "id": "s", "volume": "unknown"}]},
                "components[0].volume",
            ),
            (
                {"components": [{"type": "GPU", "id": "g", "bdf": ["0000:99:00.0"]}]},
                "components[0].bdf[0]",
            ),
        ],
    )
    def test_names_the_field_and_touches_nothing(
        self,
        processor: HandlerProcessor,
        fakes: Substrate,
        vm: MakeVm,
        values: dict[str, object],
        field: str,
    ) -> None:
        fakes.images = {"tiny"}

        outcome = processor.create(vm(**values)).result()

        assert outcome.status is Status.REFUSED
        assert outcome.error
        assert outcome.error.field == field
        assert things_of(fakes) == NOTHING
        assert not [c for c in fakes.calls if c.endswith(("create", "create_port", "attach"))]


class TestModify:
    def test_adds_a_nic_and_removes_the_volume(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        created(processor, vm())

        outcome = processor.modify(without_volume_with_nic3(vm())).result()

        assert outcome.ok, outcome.error
        assert outcome.observed
        assert [i.component for i in outcome.observed.interfaces] == ["nic1", "nic2", "nic3"]
        assert things_of(fakes) == (1, 3, 0)

    def test_changes_the_bandwidth_in_place(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        created(processor, vm())

        outcome = processor.modify(with_nic(vm(), bandwidth=100)).result()

        assert outcome.ok, outcome.error
        assert fakes.servers["sliver-1"].ports[0].bandwidth == 100
        assert "compute.detach_port" not in fakes.calls

    @pytest.mark.parametrize(
        ("interface", "has"),
        [({"floating_ip": True}, (True, True)), ({"port_security": False}, (False, False))],
    )
    def test_changes_the_settings_of_a_port_in_place(
        self,
        processor: HandlerProcessor,
        fakes: Substrate,
        vm: MakeVm,
        interface: dict[str, bool],
        has: tuple[bool, bool],
    ) -> None:
        created(processor, vm())
        fakes.calls.clear()

        outcome = processor.modify(with_nic(vm(), **interface)).result()

        assert outcome.status is Status.DONE, outcome.error
        port = fakes.ports["sliver-1", "nic1"]
        assert (port.floating_ip is not None, port.port_security) == has
        assert not fakes.calls["network.delete_port"] + fakes.calls["compute.detach_port"]

    def test_that_fails_gives_a_port_its_former_settings_back(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        created(processor, vm())
        before = fakes.ports["sliver-1", "nic1"]
        grown = with_nic(without_volume_with_nic3(vm()), floating_ip=True)
        fakes.fault("compute.attach_port", kind="fail")

        outcome = processor.modify(grown).result()

        assert outcome.status is Status.FAILED
        assert fakes.ports["sliver-1", "nic1"] == before

    def test_changes_an_address_by_plugging_the_nic_anew(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        created(processor, vm())

        outcome = processor.modify(with_nic(vm(), ipv4="10.20.1.77/24")).result()

        assert outcome.ok, outcome.error
        assert str(fakes.ports["sliver-1", "nic1"].ipv4) == "10.20.1.77/24"
        assert fakes.calls["compute.detach_port"] == 1

    def test_twice_is_the_same_as_once(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        created(processor, vm())
        wanted = without_volume_with_nic3(vm())
        processor.modify(wanted).result()

        second = processor.modify(wanted).result()

        assert second.ok
        assert not [s for s in second.steps if s.status is StepStatus.DONE and s.step != "guest"]

    def test_of_what_is_not_there_fails(self, processor: HandlerProcessor, vm: MakeVm) -> None:
        outcome = processor.modify(vm()).result()

        assert outcome.error
        assert outcome.error.kind == "NotFound"

    def test_may_omit_the_boot_script_which_stays_known(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        created(processor, vm(boot_script="#!/bin/sh\n"))
        before = fakes.servers["sliver-1"].stamp

        assert processor.modify(vm()).result().ok
        assert fakes.servers["sliver-1"].stamp == before

    @pytest.mark.parametrize(
        ("values", "field"),
        [
            ({"name": "other"}, "name"),
            ({"image": "other"}, "image"),
            ({"capacities": {"core": 2, "ram": 1, "disk": 1}}, "capacities"),
            ({"boot_script": "#!/bin/sh\n"}, "boot_script"),
            ({"ssh_keys": ()}, "ssh_keys"),
            ({"components": [{"type": "Storage", "id": "data", "size": 2}]}, "components[0]"),
            ({"components": [{"type": "Storage", "id": "nic1", "size": 2}]}, "components[0]"),
        ],
    )
    def test_refuses_what_cannot_be_changed(
        self, processor: HandlerProcessor, vm: MakeVm, values: dict[str, object], field: str
    ) -> None:
        created(processor, vm())

        outcome = processor.modify(vm(**values)).result()

        assert outcome.status is Status.REFUSED
        assert outcome.error
        assert outcome.error.field == field

    @at_each_call(
        {
            "network.create_port": (1, 2),
            "network.find_port": (1, 2, 4, 5),
            "compute.attach_port": (1, 2),
            "compute.detach_port": (1,),
            "compute.detach_volume": (1,),
            "guest.interfaces": (1, 2),
            "compute.find": (1, 2, 4, 6),
        }
    )
    def test_that_fails_leaves_the_sliver_as_it_was(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm, method: str, at: int
    ) -> None:
        created(processor, vm())
        before = (
            set(fakes.servers["sliver-1"].ports),
            set(fakes.ports.values()),
            fakes.volumes.copy(),
        )
        wanted = with_nic(without_volume_with_nic3(vm()), ipv4="10.20.1.77/24", bandwidth=10)
        fakes.fault(method, at=at, kind="fail")

        outcome = processor.modify(wanted).result()

        if outcome.ok:
            assert method == "guest.interfaces"
        else:
            ports = set(fakes.servers["sliver-1"].ports)
            assert (ports, set(fakes.ports.values()), fakes.volumes) == before
            assert outcome.left == ()

    def test_that_cannot_change_a_bandwidth_leaves_it_as_it_was(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        created(processor, vm())
        before = fakes.ports.copy()
        fakes.fault("compute.set_bandwidth", kind="fail")

        outcome = processor.modify(with_nic(vm(), bandwidth=10)).result()

        assert outcome.status is Status.FAILED
        assert (fakes.ports, outcome.left) == (before, ())

    def test_that_cannot_remove_in_the_end_says_what_is_left_and_is_finished_by_the_next(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        created(processor, vm())
        wanted = without_volume_with_nic3(vm())
        fakes.fault("volume.delete", kind="fail")

        outcome = processor.modify(wanted).result()

        assert outcome.status is Status.PARTIAL
        assert any("remove volume data" in left for left in outcome.left)
        assert processor.modify(wanted).result().ok
        assert things_of(fakes) == (1, 3, 0)

    def test_removes_what_an_unfinished_one_left_behind(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        created(processor, vm())
        stray = replace(fakes.ports["sliver-1", "nic1"], component="stray", mac="52:54:00:99:99:99")
        fakes.ports["sliver-1", "stray"] = stray

        assert processor.modify(vm()).result().ok

        assert ("sliver-1", "stray") not in fakes.ports

    def test_of_a_stopped_server_does_not_start_it(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        created(processor, vm())
        processor.poa(vm(), "stop").result()

        outcome = processor.modify(without_volume_with_nic3(vm())).result()

        assert outcome.ok, outcome.error
        assert fakes.servers["sliver-1"].state is State.STOPPED


class TestDelete:
    def test_removes_everything_by_the_stamp(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        created(processor, vm())
        created(processor, vm(id="sliver-2"))

        outcome = processor.delete(SliverRef(id="sliver-1")).result()

        assert outcome.ok
        assert set(fakes.servers) == {"sliver-2"}
        assert {sliver for sliver, _ in (*fakes.ports, *fakes.volumes)} == {"sliver-2"}

    def test_twice_is_the_same_as_once(self, processor: HandlerProcessor, vm: MakeVm) -> None:
        created(processor, vm())

        assert processor.delete(vm()).result().ok
        assert processor.delete(vm()).result().ok

    def test_leaves_ports_and_volumes_alone_while_the_server_cannot_be_removed(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        created(processor, vm())
        fakes.fault("compute.delete", kind="fail")

        outcome = processor.delete(vm()).result()

        assert outcome.status is Status.FAILED
        left = {"sliver-1-node", "port nic1", "port nic2", "/fake/sliver-1.data"}
        assert set(outcome.left) == left
        assert things_of(fakes) == (1, 2, 1)

    @pytest.mark.parametrize("method", ["network.ports", "volume.volumes", "network.unused"])
    def test_that_cannot_see_what_there_is_does_not_say_that_nothing_is_left(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm, method: str
    ) -> None:
        created(processor, vm())
        fakes.fault(method, kind="fail")

        outcome = processor.delete(vm()).result()

        assert outcome.status is Status.FAILED
        assert [left.startswith("unknown: ") for left in outcome.left] == [True]
        assert [entry.operation for entry in processor.unfinished()] == [Operation.DELETE]

    def test_goes_on_with_the_rest_when_one_thing_cannot_be_removed(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        created(processor, vm())
        fakes.fault("network.delete_port", kind="fail")

        outcome = processor.delete(vm()).result()

        assert outcome.status is Status.PARTIAL
        assert len(outcome.left) == 1
        assert things_of(fakes) == (0, 1, 0)

    def test_that_lies_is_not_called_done(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        created(processor, vm())
        fakes.fault("volume.delete", kind="lie")

        outcome = processor.delete(vm()).result()

        assert outcome.status is Status.PARTIAL
        assert outcome.left == ("/fake/sliver-1.data",)


class TestPlan:
    def test_without_an_operation_is_of_what_create_or_modify_would_do(
        self, processor: HandlerProcessor, vm: MakeVm
    ) -> None:
        absent = processor.plan(vm()).result()
        created(processor, vm())
        present = processor.plan(without_volume_with_nic3(vm())).result()

        assert {step.finding for step in absent.steps} == {Finding.WILL_CREATE}
        assert "unplug disk data" in {step.step for step in present.steps}

    def test_of_a_create_changes_nothing(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        outcome = processor.plan(vm(), Operation.CREATE).result()

        assert things_of(fakes) == NOTHING
        assert {s.step: s.finding for s in outcome.steps} == {
            "port nic1": Finding.WILL_CREATE,
            "port nic2": Finding.WILL_CREATE,
            "volume data": Finding.WILL_CREATE,
            "server": Finding.WILL_CREATE,
        }

    def test_of_a_create_names_the_start_of_a_server_that_is_stopped(
        self, processor: HandlerProcessor, vm: MakeVm
    ) -> None:
        created(processor, vm())
        processor.poa(vm(), "stop").result()

        outcome = processor.plan(vm(), Operation.CREATE).result()

        (power,) = (step for step in outcome.steps if step.finding is not Finding.ALREADY_SO)
        assert (power.step, *map(str, power.changes)) == ("power", "state stopped → running")

    def test_of_an_unchanged_sliver_finds_all_of_it_so_already(
        self, processor: HandlerProcessor, vm: MakeVm
    ) -> None:
        created(processor, vm())

        outcome = processor.plan(vm(), Operation.MODIFY).result()

        assert {s.finding for s in outcome.steps} == {Finding.ALREADY_SO}

    def test_of_a_modification_says_what_it_would_do(
        self, processor: HandlerProcessor, vm: MakeVm
    ) -> None:
        created(processor, vm())

        outcome = processor.plan(without_volume_with_nic3(vm()), Operation.MODIFY).result()

        changes = {s.step: s.finding for s in outcome.steps if s.finding is not Finding.ALREADY_SO}
        assert changes == {
            "port nic3": Finding.WILL_CREATE,
            "nic nic3": Finding.WILL_CREATE,
            "unplug disk data": Finding.WILL_DELETE,
            "remove volume data": Finding.WILL_DELETE,
            "stamp": Finding.WILL_CHANGE,
        }

    def test_of_a_delete_changes_nothing(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        created(processor, vm())

        outcome = processor.plan(vm().ref(), Operation.DELETE).result()

        assert {s.finding for s in outcome.steps} == {Finding.WILL_DELETE}
        assert things_of(fakes) == (1, 2, 1)


class TestProbe:
    def test_of_what_is_not_there_says_absent(self, processor: HandlerProcessor) -> None:
        observed = processor.probe(SliverRef(id="nobody")).result().observed

        assert observed
        assert observed.state is State.ABSENT
        assert observed.differences

    def test_names_what_differs_from_the_stamp(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        created(processor, vm())
        server = fakes.servers["sliver-1"]
        fakes.servers["sliver-1"] = replace(server, ports=server.ports[:1], state=State.PAUSED)

        observed = processor.probe(SliverRef(id="sliver-1")).result().observed

        assert observed
        assert observed.differences == (
            "the server is paused, not running",
            "vNIC nic2 is missing",
        )

    def test_asks_the_guest(self, processor: HandlerProcessor, vm: MakeVm) -> None:
        created(processor, vm())

        observed = processor.probe(vm()).result().observed

        assert observed
        assert observed.guest
        assert observed.guest.reachable
        assert observed.interfaces[0].guest_name == "eth0"

    def test_of_a_guest_that_does_not_answer_is_no_failure(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        created(processor, vm())
        fakes.fault("guest.ping", kind="fail")

        outcome = processor.probe(vm()).result()

        assert outcome.ok
        assert outcome.observed
        assert outcome.observed.guest
        assert not outcome.observed.guest.reachable


class TestActions:
    def test_pin_cpus_and_read_it_back(self, processor: HandlerProcessor, vm: MakeVm) -> None:
        created(processor, vm())

        outcome = processor.poa(vm(), "cpupin", {"vcpu_cpu_map": [{"vcpu": 0, "cpu": 3}]})

        [vcpu] = outcome.result().data["vcpus"]
        assert (vcpu["vcpu"], vcpu["cpu"], vcpu["affinity"]) == (0, 3, [3])

    def test_take_memory_from_one_node(self, processor: HandlerProcessor, vm: MakeVm) -> None:
        created(processor, vm())

        outcome = processor.poa(vm(), "numatune", {"node_set": [1]}).result()

        assert outcome.data["node_set"] == "1"

    def test_add_and_remove_keys(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        created(processor, vm(ssh_keys=()))
        key = vm().ssh_keys[0]

        added = processor.poa(vm(), "addkey", {"keys": [{"key": key, "comment": "alice"}]}).result()
        lines = list(fakes.keys["sliver-1"].values())
        removed = processor.poa(vm(), "removekey", {"keys": [{"key": key}]}).result()

        assert added.data == {"authorized_keys": 1}
        assert lines == [f"{' '.join(key.split()[:2])} alice"]
        assert removed.data == {"authorized_keys": 0}

    def test_a_key_that_was_not_taken_is_not_called_added(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        created(processor, vm(ssh_keys=()))
        fakes.fault("guest.add_keys", kind="lie")

        outcome = processor.poa(vm(), "addkey", {"keys": [{"key": vm().ssh_keys[0]}]}).result()

        assert outcome.error
        assert outcome.error.kind == "NotVerified"

    @pytest.mark.parametrize(
        ("action", "data", "method"),
        [
            ("stop", {}, "compute.stop"),
            ("resize", {"capacities": {"core": 2, "ram": 2, "disk": 1}}, "compute.resize"),
            ("cpupin", {"vcpu_cpu_map": [{"vcpu": 0, "cpu": 3}]}, "tuning.pin_cpus"),
            ("numatune", {"node_set": [1]}, "tuning.set_numa_nodes"),
        ],
    )
    def test_that_did_nothing_are_not_called_done(
        self,
        processor: HandlerProcessor,
        fakes: Substrate,
        vm: MakeVm,
        action: str,
        data: dict[str, object],
        method: str,
    ) -> None:
        created(processor, vm())
        fakes.fault(method, kind="lie")

        outcome = processor.poa(vm(), action, data).result()

        assert outcome.error
        assert outcome.error.kind == "NotVerified"

    @pytest.mark.parametrize(
        ("method", "kind", "left"),
        [
            ("compute.stop", "after", ("unknown: compute.stop may have taken effect",)),
            ("compute.find", "fail", ()),
        ],
    )
    def test_that_fail_name_what_they_may_have_done(
        self,
        processor: HandlerProcessor,
        fakes: Substrate,
        vm: MakeVm,
        method: str,
        kind: Any,
        left: tuple[str, ...],
    ) -> None:
        created(processor, vm())
        fakes.fault(method, kind=kind)

        outcome = processor.poa(vm(), "stop").result()

        assert (outcome.status, outcome.left) == (Status.FAILED, left)

    def test_that_are_refused_did_nothing(self, processor: HandlerProcessor, vm: MakeVm) -> None:
        created(processor, vm())

        outcome = processor.poa(vm(), "numatune", {"node_set": [7]}).result()

        assert (outcome.status, outcome.left) == (Status.REFUSED, ())

    def test_a_start_that_did_nothing_is_not_called_done_where_no_guest_is_asked(
        self, fake_site: Site, fakes: Substrate, vm: MakeVm
    ) -> None:
        site = fake_site.model_copy(update={"guest": "none"})
        with HandlerProcessor(site) as processor:
            created(processor, vm())
            done(processor.poa(vm(), "stop").result())
            fakes.fault("compute.start", kind="lie")

            outcome = processor.poa(vm(), "start").result()

        assert outcome.error
        assert outcome.error.kind == "NotVerified"

    @pytest.mark.parametrize("action", ["stop", "start", "reboot"])
    def test_answer_with_the_state_that_came_of_it(
        self, processor: HandlerProcessor, vm: MakeVm, action: str
    ) -> None:
        created(processor, vm())

        outcome = processor.poa(vm(), action).result()

        assert outcome.data == {"state": "stopped" if action == "stop" else "running"}

    def test_resize_and_change_what_it_was_made_for(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        created(processor, vm())
        larger = {"core": 2, "ram": 2, "disk": 1}

        answer = processor.poa(vm(), "resize", {"capacities": larger}).result()

        assert answer.data == {"state": "running"}, answer.error
        assert (fakes.servers["sliver-1"].cores, fakes.servers["sliver-1"].ram) == (2, 2048)
        observed = processor.probe(vm(capacities=larger)).result().observed
        assert observed
        assert observed.differences == ()

    def test_resize_a_server_that_is_off(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        created(processor, vm())
        done(processor.poa(vm(), "stop").result())

        larger = {"capacities": {"core": 2, "ram": 2, "disk": 1}}
        answer = done(processor.poa(vm(), "resize", larger).result())

        assert (answer.data, fakes.servers["sliver-1"].cores) == ({"state": "stopped"}, 2)

    def test_read_the_console(self, processor: HandlerProcessor, vm: MakeVm) -> None:
        created(processor, vm())

        outcome = processor.poa(vm(), "console", {"lines": 1}).result()

        assert outcome.data == {"console": "sliver-1-node login:"}

    def test_read_the_stamp(self, processor: HandlerProcessor, vm: MakeVm) -> None:
        created(processor, vm(boot_script="#!/bin/sh\n"))

        stamp = Stamp.model_validate(processor.poa(vm(), "stamp").result().data)

        assert stamp == vm(boot_script="#!/bin/sh\n").stamp()

    @pytest.mark.parametrize(
        ("action", "data", "field"),
        [
            ("dance", {}, "action"),
            ("cpupin", {}, "data.vcpu_cpu_map"),
            ("cpupin", {"vcpu_cpu_map": []}, "data.vcpu_cpu_map"),
            ("cpupin", {"vcpu_cpu_map": [{"vcpu": 99, "cpu": 0}]}, "data.vcpu_cpu_map"),
            ("numatune", {"node_set": [-1]}, "data.node_set[0]"),
            ("addkey", {"keys": [{"key": "no key"}]}, "data.keys[0].key"),
            ("addkey", {"keys": [{"key": "ssh-rsa AAAA\nevil"}]}, "data.keys[0].key"),
            ("reboot", {"soft": True}, "data.soft"),
        ],
    )
    def test_refuse_bad_data_by_field(
        self,
        processor: HandlerProcessor,
        vm: MakeVm,
        action: str,
        data: dict[str, object],
        field: str,
    ) -> None:
        created(processor, vm())

        outcome = processor.poa(vm(), action, data).result()

        assert outcome.status is Status.REFUSED
        assert outcome.error
        assert outcome.error.field == field


def test_a_volume_that_is_half_made_is_made_anew(
    processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
) -> None:
    """It has 0 GiB, as a volume of a process that was killed."""
    storage = {"type": "Storage", "id": "data", "size": 2}
    half = Volume("sliver-1", "data", "half made", 0)
    fakes.volumes["sliver-1", "data"] = half

    done(processor.plan(vm(components=[storage])).result(60))
    done(processor.create(vm(components=[storage])).result(60))

    assert fakes.volumes["sliver-1", "data"].size == 2
