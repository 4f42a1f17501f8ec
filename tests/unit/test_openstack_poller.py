"""Waiting: one list for all, at intervals that fit, and an end in every case."""

import multiprocessing
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from threading import Event
from typing import Any

import pytest
import requests

from fabric_direct.calls.read_cache import ReadCache
from fabric_direct.drivers.openstack.client import poller
from fabric_direct.drivers.openstack.client.poller import wait_for
from fabric_direct.drivers.openstack.client.session import cloud
from fabric_direct.errors import Denied, DriverError, TimedOut
from fabric_direct.site.config import OpenStackSettings
from tests.unit.openstack_api import LoopbackCloud, OpenStackApi, end_waiting, neutron_port

FORK = multiprocessing.get_context("fork")
BUILD = {"id": "s1", "tags": ["a"], "status": "BUILD", "created_at": "2026-01-01T00:00:00Z"}
ACTIVE = {**BUILD, "status": "ACTIVE"}


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads follow each other closely, tries at once."""
    monkeypatch.setattr(poller, "_SHORTEST", 0.01)
    monkeypatch.setattr(poller, "_LONGEST", 0.01)
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda _: None)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as pool:
        yield pool


def servers(*found: dict[str, Any]) -> dict[str, Any]:
    return {"servers": list(found)}


def active(server: Any) -> bool:
    return server is not None and server.status == "ACTIVE"


def gone(thing: Any) -> bool:
    return thing is None


def wait(api: OpenStackApi, name: str = "a", done: Callable[[Any], bool] = active) -> Any:
    return wait_for(cloud(api.settings), "server", name, done, timeout=60, what="server s")


def wait_in_vain(api: OpenStackApi) -> None:
    connection = cloud(api.settings)
    assert connection.compute  # to log in may take as long as a busy machine needs
    wait_for(connection, "server", "a", active, timeout=1, what="server s")


class Gate:
    """A server list whose first answers are held back until they are let through."""

    def __init__(self, api: OpenStackApi, *answers: dict[str, Any]) -> None:
        self.asked, self.open = threading.Semaphore(0), threading.Semaphore(0)
        for answer in answers:
            api.answer("GET", "compute", "/servers/detail", self._held(answer))

    def _held(self, answer: dict[str, Any]) -> Callable[[object], tuple[int, Any]]:
        def held(_: object) -> tuple[int, Any]:
            self.asked.release()
            assert self.open.acquire(timeout=60)
            return 200, answer

        return held

    def reached(self) -> None:
        assert self.asked.acquire(timeout=60)

    def let_through(self) -> None:
        self.open.release()


class TestWaiting:
    def test_ends_when_it_is_as_wanted(self, api: OpenStackApi) -> None:
        api.answer("GET", "compute", "/servers/detail", servers())
        api.answer("GET", "compute", "/servers/detail", servers(BUILD))
        api.answer("GET", "compute", "/servers/detail", servers(ACTIVE))

        assert wait(api).id == "s1"
        assert api.calls == [("GET", "compute", "/servers/detail", {"tags-any": "a"})] * 3

    def test_for_something_to_be_gone_ends_when_it_is(self, api: OpenStackApi) -> None:
        api.answer("GET", "compute", "/servers/detail", servers(ACTIVE))
        api.answer("GET", "compute", "/servers/detail", servers())

        assert wait(api, done=gone) is None
        assert len(api.calls) == 2

    def test_for_a_port_reads_it_by_its_id(self, api: OpenStackApi) -> None:
        port = neutron_port(status="ACTIVE")
        api.answer("GET", "network", "/ports", {"ports": [port]})

        found = wait_for(cloud(api.settings), "port", "p", active, timeout=60, what="port p")

        assert found.id == "p"
        assert api.calls == [("GET", "network", "/ports", {"id": "p"})]

    def test_for_a_volume_reads_it_by_its_id(self, api: OpenStackApi) -> None:
        volume = {"id": "v", "status": "available"}
        api.answer("GET", "volume", "/volumes/v", {"volume": volume})
        api.answer("GET", "volume", "/volumes/v", status=404)

        assert wait_for(cloud(api.settings), "volume", "v", gone, timeout=60, what="v") is None
        assert api.calls == [("GET", "volume", "/volumes/v", {})] * 2

    def test_for_the_server_of_a_tag_that_two_have_is_for_the_older_one(
        self, api: OpenStackApi
    ) -> None:
        younger = {**ACTIVE, "id": "s2", "created_at": "2026-01-01T00:00:01Z"}
        for found in ((BUILD, younger), (younger, BUILD), (younger, ACTIVE)):
            api.answer("GET", "compute", "/servers/detail", servers(*found))

        assert wait(api).id == "s1"
        assert len(api.calls) == 3

    @pytest.mark.parametrize("status", [404, 500, 503])
    def test_goes_on_while_the_api_fails(self, api: OpenStackApi, status: int) -> None:
        def fail(_: object) -> Any:
            raise requests.exceptions.ConnectionError("refused")

        api.answer("GET", "compute", "/servers/detail", status=status)
        api.answer("GET", "compute", "/servers/detail", fail)
        api.answer("GET", "compute", "/servers/detail", servers(ACTIVE))

        assert wait(api).id == "s1"

    def test_reads_past_the_read_cache_and_ends_it(self, api: OpenStackApi) -> None:
        for answer in (BUILD, BUILD, ACTIVE, ACTIVE):
            api.answer("GET", "compute", "/servers/detail", servers(answer))
        connection = cloud(api.settings)

        with ReadCache().active():
            list(connection.compute.servers(any_tags="a"))
            wait(api)
            (found,) = connection.compute.servers(any_tags="a")

        assert found.status == "ACTIVE"
        assert len(api.calls) == 4


class TestInVain:
    @pytest.fixture(autouse=True)
    def unhurried(self, hurried: None, monkeypatch: pytest.MonkeyPatch) -> None:
        """A few reads are enough."""
        monkeypatch.setattr(poller, "_SHORTEST", 0.1)
        monkeypatch.setattr(poller, "_LONGEST", 0.1)

    def test_it_says_what_was_seen_last(self, api: OpenStackApi) -> None:
        api.answer("GET", "compute", "/servers/detail", servers(BUILD))

        with pytest.raises(TimedOut, match=r"timed out after 1 s waiting for server s: .*is BUILD"):
            wait_in_vain(api)

    def test_it_says_that_there_is_nothing(self, api: OpenStackApi) -> None:
        api.answer("GET", "compute", "/servers/detail", servers())

        with pytest.raises(TimedOut, match="there is none"):
            wait_in_vain(api)

    def test_it_says_why_nothing_could_be_read(self, api: OpenStackApi) -> None:
        words = {"computeFault": {"code": 500, "message": "Unexpected API Error."}}
        api.answer("GET", "compute", "/servers/detail", words, status=500)

        with pytest.raises(TimedOut, match="Unexpected API Error"):
            wait_in_vain(api)

    def test_it_ends_at_once_if_it_may_not_be_read(self, api: OpenStackApi) -> None:
        words = {"forbidden": {"code": 403, "message": "Policy doesn't allow it."}}
        api.answer("GET", "compute", "/servers/detail", words, status=403)

        with pytest.raises(Denied, match="Policy doesn't allow it"):
            wait(api)

        assert len(api.calls) == 1

    def test_it_ends_at_once_by_a_mistake_of_ours(self, api: OpenStackApi) -> None:
        with pytest.raises(AssertionError, match="foresees no GET compute /servers/detail"):
            wait(api)

    def test_what_done_raises_ends_it_and_ends_the_read_cache(self, api: OpenStackApi) -> None:
        def fault(server: Any) -> bool:
            raise DriverError(f"server {server.id} is in error")

        api.answer("GET", "compute", "/servers/detail", servers(BUILD))
        reads = ReadCache()
        with reads.active():
            list(cloud(api.settings).compute.servers(any_tags="a"))
            with pytest.raises(DriverError, match="server s1 is in error"):
                wait(api, done=fault)
            list(cloud(api.settings).compute.servers(any_tags="a"))

        assert len(api.calls) == 3

    def test_what_done_raises_for_one_leaves_the_others_waiting(
        self, api: OpenStackApi, pool: ThreadPoolExecutor
    ) -> None:
        def fault(_: object) -> bool:
            raise DriverError("in error")

        gate = Gate(api, servers(BUILD))
        api.answer("GET", "compute", "/servers/detail", servers(ACTIVE))
        good = pool.submit(wait, api)
        gate.reached()
        bad = pool.submit(wait, api, done=fault)
        gate.let_through()

        assert good.result(60).id == "s1"
        assert isinstance(bad.exception(30), DriverError)


class TestTogether:
    def both(
        self, api: OpenStackApi, pool: ThreadPoolExecutor, gate: Gate
    ) -> tuple["Future[Any]", "Future[Any]"]:
        """Have one wait, and another come while the first read is on its way."""
        first = pool.submit(wait, api)
        gate.reached()
        second = pool.submit(wait, api, "b")
        while not any(waiter.name == "b" for w in poller._watches.values() for waiter in w.waiters):
            Event().wait(0.005)
        return first, second

    def test_all_servers_are_read_by_one_list(
        self, api: OpenStackApi, pool: ThreadPoolExecutor
    ) -> None:
        gate = Gate(api, servers(BUILD), servers(ACTIVE, {**ACTIVE, "id": "s2", "tags": ["b"]}))
        first, second = self.both(api, pool, gate)

        gate.let_through()
        gate.let_through()

        assert (first.result(60).id, second.result(60).id) == ("s1", "s2")
        assert [query for *_, query in api.calls] == [{"tags-any": "a"}, {"tags-any": "a,b"}]

    def test_what_was_read_before_somebody_came_is_not_given_to_him(
        self, api: OpenStackApi, pool: ThreadPoolExecutor
    ) -> None:
        old = {**ACTIVE, "id": "old", "tags": ["a", "b"]}
        gate = Gate(api, servers(old), servers({**old, "id": "new"}))
        first, second = self.both(api, pool, gate)

        gate.let_through()
        assert first.result(60).id == "old"
        assert not second.done()
        gate.let_through()

        assert second.result(60).id == "new"

    def test_more_than_a_url_holds_are_read_by_several(
        self, api: OpenStackApi, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(poller, "_AT_ONCE", 1)
        gate = Gate(api, servers(BUILD))
        api.answer("GET", "compute", "/servers/detail", servers(ACTIVE))
        api.answer(
            "GET", "compute", "/servers/detail", servers({**ACTIVE, "id": "s2", "tags": ["b"]})
        )
        first, second = self.both(api, pool, gate)
        gate.let_through()

        assert first.result(60).id == "s1"
        assert second.result(60).id == "s2"
        assert [query for *_, query in api.calls[:3]] == [
            {"tags-any": "a"},
            {"tags-any": "a"},
            {"tags-any": "b"},
        ]

    def test_all_ports_are_read_by_one_list(self, api: OpenStackApi) -> None:
        ports = [neutron_port(name, status="ACTIVE") for name in "pq"]
        api.answer("GET", "network", "/ports", {"ports": ports})

        found = poller._ports(cloud(api.settings), {"q", "p"})

        assert set(found) == {"p", "q"}
        assert api.calls == [("GET", "network", "/ports", {"id": ["p", "q"]})]

    def test_a_few_volumes_are_read_by_their_ids_and_many_by_one_list(
        self, api: OpenStackApi
    ) -> None:
        names = [f"v{number}" for number in range(poller._MANY)]
        volumes = [{"id": name, "status": "available", "metadata": {}} for name in names]
        api.answer("GET", "volume", "/volumes/detail", {"volumes": volumes})
        for volume in volumes[1:]:
            api.answer("GET", "volume", f"/volumes/{volume['id']}", {"volume": volume})
        connection = cloud(api.settings)

        few = poller._volumes(connection, set(names[1:]))
        many = poller._volumes(connection, set(names))

        assert (set(few), set(many)) == (set(names[1:]), set(names))
        assert [path for _, _, path, _ in api.calls] == [
            *(f"/volumes/{name}" for name in names[1:]),
            "/volumes/detail",
        ]

    def test_an_api_that_hangs_holds_up_nobody_who_waits_for_another(
        self, api: OpenStackApi, pool: ThreadPoolExecutor
    ) -> None:
        gate = Gate(api, servers(ACTIVE))
        api.answer("GET", "network", "/ports", {"ports": [neutron_port(status="ACTIVE")]})
        held = pool.submit(wait, api)
        gate.reached()

        assert wait_for(cloud(api.settings), "port", "p", active, timeout=60, what="p").id == "p"
        assert not held.done()
        gate.let_through()
        assert held.result(60).id == "s1"

    def test_two_clouds_are_read_apart(self, api: OpenStackApi) -> None:
        api.answer("GET", "compute", "/servers/detail", servers(ACTIVE))
        others = cloud(api.settings, call_limit=59)

        assert wait(api).id == "s1"
        assert wait_for(others, "server", "a", active, timeout=60, what="s").id == "s1"

    def test_nothing_is_read_when_nobody_waits_any_more(self, api: OpenStackApi) -> None:
        api.answer("GET", "compute", "/servers/detail", servers(BUILD))
        with pytest.raises(TimedOut):
            wait_for(cloud(api.settings), "server", "a", active, timeout=0.1, what="s")
        end_waiting()

        assert poller._watches == {}
        before = len(api.calls)
        api.answer("GET", "compute", "/servers/detail", servers(ACTIVE))
        assert wait(api).id == "s1"
        assert 1 <= len(api.calls) - before <= 2


class TestTheInterval:
    @pytest.fixture(autouse=True)
    def usual(self, hurried: None, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.undo()

    @pytest.mark.parametrize(
        ("ages", "took", "seconds"),
        [
            ([0.0], 0.01, 0.2),
            ([1.9], 0.01, 0.2),
            ([10.0], 0.01, 1.0),
            ([600.0], 0.01, 2.0),
            ([600.0, 10.0, 300.0], 0.01, 1.0),
            ([0.0], 0.5, 0.5),
            ([600.0], 3.0, 3.0),
            ([0.0], 60.0, 10.0),
            ([], 60.0, 0.0),
        ],
    )
    def test_grows_with_the_age_of_the_youngest_and_with_the_load_of_the_api(
        self, monkeypatch: pytest.MonkeyPatch, ages: list[float], took: float, seconds: float
    ) -> None:
        watch = object.__new__(poller._Watch)
        watch.waiters = [poller._Waiter("a", active, print) for _ in ages]
        for waiter, age in zip(watch.waiters, ages, strict=True):
            waiter.since = 1000.0 - age
        monkeypatch.setattr(poller.time, "monotonic", lambda: 1000.0)

        assert watch._interval(took) == pytest.approx(seconds)


def wait_in_worker(settings: OpenStackSettings) -> str:
    connection = cloud(settings)
    assert poller._watches == {}
    return str(wait_for(connection, "server", "a", active, timeout=60, what="server s").id)


class TestForks:
    def test_a_worker_and_its_parent_wait_each_for_himself(
        self, loopback: LoopbackCloud, pool: ThreadPoolExecutor
    ) -> None:
        numbers = count()

        def answer(_: object) -> tuple[int, Any]:
            return 200, servers(BUILD if next(numbers) < 30 else ACTIVE)

        loopback.answer("GET", "compute", "/servers/detail", answer)
        waiting = pool.submit(wait, loopback)
        while not loopback.calls:
            Event().wait(0.005)

        child = FORK.Process(target=wait_in_worker, args=(loopback.settings,))
        child.start()
        child.join(60)

        assert child.exitcode == 0
        assert waiting.result(60).id == "s1"

    def test_a_fork_while_another_thread_holds_the_lock_does_not_stop_the_child(
        self, loopback: LoopbackCloud
    ) -> None:
        loopback.answer("GET", "compute", "/servers/detail", servers(ACTIVE))
        with poller._changed:
            child = FORK.Process(target=wait_in_worker, args=(loopback.settings,))
            child.start()
            child.join(60)
        child.kill()

        assert child.exitcode == 0
