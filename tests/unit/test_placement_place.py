"""A batch is placed at once."""

from dataclasses import replace
from itertools import permutations

import pytest

from fabric_direct.errors import Conflict, InvalidSite, InvalidSliver
from fabric_direct.placement.place import check, explain, place
from fabric_direct.placement.plan import BuildPlan
from fabric_direct.placement.request import Request
from fabric_direct.placement.state import HostState, NumaNode
from fabric_direct.site.config import PlacementSettings
from tests.unit.placement_hosts import BOTH, at, gpu, host, need, request

HOSTS = tuple(host(name) for name in ("w1", "w2", "w3"))
SPREAD_ALONE = PlacementSettings(
    weights={
        "spread": 1,
        "imbalance": 0,
        "numa_distance": 0,
        "scarcity": 0,
        "other_owner": 0,
        "image_not_at_hand": 0,
    }
)


def where(plan: BuildPlan) -> dict[str, str]:
    """Return the host of each instance."""
    return {assignment.request: assignment.chosen.host for assignment in plan.assignments}


class TestOne:
    def test_it_goes_to_the_cheapest_host(self) -> None:
        plan = place([request("a")], [host("w1", cores_used=8), host("w2")])
        assert where(plan) == {"a": "w2"}

    def test_to_the_first_by_name_of_equally_cheap_ones(self) -> None:
        for order in permutations(HOSTS):
            assert where(place([request("a")], order)) == {"a": "w1"}

    def test_the_plan_says_what_it_costs(self) -> None:
        plan = place([request("a", 32, 4)], [host()], SPREAD_ALONE)
        chosen = plan.assignments[0].chosen
        assert (chosen.cost, chosen.costs, plan.cost) == (500, {"spread": 500}, 500)

    def test_weights_multiply(self) -> None:
        settings = PlacementSettings(weights=dict.fromkeys(SPREAD_ALONE.weights, 0) | {"pack": 3})
        chosen = place([request("a", 32, 4)], [host()], settings).assignments[0].chosen
        assert (chosen.cost, chosen.costs) == (1500, {"pack": 500})

    def test_without_any_cost_all_hosts_cost_nothing(self) -> None:
        settings = PlacementSettings(weights=dict.fromkeys(SPREAD_ALONE.weights, 0))
        chosen = place([request("a")], HOSTS, settings).assignments[0].chosen
        assert (chosen.host, chosen.cost, chosen.costs) == ("w1", 0, {})
        assert [one.cost for one in explain(request("a"), HOSTS, settings).hosts] == [0, 0, 0]

    def test_with_pack_it_goes_to_the_fullest(self) -> None:
        settings = PlacementSettings(weights={"spread": 0, "pack": 10})
        plan = place([request("a")], [host("w1"), host("w2", cores_used=8)], settings)
        assert where(plan) == {"a": "w2"}

    def test_the_next_hosts_are_noted_as_often_as_the_site_retries(self) -> None:
        hosts = [
            host("w1", cores_used=9),
            host("w2"),
            host("w3", cores_used=5),
            host("w4", enabled=False),
        ]
        for retries, noted in ((0, ()), (1, ("w3",)), (9, ("w3", "w1"))):
            plan = place([request("a")], hosts, PlacementSettings(retries=retries))
            assert plan.assignments[0].next == noted


class TestMany:
    def test_each_sees_what_those_before_it_took(self) -> None:
        plan = place([request(f"r{n}") for n in range(6)], HOSTS, SPREAD_ALONE)
        assert sorted(where(plan).values()) == ["w1", "w1", "w2", "w2", "w3", "w3"]

    def test_no_host_takes_more_than_it_has(self) -> None:
        batch = [request(f"r{n}", 24) for n in range(7)]
        plan = place(batch, HOSTS, partial=True)
        assert len(plan.assignments) == 6
        assert plan.unplaced[0].refused == {"capacity": 3}

    def test_all_or_nothing_is_the_rule(self) -> None:
        plan = place([request("a"), request("b", 65)], HOSTS)
        assert plan.assignments == ()
        assert [(one.request, one.refused) for one in plan.unplaced] == [("b", {"capacity": 3})]

    def test_as_many_as_fit_if_that_is_asked_for(self) -> None:
        assert where(place([request("a"), request("b", 65)], HOSTS, partial=True)) == {"a": "w1"}

    def test_each_host_is_counted_for_the_first_filter_that_refuses_it(self) -> None:
        hosts = [
            host("w1", enabled=False, cores=1),
            host("w2", cores=1),
            host("w3", cores=1),
            host("w4"),
        ]
        plan = place([request("a", required_traits=("CUSTOM_FAST",))], hosts)
        assert plan.unplaced[0].refused == {"in_service": 1, "capacity": 2, "traits": 1}

    def test_without_hosts_nothing_is_placed(self) -> None:
        plan = place([request("a")], [])
        assert (plan.unplaced[0].request, plan.unplaced[0].refused) == ("a", {})

    def test_without_requests_the_plan_is_empty(self) -> None:
        assert place([], HOSTS) == BuildPlan()

    def test_what_is_hard_to_place_goes_first_if_more_fit_so(self) -> None:
        """The order given would put the small one on the only large host, which is the emptier one."""
        hosts = [host("large"), host("small", cores=16)]
        plan = place([request("little", 8), request("big", 60)], hosts)
        assert where(plan) == {"little": "small", "big": "large"}
        assert [assignment.request for assignment in plan.assignments] == ["little", "big"]

    def test_an_image_is_at_hand_for_the_next(self) -> None:
        hosts = [host(name, images=frozenset()) for name in ("w1", "w2")]
        settings = PlacementSettings(weights={"image_not_at_hand": 1000})
        plan = place([request("a"), request("b")], hosts, settings)
        assert where(plan) == {"a": "w1", "b": "w1"}

    def test_an_owner_is_there_for_the_next(self) -> None:
        settings = PlacementSettings(weights={"other_owner": 1000})
        plan = place([request("a", owner="p"), request("b", owner="p")], HOSTS, settings)
        assert where(plan) == {"a": "w1", "b": "w1"}

    def test_a_plan_is_a_value(self) -> None:
        plan = place([request("a", devices=(need("g"),))], [host(devices=(gpu("25:00.0"),))])
        assert BuildPlan.model_validate_json(plan.model_dump_json()) == plan

    def test_hosts_and_requests_stay_as_they_are(self) -> None:
        hosts = [host(devices=(gpu("25:00.0"),))]
        batch = [request("a", devices=(need(),))]
        assert place(batch, hosts) == place(batch, hosts)


class TestApart:
    def test_two_that_exclude_each_other_do_not_share_a_host(self) -> None:
        batch = [request("a", anti_affinity=("b",)), request("b", anti_affinity=("a",))]
        assert place(batch, HOSTS[:1], partial=True).unplaced[0].refused == {"anti_affinity": 1}
        assert len(set(where(place(batch, HOSTS)).values())) == 2

    @pytest.mark.parametrize("namer", ["a", "b"])
    def test_it_is_enough_that_one_names_the_other(self, namer: str) -> None:
        other = {"a": "b", "b": "a"}[namer]
        batch = [request(id_, anti_affinity=(other,) if id_ == namer else ()) for id_ in "ab"]
        assert len(place(batch, HOSTS[:1], partial=True).unplaced) == 1

    def test_slivers_that_are_there_are_avoided(self) -> None:
        hosts = [host("w1", slivers={"old": None}), host("w2", cores_used=60)]
        assert where(place([request("a", anti_affinity=("old",))], hosts)) == {"a": "w2"}

    def test_as_many_as_there_are_hosts(self) -> None:
        ids = [f"r{n}" for n in range(4)]
        batch = [request(id_, anti_affinity=tuple(i for i in ids if i != id_)) for id_ in ids]
        plan = place(batch, HOSTS, partial=True)
        assert sorted(where(plan).values()) == ["w1", "w2", "w3"]


class TestTogether:
    def test_one_follows_the_other_whichever_is_given_first(self) -> None:
        hosts = [host("w1"), host("w2", slivers={"old": None})]
        for follower_first in (True, False):
            batch = [
                request("leader", affinity=("old",)),
                request("follower", affinity=("leader",)),
            ]
            plan = place(batch[::-1] if follower_first else batch, hosts)
            assert where(plan) == {"leader": "w2", "follower": "w2"}

    def test_those_that_name_each_other_share_a_host(self) -> None:
        ids = ("a", "b", "c")
        batch = [request(id_, affinity=tuple(set(ids) - {id_})) for id_ in ids]
        assert len(set(where(place(batch, HOSTS)).values())) == 1

    def test_the_host_has_room_for_all_of_them(self) -> None:
        """The emptiest host by share is too small for both."""
        hosts = [host("large", cores_used=30), host("small", cores=24)]
        batch = [request("a", 12, affinity=("b",)), request("b", 12, 4, 3000, affinity=("a",))]
        narrow = [host("w1", disk=2000.0), host("w2", cores_used=30)]
        assert where(place(batch, narrow)) == {"a": "w2", "b": "w2"}
        assert where(place([request("a", 14, affinity=("b",)), request("b", 14)], hosts)) == {
            "a": "large",
            "b": "large",
        }

    def test_the_host_has_the_devices_for_all_of_them(self) -> None:
        hosts = [
            host("w1", devices=(gpu("25:00.0"),)),
            host("w2", devices=(gpu("25:00.0"), gpu("26:00.0"))),
        ]
        batch = [
            request("a", devices=(need(),), affinity=("b",)),
            request("b", devices=(need(),), affinity=("a",)),
        ]
        assert where(place(batch, hosts)) == {"a": "w2", "b": "w2"}

    def test_another_host_is_tried_if_they_do_not_fit_together_after_all(self) -> None:
        """The cheaper one has the cores for three, but two nodes; how often is the site's to say."""
        three = (*BOTH, NumaNode(2, 32, 128.0))
        hosts = [
            host("w1", numa_nodes=BOTH),
            host("w2", numa_nodes=three, cores=96, cores_used=30),
        ]
        ids = {"a", "b", "c"}
        batch = [
            request(id_, 20, affinity=tuple(ids - {id_}), same_numa_node=True)
            for id_ in sorted(ids)
        ]
        assert set(where(place(batch, hosts)).values()) == {"w2"}
        assert place(batch, hosts, PlacementSettings(retries=0)).unplaced

    def test_one_that_must_have_its_mate_is_not_placed_without(self) -> None:
        batch = [request("a", affinity=("b",)), request("b", 65), request("c", 64)]
        plan = place(batch, HOSTS[:1], partial=True)
        assert where(plan) == {"c": "w1"}
        assert {one.request: one.refused for one in plan.unplaced} == {
            "a": {"affinity": 1},
            "b": {"capacity": 1},
        }

    def test_one_that_names_nobody_is_placed_without_who_names_it(self) -> None:
        batch = [request("a", 65, affinity=("b",)), request("b")]
        assert where(place(batch, HOSTS, partial=True)) == {"b": "w1"}

    def test_what_was_taken_for_those_that_cannot_stay_is_given_back(self) -> None:
        batch = [
            request("a", 40, affinity=("b",)),
            request("b", 40, affinity=("a",)),
            request("c", 60),
        ]
        assert where(place(batch, HOSTS[:1], partial=True)) == {"c": "w1"}

    def test_a_mate_that_is_nowhere_is_followed_nowhere(self) -> None:
        assert place([request("a", affinity=("x",))], HOSTS).unplaced[0].refused == {"affinity": 3}

    def test_together_and_apart_at_once_cannot_be(self) -> None:
        batch = [request("a", affinity=("b",)), request("b", anti_affinity=("a",))]
        plan = place(batch, HOSTS, partial=True)
        assert where(plan) == {"b": "w1"}
        assert plan.unplaced[0].refused == {"affinity": 2, "anti_affinity": 1}

    def test_itself_is_where_it_is(self) -> None:
        assert where(place([request("a", affinity=("a",))], HOSTS)) == {"a": "w1"}


class TestBadInput:
    def test_an_id_that_is_given_twice_is_refused(self) -> None:
        with pytest.raises(InvalidSliver, match=r"requests\[1\].id: a is given twice"):
            place([request("a"), request("a")], HOSTS)

    def test_a_host_that_is_there_twice_is_refused(self) -> None:
        with pytest.raises(InvalidSite, match="w1 is there twice"):
            place([request("a")], [host("w1"), host("w1")])

    @pytest.mark.parametrize("size", [0, -1, 10**9])
    def test_absurd_sizes_are_no_request(self, size: int) -> None:
        for sizes in ((size, 1, 1), (1, size, 1), (1, 1, size)):
            with pytest.raises(ValueError, match="Input should be"):
                request("a", *sizes)

    def test_components_need_different_names(self) -> None:
        with pytest.raises(ValueError, match="devices: component d1 is given twice"):
            request("a", devices=(need(), need()))

    def test_a_type_may_be_asked_for_in_eight_ways_at_most(self) -> None:
        def ways(number: int) -> Request:
            each = (need(f"d{n}", model=f"m{n}") for n in range(number))
            return request("a", devices=tuple(each))

        assert place([ways(8)], HOSTS).unplaced
        with pytest.raises(ValueError, match="9 ways to ask for GPU"):
            ways(9)


class TestExplain:
    def test_the_cheapest_come_first_and_the_refused_last(self) -> None:
        hosts = [
            host("w1", cores=1),
            host("w2", cores_used=8),
            host("w3"),
            host("w0", enabled=False),
        ]
        told = explain(request("a"), hosts)
        assert [(one.host, one.refused_by) for one in told.hosts] == [
            ("w3", None),
            ("w2", None),
            ("w0", "in_service"),
            ("w1", "capacity"),
        ]

    def test_the_sum_is_of_the_costs_by_their_weights(self) -> None:
        told = explain(request("a"), [host(devices=(gpu("25:00.0"),)), host("w2")])
        for one in told.hosts:
            assert one.cost == sum(told.weights[name] * cost for name, cost in one.costs.items())
        assert told.hosts[1].costs["scarcity"] == 500

    def test_it_agrees_with_the_plan(self) -> None:
        hosts = [host("w1", cores_used=8), host("w2", devices=(gpu("25:00.0"),))]
        chosen = place([request("a")], hosts).assignments[0].chosen
        first = explain(request("a"), hosts).hosts[0]
        assert (first.host, first.cost, first.costs) == (chosen.host, chosen.cost, chosen.costs)


class TestCheck:
    BATCH = (
        request("a", devices=(need("g"),), same_numa_node=True),
        request("b", anti_affinity=("a",)),
        request("c", affinity=("b",)),
    )
    HOSTS = (
        host("w1", numa_nodes=BOTH, devices=(gpu("25:00.0 25:00.1", node=0),)),
        host("w2", numa_nodes=BOTH),
    )

    def check_after(self, *hosts: HostState) -> None:
        check(place(self.BATCH, self.HOSTS), self.BATCH, hosts)

    def test_nothing_is_said_while_all_is_as_it_was(self) -> None:
        self.check_after(*self.HOSTS)

    def test_nothing_is_said_if_what_changed_does_not_matter(self) -> None:
        self.check_after(self.HOSTS[0], host("w2", numa_nodes=BOTH, cores_used=60), host("w3"))

    def test_a_plan_that_was_stored_is_checked_alike(self) -> None:
        stored = BuildPlan.model_validate_json(place(self.BATCH, self.HOSTS).model_dump_json())
        check(stored, self.BATCH, self.HOSTS)

    def test_the_host_is_full(self) -> None:
        with pytest.raises(Conflict, match=r"plan for [bc] cannot .* \(w2\): the filter capacity"):
            self.check_after(self.HOSTS[0], host("w2", numa_nodes=BOTH, cores_used=61))

    def test_the_device_is_gone(self) -> None:
        other = host("w1", numa_nodes=BOTH, devices=(gpu("26:00.0 26:00.1", node=0),))
        with pytest.raises(
            Conflict, match=r"plan for a .* 0000:25:00.0, 0000:25:00.1 are not free"
        ):
            self.check_after(other, self.HOSTS[1])

    def test_the_device_is_on_another_node_than_the_memory_now(self) -> None:
        uneven = tuple(n for n in BOTH if n.id == 1)
        moved = host("w1", numa_nodes=uneven, devices=self.HOSTS[0].devices)
        with pytest.raises(Conflict, match=r"plan for a .*: the filter devices refuses it now"):
            self.check_after(moved, self.HOSTS[1])

    def test_each_is_on_the_numa_node_of_the_plan(self) -> None:
        """In another order than the plan was made in, the nodes would be filled otherwise."""
        sizes = (10, 12, 20, 22)
        batch = [request(f"r{n}", core, 4, same_numa_node=True) for n, core in enumerate(sizes)]
        plan = place(batch, [host(numa_nodes=BOTH)])
        assert [one.chosen.numa_node for one in plan.assignments] == [0, 1, 1, 0]
        check(plan, batch, [host(numa_nodes=BOTH)])

    def test_the_numa_node_of_the_plan_is_not_there_any_more(self) -> None:
        batch = [request(f"r{n}", 30, 4, same_numa_node=True) for n in range(2)]
        plan = place(batch, [host(numa_nodes=BOTH)])
        with pytest.raises(Conflict, match=r"plan for r1 .*: .* fit on the NUMA node 1 any more"):
            check(plan, batch, [host(numa_nodes=(BOTH[0], replace(BOTH[1], id=2)))])

    def test_the_host_is_gone(self) -> None:
        with pytest.raises(Conflict, match=r"\(w2\): there is no such host any more"):
            self.check_after(self.HOSTS[0])

    def test_the_host_is_in_maintenance(self) -> None:
        with pytest.raises(Conflict, match="the filter in_service"):
            self.check_after(self.HOSTS[0], host("w2", enabled=False))

    def test_two_instances_of_a_plan_cannot_have_one_device(self) -> None:
        batch = [request(id_, devices=(need("g"),)) for id_ in "ab"]
        plan = place(batch, [host("w1", devices=(gpu("25:00.0"), gpu("26:00.0")))])
        first, second = plan.assignments
        chosen = second.chosen.model_copy(update={"devices": first.chosen.devices})
        forged = BuildPlan(assignments=(first, second.model_copy(update={"chosen": chosen})))
        with pytest.raises(Conflict, match=r"plan for b .* 0000:25:00.0 is not free"):
            check(forged, batch, [host("w1", devices=(gpu("25:00.0"), gpu("26:00.0")))])

    def test_it_must_be_what_is_asked_for(self) -> None:
        plan = place(self.BATCH, self.HOSTS)
        with pytest.raises(Conflict, match="not requested: c"):
            check(plan, self.BATCH[:2], self.HOSTS)
        others = (request("a"), *self.BATCH[1:])
        with pytest.raises(Conflict, match=r"plan for a .*: it is requested with other devices"):
            check(plan, others, self.HOSTS)
        elsewhere = (*self.BATCH[:1], request("b", host="w1"), self.BATCH[2])
        with pytest.raises(Conflict, match=r"plan for b .*: it is requested on w1"):
            check(plan, elsewhere, self.HOSTS)
        functions = (request("a", devices=(need("g", bdf=at("26:00.0")),)), *self.BATCH[1:])
        with pytest.raises(
            Conflict, match=r"plan for a .*: it is requested with other functions of g"
        ):
            check(plan, functions, self.HOSTS)
