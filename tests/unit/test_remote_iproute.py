"""Answers of another machine's kernel about its links, as a relay returns them."""

import struct
from typing import Any

import pytest

from fabric_direct.drivers.hosts.agent.sockets import HEADER
from fabric_direct.drivers.hosts.functions import HostFunctions
from fabric_direct.drivers.hosts.remote_iproute import iproute
from fabric_direct.drivers.netlink.uplink import link_index, session
from fabric_direct.errors import DriverError, NotFound

ERROR, DONE, NEW_LINK, GET_LINK, NEW_ROUTE, DUMP_PART = 2, 3, 16, 18, 24, 2
NO_SUCH_DEVICE = -19


def message(kind: int, content: bytes, flags: int = 0) -> bytes:
    return HEADER.pack(HEADER.size + len(content), kind, flags, 0, 0) + content


def link(name: bytes, flags: int = 0, kind: int = NEW_LINK) -> bytes:
    attribute = struct.pack("=HH8s", 12, 3, name)
    return message(kind, struct.pack("=BxHiII", 0, 0, 7, 0, 0) + attribute, flags)


def refusal(of: int, number: int = NO_SUCH_DEVICE) -> bytes:
    return message(ERROR, struct.pack("=i", number) + message(of, bytes(16)))


END = message(DONE, bytes(4), DUMP_PART)
LINKS = link(b"ens1", DUMP_PART) + link(b"ens2", DUMP_PART) + END


class Worker(HostFunctions):
    """A worker whose kernel answers every request with these bytes."""

    def __init__(self, answer: bytes) -> None:
        super().__init__("w1")
        self._answer = answer

    def netlink(self, netns: str | None = None) -> Any:
        return iproute(lambda _: self._answer)


def names(answer: bytes) -> list[str]:
    with session("read the links", "w1", host=Worker(answer)) as ip:
        return [found.get("ifname") for found in ip.get_links()]


def test_the_links_of_a_whole_answer_are_read() -> None:
    assert names(LINKS) == ["ens1", "ens2"]


def test_nothing_after_the_end_of_an_answer_is_read() -> None:
    assert names(LINKS + link(b"ens3", DUMP_PART)) == ["ens1", "ens2"]


def test_an_answer_about_something_else_than_was_asked_for_is_an_error() -> None:
    with (
        pytest.raises(DriverError, match="about something else"),
        session("read", "w1", host=Worker(LINKS)) as ip,
    ):
        list(ip.get_qdiscs())


def test_an_answer_without_links_is_whole() -> None:
    assert names(END) == []


def test_a_refusal_of_the_request_is_told() -> None:
    worker = Worker(refusal(GET_LINK))
    with pytest.raises(NotFound), session("read the link", "w1", host=worker) as ip:
        link_index(ip, "ens1")


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        LINKS[:4],
        LINKS[:40],
        LINKS[: -len(END)],
        LINKS[: -len(END)] + END[:8],
        link(b"ens1", kind=NEW_ROUTE),
        refusal(NEW_ROUTE),
        message(ERROR, b""),
        bytes(64),
    ],
    ids=[
        "nothing",
        "a part of a head",
        "a part of a link",
        "no end",
        "a part of the end",
        "a route",
        "a refusal of another request",
        "an empty refusal",
        "zeros",
    ],
)
def test_what_is_no_whole_answer_is_an_error(answer: bytes) -> None:
    with pytest.raises(DriverError, match="the kernel's answer is invalid"):
        names(answer)
