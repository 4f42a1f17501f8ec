"""What a zone promised, on disk: reservations, their parts, and the offers that were taken up.

They are kept by SQLite in ``<state_dir>/zone/zone.sqlite``, so that they survive a restart.
It holds no sliver: those on the site's own hosts are in :mod:`~fabric_direct.zones.instances`.
"""

import json
import secrets
import sqlite3
import time
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from fabric_direct.database import Database
from fabric_direct.errors import Conflict

_KEPT = 3600.0
"""Seconds for which it is remembered that a request was refused or called off; none takes as long."""
SHOWN = 7 * 24 * 3600.0
"""Seconds for which it is told of what was deleted."""
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
    """How far a reservation is."""

    PLACING = "placing"
    """Who asked for it has no answer yet."""
    MADE = "made"
    REFUSED = "refused"
    DELETED = "deleted"


class PartState(StrEnum):
    """How far one part of a reservation is."""

    ASKED = "asked"
    """Whether its source has heard is not known."""
    MADE = "made"
    DROPPED = "dropped"
    """It shall be deleted, and is none of the reservation's any more."""
    DELETING = "deleting"
    """The reservation shall be deleted; whether its source has heard is not known."""
    DELETED = "deleted"
    """Its source has been told."""


@dataclass(frozen=True, slots=True)
class Part:
    """Instances of one kind at one source."""

    id: str
    """Request id by which they are asked for."""
    reservation: str
    source: str
    kind: str
    names: tuple[str, ...]
    state: PartState
    theirs: str
    """The source's own id of it."""


class Store:
    """The reservations of a zone."""

    def __init__(self, state_dir: Path) -> None:
        """Open nothing yet."""
        path = state_dir / "zone" / "zone.sqlite"
        self._database = Database(path, *_TABLES, what="the zone's database", timeout=10)

    def zone_id(self) -> str:
        """Return the zone's own id, made at random when first asked for."""
        with self._database.changing() as db:
            row = db.execute("SELECT id FROM zone").fetchone()
            if row is None:
                row = (secrets.token_hex(8),)
                db.execute("INSERT INTO zone VALUES (?)", row)
            return str(row[0])

    # --- reservations

    def known(self, reservation: str, digest: str) -> bool:
        """Tell whether a reservation was made already for the same request.

        :param digest: of what is asked for.
        :raises Conflict: if another was asked for, or it was refused or called off.
        """
        with self._database.changing() as db:
            _forget(db)
            row = db.execute(
                "SELECT digest, why FROM reservation WHERE id = ?", (reservation,)
            ).fetchone()
            if row is None:
                _refuse_called_off(db, reservation)
                return False
            _refuse_other(digest, *row)
            return True

    def begin(self, reservation: str, digest: str, nonces: Iterable[str], until: float) -> None:
        """Record that a reservation is being placed, and which offers it takes up.

        :param nonces: of the offers; they are remembered ``until`` they are expired.
        :raises Conflict: if an offer was taken up before; nothing is recorded then.
        """
        with self._database.changing() as db:
            values = (reservation, digest, ReservationState.PLACING)
            db.execute("INSERT INTO reservation VALUES (?, ?, ?, '', NULL)", values)
            for nonce in nonces:
                _take(db, nonce, until)

    def made(self, reservation: str) -> None:
        """Record that a reservation is placed.

        :raises Conflict: if it was called off meanwhile.
        """
        with self._database.changing() as db:
            _refuse_called_off(db, reservation)
            _set_state(db, reservation, ReservationState.MADE, None)

    def refused(self, reservation: str, why: str) -> None:
        """Record that a reservation is refused; nothing of it shall be left."""
        with self._database.changing() as db:
            _refuse(db, reservation, why)

    def delete(self, reservation: str) -> bool:
        """Record that a reservation shall be deleted, or never be made; tell whether it was made."""
        with self._database.changing() as db:
            states = (ReservationState.MADE, ReservationState.DELETED)
            row = db.execute(
                "SELECT 1 FROM reservation WHERE id = ? AND state IN (?, ?)", (reservation, *states)
            ).fetchone()
            if row is None:
                values = (reservation, time.time() + _KEPT)
                db.execute("INSERT OR REPLACE INTO called_off VALUES (?, ?)", values)
                return False
            _set_state(db, reservation, ReservationState.DELETED, time.time() + SHOWN)
            db.execute(
                "UPDATE part SET state = ? WHERE reservation = ? AND state != ?",
                (PartState.DELETING, reservation, PartState.DROPPED),
            )
            return True

    def state(self, reservation: str) -> ReservationState | None:
        """Return how far a reservation is, or None if there is none."""
        with self._database.reading() as db:
            row = db.execute(
                "SELECT state FROM reservation WHERE id = ?", (reservation,)
            ).fetchone()
            return ReservationState(row[0]) if row else None

    def interrupt(self) -> None:
        """Refuse what was being placed: the process that did so is gone, and no one has an answer."""
        with self._database.changing() as db:
            placing = db.execute(
                "SELECT id FROM reservation WHERE state = ?", (ReservationState.PLACING,)
            ).fetchall()
            for (reservation,) in placing:
                _refuse(db, reservation, "the zone ended while it was being placed")

    # --- parts

    def ask(self, parts: Iterable[Part]) -> None:
        """Record parts that are about to be asked for."""
        with self._database.changing() as db:
            for part in parts:
                values = (part.id, part.reservation, part.source, part.kind)
                db.execute(
                    "INSERT INTO part VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (*values, json.dumps(part.names), part.state, part.theirs),
                )

    def answered(self, part: str, theirs: str) -> None:
        """Record that a source has taken a part on.

        :param theirs: its own id of it.
        """
        with self._database.changing() as db:
            db.execute(
                "UPDATE part SET state = ?, theirs = ? WHERE id = ?", (PartState.MADE, theirs, part)
            )

    def drop(self, parts: Iterable[str]) -> None:
        """Record that parts shall be deleted, for the reservation does without them."""
        with self._database.changing() as db:
            for part in parts:
                db.execute("UPDATE part SET state = ? WHERE id = ?", (PartState.DROPPED, part))

    def gone(self, part: str) -> None:
        """Record that the source has been told to delete a part."""
        with self._database.changing() as db:
            db.execute("DELETE FROM part WHERE id = ? AND state = ?", (part, PartState.DROPPED))
            db.execute(
                "UPDATE part SET state = ? WHERE id = ? AND state = ?",
                (PartState.DELETED, part, PartState.DELETING),
            )

    def parts(self, reservation: str) -> tuple[Part, ...]:
        """Return the parts of a reservation, without dropped ones."""
        states = tuple(PartState(state) for state in PartState if state is not PartState.DROPPED)
        return self._parts(states, reservation)

    def to_delete(self) -> tuple[Part, ...]:
        """Return the parts whose sources have not been told yet to delete them."""
        return self._parts((PartState.DROPPED, PartState.DELETING))

    def _parts(self, states: tuple[PartState, ...], reservation: str = "") -> tuple[Part, ...]:
        with self._database.reading() as db:
            rows = db.execute(
                "SELECT * FROM part WHERE ? IN ('', reservation) ORDER BY rowid", (reservation,)
            )
            return tuple(part for row in rows if (part := _part(*row)).state in states)


def _part(
    part: str, reservation: str, source: str, kind: str, names: str, state: str, theirs: str
) -> Part:
    return Part(part, reservation, source, kind, tuple(json.loads(names)), PartState(state), theirs)


def _refuse_other(asked: str, digest: str, why: str) -> None:
    if asked != digest:
        raise Conflict("another request had this request id", remedy="make one for each request")
    if why:
        raise Conflict("this request was refused", why=why, remedy="ask with another request id")


def _refuse_called_off(db: sqlite3.Connection, reservation: str) -> None:
    if db.execute("SELECT 1 FROM called_off WHERE reservation = ?", (reservation,)).fetchone():
        raise Conflict("this request was called off", remedy="ask with another request id")


def _take(db: sqlite3.Connection, nonce: str, until: float) -> None:
    try:
        db.execute("INSERT INTO taken VALUES (?, ?)", (nonce, until))
    except sqlite3.IntegrityError as error:
        raise Conflict("an offer was taken up already", remedy="select again") from error


def _refuse(db: sqlite3.Connection, reservation: str, why: str) -> None:
    db.execute("UPDATE reservation SET why = ? WHERE id = ?", (why, reservation))
    _set_state(db, reservation, ReservationState.REFUSED, time.time() + _KEPT)
    db.execute("UPDATE part SET state = ? WHERE reservation = ?", (PartState.DROPPED, reservation))


def _set_state(
    db: sqlite3.Connection, reservation: str, state: ReservationState, until: float | None
) -> None:
    values = (state, until, reservation)
    db.execute("UPDATE reservation SET state = ?, until = ? WHERE id = ?", values)


def _forget(db: sqlite3.Connection) -> None:
    """Forget what is over: offers, and reservations that were deleted, refused or called off."""
    now = (time.time(),)
    over = "SELECT id FROM reservation WHERE until < ?"
    deleted = f"DELETE FROM part WHERE state = ? AND reservation IN ({over})"  # noqa: S608
    db.execute(deleted, (PartState.DELETED, *now))
    db.execute("DELETE FROM reservation WHERE until < ?", now)
    db.execute("DELETE FROM taken WHERE until < ?", now)
    db.execute("DELETE FROM called_off WHERE until < ?", now)
