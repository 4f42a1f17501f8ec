"""Devices that their server has lost, as by Nova's hard reboot: whose they are, who may clean them."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fabric_direct.doctor import Verdict
from fabric_direct.doctor.devices import check_devices
from fabric_direct.drivers.contract import HostDevice
from fabric_direct.drivers.fake import Substrate, substrate
from fabric_direct.drivers.openstack.servers import driver as servers
from fabric_direct.errors import (
    Conflict,
    DeviceClaimed,
    DeviceLost,
    DeviceUnclean,
    NotOurs,
    Unreachable,
)
from fabric_direct.model import DeviceState, NodeSliver, Outcome, PciAddress, Status
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.outcomes import done
from tests.trust.clock import skipping_faults
from tests.trust.http_cloud import StatefulCloud
from tests.unit.openstack_api import answering
from tests.unit.several_hosts import processor, w1, w2

__all__ = ["processor", "w1", "w2"]

GPU, SECOND, FPGA = map(PciAddress.parse, ("25:00.0", "26:00.0", "28:00.0"))
GPU_1 = {"type": "GPU", "id": "gpu", "bdf": [str(GPU)]}
FPGA_1 = {"type": "FPGA", "id": "fpga", "bdf": [str(FPGA)]}
ALLOWED = [
    {"type": "GPU", "bdf": str(GPU)},
    {"type": "GPU", "bdf": str(SECOND)},
    {"type": "FPGA", "bdf": str(FPGA)},
]
KINDS = ("GPU", "SmartNIC", "SharedNIC", "FPGA", "NVME")
HOSTS = {"w1": {"devices": ALLOWED}, "w2": {"devices": ALLOWED}}

Make = Callable[..., NodeSliver]


@pytest.fixture
def site(fake_site: Site) -> Site:
    values = fake_site.model_dump() | {
        "hosts": HOSTS,
        "guest": "none",
        "drivers": fake_site.drivers | {"FPGA": "fake-cold"},
    }
    return Site.model_validate(values)


@pytest.fixture
def make(vm: Make) -> Make:
    """Make a sliver on the first host, of these components alone."""
    return lambda *components, **values: vm(**{"host": "w1", "components": components} | values)


@pytest.fixture
def lost(processor: HandlerProcessor, make: Make, w1: Substrate) -> NodeSliver:
    """A sliver whose server has lost its GPU."""
    sliver = make(GPU_1)
    done(processor.create(sliver).result())
    w1.lose_devices(sliver.id)
    return sliver


def device(processor: HandlerProcessor, address: PciAddress = GPU) -> HostDevice:
    return next(d for d in processor.devices("w1") if d.address == address)


def move(things: Substrate, to: Substrate, sliver: str, host: str = "w2") -> None:
    """Have a server be on another host, with the stamp that it had."""
    to.servers[sliver] = replace(things.servers.pop(sliver), host=host)


def refused(outcome: Outcome) -> tuple[str, str]:
    """Return kind and words of the error of an operation that left nothing."""
    assert outcome.error
    assert (outcome.status, outcome.left) == (Status.FAILED, ())
    return outcome.error.kind, outcome.error.message


class TestADeviceThatItsServerHasLost:
    def test_is_lost_and_says_whose_it_is_and_what_to_do(
        self, processor: HandlerProcessor, lost: NodeSliver
    ) -> None:
        found = device(processor)

        assert (found.state, found.owner) == (DeviceState.LOST, "sliver-1/gpu")
        assert found.why == (
            "the stamp of server sliver-1-node names it, and no domain has it; fabric-direct reconcile "
            "sliver-1 gives it back; modify sliver-1 without it to clean it"
        )

    def test_is_lost_as_well_if_the_server_is_on_another_host_now(
        self, processor: HandlerProcessor, lost: NodeSliver, w1: Substrate, w2: Substrate
    ) -> None:
        move(w1, w2, lost.id)

        assert device(processor).state is DeviceState.LOST

    def test_is_lost_as_well_if_the_stamp_names_no_host_and_its_record_names_the_sliver(
        self, processor: HandlerProcessor, lost: NodeSliver, w1: Substrate, w2: Substrate
    ) -> None:
        nowhere = lost.model_copy(update={"host": None}).stamp()
        w1.servers[lost.id] = replace(w1.servers[lost.id], stamp=nowhere)
        move(w1, w2, lost.id)

        assert device(processor).state is DeviceState.LOST

    @pytest.mark.parametrize("how", ["peer", "VF"])
    def test_takes_what_is_bound_to_it_along(
        self, processor: HandlerProcessor, lost: NodeSliver, w1: Substrate, how: str
    ) -> None:
        second = replace(w1.devices[SECOND], state=DeviceState.UNCLEAN, why="sliver-1/gpu had it")
        with_vf = replace(second.function, virtual=(GPU,))
        bound = {"peer": replace(second, peers=(GPU,)), "VF": replace(second, function=with_vf)}
        w1.devices[SECOND] = bound[how]

        found = device(processor, SECOND)

        assert (found.state, found.why) == (DeviceState.LOST, "sliver-1/gpu has lost 0000:25:00.0")

    def test_is_used_again_once_the_server_has_it(
        self, processor: HandlerProcessor, lost: NodeSliver
    ) -> None:
        done(processor.modify(lost).result())

        assert device(processor).state is DeviceState.USED

    def test_is_unclean_once_the_server_is_gone(
        self, processor: HandlerProcessor, lost: NodeSliver, w1: Substrate
    ) -> None:
        w1.servers.clear()

        found = device(processor)

        assert (found.state, found.why) == (DeviceState.UNCLEAN, "sliver-1/gpu had it last")

    def test_is_unclean_if_the_stamp_does_not_name_it(
        self, processor: HandlerProcessor, lost: NodeSliver, w1: Substrate, make: Make
    ) -> None:
        w1.servers[lost.id] = replace(w1.servers[lost.id], stamp=make().stamp())

        assert device(processor).state is DeviceState.UNCLEAN

    def test_is_unclean_if_the_stamp_names_that_of_another_host(
        self, processor: HandlerProcessor, lost: NodeSliver, w1: Substrate, make: Make
    ) -> None:
        elsewhere = make(GPU_1, host="w2").stamp()
        w1.servers[lost.id] = replace(w1.servers[lost.id], stamp=elsewhere, host="w2")

        assert device(processor).state is DeviceState.UNCLEAN

    def test_is_that_of_the_host_in_the_stamp_alone(
        self,
        site: Site,
        processor: HandlerProcessor,
        lost: NodeSliver,
        w1: Substrate,
        w2: Substrate,
    ) -> None:
        w2.records[GPU] = replace(w1.records[GPU], sliver="gone")
        move(w1, w2, lost.id)

        found = next(d for d in processor.devices("w2") if d.address == GPU)

        assert (found.state, found.owner) == (DeviceState.UNCLEAN, "gone/gpu")

    def test_stays_quarantined_if_it_is(
        self, processor: HandlerProcessor, lost: NodeSliver, w1: Substrate
    ) -> None:
        w1.records[GPU] = replace(w1.records[GPU], quarantined="block 7 is not zero")

        assert device(processor).state is DeviceState.QUARANTINED

    def test_is_unclean_and_says_what_is_not_known_while_a_host_does_not_answer(
        self, processor: HandlerProcessor, lost: NodeSliver, w2: Substrate
    ) -> None:
        w2.fault("compute.servers", kind="fail")

        found = device(processor)

        assert found.state is DeviceState.UNCLEAN
        assert "whether a server's stamp names it is not known: compute.servers failed" in found.why

    def test_is_unclean_while_a_host_hangs_and_is_not_released(
        self, site: Site, make: Make, w1: Substrate, w2: Substrate
    ) -> None:
        with skipping_faults(), HandlerProcessor(site) as processor:
            done(processor.create(make(GPU_1)).result())
            w1.lose_devices("sliver-1")
            w2.hang()

            found = device(processor)

            assert "is not known: compute.servers did not answer" in found.why
            with pytest.raises(Unreachable, match="did not answer"):
                processor.release("w1", GPU)
            w2.mend()

    def test_costs_one_listing_of_the_servers_for_all_devices(
        self, processor: HandlerProcessor, make: Make, w1: Substrate, w2: Substrate
    ) -> None:
        both = GPU_1 | {"bdf": [str(GPU), str(SECOND)]}
        done(processor.create(make(both, FPGA_1)).result())
        w1.lose_devices("sliver-1")

        processor.devices("w1")

        assert (w1.calls["compute.servers"], w2.calls["compute.servers"]) == (1, 1)

    def test_costs_no_listing_where_nothing_was_left_behind(
        self, processor: HandlerProcessor, make: Make, w1: Substrate
    ) -> None:
        done(processor.create(make(GPU_1)).result())

        processor.devices("w1")

        assert not w1.calls["compute.servers"]


class TestRelease:
    """What a stamp names is the sliver's: its data are there."""

    @pytest.mark.parametrize("force", [False, True])
    def test_of_a_lost_device_is_refused_by_its_sliver_and_server(
        self, processor: HandlerProcessor, lost: NodeSliver, w1: Substrate, *, force: bool
    ) -> None:
        with pytest.raises(DeviceLost) as caught:
            processor.release("w1", GPU, force=force)

        assert str(caught.value) == (
            "0000:25:00.0 is sliver-1/gpu's (w1): the stamp of server sliver-1-node names it, and no "
            "domain has it. fabric-direct reconcile sliver-1 gives it back; modify sliver-1 without it "
            "to clean it."
        )
        assert GPU in w1.records
        assert not w1.calls["device.release"]

    def test_is_refused_as_well_if_the_server_is_on_another_host_now(
        self, processor: HandlerProcessor, lost: NodeSliver, w1: Substrate, w2: Substrate
    ) -> None:
        move(w1, w2, lost.id)

        with pytest.raises(DeviceLost, match="server sliver-1-node"):
            processor.release("w1", GPU, force=True)

    @pytest.mark.parametrize("force", [False, True])
    @pytest.mark.parametrize("silent", ["w1", "w2"])
    def test_is_refused_while_a_host_does_not_answer(
        self,
        site: Site,
        processor: HandlerProcessor,
        lost: NodeSliver,
        w1: Substrate,
        silent: str,
        *,
        force: bool,
    ) -> None:
        w1.servers.clear()
        substrate(site, silent).fault("compute.servers", kind="fail")

        with pytest.raises(Unreachable) as caught:
            processor.release("w1", GPU, force=force)

        assert "0000:25:00.0 is not released: it may be a living sliver's (w1)" in str(caught.value)
        assert "compute.servers failed" in str(caught.value)
        assert GPU in w1.records

    def test_is_refused_if_a_second_look_finds_the_server(
        self, processor: HandlerProcessor, lost: NodeSliver, monkeypatch: Any
    ) -> None:
        monkeypatch.setattr("fabric_direct.drivers.fake.FakeCompute.servers", lambda _: ())

        with pytest.raises(Conflict, match=r"sliver-1 is not gone.*there is sliver-1-node.*delete"):
            processor.release("w1", GPU, force=True)

    def test_is_refused_while_a_domain_is_there_whose_stamp_cannot_be_read(
        self, processor: HandlerProcessor, lost: NodeSliver, w1: Substrate, monkeypatch: Any
    ) -> None:
        def refuse(*_: object) -> None:
            raise NotOurs("domain sliver-1-node is not ours")

        w1.servers.clear()
        monkeypatch.setattr("fabric_direct.drivers.fake.FakeCompute.find", refuse)

        with pytest.raises(Unreachable, match="domain sliver-1-node is not ours"):
            processor.release("w1", GPU)

    def test_of_a_device_that_left_the_bus_is_refused_as_well(
        self, processor: HandlerProcessor, lost: NodeSliver, w1: Substrate
    ) -> None:
        del w1.devices[GPU]

        with pytest.raises(DeviceLost):
            processor.release("w1", GPU, force=True)

    def test_of_a_record_of_another_sliver_is_refused_while_a_stamp_names_the_device(
        self, processor: HandlerProcessor, lost: NodeSliver, w1: Substrate
    ) -> None:
        w1.records[GPU] = replace(w1.records[GPU], sliver="gone")

        with pytest.raises(DeviceLost, match="is sliver-1/gpu's"):
            processor.release("w1", GPU)

    @pytest.mark.parametrize("sliver", ["sliver-1", ""])
    def test_is_refused_if_no_cleaning_has_failed_but_its_record_cannot_be_read(
        self, processor: HandlerProcessor, lost: NodeSliver, w1: Substrate, sliver: str
    ) -> None:
        unreadable = "its record on the host cannot be read"
        w1.records[GPU] = replace(w1.records[GPU], sliver=sliver, quarantined=unreadable)

        with pytest.raises(DeviceLost):
            processor.release("w1", GPU, force=True)

    def test_of_a_device_that_a_server_has_is_refused(
        self, processor: HandlerProcessor, make: Make
    ) -> None:
        done(processor.create(make(GPU_1)).result())

        with pytest.raises(DeviceClaimed, match="sliver-1/gpu has it"):
            processor.release("w1", GPU, force=True)

    def test_sets_it_free_once_the_server_is_gone(
        self, processor: HandlerProcessor, lost: NodeSliver, w1: Substrate
    ) -> None:
        w1.servers.clear()

        processor.release("w1", GPU)

        assert device(processor).state is DeviceState.FREE

    def test_sets_free_what_its_own_sliver_could_not_have_cleaned(
        self, processor: HandlerProcessor, lost: NodeSliver, w1: Substrate, make: Make
    ) -> None:
        w1.dirty = {GPU}
        assert processor.modify(make()).result().error
        w1.records[GPU] = replace(w1.records[GPU], quarantined="block 7 is not zero")

        with pytest.raises(DeviceUnclean):
            processor.release("w1", GPU)
        w1.dirty.clear()
        processor.release("w1", GPU)

        done(processor.modify(make()).result())
        assert device(processor).state is DeviceState.FREE


class TestItsOwnSliver:
    @pytest.mark.parametrize("operation", ["modify", "reconcile"])
    def test_gets_it_back_with_its_data(
        self, processor: HandlerProcessor, lost: NodeSliver, w1: Substrate, operation: str
    ) -> None:
        done(getattr(processor, operation)(lost).result())

        assert [d.host_address for d in w1.plugged[lost.id]] == [GPU]
        assert not w1.calls["device.clean"]

    @pytest.mark.parametrize("operation", ["modify", "reconcile"])
    def test_gets_one_back_that_a_domain_has_from_its_next_start_on_by_a_restart(
        self, processor: HandlerProcessor, make: Make, w1: Substrate, operation: str
    ) -> None:
        sliver = make(FPGA_1)
        done(processor.create(sliver).result())
        w1.lose_devices(sliver.id)

        done(getattr(processor, operation)(sliver).result())

        assert [d.host_address for d in w1.plugged[sliver.id]] == [FPGA]
        assert not w1.pending

    def test_has_it_cleaned_by_a_modify_without_it(
        self, processor: HandlerProcessor, lost: NodeSliver, w1: Substrate, make: Make
    ) -> None:
        done(processor.modify(make()).result())

        assert w1.calls["device.clean"] == 1
        assert device(processor).state is DeviceState.FREE

    def test_has_it_cleaned_by_its_deletion(
        self, processor: HandlerProcessor, lost: NodeSliver
    ) -> None:
        done(processor.delete(lost).result())

        assert device(processor).state is DeviceState.FREE

    @pytest.mark.parametrize("operation", ["create", "modify", "reconcile"])
    def test_keeps_its_data_when_the_operation_that_gives_it_back_fails(
        self, processor: HandlerProcessor, make: Make, w1: Substrate, operation: str
    ) -> None:
        sliver = make(GPU_1, FPGA_1)
        done(processor.create(sliver).result())
        w1.lose_devices(sliver.id)
        w1.fault("device.attach", at=2, kind="fail")

        outcome = getattr(processor, operation)(sliver).result()

        assert outcome.status is Status.FAILED
        assert set(w1.records) == {GPU, FPGA}
        assert not w1.calls["device.clean"]

    def test_is_told_by_probe_what_it_lacks(
        self, processor: HandlerProcessor, lost: NodeSliver
    ) -> None:
        outcome = done(processor.probe(lost).result())

        assert outcome.observed
        assert outcome.observed.differences == ("GPU gpu is missing",)


class TestAnotherSliver:
    @pytest.mark.parametrize("operation", ["create", "plan"])
    def test_that_wants_it_is_refused_by_whose_it_is(
        self, processor: HandlerProcessor, lost: NodeSliver, make: Make, operation: str
    ) -> None:
        kind, words = refused(getattr(processor, operation)(make(GPU_1, id="other")).result())

        assert kind == "DeviceLost"
        assert words == (
            "components[0].bdf[0]: 0000:25:00.0 is sliver-1/gpu's (w1): the stamp of server "
            "sliver-1-node names it, and no domain has it. name another device."
        )

    def test_that_wants_it_as_well_is_refused_by_whose_it_is(
        self, processor: HandlerProcessor, lost: NodeSliver, make: Make
    ) -> None:
        done(processor.create(make(id="other")).result())

        kind, _ = refused(processor.modify(make(GPU_1, id="other")).result())

        assert kind == "DeviceLost"

    def test_is_never_advised_to_release_it_also_if_the_stamps_cannot_be_read(
        self, processor: HandlerProcessor, lost: NodeSliver, make: Make, w2: Substrate
    ) -> None:
        w2.fault("compute.servers", kind="fail")

        kind, words = refused(processor.create(make(GPU_1, id="other")).result())

        assert kind == "DeviceUnclean"
        assert "release" not in words

    def test_that_leaves_its_device_open_gets_another_one(
        self, processor: HandlerProcessor, lost: NodeSliver, make: Make, w1: Substrate
    ) -> None:
        done(processor.create(make({"type": "GPU", "id": "gpu"}, id="other")).result())

        assert [d.host_address for d in w1.plugged["other"]] == [SECOND]

    def test_does_not_count_it_as_free(self, processor: HandlerProcessor, lost: NodeSliver) -> None:
        host = next(host for host in processor.hosts() if host.name == "w1")

        assert {d.functions for d in host.devices} == {(SECOND,), (FPGA,)}


class TestServersThatLackDevices:
    def test_are_told_with_the_device_and_why(
        self, processor: HandlerProcessor, lost: NodeSliver
    ) -> None:
        (lack,) = processor.lacking().found

        assert (lack.sliver, lack.component, lack.address) == ("sliver-1", "gpu", GPU)
        assert lack.why == "no domain has it"

    def test_are_none_while_all_have_theirs(self, processor: HandlerProcessor, make: Make) -> None:
        done(processor.create(make(GPU_1, FPGA_1)).result())

        assert processor.lacking().found == ()

    def test_say_who_has_the_device_instead(
        self, processor: HandlerProcessor, lost: NodeSliver, w1: Substrate
    ) -> None:
        w1.plugged["thief"] = w1.plugged.pop("thief", ()) or ()
        w1.records.clear()
        w1.own(GPU, None)
        thief = lost.model_copy(update={"id": "thief", "name": "thief"})
        done(processor.create(thief).result())

        (lack,) = processor.lacking().found

        assert (lack.sliver, lack.why) == ("sliver-1", "domain thief-thief has it")

    def test_say_that_the_device_left_the_bus(
        self, processor: HandlerProcessor, lost: NodeSliver, w1: Substrate
    ) -> None:
        del w1.devices[GPU]

        assert [lack.why for lack in processor.lacking().found] == ["w1 does not have the device"]

    def test_say_that_they_run_elsewhere(
        self, processor: HandlerProcessor, lost: NodeSliver, w1: Substrate, w2: Substrate
    ) -> None:
        move(w1, w2, lost.id)

        (lack,) = processor.lacking().found

        assert lack.why == "the server is on w2, the device on w1"

    @pytest.mark.parametrize(("action", "lacking"), [("start", 1), ("stop", 0)])
    def test_lack_what_only_their_definition_has_if_they_run(
        self, processor: HandlerProcessor, make: Make, w1: Substrate, action: str, lacking: int
    ) -> None:
        sliver = make(FPGA_1)
        done(processor.create(sliver).result())
        done(processor.poa(sliver, action).result())
        w1.pending.add(sliver.id)

        found = processor.lacking().found

        assert [lack.why for lack in found] == ["the server gets it with its next start"] * lacking

    def test_cost_a_look_at_each_host_that_has_any_and_none_at_others(
        self, processor: HandlerProcessor, make: Make, w1: Substrate, w2: Substrate
    ) -> None:
        for number, component in enumerate((GPU_1, FPGA_1)):
            done(
                processor.create(make(component, id=f"sliver-{number}", name=f"n{number}")).result()
            )
        done(processor.create(make(id="bare", name="bare", host="w2")).result())
        servers = processor.slivers()
        w1.calls.clear()
        w2.calls.clear()

        processor.lacking(servers)

        assert (w1.calls, w2.calls) == ({"device.inventory": 1}, {})

    def test_are_not_known_on_a_host_that_does_not_answer(
        self, processor: HandlerProcessor, lost: NodeSliver, w1: Substrate
    ) -> None:
        w1.fault("device.inventory", kind="fail")

        lacks = processor.lacking()

        assert (lacks.found, list(lacks.unknown)) == ((), ["w1"])
        assert lacks.of(processor.slivers()[0]) is None


class TestTheDoctor:
    def test_warns_of_each_server_that_lacks_a_device(
        self, site: Site, processor: HandlerProcessor, lost: NodeSliver
    ) -> None:
        (found,) = check_devices(site)

        assert (found.subject, found.verdict) == ("devices of sliver-1", Verdict.WARN)
        assert found.found == (
            "its server is running and lacks gpu 0000:25:00.0 (no domain has it)"
        )
        assert found.remedy == "fabric-direct reconcile sliver-1"

    def test_warns_of_a_server_that_is_stopped_as_well(
        self, site: Site, processor: HandlerProcessor, lost: NodeSliver
    ) -> None:
        done(processor.poa(lost, "stop").result())

        (found,) = check_devices(site)

        assert "its server is stopped and lacks gpu" in found.found

    def test_says_that_all_have_theirs(
        self, site: Site, processor: HandlerProcessor, make: Make
    ) -> None:
        done(processor.create(make(GPU_1)).result())

        assert [found.verdict for found in check_devices(site)] == [Verdict.OK]

    def test_asks_nobody_where_no_host_passes_devices_through(
        self, fake_site: Site, fakes: Substrate
    ) -> None:
        assert list(check_devices(fake_site)) == []
        assert not fakes.calls

    @pytest.mark.parametrize("method", ["compute.servers", "device.inventory"])
    def test_warns_of_what_it_cannot_see(
        self, site: Site, lost: NodeSliver, w1: Substrate, method: str
    ) -> None:
        w1.fault(method, kind="fail")

        (found,) = check_devices(site)

        assert found.verdict is Verdict.WARN
        assert f"not known: {method} failed" in found.found


# --- where the stamps are in Nova's metadata


@pytest.fixture
def clouds_folder(kept_connection: Path) -> Path:
    return kept_connection


@pytest.fixture
def cloud(clouds_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StatefulCloud]:
    """A cloud that keeps what it is told; no request leaves the process."""
    cloud = StatefulCloud(clouds_folder)
    with answering(cloud, monkeypatch):
        yield cloud


class OfNova:
    """Slivers whose stamp is in Nova and whose devices' records are on the worker."""

    @pytest.fixture(autouse=True)
    def no_domain(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """libvirt on each worker, as Nova leaves it: without the domain of a deleted server."""
        monkeypatch.setattr(servers, "_has_domain", lambda uri, uuid: False)

    @pytest.fixture
    def site(self, cloud: StatefulCloud, tmp_path: Path) -> Site:
        return cloud.site(
            state_dir=tmp_path / "state",
            drivers=dict.fromkeys(KINDS, "fake") | {"VM": "openstack"},
            guest="none",
            hosts=HOSTS,
            openstack={"make_flavors": True},
        )


class TestAServerOfNova(OfNova):
    @pytest.fixture
    def nova(self, cloud: StatefulCloud, lost: NodeSliver) -> dict[str, Any]:
        """Nova's server of the sliver."""
        (server,) = cloud.things["servers"].values()
        return server

    def test_that_lost_a_device_keeps_it(
        self, processor: HandlerProcessor, nova: dict[str, Any]
    ) -> None:
        found = device(processor)

        assert (found.state, found.owner) == (DeviceState.LOST, "sliver-1/gpu")
        with pytest.raises(DeviceLost, match=f"the stamp of server {nova['id']} names it"):
            processor.release("w1", GPU, force=True)

    def test_that_nova_has_moved_keeps_it(
        self, processor: HandlerProcessor, nova: dict[str, Any]
    ) -> None:
        nova["OS-EXT-SRV-ATTR:host"] = "w2"

        with pytest.raises(DeviceLost):
            processor.release("w1", GPU)

    def test_whose_stamp_cannot_be_read_keeps_it(
        self, processor: HandlerProcessor, nova: dict[str, Any], w1: Substrate
    ) -> None:
        nova["metadata"].clear()

        with pytest.raises(Conflict, match="sliver sliver-1 is not gone"):
            processor.release("w1", GPU)

        assert GPU in w1.records

    def test_that_cannot_be_seen_keeps_it(
        self, processor: HandlerProcessor, cloud: StatefulCloud, lost: NodeSliver, w1: Substrate
    ) -> None:
        cloud._services["compute"] = lambda *_: (500, {"error": {"message": "no cell answers"}})

        with pytest.raises(Unreachable, match="not known: cannot list the servers"):
            processor.release("w1", GPU)

        assert GPU in w1.records
        assert device(processor).state is DeviceState.UNCLEAN

    def test_that_is_gone_leaves_it_to_be_released(
        self, processor: HandlerProcessor, cloud: StatefulCloud, lost: NodeSliver
    ) -> None:
        cloud.things["servers"].clear()

        assert device(processor).state is DeviceState.UNCLEAN
        processor.release("w1", GPU)
        assert device(processor).state is DeviceState.FREE

    def test_has_it_if_its_domain_has_it(
        self, processor: HandlerProcessor, lost: NodeSliver, nova: dict[str, Any]
    ) -> None:
        assert [lack.why for lack in processor.lacking().found] == ["no domain has it"]

        done(processor.modify(lost).result())

        assert processor.lacking().found == ()
        assert [domain.uuid for domain in device(processor).domains] == [nova["id"]]


class TestAServerThatNovaMoved(OfNova):
    """By an evacuation, for one: its worker was taken for dead, and has its devices yet."""

    @pytest.fixture(params=["w2", "w9"], ids=["to a worker of the site", "to one it does not know"])
    def elsewhere(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    @pytest.fixture
    def nova(
        self, cloud: StatefulCloud, processor: HandlerProcessor, make: Make, elsewhere: str
    ) -> dict[str, Any]:
        done(processor.create(make(GPU_1)).result())
        (server,) = cloud.things["servers"].values()
        server["OS-EXT-SRV-ATTR:host"] = elsewhere
        return server

    def test_is_told_with_where_it_is_and_what_it_lacks(
        self, processor: HandlerProcessor, make: Make, nova: dict[str, Any], elsewhere: str
    ) -> None:
        observed = processor.probe(make(GPU_1).ref()).result().observed
        assert observed
        assert f"it is on host {elsewhere}, not on w1" in observed.differences
        assert "GPU gpu is missing" in observed.differences

    def test_is_not_repaired_where_it_is(
        self, processor: HandlerProcessor, make: Make, nova: dict[str, Any], elsewhere: str
    ) -> None:
        outcome = processor.reconcile(make().ref()).result()
        assert not outcome.ok
        assert outcome.error
        assert f"it is on host {elsewhere}, not on w1" in outcome.error.message

    def test_leaves_nothing_on_the_worker_where_it_was(
        self, processor: HandlerProcessor, make: Make, nova: dict[str, Any], w1: Substrate
    ) -> None:
        w1.lose_devices("sliver-1")
        done(processor.delete(make().ref()).result())
        assert device(processor).state is DeviceState.FREE
        assert w1.records == {}

    def test_is_not_deleted_as_long_as_its_former_domain_has_the_device(
        self, processor: HandlerProcessor, make: Make, nova: dict[str, Any], w1: Substrate
    ) -> None:
        outcome = processor.delete(make().ref()).result()
        assert not outcome.ok
        assert any(str(GPU) in each for each in outcome.left), outcome.left
        assert [each.sliver["id"] for each in processor.unfinished()] == ["sliver-1"]

        w1.lose_devices("sliver-1")
        done(processor.delete(make().ref()).result())
        assert device(processor).state is DeviceState.FREE
