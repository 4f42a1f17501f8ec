"""Ports of loopback for servers that are told theirs before they listen."""

import os
import socket
from itertools import count

_FIRST, _EACH = 20_000, 500
"""Below those that Linux gives to who asks for any (32768): nobody takes one between two starts."""
_next = count()


def free_port() -> int:
    """Return a port that nobody listens on, and that no other process of the tests is given."""
    process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    while True:
        port = _FIRST + process % 20 * _EACH + next(_next) % _EACH
        with socket.socket() as free:
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                free.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
