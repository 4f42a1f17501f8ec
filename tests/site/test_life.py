"""The life of Nova's server with devices of its worker. No guest is waited for."""

from collections.abc import Callable
from xml.etree import ElementTree

import pytest

from fabric_direct.model import DeviceState
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.outcomes import done, made
from tests.site.conftest import (
    DRIVE,
    HOST,
    OTHER_DRIVE,
    UPLINK,
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
    vf = worker.vf(UPLINK, 0)
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
    vf = worker.vf(UPLINK, 0)
    assert (vf["rate"]["max_tx"], vf["vlan_list"][0]["vlan"]) == (200, 305)
    probed = processor.probe(changed).result().observed
    assert probed
    assert probed.differences == ()

    done(processor.delete(changed.ref()).result())
    assert {states(processor)[each] for each in (VF, DRIVE, OTHER_DRIVE)} == {DeviceState.FREE}


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
        assert len(ElementTree.fromstring(xml).findall("devices/interface")) == 2
        flows = worker.run("chroot", "/srv/cloud", "ovs-ofctl", "dump-flows", "br-int")
        assert "mod_vlan_vid:190" in flows

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
