"""What watchers did, for people to read: a file of JSON lines below ``state_dir``, bounded.

Each line is written at once, so that several watchers may write. A file that is full becomes the former
one, whose place it takes. What cannot be written is logged; it keeps no repair from being made.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from pydantic import ValidationError

from fabric_direct import files
from fabric_direct.model import Frozen

log = logging.getLogger(__name__)
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


class Did(StrEnum):
    """What a watcher did, or noticed."""

    REPAIRED = "repaired"
    REPORTED = "reported"
    """Something differs that cannot be repaired, or may not be: the limit is reached."""
    FAILED = "failed"
    DEAF = "deaf"
    """It hears nothing of a host or cloud."""
    HEARS = "hears"
    """It hears again."""


class Note(Frozen):
    """One line of the history."""

    at: str
    """In UTC, ISO 8601."""
    did: Did
    subject: str
    """The sliver, the uplink (``host/link``), or the host or cloud that is listened to."""
    cause: str = ""
    """What was heard."""
    differences: tuple[str, ...] = ()
    """What was repaired, or stays."""
    why: str = ""
    """Why it failed, or was only reported."""
    seconds: float = 0.0
    """From hearing of it to the end of the repair."""


def now() -> str:
    """Return the time of a note."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class History:
    """The notes of a site's watchers.

    :param state_dir: the site's.
    :param size: bytes of the file, and of the former one.
    """

    def __init__(self, state_dir: Path, size: int) -> None:
        self._directory, self._size = state_dir / "watch", size

    @property
    def path(self) -> Path:
        """The file that is written."""
        return self._directory / "history.jsonl"

    @property
    def _former(self) -> Path:
        return self._directory / "history.former.jsonl"

    def add(self, note: Note) -> None:
        """Write a note."""
        try:
            files.make_directory(self._directory)
            self._make_room()
            line = note.model_dump_json(exclude_defaults=True) + "\n"
            descriptor = os.open(self.path, _FLAGS, 0o600)
            try:
                os.write(descriptor, line.encode())
            finally:
                os.close(descriptor)
        except OSError as error:
            log.warning("cannot write %s: %s", self.path, error)

    def _make_room(self) -> None:
        with suppress(FileNotFoundError):
            if self.path.stat().st_size > self._size:
                self.path.replace(self._former)

    def notes(self) -> Iterator[Note]:
        """Yield the notes, the oldest first; what is none is left out.

        :raises OSError: if they cannot be read.
        """
        for path in (self._former, self.path):
            with suppress(FileNotFoundError):
                for line in path.read_text(errors="replace").splitlines():
                    with suppress(ValidationError):
                        yield Note.model_validate_json(line)
