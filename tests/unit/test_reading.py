"""What the contracts of drivers mark: which methods only read, and whose answers an operation keeps."""

import threading
from collections.abc import Iterator
from typing import Protocol

import pytest

from fabric_direct.calls.deadline import Deadline, bounded
from fabric_direct.calls.read_cache import ReadCache
from fabric_direct.calls.reading import Reading, reading, reads, reads_once
from fabric_direct.drivers.contract import ComputeDriver, NetworkDriver
from fabric_direct.errors import TimedOut


class Finder(Protocol):
    @reads_once
    def find(self, name: str) -> str: ...

    @reads
    def wait(self, *, timeout: float) -> None: ...


class Shelf(Finder, Protocol):
    def put(self, name: str) -> None: ...

    def lose(self) -> None: ...


class OneShelf:
    """A driver that counts what it is asked."""

    def __init__(self) -> None:
        self.has: set[str] = set()
        self.asked = 0
        self.never = threading.Event()

    def find(self, name: str) -> str:
        self.asked += 1
        if name == "bottom":
            raise ValueError(name)
        return f"{name}: {name in self.has}"

    def wait(self, *, timeout: float) -> None:
        pass

    def put(self, name: str) -> None:
        self.has.add(name)

    def lose(self) -> None:
        self.never.wait()


@pytest.fixture
def shelf() -> Iterator[OneShelf]:
    shelf = OneShelf()
    yield shelf
    shelf.never.set()


@pytest.fixture
def cache() -> ReadCache:
    return ReadCache()


@pytest.fixture
def driver(shelf: OneShelf, cache: ReadCache) -> OneShelf:
    marks = reading(Shelf)
    return bounded(shelf, "shelf", Deadline.within(60), 60, reading=marks, reads=cache)


def test_the_marks_of_a_contract_are_those_of_all_that_it_is_composed_of() -> None:
    assert reading(Shelf) == Reading(frozenset({"find", "wait"}), frozenset({"find"}))
    assert {"find", "plugs", "stamped", "console"} <= reading(ComputeDriver).all
    assert not {"create", "delete", "attach_port", "write_stamp"} & reading(ComputeDriver).all


def test_a_name_may_read_in_one_contract_and_change_something_in_another() -> None:
    assert "ports" in reading(NetworkDriver, Shelf).all
    assert "ports" not in reading(Shelf).all


class TestWhatIsAskedOnce:
    def test_is_asked_once_for_each_question(self, driver: OneShelf, shelf: OneShelf) -> None:
        assert [driver.find("cup"), driver.find("cup"), driver.find("pot")] == [
            *["cup: False"] * 2,
            "pot: False",
        ]
        assert shelf.asked == 2

    def test_is_asked_again_once_anything_was_changed(self, driver: OneShelf) -> None:
        driver.find("cup")
        driver.put("cup")

        assert driver.find("cup") == "cup: True"

    def test_is_asked_again_after_waiting(self, driver: OneShelf, shelf: OneShelf) -> None:
        driver.find("cup")
        shelf.has.add("cup")  # by itself
        driver.wait(timeout=1)

        assert driver.find("cup") == "cup: True"

    def test_is_asked_again_when_it_is_read_back(
        self, driver: OneShelf, shelf: OneShelf, cache: ReadCache
    ) -> None:
        driver.find("cup")
        shelf.has.add("cup")
        cache.invalidate("servers")

        assert driver.find("cup") == "cup: True"

    def test_is_asked_each_time_after_a_call_that_may_come_late(self, shelf: OneShelf) -> None:
        marks, deadline = reading(Shelf), Deadline.within(60)
        hasty, patient = (
            bounded(shelf, "shelf", deadline, limit, reading=marks) for limit in (0.05, 60)
        )
        with pytest.raises(TimedOut):
            hasty.lose()
        patient.find("cup")
        shelf.has.add("cup")

        assert patient.find("cup") == "cup: True"

    def test_an_error_is_no_answer(self, driver: OneShelf, shelf: OneShelf) -> None:
        for _ in range(2):
            with pytest.raises(ValueError, match="bottom"):
                driver.find("bottom")

        assert shelf.asked == 2

    def test_drivers_that_share_a_cache_do_not_share_answers(self, cache: ReadCache) -> None:
        marks, shelves = reading(Shelf), (OneShelf(), OneShelf())
        shelves[1].has.add("cup")
        both = [
            bounded(s, "shelf", Deadline.within(60), 60, reading=marks, reads=cache)
            for s in shelves
        ]

        assert [each.find("cup") for each in both] == ["cup: False", "cup: True"]

    def test_a_change_of_one_driver_is_one_to_all(self, cache: ReadCache) -> None:
        marks, shelves = reading(Shelf), (OneShelf(), OneShelf())
        one, other = (
            bounded(s, "shelf", Deadline.within(60), 60, reading=marks, reads=cache)
            for s in shelves
        )
        one.find("cup")
        other.put("pot")
        one.find("cup")

        assert shelves[0].asked == 2
