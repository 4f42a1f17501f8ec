"""pyroute2's ``IPRoute`` for the kernel of another machine."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink import NLM_F_MULTI, NLMSG_DONE, NLMSG_ERROR

from fabric_direct.drivers.hosts.agent.sockets import HEADER

_ENDS = frozenset({NLMSG_DONE, NLMSG_ERROR})
# linux/rtnetlink.h: the last two bits of RTM_GET…, which RTM_NEW… answers, two below it.
_GET = 2
# struct nlmsgerr: an error number, then the head of the request that it is about.
_ERROR = HEADER.size + 4


@contextmanager
def iproute(ask: Callable[[bytes], bytes]) -> Iterator[Any]:
    """Return an ``IPRoute`` for one block that supports requests, but no events.

    A request raises ValueError or struct.error if what is returned is not its answer.

    :param ask: sends a request and returns all messages of its answer.
    """

    def handle(message: Any) -> bytes:
        request = bytes(message.data)
        return _checked(ask(request), request)

    # A socket that leads nowhere: nothing may reach this machine's kernel.
    here, nowhere = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with here, nowhere, IPRoute(use_socket=here) as ip:
        # pyroute2's request proxy answers in place of this machine's kernel.
        ip.asyncore.request_proxy = SimpleNamespace(handle=handle)
        yield ip


def _checked(answer: bytes, request: bytes) -> bytes:
    """Return an answer up to its end.

    pyroute2 takes what is cut short for less, waits for an end that is missing, and may decode what it
    takes for a route for ever.
    """
    offset, ended, kinds = 0, False, _answers(_kind(request))
    while not ended:
        length, kind, flags = HEADER.unpack_from(answer, offset)[:3]
        message = answer[offset : offset + length]
        if len(message) < max(length, HEADER.size) or kind not in kinds:
            raise ValueError("it is cut short, or about something else")
        if kind == NLMSG_ERROR and _kind(message, _ERROR) != _kind(request):
            raise ValueError("it refuses another request")
        ended = kind in _ENDS or not flags & NLM_F_MULTI
        offset += length + 3 & ~3
    return answer[:offset]


def _answers(request: int) -> frozenset[int]:
    """Return the types of messages that answer a request of a type."""
    return _ENDS | ({request - _GET} if request & 3 == _GET else set())


def _kind(message: bytes, offset: int = 0) -> int:
    kind: int = HEADER.unpack_from(message, offset)[1]
    return kind
