"""Small SQLite databases below ``state_dir``.

They are opened for each call, so that no connection crosses a fork. :meth:`SqliteDatabase.changing` is a
transaction that excludes other writers.
"""

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from fabric_direct.errors import DriverError, TimedOut, unusable
from fabric_direct.state import files

_DAMAGED = {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_CANTOPEN}
"""Codes of errors that concern the file, not what is asked of it."""


class SqliteDatabase:
    """A :class:`~fabric_direct.state.store.Database`: one file with its tables."""

    def __init__(
        self, path: Path, *tables: str, what: str, timeout: float, damaged: str = ""
    ) -> None:
        """Create no file yet.

        :param path: created with mode 0600, a missing directory with 0700.
        :param tables: statements that create missing tables and indices.
        :param what: its content, for messages: ``the address pools``.
        :param timeout: seconds to wait for another thread or process that writes.
        :param damaged: the remedy if it is damaged, or cannot be opened.
        """
        self._path, self._tables, self._what, self._timeout = path, tables, what, timeout
        self._damaged = damaged

    def exists(self) -> bool:
        """Return whether the file exists."""
        return self._path.exists()

    @contextmanager
    def changing(self) -> Iterator[sqlite3.Connection]:
        """Yield the database, locked for writing; commit at the end, roll back on an error.

        :raises TimedOut: if another writer holds the lock longer than the timeout.
        """
        with self.reading() as db, db:
            db.execute("BEGIN IMMEDIATE")
            yield db

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield the database for reading.

        :raises DriverError: if the file cannot be created or read.
        """
        self._make()
        with self._translated():
            connection = sqlite3.connect(self._path, timeout=self._timeout, isolation_level=None)
            with closing(connection) as db:
                for table in self._tables:
                    db.execute(table)
                yield db

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows of a query; none if there is no file."""
        if not self.exists():
            return []
        with self.reading() as db:
            return db.execute(query, values).fetchall()

    def change(self, statement: str, *values: object) -> int:
        """Carry out a statement, alone; return how many rows it changed, 0 if there is no file."""
        if not self.exists():
            return 0
        with self.changing() as db:
            return db.execute(statement, values).rowcount

    def check(self) -> None:
        """Read all of the file, if there is one.

        :raises DriverError: if it is damaged, or cannot be read.
        """
        for (found,) in self.rows("PRAGMA quick_check(1)"):
            if found != "ok":
                raise self._error(DriverError, found, self._damaged)

    def _make(self) -> None:
        """Create the file without opening it.

        A process that closes a file loses all of its POSIX locks on it, those of its other threads
        included; see docs/decisions/0035.
        """
        try:
            files.make_directory(self._path.parent)
            with suppress(FileExistsError):
                os.mknod(self._path, 0o600)
            _refuse_link(self._path)
        except OSError as error:
            raise unusable(f"create {self._what}", self._path, error) from error

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # without what only refines it
            kind = TimedOut if code == sqlite3.SQLITE_BUSY else DriverError
            remedy = self._damaged if code in _DAMAGED else ""
            raise self._error(kind, str(error), remedy) from error

    def _error(self, kind: type[DriverError], why: str, remedy: str) -> DriverError:
        return kind(f"cannot use {self._what}", where=str(self._path), why=why, remedy=remedy)


def _refuse_link(path: Path) -> None:
    """Raise OSError if another file would be written instead: SQLite follows links."""
    if path.is_symlink():
        raise OSError(errno.ELOOP, "it is a symbolic link")
