"""What a zone promised survives it; an offer is taken up once."""

import stat
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fabric_direct.errors import Conflict
from fabric_direct.zones.store import PartState, ReservationState, ReservationStore, SourceInstances

LATER = time.time() + 600


@pytest.fixture
def store(tmp_path: Path) -> ReservationStore:
    return ReservationStore(tmp_path)


def part(name: str = "p1", reservation: str = "r-1", source: str = "child") -> SourceInstances:
    return SourceInstances(
        name, reservation, source, "small", ("n-1", "n-2"), PartState.ASKED, "r-theirs"
    )


def placing(store: ReservationStore, reservation: str = "r-1", *nonces: str) -> None:
    store.begin(reservation, "digest", nonces, LATER)


def test_a_reservation_survives_a_restart(store: ReservationStore, tmp_path: Path) -> None:
    placing(store)
    store.add_parts([part()])
    store.answered("p1", "r-other")
    store.made("r-1")
    again = ReservationStore(tmp_path)

    assert again.state("r-1") is ReservationState.MADE
    (kept,) = again.parts("r-1")
    assert kept.names == ("n-1", "n-2")
    assert (kept.state, kept.theirs) == (PartState.MADE, "r-other")


def test_its_file_is_readable_by_its_owner_alone(store: ReservationStore, tmp_path: Path) -> None:
    placing(store)

    assert stat.S_IMODE((tmp_path / "zone" / "zone.sqlite").stat().st_mode) == 0o600


def test_the_zones_id_stays_the_same(store: ReservationStore, tmp_path: Path) -> None:
    assert store.zone_id() == ReservationStore(tmp_path).zone_id()


class TestAnOffer:
    def test_is_taken_up_once(self, store: ReservationStore) -> None:
        placing(store, "r-1", "nonce")

        with pytest.raises(Conflict, match="accepted before"):
            placing(store, "r-2", "another", "nonce")

        assert store.state("r-2") is None
        placing(store, "r-3", "another")  # what was refused has taken nothing up

    def test_of_two_that_take_it_up_at_once_one_gets_it(self, store: ReservationStore) -> None:
        def take(number: int) -> bool:
            try:
                placing(store, f"r-{number}", "nonce")
            except Conflict:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(take, range(8))) == 1

    def test_is_forgotten_when_it_is_expired(self, store: ReservationStore) -> None:
        store.begin("r-1", "digest", ["nonce"], time.time() - 1)
        store.known("r-2", "digest")

        placing(store, "r-2", "nonce")


class TestARequest:
    def test_that_is_new_is_not_known(self, store: ReservationStore) -> None:
        assert not store.known("r-1", "digest")

    def test_is_known_by_what_it_asks_for(self, store: ReservationStore) -> None:
        placing(store)

        assert store.known("r-1", "digest")
        with pytest.raises(Conflict, match="another request has the same request id"):
            store.known("r-1", "other digest")

    def test_that_was_refused_stays_refused(self, store: ReservationStore) -> None:
        placing(store)
        store.refused("r-1", "not enough hosts")

        with pytest.raises(Conflict, match="this request was refused: not enough hosts"):
            store.known("r-1", "digest")

    def test_that_was_deleted_before_it_came_is_refused(self, store: ReservationStore) -> None:
        assert not store.delete("r-1")

        with pytest.raises(Conflict, match="cancelled"):
            store.known("r-1", "digest")

    def test_that_is_deleted_while_it_is_placed_is_not_made(self, store: ReservationStore) -> None:
        placing(store)
        assert not store.delete("r-1")

        with pytest.raises(Conflict, match="cancelled"):
            store.made("r-1")

    def test_that_was_refused_is_forgotten_in_time_but_not_what_is_still_to_be_deleted(
        self, store: ReservationStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("fabric_direct.zones.store._KEPT", -1)
        placing(store)
        store.add_parts([part()])
        store.refused("r-1", "why")

        assert not store.known("r-1", "digest")
        assert [p.id for p in store.to_delete()] == ["p1"]


class TestWhatShallBeDeleted:
    def test_are_the_parts_of_a_reservation_that_is(self, store: ReservationStore) -> None:
        placing(store)
        store.add_parts([part()])
        store.answered("p1", "r-theirs")
        store.made("r-1")

        assert store.delete("r-1")
        assert [p.id for p in store.to_delete()] == ["p1"]

        store.gone("p1")
        assert not store.to_delete()
        assert [p.state for p in store.parts("r-1")] == [PartState.DELETED]

    def test_is_told_of_for_a_while_only(
        self, store: ReservationStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("fabric_direct.zones.store.SHOWN", -1)
        placing(store)
        store.add_parts([part()])
        store.made("r-1")
        store.delete("r-1")
        store.gone("p1")
        store.known("r-2", "digest")

        assert store.state("r-1") is None
        assert not store.parts("r-1")

    def test_are_parts_that_are_dropped_and_shown_no_more(self, store: ReservationStore) -> None:
        placing(store)
        store.add_parts([part("p1"), part("p2")])
        store.drop(["p1"])

        assert [p.id for p in store.to_delete()] == ["p1"]
        assert [p.id for p in store.parts("r-1")] == ["p2"]

        store.gone("p1")
        assert not store.to_delete()

    def test_are_all_parts_of_what_is_refused(self, store: ReservationStore) -> None:
        placing(store)
        store.add_parts([part("p1"), part("p2")])
        store.answered("p1", "r-theirs")
        store.refused("r-1", "why")

        assert [p.id for p in store.to_delete()] == ["p1", "p2"]

    def test_are_all_parts_of_what_was_being_placed_when_the_process_ended(
        self, store: ReservationStore, tmp_path: Path
    ) -> None:
        for number in (1, 2):
            placing(store, f"r-{number}")
            store.add_parts([part(f"p{number}", f"r-{number}")])
        store.made("r-1")

        again = ReservationStore(tmp_path)
        again.interrupt()

        assert [p.id for p in again.to_delete()] == ["p2"]
        assert again.state("r-1") is ReservationState.MADE
        with pytest.raises(Conflict, match="the zone ended while it was being placed"):
            again.known("r-2", "digest")
