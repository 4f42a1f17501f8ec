"""Small databases below ``state_dir``, by SQLite.

They are opened for each call, so that no connection crosses a fork. What is done within
:meth:`Database.changing` is done as a whole or not at all, whatever threads and processes do meanwhile.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from fabric_direct.errors import DriverError, TimedOut


class Database:
    """One file with its tables."""

    def __init__(self, path: Path, *tables: str, what: str, timeout: float) -> None:
        """Make no file yet.

        :param path: made with mode 0600, a missing directory with 0700.
        :param tables: the statements that make the tables and their indices where they are missing.
        :param what: what is kept in it, for messages: ``the address pools``.
        :param timeout: seconds to wait for another thread or process that writes.
        """
        self._path, self._tables, self._what, self._timeout = path, tables, what, timeout

    def exists(self) -> bool:
        """Return whether anything was ever written."""
        return self._path.exists()

    @contextmanager
    def changing(self) -> Iterator[sqlite3.Connection]:
        """Give the database, locked for writing.

        :raises TimedOut: if others write all the time.
        """
        with self.reading() as db, db:
            db.execute("BEGIN IMMEDIATE")
            yield db

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Give the database, with what was written so far."""
        self._make()
        with self._translated():
            connection = sqlite3.connect(self._path, timeout=self._timeout, isolation_level=None)
            with closing(connection) as db:
                for table in self._tables:
                    db.execute(table)
                yield db

    def _make(self) -> None:
        """Make the file without opening it.

        A process that closes a file loses all of its locks on it, those of its other threads included.
        """
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            os.mknod(self._path, 0o600)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # without what only refines it
            kind = TimedOut if code == sqlite3.SQLITE_BUSY else DriverError
            where, why = str(self._path), str(error)
            raise kind(f"cannot use {self._what}", where=where, why=why) from error
