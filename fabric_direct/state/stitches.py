"""The stitches of a site, recorded so that the other end of a stitch can be found.

They are in ``pools.sqlite`` of ``state_dir``. A row is written before the sliver that names the
other one is made, and removed when that sliver is gone. The properties of a stitch come from the stamps
of both ends; a row says only which sliver asks for it.
"""

from collections.abc import Iterable
from dataclasses import astuple, dataclass

from fabric_direct.errors import Conflict
from fabric_direct.site.config import Site
from fabric_direct.state.site_store import store_of
from fabric_direct.state.store import Transaction

_HOLD = """
INSERT INTO stitch VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (sliver, part, other, "end")
    DO UPDATE SET taken = excluded.taken, address = excluded.address
"""
_RELEASE = """
DELETE FROM stitch WHERE sliver = ? AND part = ? AND other = ? AND "end" = ? AND taken = ?
    AND (address = ? OR (address IS NULL AND CAST(? AS TEXT) IS NULL))
"""


@dataclass(frozen=True, slots=True)
class Stitch:
    """A part of a sliver that is stitched to a part of another one, which it names."""

    sliver: str
    part: str
    """A component's id, with the number of its interface if it has several; or an interface's id."""
    other: str
    end: str
    """The part of the other sliver, as ``part``."""
    taken: str
    """What it has from the other end, in words."""
    address: str | None = None
    """The address that it has from the other end, as nobody else has."""

    def __str__(self) -> str:
        return f"{self.sliver}/{self.part}"


class Stitches:
    """The stitches of a site."""

    def __init__(self, site: Site) -> None:
        """Create nothing yet."""
        limit = site.limits.call
        self._database = store_of(site).database("pools", what="the stitches", timeout=limit)

    def of(self, sliver_id: str) -> tuple[Stitch, ...]:
        """Return what a sliver is stitched to by naming it."""
        return self._read("sliver = ?", sliver_id)

    def to(self, sliver_id: str) -> tuple[Stitch, ...]:
        """Return what is stitched to a sliver by naming it."""
        return self._read("other = ?", sliver_id)

    def hold(self, stitches: Iterable[Stitch]) -> None:
        """Note stitches, beside those that are noted.

        :raises Conflict: if another sliver has the address of one.
        """
        with self._database.changing() as db:
            for stitch in stitches:
                _refuse_taken(db, stitch)
                db.execute(_HOLD, astuple(stitch))

    def release(self, stitches: Iterable[Stitch]) -> None:
        """Forget stitches, as far as they are noted so."""
        with self._database.changing() as db:
            for stitch in stitches:
                db.execute(_RELEASE, (*astuple(stitch), stitch.address))

    def _read(self, condition: str, value: str) -> tuple[Stitch, ...]:
        if not self._database.exists():
            return ()
        with self._database.reading() as db:
            return _select(db, condition, value)


def _select(db: Transaction, condition: str, *values: str | None) -> tuple[Stitch, ...]:
    # The condition is one of this file's; values are bound.
    query = f"SELECT * FROM stitch WHERE {condition} ORDER BY sliver, part"  # noqa: S608
    return tuple(Stitch(*row) for row in db.execute(query, values))


def _refuse_taken(db: Transaction, stitch: Stitch) -> None:
    holders = _select(
        db, 'other = ? AND "end" = ? AND address = ?', stitch.other, stitch.end, stitch.address
    )
    for holder in holders:
        if (holder.sliver, holder.part) != (stitch.sliver, stitch.part):
            raise Conflict(
                f"{stitch} cannot have {stitch.address} of interface {stitch.end} of {stitch.other}",
                why=f"{holder} has it",
                remedy="give each its own interface of the service",
            )
