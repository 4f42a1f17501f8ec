"""pyroute2's ``IPRoute`` whose requests are answered elsewhere."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyroute2 import IPRoute


@dataclass(frozen=True)
class _Elsewhere:
    """Stands where pyroute2 has what answers in the kernel's stead."""

    ask: Callable[[bytes], bytes]

    def handle(self, message: Any) -> bytes:
        return self.ask(bytes(message.data))


@contextmanager
def iproute(ask: Callable[[bytes], bytes]) -> Iterator[Any]:
    """Give an ``IPRoute`` for one block that knows requests and answers, but no events.

    :param ask: returns all messages that a request is answered with, up to the one that ends them.
    """
    # A socket that leads nowhere: what should pass by `ask` must not reach this machine's kernel.
    here, nowhere = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with here, nowhere, IPRoute(use_socket=here) as ip:
        ip.asyncore.request_proxy = _Elsewhere(ask)
        yield ip
