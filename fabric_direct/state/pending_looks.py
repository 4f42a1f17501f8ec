"""Hosts where a sliver that was deleted was not looked for, because they did not answer.

They are in ``pending-looks.sqlite`` of ``state_dir``. A note is written when a deletion ends
without an answer of a host where the sliver is not known to be, or with something left on one; it is
struck when a later look at the host has settled it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fabric_direct.model import SliverRef
from fabric_direct.state.store import StateStore

_SELECT = "SELECT sliver, type, host, found, latest FROM look"
# What was found once is known until it is settled.
_WRITE = """
INSERT INTO look VALUES (?, ?, ?, ?, 1)
    ON CONFLICT (sliver, host) DO UPDATE SET latest = 1,
    found = CASE WHEN look.found > excluded.found THEN look.found ELSE excluded.found END
"""


@dataclass(frozen=True, slots=True)
class PendingLook:
    """A host that is to be looked at for what it has of a deleted sliver."""

    sliver: SliverRef
    host: str
    found: bool = False
    """Whether it is known to have had something, which could not be deleted."""
    latest: bool = True
    """Whether nothing of the sliver's id was made since that deletion."""


class PendingLooks:
    """The pending looks of a site."""

    def __init__(self, store: StateStore, *, timeout: float) -> None:
        """Create nothing yet.

        :param timeout: seconds to wait for another thread or process that writes.
        """
        what = "the pending looks"
        self._database = store.database("pending-looks", what=what, timeout=timeout)

    def all(self) -> tuple[PendingLook, ...]:
        """Return those of all slivers."""
        return tuple(map(_look, self._database.rows(f"{_SELECT} ORDER BY sliver, host")))

    def of(self, sliver_id: str) -> tuple[PendingLook, ...]:
        """Return those of a sliver."""
        rows = self._database.rows(f"{_SELECT} WHERE sliver = ? ORDER BY host", sliver_id)
        return tuple(map(_look, rows))

    def write(self, looks: Iterable[PendingLook]) -> None:
        """Note that these looks are due since the latest deletion."""
        rows = [(look.sliver.id, look.sliver.type, look.host, int(look.found)) for look in looks]
        if rows:
            with self._database.changing() as db:
                db.executemany(_WRITE, rows)

    def made(self, sliver_id: str, host: str) -> None:
        """Note that the sliver was made again: what the host has is it; other looks stay due."""
        self.strike(sliver_id, host)
        self._database.change("UPDATE look SET latest = 0 WHERE sliver = ?", sliver_id)

    def strike(self, sliver_id: str, host: str) -> None:
        """Forget a look: it has settled what was open."""
        self._database.change("DELETE FROM look WHERE sliver = ? AND host = ?", sliver_id, host)


def _look(row: tuple[Any, ...]) -> PendingLook:
    sliver, kind, host, found, latest = row
    return PendingLook(SliverRef(id=sliver, type=kind), host, bool(found), bool(latest))
