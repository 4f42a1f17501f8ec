"""The queue of operations: in order for each sliver, each taken once, each outcome written once."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from fabric_direct.calls.deadline import wait_until
from fabric_direct.errors import Conflict, Unreachable
from fabric_direct.site.config import Site
from fabric_direct.state.postgresql.connections import Connections
from fabric_direct.state.postgresql.queue import (
    AConductor,
    Conducting,
    OperationQueue,
    Post,
    Taken,
    queue_of,
)
from tests.database.conftest import LEASE, MakeSite

_numbers = count(1)


def post(sliver: str, *before: str, id_: str = "") -> Post:
    number = next(_numbers)
    return Post(
        id=id_ or f"{sliver}/{number}",
        sliver=sliver,
        type="VM",
        operation="create",
        action="",
        request=f"request {number}",
        asker="{}",
        before=before,
    )


@pytest.fixture
def queue(site: Site) -> OperationQueue:
    assert site.state_database
    return queue_of(site.site, site.state_database)


@pytest.fixture
def conducting(queue: OperationQueue) -> Iterator[Conducting]:
    with queue.conducting("here", 1, 10) as it:
        yield it


def posted(queue: OperationQueue, *posts: Post) -> tuple[str, ...]:
    assert queue.post(posts, at_most=10_000, patience=60)
    return tuple(each.id for each in posts)


def taken(conducting: Conducting, *running: str) -> Taken:
    found = conducting.take(running)
    assert found
    return found


def test_the_oldest_is_taken_first_and_once(queue: OperationQueue, conducting: Conducting) -> None:
    first, second = posted(queue, post("a"), post("b"))

    assert [taken(conducting).id, taken(conducting).id] == [first, second]
    assert conducting.take([]) is None


def test_the_next_of_a_sliver_waits_for_the_one_before(
    queue: OperationQueue, conducting: Conducting
) -> None:
    first, second, other = posted(queue, post("a"), post("a"), post("b"))
    one = taken(conducting)

    assert (one.id, taken(conducting).id, conducting.take([])) == (first, other, None)

    assert conducting.end(one, "{}", done=False)
    assert taken(conducting).id == second


def test_what_needs_others_waits_for_all_of_them(
    queue: OperationQueue, conducting: Conducting
) -> None:
    a, b = post("a"), post("b")
    posted(queue, a, b, post("c", a.id, b.id, id_="needs both"))
    one, other = taken(conducting), taken(conducting)

    conducting.end(one, "{}", done=True)
    assert conducting.take([]) is None
    conducting.end(other, "{}", done=False)

    last = taken(conducting)
    assert (last.id, last.undone) == ("needs both", ["b"])


def test_one_that_is_posted_twice_is_there_once(
    queue: OperationQueue, conducting: Conducting
) -> None:
    it = post("a")
    posted(queue, it)
    posted(queue, it)

    one = taken(conducting)
    posted(queue, it)
    assert conducting.take([]) is None
    conducting.end(one, "{}", done=True)
    posted(queue, it)
    assert conducting.take([]) is None


def test_a_cancelled_one_is_passed_over(queue: OperationQueue, conducting: Conducting) -> None:
    first, second, third = posted(queue, post("a"), post("a"), post("a"))
    one = taken(conducting)

    assert queue.cancel([first, second]) == (second,)

    conducting.end(one, "{}", done=True)
    assert taken(conducting).id == third
    assert queue.news([second]).cancelled == (second,)


def test_one_that_was_begun_is_interrupted_and_not_cancelled(
    queue: OperationQueue, conducting: Conducting
) -> None:
    first, second = posted(queue, post("a"), post("b"))
    one = taken(conducting)

    assert queue.cancel([first, second], interrupt=True) == (second,)
    assert conducting.interrupted() == (first,)

    conducting.hand_back(one)
    assert (queue.cancel([first]), taken(conducting).interrupted) == ((), True)


def test_what_was_taken_over_is_not_ended_by_who_had_it(
    queue: OperationQueue, conducting: Conducting, site: Site, server: str
) -> None:
    posted(queue, post("a"))
    one = taken(conducting)
    with psycopg.connect(server) as connection:
        dead = SQL("UPDATE {}.operation SET holder = NULL").format(Identifier(site.site))
        connection.execute(dead)

    assert conducting.take([one.id]) is None
    again = taken(conducting)

    assert (again.id, again.tries) == (one.id, 2)
    assert conducting.end(one, '"late"', done=True) is False
    assert conducting.end(again, '"it"', done=True) is True
    assert queue.news([one.id]).outcomes == {one.id: '"it"'}


def test_one_that_was_taken_without_an_answer_is_taken_again(
    queue: OperationQueue, conducting: Conducting, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, lost = posted(queue, post("a"), post("b"))
    one = taken(conducting)
    begin = Connections.begin

    @contextmanager
    def unanswered(*given: Any) -> Iterator[Any]:
        with begin(*given) as db:
            yield db
        raise Unreachable("the connection was cut as COMMIT was answered")

    with monkeypatch.context() as cut:
        cut.setattr(Connections, "begin", unanswered)
        with pytest.raises(Unreachable):
            conducting.take([running])

    again = taken(conducting, running)
    assert (again.id, again.tries) == (lost, 1)
    assert conducting.end(one, "{}", done=True)
    assert conducting.take([lost]) is None


@pytest.mark.parametrize("away", [False, True], ids=["it begins", "it was away"])
def test_nobody_is_taken_for_dead_before_the_database_has_answered_for_two_leases(
    queue: OperationQueue, conducting: Conducting, site: Site, server: str, away: bool
) -> None:
    def die() -> None:
        with psycopg.connect(server) as connection:
            connection.execute(SQL("SET search_path TO {}").format(Identifier(site.site)))
            connection.execute("INSERT INTO holder VALUES ('dead', now() - interval '1 h', 'it')")
            connection.execute("UPDATE operation SET holder = 'dead'")

    def takes_over() -> bool:
        return bool(conducting.take_over())

    posted(queue, post("a"))
    if away:
        die()
        wait_until("the dead to be taken over", takes_over, timeout=60)
        conducting._answered -= 2 * LEASE
    die()

    assert conducting.take_over() == 0
    wait_until("the dead to be taken over", takes_over, timeout=60)
    assert taken(conducting).sliver == "a"


def test_more_than_may_wait_are_refused_and_none_of_them_is_there(
    queue: OperationQueue, conducting: Conducting
) -> None:
    posted(queue, post("a"))

    with pytest.raises(Conflict, match="too many operations wait"):
        queue.post([post("b"), post("c")], at_most=2, patience=60)

    assert [each.sliver for each in queue.listed()] == ["a"]
    assert queue.post([post("b")], at_most=2, patience=60)


def test_one_that_is_there_is_not_refused_when_it_is_posted_again(
    queue: OperationQueue, conducting: Conducting
) -> None:
    it = post("a")
    posted(queue, it)
    assert conducting.end(taken(conducting), "{}", done=True)
    posted(queue, post("b"))

    assert queue.post([it], at_most=1, patience=60)
    with pytest.raises(Conflict, match="too many operations wait"):
        queue.post([post("c")], at_most=1, patience=60)


def test_a_request_is_forgotten_when_it_has_ended(
    queue: OperationQueue, conducting: Conducting, site: Site, server: str
) -> None:
    posted(queue, post("a"), post("b"))
    conducting.end(taken(conducting), "{}", done=True)
    queue.cancel([each.id for each in queue.listed()])

    with psycopg.connect(server) as connection:
        query = SQL("SELECT DISTINCT request FROM {}.operation").format(Identifier(site.site))
        assert connection.execute(query).fetchall() == [("",)]


def test_many_that_post_and_end_at_once_lose_nothing(
    queue: OperationQueue, conducting: Conducting
) -> None:
    slivers, each = 5, 20
    ended: list[str] = []

    def ask(sliver: str) -> None:
        for _ in range(each):
            posted(queue, post(sliver))

    def conduct() -> None:
        while len(ended) < slivers * each:
            if one := conducting.take([]):
                ended.append(one.id)
                assert conducting.end(one, "{}", done=True)

    with ThreadPoolExecutor(2 * slivers) as threads:
        asking = [threads.submit(ask, f"s{number}") for number in range(slivers)]
        working = [threads.submit(conduct) for _ in range(3)]
        for thread in (*asking, *working):
            thread.result()

    for number in range(slivers):
        mine = [int(id_.split("/")[1]) for id_ in ended if id_.startswith(f"s{number}/")]
        assert (len(mine), mine) == (each, sorted(mine))


def test_more_slivers_than_a_server_has_locks_are_posted_and_cancelled_together(
    site: Site,
) -> None:
    assert site.state_database
    # Connections of its own: of so many, a statement may last longer than a short lease allows.
    url = f"{site.state_database.url}?application_name=many"
    patient = site.state_database.model_copy(update={"url": url, "lease": 30.0})
    queue = queue_of(site.site, patient)
    posts = [post(f"s{number}") for number in range(30_000)]

    assert queue.post(posts, at_most=len(posts), patience=60)
    assert len(queue.cancel([each.id for each in posts])) == len(posts)


def test_the_queue_of_another_site_is_another_one(
    queue: OperationQueue, conducting: Conducting, make_site: MakeSite
) -> None:
    other = make_site()
    assert other.state_database
    posted(queue_of(other.site, other.state_database), post("a"))

    assert (queue.listed(), conducting.take([])) == ([], None)


def test_who_conducts_is_known(queue: OperationQueue, conducting: Conducting) -> None:
    assert queue.conductors() == [AConductor("here", 1, 10)]


def test_what_is_for_a_host_goes_to_its_conductors_as_long_as_there_are_any(
    queue: OperationQueue, conducting: Conducting, site: Site
) -> None:
    assert site.state_database
    (first,) = posted(queue, replace(post("a"), host="w1"))
    # Connections of its own: another holder.
    url = f"{site.state_database.url}?application_name=w1"
    other = site.state_database.model_copy(update={"url": url})
    with queue_of(site.site, other).conducting("w1", 2, 10, ["w1"]) as on_w1:
        assert conducting.take([]) is None
        assert taken(on_w1).id == first
        (second,) = posted(queue, replace(post("b"), host="w1"))

    assert taken(conducting).id == second
