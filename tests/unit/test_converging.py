"""Whatever is there of a sliver: modify makes it what is asked for, and delete leaves nothing of it."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from fabric_direct.drivers.contract import Volume
from fabric_direct.drivers.fake import Substrate
from fabric_direct.model import NodeSliver, Status
from fabric_direct.processor import HandlerProcessor
from tests.outcomes import done

MakeVm = Callable[..., NodeSliver]
NIC1 = {"type": "vNIC", "id": "nic1", "network": "red"}
MOVED = {"type": "vNIC", "id": "nic1", "network": "red", "interface": {"ipv4": "10.20.1.77/24"}}
STRAY = {"type": "vNIC", "id": "stray", "network": "red"}
LOST = {"type": "Storage", "id": "lost", "size": 1}


def is_as(fakes: Substrate, wanted: NodeSliver) -> bool:
    """Return whether the server and what is held for it are what is wanted, and nothing beside."""
    server = fakes.servers["sliver-1"]
    nics, disks = {n.id for n in wanted.vnics()}, {v.id for v in wanted.volumes()}
    plugged = [(fakes.ports["sliver-1", nic.component].mac, nic.mac) for nic in server.ports]
    return (
        {c for _, c in fakes.ports} == {nic.component for nic in server.ports} == nics
        and {c for _, c in fakes.volumes} == {disk.component for disk in server.volumes} == disks
        and all(held == has for held, has in plugged)
        and server.stamp == wanted.stamp()
    )


@pytest.mark.parametrize("at", range(1, 12))
def test_a_server_that_one_look_misses_keeps_nothing_that_is_not_wanted(
    processor: HandlerProcessor, fakes: Substrate, vm: MakeVm, at: int
) -> None:
    """The modification removes a NIC and a volume, and plugs a NIC anew."""
    done(processor.create(vm()).result())
    wanted = vm(components=(MOVED,))
    fakes.fault("compute.find", at=at, kind="lie")

    first = processor.modify(wanted).result()
    assert is_as(fakes, wanted if first.ok else vm()) or first.left, first
    fakes.mend()

    done(processor.modify(wanted).result())
    assert is_as(fakes, wanted)


@pytest.mark.parametrize("stamped", [True, False])
@pytest.mark.parametrize("plugged", [True, False])
@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("component", ["nic1", "data", "stray", "lost"])
@pytest.mark.parametrize("operation", ["modify", "delete"])
def test_what_there_is_of_a_component_makes_no_difference(
    processor: HandlerProcessor,
    fakes: Substrate,
    vm: MakeVm,
    operation: str,
    component: str,
    held: bool,
    plugged: bool,
    stamped: bool,
) -> None:
    """The sliver wants nic1 and data, and neither the NIC stray nor the disk lost."""
    every = vm(components=(*vm().components, STRAY, LOST))
    done(processor.create(every).result())
    shown = every if stamped else without(every, component)
    rest = {"stray", "lost"} - {component}
    leave(fakes, without(shown, *rest), forget=rest, held=() if held else (component,))
    if not plugged:
        unplug(fakes, component)

    if operation == "delete":
        done(processor.delete(vm().ref()).result())
        assert (fakes.servers, fakes.ports, fakes.volumes) == ({}, {}, {})
        return
    done(processor.modify(vm()).result())
    assert is_as(fakes, vm())


def without(sliver: NodeSliver, *components: str) -> NodeSliver:
    kept = tuple(c for c in sliver.components if c.id not in components)
    return sliver.model_copy(update={"components": kept})


def leave(
    fakes: Substrate, stamped: NodeSliver, *, forget: Iterable[str], held: Iterable[str]
) -> None:
    """Let the server say what it is; forget components altogether, or only what is held for them."""
    fakes.servers["sliver-1"] = replace(fakes.servers["sliver-1"], stamp=stamped.stamp())
    for component in (*forget, *held):
        fakes.ports.pop(("sliver-1", component), None)
        fakes.volumes.pop(("sliver-1", component), None)
    for component in forget:
        unplug(fakes, component)


def unplug(fakes: Substrate, component: str) -> None:
    server = fakes.servers["sliver-1"]
    fakes.servers["sliver-1"] = replace(
        server,
        ports=tuple(nic for nic in server.ports if nic.component != component),
        volumes=tuple(disk for disk in server.volumes if disk.component != component),
    )


def test_a_nic_that_is_not_plugged_into_its_port_is_told_and_plugged_anew(
    processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
) -> None:
    done(processor.create(vm()).result())
    port = fakes.ports["sliver-1", "nic1"]
    fakes.ports["sliver-1", "nic1"] = replace(port, mac="52:54:00:77:77:77")

    observed = done(processor.probe(vm()).result()).observed
    done(processor.modify(vm()).result())

    assert observed
    assert observed.differences == ("vNIC nic1 is on no network, not on red",)
    assert is_as(fakes, vm())


def test_an_unfinished_change_of_a_new_nic_is_changed_once_more(
    processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
) -> None:
    """The stamp does not have the NIC yet: it is written last."""
    done(processor.create(vm(components=(MOVED,))).result())
    leave(fakes, vm(components=()), forget=(), held=())

    other = NIC1 | {"network": "blue", "interface": {"mac": "52:54:00:77:77:77"}}
    done(processor.modify(vm(components=(other,))).result())

    assert fakes.ports["sliver-1", "nic1"].network == "blue"
    assert is_as(fakes, vm(components=(other,)))


def test_a_disk_that_was_unplugged_is_plugged_in_again_if_what_follows_fails(
    processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
) -> None:
    done(processor.create(vm()).result())
    fakes.existing["shared"] = Volume("", "", "/fake/shared", 3)
    shared = {"type": "Storage", "id": "more", "volume": "shared"}
    done(processor.modify(vm(components=(*vm().components, shared))).result())
    before = set(fakes.servers["sliver-1"].volumes)
    fakes.fault("compute.detach_port", kind="fail")

    outcome = processor.modify(vm(components=(NIC1,))).result()

    assert (outcome.status, outcome.left) == (Status.FAILED, ())
    assert {d.source for d in fakes.servers["sliver-1"].volumes} == {d.source for d in before}
