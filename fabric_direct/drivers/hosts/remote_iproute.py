"""pyroute2's ``IPRoute`` for the kernel of another machine."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from pyroute2 import IPRoute


@contextmanager
def iproute(ask: Callable[[bytes], bytes]) -> Iterator[Any]:
    """Return an ``IPRoute`` for one block that supports requests and answers, but no events.

    :param ask: sends a request and returns all messages of its answer.
    """
    # A socket that leads nowhere: nothing may reach this machine's kernel.
    here, nowhere = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with here, nowhere, IPRoute(use_socket=here) as ip:
        # pyroute2's request proxy answers in place of this machine's kernel.
        ip.asyncore.request_proxy = SimpleNamespace(handle=lambda m: ask(bytes(m.data)))
        yield ip
