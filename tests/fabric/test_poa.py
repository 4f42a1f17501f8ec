"""Operational actions: the actor's data, and the shapes that FABlib reads."""

import re
from typing import Any

import pytest

from fabric_direct.actor import poa, results
from fabric_direct.errors import InvalidSliver, NotVerified
from tests.fabric.slivers import listed

CPUS = {
    "vcpus": [
        {"vcpu": 0, "cpu": 116, "state": "running", "cpu_time": 20_249_000_000, "affinity": [0, 1]},
        {"vcpu": 1, "cpu": 3, "state": "blocked", "cpu_time": 0, "affinity": [3]},
    ],
    "host_cpus": 8,
    "pinned": [2, 7],
}
NUMA = {
    "nodes": [
        {"node": 0, "memory": 63_798, "free": 59_660, "cpus": [0, 1, 4, 5]},
        {"node": 1, "memory": 64_507, "free": 63_042, "cpus": [2, 3, 6, 7]},
    ],
    "usage": {1: {"Private": 17_530.6, "Heap": 6.2}},
}


def test_cpuinfo_has_the_worker_and_the_instance() -> None:
    assert poa.cpu_info("w1", "instance-1", CPUS, NUMA) == {
        "w1": {
            "CPU(s):": "8",
            "NUMA node(s):": "2",
            "NUMA node0 CPU(s):": "0-1,4-5",
            "NUMA node1 CPU(s):": "2-3,6-7",
            "pinned_cpus": ["2", "7"],
        },
        "instance-1": [
            {
                "VCPU": "0",
                "CPU": "116",
                "State": "running",
                "CPU time": "20.2s",
                "CPU Affinity": "0,1",
            },
            {"VCPU": "1", "CPU": "3", "State": "blocked", "CPU time": "0.0s", "CPU Affinity": "3"},
        ],
    }


def test_numainfo_has_the_worker_and_the_instance() -> None:
    assert poa.numa_info("w1", "instance-1", NUMA) == {
        "instance-1": {
            "Node 0": {"Private": "0", "Heap": "0", "Stack": "0", "Huge": "0", "Total": "0"},
            "Node 1": {
                "Private": "17531",
                "Heap": "6",
                "Stack": "0",
                "Huge": "0",
                "Total": "17537",
            },
            "Total": {"Private": "17531", "Heap": "6", "Stack": "0", "Huge": "0", "Total": "17537"},
        },
        "w1": {
            "available": "2 nodes (0-1)",
            "node 0": {"cpus": "0 1 4 5", "size": "63798 MB", "free": "59660 MB"},
            "node 1": {"cpus": "2 3 6 7", "size": "64507 MB", "free": "63042 MB"},
        },
    }


def test_what_fablib_reads_to_tune_memory_is_there() -> None:
    info = poa.numa_info("w1", "instance-1", NUMA)
    free = re.search(r"\d+", info["w1"]["node 1"]["free"])
    assert free is not None
    assert int(free.group()) + int(info["instance-1"]["Node 1"]["Total"]) == 63_042 + 17_537


def test_what_fablib_reads_to_pin_cpus_is_there() -> None:
    info = poa.cpu_info("w1", "instance-1", CPUS, NUMA)["w1"]
    parts = [map(int, part.split("-")) for part in info["NUMA node1 CPU(s):"].split(",")]
    cpus = {str(n) for first, last in parts for n in range(first, last + 1)}
    assert cpus - set(info["pinned_cpus"]) == {"3", "6"}


def test_memory_that_is_not_known_is_no_answer() -> None:
    with pytest.raises(NotVerified):
        poa.numa_info("w1", "instance-1", NUMA | {"usage": None})


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([0], "0"), ([0, 1, 2, 64, 65], "0-2,64-65"), ([5, 1, 3], "1,3,5"), ([], "")],
)
def test_ranges_are_written_as_lscpu_does(numbers: list[int], text: str) -> None:
    assert poa.ranges(numbers) == text


@pytest.mark.parametrize(
    ("operation", "data"),
    [
        ("cpupin", {"vcpu_cpu_map": [{"vcpu": 0, "cpu": 3}]}),
        ("numatune", {"node_set": [0]}),
        ("addkey", {"keys": [{"key": "ssh-ed25519 A", "comment": "c"}]}),
        ("rescan", {"bdf": ["0000:25:00.0"]}),
        ("reboot", {}),
    ],
)
def test_each_action_takes_its_own_data_alone(operation: str, data: dict[str, Any]) -> None:
    asked = data | {"operation": operation, "poa_id": "1", "sliver_id": "s"}
    assert poa.data_of(asked) == (operation, data)


@pytest.mark.parametrize(
    ("operation", "given", "data"),
    [
        ("cpupin", {"vcpu_cpu_map": [{"vcpu": "0", "cpu": "3"}]}, [{"vcpu": 0, "cpu": 3}]),
        ("cpupin", {"vcpu_cpu_map": [{"vcpu": "no", "cpu": "-1"}]}, [{"vcpu": "no", "cpu": "-1"}]),
        ("numatune", {"node_set": ["0", "1"]}, [0, 1]),
        ("addkey", {"keys": [{"key": "k", "comment": "7"}]}, [{"key": "k", "comment": "7"}]),
    ],
)
def test_numbers_that_fablib_sends_as_texts_are_numbers(
    operation: str, given: dict[str, Any], data: Any
) -> None:
    assert list(poa.data_of(given | {"operation": operation})[1].values()) == [data]


def test_a_web_frameworks_classes_are_copied() -> None:
    mapping = type("FrameworkMapping", (dict,), {})
    asked = {"operation": "cpupin", "vcpu_cpu_map": listed([mapping(vcpu="0", cpu="3")])}

    _, data = poa.data_of(asked)

    assert type(data["vcpu_cpu_map"]) is list
    assert type(data["vcpu_cpu_map"][0]) is dict


class Model:
    """What Swagger's generator makes of a mapping: attributes, and ``to_dict()``."""

    def __init__(self, **values: Any) -> None:
        self.swagger_types = {name: type(value) for name, value in values.items()}
        self.attribute_map = {name: name for name in values}
        vars(self).update(values)

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.swagger_types}


@pytest.mark.parametrize(
    ("operation", "given", "plain"),
    [
        ("cpupin", {"vcpu_cpu_map": [Model(vcpu="0", cpu="3")]}, [{"vcpu": 0, "cpu": 3}]),
        ("addkey", {"keys": [Model(key="k", comment="c")]}, [{"key": "k", "comment": "c"}]),
        ("addkey", {"keys": [Model(key="k", comment=None)]}, [{"key": "k"}]),
        ("removekey", {"keys": (Model(key="k", comment="c"),)}, [{"key": "k", "comment": "c"}]),
    ],
)
def test_models_are_told_as_mappings(operation: str, given: dict[str, Any], plain: Any) -> None:
    asked = given | {"operation": operation}
    assert list(poa.data_of(asked)[1].values()) == [plain]


def test_a_key_without_comment_has_none() -> None:
    asked = {"operation": "addkey", "keys": [{"key": "k", "comment": None}]}
    assert poa.data_of(asked)[1] == {"keys": [{"key": "k"}]}


@pytest.mark.parametrize("operation", ["console", "nothing", None])
def test_what_is_no_action_of_the_actors_is_refused(operation: str | None) -> None:
    with pytest.raises(InvalidSliver) as refused:
        poa.data_of({"operation": operation})
    assert refused.value.field == "operation"


ASKED = {"operation": "cpuinfo", "poa_id": "7"}


def test_the_result_of_an_action_that_reads() -> None:
    assert results.poa_success(ASKED, {"cpuinfo": {"w1": {}}}) == {
        "target.name": "poa",
        "target.code": 0,
        "action.sequence": 0,
        "poa_info": {
            "operation": "cpuinfo",
            "poa_id": "7",
            "code": 0,
            "info": {"cpuinfo": {"w1": {}}},
        },
    }


def test_the_result_of_an_action_that_changes_repeats_its_heading() -> None:
    heading = {"operation": "cpuinfo", "poa_id": "7", "code": 0}
    assert results.poa_success(ASKED)["poa_info"] == heading | {"poa_info": heading}


def test_the_result_of_an_action_that_failed() -> None:
    assert results.poa_failure(ASKED, "no") == {
        "target.name": "poa",
        "target.code": -1,
        "action.sequence": 0,
        "exception.message": "no",
        "poa_info": {"operation": "cpuinfo", "poa_id": "7", "code": -1},
    }
