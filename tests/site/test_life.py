"""The life of Nova's server with devices of its worker. No guest is waited for."""

from collections.abc import Callable
from typing import Any

import pytest
from openstack.connection import Connection

from fabric_direct.config import Site
from fabric_direct.model import DeviceState, State
from fabric_direct.processor import HandlerProcessor
from tests.outcomes import done, made
from tests.site.conftest import (
    DRIVE,
    HOST,
    OTHER_DRIVE,
    VF,
    domain_of,
    drive,
    hostdevs,
    nic,
    sliver,
    states,
)
from tests.worker.conftest import Worker

pytestmark = pytest.mark.usefixtures("nothing_left")


def test_from_its_creation_to_its_end(processor: HandlerProcessor, worker: Worker) -> None:
    wanted = sliver(nic(bandwidth=100), drive())
    observed = done(processor.create(wanted).result()).observed
    assert observed
    assert observed.host == HOST
    (card,) = (each for each in observed.devices if each.component == "nic1")
    assert (card.mac, card.vlan, card.bandwidth) == ("52:54:00:0f:51:01", 304, 100)
    assert card.bridge_mode == "vepa"
    assert hostdevs(domain_of(worker, processor, wanted.id)) == 2
    vf = worker.vf("enp1s0", 0)
    assert (vf["address"], vf["vlan_list"][0]["vlan"]) == ("52:54:00:0f:51:01", 304)
    assert states(processor)[VF] is states(processor)[DRIVE] is DeviceState.USED

    assert made(done(processor.create(wanted).result())) == set()
    probed = processor.probe(wanted).result().observed
    assert probed
    assert probed.differences == ()

    changed = sliver(nic(bandwidth=200, vlan=305), drive(OTHER_DRIVE, "drive2"))
    done(processor.modify(changed).result())
    assert states(processor)[DRIVE] is DeviceState.FREE
    assert states(processor)[OTHER_DRIVE] is DeviceState.USED
    vf = worker.vf("enp1s0", 0)
    assert (vf["rate"]["max_tx"], vf["vlan_list"][0]["vlan"]) == (200, 305)
    probed = processor.probe(changed).result().observed
    assert probed
    assert probed.differences == ()

    done(processor.delete(changed.ref()).result())
    assert {states(processor)[each] for each in (VF, DRIVE, OTHER_DRIVE)} == {DeviceState.FREE}


@pytest.fixture
def with_devices(processor: HandlerProcessor, nothing_left: None) -> Any:
    """A sliver with a VF and a drive."""
    wanted = sliver(nic(), drive())
    done(processor.create(wanted).result())
    yield wanted
    done(processor.delete(wanted.ref()).result())


class TestBehindOurBack:
    def test_what_novas_hard_reboot_took_is_told_and_given_back(
        self, processor: HandlerProcessor, worker: Worker, cloud: Connection, with_devices: Any
    ) -> None:
        (server,) = processor.slivers()
        cloud.compute.reboot_server(server.instance, "HARD")
        cloud.compute.wait_for_server(cloud.compute.get_server(server.instance), interval=1)
        assert hostdevs(domain_of(worker, processor, with_devices.id)) == 0
        probed = processor.probe(with_devices).result().observed
        assert probed
        assert any("nic1" in each for each in probed.differences)
        assert any("drive1" in each for each in probed.differences)

        done(processor.modify(with_devices).result())
        assert hostdevs(domain_of(worker, processor, with_devices.id)) == 2

    def test_what_was_stopped_and_started_has_its_devices(
        self, processor: HandlerProcessor, worker: Worker, with_devices: Any
    ) -> None:
        done(processor.poa(with_devices.ref(), "stop").result())
        probed = processor.probe(with_devices).result().observed
        assert probed
        assert probed.state is State.STOPPED
        done(processor.poa(with_devices.ref(), "start").result())
        assert hostdevs(domain_of(worker, processor, with_devices.id)) == 2


class TestTwoThatWantOneDevice:
    def test_one_gets_it_and_the_other_is_refused_and_leaves_nothing(
        self, processor: HandlerProcessor, with_devices: Any
    ) -> None:
        second = sliver(drive(), id="fdtest-second")
        outcome = processor.create(second).result()
        assert (outcome.status, outcome.left) == ("failed", ())
        assert outcome.error
        assert f"it belongs to {with_devices.id}/drive1" in outcome.error.message


class TestOnTheWorker:
    def test_a_volume_and_a_vlan_network_come_and_go(
        self, processor: HandlerProcessor, worker: Worker, things: Callable[[], set[str]]
    ) -> None:
        data = {"type": "Storage", "id": "data", "size": 1}
        red = {"type": "vNIC", "id": "eth1", "network": "red", "interface": {}}
        plain = sliver()
        done(processor.create(plain).result())
        done(processor.modify(sliver(data, red)).result())
        xml = domain_of(worker, processor, plain.id).XMLDesc()
        assert xml.count("<disk type='file' device='disk'") == 2
        assert xml.count("<interface type='bridge'") == 2
        assert "phys1.190" in worker.run("ip", "-br", "link")

        done(processor.modify(plain).result())
        done(processor.delete(plain.ref()).result())
        assert things() == set()


def test_a_worker_that_nova_does_not_know_is_refused_by_name(
    make_site: Callable[..., Site],
) -> None:
    site = make_site()
    hosts = {"worker9": site.hosts[HOST].model_dump(exclude_unset=True)}
    with HandlerProcessor(make_site(hosts=hosts)) as processor:
        outcome = processor.create(sliver(host="worker9", id="fdtest-nowhere")).result()
    assert outcome.status in {"refused", "failed"}
    assert outcome.error
    assert "worker9" in outcome.error.message
    assert outcome.left == ()
