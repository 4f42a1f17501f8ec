"""What is written back into FIM's slivers: the contract's fields, and no others."""

import copy
import pickle
from typing import Any

import pytest
from fim.slivers.capacities_labels import Capacities, CapacityHints, Labels

from fabric_direct.actor import fim_writeback
from fabric_direct.model import (
    Capacities as Size,
)
from fabric_direct.model import (
    Observed,
    ObservedDevice,
    ObservedInterface,
    ObservedVolume,
    PciAddress,
    State,
)
from tests.fabric import slivers
from tests.fabric.slivers import component, interface, vm

GPU = "0000:25:00.0"


def nic(*addresses: str, **values: Any) -> ObservedInterface:
    return ObservedInterface(
        component="management", mac="52:54:00:00:00:01", addresses=addresses, **values
    )


def device(
    name: str, function: int, guest: str | None, *interfaces: str, macs: tuple[str, ...] = ()
) -> ObservedDevice:
    return ObservedDevice(
        component=name,
        host_address=PciAddress.parse(f"0000:25:00.{function}"),
        guest_name=guest,
        guest_interfaces=interfaces,
        guest_macs=macs,
        alias=f"a{function}",
    )


def found(**values: Any) -> Observed:
    return Observed(state=State.RUNNING, **{"instance": "id", "domain": "instance-0001", **values})


SIZE = Size(core=2, ram=4, disk=10)


def made(
    node: Any, capacities: Size = SIZE, flavor: str = "fabric.c2.m4.d10", **values: Any
) -> None:
    fim_writeback.write_made(node, capacities, flavor, found(**values))


def test_the_instance_is_the_libvirt_domain() -> None:
    node = vm()
    made(node)
    assert node.label_allocations.instance == "instance-0001"


def test_the_instance_is_the_servers_id_where_the_domain_is_not_told() -> None:
    node = vm()
    made(node, domain=None)
    assert node.label_allocations.instance == "id"


@pytest.mark.parametrize(
    ("seen", "address"),
    [
        (nic("10.0.0.5/24", "2620:0:1::5/64", floating_ip="203.0.113.9"), "203.0.113.9"),
        (nic("10.0.0.5/24", "2620:0:1::5/64"), "2620:0:1::5"),
        (nic("10.0.0.5/24", "fd00::5/64"), "10.0.0.5"),
        (nic("fd00::5/64"), "fd00::5"),
    ],
    ids=["floating IP", "global IPv6", "IPv4", "what there is"],
)
def test_the_management_address(seen: ObservedInterface, address: str) -> None:
    node = vm()
    made(node, interfaces=(seen,))
    assert node.management_ip == address


def test_no_management_address_is_not_written() -> None:
    node = vm()
    made(node)
    assert node.management_ip is None


def test_the_instance_of_what_was_not_made_is_none() -> None:
    node = vm(label_allocations=Labels(instance_parent="w1", instance="old"))
    fim_writeback.write_absent(node)
    assert node.label_allocations.instance is None


def test_what_was_not_made_may_have_no_labels() -> None:
    fim_writeback.write_absent(vm(label_allocations=None))


def test_a_devices_addresses_in_the_guest_are_a_list() -> None:
    part = component("GPU", "gpu1", GPU)
    made(vm(part), devices=(device("gpu1", 0, "0000:05:00.0"),))
    assert part.label_allocations.bdf == ["0000:05:00.0"]
    assert part.labels.bdf == GPU


def test_interfaces_are_named_in_the_order_of_the_functions() -> None:
    first, second = interface("p1"), interface("p2")
    part = component("SmartNIC", "nic1", [GPU, "0000:25:00.1"], None, first, second)
    seen = (
        device("nic1", 0, "0000:05:00.0", "ens5f0"),
        device("nic1", 1, "0000:05:00.1", "ens5f1"),
    )

    made(vm(part), devices=seen)

    assert part.label_allocations.bdf == ["0000:05:00.0", "0000:05:00.1"]
    assert first.label_allocations.local_name == "ens5f0"
    assert second.label_allocations.local_name == "ens5f1"


FIRST, SECOND = "02:00:00:00:00:01", "02:00:00:00:00:02"


@pytest.mark.parametrize("functions", [1, 2], ids=["one function", "two functions"])
def test_interfaces_are_named_by_their_own_macs(functions: int) -> None:
    first, second = interface("p1", mac=FIRST.upper()), interface("p2", mac=SECOND)
    part = component("SmartNIC", "nic1", GPU, None, first, second)
    names, macs = ("ens5f0", "ens5f1"), (SECOND, FIRST)
    each = (
        [device("nic1", n, "x", names[n], macs=(macs[n],)) for n in range(functions)]
        if functions == 2
        else [device("nic1", 0, "x", *names, macs=macs)]
    )

    made(vm(part), devices=tuple(each))

    assert first.label_allocations.local_name == "ens5f1"
    assert second.label_allocations.local_name == "ens5f0"


def test_an_interface_whose_mac_no_nic_has_keeps_its_name() -> None:
    nic = interface("p1", mac=FIRST, local_name="p1")
    part = component("SmartNIC", "nic1", GPU, None, nic)
    made(vm(part), devices=(device("nic1", 0, "x", "ens5f0", macs=(SECOND,)),))
    assert nic.label_allocations.local_name == "p1"


def test_an_interface_is_named_by_its_place_where_the_guest_tells_no_macs() -> None:
    nic = interface("p1", mac=FIRST)
    part = component("SmartNIC", "nic1", GPU, None, nic)
    made(vm(part), devices=(device("nic1", 0, "x", "ens5f0"),))
    assert nic.label_allocations.local_name == "ens5f0"


def test_a_device_that_the_guest_has_no_driver_for_keeps_its_interfaces_name() -> None:
    nic = interface("p1", local_name="p1")
    part = component("SharedNIC", "nic1", GPU, None, nic)
    made(vm(part), devices=(device("nic1", 0, "0000:05:00.0"),))
    assert nic.label_allocations.local_name == "p1"


def test_an_interface_without_allocations_gets_them() -> None:
    nic = interface("p1")
    nic.label_allocations = None
    part = component("SharedNIC", "nic1", GPU, None, nic)
    made(vm(part), devices=(device("nic1", 0, "x", "eth1"),))
    assert nic.label_allocations == Labels(local_name="eth1")


@pytest.mark.parametrize(
    ("guest", "path"), [("vdc", "/dev/vdc"), (None, "/dev/vdb")], ids=["guest's", "proposed"]
)
def test_a_volumes_device(guest: str | None, path: str) -> None:
    part = slivers.storage("vol1", "data")
    volume = ObservedVolume(component="vol1", source="s", target="vdb", size=1, guest_name=guest)
    made(vm(part), volumes=(volume,))
    assert part.label_allocations.device_name == path


def test_a_component_is_found_by_its_hashed_name() -> None:
    part = component("GPU", "a gpu with quite a long name indeed", GPU)
    node = vm(part)
    (name,) = fim_writeback.components_of(node)
    made(node, devices=(device(name, 0, "0000:05:00.0"),))
    assert part.label_allocations.bdf == ["0000:05:00.0"]


def test_new_allocations_are_made_of_the_class_that_is_there() -> None:
    part = component("GPU", "gpu1", GPU)
    node, modified = vm(label_allocations=None), vm(part, label_allocations=None)

    fim_writeback.write_changed(node, modified, found(devices=(device("gpu1", 0, "0000:05:00.0"),)))

    assert node.label_allocations == modified.label_allocations == Labels(instance="instance-0001")


def test_a_modification_is_done_though_no_allocations_can_be_made(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node, modified = vm(label_allocations=None), vm(label_allocations=None)

    fim_writeback.write_changed(node, modified, found(interfaces=(nic("10.0.0.5/24"),)))

    assert node.management_ip == modified.management_ip == "10.0.0.5"
    assert "node1 has no label_allocations" in caplog.text


def test_the_size_is_written_where_it_is_not_the_one_asked_for() -> None:
    asked, hints = Capacities(core=4, ram=8, disk=10, unit=1), CapacityHints(instance_type="big")
    node = vm(capacity_allocations=asked, capacity_hints=hints)

    made(node, capacities=Size(core=2, ram=4, disk=10), flavor="small")

    assert node.capacity_allocations == Capacities(core=2, ram=4, disk=10, unit=1)
    assert node.capacity_hints.instance_type == "small"
    assert (asked.core, hints.instance_type) == (4, "big")


def everything(value: Any) -> Any:
    """Return all that a sliver holds, as plain values."""
    if isinstance(value, dict):
        return {key: everything(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set):
        return [everything(each) for each in value]
    if hasattr(value, "__dict__") and type(value).__module__.startswith("fim."):
        return everything(value.__dict__) if not hasattr(value, "value") else str(value)
    return value


def test_nothing_else_is_written() -> None:
    part = component("SharedNIC", "nic1", GPU, "ConnectX-6", interface("p1", vlan="200"))
    node = vm(part, slivers.storage("vol1", "data"))
    before = everything(copy.deepcopy(node))
    volume = ObservedVolume(component="vol1", source="s", target="vdb", size=1)
    seen = (device("nic1", 0, "0000:05:00.0", "eth1"),)
    made(node, interfaces=(nic("10.0.0.5/24"),), devices=seen, volumes=(volume,))

    node.label_allocations.instance = None
    node.management_ip = None
    part.label_allocations.bdf = GPU
    (service,) = part.network_service_info.network_services.values()
    (port,) = service.interface_info.interfaces.values()
    port.label_allocations.local_name = None
    node.attached_components_info.devices["vol1"].label_allocations.device_name = None
    assert everything(node) == before


def test_what_is_written_can_be_pickled() -> None:
    part = component("GPU", "gpu1", GPU)
    node = vm(part)
    made(node, interfaces=(nic("10.0.0.5/24"),), devices=(device("gpu1", 0, "0000:05:00.0"),))

    again = pickle.loads(pickle.dumps(node))  # noqa: S301

    assert type(again.management_ip) is str
    assert type(again.attached_components_info.devices["gpu1"].label_allocations.bdf) is list
