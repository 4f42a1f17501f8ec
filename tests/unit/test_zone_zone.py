"""A zone of sources in memory: who is asked, what is taken up, and what is left when something fails."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fabric_direct.errors import Conflict, InvalidSite, NotFound, Unreachable
from fabric_direct.site.config import Site
from fabric_direct.zones.booting import NotPlaced
from fabric_direct.zones.source_health import SourceHealth
from fabric_direct.zones.wire import InstanceStatus, LeftOut, Offer, Selection, reservation_of
from fabric_direct.zones.zone import Zone
from tests.unit.zone_sources import FakeSource, asked, kind, site, sliver_kind, wanted

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def zone(where: Path | Site, *sources: FakeSource, **settings: Any) -> AsyncIterator[Zone]:
    made = Zone(where if isinstance(where, Site) else site(where, **settings), sources)
    await made.start()
    await asyncio.sleep(0.01)  # the first looks at the sources
    try:
        yield made
    finally:
        await made.close()


async def until(so: Any) -> None:
    """Wait until it is so, at most ten seconds."""
    async with asyncio.timeout(10):
        while not so():
            await asyncio.sleep(0.01)


def costs(selection: Selection) -> list[tuple[int, str]]:
    return [(offer.cost, offer.zone) for offer in selection.offers]


def names(left: tuple[LeftOut, ...]) -> list[str]:
    return sorted(each.zone for each in left)


class TestSelecting:
    async def test_asks_all_sources_and_makes_nothing(self, tmp_path: Path) -> None:
        a, b = FakeSource("a", {"small": [3, 5]}), FakeSource("b", {"small": [4]})

        async with zone(tmp_path, a, b) as here:
            selection = await here.select(asked(kind(number=2)))

        assert costs(selection) == [(3, "a"), (4, "b")]
        assert not a.requests
        assert not b.requests

    async def test_tells_nobody_what_the_sources_sealed(self, tmp_path: Path) -> None:
        async with zone(tmp_path, FakeSource("a", {"small": [3]})) as here:
            (offer,) = (await here.select(asked(kind()))).offers

        assert "a-small" not in offer.blob
        assert offer.expires == 60

    async def test_sums_what_is_missing(self, tmp_path: Path) -> None:
        async with zone(tmp_path, FakeSource("a", {"small": [3]}), FakeSource("b")) as here:
            (shortage,) = (await here.select(asked(kind(number=3)))).shortages

        assert shortage.missing == 2
        assert shortage.refused == {"capacity": 2}

    async def test_gives_each_source_nine_tenths_of_the_time(self, tmp_path: Path) -> None:
        a = FakeSource("a", {"small": [3]})

        async with zone(tmp_path, a) as here:
            await here.select(asked(kind(), deadline=2.0))
            await here.select(asked(kind()))

        assert a.deadlines[-2:] == [pytest.approx(1.8), pytest.approx(4.5)]


class TestASourceThatFails:
    async def test_by_not_answering_is_left_out_in_time(self, tmp_path: Path) -> None:
        mute = FakeSource("mute", {"small": [1]}, hangs={"select"})

        async with zone(tmp_path, mute, FakeSource("a", {"small": [3]})) as here:
            async with asyncio.timeout(2):
                selection = await here.select(asked(kind(), deadline=0.2))

        assert costs(selection) == [(3, "a")]
        assert selection.left_out == (
            LeftOut(zone="mute", why="it does not answer: timed out after 0.2 s"),
        )

    @pytest.mark.parametrize("error", [Unreachable("down"), RuntimeError("a mistake in 10.1.2.3")])
    async def test_by_raising_is_left_out_and_named(self, tmp_path: Path, error: Exception) -> None:
        bad = FakeSource("bad", {"small": [1]}, raises={"select": error})

        async with zone(tmp_path, bad, FakeSource("a", {"small": [3]})) as here:
            selection = await here.select(asked(kind()))

        assert costs(selection) == [(3, "a")]
        assert names(selection.left_out) == ["bad"]
        assert "10.1.2.3" not in selection.model_dump_json()

    async def test_further_below_is_named_too(self, tmp_path: Path) -> None:
        a = FakeSource("a", left_out=(LeftOut(zone="leaf", why="no connection"),))

        async with zone(tmp_path, a) as here:
            selection = await here.select(asked(kind()))

        assert selection.left_out == (
            LeftOut(zone="a", why="leaf below it is left out: no connection"),
        )

    async def test_for_long_is_not_asked(self, tmp_path: Path) -> None:
        a = FakeSource("a", {"small": [3]})

        async with zone(tmp_path, a, refresh=0.05) as here:
            a.raises["capabilities"] = Unreachable("down")
            await until(lambda: not here._health[0].healthy)
            selection = await here.select(asked(kind()))
            view = await here.view()

        assert "select" not in a.asked
        assert selection.left_out[0].why == "not heard from: down"
        assert not view.children[0].heard

    async def test_is_asked_unless_three_looks_at_it_in_a_row_were_in_vain(self) -> None:
        """However long a look took: a machine that is busy for some seconds is not away."""
        a, now = FakeSource("a"), [0.0]
        health = SourceHealth(a, 2.0, clock=lambda: now[0])
        await health.refresh(2.0)
        a.raises["capabilities"] = Unreachable("down")
        found = []
        for _ in range(3):
            now[0] += 60.0
            await health.refresh(2.0)
            found.append(health.healthy)

        assert found == [True, True, False]
        del a.raises["capabilities"]
        await health.refresh(2.0)
        assert health.healthy

    async def test_is_asked_again_once_it_answers(self, tmp_path: Path) -> None:
        a = FakeSource("a", {"small": [3]}, raises={"capabilities": Unreachable("down")})

        async with zone(tmp_path, a, refresh=0.05) as here:
            assert not (await here.select(asked(kind()))).offers
            del a.raises["capabilities"]
            await until(lambda: here._health[0].healthy)

            assert (await here.select(asked(kind()))).offers


class TestALoop:
    async def test_ends_where_it_began(self, tmp_path: Path) -> None:
        class Mirror(FakeSource):
            """Asks its parent."""

            async def select(self, request: Any, *, deadline: float) -> Selection:
                return await here.select(request)

        async with zone(tmp_path, Mirror("mirror"), FakeSource("a", {"small": [3]})) as here:
            selection = await here.select(asked(kind(number=2)))

        assert costs(selection) == [(3, "a")]
        (left,) = selection.left_out
        assert left.zone == "mirror"
        assert "the zones form a loop" in left.why

    async def test_does_not_count_its_own_twice(self, tmp_path: Path) -> None:
        below, own = FakeSource("below"), FakeSource("PARENT")

        async with zone(tmp_path, own, below) as here:
            first = await here.view()
            below.zones = first.capabilities.zones  # it has come to know its parent as its child
            await here._health[1].refresh(1)

            assert first.capabilities.cores == 8
            assert (await here.view()).capabilities.cores == 4


class TestBooting:
    async def test_sends_each_build_to_the_source_that_offered_it(self, tmp_path: Path) -> None:
        a, b = FakeSource("a", {"small": [3, 5]}), FakeSource("b", {"small": [4]})

        async with zone(tmp_path, a, b) as here:
            selection = await here.select(asked(kind(number=3)))
            booted = await here.boot(
                wanted(sliver_kind(number=3), offers=selection.offers, request_id="request-2")
            )
            reservation = await here.reservation(booted)

        assert [o.blob for r in a.requests for o in r.offers] == ["a-small-3-0", "a-small-5-1"]
        assert [(i.name, i.zone, i.status) for i in reservation.instances] == [
            ("small-1", "a", InstanceStatus.DONE),
            ("small-3", "a", InstanceStatus.DONE),
            ("small-2", "b", InstanceStatus.DONE),
        ]

    async def test_selects_by_itself_what_the_offers_leave_open(self, tmp_path: Path) -> None:
        a = FakeSource("a", {"small": [3, 5], "large": [9]})

        async with zone(tmp_path, a) as here:
            (offer,) = (await here.select(asked(kind("large")))).offers
            await here.boot(wanted(sliver_kind(number=2), sliver_kind("large"), offers=(offer,)))

        assert a.alive == ["large-1", "small-1", "small-2"]

    async def test_is_refused_with_what_is_missing(self, tmp_path: Path) -> None:
        a = FakeSource("a", {"small": [3]})
        mute = FakeSource("mute", hangs={"select"})

        async with zone(tmp_path, a, mute) as here:
            with pytest.raises(NotPlaced) as refused:
                await here.boot(wanted(sliver_kind(number=2), deadline=0.3))

        assert refused.value.shortages[0].missing == 1
        assert names(refused.value.left_out) == ["mute"]
        assert not a.requests

    async def test_takes_as_many_as_fit_if_that_will_do(self, tmp_path: Path) -> None:
        a = FakeSource("a", {"small": [3]})

        async with zone(tmp_path, a) as here:
            booted = await here.boot(wanted(sliver_kind(number=2), partial=True))

            assert len((await here.reservation(booted)).instances) == 1

    async def test_of_nothing_is_refused_even_so(self, tmp_path: Path) -> None:
        async with zone(tmp_path, FakeSource("a")) as here:
            with pytest.raises(NotPlaced):
                await here.boot(wanted(sliver_kind(), partial=True))


class TestAnOfferThatIsGone:
    async def test_is_made_up_for_by_the_next_choice(self, tmp_path: Path) -> None:
        a, b = FakeSource("a", {"small": [3]}), FakeSource("b", {"small": [9]})

        async with zone(tmp_path, a, b) as here:
            offers = (await here.select(asked(kind()))).offers
            a.places["small"] = []
            await here.boot(wanted(sliver_kind(), offers=offers, request_id="request-2"))

        assert (a.alive, b.alive) == ([], ["small-1"])

    async def test_leaves_nothing_of_the_others_if_there_is_no_other(self, tmp_path: Path) -> None:
        a, b = FakeSource("a", {"small": [3]}), FakeSource("b", {"small": [9]})

        async with zone(tmp_path, a, b) as here:
            offers = (await here.select(asked(kind(number=2)))).offers
            b.places["small"] = []
            with pytest.raises(NotPlaced):
                await here.boot(wanted(sliver_kind(number=2), offers=offers))
            await until(lambda: not a.alive)

        assert len(a.booted) == 1

    async def test_is_selected_again_no_more_often_than_the_site_says(self, tmp_path: Path) -> None:
        fickle = [
            FakeSource(f"f{n}", {"small": [n]}, raises={"boot": Conflict("gone")}) for n in range(9)
        ]

        async with zone(tmp_path, *fickle) as here:
            with pytest.raises(NotPlaced, match="the offers are not valid any more"):
                await here.boot(wanted(sliver_kind()))

        assert sum(each.asked.count("boot") for each in fickle) == 1 + here._retries

    async def test_twice_by_the_same_source_is_had_elsewhere(self, tmp_path: Path) -> None:
        liar = FakeSource("liar", {"small": [0], "large": [0]}, raises={"boot": Conflict("gone")})
        good = FakeSource("good", {"small": [9], "large": [9]})

        async with zone(tmp_path, liar, good) as here:
            await here.boot(wanted(sliver_kind(), sliver_kind("large")))

        assert good.alive == ["large-1", "small-1"]
        assert len(liar.requests) == 4  # both kinds, twice

    async def test_of_a_kind_that_must_be_apart_is_selected_again_as_a_whole(
        self, tmp_path: Path
    ) -> None:
        a, b = FakeSource("a", {"small": [3]}), FakeSource("b", {"small": [4]})

        async with zone(tmp_path, a, b) as here:
            offers = (await here.select(asked(kind(number=2, apart=True)))).offers
            b.places["small"], a.places["small"] = [], [3, 5, 6]
            await here.boot(wanted(sliver_kind(number=2, apart=True), offers=offers))
            await until(lambda: len(a.booted) == 2 and len(a.alive) == 2)

        last = a.requests[-1].kinds[0]
        assert (last.num_instances, last.apart) == (2, True)

    async def test_of_two_that_race_for_the_last_one_goes_to_one(self, tmp_path: Path) -> None:
        a = FakeSource("a", {"gpu": [3]})
        parents = [site(tmp_path, "ONE"), site(tmp_path, "TWO")]

        async with zone(parents[0], a) as one, zone(parents[1], a) as two:
            boots = [
                here.boot(wanted(sliver_kind("gpu"), request_id=f"request-{number}"))
                for number, here in enumerate((one, two))
            ]
            answers = await asyncio.gather(*boots, return_exceptions=True)

        assert sorted(type(answer) for answer in answers if not isinstance(answer, str)) == [
            NotPlaced
        ]
        assert a.alive == ["gpu-1"]


class TestASourceThatFailsToBoot:
    async def test_is_left_out_and_told_to_delete_what_it_may_have_begun(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("fabric_direct.zones.booting._BOOTING", 0.05)  # most of it is left
        slow = FakeSource("slow", {"small": [1]}, hangs={"boot"})
        good = FakeSource("good", {"small": [5]})

        async with zone(tmp_path, slow, good) as here:
            booted = await here.boot(wanted(sliver_kind(), deadline=20.0))
            reservation = await here.reservation(booted)
            await until(lambda: "delete" in slow.asked)

        assert [i.zone for i in reservation.instances] == ["good"]

    async def test_is_told_again_until_it_hears(self, tmp_path: Path) -> None:
        a, b = FakeSource("a", {"small": [3]}), FakeSource("b", {"small": [9]})
        a.raises["delete"] = Unreachable("down")

        async with zone(tmp_path, a, b) as here:
            offers = (await here.select(asked(kind(number=2)))).offers
            b.places["small"] = []
            with pytest.raises(NotPlaced):
                await here.boot(wanted(sliver_kind(number=2), offers=offers))
            await until(lambda: a.asked.count("delete") >= 1)
            assert a.alive
            del a.raises["delete"]
            await until(lambda: not a.alive)

    async def test_is_told_by_the_next_process_if_this_one_ends(self, tmp_path: Path) -> None:
        a, b = FakeSource("a", {"small": [3]}), FakeSource("b", {"small": [9]})
        a.raises["delete"] = Unreachable("down")
        async with zone(tmp_path, a, b) as here:
            offers = (await here.select(asked(kind(number=2)))).offers
            b.places["small"] = []
            with pytest.raises(NotPlaced):
                await here.boot(wanted(sliver_kind(number=2), offers=offers))
        del a.raises["delete"]

        async with zone(tmp_path, a, b):
            await until(lambda: not a.alive)


class TestTheSameRequestAgain:
    async def test_has_the_same_answer_and_makes_nothing(self, tmp_path: Path) -> None:
        a = FakeSource("a", {"small": [3, 4]})

        async with zone(tmp_path, a) as here:
            offers = (await here.select(asked(kind()))).offers
            request = wanted(sliver_kind(), offers=offers, request_id="request-2")
            booted = [await here.boot(request), await here.boot(request)]

        assert booted[0] == booted[1]
        assert a.alive == ["small-1"]

    async def test_while_it_is_handled_waits_for_the_same_answer(self, tmp_path: Path) -> None:
        a = FakeSource("a", {"small": [3, 4]})

        async with zone(tmp_path, a) as here:
            booted = await asyncio.gather(*(here.boot(wanted(sliver_kind())) for _ in range(4)))

        assert len(set(booted)) == 1
        assert a.alive == ["small-1"]

    async def test_with_something_else_is_refused(self, tmp_path: Path) -> None:
        a = FakeSource("a", {"small": [3, 4]})

        async with zone(tmp_path, a) as here:
            await here.boot(wanted(sliver_kind()))
            with pytest.raises(Conflict, match="another request has the same request id"):
                await here.boot(wanted(sliver_kind(number=2)))

    async def test_with_something_else_while_it_is_handled_is_refused(self, tmp_path: Path) -> None:
        a = FakeSource("a", {"small": [3, 4]})

        async with zone(tmp_path, a) as here:
            answers = await asyncio.gather(
                here.boot(wanted(sliver_kind())),
                here.boot(wanted(sliver_kind(number=2))),
                return_exceptions=True,
            )

        assert answers[0] == reservation_of("request-1")
        assert isinstance(answers[1], Conflict)
        assert a.alive == ["small-1"]

    async def test_is_answered_also_if_who_asked_first_has_given_up(self, tmp_path: Path) -> None:
        a, begun = FakeSource("a", {"small": [3]}), asyncio.Event()
        a.on_boot = begun.set

        async with zone(tmp_path, a) as here:
            first = asyncio.create_task(here.boot(wanted(sliver_kind())))
            await begun.wait()
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)

            assert await here.boot(wanted(sliver_kind())) == reservation_of("request-1")

        assert a.alive == ["small-1"]

    async def test_after_a_restart_has_the_same_answer(self, tmp_path: Path) -> None:
        a = FakeSource("a", {"small": [3, 4]})
        async with zone(tmp_path, a) as here:
            booted = await here.boot(wanted(sliver_kind()))

        async with zone(tmp_path, a) as here:
            assert await here.boot(wanted(sliver_kind())) == booted
            assert len((await here.reservation(booted)).instances) == 1

        assert a.alive == ["small-1"]


class TestABlob:
    @pytest.fixture
    def a(self) -> FakeSource:
        return FakeSource("a", {"small": [3, 4], "large": [9]})

    async def test_that_was_taken_up_is_refused(self, tmp_path: Path, a: FakeSource) -> None:
        async with zone(tmp_path, a) as here:
            offers = (await here.select(asked(kind()))).offers
            await here.boot(wanted(sliver_kind(), offers=offers))
            with pytest.raises(Conflict, match="accepted before"):
                await here.boot(wanted(sliver_kind(), offers=offers, request_id="request-2"))

        assert a.alive == ["small-1"]

    async def test_twice_in_one_request_is_refused(self, tmp_path: Path, a: FakeSource) -> None:
        async with zone(tmp_path, a) as here:
            offers = (await here.select(asked(kind()))).offers
            with pytest.raises(Conflict, match="accepted before"):
                await here.boot(wanted(sliver_kind(number=2), offers=offers * 2))

    async def test_that_is_expired_is_refused(self, tmp_path: Path, a: FakeSource) -> None:
        async with zone(tmp_path, a, offer_lifetime=0.05) as here:
            offers = (await here.select(asked(kind()))).offers
            await asyncio.sleep(0.06)
            with pytest.raises(Conflict, match="the offer is expired"):
                await here.boot(wanted(sliver_kind(), offers=offers))

    async def test_of_another_zone_is_refused(self, tmp_path: Path, a: FakeSource) -> None:
        async with zone(site(tmp_path, "OTHER"), a) as other:
            offers = (await other.select(asked(kind()))).offers

        async with zone(tmp_path, a) as here:
            with pytest.raises(Conflict, match="not this zone's"):
                await here.boot(wanted(sliver_kind(), offers=offers))

    async def test_for_another_kind_is_refused(self, tmp_path: Path, a: FakeSource) -> None:
        async with zone(tmp_path, a) as here:
            (offer,) = (await here.select(asked(kind()))).offers
            other = offer.model_copy(update={"kind": "large"})
            with pytest.raises(Conflict, match="for something else"):
                await here.boot(wanted(sliver_kind("large"), offers=(other,)))

    async def test_that_was_altered_is_refused(self, tmp_path: Path, a: FakeSource) -> None:
        async with zone(tmp_path, a) as here:
            (offer,) = (await here.select(asked(kind()))).offers
            swapped = "A" if offer.blob[50] != "A" else "B"
            blob = offer.blob[:50] + swapped + offer.blob[51:]
            altered = Offer.model_validate(offer.model_dump() | {"blob": blob})
            with pytest.raises(Conflict, match="was altered"):
                await here.boot(wanted(sliver_kind(), offers=(altered,)))

        assert not a.requests

    async def test_of_a_child_that_is_gone_is_refused(self, tmp_path: Path, a: FakeSource) -> None:
        async with zone(tmp_path, a) as here:
            offers = (await here.select(asked(kind()))).offers

        async with zone(tmp_path, FakeSource("b")) as here:
            with pytest.raises(Conflict, match="for something else"):
                await here.boot(wanted(sliver_kind(), offers=offers))


class TestAReservation:
    async def test_that_is_unknown_is_not_found(self, tmp_path: Path) -> None:
        async with zone(tmp_path, FakeSource("a")) as here:
            with pytest.raises(NotFound):
                await here.reservation("r-" + "0" * 16)

    async def test_that_was_refused_is_not_found(self, tmp_path: Path) -> None:
        async with zone(tmp_path, FakeSource("a")) as here:
            with pytest.raises(NotPlaced):
                await here.boot(wanted(sliver_kind()))
            with pytest.raises(NotFound):
                await here.reservation(reservation_of("request-1"))

    async def test_names_the_child_that_does_not_answer(self, tmp_path: Path) -> None:
        a, b = FakeSource("a", {"small": [3]}), FakeSource("b", {"small": [4]})

        async with zone(tmp_path, a, b) as here:
            booted = await here.boot(wanted(sliver_kind(number=2)))
            a.raises["instances"] = Unreachable("down")
            reservation = await here.reservation(booted)

        assert [(i.name, i.status) for i in reservation.instances] == [
            ("small-1", InstanceStatus.UNKNOWN),
            ("small-2", InstanceStatus.DONE),
        ]
        assert names(reservation.left_out) == ["a"]

    async def test_knows_its_instances_better_than_a_child_that_lies(self, tmp_path: Path) -> None:
        a = FakeSource("a", {"small": [3]})

        async with zone(tmp_path, a) as here:
            booted = await here.boot(wanted(sliver_kind()))
            (told,) = a.booted.values()
            stranger = told[0].model_copy(update={"name": "stranger"})
            a.booted = dict.fromkeys(a.booted, (stranger,))
            (instance,) = (await here.reservation(booted)).instances

        assert (instance.name, instance.status) == ("small-1", InstanceStatus.UNKNOWN)


class TestDeleting:
    async def test_tells_all_sources(self, tmp_path: Path) -> None:
        a, b = FakeSource("a", {"small": [3]}), FakeSource("b", {"small": [4]})

        async with zone(tmp_path, a, b) as here:
            booted = await here.boot(wanted(sliver_kind(number=2)))
            reservation = await here.delete(booted)

        assert {i.status for i in reservation.instances} == {InstanceStatus.DELETED}
        assert (a.alive, b.alive) == ([], [])

    async def test_twice_is_the_same_as_once(self, tmp_path: Path) -> None:
        async with zone(tmp_path, FakeSource("a", {"small": [3]})) as here:
            booted = await here.boot(wanted(sliver_kind()))

            assert await here.delete(booted) == await here.delete(booted)

    async def test_tells_a_child_that_is_down_when_it_is_back(self, tmp_path: Path) -> None:
        a = FakeSource("a", {"small": [3]})

        async with zone(tmp_path, a, deadline=1.0) as here:
            booted = await here.boot(wanted(sliver_kind()))
            a.raises["delete"] = Unreachable("down")
            await here.delete(booted)
            assert a.alive
            del a.raises["delete"]
            await until(lambda: not a.alive)

    async def test_what_is_unknown_is_not_found_and_never_made(self, tmp_path: Path) -> None:
        a = FakeSource("a", {"small": [3]})

        async with zone(tmp_path, a) as here:
            with pytest.raises(NotFound):
                await here.delete(reservation_of("request-1"))
            with pytest.raises(Conflict, match="cancelled"):
                await here.boot(wanted(sliver_kind()))

        assert not a.requests

    async def test_while_it_is_placed_refuses_it(self, tmp_path: Path) -> None:
        a = FakeSource("a", {"small": [3]})

        async with zone(tmp_path, a) as here:
            a.on_boot = lambda: here._store.delete(reservation_of("request-1"))
            with pytest.raises(Conflict, match="cancelled"):
                await here.boot(wanted(sliver_kind()))
            await until(lambda: a.booted and not a.alive)


async def test_what_a_process_that_ended_was_placing_is_taken_back(tmp_path: Path) -> None:
    a = FakeSource("a", {"small": [3]})
    where = site(tmp_path)
    one = Zone(where, [a])
    slow = asyncio.Event()

    async def boot(request: Any, *, deadline: float) -> str:
        answer = await FakeSource.boot(a, request, deadline=deadline)
        slow.set()
        await asyncio.sleep(3600)
        return answer

    a.boot = boot  # type: ignore[method-assign]
    await one.start()
    booting = asyncio.create_task(one.boot(wanted(sliver_kind())))
    await slow.wait()
    assert a.alive  # and here the process ends

    async with zone(where, a) as two:
        await until(lambda: not a.alive)
        with pytest.raises(Conflict, match="the zone ended while it was being placed"):
            await two.boot(wanted(sliver_kind()))

    booting.cancel()
    for _, task in one._booting.values():
        task.cancel()
    await asyncio.gather(booting, return_exceptions=True)
    await one.close()


def test_a_child_cannot_be_called_like_the_zone(tmp_path: Path) -> None:
    with pytest.raises(InvalidSite, match="the same name as the zone") as refused:
        Zone(site(tmp_path), [FakeSource("PARENT"), FakeSource("PARENT")])

    assert refused.value.field == "zone.children"


async def test_sources_are_asked_at_the_same_time(tmp_path: Path) -> None:
    meeting = asyncio.Barrier(5)

    class Waiting(FakeSource):
        async def select(self, request: Any, *, deadline: float) -> Selection:
            await meeting.wait()
            return await FakeSource.select(self, request, deadline=deadline)

    async with zone(tmp_path, *(Waiting(f"w{n}", {"small": [n]}) for n in range(5))) as here:
        selection = await here.select(asked(kind(number=5)))

    assert len(selection.offers) == 5
