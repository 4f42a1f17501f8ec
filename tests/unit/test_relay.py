"""The relay's end of the stream: what it makes of a worker's replies. The worker is the other end."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, cast

import paramiko
import pytest

from fabric_direct.calls.deadline import Deadline, bounded
from fabric_direct.drivers.hosts.agent import frames
from fabric_direct.drivers.hosts.relay import Relay
from fabric_direct.errors import TimedOut, Unreachable

LIMIT = 20


class Worker:
    """A worker's end of an SSH channel, which says what a test tells it to."""

    def __init__(self, greeting: object) -> None:
        self._near, self._far = socket.socketpair()
        self._said = self._far.makefile("rb")
        self._far.sendall(frames.pack(greeting))

    def reply(self, answer: Callable[[dict[str, Any]], object]) -> None:
        """Answer the next request; the modules that come before it are not run."""
        self._said.read(int.from_bytes(self._said.read(4), "big"))
        self._far.sendall(frames.pack(answer(frames.receive(self._said.read))))

    # --- what paramiko's client, transport and channel do

    def get_transport(self) -> "Worker":
        return self

    def open_session(self, timeout: float) -> "Worker":
        return self

    def settimeout(self, seconds: float) -> None:
        self._near.settimeout(seconds)

    def exec_command(self, command: str) -> None: ...

    def sendall(self, data: bytes) -> None:
        self._near.sendall(data)

    def recv(self, length: int) -> bytes:
        return self._near.recv(length)

    def close(self) -> None:
        with suppress(OSError):  # a connection may be closed twice
            self._far.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        self._said.close()
        self._near.close()
        self._far.close()


def relay_to(worker: Worker) -> Relay:
    return Relay(cast(paramiko.SSHClient, worker), "w1")


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker({"python": [3, 11], "executable": "/usr/bin/python3", "user": 0})
    yield made
    made.end()


def asked(worker: Worker, answer: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """Return what a caller gets when the worker answers so."""
    relay = relay_to(worker)
    threading.Thread(target=worker.reply, args=[answer]).start()
    try:
        return relay.ask("pci.survey", {}, Deadline.within(LIMIT))
    finally:
        relay.close()


def test_a_caller_gets_the_reply_to_its_request(worker: Worker) -> None:
    reply = asked(worker, lambda request: {"id": request["id"], "answer": request["function"]})
    assert reply["answer"] == "pci.survey"


@pytest.mark.parametrize(
    "reply",
    [
        lambda _: {"answer": 1},
        lambda _: {"id": [], "answer": 1},
        lambda request: {"id": request["id"]},
        lambda request: {"id": request["id"], "error": "no"},
        lambda request: {"id": request["id"], "error": ["OSError", [], "no"]},
        lambda request: [request["id"], "answer"],
        lambda _: "no",
    ],
    ids=[
        "no id",
        "id is no number",
        "no answer",
        "error is no list",
        "its number is a list",
        "list",
        "text",
    ],
)
def test_what_is_no_reply_ends_the_relay_and_its_callers(
    worker: Worker, reply: Callable[[dict[str, Any]], object]
) -> None:
    with pytest.raises(Unreachable, match=r"pci\.survey got no answer|a call got no answer"):
        asked(worker, reply)


def test_what_greets_otherwise_is_not_our_process() -> None:
    worker = Worker({"user": "root"})
    with pytest.raises(ValueError, match="not our process"):
        relay_to(worker)
    worker.end()


class TestACallWithoutAReply:
    """The worker may still make it."""

    def left(self, ask: Callable[[], object]) -> list[str]:
        class Driver:
            def set_vf(self) -> None:
                ask()

        deadline = Deadline.within(60)
        with suppress(Unreachable, TimedOut):
            bounded(Driver(), "uplink", deadline, LIMIT).set_vf()
        return [call.what for call in deadline.late()]

    def test_because_the_connection_broke(self, worker: Worker) -> None:
        assert self.left(lambda: asked(worker, lambda _: "no")) == ["pci.survey on w1"]

    def test_in_its_time(self, worker: Worker) -> None:
        relay = relay_to(worker)

        left = self.left(lambda: relay.ask("pci.survey", {}, Deadline.within(1)))

        assert left == ["pci.survey on w1"]
        relay.close()

    def test_was_not_made_if_the_relay_had_ended(self, worker: Worker) -> None:
        relay = relay_to(worker)
        relay._end()

        assert self.left(lambda: relay.ask("pci.survey", {}, Deadline.within(LIMIT))) == []

    def test_that_was_answered_is_over(self, worker: Worker) -> None:
        def reply(request: dict[str, Any]) -> dict[str, Any]:
            return {"id": request["id"], "answer": 1}

        assert self.left(lambda: asked(worker, reply)) == []
