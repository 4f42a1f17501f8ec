"""Whole slivers with devices on a real worker: made, changed, removed; a process that is killed."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fabric_direct.drivers.libvirt.passthrough.attach import DeviceAttachment
from fabric_direct.drivers.libvirt.passthrough.vf_settings import VirtualFunctions
from fabric_direct.model import DeviceState, NodeSliver, PciAddress, SliverRef, Status
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.outcomes import done
from tests.worker.conftest import Worker

VF, NVME = "0000:01:10.0", "0000:05:00.0"
MAC = "52:54:00:0f:d0:11"


def sliver(*components: dict[str, Any], **values: Any) -> NodeSliver:
    defaults: dict[str, Any] = {
        "id": "fdtest-life",
        "name": "node",
        "image": "tiny",
        "capacities": {"core": 1, "ram": 1, "disk": 1},
        "components": components,
    }
    return NodeSliver.model_validate(defaults | values)


def nic(**interface: Any) -> dict[str, Any]:
    wanted = {"mac": MAC, "vlan": 304, **interface}
    return {"type": "SharedNIC", "id": "nic1", "bdf": [VF], "interface": wanted}


DRIVE = {"type": "NVME", "id": "drive1", "bdf": [NVME]}


@pytest.fixture
def tidy(worker: Worker, unchanged: None) -> Iterator[None]:
    """The uplink, which stays in VEPA, is set back afterwards."""
    yield
    worker.run("bridge", "link", "set", "dev", "enp1s0", "hwmode", "veb")


def states(processor: HandlerProcessor) -> dict[str, DeviceState]:
    wanted = {PciAddress.parse(VF), PciAddress.parse(NVME)}
    found = processor.devices("worker1")
    return {str(d.address): d.state for d in found if d.address in wanted}


def differences(processor: HandlerProcessor, wanted: SliverRef) -> tuple[str, ...]:
    observed = processor.probe(wanted).result().observed
    assert observed
    return observed.differences


@pytest.mark.share
def test_a_node_has_its_devices_sees_them_and_leaves_them_clean(
    make_site: Callable[..., Site], worker: Worker, tidy: None
) -> None:
    with HandlerProcessor(make_site()) as processor:
        outcome = done(processor.create(sliver(nic(bandwidth=100), DRIVE)).result())
        observed = outcome.observed
        assert observed
        card, drive = (
            next(d for d in observed.devices if d.component == name) for name in ("nic1", "drive1")
        )
        assert (card.mac, card.vlan, card.bandwidth) == (MAC, 304, 100)
        assert (card.bridge_mode, drive.bridge_mode) == ("vepa", None)
        assert card.guest_name, outcome
        assert drive.guest_name, outcome
        assert len(card.guest_interfaces) == 1
        assert states(processor) == {VF: DeviceState.USED, NVME: DeviceState.USED}

        changed = sliver(nic(bandwidth=200, vlan=305))
        observed = done(processor.modify(changed).result()).observed
        assert observed
        (now,) = observed.devices
        assert (now.component, now.bandwidth, now.vlan) == ("nic1", 200, 305)
        assert now.guest_interfaces == card.guest_interfaces
        assert worker.vf("enp1s0", 0)["vlan_list"][0]["vlan"] == 305
        assert differences(processor, changed) == ()
        assert states(processor) == {VF: DeviceState.USED, NVME: DeviceState.FREE}
        assert worker.driver(NVME) == "nvme"

        done(processor.delete(changed.ref()).result())
        assert states(processor) == {VF: DeviceState.FREE, NVME: DeviceState.FREE}


@pytest.mark.share
def test_a_node_whose_drive_the_host_has_mounted_fails_and_leaves_nothing(
    make_site: Callable[..., Site], worker: Worker, tidy: None
) -> None:
    disk = worker.namespace(NVME)
    worker.run("mkfs.ext4", "-q", "-F", f"/dev/{disk}")
    worker.run("mount", f"/dev/{disk}", "/mnt")
    with HandlerProcessor(make_site(guest="none")) as processor:
        try:
            outcome = processor.create(sliver(nic(), DRIVE, id="fdtest-used")).result()
            assert states(processor) == {VF: DeviceState.FREE, NVME: DeviceState.HOST_USED}
        finally:
            worker.run("umount", "/mnt")
            worker.run("wipefs", "-qa", f"/dev/{disk}")

        assert outcome.status is Status.FAILED
        assert outcome.error
        assert "mounted on /mnt" in outcome.error.message
        assert processor.unfinished() == ()
        assert "fdtest-used" not in worker.run("virsh", "list", "--all", "--name")
        assert states(processor) == {VF: DeviceState.FREE, NVME: DeviceState.FREE}


def _die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _create_and_die(site: Site, wanted: NodeSliver) -> None:
    """Create in this process, which is killed when the device is written down and unbound."""
    DeviceAttachment._attach_missing = _die  # type: ignore[method-assign]
    with HandlerProcessor(site) as processor:
        done(processor.create(wanted).result())


def _modify_and_die(site: Site, wanted: NodeSliver) -> None:
    """Modify in this process, which is killed when the definition has the VLAN, and the PF not yet."""
    VirtualFunctions.confirm = _die  # type: ignore[method-assign]
    with HandlerProcessor(site) as processor:
        done(processor.modify(wanted).result())


def killed(target: Callable[[Site, NodeSliver], None], *args: Any) -> bool:
    """Run it in a process of its own; return whether that was killed."""
    child = multiprocessing.get_context("fork").Process(target=target, args=args)
    child.start()
    child.join(300)
    return child.exitcode == -signal.SIGKILL


@pytest.mark.parametrize("operation", [pytest.param("create", marks=pytest.mark.share), "delete"])
def test_what_a_killed_creation_left_is_taken_up(
    make_site: Callable[..., Site], tidy: None, operation: str
) -> None:
    site, wanted = make_site(guest="none"), sliver(DRIVE, id="fdtest-cut")
    assert killed(_create_and_die, site, wanted)
    with HandlerProcessor(site) as processor:
        assert states(processor)[NVME] is DeviceState.LOST

        done(getattr(processor, operation)(wanted).result())
        if operation == "create":
            assert states(processor)[NVME] is DeviceState.USED
            done(processor.delete(wanted.ref()).result())

        assert states(processor)[NVME] is DeviceState.FREE


@pytest.mark.parametrize(
    "undone",
    [pytest.param(False, marks=pytest.mark.share, id="again"), pytest.param(True, id="recover")],
)
def test_a_killed_change_of_the_vlan_is_finished_or_undone(
    make_site: Callable[..., Site], worker: Worker, tidy: None, *, undone: bool
) -> None:
    site = make_site(guest="none")
    was, wanted = (sliver(nic(vlan=vlan), id="fdtest-cut") for vlan in (304, 305))
    with HandlerProcessor(site) as processor:
        done(processor.create(was).result())
    assert killed(_modify_and_die, site, wanted)
    with HandlerProcessor(site) as processor:
        assert differences(processor, was.ref()) == (
            "SharedNIC nic1 has VLAN 305 at its next start, not 304",
        )

        if undone:
            assert all(future.result().ok for future in processor.recover(undo=True))
        else:
            done(processor.modify(wanted).result())

        assert worker.vf("enp1s0", 0)["vlan_list"][0]["vlan"] == (304 if undone else 305)
        assert differences(processor, was.ref()) == ()
        done(processor.delete(was.ref()).result())
