"""The journal of operations under way, so that a process can finish or undo those of a killed one.

Each sliver with an operation under way has one file, ``<state_dir>/journal/<sliver>.json``: the
latest operation that was begun and has not ended. It holds the sliver as requested, never a
credential or a connection. The directory has mode 0700 and its files 0600. A file is replaced in one
step and synced to the disk, so that it survives a crash of the machine, too. See docs/decisions/0036.

Writers hold the lock of the sliver; readers need none.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError, field_validator

from fabric_direct.errors import DriverError
from fabric_direct.model import Frozen, Operation, SliverRef
from fabric_direct.state import files

log = logging.getLogger(__name__)


class Unfinished(Frozen):
    """An operation that was begun and has not ended."""

    operation: Operation
    sliver: dict[str, Any]
    """The sliver or the reference to it, as JSON data."""
    since: str
    """When it was begun, in ISO 8601."""
    owns_everything: bool
    """See :attr:`Entry.owns_everything`."""
    before: dict[str, Any] | None = None
    """The sliver as it was asked for before, of a modification."""
    until: float = 0.0
    """When the last of its requests that got no answer cannot take effect any more, in seconds since
    1970; 0 if there is none."""

    @field_validator("sliver")
    @classmethod
    def _has_id_and_type(cls, sliver: dict[str, Any]) -> dict[str, Any]:
        SliverRef.model_validate({key: sliver.get(key) for key in ("id", "type")})
        return sliver


@dataclass(frozen=True, slots=True)
class Entry:
    """The journal's information about a sliver when an operation begins."""

    resumed: bool
    """Whether an earlier operation on the sliver has not ended."""
    owns_everything: bool
    """Whether this operation and unfinished ones before it made everything there is of the sliver."""


class Journal:
    """The journal of a site."""

    def __init__(self, state_dir: Path) -> None:
        """Open nothing yet.

        :param state_dir: directory of the site's state; made with the first entry.
        """
        self._path = state_dir / "journal"
        self._ended: dict[str, Unfinished | None] = {}
        """Of slivers whose entry could not be removed: an operation that has ended all the same."""

    def begin(
        self,
        operation: Operation,
        sliver: dict[str, Any],
        *,
        owns_everything: bool = False,
        before: dict[str, Any] | None = None,
    ) -> Entry:
        """Record that an operation begins; on return the record is on the disk.

        It replaces the record of an earlier unfinished operation on the sliver, but remembers that one
        was there, and whether it owned everything; of modifications that follow each other, what the
        sliver was before the first. A file in its place that is no entry is kept under another name.

        :param owns_everything: whether the operation is about all there is of the sliver: a creation
            from nothing, or a deletion.
        :param before: the sliver as it was asked for before, of a modification.
        :raises DriverError: if the journal cannot be written.
        """
        earlier = self.of(sliver["id"])
        entry = Unfinished(
            operation=operation,
            sliver=sliver,
            since=datetime.now(UTC).isoformat(timespec="seconds"),
            owns_everything=owns_everything or (earlier is not None and earlier.owns_everything),
            before=_first_before(earlier, operation) or before,
            until=earlier.until if earlier else 0.0,
        )
        with self._translated():
            self._make()
            ended = earlier is None and sliver["id"] in self._ended
            kept = earlier is None and not ended and self._set_aside(sliver["id"])
            self._write(sliver["id"], entry, new=earlier is None)
        return Entry(kept or earlier is not None, entry.owns_everything)

    def expect(self, sliver_id: str, until: float) -> None:
        """Note in a sliver's entry, if it has one, until when a request of it may still take effect.

        :raises DriverError: if the journal cannot be written.
        """
        entry = self.of(sliver_id)
        if entry and entry.until < until:
            with self._translated():
                self._write(sliver_id, entry.model_copy(update={"until": until}), new=False)

    def _write(self, sliver_id: str, entry: Unfinished, *, new: bool) -> None:
        """Write an entry; remove a new one that may not be on the disk: its operation never begins."""
        try:
            files.replace(self._file(sliver_id), entry.model_dump_json())
        except OSError:
            if new:
                self._file(sliver_id).unlink(missing_ok=True)
            raise
        self._ended.pop(sliver_id, None)

    def end(self, sliver_id: str) -> None:
        """Record that no operation on the sliver is under way any more.

        This process takes it as ended even if that cannot be written.

        :raises DriverError: if the journal cannot be written.
        """
        try:
            with self._translated(), suppress(FileNotFoundError):
                self._file(sliver_id).unlink()
                files.sync(self._path)
        except DriverError:
            self._ended[sliver_id] = self.of(sliver_id)
            raise
        self._ended.pop(sliver_id, None)

    def unfinished(self) -> tuple[Unfinished, ...]:
        """Return the latest unfinished operation of each sliver.

        :raises DriverError: if the journal cannot be read.
        """
        found = (entry for _, entry in self._entries() if entry)
        return tuple(entry for entry in found if entry != self._ended.get(entry.sliver["id"]))

    def foreign(self) -> tuple[Path, ...]:
        """Return what is in the directory and is not a valid entry: damaged, or of another version.

        :raises DriverError: if the journal cannot be read.
        """
        return tuple(path for path, entry in self._entries() if entry is None)

    def of(self, sliver_id: str) -> Unfinished | None:
        """Return the latest unfinished operation of one sliver, if any.

        :raises DriverError: if the journal cannot be read.
        """
        with self._translated(), suppress(FileNotFoundError):
            found = _parse(self._file(sliver_id))
            return None if found == self._ended.get(sliver_id) else found
        return None

    def _entries(self) -> Iterator[tuple[Path, Unfinished | None]]:
        """Yield what is in the directory, without what is removed meanwhile or still being written."""
        with self._translated():
            paths = (
                sorted(self._path.iterdir(), key=lambda path: path.stem)
                if self._path.exists()
                else []
            )
            for path in paths:
                with suppress(FileNotFoundError):
                    if path.suffix != ".new":
                        yield path, _parse(path)

    def _set_aside(self, sliver_id: str) -> bool:
        """Rename a file that is no entry.

        :returns: whether the sliver has such a file, renamed now or before, or one of an older version.
        """
        path = self._file(sliver_id)
        if path.exists():
            aside = path.with_name(f"{sliver_id}.unreadable-{time.time_ns()}")
            path.rename(aside)
            log.warning(
                "%s is not a valid entry of the journal; it was renamed to %s", path, aside.name
            )
        # glob() would compile a pattern for each sliver, and keep it.
        names = {path.name for path in self._path.iterdir()}
        begin = f"{sliver_id}.unreadable-"
        return sliver_id in names or any(name.startswith(begin) for name in names)

    def _make(self) -> None:
        if not self._path.exists():
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
            files.sync(self._path.parent)

    def _file(self, sliver_id: str) -> Path:
        return self._path / f"{sliver_id}.json"

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            files.refuse_planted(self._path)
            yield
        except OSError as error:
            where, why = str(self._path), str(error)
            raise DriverError("cannot use the journal", where=where, why=why) from error


def _parse(path: Path) -> Unfinished | None:
    """Return the entry of a file, or None if it has none.

    :raises FileNotFoundError: if it is not there.
    """
    try:
        entry = Unfinished.model_validate_json(path.read_bytes())
    except (ValidationError, IsADirectoryError):
        return None
    return entry if path.name == f"{entry.sliver['id']}.json" else None


def _first_before(earlier: Unfinished | None, operation: Operation) -> dict[str, Any] | None:
    """Return what a sliver was before the first of modifications that follow each other unfinished."""
    if earlier is None or not (earlier.operation is operation is Operation.MODIFY):
        return None
    return earlier.before
