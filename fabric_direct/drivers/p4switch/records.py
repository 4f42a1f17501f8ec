"""Records of each switch's sliver and phase: an installation wipes a switch, so no stamp would last.

They are in ``p4-switches.sqlite`` of ``state_dir``. A record is written before the switch is
changed. When a sliver gives up its switch, the record stays, without a sliver, until the next sliver has
the switch installed anew.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from fabric_direct.errors import Conflict
from fabric_direct.site.config import Site
from fabric_direct.state.site_store import store_of
from fabric_direct.state.store import Transaction

_WRITE = """
INSERT INTO p4_switch VALUES (?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET
    sliver = excluded.sliver, phase = excluded.phase, identity = excluded.identity
"""


class Phase(StrEnum):
    """The phase of the installation of a switch."""

    UNCLEAN = "unclean"
    """It has to be installed before somebody gets it."""
    INSTALLING = "installing"
    """It may have been told to install itself; ``identity`` is the host key from before."""
    INSTALLED = "installed"
    """It was installed for its sliver; ``identity`` is its host key."""


@dataclass(frozen=True, slots=True)
class SwitchRecord:
    """The record of a switch: its sliver, its phase and its host key."""

    name: str
    sliver: str = ""
    """Whose it is; empty if it is nobody's."""
    phase: Phase = Phase.UNCLEAN
    identity: str = ""
    """The host key that it showed last; empty if it was never used."""


class SwitchRecords:
    """The records of a site's switches."""

    def __init__(self, site: Site) -> None:
        """Create nothing yet."""
        what, limit = "the records of switches", site.limits.call
        self._database = store_of(site).database("p4-switches", what=what, timeout=limit)

    def all(self) -> tuple[SwitchRecord, ...]:
        """Return the records of all switches that were ever used."""
        if not self._database.exists():
            return ()
        with self._database.reading() as db:
            return _select(db)

    def of(self, sliver_id: str) -> SwitchRecord | None:
        """Return the record of the switch that a sliver has, or None."""
        return next((each for each in self.all() if each.sliver == sliver_id), None)

    def claim(self, name: str, sliver_id: str) -> SwitchRecord:
        """Return the record of a switch, which is the sliver's from now on.

        :raises Conflict: if it is another's, or the sliver has another one.
        """
        with self._database.changing() as db:
            found = {each.name: each for each in _select(db)}
            record = found.get(name, SwitchRecord(name))
            if record.sliver not in {"", sliver_id}:
                what = f"switch {name} is taken"
                raise Conflict(what, why=f"sliver {record.sliver} has it")
            for other in found.values():
                if other.sliver == sliver_id and other.name != name:
                    raise Conflict(f"sliver {sliver_id} has another switch", why=other.name)
            return _write(db, replace(record, sliver=sliver_id))

    def note(self, record: SwitchRecord) -> SwitchRecord:
        """Write a record."""
        with self._database.changing() as db:
            return _write(db, record)


def _select(db: Transaction) -> tuple[SwitchRecord, ...]:
    rows = db.execute("SELECT name, sliver, phase, identity FROM p4_switch ORDER BY name")
    return tuple(SwitchRecord(name, sliver, Phase(phase), key) for name, sliver, phase, key in rows)


def _write(db: Transaction, record: SwitchRecord) -> SwitchRecord:
    values = record.name, record.sliver, record.phase, record.identity
    db.execute(_WRITE, values)
    return record
