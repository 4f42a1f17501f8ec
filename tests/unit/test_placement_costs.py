"""Costs of placement: what each host costs."""

import numpy as np
import pytest

from fabric_direct.placement import costs
from fabric_direct.placement.arrays import columns
from fabric_direct.placement.plugins import Rule
from fabric_direct.placement.request import Needs, Request
from fabric_direct.placement.state import FreeDevice, HostState, NumaNode
from tests.unit.placement_hosts import BOTH, at, gpu, host, need, needs, vf


def cost(rule: Rule, wanted: Needs, *hosts: HostState) -> dict[str, int]:
    """Return what a cost says of each host."""
    batch = columns(hosts, [Request(id="r1", needs=wanted)])
    values = rule(batch.rows(), wanted)
    assert values.dtype == np.int64
    return {name: int(value) for name, value in zip(batch.names, values, strict=True)}


class TestSpread:
    def test_it_is_the_largest_share_in_use_with_the_instance_per_mille(self) -> None:
        hosts = host("w1", cores_used=14), host("w2", ram_used=124.0), host("w3", disk_used=390.0)
        assert cost(costs.spread, needs(2, 4, 10), *hosts) == {"w1": 250, "w2": 500, "w3": 100}

    def test_it_is_of_what_may_be_promised(self) -> None:
        assert cost(costs.spread, needs(32), host(cpu_ratio=2.0)) == {"w1": 250}

    @pytest.mark.parametrize("full", [{"cores_used": 900}, {"cores": 0}, {"cores": -1}])
    def test_it_is_never_more_than_1000(self, full: dict[str, int]) -> None:
        assert cost(costs.spread, needs(), host(**full)) == {"w1": 1000}

    def test_pack_is_its_opposite(self) -> None:
        hosts = host("w1", cores_used=14), host("w2", cores_used=900)
        assert cost(costs.pack, needs(2, 4, 10), *hosts) == {"w1": 750, "w2": 0}


def test_imbalance_is_between_the_shares_of_cores_and_ram() -> None:
    hosts = host("w1", cores_used=30), host("w2", cores_used=30, ram_used=124.0)
    assert cost(costs.imbalance, needs(2, 4), *hosts) == {"w1": 484, "w2": 0}


class TestNumaDistance:
    ONE = needs(devices=(need(),))
    TWO = needs(devices=(need("a"), need("b")))

    def test_without_devices_there_is_none(self) -> None:
        assert cost(costs.numa_distance, needs(), host(numa_nodes=BOTH)) == {"w1": 0}

    def test_a_device_beside_enough_memory_is_near(self) -> None:
        there = host(numa_nodes=BOTH, devices=(gpu("a5:00.0", node=1),))
        assert cost(costs.numa_distance, self.ONE, there) == {"w1": 0}

    def test_a_device_away_from_memory_costs_what_the_slit_says(self) -> None:
        uneven = (NumaNode(0, 32, 254.0, {0: 10, 1: 21}), NumaNode(1, 32, 2.0, {0: 21, 1: 10}))
        there = host(numa_nodes=uneven, devices=(gpu("a5:00.0", node=1),))
        assert cost(costs.numa_distance, self.ONE, there) == {"w1": 110}

    def test_the_mean_of_devices_on_two_nodes(self) -> None:
        apart = host(
            "w1", numa_nodes=BOTH, devices=(gpu("25:00.0", node=0), gpu("a5:00.0", node=1))
        )
        near = host("w2", numa_nodes=BOTH, devices=(gpu("25:00.0", node=0), gpu("26:00.0", node=0)))
        assert cost(costs.numa_distance, self.TWO, apart, near) == {"w1": 55, "w2": 0}

    def test_of_many_devices_the_nearest_count(self) -> None:
        free = tuple(gpu(f"{bus:02x}:00.0", node=bus % 2) for bus in range(0x20, 0x26))
        assert cost(costs.numa_distance, self.TWO, host(numa_nodes=BOTH, devices=free)) == {"w1": 0}

    def test_named_devices_count_where_they_are(self) -> None:
        free = (
            gpu("25:00.0", node=0),
            gpu("a5:00.0 a5:00.1", "T4", node=1),
            gpu("a6:00.0", "T4", node=1),
        )
        wanted = needs(devices=(need("a", bdf=at("25:00.0")), need("b", bdf=at("a5:00.0 a5:00.1"))))
        assert cost(costs.numa_distance, wanted, host(numa_nodes=BOTH, devices=free)) == {"w1": 55}

    def test_what_is_not_known_counts_as_another_node(self) -> None:
        hosts = (
            host("w1", numa_nodes=BOTH, devices=(gpu("25:00.0"),)),
            host("w2", devices=(gpu("25:00.0"),)),
        )
        assert cost(costs.numa_distance, self.ONE, *hosts) == {"w1": 100, "w2": 100}

    def test_each_host_has_its_own_distances(self) -> None:
        far = (NumaNode(0, 32, 254.0, {0: 10, 1: 32}), NumaNode(1, 32, 2.0, {0: 32, 1: 10}))
        hosts = (
            host("w1", numa_nodes=far, devices=(gpu("a5:00.0", node=1),)),
            host("w2", numa_nodes=BOTH, devices=(gpu("a5:00.0", node=1),)),
        )
        assert cost(costs.numa_distance, self.ONE, *hosts) == {"w1": 220, "w2": 0}


class TestScarcity:
    FPGA = FreeDevice("FPGA", at("40:00.0"), "U280")
    HOSTS = (
        host("w1", devices=(gpu("25:00.0"), FPGA)),
        host("w2", devices=(gpu("25:00.0"),)),
        host("w3"),
        host("w4"),
    )

    def test_a_plain_instance_on_a_gpu_host_is_dear(self) -> None:
        assert cost(costs.scarcity, needs(), *self.HOSTS) == {
            "w1": 1000,
            "w2": 500,
            "w3": 0,
            "w4": 0,
        }

    def test_what_is_asked_for_costs_nothing(self) -> None:
        said = cost(costs.scarcity, needs(devices=(need(),)), *self.HOSTS)
        assert (said["w1"], said["w2"]) == (750, 0)

    def test_what_every_host_has_is_not_scarce(self) -> None:
        everywhere = host("w1", devices=(vf("25:00.1"),)), host("w2", devices=(vf("25:00.1"),))
        assert cost(costs.scarcity, needs(), *everywhere) == {"w1": 0, "w2": 0}

    def test_a_need_of_any_model_asks_for_the_most_plentiful(self) -> None:
        hosts = (
            host("w1", devices=(gpu("25:00.0", "H100"),)),
            host("w2", devices=(gpu("25:00.0", "T4"), gpu("26:00.0", "T4"))),
        )
        assert cost(costs.scarcity, needs(devices=(need(),)), *hosts) == {"w1": 500, "w2": 0}

    def test_how_many_hosts_have_it_counts_not_how_many_there_are_on_one(self) -> None:
        many = tuple(gpu(f"{bus:02x}:00.0") for bus in range(0x20, 0x28))
        assert cost(costs.scarcity, needs(), host("w1", devices=many), host("w2"))["w1"] == 500


def test_another_owner_costs_1000() -> None:
    hosts = host("w1", slivers={"a": "p1"}), host("w2", slivers={"b": "p2", "c": None}), host("w3")
    assert cost(costs.other_owner, needs(owner="p1"), *hosts) == {"w1": 0, "w2": 1000, "w3": 1000}
    assert set(cost(costs.other_owner, needs(), *hosts).values()) == {0}


def test_an_image_that_must_be_fetched_costs_1000_and_an_unknown_one_500() -> None:
    hosts = (
        host("w1", images=frozenset({"ubuntu", "rocky"})),
        host("w2", images=frozenset({"rocky"})),
        host("w3"),
    )
    assert cost(costs.image_not_at_hand, needs(), *hosts) == {"w1": 0, "w2": 1000, "w3": 500}
