"""The last dry run of a site's sweep, and the slivers on which nothing was begun since.

::

    <state_dir>/sweep/found.json   what it found
    <state_dir>/sweep/<sliver>     exists until an operation that changes the sliver begins

An id has no dot, so no sliver's file is ``found.json``. Writers of a sliver's file hold its lock; a dry
run replaces all files, and excludes other sweeps.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from fabric_direct.errors import unusable
from fabric_direct.state import files
from fabric_direct.upkeep.sweep.findings import Findings


class DryRuns:
    """The dry runs of a site."""

    def __init__(self, state_dir: Path) -> None:
        """Open nothing yet."""
        self._path = state_dir / "sweep"

    def begin(self, slivers: Iterable[str]) -> None:
        """Forget the last dry run, and note these slivers: nothing is begun on them from now on.

        :raises DriverError: if the state directory cannot be used.
        """
        with self._translated():
            files.make_directory(self._path)
            for old in self._path.iterdir():
                old.unlink()
            for sliver in slivers:
                (self._path / sliver).touch(mode=0o600)

    def keep(self, findings: Findings) -> None:
        """Keep what it found.

        :raises DriverError: if the state directory cannot be used.
        """
        with self._translated():
            files.replace(self._path / "found.json", findings.model_dump_json())

    def last(self) -> Findings:
        """Return what the last one found; nothing if there was none, or it cannot be read.

        :raises DriverError: if the state directory cannot be used.
        """
        with self._translated():
            try:
                return Findings.model_validate_json((self._path / "found.json").read_bytes())
            except (FileNotFoundError, ValidationError):
                return Findings()

    def end(self, sliver: str) -> bool:
        """Note that an operation on a sliver begins; return whether none had since the dry run.

        False also if the dry run did not find the sliver.

        :raises DriverError: if the state directory cannot be used.
        """
        mark = self._path / sliver
        with self._translated():
            there = mark.exists()
            if there:
                mark.unlink()
        return there

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            files.refuse_planted(self._path)
            yield
        except OSError as error:
            raise unusable("note the dry run of a sweep", self._path, error) from error
