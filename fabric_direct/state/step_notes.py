"""The steps of operations under way, for onlookers in other processes.

Each sliver with an operation under way has a line for each step that begins or ends, which go when the
operation ends. Nothing depends on them, so what cannot be written is left out. Writers hold the lock of
the sliver.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pydantic import ValidationError

from fabric_direct.model import Frozen, StepStatus
from fabric_direct.state.store import StateStore


class StepNote(Frozen):
    """A step of an operation, as far as it is."""

    step: str
    status: StepStatus | None = None
    """None: it has begun, and not ended."""
    seconds: float = 0.0
    total: int = 0
    """How many steps the operation has."""


class StepNotes:
    """The steps of the operations of a site."""

    def __init__(self, store: StateStore) -> None:
        """Open nothing yet."""
        self._notes = store.notes("steps")

    @contextmanager
    def kept(self, sliver: str) -> Iterator[None]:
        """Keep the steps of an operation on a sliver while the block runs, and none before or after."""
        self._notes.forget(sliver)
        try:
            yield
        finally:
            self._notes.forget(sliver)

    def add(self, sliver: str, note: StepNote) -> None:
        """Note that a step begins or ends."""
        self._notes.append(sliver, note.model_dump_json(exclude_defaults=True))

    def of(self, sliver: str) -> tuple[StepNote, ...]:
        """Return the steps so far of the operation on a sliver, in the order in which they began."""
        found: dict[str, StepNote] = {}
        for line in self._notes.lines(sliver):
            with suppress(ValidationError):
                note = StepNote.model_validate_json(line)
                found[note.step] = note
        return tuple(found.values())
