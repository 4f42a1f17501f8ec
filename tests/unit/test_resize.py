"""A server that is resized: it stays on its worker, runs if it ran, and has its devices again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fabric_direct.drivers.contract import HostDevice, PciFunction
from fabric_direct.drivers.fake import Substrate, substrate
from fabric_direct.drivers.openstack.client import name_cache, session
from fabric_direct.drivers.openstack.networks import neutron
from fabric_direct.model import DeviceState, NodeSliver, Outcome, PciAddress, Status
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import AllowedDevice, Host
from tests.trust.http_cloud import StatefulCloud
from tests.trust.http_faults import on

GPU = PciAddress.parse("25:00.0")
LARGER = {"capacities": {"core": 4, "ram": 4, "disk": 1}}


def node(**values: Any) -> NodeSliver:
    usual = {"id": "vm-1", "name": "node", "image": "tiny"}
    size = {"capacities": {"core": 1, "ram": 1, "disk": 1}}
    return NodeSliver.model_validate(usual | size | values)


def with_gpu(**values: Any) -> NodeSliver:
    return node(components=[{"type": "GPU", "id": "gpu", "bdf": [str(GPU)]}], **values)


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[StatefulCloud]:
    cloud = StatefulCloud(tmp_path)
    name_cache._names.clear()
    neutron._caches.clear()
    with on(cloud):
        yield cloud
    session._connections.clear()


@pytest.fixture
def processor(cloud: StatefulCloud, tmp_path: Path) -> Iterator[HandlerProcessor]:
    allowed = Host(devices=(AllowedDevice(type="GPU", bdf=GPU),))
    site = cloud.site(
        state_dir=tmp_path / "state",
        drivers={"VM": "openstack", "GPU": "fake"},
        guest="none",
        hosts={"w1": allowed},
        openstack={"make_flavors": True},
    )
    with HandlerProcessor(site) as processor:
        yield processor


@pytest.fixture
def fakes(processor: HandlerProcessor, cloud: StatefulCloud) -> Substrate:
    """The worker's devices; a domain that Nova makes anew has none."""
    fakes = substrate(processor.site, "w1")
    fakes.devices[GPU] = HostDevice(PciFunction(GPU, "10de", "1db6"), DeviceState.FREE)
    cloud.rebuilt = fakes.plugged.clear
    return fakes


def the(cloud: StatefulCloud) -> tuple[str, str, str, int]:
    """Return status, worker, flavor and CPUs of the only server."""
    (server,) = cloud.things["servers"].values()
    flavor = server["flavor"]
    return (
        server["status"],
        server["OS-EXT-SRV-ATTR:host"],
        flavor["original_name"],
        flavor["vcpus"],
    )


def resized(processor: HandlerProcessor, sliver: NodeSliver, *, stopped: bool = False) -> Outcome:
    made = processor.create(sliver).result()
    assert made.ok, made.error
    if stopped:
        assert processor.poa(sliver, "stop").result().ok
    return processor.poa(sliver, "resize", LARGER).result()


def plugged(fakes: Substrate) -> list[str]:
    return [device.component for device in fakes.plugged.get("vm-1", ())]


class TestOneThatNamesItsWorker:
    def test_is_resized_there(self, processor: HandlerProcessor, cloud: StatefulCloud) -> None:
        outcome = resized(processor, node(host="w1"))

        assert outcome.data == {"state": "running"}, outcome.error
        assert (the(cloud)[:2], the(cloud)[3]) == (("ACTIVE", "w1"), 4)

    def test_is_taken_back_where_nova_moves_it_and_runs_as_before(
        self, processor: HandlerProcessor, cloud: StatefulCloud
    ) -> None:
        cloud.moves_to = "w2"

        outcome = resized(processor, node(host="w1"))

        assert (outcome.status, outcome.left) == (Status.FAILED, ())
        assert outcome.error
        assert "Nova moved it to w2; it was taken back" in outcome.error.message
        assert the(cloud) == ("ACTIVE", "w1", "small", 1)

    def test_that_is_off_is_taken_back_and_stays_off(
        self, processor: HandlerProcessor, cloud: StatefulCloud
    ) -> None:
        cloud.moves_to = "w2"

        outcome = resized(processor, node(host="w1"), stopped=True)

        assert outcome.status is Status.FAILED
        assert the(cloud) == ("SHUTOFF", "w1", "small", 1)

    def test_is_refused_where_its_worker_has_no_room_before_anything_is_touched(
        self, processor: HandlerProcessor, cloud: StatefulCloud
    ) -> None:
        cloud.stock["VCPU"] = 3

        outcome = resized(processor, node(host="w1"))

        assert (outcome.status, outcome.left) == (Status.REFUSED, ())
        assert outcome.error
        assert outcome.error.field == "capacities"
        assert "VCPU: 4 asked for, 3 left" in outcome.error.message
        assert not [c for c in cloud.calls if c[0] == "POST" and "resize" in (c[3] or {})]


class TestOneThatLeavesItsWorkerOpen:
    def test_goes_where_nova_moves_it(
        self, processor: HandlerProcessor, cloud: StatefulCloud
    ) -> None:
        cloud.moves_to = "w2"

        outcome = resized(processor, node())

        assert outcome.ok, outcome.error
        assert the(cloud)[:2] == ("ACTIVE", "w2")


class TestOneThatIsOff:
    def test_stays_off(self, processor: HandlerProcessor, cloud: StatefulCloud) -> None:
        outcome = resized(processor, node(), stopped=True)

        assert outcome.data == {"state": "stopped"}, outcome.error
        assert (the(cloud)[0], the(cloud)[3]) == ("SHUTOFF", 4)


class TestOneWithDevices:
    def test_has_them_again_when_it_is_called_done(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        outcome = resized(processor, with_gpu(host="w1"))

        assert outcome.ok, outcome.error
        assert plugged(fakes) == ["gpu"]
        assert any("put right after the restart" in warning for warning in outcome.warnings)

    def test_has_them_again_where_nova_moved_it(
        self, processor: HandlerProcessor, cloud: StatefulCloud, fakes: Substrate
    ) -> None:
        cloud.moves_to = "w2"

        outcome = resized(processor, with_gpu(host="w1"))

        assert outcome.status is Status.FAILED
        assert the(cloud)[:2] == ("ACTIVE", "w1")
        assert plugged(fakes) == ["gpu"]

    def test_says_that_it_has_not_where_they_cannot_be_given_back(
        self, processor: HandlerProcessor, cloud: StatefulCloud, fakes: Substrate
    ) -> None:
        cloud.moves_to = "w2"
        cloud.rebuilt = lambda: (fakes.plugged.clear(), fakes.fault("device.attach", kind="fail"))

        outcome = resized(processor, with_gpu(host="w1"))

        assert outcome.error
        assert "its devices are not back" in outcome.error.message

    def test_that_is_off_gets_them_when_it_is_started(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        sliver = with_gpu(host="w1")
        assert resized(processor, sliver, stopped=True).data == {"state": "stopped"}
        assert plugged(fakes) == []

        assert processor.poa(sliver, "start").result().ok

        assert plugged(fakes) == ["gpu"]
