"""What others do to a server of Nova that has devices of its worker. No guest is waited for."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest
from openstack.connection import Connection

from fabric_direct.config import Site
from fabric_direct.model import DeviceState, NodeSliver, State
from fabric_direct.processor import HandlerProcessor
from fabric_direct.repair_history import Did, Note
from tests.outcomes import done
from tests.site.conftest import (
    HOST,
    OTHER_DRIVE,
    UPLINK,
    domain_of,
    drive,
    hostdevs,
    nic,
    sliver,
    states,
)
from tests.worker.conftest import Worker

MACHINE = Path(f"/run/fabric-direct-lab/{HOST}.pid")


@pytest.fixture(scope="module")
def site(make_site: Callable[..., Site]) -> Site:
    return make_site(watch={"enabled": True})


@pytest.fixture(scope="module")
def with_devices(processor: HandlerProcessor, nothing_left: None) -> Iterator[NodeSliver]:
    """A sliver with a VF and a drive, which each test leaves as it was."""
    wanted = sliver(nic(), drive())
    done(processor.create(wanted).result())
    yield wanted
    done(processor.delete(wanted.ref()).result())


def reboot_hard(cloud: Connection, processor: HandlerProcessor) -> None:
    """Let Nova make the domain anew, without what it does not know of."""
    (server,) = processor.slivers()
    cloud.compute.reboot_server(server.instance, "HARD")


def test_what_novas_hard_reboot_took_is_told_and_given_back(
    processor: HandlerProcessor, worker: Worker, cloud: Connection, with_devices: NodeSliver
) -> None:
    reboot_hard(cloud, processor)
    (server,) = processor.slivers()
    cloud.compute.wait_for_server(cloud.compute.get_server(server.instance), interval=1)
    assert hostdevs(domain_of(worker, processor, with_devices.id)) == 0
    probed = processor.probe(with_devices).result().observed
    assert probed
    assert any("nic1" in each for each in probed.differences)
    assert any("drive1" in each for each in probed.differences)

    done(processor.modify(with_devices).result())
    assert hostdevs(domain_of(worker, processor, with_devices.id)) == 2


class TestAWatcher:
    @pytest.fixture
    def notes(
        self, processor: HandlerProcessor, with_devices: NodeSliver
    ) -> Iterator["SimpleQueue[Note]"]:
        told: SimpleQueue[Note] = SimpleQueue()
        watcher = processor.watch(told.put)
        yield told
        watcher.stop()

    def test_gives_back_what_novas_hard_reboot_took(
        self,
        processor: HandlerProcessor,
        worker: Worker,
        cloud: Connection,
        with_devices: NodeSliver,
        notes: "SimpleQueue[Note]",
    ) -> None:
        reboot_hard(cloud, processor)
        repaired = ""
        while not ("nic1" in repaired and "drive1" in repaired):
            note = notes.get(timeout=300)
            if note.did is Did.REPAIRED:
                repaired += " ".join(note.differences)
        assert hostdevs(domain_of(worker, processor, with_devices.id)) == 2
        probed = processor.probe(with_devices).result().observed
        assert probed
        assert probed.differences == ()

    def test_sets_the_uplink_to_vepa_again(
        self, processor: HandlerProcessor, worker: Worker, notes: "SimpleQueue[Note]"
    ) -> None:
        worker.run("bridge", "link", "set", "dev", UPLINK, "hwmode", "veb")
        while (note := notes.get(timeout=60)).subject != f"{HOST}/{UPLINK}":
            pass
        assert note.did is Did.REPAIRED, note
        assert processor.bridge_mode(HOST, UPLINK) == "vepa"


def test_what_was_stopped_and_started_has_its_devices(
    processor: HandlerProcessor, worker: Worker, with_devices: NodeSliver
) -> None:
    done(processor.poa(with_devices.ref(), "stop").result())
    probed = processor.probe(with_devices).result().observed
    assert probed
    assert probed.state is State.STOPPED
    done(processor.poa(with_devices.ref(), "start").result())
    assert hostdevs(domain_of(worker, processor, with_devices.id)) == 2


def test_a_worker_that_goes_away_in_an_attach_is_told_and_the_same_again_is_done(
    site: Site, processor: HandlerProcessor, worker: Worker, with_devices: NodeSliver, machine: int
) -> None:
    changed = sliver(nic(), drive(), drive(OTHER_DRIVE, "drive2"))

    def go_away() -> None:
        while worker.driver(OTHER_DRIVE) != "vfio-pci":
            pass
        os.kill(machine, signal.SIGSTOP)

    going = threading.Thread(target=go_away)
    with HandlerProcessor(impatient(site)) as other:
        future = other.modify(changed)
        going.start()
        outcome = future.result()
    going.join()
    os.kill(machine, signal.SIGCONT)
    assert not outcome.ok
    assert outcome.left
    assert [each.sliver["id"] for each in processor.unfinished()] == [with_devices.id]

    done(processor.modify(changed).result())
    assert states(processor)[OTHER_DRIVE] is DeviceState.USED
    done(processor.modify(with_devices).result())
    assert states(processor)[OTHER_DRIVE] is DeviceState.FREE
    assert processor.unfinished() == ()


@pytest.fixture
def machine(worker: Worker) -> Iterator[int]:
    """The process that is the worker; it runs again afterwards."""
    pid = int(MACHINE.read_text().split()[0])
    yield pid
    os.kill(pid, signal.SIGCONT)


def impatient(site: Site) -> Site:
    limits = {"call": 10.0, "modify": 60.0, "undo": 30.0, "unanswered": 10.0}
    return site.model_copy(update={"limits": site.limits.model_copy(update=limits)})


def test_of_two_that_want_one_drive_the_second_is_refused_and_leaves_nothing(
    processor: HandlerProcessor, with_devices: NodeSliver
) -> None:
    outcome = processor.create(sliver(drive(), id="fdtest-second")).result()
    assert (outcome.status, outcome.left) == ("failed", ())
    assert outcome.error
    assert f"it belongs to {with_devices.id}/drive1" in outcome.error.message
