"""The audit trail: who asked for what, and what came of it.

An operation has a line when it begins and another one, which has all of the first, when it ends. So an
operation whose process was killed is there, too. An operation that only reads (plan, probe) is not.
Sliver documents, and the data of actions, may hold secrets: no line contains any of them.
"""

import os
import pwd
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from socket import gethostname
from uuid import uuid4

from fabric_direct.model import ErrorReport, Frozen, Status
from fabric_direct.state.lines import JsonLines, now
from fabric_direct.state.store import StateStore

_LOGIN = Path("/proc/self/loginuid")
_NOBODY = 2**32 - 1
"""What the kernel says of a process that nobody logged in for: a service's."""
_asked_by: ContextVar[str] = ContextVar("asked_by", default="")


class Asker(Frozen):
    """Who asks for an operation."""

    asked_by: str = ""
    """As the caller says: see :func:`asked_by`."""
    user: str
    """The user of the process."""
    login: str = ""
    """The user who logged in, if it is another one: by sudo, for example."""
    program: str
    pid: int
    machine: str = ""
    """Of the process."""

    @property
    def who(self) -> str:
        """The user, and what asked: ``alice as root, fabric-direct (4711)``, or ``(4711 on am)``."""
        user = f"{self.login} as {self.user}" if self.login else self.user
        where = f" on {self.machine}" if self.machine not in {"", gethostname()} else ""
        return f"{user}, {self.asked_by or self.program} ({self.pid}{where})"


_asker: ContextVar[Asker | None] = ContextVar("asker", default=None)


class Record(Asker):
    """An operation that was asked for."""

    id: str
    """The same in both of its lines."""
    at: str
    """When it began: in UTC, ISO 8601."""
    operation: str
    """``create``, ``modify``, …; ``release`` of a device, ``uplink``, ``remove`` by a sweep."""
    subject: str
    """The sliver's id; or ``host/device``, ``host/link``."""
    type: str = ""
    """The sliver's resource type."""
    action: str = ""
    """Which operational action; or how else it came to be: ``recover``."""
    status: Status | None = None
    """None: it has not ended, or its process was killed."""
    seconds: float = 0.0
    error: ErrorReport | None = None
    left: tuple[str, ...] = ()
    """What is left behind."""


@contextmanager
def asked_by(name: str) -> Iterator[None]:
    """Say who asks for the operations that are begun in the block.

    It holds for this thread, and for what is begun in copies of its context.

    :param name: for people: ``portal for alice@example.org``. It is kept as it is.
    :raises TypeError: if it is no text.
    :raises ValueError: if it is empty.
    """
    if not isinstance(name, str):
        raise TypeError(f"expected a name, not {type(name).__name__}")
    if not name.strip():
        raise ValueError("the name of who asks is empty")
    before = _asked_by.set(name)
    try:
        yield
    finally:
        _asked_by.reset(before)


def asker() -> Asker:
    """Return who asks in this context."""
    if another := _asker.get():
        return another
    user, login = _name_of(os.geteuid()), _login()
    return Asker(
        asked_by=_asked_by.get(),
        user=user,
        login=login if login != user else "",
        program=Path(sys.argv[0]).name or "python",
        pid=os.getpid(),
        machine=gethostname(),
    )


@contextmanager
def asking(another: Asker | None) -> Iterator[None]:
    """Have another process be who asks for the operations that are begun in the block."""
    before = _asker.set(another)
    try:
        yield
    finally:
        _asker.reset(before)


class AuditTrail:
    """The operations that were asked for at a site.

    :param store: the site's.
    :param size: bytes that are kept at least, and twice of that at most.
    """

    def __init__(self, store: StateStore, size: int) -> None:
        self._lines = JsonLines(store.log("history", size), Record)

    def begin(self, operation: str, subject: str, *, kind: str = "", action: str = "") -> Record:
        """Note that an operation begins; what cannot be written is logged.

        :param kind: the sliver's resource type.
        :returns: what :meth:`end` needs.
        """
        record = Record(
            id=uuid4().hex,
            at=now(),
            operation=operation,
            subject=subject,
            type=kind,
            action=action,
            **asker().model_dump(),
        )
        self._lines.add(record)
        return record

    def end(
        self,
        record: Record,
        status: Status,
        seconds: float,
        error: ErrorReport | None = None,
        left: tuple[str, ...] = (),
    ) -> None:
        """Note what came of an operation; what cannot be written is logged."""
        took = round(seconds, 3)
        update = {"status": status, "seconds": took, "error": error, "left": left}
        self._lines.add(record.model_copy(update=update))

    def mark(self) -> tuple[int, int]:
        """Return what is another one when something was noted since."""
        return self._lines.mark()

    def records(self, subject: str | None = None) -> tuple[Record, ...]:
        """Return the operations in the order in which they began; all, or those on one subject.

        :raises DriverError: if they cannot be read.
        """
        found = {record.id: record for record in self._lines.notes()}
        asked = (record for record in found.values() if subject in {None, record.subject})
        return tuple(sorted(asked, key=lambda record: record.at))


def _name_of(uid: int) -> str:
    with suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return str(uid)


def _login() -> str:
    """Return who logged in, as the kernel knows it; empty if nobody did, or it does not say."""
    with suppress(OSError, ValueError):
        uid = int(_LOGIN.read_text())
        return _name_of(uid) if uid != _NOBODY else ""
    return ""
