"""OVSDB's protocol, against a scripted server."""

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest

from fabric_direct.drivers.ovs import ovsdb
from fabric_direct.drivers.ovs.ovsdb import Changed, OvsdbConnection, Ref
from fabric_direct.errors import DriverError, Unreachable

Serve = Callable[..., str]
READ = ovsdb.select("Bridge", "name")


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Return what starts a server that sends each of some texts for a request, and then hangs up."""
    listening = socket.socket(socket.AF_UNIX)
    path = tmp_path / "db.sock"
    listening.bind(str(path))
    listening.listen()
    threads: list[Thread] = []

    def serve(*answers: bytes) -> str:
        def run() -> None:
            with listening, listening.accept()[0] as peer:
                for answer in answers:
                    peer.recv(65536)
                    peer.sendall(answer)

        threads.append(Thread(target=run))
        threads[0].start()
        return f"unix:{path}"

    yield serve
    for thread in threads:
        thread.join()
    listening.close()


def reply(*results: object, number: int = 1, **values: object) -> bytes:
    return json.dumps({"id": number, "result": results, "error": None} | values).encode()


def asked(remote: str) -> list[object]:
    with OvsdbConnection(remote, "the database of sw1", 5) as connection:
        return connection.transact(READ)


def test_an_answer_may_come_in_parts_and_after_other_messages(serve: Serve) -> None:
    echo = json.dumps({"id": "echo", "method": "echo", "params": []}).encode()
    notice = json.dumps({"id": None, "method": "update", "params": []}).encode()
    whole = reply({"rows": [{"name": "p\u00e9"}]})

    remote = serve(echo + notice + whole[:20], whole[20:])

    assert asked(remote) == [{"rows": [{"name": "p\u00e9"}]}]


@pytest.mark.parametrize("at", range(8, 50, 3))
def test_an_answer_ends_where_its_braces_close_outside_of_texts(serve: Serve, at: int) -> None:
    awkward = {'}{"': 'a "quoted\\" {'}
    echo = json.dumps({"id": "}", "method": "echo", "params": []}).encode()
    whole = reply(awkward)

    assert asked(serve(echo + whole[:at], whole[at:])) == [awkward]


def test_a_transaction_that_waited_for_another_state_is_not_made(serve: Serve) -> None:
    remote = serve(reply({}, {"error": "timed out", "details": ""}, None))

    with pytest.raises(Changed):
        asked(remote)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (reply({"error": "constraint violation"}), "constraint violation"),
        (reply(result=None, error="unknown method"), "unknown method"),
        (b"[]", "does not speak OVSDB"),
        (b"HTTP/1.1 400 Bad Request", "does not speak OVSDB"),
        (b"\x15\x03\xff", "does not speak OVSDB"),
        (b"{\xff}", "does not speak OVSDB"),
        (b"{]}", "does not speak OVSDB"),
        pytest.param(b'{"id":' + b"[" * 99_999 + b"}", "does not speak OVSDB", id="deep"),
    ],
)
def test_what_is_refused_is_told_in_the_servers_words(
    serve: Serve, answer: bytes, error: str
) -> None:
    with pytest.raises(DriverError, match=error):
        asked(serve(answer))


@pytest.mark.parametrize("answer", [b"", reply({})[:10]])
def test_without_a_whole_answer_the_server_is_unreachable(serve: Serve, answer: bytes) -> None:
    with pytest.raises(Unreachable):
        asked(serve(answer))


def test_a_server_that_says_nothing_is_given_up(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen()
        connection = OvsdbConnection(f"unix:{tmp_path / 's'}", "it", 0.01)
        with connection, pytest.raises(Unreachable):
            connection.transact(READ)


@pytest.mark.parametrize("remote", ["unix:/nowhere/db.sock", "tcp:127.0.0.1:1", "tcp:[::1]:1"])
def test_nobody_who_listens_is_unreachable(remote: str) -> None:
    with pytest.raises(Unreachable):
        OvsdbConnection(remote, "it", 5)


@pytest.mark.parametrize(
    "value", ["text", 7, True, [], ["a", "b"], {"a": "b"}, {}, Ref("1-2"), [Ref("1"), Ref("2")]]
)
def test_values_are_read_as_they_were_written(value: object) -> None:
    assert ovsdb.read(json.loads(json.dumps(ovsdb.written(value)))) == value
