"""What holds of every plan, whatever hosts and requests there are; and of the published examples."""

from collections import Counter
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from fabric_direct.model import PciAddress, PlacementRules
from fabric_direct.placement import filters
from fabric_direct.placement.arrays import columns
from fabric_direct.placement.place import check, place
from fabric_direct.placement.plan import BuildPlan, Choice
from fabric_direct.placement.request import DeviceNeed, Request
from fabric_direct.placement.state import FreeDevice, HostState, NumaNode
from tests.unit.placement_hosts import need, request

EXAMPLES = sorted((Path(__file__).parents[2] / "examples/placement/batches").glob("*.yaml"))
NAMES = tuple(f"r{number}" for number in range(8))
# Strategies are made once: each that is made anew is checked at its first draw.
FLAGS = st.booleans()
RARELY = st.sampled_from([False, False, True])
MOSTLY = st.sampled_from([True, True, True, False])
NODES = st.sampled_from([None, 0, 1])
MODELS = st.sampled_from([None, "A30", "T4"])
UPLINKS = st.sampled_from(["ens1", "ens2"])
WANTED_UPLINKS = st.sampled_from([None, "ens1", "ens2"])
CPU_RATIOS = st.sampled_from([0.5, 1.0, 1.7, 16.0])
RAM_RATIOS = st.sampled_from([0.9, 1.0, 1.5])
OWNERS = st.sampled_from([None, "p", "q"])
SLIVERS = st.dictionaries(st.sampled_from(["old", "older"]), st.sampled_from([None, "p"]))
MATES = st.lists(st.sampled_from([*NAMES, "old"]), max_size=2, unique=True).map(tuple)
RARE_MATES = st.one_of(st.just(()), st.just(()), MATES)


@st.composite
def free_devices(draw: st.DrawFn) -> tuple[FreeDevice, ...]:
    """Return devices at different addresses: GPUs of two functions, VFs of two uplinks."""
    devices = []
    for bus in range(draw(st.integers(0, 5))):
        functions = tuple(PciAddress(0, bus, 0, number) for number in range(2))
        node = draw(NODES)
        if draw(FLAGS):
            devices.append(FreeDevice("GPU", functions, draw(MODELS), node))
        else:
            uplink = draw(UPLINKS)
            devices.append(
                FreeDevice("SharedNIC", functions[:1], "CX6", node, uplink, uplink == "ens1")
            )
    return tuple(devices)


DEVICES = free_devices()


@st.composite
def host_states(draw: st.DrawFn, name: str) -> HostState:
    """Return a host, perhaps over-committed, perhaps without NUMA nodes."""
    cores, ram = draw(st.integers(0, 32)), draw(st.floats(0, 64))
    nodes = tuple(NumaNode(node, cores // 2, ram / 2) for node in range(draw(st.integers(0, 2))))
    return HostState(
        name=name,
        cores=cores,
        ram=ram,
        disk=draw(st.floats(0, 500)),
        cores_used=draw(st.integers(0, 40)),
        ram_used=draw(st.floats(0, 80)),
        cpu_ratio=draw(CPU_RATIOS),
        ram_ratio=draw(RAM_RATIOS),
        numa_nodes=nodes,
        devices=draw(DEVICES),
        slivers=draw(SLIVERS),
        enabled=draw(MOSTLY),
    )


@st.composite
def device_needs(draw: st.DrawFn, component: str) -> Any:
    """Return the need of a device."""
    if draw(FLAGS):
        if draw(RARELY):
            functions = (PciAddress(0, draw(st.integers(0, 4)), 0, draw(st.integers(0, 1))),)
            return need(component, "GPU", bdf=functions)
        return need(component, "GPU", model=draw(MODELS))
    uplink = draw(WANTED_UPLINKS)
    return need(component, "SharedNIC", uplink=uplink, vepa=draw(FLAGS))


DEVICE_NEEDS = tuple(device_needs(f"d{number}") for number in range(3))


@st.composite
def batches(draw: st.DrawFn) -> list[Request]:
    """Return requests that name each other, and slivers that are there."""
    return [
        request(
            name,
            draw(st.integers(1, 12)),
            draw(st.integers(1, 24)),
            draw(st.integers(1, 100)),
            devices=tuple(draw(each) for each in DEVICE_NEEDS[: draw(st.integers(0, 3))]),
            affinity=draw(RARE_MATES),
            anti_affinity=draw(MATES),
            same_numa_node=draw(FLAGS),
            owner=draw(OWNERS),
        )
        for name in NAMES[: draw(st.integers(1, 8))]
    ]


HOSTS = tuple(host_states(f"w{number}") for number in range(4))
SITES = st.one_of(st.tuples(*HOSTS[:number]) for number in range(1, 5))


def on_hosts(plan: BuildPlan, batch: list[Request]) -> dict[str, list[Request]]:
    """Return the requests that the plan has on each host."""
    by_id = {one.id: one for one in batch}
    where: dict[str, list[Request]] = {}
    for assignment in plan.assignments:
        where.setdefault(assignment.chosen.host, []).append(by_id[assignment.request])
    return where


@settings(max_examples=60)
@given(SITES, batches())
def test_no_host_is_over_committed(sites: tuple[HostState, ...], batch: list[Request]) -> None:
    states = {state.name: state for state in sites}
    for name, placed in on_hosts(place(batch, sites, partial=True), batch).items():
        state, sizes = states[name], [one.needs.capacities for one in placed]
        slack = 2**-20
        assert state.enabled
        assert (
            sum(s.core for s in sizes) + state.cores_used <= state.cores * state.cpu_ratio + slack
        )
        assert sum(s.ram for s in sizes) + state.ram_used <= state.ram * state.ram_ratio + slack
        assert sum(s.disk for s in sizes) <= state.disk + slack
        assert max(s.core for s in sizes) <= state.cores


def _node(device: FreeDevice, host: HostState) -> int | None:
    """Return a device's NUMA node: the only one of its host, if it says none."""
    ids = [node.id for node in host.numa_nodes]
    return ids[0] if device.numa_node is None and len(ids) == 1 else device.numa_node


@settings(max_examples=60)
@given(SITES, batches())
def test_devices_are_given_once_and_are_what_is_asked_for(
    sites: tuple[HostState, ...], batch: list[Request]
) -> None:
    has = {(s.name, f): device for s in sites for device in s.devices for f in device.functions}
    by_id, by_name = {one.id: one for one in batch}, {site.name: site for site in sites}
    given_: Counter[tuple[str, PciAddress]] = Counter()
    for assignment in place(batch, sites, partial=True).assignments:
        name, devices = assignment.chosen.host, assignment.chosen.devices
        wanted = {one.component: one for one in by_id[assignment.request].needs.devices}
        assert devices.keys() == wanted.keys()
        nodes = set()
        for component, functions in devices.items():
            device, asked = has[name, functions[0]], wanted[component]
            given_.update((name, function) for function in device.functions)
            nodes.add(_node(device, by_name[name]))
            assert functions == (asked.bdf or device.functions)
            assert device.type == asked.type
            assert asked.model in {None, device.model}
            assert asked.uplink in {None, device.uplink}
            assert device.vepa >= asked.vepa
        if by_id[assignment.request].needs.rules.same_numa_node:
            assert len(nodes) <= 1
    assert set(given_.values()) <= {1}


@settings(max_examples=60)
@given(SITES, batches())
def test_affinity_and_anti_affinity_are_kept_both_ways(
    sites: tuple[HostState, ...], batch: list[Request]
) -> None:
    states = {state.name: state for state in sites}
    for name, placed in on_hosts(place(batch, sites, partial=True), batch).items():
        there = {one.id for one in placed} | states[name].slivers.keys()
        for one in placed:
            assert set(one.needs.rules.affinity) <= there
            assert not set(one.needs.rules.anti_affinity) & (there - {one.id})


def can_be_served(state: HostState, one: Request) -> bool:
    """Return whether there is a way to give each need a device of its own, by trying all ways."""
    return any(
        all(serves(device, asked) for device, asked in zip(way, one.needs.devices, strict=True))
        for way in permutations(state.devices, len(one.needs.devices))
    )


def serves(device: FreeDevice, asked: DeviceNeed) -> bool:
    """Return whether a device is what a need asks for."""
    return (
        device.type == asked.type
        and asked.model in {None, device.model}
        and asked.uplink in {None, device.uplink}
        and device.vepa >= asked.vepa
        and set(asked.bdf) <= set(device.functions)
    )


@settings(max_examples=60)
@given(SITES, batches())
def test_the_devices_of_a_host_suffice_if_there_is_a_way_to_give_them(
    sites: tuple[HostState, ...], batch: list[Request]
) -> None:
    hosts = columns(sites, batch)
    for one in batch:
        free = one.needs.model_copy(update={"rules": PlacementRules()})
        said = filters.devices(hosts.rows(), free)
        assert list(said) == [can_be_served(state, one) for state in sites]


@settings(max_examples=40)
@given(SITES, batches(), st.randoms(use_true_random=False))
def test_the_order_of_the_hosts_does_not_matter(
    sites: tuple[HostState, ...], batch: list[Request], random: Any
) -> None:
    shuffled = random.sample(sites, len(sites))
    assert place(batch, sites, partial=True) == place(batch, shuffled, partial=True)


@settings(max_examples=40)
@given(SITES, batches())
def test_every_request_is_either_placed_or_refused_by_all_hosts(
    sites: tuple[HostState, ...], batch: list[Request]
) -> None:
    plan = place(batch, sites, partial=True)
    told = [one.request for one in (*plan.assignments, *plan.unplaced)]
    assert sorted(told) == [one.id for one in batch]
    assert all(sum(one.refused.values()) == len(sites) for one in plan.unplaced)


@settings(max_examples=40)
@given(SITES, batches())
def test_a_plan_can_be_carried_out_on_the_hosts_it_was_made_for(
    sites: tuple[HostState, ...], batch: list[Request]
) -> None:
    check(place(batch, sites, partial=True), batch, sites)


class Example(BaseModel):
    """A published example."""

    hosts: list[HostState]
    requests: list[Request]


def example(path: Path) -> Example:
    """Return a published example."""
    return Example.model_validate(yaml.safe_load(path.read_text()))


def after(state: HostState, one: Request, chosen: Choice) -> HostState:
    """Return a host that has taken an instance."""
    if state.name != chosen.host:
        return state
    size, gone = one.needs.capacities, {f for some in chosen.devices.values() for f in some}
    return replace(
        state,
        cores_used=state.cores_used + size.core,
        ram_used=state.ram_used + size.ram,
        disk_used=state.disk_used + size.disk,
        devices=tuple(
            device for device in state.devices if not gone.intersection(device.functions)
        ),
        slivers={**state.slivers, one.id: one.needs.owner},
    )


def one_by_one(given_: Example) -> tuple[int, int]:
    """Return how many are not placed, and the summed cost, if each is placed for itself."""
    hosts, unplaced, cost = given_.hosts, 0, 0
    for one in given_.requests:
        plan = place([one], hosts)
        unplaced, cost = unplaced + len(plan.unplaced), cost + plan.cost
        for assignment in plan.assignments:
            hosts = [after(state, one, assignment.chosen) for state in hosts]
    return unplaced, cost


class TestPublishedExamples:
    @pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
    def test_all_at_once_is_never_worse_than_one_by_one(self, path: Path) -> None:
        plan = place(example(path).requests, example(path).hosts, partial=True)
        assert (len(plan.unplaced), plan.cost) <= one_by_one(example(path))

    @pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
    def test_all_at_once_places_all(self, path: Path) -> None:
        assert not place(example(path).requests, example(path).hosts).unplaced

    @pytest.mark.parametrize("name", ["large-and-small", "last-of-a-kind", "apart-and-together"])
    def test_one_by_one_some_find_no_place(self, name: str) -> None:
        (path,) = (path for path in EXAMPLES if path.stem == name)
        assert one_by_one(example(path))[0] == 1

    def test_plain_vms_leave_the_gpu_host_alone(self) -> None:
        (path,) = (path for path in EXAMPLES if path.stem == "scarce-hardware")
        plan = place(example(path).requests, example(path).hosts)
        assert [one.chosen.host for one in plan.assignments] == ["w3", "w2", "w1"]
