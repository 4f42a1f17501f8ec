"""The instances on the site's own hosts, on disk: reservation, sliver and status of each.

They are stored in SQLite, ``<state_dir>/zone/instances.sqlite``, mode 0600. A sliver is stored with its
boot script until it is created, so that the next process can resume.
"""

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from fabric_direct.model import SliverRef
from fabric_direct.model.bare_metal import MachineSliver
from fabric_direct.state.database import SqliteDatabase
from fabric_direct.zones.store import SHOWN
from fabric_direct.zones.wire import Instance, InstanceStatus

_TABLE = """
CREATE TABLE IF NOT EXISTS instance (
    id TEXT PRIMARY KEY, type TEXT NOT NULL, reservation TEXT NOT NULL, kind TEXT NOT NULL,
    name TEXT NOT NULL, status TEXT NOT NULL, error TEXT NOT NULL, sliver TEXT NOT NULL, at REAL NOT NULL
)
"""

_SLIVER: TypeAdapter[MachineSliver] = TypeAdapter(MachineSliver)


class Instances:
    """The instances on the site's own hosts."""

    def __init__(self, state_dir: Path) -> None:
        """Create no file yet."""
        path = state_dir / "zone" / "instances.sqlite"
        self._database = SqliteDatabase(path, _TABLE, what="the zone's instances", timeout=10)

    def add(self, reservation: str, slivers: Mapping[str, Iterable[MachineSliver]]) -> None:
        """Record slivers that are about to be created, by kind; purge those deleted long ago."""
        new = (InstanceStatus.PENDING, "")
        rows = [
            (s.id, s.type, reservation, kind, s.name, *new, s.model_dump_json(), time.time())
            for kind, several in slivers.items()
            for s in several
        ]
        with self._database.changing() as db:
            values = (InstanceStatus.DELETED, time.time() - SHOWN)
            db.execute("DELETE FROM instance WHERE status = ? AND at < ?", values)
            db.executemany("INSERT INTO instance VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def discard(self, reservation: str) -> None:
        """Remove a reservation none of whose instances is created."""
        self._database.change("DELETE FROM instance WHERE reservation = ?", reservation)

    def record(self, sliver: str, was: InstanceStatus, now: InstanceStatus, error: str) -> None:
        """Record the result of an operation, unless the status is not what it was any more.

        So a creation is not recorded if a deletion was requested meanwhile.
        """
        statement = (
            "UPDATE instance SET status = ?, error = ?, sliver = '', at = ?"
            " WHERE id = ? AND status = ?"
        )
        self._database.change(statement, now, error, time.time(), sliver, was)

    def delete(self, reservation: str) -> tuple[SliverRef, ...]:
        """Record the request to delete a reservation; return the slivers still to be deleted."""
        with self._database.changing() as db:
            db.execute(
                "UPDATE instance SET status = ?, error = '', sliver = ''"
                " WHERE reservation = ? AND status != ?",
                (InstanceStatus.DELETING, reservation, InstanceStatus.DELETED),
            )
            rows = db.execute(
                "SELECT id, type FROM instance WHERE reservation = ? AND status = ?",
                (reservation, InstanceStatus.DELETING),
            )
            return tuple(SliverRef(id=sliver, type=kind) for sliver, kind in rows)

    def of(self, reservation: str, zone: str) -> tuple[Instance, ...]:
        """Return the instances of a reservation; empty if there is no such reservation.

        :param zone: name of the zone to report for them.
        """
        return tuple(
            Instance(name=name, kind=kind, zone=zone, status=status, error=error)
            for name, kind, status, error in self._select(
                "name, kind, status, error", "reservation", reservation
            )
        )

    def pending(self) -> tuple[MachineSliver, ...]:
        """Return the slivers that are still to be created."""
        rows = self._select("sliver", "status", InstanceStatus.PENDING)
        return tuple(_SLIVER.validate_json(sliver) for (sliver,) in rows)

    def deleting(self) -> tuple[SliverRef, ...]:
        """Return the slivers that are still to be deleted."""
        rows = self._select("id, type", "status", InstanceStatus.DELETING)
        return tuple(SliverRef(id=sliver, type=kind) for sliver, kind in rows)

    def _select(self, columns: str, key: str, value: str) -> list[tuple[Any, ...]]:
        query = f"SELECT {columns} FROM instance WHERE {key} = ? ORDER BY rowid"  # noqa: S608
        return self._database.rows(query, value)
