"""Which node each bare-metal sliver of a batch gets, and why the others get none."""

from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabric_direct.drivers.contract import BareMetalNode, NodeCondition
from fabric_direct.drivers.contract.node_choice import choose, order_of, why_not
from fabric_direct.errors import Conflict, InvalidSliver, NoHost
from fabric_direct.model.bare_metal import BareMetalSliver
from fabric_direct.placement.nodes import check_nodes, explain_nodes, place_nodes
from fabric_direct.placement.plan import Assignment, BuildPlan, Choice
from tests.unit.bare_metal_nodes import CONTESTED, MACS, NODES, SLIVERS, metal, node

SMALL, BIG = node("small"), node("big", cores=64, resource_class="large", traits=("CUSTOM_A",))


def where(plan: BuildPlan) -> dict[str, str]:
    return {each.request: each.chosen.place for each in plan.assignments}


class TestPlace:
    def test_each_gets_the_smallest_node_that_is_left(self) -> None:
        plan = place_nodes([metal("m1"), metal("m2")], [BIG, SMALL])

        assert where(plan) == {"m1": "small", "m2": "big"}
        assert [each.chosen.cost for each in plan.assignments] == [8, 64]

    def test_nodes_that_are_alike_are_taken_by_name(self) -> None:
        nodes = [node("c"), node("a"), node("b")]
        plan = place_nodes([metal("m1")], nodes, alternatives=5)

        assert where(plan) == {"m1": "a"}
        assert plan.assignments[0].next == ("b", "c")

    def test_one_that_others_would_do_without_is_left_for_who_needs_it(self) -> None:
        picky = node("picky", cores=1, traits=("CUSTOM_A",))
        plan = place_nodes([metal("m1"), metal("m2", traits=["CUSTOM_A"])], [picky, SMALL])

        assert where(plan) == {"m1": "small", "m2": "picky"}

    def test_room_is_made_over_several_slivers(self) -> None:
        nodes = [
            node(f"n{n}", cores=n, traits=(f"CUSTOM_T{n}", f"CUSTOM_T{n + 1}")) for n in (1, 2, 3)
        ]
        slivers = [metal(f"m{n}", traits=[f"CUSTOM_T{n}"]) for n in (2, 3, 1)]

        assert where(place_nodes(slivers, nodes)) == {"m2": "n2", "m3": "n3", "m1": "n1"}

    @pytest.mark.parametrize("condition", [c for c in NodeCondition if c != NodeCondition.FREE])
    def test_a_node_that_is_not_free_has_no_room(self, condition: NodeCondition) -> None:
        plan = place_nodes([metal()], [replace(SMALL, condition=condition, tenant="them")])

        assert not plan.assignments
        (unplaced,) = plan.unplaced
        assert unplaced.why == f"small is {condition} by them"
        assert unplaced.refused == {"condition": 1}

    def test_who_came_too_late_is_told_who_has_them(self) -> None:
        slivers = [metal("m1"), metal("m2"), metal("m3", resource_class="large")]
        plan = place_nodes(slivers, [BIG, SMALL], partial=True)

        assert where(plan) == {"m1": "small", "m2": "big"}
        (unplaced,) = plan.unplaced
        assert unplaced.request == "m3"
        assert unplaced.why == "big is reserved by m2"
        assert unplaced.refused == {"resource_class": 1, "condition": 1}

    def test_all_get_one_or_none(self) -> None:
        plan = place_nodes([metal("m1"), metal("m2")], [SMALL])

        assert plan.assignments == ()
        assert [each.request for each in plan.unplaced] == ["m2"]

    @pytest.mark.parametrize(
        ("asked", "field"),
        [
            ({"node": "absent"}, "node"),
            ({"resource_class": "gold"}, "resource_class"),
            ({"traits": ["CUSTOM_B"]}, "traits"),
            ({"capacities": {"core": 65}}, "capacities"),
            ({"nics": [{"id": "n1"}]}, "nics"),
        ],
    )
    def test_what_no_node_could_serve_is_refused_by_its_field(
        self, asked: dict[str, object], field: str
    ) -> None:
        with pytest.raises(InvalidSliver) as refused:
            place_nodes([metal("m1"), metal("m2", **asked)], [SMALL, BIG], partial=True)

        assert refused.value.field == field

    def test_of_a_site_without_nodes_none_can_be_had(self) -> None:
        with pytest.raises(InvalidSliver, match="the site has no bare-metal nodes"):
            place_nodes([metal()], [])

    def test_a_sliver_that_is_given_twice_is_refused(self) -> None:
        with pytest.raises(InvalidSliver, match="m1 is given twice"):
            place_nodes([metal(), metal()], [SMALL, BIG])

    def test_a_named_interface_is_found(self) -> None:
        nodes = [node(f"n{number}", mac) for number, mac in enumerate(MACS)]
        slivers = [metal(f"m{n}", nics=[{"id": "n", "mac": MACS[n]}]) for n in (2, 0)]

        assert where(place_nodes(slivers, nodes)) == {"m2": "n2", "m0": "n0"}


class TestAnyNodesAndSlivers:
    """Each property holds of all nodes and slivers that hypothesis thinks of."""

    @given(NODES, SLIVERS)
    def test_one_sliver_gets_what_its_creation_would_choose(
        self, nodes: list[BareMetalNode], slivers: list[BareMetalSliver]
    ) -> None:
        sliver = slivers[0]
        chosen, error = _chosen(nodes, sliver)
        if isinstance(error, InvalidSliver):
            with pytest.raises(InvalidSliver) as refused:
                place_nodes([sliver], nodes)
            assert str(refused.value) == str(error)
            return

        plan = place_nodes([sliver], nodes, alternatives=9)

        found = [name for each in plan.assignments for name in (each.chosen.place, *each.next)]
        assert (found, [each.why for each in plan.unplaced]) == (
            chosen,
            [error.why] if error else [],
        )

    @given(NODES, SLIVERS)
    def test_a_batch_gets_different_nodes_each_of_which_its_creation_would_take(
        self, nodes: list[BareMetalNode], slivers: list[BareMetalSliver]
    ) -> None:
        servable = [sliver for sliver in slivers if _can_ever(nodes, sliver)]
        plan = place_nodes(servable, nodes, partial=True)
        given_to = where(plan)

        assert len(set(given_to.values())) == len(given_to)
        by_id = {sliver.id: sliver for sliver in servable}
        for request, name in given_to.items():
            assert name in {each.name for each in choose(nodes, by_id[request])}

    @settings(max_examples=200)
    @given(st.one_of(CONTESTED, st.tuples(NODES, SLIVERS)))
    def test_no_plan_places_more_nor_takes_smaller_nodes_nor_gives_up_an_earlier_sliver(
        self, site: tuple[list[BareMetalNode], list[BareMetalSliver]]
    ) -> None:
        nodes, slivers = site
        servable = [sliver for sliver in slivers if _can_ever(nodes, sliver)]
        plan = place_nodes(servable, nodes, partial=True)
        ranks = {each.name: rank for rank, each in enumerate(sorted(nodes, key=order_of))}
        placed = [sliver.id in where(plan) for sliver in servable]
        best = max(_outcomes(nodes, servable, ranks))

        assert (placed, sorted(ranks[name] for name in where(plan).values())) == (
            best[0],
            [-rank for rank in best[1]],
        )

    @given(NODES, SLIVERS)
    def test_why_counts_each_node_once(
        self, nodes: list[BareMetalNode], slivers: list[BareMetalSliver]
    ) -> None:
        servable = [sliver for sliver in slivers if _can_ever(nodes, sliver)]
        for unplaced in place_nodes(servable, nodes, partial=True).unplaced:
            assert sum(unplaced.refused.values()) == len(nodes)

    @given(NODES, SLIVERS)
    def test_explained_is_what_choice_says_of_each_node(
        self, nodes: list[BareMetalNode], slivers: list[BareMetalSliver]
    ) -> None:
        told = explain_nodes(slivers[0], nodes).nodes
        by_name = {each.name: list(why_not(each, slivers[0].needs)) for each in nodes}

        assert {each.node: each.why for each in told} == {
            name: "; ".join(why for _, why in reasons) for name, reasons in by_name.items()
        }
        free = [each.node for each in told if each.refused_by is None]
        assert free == _chosen(nodes, slivers[0])[0]


def _chosen(
    nodes: list[BareMetalNode], sliver: BareMetalSliver
) -> tuple[list[str], InvalidSliver | NoHost | None]:
    """Return what the creation of a sliver would choose from, or why it fails."""
    try:
        return [each.name for each in choose(nodes, sliver)], None
    except (InvalidSliver, NoHost) as error:
        return [], error


def _can_ever(nodes: list[BareMetalNode], sliver: BareMetalSliver) -> bool:
    return not isinstance(_chosen(nodes, sliver)[1], InvalidSliver)


def _outcomes(
    nodes: list[BareMetalNode], slivers: list[BareMetalSliver], ranks: dict[str, int]
) -> list[tuple[list[bool], list[int]]]:
    """Return of every way to give nodes to slivers which slivers have one, and their negated ranks.

    The greatest is the best: earlier slivers first, then smaller nodes. As many as possible are placed
    in it, since a sliver that can be placed in addition is.
    """
    can = {s.id: {n.name for n in nodes if not any(why_not(n, s.needs))} for s in slivers}
    names = [*ranks, *[""] * len(slivers)]
    return [
        ([bool(name) for name in way], sorted((-ranks[name] for name in way if name), reverse=True))
        for way in set(permutations(names, len(slivers)))
        if all(not name or name in can[s.id] for s, name in zip(slivers, way, strict=True))
    ]


class TestExplain:
    def test_tells_each_node_with_all_reasons_the_smallest_that_fits_first(self) -> None:
        nodes = [
            replace(BIG, name="a", condition=NodeCondition.ACTIVE, tenant="them"),
            BIG,
            SMALL,
        ]
        told = explain_nodes(metal(resource_class="large", capacities={"core": 9}), nodes).nodes

        assert [(each.node, each.refused_by, each.why, each.cost) for each in told] == [
            ("big", None, "", 64),
            ("a", "condition", "a is active by them", None),
            (
                *("small", "resource_class"),
                "small has small; small has too little core, or does not tell it",
                None,
            ),
        ]


class TestCheck:
    def plan(self, **places: str) -> BuildPlan:
        return BuildPlan(
            assignments=tuple(
                Assignment(request=request, chosen=Choice(node=name, cost=0))
                for request, name in places.items()
            )
        )

    def test_what_can_still_be_given_passes(self) -> None:
        check_nodes(self.plan(m1="small", m2="big"), [metal("m1"), metal("m2")], [SMALL, BIG])

    @pytest.mark.parametrize(
        ("places", "nodes", "why"),
        [
            ({"m1": "gone"}, [SMALL], "there is no such node any more"),
            (
                {"m1": "small"},
                [replace(SMALL, condition=NodeCondition.CLEANING)],
                "small is cleaning",
            ),
            ({"m1": "small", "m2": "small"}, [SMALL], "the plan gives it to m1, too"),
            ({"m3": "small"}, [SMALL], "small has small"),
        ],
    )
    def test_what_cannot_is_a_conflict(
        self, places: dict[str, str], nodes: list[BareMetalNode], why: str
    ) -> None:
        slivers = [metal("m1"), metal("m2"), metal("m3", resource_class="large")]

        with pytest.raises(Conflict, match="cannot be carried out any more") as refused:
            check_nodes(self.plan(**places), slivers, nodes)

        assert refused.value.why == why
