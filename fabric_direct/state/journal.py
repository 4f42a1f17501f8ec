"""The journal of operations under way, so that a process can finish or undo those of a killed one.

Each sliver with an operation under way has one document, ``journal/<sliver>.json`` of ``state_dir``: the
latest operation that was begun and has not ended. It holds the sliver as requested, never a
credential or a connection. It is replaced in one step, and survives a crash of the machine, too. See
docs/decisions/0036.

Writers hold the lock of the sliver; readers need none.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError, field_validator

from fabric_direct.errors import DriverError
from fabric_direct.model import Frozen, Operation, SliverRef
from fabric_direct.state.store import StateStore


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

    def __init__(self, store: StateStore) -> None:
        """Open nothing yet."""
        self._documents = store.documents("journal", "the journal")
        self._begun: dict[str, Unfinished] = {}
        """As this process has written them; until they end."""
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
        sliver was before the first. What is in its place and is no entry is kept under another name.

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
        ended = earlier is None and sliver["id"] in self._ended
        kept = earlier is None and not ended and self._documents.set_aside(sliver["id"])
        self._write(sliver["id"], entry, new=earlier is None)
        return Entry(kept or earlier is not None, entry.owns_everything)

    def expect(self, sliver_id: str, until: float) -> None:
        """Note in a sliver's entry, if it has one, until when a request of it may still take effect.

        :raises DriverError: if the journal cannot be written.
        """
        entry = self.of(sliver_id)
        if entry and entry.until < until:
            self._write(sliver_id, entry.model_copy(update={"until": until}), new=False)

    def _write(self, sliver_id: str, entry: Unfinished, *, new: bool) -> None:
        self._documents.write(sliver_id, entry.model_dump_json(), new=new)
        self._begun[sliver_id] = entry
        self._ended.pop(sliver_id, None)

    def end(self, sliver_id: str) -> None:
        """Record that no operation on the sliver is under way any more.

        This process takes it as ended even if that cannot be written.

        :raises DriverError: if the journal cannot be written.
        """
        begun = self._begun.pop(sliver_id, None)
        try:
            self._documents.remove(sliver_id)
        except DriverError:
            self._ended[sliver_id] = begun or self.of(sliver_id)
            raise
        self._ended.pop(sliver_id, None)

    def unfinished(self) -> tuple[Unfinished, ...]:
        """Return the latest unfinished operation of each sliver.

        :raises DriverError: if the journal cannot be read.
        """
        found = (entry for _, entry in self._entries() if entry)
        return tuple(entry for entry in found if entry != self._ended.get(entry.sliver["id"]))

    def foreign(self) -> tuple[str, ...]:
        """Return where there is what is not a valid entry: damaged, or of another version.

        :raises DriverError: if the journal cannot be read.
        """
        return tuple(where for where, entry in self._entries() if entry is None)

    def of(self, sliver_id: str) -> Unfinished | None:
        """Return the latest unfinished operation of one sliver, if any.

        :raises DriverError: if the journal cannot be read.
        """
        text = self._documents.read(sliver_id)
        found = None if text is None else _parse(sliver_id, text)
        return None if found == self._ended.get(sliver_id) else found

    def _entries(self) -> Iterator[tuple[str, Unfinished | None]]:
        for key, text, where in self._documents.all():
            yield where, _parse(key, text)


def _parse(sliver_id: str, text: str) -> Unfinished | None:
    """Return a sliver's entry, or None if the text is none."""
    try:
        entry = Unfinished.model_validate_json(text)
    except ValidationError:
        return None
    return entry if entry.sliver["id"] == sliver_id else None


def _first_before(earlier: Unfinished | None, operation: Operation) -> dict[str, Any] | None:
    """Return what a sliver was before the first of modifications that follow each other unfinished."""
    if earlier is None or not (earlier.operation is operation is Operation.MODIFY):
        return None
    return earlier.before
