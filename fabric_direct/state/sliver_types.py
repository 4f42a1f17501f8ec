"""The resource types of the slivers that were made, by their ids.

They are in ``types.sqlite`` of ``state_dir``. A type is noted before anything of its sliver
is made, and struck when the sliver is gone. Without a note, the site is asked whose an id is.
"""

from fabric_direct.model import SliverRef
from fabric_direct.state.store import StateStore

_NOTE = "INSERT INTO sliver VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET type = excluded.type"


class SliverTypes:
    """The resource types of a site's slivers."""

    def __init__(self, store: StateStore, *, timeout: float) -> None:
        """Create nothing yet.

        :param timeout: seconds to wait for another thread or process that writes.
        """
        self._database = store.database(
            "types",
            what="the types of slivers",
            timeout=timeout,
            damaged="remove it while no process of the site runs: it is made anew, and the site is "
            "asked of which type the sliver of an id is",
        )

    def check(self) -> None:
        """Raise DriverError if the file is damaged, or cannot be read."""
        self._database.check()

    def of(self, sliver_id: str) -> str:
        """Return the type of a sliver; empty if none is noted."""
        rows = self._database.rows("SELECT type FROM sliver WHERE id = ?", sliver_id)
        return str(rows[0][0]) if rows else ""

    def note(self, sliver: SliverRef) -> None:
        """Note the type of a sliver, in place of an earlier one of its id."""
        with self._database.changing() as db:
            db.execute(_NOTE, (sliver.id, sliver.type))

    def strike(self, sliver_id: str) -> None:
        """Forget the type of a sliver that is gone."""
        self._database.change("DELETE FROM sliver WHERE id = ?", sliver_id)
