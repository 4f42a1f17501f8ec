"""A tap on everything that an operation asks of drivers and of its books; one of these calls goes wrong.

A run without a fault lists the calls: they are the points at which a fault is tried, so that a new step
is tried by itself.
"""

import errno
import os
import pickle
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from fabric_direct.drivers.fake import Substrate
from fabric_direct.drivers.fake.substrate import left_out
from fabric_direct.errors import DriverError
from fabric_direct.state import files
from fabric_direct.state.database import SqliteDatabase
from tests.reading import only_reads
from tests.trust.clock import Over, current, hang

READS = ("fails", "never ends", "killed before")
"""What can go wrong with a call that only reads: it has no effect that could come late."""
INCOMPLETE = "incomplete"
"""A success that leaves out what is there."""
CHANGES = (*READS, "fails after", "late", "later", "does nothing", "killed after")
BOOKS = ("fails", "fails after", "killed before", "killed after")
"""What can go wrong with the journal, the claims and the locks: files of this machine."""

_FILES = ((files, "replace"), (files, "sync"), (Path, "unlink"), (Path, "read_text"))
_LISTING = frozenset(
    {
        *("find", "find_port", "servers", "ports", "volumes", "plugs", "plugged", "records"),
        *("leftovers", "unused", "strange", "strangers", "differences", "inventory", "pending"),
    }
)
"""What is read and may lack something: None, or fewer than there are."""
_WRITES = ("replace", "sync", "unlink")
OUR_OWN = frozenset({"_lock", "_released", "faults", "fired", "calls", "call"})
"""Attributes of a substrate that belong to the process."""


@dataclass(frozen=True, slots=True, order=True)
class Call:
    """The n-th call of a method on a host; of a book if it has no host."""

    host: str
    method: str
    number: int

    def faults(self) -> tuple[str, ...]:
        """Return what can go wrong with it."""
        if not self.host:
            return BOOKS if self.method.endswith(_WRITES) else BOOKS[::2]
        method = self.method.partition(".")[2]
        if not only_reads(self.method):
            return CHANGES
        return (*READS, INCOMPLETE) if method in _LISTING else READS


class Tap:
    """Counts the calls, and lets one of them go wrong."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.carry: Callable[[], None] = lambda: None
        """Takes the substrates out of a process that is about to die."""
        self._due: tuple[Call, str] | None = None
        self.fired = False
        self.release = threading.Event()
        """What hangs or comes later waits for it."""
        self.hung: Over | None = None
        """The call that hangs, or comes late."""
        self._counts: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()

    def arm(self, call: Call | None = None, fault: str = "") -> None:
        """Count anew, and let a call go wrong."""
        with self._lock:
            self.calls, self.fired = [], False
            self._counts.clear()
            self._due = (call, fault) if call else None

    def let_come(self) -> None:
        """Let what hangs or comes later return."""
        if self.hung:
            self.hung.returns = True
        self.release.set()

    def disarm(self) -> None:
        """Let no other call go wrong."""
        self._due = None

    def on(self, things: Substrate, host: str) -> None:
        """Tap the calls of a host."""
        through = type(things).call

        def call(method: str, effect: Callable[[], Any]) -> Any:
            error = DriverError(f"{method} failed", why="it was told to")
            return self.through(host, method, lambda: through(things, method, effect), error)

        things.call = call  # type: ignore[method-assign]

    def through(self, host: str, method: str, effect: Callable[[], Any], error: Exception) -> Any:
        """Let a call through, or go wrong."""
        with self._lock:
            self._counts[host, method] += 1
            call = Call(host, method, self._counts[host, method])
            self.calls.append(call)
            due = self._due is not None and self._due[0] == call and not self.fired
            self.fired = self.fired or due
        return self._wrong(self._due[1], effect, error) if due and self._due else effect()

    def _wrong(self, fault: str, effect: Callable[[], Any], error: Exception) -> Any:
        if fault == "does nothing":
            return None
        if fault in {"late", "later", "never ends"}:
            self.hung = current()
            hang(returns=fault == "late")
        if fault in {"later", "never ends"}:
            self.release.wait()
        if fault == "killed before":
            self._die()
        result = effect() if fault not in {"fails", "never ends"} else None
        if fault == INCOMPLETE:
            return left_out(result)
        if fault == "killed after":
            self._die()
        if fault in {"fails", "fails after", "never ends"}:
            raise error
        return result

    def _die(self) -> None:
        self.carry()
        os.kill(os.getpid(), signal.SIGKILL)


def carry(hosts: dict[str, Substrate], path: Path) -> None:
    """Write down what is in the memory of the fakes."""
    kept = {
        host: {name: value for name, value in vars(things).items() if name not in OUR_OWN}
        for host, things in hosts.items()
    }
    path.write_bytes(pickle.dumps(kept))


def take_over(hosts: dict[str, Substrate], path: Path) -> None:
    """Read what a process that was killed has carried."""
    for host, kept in pickle.loads(path.read_bytes()).items():  # noqa: S301 - our own file
        vars(hosts[host]).update(kept)


@contextmanager
def books(tap: Tap, state_dir: Path) -> Iterator[None]:
    """Tap what is written of and read from the books of a site."""
    with ExitStack() as stack:
        for owner, name in _FILES:
            stack.enter_context(patch.object(owner, name, _file(tap, owner, name, state_dir)))
        stack.enter_context(patch.object(SqliteDatabase, "reading", _database(tap)))
        yield


def _file(tap: Tap, owner: Any, name: str, state_dir: Path) -> Callable[..., Any]:
    really = getattr(owner, name)

    def call(path: Path, *args: Any, **kw: Any) -> Any:
        if state_dir not in path.parents:
            return really(path, *args, **kw)
        error = OSError(errno.EIO, "Input/output error", str(path))
        book = path.relative_to(state_dir).parts[0]
        return tap.through("", f"{book}.{name}", lambda: really(path, *args, **kw), error)

    return call


def _database(tap: Tap) -> Callable[..., Any]:
    really = SqliteDatabase.reading

    @contextmanager
    def opened(database: SqliteDatabase) -> Iterator[Any]:
        error = DriverError("cannot use the claims", why="it was told to")
        tap.through("", "claims.open", lambda: None, error)
        with really(database) as db:
            yield db
        tap.through("", "claims.closed", lambda: None, error)

    return opened
