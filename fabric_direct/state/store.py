"""Where the state of a site is kept: files of this machine, or a database that machines share.

A module of this package says what is kept and what it means; a store keeps it, in five forms: tables,
documents, logs, notes of what is under way, and locks.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol


class TableRows(Protocol):
    """The answer to a statement."""

    @property
    def rowcount(self) -> int:
        """How many rows it changed."""

    def fetchall(self) -> Sequence[Any]:
        """Return the rows that it found."""

    def __iter__(self) -> Iterator[Any]:
        """Yield the rows that it found."""


class Transaction(Protocol):
    """Tables within a transaction.

    Statements are those that SQLite and PostgreSQL both know; a value's place is a ``?``.
    """

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> TableRows:
        """Carry out a statement."""

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> object:
        """Carry out a statement for each of some rows of values."""


class Database(Protocol):
    """Tables that are changed together."""

    def exists(self) -> bool:
        """Return whether anything was ever written."""

    def changing(self) -> AbstractContextManager[Transaction]:
        """Give the tables, locked for writing; commit at the end, roll back on an error.

        :raises TimedOut: if another writer holds the lock longer than the timeout.
        """

    def reading(self) -> AbstractContextManager[Transaction]:
        """Give the tables for reading.

        :raises DriverError: if they cannot be read.
        """

    def rows(self, query: str, *values: object) -> Sequence[Any]:
        """Return the rows of a query; none if nothing was ever written."""

    def change(self, statement: str, *values: object) -> int:
        """Carry out a statement, alone; return how many rows it changed."""

    def check(self) -> None:
        """Read all of it, if there is anything.

        :raises DriverError: if it is damaged, or cannot be read.
        """


class StateDocuments(Protocol):
    """Texts by their keys, each replaced in one step. Two do not write the same one at once."""

    where: str
    """For messages."""

    def read(self, key: str) -> str | None:
        """Return a document, or None if there is none."""

    def write(self, key: str, text: str, *, new: bool) -> None:
        """Write or replace a document; it outlives a crash of the machine on return.

        :param new: whether it is removed again if it may not outlive one.
        """

    def remove(self, key: str) -> None:
        """Remove a document, if it is there; the removal outlives a crash of the machine on return."""

    def all(self) -> Iterator[tuple[str, str, str]]:
        """Yield the key of each document, its text, and where it is.

        What is there and is none has an empty key.
        """

    def set_aside(self, key: str) -> bool:
        """Have what cannot be read as a document make room for one; keep it.

        :returns: whether the key has, or had, such a thing.
        """


class Log(Protocol):
    """Lines, the oldest first, of which the latest are kept. What cannot be written is logged."""

    def append(self, line: str) -> None:
        """Add a line."""

    def mark(self) -> tuple[int, int]:
        """Return what is another one when a line was added since; zeros if there is none."""

    def lines(self) -> Iterator[str]:
        """Yield the lines, perhaps with one that was cut off.

        :raises DriverError: if they cannot be read.
        """


class OnlookerNotes(Protocol):
    """Lines by their keys, for onlookers; what cannot be written is left out."""

    def append(self, key: str, line: str) -> None:
        """Add a line."""

    def lines(self, key: str) -> Sequence[str]:
        """Return the lines of a key, the oldest first."""

    def forget(self, key: str) -> None:
        """Remove the lines of a key."""


class StateStore(Protocol):
    """Keeps the state of a site."""

    def database(self, name: str, *, what: str, timeout: float, damaged: str = "") -> Database:
        """Return the tables of a name; nothing is made yet.

        :param name: of :data:`fabric_direct.state.tables.TABLES`.
        :param what: their content, for messages: ``the address pools``.
        :param timeout: seconds to wait for another thread or process that writes.
        :param damaged: the remedy if they are damaged, or cannot be opened.
        """

    def documents(self, name: str, what: str) -> StateDocuments:
        """Return the documents of a name.

        :param what: for messages: ``the journal``.
        """

    def log(self, name: str, size: int) -> Log:
        """Return the log of a name.

        :param size: bytes that are kept at least, if they were written, and twice of that at most.
        """

    def notes(self, name: str) -> OnlookerNotes:
        """Return the notes of a name."""

    def exclusive(self, name: str, what: str, *, timeout: float) -> AbstractContextManager[None]:
        """Hold a lock while the block runs, against all threads and processes that use the store.

        It is free again if the process dies.

        :param name: of the lock: ``sliver-4711``.
        :param what: what it protects, for the message: ``sliver 4711``.
        :param timeout: seconds to wait for who holds it.
        :raises SliverBusy: if another thread or process holds it then.
        :raises DriverError: if the store cannot be used.
        """

    def held(self, prefix: str) -> tuple[str, ...]:
        """Return the names of the locks that somebody holds and that begin so.

        :raises DriverError: if that cannot be found out.
        """

    def stale_locks(self) -> tuple[str, ...]:
        """Return the names of locks that processes left which were killed."""

    def remove_stale_lock(self, name: str) -> None:
        """Remove what is left of a lock, unless somebody holds it by now."""


def sliver_lock(sliver_id: str) -> str:
    """Return the name of a sliver's lock: only its holder may change the sliver."""
    return f"sliver-{sliver_id}"
