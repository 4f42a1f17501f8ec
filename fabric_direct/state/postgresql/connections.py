"""Connections of this process to a database, and its errors in plain words."""

import atexit
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.sql import SQL, Identifier, Literal
from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as NoneFree

from fabric_direct.calls import forks
from fabric_direct.calls.waiting import waiting_for
from fabric_direct.errors import Denied, DriverError, InvalidSite, TimedOut, Unreachable
from fabric_direct.state.postgresql import VERSION

_USUAL: dict[str, Any] = {
    "application_name": "fabric-direct",
    "connect_timeout": 5,
    # A machine that is gone is noticed after 5 + 3 × 2 s.
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    # What was the primary server, and is a standby now, is waited for as if it were away.
    "target_session_attrs": "read-write",
}
"""What the URL does not say."""
_OURS: dict[str, Any] = {"client_encoding": "UTF8"}
"""What it does not decide."""
_STUCK = 4
"""Leases after which the database ends a statement, and a transaction whose process does nothing."""
_SILENT = 5
"""Leases after which a statement that got no answer is given up: the server would have ended it."""
_AT_ONCE = 40
"""Connections of a process, at most: its operations and their steps use them for milliseconds."""
_DENIED = {"28000", "28P01", "42501"}
"""SQLSTATEs of a login that is refused, and of a right that is missing."""
_LATE = {"55P03", "57014"}
"""SQLSTATEs of a lock that was not to be had in time, and of a statement that took too long."""


class StateConnection(psycopg.Connection[Any]):
    """A connection that is closed if a statement gets no answer."""

    silent = 0.0
    """Seconds after which that is so."""

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """Wait for the database."""
        if timeout is not None:  # for notices, of which there may be none
            return super().wait(gen, interval, timeout)
        try:
            return super().wait(gen, interval, self.silent or None)
        except psycopg.OperationalError as error:
            # What it says is not known to be of the next statement, or of this one.
            if error.sqlstate is None:
                self.pgconn.finish()
            raise


class Connections:
    """The connections of this process to one schema of one database."""

    def __init__(self, url: str, schema: str, lease: float) -> None:
        """Connect to nothing yet.

        :param url: as libpq has it; ``postgresql://…``.
        :param lease: seconds; what gets no answer is given up after some of it.
        :raises InvalidSite: if the URL is none.
        """
        self._settings, self.schema, self._fits = _settings(url), schema, False
        self.lease = lease
        self.where = _shown(self._settings)

    @forks.cached_property
    def engine(self) -> Engine:
        """What keeps them open."""
        return create_engine(
            "postgresql+psycopg://",
            creator=self.connect,
            pool_size=_AT_ONCE // 4,
            max_overflow=_AT_ONCE - _AT_ONCE // 4,
            pool_timeout=_STUCK * self.lease,
            pool_pre_ping=True,
        )

    def connect(self) -> StateConnection:
        """Return a new connection that uses the schema.

        :raises psycopg.Error: if it cannot be made.
        """
        connection = StateConnection.connect(**(_USUAL | self._settings | _OURS))
        setting = SQL(
            "SET search_path TO {}; SET statement_timeout TO {}; "
            "SET default_transaction_isolation TO 'read committed'; "
            "SET idle_in_transaction_session_timeout TO {}"
        )
        stuck = Literal(f"{_STUCK * self.lease:.3f}s")
        connection.execute(setting.format(Identifier(self.schema), stuck, stuck))
        connection.commit()
        connection.silent = _SILENT * self.lease
        return connection

    @contextmanager
    def begin(self, what: str, seconds: float) -> Iterator[Connection]:
        """Give a transaction on tables of :data:`~fabric_direct.state.postgresql.VERSION`.

        It is committed at the end of the block, and rolled back on an error. A database that does not
        answer, or is starting, is waited for.

        :param what: what is read or written, for messages: ``the journal``.
        :param seconds: how long to wait at most.
        :raises InvalidSite: if the tables are of another version, or not there.
        :raises Unreachable: if it does not answer then, or not in the block.
        :raises Denied: if it lets this user not in, or not do this.
        :raises TimedOut: if a lock is not to be had in time.
        :raises DriverError: if it says anything else.
        """
        with self.begin_any(what, seconds) as connection:
            self._refuse_other_version(connection)
            yield connection

    @contextmanager
    def begin_any(self, what: str, seconds: float) -> Iterator[Connection]:
        """Give a transaction as :meth:`begin` does, whatever tables there are."""
        connection = self._connected(what, seconds)
        with connection, self._translated(what), connection.begin():
            yield connection

    def _refuse_other_version(self, connection: Connection) -> None:
        if self._fits:
            return
        found = self.version(connection)
        if found != VERSION:
            raise InvalidSite(
                f"has tables of version {found}, not {VERSION}" if found else "has no tables yet",
                field="state_database",
                where=self.where,
                remedy="fabric-direct state migrate makes them, or brings older ones up to date; later "
                "ones need a later fabric-direct",
            )
        self._fits = True

    def version(self, connection: Connection) -> str:
        """Return the version of the tables; empty if there are none."""
        name = f'"{self.schema}".alembic_version'
        ((there,),) = connection.exec_driver_sql("SELECT to_regclass(%s)", (name,)).fetchall()
        if there is None:
            return ""
        rows = connection.exec_driver_sql("SELECT version_num FROM alembic_version").fetchall()
        return str(rows[0][0]) if rows else ""

    def _connected(self, what: str, seconds: float) -> Connection:
        end = time.monotonic() + seconds
        with waiting_for("the database of the site's state") as still:
            while True:
                try:
                    with self._translated(what):
                        return self.engine.connect()
                except Unreachable:
                    if time.monotonic() >= end:
                        raise
                still("")
                time.sleep(0.2)

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        try:
            yield
        except (SQLAlchemyError, psycopg.Error) as error:
            raise self.error(what, error) from error

    def error(self, what: str, error: Exception) -> DriverError:
        """Return an error of the database in plain words."""
        cause = error.orig if isinstance(error, DBAPIError) else error
        state = getattr(cause, "sqlstate", None) or ""
        kind: type[DriverError] = DriverError
        if state in _DENIED:
            kind = Denied
        elif state in _LATE or isinstance(error, NoneFree):
            kind = TimedOut
        elif isinstance(cause, psycopg.OperationalError) and not state.startswith("53"):
            kind = Unreachable
        return kind(f"cannot use {what}", where=self.where, why=_one_line(cause))

    def close(self) -> None:
        """Close the connections that nobody uses; the next use opens new ones."""
        if engine := self.__dict__.pop("engine", None):
            engine.dispose()

    def forget(self) -> None:
        """Leave the connections to the process that we were forked from."""
        if engine := self.__dict__.pop("engine", None):
            engine.dispose(close=False)
            _inherited.append(engine)


_all: dict[tuple[str, str], Connections] = {}
# Kept, so that nothing closes them: that would end the session of the parent.
_inherited: list[Engine] = []


def connections(url: str, schema: str, lease: float) -> Connections:
    """Return the connections of this process to a schema of a database."""
    return _all.setdefault((url, schema), Connections(url, schema, lease))


@atexit.register
def close_all() -> None:
    """Close the connections of this process."""
    for each in _all.values():
        each.close()


@forks.in_child
def _forget() -> None:
    for each in _all.values():
        each.forget()


def _settings(url: str) -> dict[str, Any]:
    try:
        return conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        why, where = _one_line(error), "state_database.url"
        raise InvalidSite("is no URL of PostgreSQL", field=where, why=why) from error


def _shown(given: dict[str, Any]) -> str:
    """Return where a database is, without a login."""
    host, port = given.get("host", ""), given.get("port", "")
    return f"postgresql://{host}{port and f':{port}'}/{given.get('dbname', '')}"


def _one_line(error: BaseException | None) -> str:
    return " ".join(str(error).split())
