"""Locks in PostgreSQL, each held as long as its process tells that it lives.

A process has a row in ``holder``, whose time a thread renews five times in a lease, by the database's
clock, on a connection of its own. A lock is taken over two leases after its holder was heard last. Each
taking has an epoch, which no other has: who was frozen in the meantime finds that it is not theirs any
more, before it changes anything (:mod:`fabric_direct.calls.fence`), and in each of its transactions.
"""

import atexit
import logging
import os
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import psycopg
from sqlalchemy import Connection

from fabric_direct.calls import forks
from fabric_direct.calls.deadline import wait_until
from fabric_direct.calls.fence import behind, fences
from fabric_direct.errors import (
    DriverError,
    FabricDirectError,
    LockLost,
    SliverBusy,
    TimedOut,
    Unreachable,
)
from fabric_direct.state.postgresql.connections import Connections

log = logging.getLogger(__name__)
_BEATS = 5
"""In a lease."""
_IDLE = 10
"""Leases without a lock after which a process is silent."""
_LATE = "beat < clock_timestamp() - make_interval(secs => %s)"
_HELD = f"""
lock.holder IS NOT NULL
    AND NOT EXISTS (SELECT FROM holder WHERE holder.id = lock.holder AND holder.{_LATE})
"""
_TAKE = f"""
UPDATE lock SET epoch = nextval('epoch'), holder = %s, since = clock_timestamp()
    WHERE name = %s AND NOT ({_HELD}) RETURNING epoch
"""  # noqa: S608 - of this file alone
_STILL = """
WITH alive AS (UPDATE holder SET beat = clock_timestamp() WHERE id = %s)
SELECT 1 FROM lock WHERE name = %s AND epoch = %s AND holder = %s
"""


@dataclass(frozen=True)
class Hold:
    """A lock that was taken: a :class:`~fabric_direct.calls.fence.Fence`."""

    locks: "Locks"
    name: str
    epoch: int
    holder: str
    what: str

    def check(self, seconds: float) -> None:
        """Return if the lock is still held; wait for a database that does not answer."""
        silent = list[DriverError]()

        def known() -> bool:
            asked = time.monotonic()
            try:
                if not self.locks.still(self):
                    raise self.lost()
            except (Unreachable, TimedOut) as error:
                silent[:] = [error]
                return False
            return time.monotonic() - asked < self.locks.lease

        try:
            if not known():
                wait_until("the database of the site's state", known, timeout=seconds)
        except TimedOut as error:
            raise self.lost(f"that is not known: {silent[0] if silent else error}") from error

    def lost(self, why: str = "another process may have taken over") -> LockLost:
        """Return the error of one that is not held any more."""
        return LockLost(
            f"{self.what} is not locked by this process any more",
            where=self.locks.where,
            why=why,
            remedy="look at what it is: another process goes on with it, or recover does",
        )


class Locks:
    """The locks of a site."""

    def __init__(self, connections: Connections, lease: float) -> None:
        """Connect to nothing yet.

        :param lease: seconds.
        """
        self._connections, self.lease, self.where = connections, lease, connections.where

    @contextmanager
    def exclusive(self, name: str, what: str, *, timeout: float) -> Iterator[None]:
        """Hold a lock while the block runs; see :class:`~fabric_direct.state.store.StateStore`."""
        end, taken = time.monotonic() + timeout, list[Hold]()
        beats = beats_of(self._connections, self.lease)

        def take() -> bool:
            taken[:] = self._taken(beats, name, what, max(0.0, end - time.monotonic()))
            return bool(taken)

        with beats.holding():
            try:
                if not take():
                    wait_until(f"another process to leave {what}", take, timeout=timeout)
            except TimedOut as error:
                raise SliverBusy(
                    f"{what} is being worked on by another process or thread",
                    where=self.where,
                    remedy="try again when that has ended",
                ) from error
            try:
                with behind(taken[0]):
                    yield
            finally:
                beats.release(taken[0])

    def _taken(self, beats: "Beats", name: str, what: str, seconds: float) -> list[Hold]:
        """Return the lock, if it could be taken."""
        taken = list[Hold]()
        try:
            with self._connections.begin(f"the lock of {what}", seconds) as db:
                beats.join(db)
                db.exec_driver_sql(
                    "INSERT INTO lock (name) VALUES (%s) ON CONFLICT DO NOTHING", (name,)
                )
                # The next statement sees what has happened until this one has the row.
                db.exec_driver_sql("SELECT FROM lock WHERE name = %s FOR UPDATE", (name,))
                given = (beats.id, name, 2 * self.lease)
                rows = db.exec_driver_sql(_TAKE, given).fetchall()
                taken.extend(Hold(self, name, epoch, beats.id, what) for (epoch,) in rows)
        except DriverError:
            # It may be committed all the same.
            beats.owe(taken)
            raise
        return taken

    def still(self, hold: Hold) -> bool:
        """Return whether a lock is still held; its process is known to be alive then.

        :raises Unreachable: if the database does not answer.
        """
        with self._connections.begin(f"the lock of {hold.what}", 0) as db:
            given = (hold.holder, hold.name, hold.epoch, hold.holder)
            return bool(db.exec_driver_sql(_STILL, given).fetchall())

    def held(self, prefix: str) -> tuple[str, ...]:
        """Return the names of the locks that somebody holds and that begin so."""
        return self._names(f"starts_with(name, %s) AND {_HELD}", prefix, 2 * self.lease)

    def stale(self) -> tuple[str, ...]:
        """Return the names of the locks whose holder is not heard any more."""
        return self._names(f"NOT ({_HELD})", 2 * self.lease)

    def remove_stale(self, name: str) -> None:
        """Remove a lock whose holder is not heard any more."""
        with self._connections.begin("the locks", self.lease) as db:
            given = (name, 2 * self.lease)
            db.exec_driver_sql(f"DELETE FROM lock WHERE name = %s AND NOT ({_HELD})", given)  # noqa: S608

    def _names(self, condition: str, *values: object) -> tuple[str, ...]:
        with self._connections.begin("the locks", self.lease) as db:
            query = f"SELECT name FROM lock WHERE {condition} ORDER BY name"  # noqa: S608
            return tuple(name for (name,) in db.exec_driver_sql(query, values))


def refuse_lost(db: Connection) -> None:
    """Raise LockLost unless all locks of this context are held until the transaction ends."""
    for hold in fences():
        if isinstance(hold, Hold):
            query = "SELECT FROM lock WHERE name = %s AND epoch = %s AND holder = %s FOR SHARE"
            given = (hold.name, hold.epoch, hold.holder)
            if not db.exec_driver_sql(query, given).fetchall():
                raise hold.lost()


class Beats:
    """What tells a database that this process lives, while it holds a lock."""

    def __init__(self, connections: Connections, lease: float) -> None:
        self._connections, self._lease = connections, lease
        self._changed = threading.Condition()
        self._holding, self._owed = 0, list[Hold]()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self.id = ""
        """Of this process as a holder; empty while it is none."""

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Have it told while the block runs."""
        with self._changed:
            if self._thread is None:
                self._begin()
            self._holding += 1
        try:
            yield
        finally:
            with self._changed:
                self._holding -= 1

    def _begin(self) -> None:
        """Become a holder."""
        self.id = uuid4().hex
        try:
            with self._connections.begin("the locks", 2 * self._lease) as db:
                # Whoever was not heard for so long has been taken over, or has left nothing.
                db.exec_driver_sql(f"DELETE FROM holder WHERE {_LATE}", (86_400,))  # noqa: S608
                self.join(db)
        except FabricDirectError:
            self.id = ""
            raise
        thread = threading.Thread(target=self._beat, name="fabric-direct-lease", daemon=True)
        thread.start()
        self._thread = thread

    def join(self, db: Connection) -> None:
        """Be among the holders; a database that was restored, or not asked for a day, forgets us."""
        statement = "INSERT INTO holder VALUES (%s, clock_timestamp(), %s) ON CONFLICT DO NOTHING"
        db.exec_driver_sql(statement, (self.id, f"{socket.gethostname()} {os.getpid()}"))

    def owe(self, holds: Iterable[Hold]) -> None:
        """Release locks as soon as the database answers."""
        with self._changed:
            self._owed += holds

    def release(self, hold: Hold) -> None:
        """Release a lock; later, if the database does not answer.

        A forked child does not hold what its parent does.
        """
        if self._pid != os.getpid():
            return
        try:
            with self._connections.begin(f"the lock of {hold.what}", 0) as db:
                statement = "DELETE FROM lock WHERE name = %s AND epoch = %s"
                db.exec_driver_sql(statement, (hold.name, hold.epoch))
        except DriverError as error:
            log.warning("%s stays locked until the database answers: %s", hold.what, error)
            self.owe([hold])

    def _beat(self) -> None:
        """Renew the lease until no lock was held for a while; the thread's work."""
        silent, until, said = False, time.monotonic() + _IDLE * self._lease, False
        while not silent:
            with suppress(psycopg.Error), self._connections.connect() as connection:
                connection.autocommit = True
                while not silent:
                    self._renew(connection)
                    said = False
                    time.sleep(self._lease / _BEATS)
                    with self._changed:
                        if self._holding or self._owed:
                            until = time.monotonic() + _IDLE * self._lease
                        silent = time.monotonic() > until
                        if silent:
                            self._end(connection)
            if not silent and not said:
                log.warning("the database of the site's state does not answer: nothing is begun")
                said = True
            time.sleep(0 if silent else 0.2)

    def _renew(self, connection: "psycopg.Connection[Any]") -> None:
        connection.execute("UPDATE holder SET beat = clock_timestamp() WHERE id = %s", (self.id,))
        with self._changed:
            owed = tuple(self._owed)
        for hold in owed:
            statement = "DELETE FROM lock WHERE name = %s AND epoch = %s"
            connection.execute(statement, (hold.name, hold.epoch))
            with self._changed:
                self._owed.remove(hold)

    def _end(self, connection: "psycopg.Connection[Any]") -> None:
        """Be no holder any more."""
        gone, self.id, self._thread = self.id, "", None
        connection.execute("DELETE FROM holder WHERE id = %s", (gone,))

    def leave(self) -> None:
        """Be no holder any more, as the process ends: what it held is free at once."""
        if self.id:
            with suppress(FabricDirectError), self._connections.begin("the locks", 0) as db:
                db.exec_driver_sql("DELETE FROM holder WHERE id = %s", (self.id,))


_all: dict[Connections, Beats] = {}
forks.in_child(_all.clear)


def beats_of(connections: Connections, lease: float) -> Beats:
    """Return what tells a database that this process lives."""
    return _all.setdefault(connections, Beats(connections, lease))


@atexit.register
def _leave() -> None:
    for beats in _all.values():
        beats.leave()
