"""One list out of the offers of all sources."""

from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fabric_direct.zones.merging import merge, total
from fabric_direct.zones.wire import (
    Capabilities,
    FreeDevices,
    KindNeeds,
    Offer,
    Selection,
    Shortage,
)
from tests.unit import zone_sources


def kind(name: str = "small", number: int = 2, **values: Any) -> KindNeeds:
    return KindNeeds.model_validate(zone_sources.kind(name, number, **values))


def offers(*costs: int, kind: str = "small", zone: str = "its-own") -> Selection:
    return Selection(
        offers=tuple(
            Offer(kind=kind, cost=cost, zone=zone, blob=f"{kind}-{cost}-{n}", expires=60)
            for n, cost in enumerate(costs)
        )
    )


def short(missing: int, kind: str = "small", **refused: int) -> Selection:
    return Selection(shortages=(Shortage(kind=kind, missing=missing, refused=refused),))


def taken(selection: Selection) -> list[tuple[int, str]]:
    return [(offer.cost, offer.zone) for offer in selection.offers]


def test_the_cheapest_of_all_sources_are_taken_and_bear_the_sources_name() -> None:
    merged = merge((kind(number=3),), {"b": offers(5, 1), "a": offers(9, 2)})

    assert taken(merged) == [(1, "b"), (2, "a"), (5, "b")]
    assert not merged.shortages


def test_equally_cheap_ones_are_taken_by_the_sources_name() -> None:
    merged = merge((kind(number=2),), {"b": offers(3, 3), "a": offers(3)})

    assert taken(merged) == [(3, "a"), (3, "b")]


def test_the_list_is_sorted_by_cost_over_all_kinds() -> None:
    both = Selection(offers=offers(7, 8).offers + offers(1, kind="large").offers)

    assert [o.kind for o in merge((kind(), kind("large", 1)), {"a": both}).offers] == [
        "large",
        "small",
        "small",
    ]


class TestAKindThatMustShareAHost:
    def test_is_taken_from_the_cheapest_source_that_has_all_of_it(self) -> None:
        answers = {"a": offers(1), "b": offers(5, 6), "c": offers(4, 6)}

        assert taken(merge((kind(together=True),), answers)) == [(4, "c"), (6, "c")]

    def test_is_taken_from_the_fullest_if_none_has_all(self) -> None:
        merged = merge((kind(number=4, together=True),), {"a": offers(1), "b": offers(5, 6)})

        assert taken(merged) == [(5, "b"), (6, "b")]
        assert merged.shortages[0].missing == 2


class TestAShortage:
    def test_is_what_all_sources_together_do_not_have(self) -> None:
        answers = {"a": offers(1), "b": Selection(offers=offers(2).offers)}

        assert merge((kind(number=5),), answers).shortages[0].missing == 3

    def test_sums_what_the_filters_of_all_sources_refused(self) -> None:
        answers = {"a": short(2, capacity=3), "b": short(2, capacity=1, devices=4)}

        (shortage,) = merge((kind(),), answers).shortages

        assert shortage.refused == {"capacity": 4, "devices": 4}

    def test_of_one_source_that_another_makes_up_for_is_none(self) -> None:
        assert not merge((kind(),), {"a": short(2), "b": offers(1, 2)}).shortages

    def test_is_there_without_any_source(self) -> None:
        assert merge((kind(number=2),), {}).shortages[0].missing == 2


class TestASourceThatLies:
    def test_gives_no_more_than_was_asked_for(self) -> None:
        assert len(merge((kind(number=2),), {"a": offers(*range(9))}).offers) == 2

    def test_is_not_heard_about_other_kinds(self) -> None:
        merged = merge((kind(number=1),), {"a": offers(1, kind="other"), "b": offers(2)})

        assert taken(merged) == [(2, "b")]


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.lists(st.integers(0, 3), max_size=4), min_size=1),
    st.booleans(),
    st.integers(1, 6),
    st.randoms(use_true_random=False),
)
def test_the_order_of_the_answers_does_not_matter(
    costs: dict[str, list[int]], together: bool, number: int, random: Random
) -> None:
    names = list(costs)
    random.shuffle(names)
    wanted = (kind(number=number, together=together),)

    one = merge(wanted, {name: offers(*costs[name]) for name in costs})
    other = merge(wanted, {name: offers(*costs[name]) for name in names})

    assert one == other
    missing = sum(shortage.missing for shortage in one.shortages)
    assert len(one.offers) + missing == number


def test_capabilities_are_added_up() -> None:
    gpu, nic = FreeDevices(type="GPU", model="A30", free=1), FreeDevices(type="SharedNIC", free=8)
    one = Capabilities(hosts=1, cores=4, ram=8.5, disk=10, devices=(gpu, nic), traits=("B", "A"))
    two = Capabilities(hosts=2, cores=1, ram=1, disk=1, devices=(gpu,), images=("tiny",))

    assert total((one, two)) == Capabilities(
        hosts=3,
        cores=5,
        ram=9.5,
        disk=11,
        devices=(gpu.model_copy(update={"free": 2}), nic),
        traits=("A", "B"),
        images=("tiny",),
    )
