"""Move the state of a site from one store to another: from files to a database, or back."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fabric_direct.errors import Conflict, NotVerified, Refused
from fabric_direct.state.store import Database, Log, StateDocuments, StateStore
from fabric_direct.state.tables import TABLES

_TIMEOUT = 60.0
"""Seconds to wait for a database that somebody writes."""
_AT_LEAST = 2**40
"""Bytes of a log that are copied, whatever there is: the site's limit applies from its next line on."""
Rows = Sequence[tuple[Any, ...]]


class _Part(Protocol):
    """A part of the state."""

    @property
    def what(self) -> str:
        """For messages."""

    def read(self, store: StateStore) -> Rows:
        """Return all of it."""

    def write(self, store: StateStore, rows: Rows) -> None:
        """Have a store have this, and nothing else of it."""


@dataclass(frozen=True)
class _Table:
    database: str
    name: str

    @property
    def what(self) -> str:
        return f"table {self.name}"

    def read(self, store: StateStore) -> Rows:
        with self._of(store).reading() as db:
            query = f"SELECT * FROM {self.name}"  # noqa: S608 - of this library
            return [tuple(row) for row in db.execute(query)]

    def write(self, store: StateStore, rows: Rows) -> None:
        with self._of(store).changing() as db:
            db.execute(f"DELETE FROM {self.name}")  # noqa: S608 - of this library
            if rows:
                marks = ", ".join("?" * len(rows[0]))
                db.executemany(f"INSERT INTO {self.name} VALUES ({marks})", rows)  # noqa: S608

    def _of(self, store: StateStore) -> Database:
        return store.database(self.database, what=self.what, timeout=_TIMEOUT)


@dataclass(frozen=True)
class _Documents:
    name: str
    what: str

    def read(self, store: StateStore) -> Rows:
        return [(key, text) for key, text, _ in self._of(store).all() if key]

    def write(self, store: StateStore, rows: Rows) -> None:
        documents, wanted = self._of(store), {key for key, _ in rows}
        for key, _ in self.read(store):
            if key not in wanted:
                documents.remove(key)
        for key, text in rows:
            documents.write(key, text, new=True)

    def _of(self, store: StateStore) -> StateDocuments:
        return store.documents(self.name, self.what)


@dataclass(frozen=True)
class _Lines:
    """A log. What was written to it stays: a line that is there is not added again."""

    name: str
    what: str

    def read(self, store: StateStore) -> Rows:
        # A crash of the machine may leave zero bytes, which no line has.
        return [(line,) for line in self._of(store).lines() if line and "\0" not in line]

    def write(self, store: StateStore, rows: Rows) -> None:
        there, log = set(self.read(store)), self._of(store)
        for row in rows:
            if row not in there:
                log.append(*row)

    def _of(self, store: StateStore) -> Log:
        return store.log(self.name, _AT_LEAST)


_PARTS: tuple[_Part, ...] = (
    *(_Table(database, name) for database, tables in TABLES.items() for name in tables),
    _Documents("journal", "the journal"),
    _Lines("history", "the history"),
    _Lines("watch", "the history of repairs"),
)


def copy(source: StateStore, target: StateStore, *, replace: bool) -> dict[str, int]:
    """Copy all that a site's state consists of, and read it back; the source is only read.

    :param replace: whether what the target has goes; the lines of its logs stay.
    :returns: how much there is of each part.
    :raises Conflict: if a process works on the site.
    :raises Refused: if the target has something, and it is not to go, or the source has nothing.
    :raises NotVerified: if something is otherwise when read back.
    """
    _refuse_busy(source, target)
    there = [part.what for part in _PARTS if part.read(target)]
    if there and not replace:
        raise Refused(
            "there is state already where it is to be copied to",
            why=", ".join(there),
            remedy="add --replace if it may go",
        )
    wanted = {part: part.read(source) for part in _PARTS}
    if there and not any(wanted.values()):
        raise Refused(
            "there is no state to copy, and what is there would go",
            why=", ".join(there),
            remedy="see that site.yaml names the state_dir and the database that are meant",
        )
    for part, rows in wanted.items():
        part.write(target, rows)
    for part, rows in wanted.items():
        if not set(rows) <= set(part.read(target)):
            raise NotVerified(f"{part.what} is not as it was copied when read back")
    return {part.what: len(rows) for part, rows in wanted.items()}


def _refuse_busy(*stores: StateStore) -> None:
    for store in stores:
        if held := store.held(""):
            raise Conflict(
                "the site is being worked on",
                why=f"locked: {', '.join(held)}",
                remedy="end all processes of the site, and copy its state then",
            )
