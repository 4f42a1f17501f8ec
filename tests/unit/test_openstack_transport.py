"""How requests reach the cloud: how often, within which time, and what a read cache answers."""

import itertools
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from threading import Barrier, Event, Thread
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from keystoneauth1 import exceptions as keystone
from openstack.connection import Connection
from openstack.exceptions import HttpException, NotFoundException

from fabric_direct.calls.deadline import Deadline, UnansweredRequest, bounded, wait_until
from fabric_direct.calls.read_cache import ReadCache
from fabric_direct.drivers.openstack.client import transport
from fabric_direct.drivers.openstack.client.session import cloud, uncached
from fabric_direct.drivers.openstack.client.transport import IDLE
from fabric_direct.errors import NotFound
from fabric_direct.operations.late_calls import in_effect
from tests.unit.openstack_api import LoopbackCloud, OpenStackApi, hurry, neutron_port

SERVERS = ("GET", "compute", "/servers/detail", {})
PORTS = ("GET", "network", "/ports", {})
ADDRESSES = ("GET", "network", "/floatingips", {})
POLICIES = ("GET", "network", "/qos/policies", {})
ALL = [SERVERS, PORTS, ADDRESSES, POLICIES]


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses between tries are noted, not made."""
    pauses: list[float] = []
    monkeypatch.setattr("tenacity.nap.time.sleep", pauses.append)
    return pauses


def methods(api: OpenStackApi) -> list[str]:
    return [method for method, *_ in api.calls]


class TestTries:
    @pytest.mark.parametrize("status", [429, 502, 503, 504])
    @pytest.mark.parametrize("method", ["GET", "DELETE"])
    def test_a_read_and_a_delete_are_sent_again_if_the_api_is_busy(
        self, api: OpenStackApi, hurried: list[float], method: str, status: int
    ) -> None:
        for _ in range(3):
            api.answer(method, "network", "/ports/p", status=status)
        api.answer(method, "network", "/ports/p", {"port": neutron_port()})

        cloud(api.settings).network.request("/ports/p", method)

        assert methods(api) == [method] * 4
        assert len(hurried) == 3

    def test_each_more_is_told_to_who_counts(
        self, api: OpenStackApi, hurried: list[float], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        told: list[Any] = []
        monkeypatch.setattr(transport, "trying_again", told.append)
        for status in (503, 503, 200):
            api.answer("GET", "network", "/ports", {"ports": []}, status=status)

        list(cloud(api.settings).network.ports())

        assert len(told) == 2

    def test_they_are_sent_four_times_and_then_the_answer_is_what_the_api_said(
        self, api: OpenStackApi, hurried: list[float]
    ) -> None:
        api.answer("GET", "network", "/ports", status=503)

        with pytest.raises(HttpException, match="Service Unavailable"):
            list(cloud(api.settings).network.ports())

        assert api.calls == [PORTS] * 4

    @pytest.mark.parametrize("status", [400, 403, 404, 409, 500])
    def test_what_the_api_refuses_is_not_asked_again(self, api: OpenStackApi, status: int) -> None:
        api.answer("GET", "network", "/ports", status=status)

        with pytest.raises(HttpException):
            list(cloud(api.settings).network.ports())

        assert api.calls == [PORTS]

    @pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
    @pytest.mark.parametrize(
        "fault",
        [
            requests.exceptions.ReadTimeout(),
            requests.exceptions.ConnectTimeout(),
            requests.exceptions.ConnectionError("reset"),
        ],
    )
    def test_what_changes_something_is_sent_once_whatever_happens(
        self, api: OpenStackApi, method: str, fault: Exception
    ) -> None:
        def fail(_: object) -> Any:
            raise fault

        api.write_clouds(connect_retries=3, compute_connect_retries=3, status_code_retries=3)
        api.answer(method, "compute", "/servers", fail)

        with pytest.raises(keystone.ConnectionError):
            cloud(api.settings).compute.request("/servers", method, json={})

        assert methods(api) == [method]

    @pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
    def test_a_post_is_sent_once_whatever_is_answered(self, api: OpenStackApi, status: int) -> None:
        api.write_clouds(compute_status_code_retries=3, status_code_retries=3)
        api.answer("POST", "compute", "/servers", status=status)

        with pytest.raises(HttpException):
            cloud(api.settings).compute.create_server(name="s")

        assert methods(api) == ["POST"]

    def test_the_next_try_is_made_when_the_api_wants_it(
        self, api: OpenStackApi, hurried: list[float]
    ) -> None:
        api.answer("GET", "network", "/ports", status=503, headers={"Retry-After": "7"})
        api.answer("GET", "network", "/ports", {"ports": []})

        assert list(cloud(api.settings).network.ports()) == []
        assert hurried == [7.0]

    @pytest.mark.parametrize(
        "when", ["300", "Fri, 31 Dec 2999 23:59:59 GMT"], ids=["seconds", "date"]
    )
    def test_there_is_none_if_the_api_wants_it_after_the_limit(
        self, api: OpenStackApi, hurried: list[float], when: str
    ) -> None:
        api.answer("DELETE", "network", "/ports/p", status=503, headers={"Retry-After": when})

        with pytest.raises(HttpException):
            cloud(api.settings, call_limit=60).network.delete_port("p")

        assert methods(api) == ["DELETE"]
        assert hurried == []

    def test_what_the_api_wants_and_cannot_be_understood_is_left_to_the_backoff(
        self, api: OpenStackApi, hurried: list[float]
    ) -> None:
        api.answer("GET", "network", "/ports", status=503, headers={"Retry-After": "soon"})
        api.answer("GET", "network", "/ports", {"ports": []})

        assert list(cloud(api.settings).network.ports()) == []
        assert 0 <= hurried[0] <= 8

    def test_none_is_begun_after_the_limit(
        self, api: OpenStackApi, hurried: list[float], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = itertools.count(step=20)
        connection = cloud(api.settings, call_limit=60)
        assert connection.network
        monkeypatch.setattr("tenacity.time", SimpleNamespace(monotonic=lambda: next(clock)))
        api.answer("DELETE", "network", "/ports/p", status=503)

        with pytest.raises(HttpException):
            connection.network.delete_port("p")

        assert methods(api) == ["DELETE"] * 3


class TestOnTheWire:
    """The same against an HTTP server, with what only a wire can do."""

    @pytest.fixture
    def gate(self) -> Iterator[Event]:
        gate = Event()
        yield gate
        gate.set()

    @pytest.fixture
    def hang(self, gate: Event) -> Callable[[object], tuple[int, Any]]:
        def hang(_: object) -> tuple[int, Any]:
            gate.wait(60)
            return 200, {}

        return hang

    @staticmethod
    def cut(_: object) -> tuple[int, Any]:
        raise ConnectionResetError

    def test_a_read_whose_connection_is_cut_is_sent_again(
        self, loopback: LoopbackCloud, hurried: list[float]
    ) -> None:
        loopback.answer("GET", "network", "/ports", self.cut)
        loopback.answer("GET", "network", "/ports", {"ports": []})

        assert list(cloud(loopback.settings).network.ports()) == []
        assert loopback.calls == [PORTS] * 2

    def test_a_read_whose_answer_breaks_off_is_sent_again(
        self, loopback: LoopbackCloud, hurried: list[float]
    ) -> None:
        longer = {"Content-Length": "999", "Connection": "close"}
        loopback.answer("GET", "network", "/ports", {"ports": []}, headers=longer)
        loopback.answer("GET", "network", "/ports", {"ports": []})

        assert list(cloud(loopback.settings).network.ports()) == []
        assert loopback.calls == [PORTS] * 2

    def test_a_read_whose_answer_is_no_json_is_sent_again(
        self, loopback: LoopbackCloud, hurried: list[float]
    ) -> None:
        loopback.answer("GET", "network", "/networks/n", "<html>")
        loopback.answer("GET", "network", "/networks/n", {"network": {"id": "n", "name": "red"}})

        assert cloud(loopback.settings).network.get_network("n").id == "n"
        assert methods(loopback) == ["GET"] * 2

    def test_a_post_whose_connection_is_cut_is_sent_once(self, loopback: LoopbackCloud) -> None:
        loopback.write_clouds(connect_retries=3)
        loopback.answer("POST", "network", "/ports", self.cut)

        with pytest.raises(keystone.ConnectFailure):
            cloud(loopback.settings).network.create_port(name="p")

        assert methods(loopback) == ["POST"]

    def test_a_read_that_hangs_is_sent_again(
        self, loopback: LoopbackCloud, hang: Callable[[object], tuple[int, Any]]
    ) -> None:
        loopback.answer("GET", "network", "/ports", hang)
        loopback.answer("GET", "network", "/ports", {"ports": []})

        assert list(cloud(loopback.settings, call_limit=3).network.ports()) == []
        assert loopback.calls == [PORTS] * 2

    def test_a_read_that_hangs_for_ever_ends(
        self, loopback: LoopbackCloud, hang: Callable[[object], tuple[int, Any]]
    ) -> None:
        loopback.answer("GET", "network", "/ports", hang)

        network = cloud(loopback.settings).network
        hurry(cloud(loopback.settings), 0.6)

        with pytest.raises(keystone.ConnectTimeout):
            list(network.ports())

        wait_until("a request to arrive", lambda: loopback.calls, timeout=60)
        assert len(loopback.calls) <= 4

    def test_a_post_that_hangs_is_sent_once_and_ends(
        self, loopback: LoopbackCloud, hang: Callable[[object], tuple[int, Any]]
    ) -> None:
        loopback.write_clouds(connect_retries=3)
        loopback.answer("POST", "network", "/ports", hang)

        network = cloud(loopback.settings).network
        hurry(cloud(loopback.settings), 0.6)

        with pytest.raises(keystone.ConnectTimeout):
            network.create_port(name="p")

        wait_until("the request to arrive", lambda: loopback.calls, timeout=60)
        assert methods(loopback) == ["POST"]

    def test_a_login_that_hangs_ends(
        self,
        loopback: LoopbackCloud,
        hang: Callable[[object], tuple[int, Any]],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        session = cloud(loopback.settings).session
        session.get_token()
        session.invalidate()
        monkeypatch.setattr(loopback, "_login", hang)
        hurry(cloud(loopback.settings), 0.6)

        with pytest.raises(keystone.ConnectTimeout):
            session.get_token()

    def test_a_version_document_that_hangs_ends(
        self,
        loopback: LoopbackCloud,
        hang: Callable[[object], tuple[int, Any]],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        connection = cloud(loopback.settings)
        connection.authorize()
        hurry(connection, 0.6)
        monkeypatch.setattr(loopback, "_document", hang)
        loopback.answer("GET", "image", "/images", {"images": []})

        with pytest.raises(Exception, match="image"):
            list(connection.image.images())


class TestConnections:
    """Some servers have a place for a hundred, and one that is idle keeps its place."""

    def test_one_is_enough_for_requests_one_after_the_other(self, loopback: LoopbackCloud) -> None:
        loopback.answer("GET", "network", "/ports", {"ports": []})
        connection = cloud(loopback.settings)

        for _ in range(50):
            list(connection.network.ports())

        assert loopback.connections == 1

    def test_each_of_many_requests_at_once_has_one_and_few_stay_open(
        self, loopback: LoopbackCloud, caplog: pytest.LogCaptureFixture
    ) -> None:
        together = Barrier(24)

        def answer(_: Any) -> Any:
            together.wait()  # none is answered before all have come
            return 200, {"ports": []}

        loopback.answer("GET", "network", "/ports", answer)
        connection = cloud(loopback.settings)
        connection.authorize()

        with ThreadPoolExecutor(24) as pool:
            list(pool.map(lambda _: list(connection.network.ports()), range(24)))

        wait_until("the rest to be closed", lambda: loopback.open <= IDLE, timeout=60)
        assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == []

    @pytest.mark.parametrize("scheme", ["http", "https"])
    @pytest.mark.parametrize("proxy", ["", "http://127.0.0.1:9"])
    def test_few_are_kept_of_each_scheme_also_by_a_proxy(
        self, scheme: str, proxy: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        adapter = transport.Transport(60)
        manager = adapter.proxy_manager_for(proxy) if proxy else adapter.poolmanager
        pool = manager.connection_from_url(f"{scheme}://192.0.2.1")

        used = [pool._get_conn() for _ in range(24)]
        for connection in (*used, None):  # None: one that broke
            pool._put_conn(connection)

        assert pool.pool.qsize() == IDLE
        assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == []


class TestReadCache:
    @pytest.fixture
    def connection(self, api: OpenStackApi) -> Connection:
        """A connection to a cloud that has nothing, and takes everything."""
        api.answer("GET", "compute", "/servers/detail", {"servers": []})
        api.answer("GET", "network", "/ports", {"ports": []})
        api.answer("GET", "network", "/floatingips", {"floatingips": []})
        api.answer("GET", "network", "/qos/policies", {"policies": []})
        api.answer("POST", "network", "/ports", {"port": neutron_port()}, status=201)
        api.answer("POST", "compute", "/servers", {"server": {"id": "s"}}, status=202)
        api.answer("POST", "compute", "/servers/s/action", status=202)
        api.answer("PUT", "network", "/ports/p", {"port": neutron_port()})
        for kind in ("ports", "floatingips", "qos/policies", "networks"):
            api.answer("DELETE", "network", f"/{kind}/p", status=204)
        api.answer("DELETE", "compute", "/servers/s", status=204)
        return cloud(api.settings)

    @staticmethod
    def look(connection: Connection) -> None:
        list(connection.compute.servers())
        list(connection.network.ports())
        list(connection.network.ips())
        list(connection.network.qos_policies())

    def test_answers_what_was_read_before(self, api: OpenStackApi, connection: Connection) -> None:
        with ReadCache().active():
            self.look(connection)
            self.look(connection)

        assert api.calls == ALL

    def test_answers_the_same_as_the_api(self, api: OpenStackApi) -> None:
        address = {"subnet_id": "s", "ip_address": "10.0.0.2"}
        port = neutron_port(name="n", fixed_ips=[address])
        api.answer("GET", "network", "/ports", {"ports": [port]})
        connection = cloud(api.settings)

        with ReadCache().active():
            first, second = (list(connection.network.ports()) for _ in range(2))

        assert first == second
        assert first[0] is not second[0]

    def test_gives_each_who_asks_an_answer_of_his_own(
        self, api: OpenStackApi, connection: Connection
    ) -> None:
        with ReadCache().active():
            first, second = (connection.network.get("/ports") for _ in range(2))

        assert first is not second
        assert first.history is not second.history
        assert first.content == second.content

    def test_there_is_none_outside_of_an_operation(
        self, api: OpenStackApi, connection: Connection
    ) -> None:
        list(connection.network.ports())
        list(connection.network.ports())

        assert api.calls == [PORTS, PORTS]

    def test_another_query_is_another_question(
        self, api: OpenStackApi, connection: Connection
    ) -> None:
        with ReadCache().active():
            for name in "abab":
                list(connection.network.ports(name=name))

        assert [query for *_, query in api.calls] == [{"name": "a"}, {"name": "b"}]

    def test_another_microversion_is_another_question(
        self, api: OpenStackApi, connection: Connection
    ) -> None:
        with ReadCache().active():
            for version in ("2.1", "2.93", "2.1"):
                connection.compute.get("/servers/detail", microversion=version)

        assert api.calls == [SERVERS, SERVERS]

    def test_another_cloud_is_another_question(
        self, api: OpenStackApi, connection: Connection
    ) -> None:
        other = cloud(api.settings, call_limit=59)

        with ReadCache().active():
            list(connection.network.ports())
            list(other.network.ports())

        assert api.calls == [PORTS, PORTS]

    def test_a_new_token_is_the_same_question(
        self, api: OpenStackApi, connection: Connection
    ) -> None:
        with ReadCache().active():
            list(connection.network.ports())
            connection.session.invalidate()
            list(connection.network.ports())

        assert api.logins == 2
        assert api.calls == [PORTS]

    def test_an_error_is_asked_again(self, api: OpenStackApi, connection: Connection) -> None:
        api.answer("GET", "network", "/ports/p", status=404)

        with ReadCache().active():
            for _ in range(2):
                with pytest.raises(NotFoundException):
                    connection.network.get_port("p")

        assert len(api.calls) == 2

    @pytest.mark.parametrize(
        ("make", "asked_again"),
        [
            (lambda c: c.network.create_port(), [PORTS]),
            (lambda c: c.compute.create_server(), [SERVERS]),
            (lambda c: c.network.delete_ip("p"), [ADDRESSES]),
            (lambda c: c.network.delete_port("p"), [PORTS, ADDRESSES]),
            (lambda c: c.network.delete_qos_policy("p"), [POLICIES]),
            (lambda c: c.compute.delete_server("s"), [SERVERS, PORTS, ADDRESSES]),
            (lambda c: c.network.delete_network("p"), ALL),
            (lambda c: c.network.update_port("p", name="n"), ALL),
            (lambda c: c.compute.start_server("s"), ALL),
        ],
        ids=[
            "a port made",
            "a server made",
            "a floating IP deleted",
            "a port deleted, which lets go of its floating IP",
            "a policy deleted",
            "a server deleted, with ports and volumes that are its own",
            "a network deleted",
            "a port changed",
            "an action",
        ],
    )
    def test_what_is_made_or_deleted_ends_what_it_affects_and_every_other_change_ends_all(
        self,
        api: OpenStackApi,
        connection: Connection,
        make: Callable[[Connection], object],
        asked_again: list[Any],
    ) -> None:
        with ReadCache().active():
            self.look(connection)
            make(connection)
            api.calls.clear()
            self.look(connection)

        assert api.calls == asked_again

    def test_a_change_that_fails_ends_it_too(
        self, api: OpenStackApi, connection: Connection
    ) -> None:
        def fail(_: object) -> Any:
            raise requests.exceptions.ReadTimeout

        api.answer("DELETE", "network", "/ports/q", status=409)
        api.answer("POST", "network", "/floatingips", fail)
        with ReadCache().active():
            self.look(connection)
            with pytest.raises(keystone.ConnectTimeout):
                connection.network.create_ip()
            list(connection.network.ips())
            with pytest.raises(HttpException):
                connection.network.delete_port("q")
            api.calls.clear()
            self.look(connection)

        assert api.calls == [PORTS, ADDRESSES]

    def test_a_login_changes_nothing(self, api: OpenStackApi, connection: Connection) -> None:
        with ReadCache().active():
            list(connection.network.ports())
            connection.session.invalidate()
            connection.authorize()
            list(connection.network.ports())

        assert api.calls == [PORTS]

    def test_reading_a_console_changes_nothing_although_it_is_a_post(
        self, api: OpenStackApi, connection: Connection, hurried: list[float]
    ) -> None:
        api.answer("POST", "compute", "/servers/c/action", status=503)
        api.answer("POST", "compute", "/servers/c/action", {"output": "login: "})

        with ReadCache().active():
            self.look(connection)
            read = connection.compute.get_server_console_output("c", length=10)
            api.calls.clear()
            self.look(connection)

        assert read == {"output": "login: "}
        assert api.calls == []

    def test_can_be_read_past(self, api: OpenStackApi, connection: Connection) -> None:
        with ReadCache().active():
            list(connection.network.ports())
            with uncached():
                list(connection.network.ports())
                list(connection.network.ports())
            list(connection.network.ports())

        assert api.calls == [PORTS] * 3

    def test_is_ended_by_a_change_within_what_reads_past_it(
        self, api: OpenStackApi, connection: Connection
    ) -> None:
        with ReadCache().active():
            list(connection.network.ports())
            with uncached():
                connection.network.delete_port("p")
            list(connection.network.ports())

        assert [call for call in api.calls if call == PORTS] == [PORTS] * 2

    def test_is_shared_by_the_threads_of_an_operation(
        self, api: OpenStackApi, connection: Connection
    ) -> None:
        with ReadCache().active():
            list(connection.network.ports())
            other = Thread(target=copy_context().run, args=(list, connection.network.ports()))
            other.start()
            other.join()

        assert api.calls == [PORTS]

    def test_a_change_in_one_thread_ends_it_for_the_others(
        self, api: OpenStackApi, connection: Connection
    ) -> None:
        with ReadCache().active():
            list(connection.network.ports())
            other = Thread(target=copy_context().run, args=(connection.network.delete_port, "p"))
            other.start()
            other.join()
            list(connection.network.ports())

        assert [call for call in api.calls if call == PORTS] == [PORTS] * 2

    def test_an_answer_on_its_way_while_another_thread_changes_something_is_not_kept(
        self, api: OpenStackApi, connection: Connection
    ) -> None:
        asked, changed = Event(), Event()

        def slow(_: object) -> tuple[int, Any]:
            asked.set()
            changed.wait(60)
            return 200, {"subnets": []}

        api.answer("GET", "network", "/subnets", slow)
        with ReadCache().active():
            reader = Thread(target=copy_context().run, args=(list, connection.network.subnets()))
            reader.start()
            asked.wait(60)
            connection.network.delete_port("p")
            changed.set()
            reader.join()
            list(connection.network.subnets())

        assert [path for _, _, path, _ in api.calls].count("/subnets") == 2

    def test_nothing_that_was_known_before_a_change_is_answered_during_it(
        self, api: OpenStackApi, connection: Connection
    ) -> None:
        def change(_: object) -> tuple[int, Any]:
            list(connection.network.ports())
            return 200, {"port": neutron_port("q")}

        api.answer("PUT", "network", "/ports/q", change)
        with ReadCache().active():
            list(connection.network.ports())
            connection.network.update_port("q", name="n")

        assert [call for call in api.calls if call == PORTS] == [PORTS] * 2

    def test_an_answer_that_was_asked_for_during_a_change_is_not_kept(
        self, api: OpenStackApi, connection: Connection
    ) -> None:
        def change(_: object) -> tuple[int, Any]:
            list(connection.network.ports())
            return 200, {"port": neutron_port("q")}

        api.answer("PUT", "network", "/ports/q", change)
        with ReadCache().active():
            connection.network.update_port("q", name="n")
            list(connection.network.ports())

        assert [call for call in api.calls if call == PORTS] == [PORTS] * 2


class TestAQuestionOfSeveralRequests:
    def test_is_asked_once_in_a_read_cache_until_something_is_changed(
        self, api: OpenStackApi
    ) -> None:
        api.answer("POST", "compute", "/servers", {"server": {"id": "s"}}, status=202)
        answers = iter("abc")

        def ask() -> str:
            return transport.shared("question", lambda: next(answers), "servers")

        with ReadCache().active():
            first = [ask(), ask()]
            cloud(api.settings).compute.create_server(name="s")
            second = ask()
            with uncached():
                third = ask()

        assert (first, second, third) == (["a", "a"], "b", "c")

    def test_is_asked_each_time_outside_of_one(self) -> None:
        answers = iter("ab")

        assert [transport.shared("q", lambda: next(answers), "") for _ in range(2)] == ["a", "b"]

    def test_is_answered_by_what_was_learnt_elsewhere(self) -> None:
        with ReadCache().active():
            transport.learn("question", "known", "servers")
            known = transport.shared("question", lambda: "asked", "servers")
        transport.learn("question", "known", "servers")

        assert known == "known"
        assert transport.shared("question", lambda: "asked", "servers") == "asked"


@pytest.mark.parametrize(
    ("url", "about"),
    [
        ("http://c/v2.1/servers/detail?tags=x", "servers"),
        ("http://c/v2.1/servers/1/os-interface", "servers"),
        ("http://c/v2.0/ports/1", "ports"),
        ("http://c/v2.0/floatingips?description=ports", "floatingips"),
        ("http://c/volume/v3/0123/volumes/detail", "volumes"),
        ("http://c/v2/images?name=servers", "images"),
        ("http://c/v2.0/qos/policies/1/bandwidth_limit_rules", "policies"),
        ("http://c/v2.1/os-keypairs", ""),
        ("http://c/v2.1/", ""),
    ],
)
def test_a_read_is_about_the_collection_in_its_path(url: str, about: str) -> None:
    assert transport.topic(requests.Request("GET", url).prepare()) == about


def test_a_stream_is_neither_read_ahead_nor_kept(api: OpenStackApi) -> None:
    api.answer("GET", "image", "/images/i/file", {"content": "x"})
    connection = cloud(api.settings)

    with ReadCache().active():
        for _ in range(2):
            with connection.image.get("/images/i/file", stream=True) as response:
                assert response.json() == {"content": "x"}

    assert len(api.calls) == 2


def test_an_api_that_cannot_be_reached_is_tried_four_times(
    loopback: LoopbackCloud, hurried: list[float]
) -> None:
    loopback.answer("GET", "network", "/ports", {"ports": []})
    connection = cloud(loopback.settings)
    list(connection.network.ports())
    connection.session.session.close()
    loopback.stop()

    with pytest.raises(keystone.ConnectFailure, match="refused"):
        list(connection.network.ports())

    assert len(hurried) == 3


@pytest.mark.parametrize("fault", [503, requests.exceptions.ReadTimeout()])
def test_a_login_is_tried_again_although_it_is_a_post(
    api: OpenStackApi,
    hurried: list[float],
    monkeypatch: pytest.MonkeyPatch,
    fault: int | Exception,
) -> None:
    login, faults = api._login, [fault]

    def fail_once(request: requests.PreparedRequest) -> tuple[int, dict[str, str], str]:
        if not faults:
            return login(request)
        wrong = faults.pop()
        if isinstance(wrong, Exception):
            raise wrong
        return wrong, {}, ""

    monkeypatch.setattr(api, "_login", fail_once)

    assert cloud(api.settings).session.get_token() == api.token
    assert len(hurried) == 1


class TestNoAnswer:
    """What changes something and gets no answer may still take effect."""

    LOST = (
        requests.exceptions.ReadTimeout(),
        requests.exceptions.ConnectionError("reset"),
    )

    def left(self, api: OpenStackApi, method: str, answer: Any, status: int = 200) -> list[str]:
        """Send a request for a driver; return the requests that may still take effect."""

        def told(_: requests.PreparedRequest) -> tuple[int, Any]:
            if isinstance(answer, Exception):
                raise answer
            return status, answer

        class Driver:
            def change(self) -> None:
                body = {"port": {"name": "nic1"}} if method == "POST" else None
                cloud(api.settings).network.request("/ports", method, json=body)

        api.answer(method, "network", "/ports", told)
        deadline = Deadline.within(60)
        with suppress(Exception):
            bounded(Driver(), "network", deadline, 30).change()
        return [call.what for call in deadline.late()]

    @pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
    @pytest.mark.parametrize("fault", LOST, ids=str)
    def test_is_noted(
        self, api: OpenStackApi, hurried: list[float], method: str, fault: Exception
    ) -> None:
        name = " (nic1)" if method == "POST" else ""

        assert self.left(api, method, fault) == [f"{method} /networking/v2.0/ports{name}"]

    @pytest.mark.parametrize("status", [500, 502, 504])
    def test_is_noted_if_the_api_fails(self, api: OpenStackApi, status: int) -> None:
        assert self.left(api, "POST", {}, status) == ["POST /networking/v2.0/ports (nic1)"]

    @pytest.mark.parametrize("status", [201, 400, 401, 404, 409, 429, 501, 503])
    def test_an_answer_is_one(self, api: OpenStackApi, status: int) -> None:
        assert self.left(api, "POST", {}, status) == []

    @pytest.mark.parametrize(
        "fault",
        [
            requests.exceptions.ConnectTimeout(),
            requests.exceptions.ChunkedEncodingError(),
        ],
        ids=repr,
    )
    def test_neither_is_what_was_never_sent_nor_what_was_answered(
        self, api: OpenStackApi, fault: Exception
    ) -> None:
        assert self.left(api, "POST", fault) == []

    def test_nor_a_read(self, api: OpenStackApi, hurried: list[float]) -> None:
        assert self.left(api, "GET", requests.exceptions.ReadTimeout()) == []

    def test_a_read_cache_forgets_what_it_may_have_changed(self, api: OpenStackApi) -> None:
        api.answer("GET", "network", "/ports", {"ports": []})
        network, reads, deadline = cloud(api.settings).network, ReadCache(), Deadline.within(60)
        api.answer("POST", "network", "/ports", status=502)

        class Driver:
            def change(self) -> None:
                with suppress(HttpException):
                    network.create_port(name="nic1")
                list(network.ports())

        bounded(Driver(), "network", deadline, 30, reads=reads).change()
        (request,) = deadline.late()
        assert isinstance(request, UnansweredRequest)
        request.known()
        with reads.active():
            list(network.ports())

        assert methods(api) == ["POST", "GET", "GET"]


class TestWhatTookEffect:
    """A call is many requests: the last one's error says nothing of those before."""

    def left(self, api: OpenStackApi, *methods: str) -> tuple[str, ...]:
        """Send requests for a driver, the last of which is answered by 404; return what is named."""
        for method in dict.fromkeys(methods):
            api.answer(method, "network", "/ports", {"ports": [], "port": {}})
        api.answer("DELETE", "network", "/ports", status=404)
        network = cloud(api.settings).network

        class Driver:
            def change(self) -> None:
                for method in methods:
                    network.request("/ports", method)
                if not network.request("/ports", "DELETE").ok:
                    raise NotFound("it is not there")

        deadline = Deadline.within(60)
        with suppress(NotFound):
            bounded(Driver(), "compute", deadline, 30).change()
        return in_effect(deadline.changing)

    def test_is_named_though_something_was_not_found_later(self, api: OpenStackApi) -> None:
        assert self.left(api, "GET", "POST") == ("unknown: compute.change may have taken effect",)

    def test_is_nothing_if_all_before_it_was_read(self, api: OpenStackApi) -> None:
        assert self.left(api, "GET") == ()
