"""The devices of a virtual machine: attached, seen, changed, taken back, cleaned; on fake drivers."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
from pytest_mock import MockerFixture

from fabric_direct.calls.read_cache import warn
from fabric_direct.drivers.contract import DeviceDomain, DeviceRecord, HostDevice, PciFunction
from fabric_direct.drivers.fake import FakeCompute, FakeDevice, Substrate, substrate
from fabric_direct.drivers.fake.inside import GuestState
from fabric_direct.drivers.guests.boot import Boot
from fabric_direct.drivers.guests.guest import Guest
from fabric_direct.errors import TimedOut, Unreachable, Unsupported
from fabric_direct.model import (
    DeviceState,
    NodeSliver,
    Operation,
    Outcome,
    PciAddress,
    SliverRef,
    Status,
    StepStatus,
)
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import AllowedDevice, Host, Site
from tests.unit.faults import at_each_call

MakeVm = Callable[..., NodeSliver]
GPU, SECOND, VF, FPGA, OTHER_FPGA = map(
    PciAddress.parse, ("25:00.0", "26:00.0", "27:10.0", "28:00.0", "29:00.0")
)
GPU_1 = {"type": "GPU", "id": "gpu", "bdf": [str(GPU)]}
GPU_2 = {"type": "GPU", "id": "gpu2", "bdf": [str(SECOND)]}
FPGA_1 = {"type": "FPGA", "id": "fpga", "bdf": [str(FPGA)]}
FPGA_2 = {"type": "FPGA", "id": "fpga2", "bdf": [str(OTHER_FPGA)]}
NIC = {"type": "vNIC", "id": "nic", "network": "red"}
REF = SliverRef(id="sliver-1", type="VM")


def shared(**interface: Any) -> dict[str, Any]:
    return {"type": "SharedNIC", "id": "vf", "bdf": [str(VF)], "interface": interface}


@pytest.fixture
def fake_site(fake_site: Site) -> Site:
    """A site that may pass devices through; those of the FPGAs need a power cycle."""
    allowed = {GPU: "GPU", SECOND: "GPU", VF: "SharedNIC", FPGA: "FPGA", OTHER_FPGA: "FPGA"}
    entries = tuple(AllowedDevice(type=kind, bdf=bdf) for bdf, kind in allowed.items())
    return fake_site.model_copy(
        update={
            "hosts": {"localhost": Host(devices=entries)},
            "drivers": fake_site.drivers | {"FPGA": "fake-cold"},
        }
    )


@pytest.fixture
def fakes(fakes: Substrate) -> Substrate:
    for address in (GPU, SECOND, VF, FPGA, OTHER_FPGA):
        function = PciFunction(address, "10de", "1db6")
        fakes.devices[address] = HostDevice(function, DeviceState.FREE)
    return fakes


@pytest.fixture(autouse=True)
def seen(mocker: MockerFixture) -> Mock:
    """The guest's sight of its devices, which has tests of its own; a fake guest has no sysfs."""
    return mocker.patch.object(Guest, "wait_devices")


@pytest.fixture
def make(vm: MakeVm) -> MakeVm:
    """Make a sliver of these components alone."""
    return lambda *components, **values: vm(components=components, **values)


# What a driver warns of reaches the outcome; what a handler warns of by itself does not.
def done(outcome: Outcome) -> Outcome:
    assert outcome.status is Status.DONE, outcome.error
    return outcome


def has(fakes: Substrate) -> dict[str, list[str]]:
    """Return which components are plugged into the sliver, and which are written down."""
    return {
        "plugged": [device.component for device in fakes.plugged.get("sliver-1", ())],
        "written": [record.component for record in fakes.records.values()],
    }


NOTHING: dict[str, list[str]] = {"plugged": [], "written": []}


def record(component: str = "gpu", address: PciAddress = GPU) -> DeviceRecord:
    return DeviceRecord(address, "GPU", None, "sliver-1", component, "10de", "1db6")


def differences(processor: HandlerProcessor, sliver: SliverRef) -> tuple[str, ...]:
    observed = processor.probe(sliver).result().observed
    assert observed
    return observed.differences


def made(outcome: Outcome) -> list[str]:
    return [step.step for step in outcome.steps if step.status is StepStatus.DONE]


class TestCreate:
    def test_passes_devices_through_and_has_them_in_its_outcome(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm
    ) -> None:
        outcome = done(processor.create(make(GPU_1, shared(vlan=304, bandwidth=100))).result())

        assert outcome.observed
        found = {device.component: device for device in outcome.observed.devices}
        assert (found["gpu"].host_address, found["gpu"].bandwidth) == (GPU, None)
        assert (found["vf"].vlan, found["vf"].bandwidth) == (304, 100)
        assert sorted(has(fakes)["written"]) == ["gpu", "vf"]

    def test_twice_is_the_same_as_once(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm
    ) -> None:
        done(processor.create(make(GPU_1)).result())
        fakes.calls.clear()

        assert made(done(processor.create(make(GPU_1)).result())) == ["guest"]

        assert not fakes.calls["device.attach"] + fakes.calls["device.clean"]

    def test_waits_until_the_guest_sees_them(
        self, processor: HandlerProcessor, make: MakeVm, seen: Mock
    ) -> None:
        done(processor.create(make(GPU_1, GPU_2)).result())

        (waited,) = seen.call_args_list
        assert {device.host_address for device in waited.args[0]} == {GPU, SECOND}
        assert waited.kwargs["timeout"] == processor.site.limits.guest_devices

    def test_restarts_a_guest_that_does_not_see_them(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm, seen: Mock
    ) -> None:
        seen.side_effect = [TimedOut("the guest does not see 0000:25:00.0 (gpu)"), None]

        done(processor.create(make(GPU_1)).result())

        assert fakes.calls["compute.reboot"] == 1

    def test_keeps_a_guest_that_cannot_show_them_and_names_them(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm, seen: Mock
    ) -> None:
        """A BSD has no sysfs."""
        why = "the guest cannot show whether it has 0000:25:00.0 (gpu)"
        seen.side_effect = Unsupported(why)

        outcome = done(processor.create(make(GPU_1)).result())

        assert fakes.calls["compute.reboot"] == 0
        assert outcome.warnings == (why,)

    def test_does_not_restart_a_guest_whose_boot_goes_on(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm, seen: Mock
    ) -> None:
        """Its boot script would be broken off, and not run again."""
        fakes.inside["sliver-1"] = GuestState(booting=True)
        seen.side_effect = TimedOut("the guest does not see 0000:25:00.0 (gpu)")

        outcome = done(processor.create(make(GPU_1, wait_for="login")).result())

        assert fakes.calls["compute.reboot"] == 0
        why = (
            "the guest was not restarted, as it does not say that its boot has ended: the guest does "
            "not see 0000:25:00.0"
        )
        assert any(why in warning for warning in outcome.warnings)

    def test_restarts_a_guest_that_has_booted_and_does_not_answer_any_more(
        self,
        processor: HandlerProcessor,
        fakes: Substrate,
        make: MakeVm,
        seen: Mock,
        mocker: MockerFixture,
    ) -> None:
        seen.side_effect = [TimedOut("the guest does not see 0000:25:00.0 (gpu)"), None]
        mocker.patch.object(Guest, "boot", side_effect=Unreachable("no answer"))
        mocker.patch.object(Guest, "wait_boot", return_value=Boot.FINISHED)

        done(processor.create(make(GPU_1)).result())

        assert fakes.calls["compute.reboot"] == 1

    def test_keeps_a_guest_that_cannot_show_them_after_its_restart_either(
        self, processor: HandlerProcessor, make: MakeVm, seen: Mock
    ) -> None:
        seen.side_effect = [TimedOut("no answer"), Unsupported("the guest cannot show them")]

        outcome = done(processor.create(make(GPU_1)).result())

        assert "the guest cannot show them" in outcome.warnings

    def test_says_that_it_restarted_the_guest(
        self, processor: HandlerProcessor, make: MakeVm, seen: Mock
    ) -> None:
        seen.side_effect = [TimedOut("the guest does not see 0000:25:00.0 (gpu)"), None]

        outcome = processor.create(make(GPU_1)).result()

        assert outcome.warnings == (
            "the guest was restarted, for the guest does not see 0000:25:00.0 (gpu)",
        )

    def test_fails_if_the_guest_does_not_see_them_after_that_either(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm, seen: Mock
    ) -> None:
        seen.side_effect = TimedOut("the guest does not see 0000:25:00.0 (gpu)")

        outcome = processor.create(make(GPU_1)).result()

        assert outcome.status is Status.FAILED
        assert outcome.left == ()
        assert (fakes.servers, has(fakes)) == ({}, NOTHING)

    @at_each_call(
        {
            "device.check": (1, 2),
            "device.differences": (1, 2, 3),
            "device.plugged": (1, 2, 3),
            "device.attach": (1, 2),
            "device.records": (1, 2),
        }
    )
    def test_leaves_nothing_when_a_call_fails(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm, method: str, at: int
    ) -> None:
        fakes.fault(method, at=at, kind="fail")

        outcome = processor.create(make(GPU_1, GPU_2)).result()

        assert outcome.status is Status.FAILED
        assert outcome.left == ()
        assert (fakes.servers, has(fakes)) == ({}, NOTHING)

    @at_each_call({"device.detach": (1, 2), "device.records": (3,), "device.clean": (1, 2)})
    def test_leaves_nothing_when_a_call_fails_while_it_is_taken_back(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm, method: str, at: int
    ) -> None:
        fakes.fault(method, at=at, kind="fail")
        fakes.fault("guest.wait", kind="fail")

        outcome = processor.create(make(GPU_1, GPU_2)).result()

        assert outcome.status is Status.FAILED
        assert outcome.left == ()
        assert (fakes.servers, has(fakes)) == ({}, NOTHING)

    def test_that_fails_names_a_device_that_could_not_be_cleaned(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm
    ) -> None:
        fakes.fault("guest.wait", kind="fail")
        fakes.dirty = {GPU}

        outcome = processor.create(make(GPU_1)).result()

        assert outcome.status is Status.PARTIAL
        (left,) = outcome.left
        assert left.startswith("device 0000:25:00.0 of gpu: ")

    def test_of_a_device_that_another_sliver_has_names_the_owner(
        self, processor: HandlerProcessor, make: MakeVm
    ) -> None:
        done(processor.create(make(GPU_1)).result())

        outcome = processor.create(make(GPU_1, id="sliver-2")).result()

        assert outcome.error
        assert outcome.error.kind == "DeviceClaimed"
        assert "sliver-1/gpu" in outcome.error.message

    def test_of_a_device_that_another_sliver_has_names_the_component(
        self, processor: HandlerProcessor, make: MakeVm
    ) -> None:
        done(processor.create(make(GPU_1)).result())

        outcome = processor.create(make(NIC, GPU_1, id="sliver-2")).result()

        assert outcome.error
        assert outcome.error.field == "components[1].bdf[0]"

    def test_on_a_cloud_needs_a_worker_that_the_site_knows(
        self,
        processor: HandlerProcessor,
        fake_site: Site,
        make: MakeVm,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(FakeCompute, "cloud", True)

        outcome = processor.create(make(GPU_1)).result()

        assert outcome.error
        assert outcome.error.kind == "Unsupported"
        assert "name the host in the sliver" in outcome.error.message
        assert not substrate(fake_site, "").servers

    def test_on_a_cloud_passes_them_to_the_domain_that_the_cloud_made(
        self,
        processor: HandlerProcessor,
        make: MakeVm,
        monkeypatch: pytest.MonkeyPatch,
        mocker: MockerFixture,
    ) -> None:
        monkeypatch.setattr(FakeCompute, "cloud", True)
        attach = mocker.spy(FakeDevice, "attach")

        done(processor.create(make(GPU_1, host="localhost")).result())

        (asked,) = attach.call_args_list
        assert asked.args[1] == DeviceDomain("sliver-1", "sliver-1-node")


class TestAKilledCreation:
    """It has written devices down, perhaps plugged them in, and its server is there or not."""

    def test_is_finished_with_the_devices_that_it_took(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm
    ) -> None:
        fakes.records = {GPU: record()}

        done(processor.create(make(GPU_1)).result())

        assert has(fakes) == {"plugged": ["gpu"], "written": ["gpu"]}
        assert not fakes.calls["device.clean"]

    def test_has_its_devices_cleaned_by_the_next_that_does_not_want_them(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm
    ) -> None:
        fakes.records = {GPU: record(), SECOND: record("gpu2", SECOND)}

        outcome = done(processor.create(make(GPU_1)).result())

        assert has(fakes) == {"plugged": ["gpu"], "written": ["gpu"]}
        assert made(outcome)[0] == "clean gpu2 0000:26:00.0"

    def test_has_its_devices_cleaned_by_delete(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        fakes.records = {GPU: record()}

        done(processor.delete(REF).result())

        assert has(fakes) == NOTHING

    def test_leaves_other_slivers_what_is_theirs(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm
    ) -> None:
        theirs = replace(record("gpu2", SECOND), sliver="sliver-2")
        fakes.records = {GPU: record(), SECOND: theirs}

        done(processor.delete(REF).result())

        assert fakes.records == {SECOND: theirs}


class TestModify:
    @pytest.mark.parametrize("at", range(1, 5))
    def test_cleans_a_device_whose_record_one_answer_lacks(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm, at: int
    ) -> None:
        done(processor.create(make(GPU_1)).result())
        fakes.fault("device.records", at=at, kind="incomplete")

        done(processor.modify(make()).result())

        assert has(fakes) == NOTHING

    def test_adds_the_first_device(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm
    ) -> None:
        done(processor.create(make()).result())

        done(processor.modify(make(GPU_1)).result())

        assert has(fakes) == {"plugged": ["gpu"], "written": ["gpu"]}

    def test_adds_a_device(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm
    ) -> None:
        done(processor.create(make(GPU_1)).result())

        outcome = done(processor.modify(make(GPU_1, GPU_2)).result())

        assert {"device gpu2"} <= set(made(outcome))
        assert has(fakes) == {"plugged": ["gpu", "gpu2"], "written": ["gpu", "gpu2"]}

    def test_removes_a_device_and_cleans_it(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm
    ) -> None:
        done(processor.create(make(GPU_1, GPU_2)).result())

        outcome = done(processor.modify(make(GPU_2)).result())

        assert made(outcome)[-3:] == ["detach device gpu", "clean gpu 0000:25:00.0", "stamp"]
        assert has(fakes) == {"plugged": ["gpu2"], "written": ["gpu2"]}

    def test_twice_is_the_same_as_once(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm
    ) -> None:
        done(processor.create(make(GPU_1, GPU_2)).result())
        done(processor.modify(make(GPU_2)).result())

        assert made(done(processor.modify(make(GPU_2)).result())) == ["guest"]

    def test_that_fails_cleans_what_it_added(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm
    ) -> None:
        done(processor.create(make(GPU_1)).result())
        fakes.fault("guest.wait", kind="fail")

        outcome = processor.modify(make(GPU_1, GPU_2)).result()

        assert (outcome.status, outcome.left) == (Status.FAILED, ())
        assert has(fakes) == {"plugged": ["gpu"], "written": ["gpu"]}

    def test_whose_device_cannot_be_detached_is_taken_back(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm
    ) -> None:
        done(processor.create(make(GPU_1)).result())
        fakes.fault("device.detach", kind="fail")

        outcome = processor.modify(make(GPU_2)).result()

        assert (outcome.status, outcome.left) == (Status.FAILED, ())
        assert has(fakes) == {"plugged": ["gpu"], "written": ["gpu"]}

    def test_plugs_in_what_was_pulled(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm
    ) -> None:
        done(processor.create(make(GPU_1)).result())
        fakes.plugged.clear()

        done(processor.modify(make(GPU_1)).result())

        assert has(fakes)["plugged"] == ["gpu"]

    def test_that_fails_leaves_what_was_pulled_as_it_was_and_the_slivers(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm
    ) -> None:
        done(processor.create(make(GPU_1)).result())
        fakes.plugged.clear()
        fakes.fault("guest.wait", kind="fail")

        outcome = processor.modify(make(GPU_1)).result()

        assert (outcome.status, outcome.left) == (Status.FAILED, ())
        assert has(fakes) == {"plugged": [], "written": ["gpu"]}

    def test_that_fails_does_not_take_back_what_it_put_right(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm
    ) -> None:
        done(processor.create(make(shared(bandwidth=100))).result())
        (device,) = fakes.plugged["sliver-1"]
        fakes.plugged["sliver-1"] = (replace(device, vlan=7),)
        fakes.fault("guest.wait", kind="fail")

        outcome = processor.modify(make(shared(bandwidth=100))).result()

        assert (outcome.status, outcome.left) == (Status.FAILED, ())

    def test_removes_what_a_killed_one_plugged_in(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm
    ) -> None:
        done(processor.create(make(GPU_1, GPU_2)).result())
        stamp = make(GPU_1).stamp()
        fakes.servers["sliver-1"] = replace(fakes.servers["sliver-1"], stamp=stamp)

        done(processor.modify(make(GPU_1)).result())

        assert has(fakes) == {"plugged": ["gpu"], "written": ["gpu"]}

    def test_that_cannot_clean_in_the_end_says_so_until_the_device_is_released(
        self, processor: HandlerProcessor, fake_site: Site, fakes: Substrate, make: MakeVm
    ) -> None:
        done(processor.create(make(GPU_1, GPU_2)).result())
        fakes.dirty = {GPU}

        first, second = (processor.modify(make(GPU_2)).result() for _ in range(2))
        FakeDevice(fake_site, "localhost").release(GPU, force=True)

        for outcome in (first, second):
            assert outcome.status is Status.PARTIAL
            assert any("clean gpu 0000:25:00.0" in left for left in outcome.left)
        done(processor.modify(make(GPU_2)).result())
        assert has(fakes) == {"plugged": ["gpu2"], "written": ["gpu2"]}


class TestVlanAndBandwidthOfASharedNic:
    @pytest.fixture(params=[False, True], ids=["of libvirt", "of a cloud"])
    def cloud(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
        monkeypatch.setattr(FakeCompute, "cloud", request.param)
        return bool(request.param)

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ({}, {"bandwidth": 100}),
            ({"bandwidth": 100}, {}),
            ({}, {"vlan": 304}),
            ({"vlan": 304}, {}),
            ({"vlan": 304, "bandwidth": 100}, {"vlan": 305, "bandwidth": 200}),
        ],
    )
    def test_are_changed_in_place(
        self,
        processor: HandlerProcessor,
        fakes: Substrate,
        make: MakeVm,
        cloud: bool,
        before: dict[str, int],
        after: dict[str, int],
    ) -> None:
        done(processor.create(make(shared(**before), host="localhost")).result())
        changed = make(shared(**after), host="localhost")
        fakes.calls.clear()

        outcome = done(processor.modify(changed).result())

        assert outcome.observed
        (device,) = outcome.observed.devices
        assert (device.vlan, device.bandwidth) == (after.get("vlan"), after.get("bandwidth"))
        assert not fakes.calls["device.detach"] + fakes.calls["device.clean"]
        assert differences(processor, changed) == ()

    def test_are_compared_by_a_probe(self, processor: HandlerProcessor, make: MakeVm) -> None:
        done(processor.create(make(shared(vlan=304))).result())

        unlike = differences(processor, make(shared(vlan=305)))

        assert unlike == ("ua-sliver-1-vf-0 has VLAN 304, not 305",)

    def test_are_as_before_after_a_modification_that_failed(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm
    ) -> None:
        done(processor.create(make(shared(vlan=304, bandwidth=100))).result())
        before = dict(fakes.plugged)
        fakes.fault("guest.wait", kind="fail")

        outcome = processor.modify(make(shared(vlan=305, bandwidth=200))).result()

        assert (outcome.status, outcome.left) == (Status.FAILED, ())
        assert fakes.plugged == before
        assert not fakes.calls["device.clean"]

    def test_are_finished_by_the_next_after_a_killed_modification(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm
    ) -> None:
        done(processor.create(make(shared(vlan=304))).result())
        (there,) = fakes.plugged["sliver-1"]
        fakes.plugged["sliver-1"] = (replace(there, vlan=305),)
        assert differences(processor, REF) == ("ua-sliver-1-vf-0 has VLAN 305, not 304",)

        done(processor.modify(make(shared(vlan=305))).result())

        assert differences(processor, REF) == ()

    def test_are_all_of_it_that_can_be_changed(
        self, processor: HandlerProcessor, make: MakeVm
    ) -> None:
        done(processor.create(make(shared(vlan=304))).result())

        outcome = processor.modify(make(shared(vlan=304, mac="52:54:00:00:00:07"))).result()

        assert outcome.status is Status.REFUSED
        assert outcome.error
        assert outcome.error.field == "components[0].interface.mac"


class TestRootPorts:
    @pytest.mark.parametrize("planned", [False, True])
    def test_that_are_too_few_are_found_before_anything_is_touched(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm, *, planned: bool
    ) -> None:
        done(processor.create(make(GPU_1)).result())
        fakes.root_ports = 2
        fakes.calls.clear()

        wanted = make(GPU_1, GPU_2, NIC)
        asked = processor.plan(wanted) if planned else processor.modify(wanted)
        outcome = asked.result()

        assert outcome.status is Status.REFUSED
        assert outcome.error
        assert outcome.error.field == "components"
        assert "too few free PCIe root ports: 2 needed, 1 free" in outcome.error.message
        assert not fakes.calls["network.create_port"] + fakes.calls["device.attach"]

    def test_that_are_just_enough_are_used(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm
    ) -> None:
        done(processor.create(make(GPU_1)).result())
        fakes.root_ports = 3

        done(processor.modify(make(GPU_1, GPU_2, NIC)).result())


class TestDevicesThatNeedAPowerCycle:
    def test_have_one_for_all_of_them_when_the_server_is_made(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm
    ) -> None:
        outcome = done(processor.create(make(FPGA_1, FPGA_2, GPU_1)).result())

        steps = made(outcome)
        assert steps.index("power cycle") > max(map(steps.index, ("device fpga", "device fpga2")))
        assert (fakes.calls["device.restart"], fakes.pending) == (1, set())

    def test_are_alone_in_that(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm
    ) -> None:
        outcome = done(processor.create(make(GPU_1, shared())).result())

        assert "power cycle" not in [step.step for step in outcome.steps]
        assert not fakes.calls["device.restart"]

    def test_have_one_when_they_are_added(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm
    ) -> None:
        done(processor.create(make(FPGA_1)).result())
        fakes.calls.clear()

        outcome = done(processor.modify(make(FPGA_1, FPGA_2)).result())

        assert made(outcome)[:2] == ["device fpga2", "power cycle"]
        assert fakes.calls["device.restart"] == 1

    def test_have_one_when_they_are_removed_before_they_are_cleaned(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm
    ) -> None:
        done(processor.create(make(FPGA_1)).result())
        fakes.calls.clear()

        outcome = done(processor.modify(make()).result())

        detached, cycled, cleaned = made(outcome)[-4:-1]
        assert (detached, cleaned) == ("detach device fpga", "clean fpga 0000:28:00.0")
        assert cycled.startswith("power cycle")
        assert fakes.calls["device.restart"] == 1

    def test_can_be_replaced_by_others(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm
    ) -> None:
        done(processor.create(make(FPGA_1)).result())

        done(processor.modify(make(FPGA_2)).result())

        assert has(fakes) == {"plugged": ["fpga2"], "written": ["fpga2"]}

    def test_that_wait_after_a_killed_operation_have_it_by_the_next(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm
    ) -> None:
        done(processor.create(make(FPGA_1)).result())
        fakes.pending.add("sliver-1")

        outcome = done(processor.create(make(FPGA_1)).result())

        assert "power cycle" in made(outcome)
        assert fakes.pending == set()

    def test_that_wait_for_it_are_told_and_have_it_by_a_repair(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm
    ) -> None:
        sliver = make(FPGA_1)
        done(processor.create(sliver).result())
        fakes.pending.add("sliver-1")

        observed = done(processor.probe(sliver).result()).observed
        repaired = done(processor.reconcile(sliver.ref()).result()).data["repaired"]

        assert observed
        assert list(observed.differences) == repaired == ["its devices wait for a power cycle"]
        assert fakes.pending == set()

    def test_that_are_there_are_not_cycled_again(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm
    ) -> None:
        done(processor.create(make(FPGA_1)).result())
        fakes.calls.clear()

        done(processor.modify(make(FPGA_1)).result())

        assert not fakes.calls["device.restart"]

    def test_that_the_start_does_not_bring_are_no_success(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm
    ) -> None:
        fakes.fault("device.restart", at=0, kind="lie")

        outcome = processor.create(make(FPGA_1)).result()

        assert outcome.error
        assert outcome.error.kind == "NotVerified"
        assert (fakes.servers, has(fakes)) == ({}, NOTHING)

    def test_are_taken_back_with_a_power_cycle_of_their_own(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm
    ) -> None:
        done(processor.create(make(FPGA_1)).result())
        fakes.calls.clear()
        fakes.fault("guest.wait", kind="fail")

        processor.modify(make(FPGA_1, FPGA_2)).result()

        assert fakes.calls["device.restart"] == 2
        assert fakes.pending == set()
        assert has(fakes) == {"plugged": ["fpga"], "written": ["fpga"]}

    def test_leave_nothing_when_the_modification_fails(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm
    ) -> None:
        done(processor.create(make(FPGA_1)).result())
        fakes.fault("guest.wait", kind="fail")

        outcome = processor.modify(make(FPGA_1, FPGA_2)).result()

        assert (outcome.status, outcome.left) == (Status.FAILED, ())


class TestDelete:
    def test_cleans_every_device_once_the_server_is_gone(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm
    ) -> None:
        done(processor.create(make(GPU_1, shared())).result())

        outcome = done(processor.delete(REF).result())

        steps = made(outcome)
        assert steps[0] == "remove server"
        assert set(steps[1:]) == {"clean gpu 0000:25:00.0", "clean vf 0000:27:10.0"}
        assert has(fakes) == NOTHING

    def test_with_a_device_that_is_quarantined_is_partly_done_until_it_is_released(
        self, processor: HandlerProcessor, fake_site: Site, fakes: Substrate, make: MakeVm
    ) -> None:
        done(processor.create(make(GPU_1, GPU_2, NIC)).result())
        fakes.dirty = {GPU}

        first = processor.delete(REF).result()
        fakes.records[GPU] = replace(fakes.records[GPU], quarantined="block 7 is not zero")
        second = processor.delete(REF).result()
        FakeDevice(fake_site, "localhost").release(GPU, force=True)
        last = processor.delete(REF).result()

        assert (first.status, second.status) == (Status.PARTIAL, Status.FAILED)
        for outcome in (first, second):
            assert outcome.error
            assert outcome.error.kind == "DeviceUnclean"
            assert len(outcome.left) == 1
        assert second.left == ("device 0000:25:00.0 of gpu: quarantined: block 7 is not zero",)
        assert last.ok
        assert not fakes.servers
        assert not fakes.ports
        assert has(fakes) == NOTHING

    def test_leaves_the_devices_unclean_while_the_server_cannot_be_removed(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm
    ) -> None:
        done(processor.create(make(GPU_1)).result())
        fakes.fault("compute.delete", kind="fail")

        outcome = processor.delete(REF).result()

        assert outcome.left == ("sliver-1-node", "device 0000:25:00.0 of gpu: not clean yet")
        assert not fakes.calls["device.clean"]

    def test_asks_no_host_that_passes_nothing_through(
        self, fake_site: Site, fakes: Substrate, make: MakeVm
    ) -> None:
        site = fake_site.model_copy(update={"hosts": {"localhost": Host()}})

        with HandlerProcessor(site) as processor:
            done(processor.create(make()).result())
            done(processor.delete(REF).result())

        assert not [method for method in fakes.calls if method.startswith("device.")]


class TestARestart:
    @pytest.mark.parametrize("action", ["reboot", "start"])
    def test_gives_back_what_it_has_taken(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm, action: str
    ) -> None:
        done(processor.create(make(GPU_1, shared())).result())
        fakes.plugged.clear()

        done(processor.poa(REF, action).result())

        assert sorted(has(fakes)["plugged"]) == ["gpu", "vf"]

    def test_says_what_it_gave_back(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm
    ) -> None:
        done(processor.create(make(GPU_1)).result())
        fakes.plugged.clear()

        outcome = done(processor.poa(REF, "reboot").result())

        assert outcome.warnings == ("put right after the restart: ua-sliver-1-gpu-0 is not so",)


class TestRescan:
    def test_takes_each_device_that_has_one_of_the_functions(
        self, processor: HandlerProcessor, make: MakeVm, mocker: MockerFixture
    ) -> None:
        both = GPU_1 | {"bdf": [str(GPU), str(SECOND)]}
        done(processor.create(make(both, shared())).result())
        rescan = mocker.spy(FakeDevice, "rescan")

        outcome = done(processor.poa(REF, "rescan", {"bdf": [str(SECOND)]}).result())

        assert [asked.args[2].id for asked in rescan.call_args_list] == ["gpu"]
        assert outcome.data == {"devices": [str(GPU), str(SECOND)]}

    def test_refuses_what_the_sliver_has_not_before_it_begins(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm
    ) -> None:
        done(processor.create(make(GPU_1)).result())

        outcome = processor.poa(REF, "rescan", {"bdf": [str(GPU), str(SECOND)]}).result()

        assert outcome.status is Status.REFUSED
        assert outcome.error
        assert outcome.error.field == "data.bdf[1]"
        assert not fakes.calls["device.rescan"]


class TestPlan:
    def test_names_the_devices_the_power_cycle_and_the_cleaning(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm
    ) -> None:
        done(processor.create(make(GPU_1)).result())

        steps = processor.plan(make(GPU_2), Operation.MODIFY).result().steps

        found = {step.step: str(step.finding) for step in steps}
        assert found == {
            "device gpu2": "will create",
            "detach device gpu": "will delete",
            "clean gpu 0000:25:00.0": "will change",
            "stamp": "will change",
        }
        assert has(fakes) == {"plugged": ["gpu"], "written": ["gpu"]}


class TestWarnings:
    @pytest.fixture(autouse=True)
    def drifted(self, mocker: MockerFixture) -> None:
        """Have the driver tell what it put right by the way."""
        for name in ("attach", "clean", "rescan"):
            method = getattr(FakeDevice, name)
            mocker.patch.object(FakeDevice, name, _warning(method, f"{name} put it right"))

    def test_reach_the_outcome_of_each_operation(
        self, processor: HandlerProcessor, make: MakeVm
    ) -> None:
        created = processor.create(make(GPU_1)).result()
        rescanned = processor.poa(REF, "rescan", {"bdf": [str(GPU)]}).result()
        deleted = processor.delete(REF).result()

        assert created.warnings == ("attach put it right",)
        assert rescanned.warnings == ("rescan put it right",)
        assert deleted.warnings == ("clean put it right",)

    def test_reach_that_of_one_that_failed(
        self, processor: HandlerProcessor, fakes: Substrate, make: MakeVm
    ) -> None:
        fakes.fault("guest.wait", kind="fail")

        outcome = processor.create(make(GPU_1)).result()

        assert outcome.status is Status.FAILED
        assert outcome.warnings == ("attach put it right", "clean put it right")


def _warning(method: Callable[..., Any], text: str) -> Callable[..., Any]:
    def call(*args: Any, **kw: Any) -> Any:
        warn(text)
        return method(*args, **kw)

    return call
