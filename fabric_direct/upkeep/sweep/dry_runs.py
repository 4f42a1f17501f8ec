"""The last dry run of a site's sweep, and the slivers on which nothing was begun since.

They are in ``sweep.sqlite`` of ``state_dir``. A sliver is struck when an operation begins that changes
it; a dry run replaces all, and excludes other sweeps.
"""

from collections.abc import Iterable

from pydantic import ValidationError

from fabric_direct.state.store import StateStore
from fabric_direct.upkeep.sweep.findings import Findings


class DryRuns:
    """The dry runs of a site."""

    def __init__(self, store: StateStore, *, timeout: float) -> None:
        """Create nothing yet.

        :param timeout: seconds to wait for another thread or process that writes.
        """
        what = "the dry run of a sweep"
        self._database = store.database("sweep", what=what, timeout=timeout)

    def begin(self, slivers: Iterable[str]) -> None:
        """Forget the last dry run, and note these slivers: nothing is begun on them from now on.

        :raises DriverError: if the site's state cannot be used.
        """
        with self._database.changing() as db:
            db.execute("DELETE FROM dry_run")
            db.execute("DELETE FROM untouched")
            db.executemany("INSERT INTO untouched VALUES (?)", [(each,) for each in slivers])

    def keep(self, findings: Findings) -> None:
        """Keep what it found.

        :raises DriverError: if the site's state cannot be used.
        """
        with self._database.changing() as db:
            db.execute("DELETE FROM dry_run")
            db.execute("INSERT INTO dry_run VALUES (?)", (findings.model_dump_json(),))

    def last(self) -> Findings:
        """Return what the last one found; nothing if there was none, or it cannot be read.

        :raises DriverError: if the site's state cannot be used.
        """
        for (found,) in self._database.rows("SELECT found FROM dry_run"):
            try:
                return Findings.model_validate_json(found)
            except ValidationError:
                break
        return Findings()

    def end(self, sliver: str) -> bool:
        """Note that an operation on a sliver begins; return whether none had since the dry run.

        False also if the dry run did not find the sliver.

        :raises DriverError: if the site's state cannot be used.
        """
        # Most operations have nothing to write here, whatever the disk has room for.
        if not self._database.rows("SELECT 1 FROM untouched WHERE sliver = ?", sliver):
            return False
        return self._database.change("DELETE FROM untouched WHERE sliver = ?", sliver) > 0
