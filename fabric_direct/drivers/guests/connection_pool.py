"""A pool of SSH connections, so that not every command needs a new one.

A key exchange takes half a second or more in a small guest. Each caller has a connection for itself and
returns it to the pool. None crosses a fork.
"""

import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress

import paramiko

from fabric_direct import forks

# Seconds that a connection is kept unused.
IDLE = 30.0
# Seconds for a pooled connection to prove that it still works.
ALIVE = 3.0


class SshClients:
    """Pooled connections by destination."""

    def __init__(self) -> None:
        self._lock = forks.Lock()
        self._kept: dict[Hashable, list[tuple[float, paramiko.SSHClient]]] = {}
        forks.in_child(self._forget)

    @contextmanager
    def use(
        self, to: Hashable, connect: Callable[[], paramiko.SSHClient]
    ) -> Iterator[paramiko.SSHClient]:
        """Yield a working pooled connection or a new one; it is pooled again unless the block raises."""
        client = self._living(to) or connect()
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

    def _living(self, to: Hashable) -> paramiko.SSHClient | None:
        while client := self._take(to):
            if _lives(client):
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


def _lives(client: paramiko.SSHClient) -> bool:
    """Ask the server for a channel: a connection whose other end is gone may look alive."""
    transport = client.get_transport()
    if transport is None or not transport.is_active():
        return False
    with suppress(paramiko.SSHException, OSError, EOFError):
        transport.open_session(timeout=ALIVE).close()
        return True
    return False
