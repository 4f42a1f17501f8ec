"""The steps of operations under way, for onlookers in other processes.

Each sliver with an operation under way has one file, ``<state_dir>/steps/<sliver>.jsonl``, mode 0600: a
line for each step that begins or ends. It goes when the operation ends. Nothing depends on it, so it is
not synced, and what cannot be written is left out. Writers hold the lock of the sliver.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import ValidationError

from fabric_direct.model import Frozen, StepStatus
from fabric_direct.state import files

log = logging.getLogger(__name__)
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


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

    def __init__(self, state_dir: Path) -> None:
        """Open nothing yet."""
        self._directory = state_dir / "steps"

    @contextmanager
    def kept(self, sliver: str) -> Iterator[None]:
        """Keep the steps of an operation on a sliver while the block runs, and none before or after."""
        path = self._path(sliver)
        self._forget(path)
        try:
            yield
        finally:
            self._forget(path)

    def add(self, sliver: str, note: StepNote) -> None:
        """Note that a step begins or ends."""
        try:
            files.make_directory(self._directory)
            descriptor = os.open(self._path(sliver), _FLAGS, 0o600)
            with os.fdopen(descriptor, "a", encoding="utf-8") as file:
                file.write(note.model_dump_json(exclude_defaults=True) + "\n")
        except OSError as error:
            log.debug("cannot note a step of %s: %s", sliver, error)

    def of(self, sliver: str) -> tuple[StepNote, ...]:
        """Return the steps so far of the operation on a sliver, in the order in which they began."""
        found: dict[str, StepNote] = {}
        with suppress(OSError):
            for line in self._path(sliver).read_text("utf-8", errors="replace").splitlines():
                with suppress(ValidationError):
                    note = StepNote.model_validate_json(line)
                    found[note.step] = note
        return tuple(found.values())

    def _path(self, sliver: str) -> Path:
        return self._directory / f"{sliver}.jsonl"

    @staticmethod
    def _forget(path: Path) -> None:
        with suppress(OSError):
            path.unlink(missing_ok=True)
