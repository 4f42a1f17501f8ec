"""The state of a site in PostgreSQL."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from sqlalchemy import Connection

from fabric_direct.errors import DriverError
from fabric_direct.site.config import StateDatabase
from fabric_direct.state.postgresql.connections import Connections, connections
from fabric_direct.state.postgresql.locks import Locks, refuse_lost
from fabric_direct.state.store import TableRows, Transaction

log = logging.getLogger(__name__)
_PATIENCE = 3
"""Leases to wait at most for another writer: the database ends a statement that waits longer."""
_PRUNED_EACH = 50
"""Lines that are added to a log until what is too old is looked for."""


class PostgresStore:
    """A :class:`~fabric_direct.state.store.StateStore` that machines share.

    What is written while a lock of it is held that was lost is refused (LockLost).
    """

    def __init__(self, site: str, settings: StateDatabase) -> None:
        """Connect to nothing yet.

        :param site: the site's name, which is that of its schema.
        """
        self._connections, self._lease = (
            connections(settings.url, site, settings.lease),
            settings.lease,
        )
        self._locks = Locks(self._connections, settings.lease)

    def database(
        self,
        name: str,
        *,
        what: str,
        timeout: float,
        damaged: str = "",  # noqa: ARG002 - what PostgreSQL keeps is mended with its own tools
    ) -> "PostgresDatabase":
        """Return the tables of a name, which :mod:`~fabric_direct.state.postgresql.schema` has made."""
        return PostgresDatabase(self._connections, name, what, timeout)

    def documents(self, name: str, what: str) -> "PostgresDocuments":
        """Return the documents of a name."""
        return PostgresDocuments(self._connections, name, what, 2 * self._lease)

    def log(self, name: str, size: int) -> "PostgresLog":
        """Return the log of a name."""
        return PostgresLog(self._connections, name, size, self._lease)

    def notes(self, name: str) -> "PostgresNotes":
        """Return the notes of a name."""
        return PostgresNotes(self._connections, name)

    def exclusive(self, name: str, what: str, *, timeout: float) -> AbstractContextManager[None]:
        """Hold a lock while the block runs; if the process dies, it is free two leases later."""
        return self._locks.exclusive(name, what, timeout=timeout)

    def held(self, prefix: str) -> tuple[str, ...]:
        """Return the names of the locks that somebody holds and that begin so."""
        return self._locks.held(prefix)

    def stale_locks(self) -> tuple[str, ...]:
        """Return the names of the locks whose holder is not heard any more."""
        return self._locks.stale()

    def remove_stale_lock(self, name: str) -> None:
        """Remove a lock whose holder is not heard any more."""
        self._locks.remove_stale(name)


class _Statements:
    """A transaction whose statements mark the places of values as SQLite does."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> TableRows:
        given = tuple(values) or None
        return self._connection.exec_driver_sql(_marked(statement), given)

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> object:
        given = [tuple(row) for row in rows]
        return self._connection.exec_driver_sql(_marked(statement), given) if given else None


def _marked(statement: str) -> str:
    return statement.replace("%", "%%").replace("?", "%s")


class PostgresDatabase:
    """A :class:`~fabric_direct.state.store.Database` of a schema."""

    def __init__(self, given: Connections, name: str, what: str, timeout: float) -> None:
        self._connections, self._name, self._what, self._timeout = given, name, what, timeout

    def exists(self) -> bool:
        """Return True: the tables were made beforehand."""
        return True

    @contextmanager
    def changing(self) -> Iterator[Transaction]:
        """Give the tables, locked for writing; commit at the end, roll back on an error."""
        with self._connections.begin(self._what, self._timeout) as db:
            patience = min(self._timeout, _PATIENCE * self._connections.lease)
            milliseconds = max(1, int(patience * 1000))
            db.exec_driver_sql(f"SET LOCAL lock_timeout = {milliseconds}")
            key = f"{self._connections.schema}/{self._name}"
            db.exec_driver_sql("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (key,))
            refuse_lost(db)
            yield _Statements(db)

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """Give the tables for reading."""
        with self._connections.begin(self._what, self._timeout) as db:
            db.exec_driver_sql("SET TRANSACTION READ ONLY")
            yield _Statements(db)

    def rows(self, query: str, *values: object) -> Sequence[Any]:
        """Return the rows of a query."""
        with self.reading() as db:
            return [tuple(row) for row in db.execute(query, values).fetchall()]

    def change(self, statement: str, *values: object) -> int:
        """Carry out a statement, alone; return how many rows it changed."""
        with self.changing() as db:
            return db.execute(statement, values).rowcount

    def check(self) -> None:
        """Connect: what PostgreSQL keeps, it checks itself."""
        with self.reading():
            pass


class PostgresDocuments:
    """:class:`~fabric_direct.state.store.StateDocuments` in a table."""

    def __init__(self, given: Connections, name: str, what: str, timeout: float) -> None:
        self._connections, self._name = given, name
        self._what, self._timeout = what, timeout
        self.where = f"{given.where}: {name}"

    def read(self, key: str) -> str | None:
        """Return a document, or None if there is none."""
        query = "SELECT text FROM document WHERE kind = %s AND key = %s"
        with self._begin() as db:
            found = db.exec_driver_sql(query, (self._name, key)).fetchone()
        return None if found is None else str(found[0])

    def write(self, key: str, text: str, *, new: bool) -> None:  # noqa: ARG002 - all or nothing
        """Write or replace a document; it is on the disk on return."""
        with self._begin() as db:
            refuse_lost(db)
            statement = (
                "INSERT INTO document VALUES (%s, %s, %s)"
                " ON CONFLICT (kind, key) DO UPDATE SET text = excluded.text"
            )
            db.exec_driver_sql(statement, (self._name, key, text))

    def remove(self, key: str) -> None:
        """Remove a document, if it is there."""
        with self._begin() as db:
            refuse_lost(db)
            statement = "DELETE FROM document WHERE kind = %s AND key = %s"
            db.exec_driver_sql(statement, (self._name, key))

    def all(self) -> Iterator[tuple[str, str, str]]:
        """Yield the key of each document, its text, and where it is."""
        query = "SELECT key, text FROM document WHERE kind = %s ORDER BY key"
        with self._begin() as db:
            found = db.exec_driver_sql(query, (self._name,)).fetchall()
        for key, text in found:
            yield key, text, f"{self.where}/{key}"

    def set_aside(self, key: str) -> bool:
        """Give a document that cannot be read another key."""
        begin = f"{key}.unreadable-"
        with self._begin() as db:
            refuse_lost(db)
            statement = (
                "UPDATE document SET key = %s || nextval('aside') WHERE kind = %s AND key = %s"
            )
            db.exec_driver_sql(statement, (begin, self._name, key))
            query = "SELECT 1 FROM document WHERE kind = %s AND starts_with(key, %s) LIMIT 1"
            return bool(db.exec_driver_sql(query, (self._name, begin)).fetchall())

    def _begin(self) -> AbstractContextManager[Connection]:
        return self._connections.begin(self._what, self._timeout)


class PostgresLog:
    """A :class:`~fabric_direct.state.store.Log` in a table."""

    def __init__(self, given: Connections, name: str, size: int, timeout: float) -> None:
        self._connections, self._name = given, name
        self._size, self._timeout = size, timeout

    def append(self, line: str) -> None:
        """Add a line."""
        try:
            with self._begin() as db:
                statement = "INSERT INTO log_line (kind, line) VALUES (%s, %s) RETURNING id"
                ((number,),) = db.exec_driver_sql(statement, (self._name, line)).fetchall()
                if number % _PRUNED_EACH == 0:
                    self._prune(db)
        except DriverError as error:
            log.warning("cannot write the %s: %s", self._name, error)

    def _prune(self, db: Connection) -> None:
        statement = """
            DELETE FROM log_line WHERE kind = %s AND id <= (
                SELECT max(id) FROM (
                    SELECT id, sum(octet_length(line) + 1) OVER (ORDER BY id DESC) AS size
                    FROM log_line WHERE kind = %s
                ) AS sized WHERE size > %s
            )
        """
        db.exec_driver_sql(statement, (self._name, self._name, 2 * self._size))

    def mark(self) -> tuple[int, int]:
        """Return what is another one when a line was added since; zeros if there is none."""
        try:
            with self._begin() as db:
                query = "SELECT coalesce(max(id), 0) FROM log_line WHERE kind = %s"
                ((latest,),) = db.exec_driver_sql(query, (self._name,)).fetchall()
        except DriverError:
            return 0, 0
        return int(latest), 0

    def lines(self) -> Iterator[str]:
        """Yield the lines."""
        query = "SELECT line FROM log_line WHERE kind = %s ORDER BY id"
        with self._begin() as db:
            found = db.exec_driver_sql(query, (self._name,)).fetchall()
        yield from (line for (line,) in found)

    def _begin(self) -> AbstractContextManager[Connection]:
        return self._connections.begin(f"the {self._name}", self._timeout)


class PostgresNotes:
    """:class:`~fabric_direct.state.store.OnlookerNotes` in a table."""

    def __init__(self, given: Connections, name: str) -> None:
        self._connections, self._name = given, name

    def append(self, key: str, line: str) -> None:
        """Add a line."""
        statement = "INSERT INTO note (kind, key, line) VALUES (%s, %s, %s)"
        self._change(statement, self._name, key, line)

    def forget(self, key: str) -> None:
        """Remove the lines of a key."""
        self._change("DELETE FROM note WHERE kind = %s AND key = %s", self._name, key)

    def _change(self, statement: str, *values: str) -> None:
        try:
            with self._connections.begin(f"the {self._name}", 0) as db:
                db.exec_driver_sql("SET LOCAL synchronous_commit = off")
                db.exec_driver_sql(statement, values)
        except DriverError as error:
            log.debug("cannot write the %s: %s", self._name, error)

    def lines(self, key: str) -> Sequence[str]:
        """Return the lines of a key, the oldest first."""
        query = "SELECT line FROM note WHERE kind = %s AND key = %s ORDER BY id"
        try:
            with self._connections.begin(f"the {self._name}", 0) as db:
                return [line for (line,) in db.exec_driver_sql(query, (self._name, key))]
        except DriverError:
            return ()
