"""Filters of placement: which hosts can."""

import pytest

from fabric_direct.placement import filters
from fabric_direct.placement.arrays import columns
from fabric_direct.placement.plugins import Rule
from fabric_direct.placement.request import Needs, Request
from fabric_direct.placement.state import HostState, NumaNode
from tests.unit.placement_hosts import BOTH, at, gpu, host, need, needs, vf


def passing(rule: Rule, wanted: Needs, *hosts: HostState) -> set[str]:
    """Return the names of the hosts that a filter lets pass."""
    batch = columns(hosts, [Request(id="r1", needs=wanted)])
    return set(batch.names[rule(batch.rows(), wanted)])


class TestInService:
    def test_a_host_in_maintenance_is_refused(self) -> None:
        hosts = host("w1", enabled=False, why_disabled="new disk"), host("w2")
        assert passing(filters.in_service, needs(), *hosts) == {"w2"}


class TestHost:
    def test_any_passes_where_none_is_named(self) -> None:
        assert passing(filters.host, needs(), host("w1"), host("w2")) == {"w1", "w2"}

    def test_only_the_one_that_is_named_passes(self) -> None:
        assert passing(filters.host, needs(host="w2"), host("w1"), host("w2")) == {"w2"}

    def test_none_passes_if_the_named_one_is_not_there(self) -> None:
        assert passing(filters.host, needs(host="w9"), host("w1")) == set()

    def test_excluded_ones_are_refused(self) -> None:
        wanted = needs(exclude_hosts=("w1", "w3", "w9"))
        assert passing(filters.host, wanted, *map(host, ("w1", "w2", "w3"))) == {"w2"}


class TestCapacity:
    @pytest.mark.parametrize(
        ("used", "fits"),
        [
            ({}, True),
            ({"cores_used": 62}, True),
            ({"cores_used": 63}, False),
            ({"ram_used": 252.0}, True),
            ({"ram_used": 252.5}, False),
            ({"disk_used": 3990.0}, True),
            ({"disk_used": 3990.1}, False),
        ],
    )
    def test_what_is_left_counts(self, used: dict[str, float], fits: bool) -> None:
        assert passing(filters.capacity, needs(2, 4, 10), host(**used)) == (
            {"w1"} if fits else set()
        )

    def test_more_than_there_is_may_be_promised_by_the_ratio(self) -> None:
        plain, generous = host("w1", cores_used=64), host("w2", cores_used=64, cpu_ratio=1.5)
        assert passing(filters.capacity, needs(32), plain, generous) == {"w2"}

    def test_less_than_there_is_may_be_promised_by_the_ratio(self) -> None:
        assert passing(filters.capacity, needs(disk=3201), host(disk_ratio=0.8)) == set()
        assert passing(filters.capacity, needs(disk=3200), host(disk_ratio=0.8)) == {"w1"}

    def test_a_ratio_does_not_make_the_host_larger_than_it_is_for_one_instance(self) -> None:
        assert passing(filters.capacity, needs(65), host(cpu_ratio=16.0)) == set()
        assert passing(filters.capacity, needs(ram=257), host(ram_ratio=2.0)) == set()

    def test_what_a_ratio_promises_is_not_less_by_a_rounding_error(self) -> None:
        assert 100 * 0.57 < 57
        assert passing(filters.capacity, needs(disk=57), host(disk=100.0, disk_ratio=0.57)) == {
            "w1"
        }

    def test_an_over_committed_host_is_refused(self) -> None:
        assert passing(filters.capacity, needs(), host(cores_used=100)) == set()

    @pytest.mark.parametrize("nonsense", [float("nan"), float("inf"), -5.0])
    def test_a_size_that_is_none_counts_as_nothing(self, nonsense: float) -> None:
        assert passing(filters.capacity, needs(), host(ram=nonsense)) == set()


class TestArchitecture:
    def test_a_host_that_does_not_run_it_is_refused(self) -> None:
        arm = host("w1", architectures=frozenset({"aarch64"}))
        both = host("w2", architectures=frozenset({"aarch64", "x86_64"}))
        assert passing(filters.architecture, needs(architecture="x86_64"), arm, both) == {"w2"}

    def test_a_host_that_does_not_say_is_not_refused(self) -> None:
        assert passing(filters.architecture, needs(architecture="x86_64"), host()) == {"w1"}

    def test_any_will_do_where_none_is_asked_for(self) -> None:
        arm = host("w1", architectures=frozenset({"aarch64"}))
        assert passing(filters.architecture, needs(), arm) == {"w1"}


class TestTraits:
    HOSTS = (
        host("w1", traits=frozenset({"HW_CPU_X86_AVX2"})),
        host("w2", traits=frozenset({"HW_CPU_X86_AVX2", "CUSTOM_LOUD"})),
        host("w3"),
    )

    def test_all_required_ones_must_be_there(self) -> None:
        assert passing(
            filters.traits, needs(required_traits=("HW_CPU_X86_AVX2",)), *self.HOSTS
        ) == {"w1", "w2"}
        both = needs(required_traits=("HW_CPU_X86_AVX2", "CUSTOM_LOUD"))
        assert passing(filters.traits, both, *self.HOSTS) == {"w2"}

    def test_no_forbidden_one_may_be_there(self) -> None:
        assert passing(filters.traits, needs(forbidden_traits=("CUSTOM_LOUD",)), *self.HOSTS) == {
            "w1",
            "w3",
        }

    def test_no_host_has_a_trait_that_nobody_knows(self) -> None:
        assert (
            passing(filters.traits, needs(required_traits=("CUSTOM_NOBODY",)), *self.HOSTS) == set()
        )


class TestDevices:
    def test_none_are_needed_where_none_are_asked_for(self) -> None:
        assert passing(filters.devices, needs(), host()) == {"w1"}

    def test_type_and_model_must_be_there(self) -> None:
        hosts = (
            host("w1", devices=(gpu("25:00.0", "A30"),)),
            host("w2", devices=(gpu("25:00.0", "T4"),)),
            host("w3", devices=(vf("25:00.0"),)),
        )
        assert passing(filters.devices, needs(devices=(need(model="T4"),)), *hosts) == {"w2"}
        assert passing(filters.devices, needs(devices=(need(),)), *hosts) == {"w1", "w2"}

    def test_a_type_that_nobody_has_is_refused_everywhere(self) -> None:
        assert passing(filters.devices, needs(devices=(need(type_="TPU"),)), host()) == set()

    def test_as_many_must_be_there_as_are_asked_for(self) -> None:
        hosts = (
            host("w1", devices=(gpu("25:00.0"),)),
            host("w2", devices=(gpu("25:00.0"), gpu("26:00.0"))),
        )
        assert passing(filters.devices, needs(devices=(need("a"), need("b"))), *hosts) == {"w2"}

    def test_a_device_that_is_given_twice_is_there_once(self) -> None:
        twice = host(devices=(gpu("25:00.0 25:00.1"), gpu("25:00.1")))
        assert passing(filters.devices, needs(devices=(need("a"), need("b"))), twice) == set()

    def test_one_device_does_not_serve_two_needs_of_different_kinds(self) -> None:
        """Each of the two needs could be served, by the same GPU: Hall's condition."""
        wanted = needs(devices=(need("a", model="A30"), need("b")))
        assert passing(filters.devices, wanted, host(devices=(gpu("25:00.0", "A30"),))) == set()
        other = host(devices=(gpu("25:00.0", "A30"), gpu("26:00.0", "T4")))
        assert passing(filters.devices, wanted, other) == {"w1"}

    def test_a_vf_must_be_of_the_uplink(self) -> None:
        hosts = (
            host("w1", devices=(vf("25:00.1", "ens1"),)),
            host("w2", devices=(vf("25:00.1", "ens2"),)),
        )
        wanted = needs(devices=(need(type_="SharedNIC", uplink="ens2"),))
        assert passing(filters.devices, wanted, *hosts) == {"w2"}

    def test_an_uplink_must_be_in_vepa_where_that_is_asked_for(self) -> None:
        hosts = (
            host("w1", devices=(vf("25:00.1"),)),
            host("w2", devices=(vf("25:00.1", vepa=True),)),
        )
        assert passing(
            filters.devices, needs(devices=(need(type_="SharedNIC", vepa=True),)), *hosts
        ) == {"w2"}
        assert passing(filters.devices, needs(devices=(need(type_="SharedNIC"),)), *hosts) == {
            "w1",
            "w2",
        }

    def test_needs_that_overlap_crosswise(self) -> None:
        """One wants the uplink, one wants VEPA; a third, of that uplink in VEPA, leaves too few."""
        pair = (need("a", "SharedNIC", uplink="ens1"), need("b", "SharedNIC", vepa=True))
        free = (vf("25:00.1", "ens1", vepa=True), vf("25:00.2", "ens2"))
        assert passing(filters.devices, needs(devices=pair), host(devices=free)) == set()
        more = (*free, vf("25:00.3", "ens3", vepa=True))
        assert passing(filters.devices, needs(devices=pair), host(devices=more)) == {"w1"}


class TestNamedFunctions:
    def test_they_must_be_free_there(self) -> None:
        hosts = host("w1", devices=(gpu("25:00.0"),)), host("w2", devices=(gpu("26:00.0"),))
        assert passing(filters.devices, needs(devices=(need(bdf=at("26:00.0")),)), *hosts) == {"w2"}

    def test_they_must_be_of_the_type_and_model(self) -> None:
        there = host(devices=(gpu("25:00.0", "A30"),))
        for wrong in (need(type_="NVME", bdf=at("25:00.0")), need(model="T4", bdf=at("25:00.0"))):
            assert passing(filters.devices, needs(devices=(wrong,)), there) == set()

    def test_all_of_them_must_be_free(self) -> None:
        wanted = needs(devices=(need(bdf=at("25:00.0 25:00.1")),))
        assert passing(filters.devices, wanted, host(devices=(gpu("25:00.0 25:00.1"),))) == {"w1"}
        assert passing(filters.devices, wanted, host(devices=(gpu("25:00.0"),))) == set()

    def test_what_is_named_is_gone_for_needs_that_leave_it_open(self) -> None:
        wanted = needs(devices=(need("a", bdf=at("25:00.0")), need("b")))
        assert passing(filters.devices, wanted, host(devices=(gpu("25:00.0"),))) == set()
        assert passing(filters.devices, wanted, host(devices=(gpu("25:00.0"), gpu("26:00.0")))) == {
            "w1"
        }

    def test_two_needs_cannot_share_a_device(self) -> None:
        halves = need("a", bdf=at("25:00.0")), need("b", bdf=at("25:00.1"))
        assert (
            passing(filters.devices, needs(devices=halves), host(devices=(gpu("25:00.0 25:00.1"),)))
            == set()
        )


class TestOneNumaNode:
    def test_all_devices_must_be_on_it(self) -> None:
        apart = host(
            "w1", numa_nodes=BOTH, devices=(gpu("25:00.0", node=0), gpu("a5:00.0", node=1))
        )
        near = host("w2", numa_nodes=BOTH, devices=(gpu("a5:00.0", node=1), gpu("a6:00.0", node=1)))
        two = (need("a"), need("b"))
        assert passing(filters.devices, needs(devices=two), apart, near) == {"w1", "w2"}
        assert passing(filters.devices, needs(devices=two, same_numa_node=True), apart, near) == {
            "w2"
        }

    def test_a_named_device_must_be_on_it_too(self) -> None:
        apart = host(
            numa_nodes=BOTH, devices=(gpu("25:00.0", node=0), gpu("a5:00.0", "T4", node=1))
        )
        wanted = needs(
            devices=(need("a", bdf=at("25:00.0")), need("b", model="T4")), same_numa_node=True
        )
        assert passing(filters.devices, wanted, apart) == set()

    def test_as_many_cores_and_as_much_memory_must_be_on_it(self) -> None:
        there = host(numa_nodes=BOTH)
        assert passing(filters.devices, needs(32, 128, same_numa_node=True), there) == {"w1"}
        assert passing(filters.devices, needs(33, 128, same_numa_node=True), there) == set()
        assert passing(filters.devices, needs(32, 129, same_numa_node=True), there) == set()

    def test_they_must_be_on_the_node_of_the_devices(self) -> None:
        uneven = (NumaNode(0, 4, 8.0), NumaNode(1, 60, 248.0))
        there = host(numa_nodes=uneven, devices=(gpu("25:00.0", node=0),))
        assert passing(
            filters.devices, needs(4, 8, devices=(need(),), same_numa_node=True), there
        ) == {"w1"}
        assert (
            passing(filters.devices, needs(8, 8, devices=(need(),), same_numa_node=True), there)
            == set()
        )

    def test_a_device_on_no_known_node_is_on_none(self) -> None:
        wanted = needs(devices=(need(),), same_numa_node=True)
        assert (
            passing(filters.devices, wanted, host(numa_nodes=BOTH, devices=(gpu("25:00.0"),)))
            == set()
        )

    def test_on_a_host_of_one_node_everything_is_on_it(self) -> None:
        wanted = needs(devices=(need(),), same_numa_node=True)
        one = host(numa_nodes=(NumaNode(0, 64, 256.0),), devices=(gpu("25:00.0"),))
        assert passing(filters.devices, wanted, one) == {"w1"}

    def test_a_host_that_does_not_know_its_nodes_is_refused(self) -> None:
        assert passing(
            filters.devices, needs(same_numa_node=True), host(), host("w2", numa_nodes=BOTH)
        ) == {"w2"}


class TestAffinity:
    HOSTS = host("w1", slivers={"a": None, "b": "p1"}), host("w2", slivers={"a": None}), host("w3")

    def test_all_slivers_that_are_named_must_be_there(self) -> None:
        assert passing(filters.affinity, needs(affinity=("a",)), *self.HOSTS) == {"w1", "w2"}
        assert passing(filters.affinity, needs(affinity=("a", "b")), *self.HOSTS) == {"w1"}
        assert passing(filters.affinity, needs(affinity=("x",)), *self.HOSTS) == set()

    def test_none_that_is_named_must_be_there(self) -> None:
        assert passing(filters.anti_affinity, needs(anti_affinity=("b", "x")), *self.HOSTS) == {
            "w2",
            "w3",
        }
