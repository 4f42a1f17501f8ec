"""Order for each key, and none between keys."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from fabric_direct.calls.keyed_queue import KeyedQueue


@pytest.fixture
def queue() -> KeyedQueue:
    return KeyedQueue()


@pytest.fixture
def begun() -> list[str]:
    return []


@pytest.fixture
def put(queue: KeyedQueue, begun: list[str]) -> Callable[..., None]:
    def put(key: str, work: str, *, there: bool = True) -> None:
        queue.put(key, lambda: begun.append(work) or there)  # type: ignore[func-returns-value]

    return put


Put = Callable[..., None]


def test_work_of_one_key_is_begun_when_the_one_before_has_left(
    queue: KeyedQueue, put: Put, begun: list[str]
) -> None:
    put("a", "first")
    put("a", "second")
    assert begun == ["first"]

    queue.leave("a")

    assert begun == ["first", "second"]


def test_keys_do_not_wait_for_each_other(put: Put, begun: list[str]) -> None:
    put("a", "one")
    put("b", "other")

    assert begun == ["one", "other"]


def test_work_that_has_nothing_to_do_any_more_is_passed_over(
    queue: KeyedQueue, put: Put, begun: list[str]
) -> None:
    put("a", "first")
    put("a", "cancelled", there=False)
    put("a", "also", there=False)
    put("a", "last")

    queue.leave("a")

    assert begun == ["first", "cancelled", "also", "last"]
    queue.leave("a")
    queue.wait()


def test_a_key_begins_anew_when_its_queue_was_empty(
    queue: KeyedQueue, put: Put, begun: list[str]
) -> None:
    put("a", "gone", there=False)
    put("a", "first")
    queue.leave("a")
    put("a", "second")

    assert begun == ["gone", "first", "second"]


def test_waits_until_all_have_left(queue: KeyedQueue, put: Put) -> None:
    put("a", "one")
    put("b", "other")
    waited = threading.Event()
    thread = threading.Thread(target=lambda: (queue.wait(), waited.set()))
    thread.start()

    queue.leave("a")
    assert not waited.is_set()
    queue.leave("b")

    thread.join(60)
    assert waited.is_set()


def test_many_threads_keep_the_order_of_each_key(queue: KeyedQueue) -> None:
    ran: dict[str, list[int]] = {key: [] for key in "abc"}

    with ThreadPoolExecutor(8) as pool:

        def run(key: str, number: int) -> None:
            ran[key].append(number)
            queue.leave(key)

        for number in range(100):
            for key in ran:
                queue.put(key, lambda k=key, n=number: bool(pool.submit(run, k, n)))
        queue.wait()

    assert all(numbers == list(range(100)) for numbers in ran.values())
