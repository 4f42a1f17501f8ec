"""Which devices of a host an instance gets."""

from fabric_direct.model import PciAddress
from fabric_direct.placement.place import place
from fabric_direct.placement.request import Needs, Request
from fabric_direct.placement.state import HostState, NumaNode
from tests.unit.placement_hosts import BOTH, at, gpu, host, need, needs, vf


def given(wanted: Needs, there: HostState) -> dict[str, tuple[PciAddress, ...]]:
    """Return what an instance gets of a host."""
    (assignment,) = place([Request(id="r1", needs=wanted)], [there]).assignments
    return assignment.chosen.devices


def test_a_device_is_given_with_all_of_its_functions() -> None:
    there = host(devices=(gpu("25:00.0 25:00.1"),))
    assert given(needs(devices=(need("g"),)), there) == {"g": at("25:00.0 25:00.1")}


def test_named_functions_are_given_as_named() -> None:
    there = host(devices=(gpu("25:00.0 25:00.1"), gpu("26:00.0")))
    assert given(needs(devices=(need("g", bdf=at("25:00.0")),)), there) == {"g": at("25:00.0")}


def test_a_named_device_is_not_given_to_another_need() -> None:
    there = host(devices=(gpu("25:00.0"), gpu("26:00.0")))
    wanted = needs(devices=(need("a"), need("b", bdf=at("25:00.0"))))
    assert given(wanted, there) == {"a": at("26:00.0"), "b": at("25:00.0")}


def test_a_need_of_any_model_leaves_the_scarce_one() -> None:
    there = host(devices=(gpu("25:00.0", "H100"), gpu("26:00.0", "T4"), gpu("27:00.0", "T4")))
    assert given(needs(devices=(need("g"),)), there) == {"g": at("26:00.0")}


def test_a_need_of_any_model_takes_the_other_one_if_a_model_is_asked_for() -> None:
    there = host(devices=(gpu("25:00.0", "H100"), gpu("26:00.0", "T4")))
    wanted = needs(devices=(need("any"), need("t4", model="T4")))
    assert given(wanted, there) == {"any": at("25:00.0"), "t4": at("26:00.0")}


def test_devices_are_near_to_each_other() -> None:
    there = host(
        numa_nodes=BOTH,
        devices=(gpu("25:00.0", node=0), gpu("a5:00.0", node=1), vf("a6:00.1", node=1)),
    )
    wanted = needs(devices=(need("g"), need("n", "SharedNIC")))
    assert given(wanted, there) == {"g": at("a5:00.0"), "n": at("a6:00.1")}


def test_devices_are_near_to_a_node_with_the_memory() -> None:
    uneven = (NumaNode(0, 32, 2.0), NumaNode(1, 32, 254.0))
    there = host(numa_nodes=uneven, devices=(gpu("25:00.0", node=0), gpu("a5:00.0", node=1)))
    assert given(needs(devices=(need("g"),)), there) == {"g": at("a5:00.0")}


def test_the_node_with_fewer_devices_is_used_up_first() -> None:
    there = host(
        numa_nodes=BOTH,
        devices=(gpu("25:00.0", node=0), gpu("26:00.0", node=0), gpu("a5:00.0", node=1)),
    )
    for rule in (False, True):
        wanted = needs(devices=(need("g"),), same_numa_node=rule)
        assert given(wanted, there) == {"g": at("a5:00.0")}


def test_all_are_on_one_node_where_that_is_asked_for() -> None:
    free = (gpu("25:00.0", node=0), gpu("a5:00.0", node=1), gpu("a6:00.0", node=1))
    wanted = needs(devices=(need("a"), need("b")), same_numa_node=True)
    there = host(numa_nodes=BOTH, devices=free)
    assert given(wanted, there) == {"a": at("a5:00.0"), "b": at("a6:00.0")}


def test_cores_and_memory_of_a_node_are_used_up_too() -> None:
    batch = [Request(id=f"r{n}", needs=needs(20, 8, same_numa_node=True)) for n in range(3)]
    plan = place(batch, [host(numa_nodes=BOTH)], partial=True)
    assert [assignment.request for assignment in plan.assignments] == ["r0", "r1"]
    assert plan.unplaced[0].refused == {"devices": 1}


def test_the_order_of_a_hosts_devices_does_not_matter() -> None:
    free = (gpu("27:00.0"), gpu("25:00.0"), gpu("26:00.0"))
    for devices in (free, free[::-1]):
        assert given(needs(devices=(need("g"),)), host(devices=devices)) == {"g": at("25:00.0")}


def test_no_device_is_given_twice() -> None:
    there = host(devices=tuple(vf(f"25:00.{function}") for function in range(1, 5)))
    batch = [
        Request(id=f"r{n}", needs=needs(devices=(need("a", "SharedNIC"), need("b", "SharedNIC"))))
        for n in range(3)
    ]
    plan = place(batch, [there], partial=True)
    functions = [f for a in plan.assignments for d in a.chosen.devices.values() for f in d]
    assert len(functions) == len(set(functions)) == 4
    assert [unplaced.request for unplaced in plan.unplaced] == ["r2"]
