"""The promises of a zone, on disk: reservations, their parts, and the accepted offers.

They are stored in SQLite, ``<state_dir>/zone/zone.sqlite``, and survive a restart. Slivers are not among
them: those on the site's own hosts are in :mod:`~fabric_direct.zones.instances`.
"""

import json
import secrets
import sqlite3
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from fabric_direct.errors import Conflict
from fabric_direct.state.database import SqliteDatabase

_KEPT = 3600.0
"""Seconds to remember refused and cancelled requests; no request takes as long."""
SHOWN = 7 * 24 * 3600.0
"""Seconds to report deleted reservations."""
_TABLES = (
    "CREATE TABLE IF NOT EXISTS zone (id TEXT NOT NULL)",
    """CREATE TABLE IF NOT EXISTS reservation (
        id TEXT PRIMARY KEY, digest TEXT NOT NULL, state TEXT NOT NULL, why TEXT NOT NULL,
        until REAL
    )""",
    """CREATE TABLE IF NOT EXISTS part (
        id TEXT PRIMARY KEY, reservation TEXT NOT NULL, source TEXT NOT NULL, kind TEXT NOT NULL,
        names TEXT NOT NULL, state TEXT NOT NULL, theirs TEXT NOT NULL
    )""",
    "CREATE INDEX IF NOT EXISTS part_of ON part (reservation)",
    "CREATE TABLE IF NOT EXISTS taken (nonce TEXT PRIMARY KEY, until REAL NOT NULL)",
    "CREATE TABLE IF NOT EXISTS called_off (reservation TEXT PRIMARY KEY, until REAL NOT NULL)",
)


class ReservationState(StrEnum):
    """The state of a reservation."""

    PLACING = "placing"
    """The client has no answer yet."""
    MADE = "made"
    REFUSED = "refused"
    DELETED = "deleted"


class PartState(StrEnum):
    """The state of one part of a reservation."""

    ASKED = "asked"
    """Requested; whether the source received the request is unknown."""
    MADE = "made"
    DROPPED = "dropped"
    """Not part of the reservation any more; still to be deleted at its source."""
    DELETING = "deleting"
    """Part of a deleted reservation; the source has not confirmed the deletion yet."""
    DELETED = "deleted"
    """The source has confirmed the deletion."""


@dataclass(frozen=True, slots=True)
class SourceInstances:
    """The instances of one kind at one source."""

    id: str
    """Id of the boot request to the source."""
    reservation: str
    source: str
    kind: str
    names: tuple[str, ...]
    state: PartState
    theirs: str
    """The source's own reservation id."""


class ReservationStore:
    """The reservations of a zone."""

    def __init__(self, state_dir: Path) -> None:
        """Open nothing yet."""
        path = state_dir / "zone" / "zone.sqlite"
        self._database = SqliteDatabase(path, *_TABLES, what="the zone's database", timeout=10)

    def zone_id(self) -> str:
        """Return the zone's own id; it is generated at the first call."""
        with self._database.changing() as db:
            row = db.execute("SELECT id FROM zone").fetchone()
            if row is None:
                row = (secrets.token_hex(8),)
                db.execute("INSERT INTO zone VALUES (?)", row)
            return str(row[0])

    # --- reservations

    def known(self, reservation: str, digest: str) -> bool:
        """Return whether the same request has a reservation already.

        :param digest: of the request.
        :raises Conflict: if another request had this id, or it was refused or cancelled.
        """
        with self._database.changing() as db:
            _forget(db)
            row = db.execute(
                "SELECT digest, why FROM reservation WHERE id = ?", (reservation,)
            ).fetchone()
            if row is None:
                _refuse_cancelled(db, reservation)
                return False
            _refuse_other(digest, *row)
            return True

    def begin(self, reservation: str, digest: str, nonces: Iterable[str], until: float) -> None:
        """Record that a reservation is being placed, and which offers it accepts.

        :param nonces: of the offers; they are stored ``until`` the offers expire.
        :raises Conflict: if an offer was accepted before; nothing is recorded then.
        """
        with self._database.changing() as db:
            values = (reservation, digest, ReservationState.PLACING)
            db.execute("INSERT INTO reservation VALUES (?, ?, ?, '', NULL)", values)
            try:
                db.executemany("INSERT INTO taken VALUES (?, ?)", [(n, until) for n in nonces])
            except sqlite3.IntegrityError as error:
                raise Conflict("an offer was accepted before", remedy="select again") from error

    def made(self, reservation: str) -> None:
        """Record that a reservation is placed.

        :raises Conflict: if it was cancelled meanwhile.
        """
        with self._database.changing() as db:
            _refuse_cancelled(db, reservation)
            values = (ReservationState.MADE, reservation)
            db.execute("UPDATE reservation SET state = ?, until = NULL WHERE id = ?", values)

    def refused(self, reservation: str, why: str) -> None:
        """Record that a reservation is refused; all of its parts are dropped."""
        with self._database.changing() as db:
            _refuse(db, reservation, why)

    def delete(self, reservation: str) -> bool:
        """Record the deletion of a reservation; return whether there is one.

        If there is none, the request is cancelled: it will be refused should it still come.
        """
        with self._database.changing() as db:
            states = (ReservationState.MADE, ReservationState.DELETED)
            row = db.execute(
                "SELECT 1 FROM reservation WHERE id = ? AND state IN (?, ?)", (reservation, *states)
            ).fetchone()
            if row is None:
                cancelled = (reservation, time.time() + _KEPT)
                db.execute("INSERT OR REPLACE INTO called_off VALUES (?, ?)", cancelled)
                return False
            values = (ReservationState.DELETED, time.time() + SHOWN, reservation)
            db.execute("UPDATE reservation SET state = ?, until = ? WHERE id = ?", values)
            db.execute(
                "UPDATE part SET state = ? WHERE reservation = ? AND state != ?",
                (PartState.DELETING, reservation, PartState.DROPPED),
            )
            return True

    def state(self, reservation: str) -> ReservationState | None:
        """Return the state of a reservation, or None if there is none."""
        rows = self._database.rows("SELECT state FROM reservation WHERE id = ?", reservation)
        return ReservationState(rows[0][0]) if rows else None

    def interrupt(self) -> None:
        """Refuse the reservations that a former process was placing: their clients got no answer."""
        with self._database.changing() as db:
            placing = db.execute(
                "SELECT id FROM reservation WHERE state = ?", (ReservationState.PLACING,)
            ).fetchall()
            for (reservation,) in placing:
                _refuse(db, reservation, "the zone ended while it was being placed")

    # --- parts

    def add_parts(self, parts: Iterable[SourceInstances]) -> None:
        """Record parts that are about to be requested."""
        rows = [asdict(part) | {"names": json.dumps(part.names)} for part in parts]
        columns = ":id, :reservation, :source, :kind, :names, :state, :theirs"
        with self._database.changing() as db:
            db.executemany(f"INSERT INTO part VALUES ({columns})", rows)  # noqa: S608

    def answered(self, part: str, theirs: str) -> None:
        """Record that a source has accepted a part.

        :param theirs: the source's own reservation id.
        """
        statement = "UPDATE part SET state = ?, theirs = ? WHERE id = ?"
        self._database.change(statement, PartState.MADE, theirs, part)

    def drop(self, parts: Iterable[str]) -> None:
        """Record that parts do not belong to their reservation any more and must be deleted."""
        with self._database.changing() as db:
            values = [(PartState.DROPPED, part) for part in parts]
            db.executemany("UPDATE part SET state = ? WHERE id = ?", values)

    def gone(self, part: str) -> None:
        """Record that the source has confirmed the deletion of a part."""
        with self._database.changing() as db:
            db.execute("DELETE FROM part WHERE id = ? AND state = ?", (part, PartState.DROPPED))
            db.execute(
                "UPDATE part SET state = ? WHERE id = ? AND state = ?",
                (PartState.DELETED, part, PartState.DELETING),
            )

    def parts(self, reservation: str) -> tuple[SourceInstances, ...]:
        """Return the parts of a reservation, except dropped ones."""
        where = "WHERE reservation = ? AND state != ?"
        return self._parts(where, reservation, PartState.DROPPED)

    def to_delete(self) -> tuple[SourceInstances, ...]:
        """Return the parts whose deletion their sources have not confirmed yet."""
        return self._parts("WHERE state IN (?, ?)", PartState.DROPPED, PartState.DELETING)

    def _parts(self, where: str, *values: str) -> tuple[SourceInstances, ...]:
        rows = self._database.rows(f"SELECT * FROM part {where} ORDER BY rowid", *values)  # noqa: S608
        return tuple(
            SourceInstances(
                id_, whole, source, kind, tuple(json.loads(names)), PartState(state), theirs
            )
            for id_, whole, source, kind, names, state, theirs in rows
        )


def _refuse_other(asked: str, digest: str, why: str) -> None:
    if asked != digest:
        raise Conflict(
            "another request has the same request id", remedy="use a new id for each request"
        )
    if why:
        raise Conflict("this request was refused", why=why, remedy="use another request id")


def _refuse_cancelled(db: sqlite3.Connection, reservation: str) -> None:
    if db.execute("SELECT 1 FROM called_off WHERE reservation = ?", (reservation,)).fetchone():
        raise Conflict("this request was cancelled", remedy="use another request id")


def _refuse(db: sqlite3.Connection, reservation: str, why: str) -> None:
    values = (ReservationState.REFUSED, why, time.time() + _KEPT, reservation)
    db.execute("UPDATE reservation SET state = ?, why = ?, until = ? WHERE id = ?", values)
    db.execute("UPDATE part SET state = ? WHERE reservation = ?", (PartState.DROPPED, reservation))


def _forget(db: sqlite3.Connection) -> None:
    """Purge expired offers, and reservations that were deleted, refused or cancelled long ago."""
    now = (time.time(),)
    over = "SELECT id FROM reservation WHERE until < ?"
    deleted = f"DELETE FROM part WHERE state = ? AND reservation IN ({over})"  # noqa: S608
    db.execute(deleted, (PartState.DELETED, *now))
    db.execute("DELETE FROM reservation WHERE until < ?", now)
    db.execute("DELETE FROM taken WHERE until < ?", now)
    db.execute("DELETE FROM called_off WHERE until < ?", now)
