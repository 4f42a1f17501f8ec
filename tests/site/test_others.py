"""What others do to a server of Nova that has devices of its worker. No guest is waited for."""

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue

import pytest
from openstack.compute.v2.server import Server
from openstack.connection import Connection
from openstack.exceptions import ResourceFailure

from fabric_direct.calls.deadline import wait_until
from fabric_direct.model import DeviceState, NodeSliver, Outcome, SliverRef, State
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from fabric_direct.state.repair_history import Note, RepairResult
from tests.outcomes import done
from tests.site.conftest import (
    DRIVE,
    HOST,
    IMAGE,
    OTHER_DRIVE,
    UPLINK,
    domain_of,
    drive,
    hostdevs,
    is_disabled,
    nic,
    sliver,
    states,
)
from tests.worker.conftest import Worker

Modify = Callable[[Callable[[], object]], Outcome]
MACHINE = Path(f"/run/fabric-direct-lab/{HOST}.pid")


@pytest.fixture(scope="module")
def site(make_site: Callable[..., Site]) -> Site:
    return make_site(watch={"enabled": True})


def reboot_hard(cloud: Connection, processor: HandlerProcessor) -> None:
    """Let Nova make the domain anew, without what it does not know of."""
    (server,) = processor.slivers()
    cloud.compute.reboot_server(server.instance, "HARD")


def await_server(cloud: Connection, server: str) -> None:
    """Wait until a server runs and its ports are up, which Neutron says a moment later."""
    cloud.compute.wait_for_server(cloud.compute.get_server(server), interval=1, wait=300)
    ports = partial(cloud.network.ports, device_id=server)
    wait_until("its ports", lambda: all(p.status == "ACTIVE" for p in ports()), timeout=60)


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


def test_a_rescue_takes_the_devices_and_they_are_back_after_its_end(
    processor: HandlerProcessor, worker: Worker, cloud: Connection, with_devices: NodeSliver
) -> None:
    (server,) = processor.slivers()
    rescued = cloud.compute.get_server(server.instance)
    cloud.compute.rescue_server(rescued)
    cloud.compute.wait_for_server(rescued, "RESCUE", interval=1, wait=300)
    assert hostdevs(domain_of(worker, processor, with_devices.id)) == 0
    probed = processor.probe(with_devices).result().observed
    assert probed
    assert any("nic1" in each for each in probed.differences)

    cloud.compute.unrescue_server(rescued)
    await_server(cloud, server.instance)
    done(processor.reconcile(with_devices.ref()).result())
    assert hostdevs(domain_of(worker, processor, with_devices.id)) == 2


def reconciled(site: Site, ref: SliverRef) -> Outcome:
    with HandlerProcessor(site) as processor:
        return processor.reconcile(ref).result()


def test_of_two_processes_that_reconcile_at_once_one_repairs(
    processor: HandlerProcessor,
    site: Site,
    worker: Worker,
    cloud: Connection,
    with_devices: NodeSliver,
) -> None:
    reboot_hard(cloud, processor)
    (server,) = processor.slivers()
    await_server(cloud, server.instance)
    with ProcessPoolExecutor(2) as processes:
        both = [processes.submit(reconciled, site, with_devices.ref()) for _ in range(2)]
        repaired = [done(each.result()).data["repaired"] for each in both]
    assert sorted(map(bool, repaired)) == [False, True]
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
            if note.did is RepairResult.REPAIRED:
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
        assert note.did is RepairResult.REPAIRED, note
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


class TestInTheMidstOfAnAttach:
    """A second drive is being passed through as something happens to the worker."""

    CHANGED = sliver(nic(), drive(), drive(OTHER_DRIVE, "drive2"))

    @pytest.fixture
    def modify(self, site: Site, worker: Worker, with_devices: NodeSliver) -> Modify:
        """Modify the sliver; do something once the worker has given the drive up for the guest."""

        def modify(event: Callable[[], object]) -> Outcome:
            with HandlerProcessor(impatient(site)) as processor:
                future = processor.modify(self.CHANGED)
                while worker.driver(OTHER_DRIVE) != "vfio-pci":
                    assert not future.done(), "the drive was not given up"
                event()
                return future.result()

        return modify

    @pytest.fixture
    def machine(self) -> Iterator[int]:
        """The process that is the worker; it runs again afterwards."""
        pid = int(MACHINE.read_text().split()[0])
        yield pid
        os.kill(pid, signal.SIGCONT)

    def test_a_worker_that_goes_away_is_told_and_the_same_again_is_done(
        self, processor: HandlerProcessor, modify: Modify, with_devices: NodeSliver, machine: int
    ) -> None:
        outcome = modify(lambda: os.kill(machine, signal.SIGSTOP))
        os.kill(machine, signal.SIGCONT)
        assert not outcome.ok
        assert outcome.left
        assert [each.sliver["id"] for each in processor.unfinished()] == [with_devices.id]

        self.finish(processor, with_devices)

    def test_what_the_end_of_libvirtd_breaks_is_told_and_the_same_again_is_done(
        self, processor: HandlerProcessor, worker: Worker, modify: Modify, with_devices: NodeSliver
    ) -> None:
        outcome = modify(lambda: worker.run("systemctl", "restart", "libvirtd"))
        assert outcome.ok or outcome.left or states(processor)[OTHER_DRIVE] is DeviceState.FREE

        self.finish(processor, with_devices)

    def finish(self, processor: HandlerProcessor, was: NodeSliver) -> None:
        """Ask for the same again, and take it back."""
        done(processor.modify(self.CHANGED).result())
        assert states(processor)[OTHER_DRIVE] is DeviceState.USED
        done(processor.modify(was).result())
        assert states(processor)[OTHER_DRIVE] is DeviceState.FREE
        assert processor.unfinished() == ()


class TestADriveThatNovaGivesToo:
    """By an alias of a flavor, as the lab's Nova is configured. Nova and libvirt's users know nothing of
    each other: who comes first has it."""

    CHANGED = sliver(nic(), drive(), drive(OTHER_DRIVE, "drive2"))

    @pytest.fixture
    def flavor(self, cloud: Connection) -> Iterator[str]:
        flavor = cloud.compute.create_flavor(name="fdtest-drive", vcpus=1, ram=256, disk=1)
        specs = {"pci_passthrough:alias": "drive:1"}
        cloud.compute.create_flavor_extra_specs(flavor, specs)
        yield flavor.id
        cloud.compute.delete_flavor(flavor)

    @pytest.fixture
    def with_drive(self, cloud: Connection, flavor: str) -> Iterator[Callable[[], Server]]:
        """Have Nova make a server with the drive, and wait for what comes of it."""
        made: list[Server] = []

        def with_drive() -> Server:
            wait_until("Nova to offer the host", lambda: not is_disabled(cloud, HOST), timeout=120)
            server = cloud.compute.create_server(
                name="fdtest-others",
                flavor_id=flavor,
                image_id=next(cloud.image.images(name=IMAGE)).id,
                networks="none",
                availability_zone=f"nova:{HOST}",
            )
            made.append(server)
            return ended(cloud, server)

        yield with_drive
        for server in made:
            cloud.compute.delete_server(server)
            cloud.compute.wait_for_delete(server, interval=1, wait=120)

    def test_stays_with_novas_server(
        self,
        processor: HandlerProcessor,
        worker: Worker,
        with_devices: NodeSliver,
        with_drive: Callable[[], Server],
    ) -> None:
        server = with_drive()
        assert server.status == "ACTIVE", server.fault
        outcome = processor.modify(self.CHANGED).result()
        assert (outcome.ok, outcome.left) == (False, ())
        assert outcome.error
        assert server.instance_name in outcome.error.message
        assert OTHER_DRIVE.split(":")[1] in worker.run("virsh", "dumpxml", server.instance_name)
        probed = processor.probe(with_devices).result().observed
        assert probed
        assert probed.differences == ()

    def test_stays_with_our_sliver(
        self,
        processor: HandlerProcessor,
        worker: Worker,
        with_devices: NodeSliver,
        with_drive: Callable[[], Server],
    ) -> None:
        done(processor.modify(self.CHANGED).result())
        refused = with_drive()
        assert refused.status == "ERROR"
        assert f"PCI device {OTHER_DRIVE} is in use" in refused.fault["message"]
        assert hostdevs(domain_of(worker, processor, with_devices.id)) == 3
        probed = processor.probe(self.CHANGED).result().observed
        assert probed
        assert probed.differences == ()
        done(processor.modify(with_devices).result())
        assert states(processor)[OTHER_DRIVE] is DeviceState.FREE


def ended(cloud: Connection, server: Server) -> Server:
    """Nova's server once it runs or failed."""
    with suppress(ResourceFailure):
        cloud.compute.wait_for_server(server, interval=1, wait=300)
    return cloud.compute.get_server(server)


def impatient(site: Site) -> Site:
    limits = {"call": 10.0, "modify": 60.0, "undo": 30.0, "unanswered": 10.0}
    return site.model_copy(update={"limits": site.limits.model_copy(update=limits)})


@pytest.mark.parametrize(
    ("action", "data"),
    [
        ("cpuinfo", {}),
        ("numainfo", {}),
        ("cpupin", {"vcpu_cpu_map": [{"vcpu": 0, "cpu": 1}]}),
        ("console", {}),
        ("rescan", {"bdf": [DRIVE]}),
    ],
)
def test_an_action_is_carried_out_by_who_has_it(
    processor: HandlerProcessor, with_devices: NodeSliver, action: str, data: dict[str, object]
) -> None:
    outcome = done(processor.poa(with_devices.ref(), action, data).result())
    assert outcome.data or action in {"cpupin", "rescan"}
    probed = processor.probe(with_devices).result().observed
    assert probed
    assert probed.differences == ()


def test_of_two_that_want_one_drive_the_second_is_refused_and_leaves_nothing(
    processor: HandlerProcessor, with_devices: NodeSliver
) -> None:
    outcome = processor.create(sliver(drive(), id="fdtest-second")).result()
    assert (outcome.status, outcome.left) == ("failed", ())
    assert outcome.error
    assert f"it belongs to {with_devices.id}/drive1" in outcome.error.message
