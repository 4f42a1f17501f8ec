"""A pool of SSH connections, so that not every command needs a new one.

A key exchange takes half a second or more in a small guest. Each caller has a connection for itself and
returns it to the pool. None crosses a fork.
"""

from __future__ import annotations

import fcntl
import termios
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from fabric_direct.calls import forks
from fabric_direct.calls.deadline import Deadline

if TYPE_CHECKING:
    import paramiko

# Seconds that a connection is kept unused.
IDLE = 30.0
# Seconds in which a living guest's kernel acknowledges what was sent to it, several times over.
ALIVE = 3.0


class SshClients:
    """Pooled connections by destination."""

    def __init__(self) -> None:
        self._lock = forks.Lock()
        self._kept: dict[Hashable, list[tuple[float, paramiko.SSHClient]]] = {}
        forks.in_child(self._forget)

    @contextmanager
    def use(
        self, to: Hashable, connect: Callable[[], paramiko.SSHClient], patience: float
    ) -> Iterator[paramiko.SSHClient]:
        """Yield a working pooled connection or a new one; it is pooled again unless the block raises.

        :param patience: seconds for a guest that lives to answer on a pooled one.
        """
        client = self._living(to, patience) or connect()
        try:
            yield client
        except BaseException:
            client.close()
            raise
        with self._lock:
            self._kept.setdefault(to, []).append((time.monotonic(), client))
        self._close_idle()

    def close(self, to: Hashable) -> None:
        """Close the pooled connections to this destination."""
        with self._lock:
            kept = self._kept.pop(to, [])
        for _, client in kept:
            # paramiko waits for its own thread, which takes a second where the other end is gone.
            threading.Thread(target=client.close, daemon=True).start()

    def _living(self, to: Hashable, patience: float) -> paramiko.SSHClient | None:
        while client := self._take(to):
            if _lives(client, patience):
                return client
            client.close()
        return None

    def _take(self, to: Hashable) -> paramiko.SSHClient | None:
        with self._lock:
            kept = self._kept.get(to)
            return kept.pop()[1] if kept else None

    def _close_idle(self) -> None:
        before = time.monotonic() - IDLE
        with self._lock:
            idle = [c for kept in self._kept.values() for used, c in kept if used < before]
            living = {
                to: [one for one in kept if one[0] >= before] for to, kept in self._kept.items()
            }
            self._kept = {to: kept for to, kept in living.items() if kept}
        for client in idle:
            client.close()

    def _forget(self) -> None:
        """Start empty in a forked child: closing the parent's connections would end them there."""
        self._kept = {}


def _lives(client: paramiko.SSHClient, patience: float) -> bool:
    """Ask the server for a channel: a connection whose other end is gone may look alive.

    A guest that is slow acknowledges the request long before its server answers it.
    """
    import paramiko  # noqa: PLC0415 - it is large

    transport, deadline = client.get_transport(), Deadline.within(patience)
    while transport is not None and transport.is_active():
        with suppress(paramiko.SSHException, OSError, EOFError):
            transport.open_session(timeout=deadline.remaining(ALIVE)).close()
            return True
        if not _is_acknowledged(transport) or not deadline.remaining():
            break
    return False


def _is_acknowledged(transport: paramiko.Transport) -> bool:
    """Return whether the other end's kernel has all that was sent (SIOCOUTQ, tcp(7))."""
    left = bytearray(4)
    with suppress(OSError):
        fcntl.ioctl(transport.sock.fileno(), termios.TIOCOUTQ, left)
        return not any(left)
    return False
