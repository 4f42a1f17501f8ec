"""Messages that a host sends by one of its links, on loopback."""

import socket
from base64 import b64encode
from collections.abc import Iterator

import pytest

from fabric_direct.drivers.hosts.local import LocalHost
from fabric_direct.errors import NotFound

LIMIT = 10.0


@pytest.fixture
def receiver() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(LIMIT)
        yield receiver


def send(receiver: socket.socket, link: str, content: bytes) -> None:
    address, port = receiver.getsockname()
    text = b64encode(content).decode()
    LocalHost().call(
        "datagrams.send", timeout=LIMIT, link=link, address=address, port=port, content=text
    )


def test_a_message_arrives_as_it_is(receiver: socket.socket) -> None:
    content = bytes(range(256))
    send(receiver, "lo", content)
    assert receiver.recv(1024) == content


def test_a_link_that_is_missing_is_an_error(receiver: socket.socket) -> None:
    with pytest.raises(NotFound, match="ENODEV"):
        send(receiver, "fdtest-nowhere", b"")
