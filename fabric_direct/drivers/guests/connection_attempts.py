"""Connections to the SSH servers of guests that are being made: one at a time for each guest.

A server starts a process for each connection before it says its first line, which takes seconds in a
slow guest. So a connection is neither given up when somebody stops waiting for it nor begun a second
time: it is kept for the next who asks. None crosses a fork.
"""

import socket
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import NamedTuple

from fabric_direct.calls import forks

# Seconds that a connection is kept for which nobody asks; OpenSSH's server ends it after 120 s
# (LoginGraceTime), and each takes one of 10 places there (MaxStartups).
KEPT = 30.0


class Reached(NamedTuple):
    """A server that has said its first line."""

    address: str
    connection: socket.socket


Connect = Callable[[], Reached]
To = tuple[str, ...]


class _Attempt:
    """One attempt, in a thread of its own."""

    def __init__(self, connect: Connect) -> None:
        self.over: Future[Reached] = Future()
        self._connect, self._ended = connect, 0.0
        threading.Thread(target=self._run, name="fabric-direct-ssh", daemon=True).start()

    def _run(self) -> None:
        try:
            reached = self._connect()
        except BaseException as error:  # noqa: BLE001 - carried to who waits, not swallowed
            self.over.set_exception(error)
        else:
            self._ended = time.monotonic()
            self.over.set_result(reached)

    def reached(self) -> bool:
        """Return whether the server has answered."""
        return self.over.done() and self.over.exception() is None

    def is_of_use(self) -> bool:
        """Return whether it is under way, or has an answer that is not old."""
        return not self.over.done() or (self.reached() and time.monotonic() - self._ended < KEPT)

    def close(self) -> None:
        """Close the connection, as soon as there is one."""
        self.over.add_done_callback(_close)


class Attempts:
    """The connections that are being made, by the addresses of their guest."""

    def __init__(self) -> None:
        self._lock = forks.Lock()
        self._attempts: dict[To, _Attempt] = {}
        forks.in_child(self._forget)

    def answered(self, to: To, connect: Connect) -> bool:
        """Return whether the server has answered; begin an attempt unless there is one.

        It does not block.
        """
        return self._attempt(to, connect).reached()

    def take(self, to: To, connect: Connect, limit: float) -> Reached:
        """Return an open connection, which is the caller's from now on.

        :param limit: seconds to wait for it; the attempt continues afterwards.
        :raises OSError: if nothing answers.
        """
        attempt = self._attempt(to, connect)
        try:
            reached = attempt.over.result(limit)
        except TimeoutError as error:
            if attempt.over.done():
                raise
            raise TimeoutError(f"the SSH server has said nothing for {limit:.0f} s") from error
        return reached if self._take(to, attempt) else connect()

    def close(self, addresses: Collection[str]) -> None:
        """Close the connections to any of these addresses."""
        with self._lock:
            theirs = [to for to in self._attempts if set(to) & set(addresses)]
            attempts = [self._attempts.pop(to) for to in theirs]
        for attempt in attempts:
            attempt.close()

    def _attempt(self, to: To, connect: Connect) -> _Attempt:
        with self._lock:
            for old in [to for to, attempt in self._attempts.items() if not attempt.is_of_use()]:
                self._attempts.pop(old).close()
            if to not in self._attempts:
                self._attempts[to] = _Attempt(connect)
            return self._attempts[to]

    def _take(self, to: To, attempt: _Attempt) -> bool:
        """Return whether it is the caller's: of several who wait for it, one gets it."""
        with self._lock:
            is_there = self._attempts.get(to) is attempt
            if is_there:
                del self._attempts[to]
            return is_there

    def _forget(self) -> None:
        """Start empty in a forked child, where no attempt goes on."""
        self._attempts = {}


def _close(over: Future[Reached]) -> None:
    if over.exception() is None:
        over.result().connection.close()
