"""Files of JSON lines below ``state_dir``, for people to read and programs to collect; bounded.

Each line is appended by one write and synced to the disk, without a lock: threads and processes may
write at once, and a kill loses at most the line that is being written. A file that is full becomes the
former one, whose place it takes. What cannot be written is logged; it changes nothing else.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import ValidationError

from fabric_direct.errors import FabricDirectError, SliverBusy
from fabric_direct.model import Frozen
from fabric_direct.state import files
from fabric_direct.state.locks import exclusive

log = logging.getLogger(__name__)
T = TypeVar("T", bound=Frozen)
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


def now() -> str:
    """Return the time of a line, in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class LineFile(Generic[T]):
    """The values of one model, the oldest first."""

    def __init__(self, directory: Path, model: type[T], size: int) -> None:
        """Open nothing yet.

        :param directory: made with the first line.
        :param size: bytes of the file, and of the former one.
        """
        self._directory, self._model, self._size = directory, model, size

    @property
    def path(self) -> Path:
        """The file that is written."""
        return self._directory / "history.jsonl"

    @property
    def _former(self) -> Path:
        return self._directory / "history.former.jsonl"

    def add(self, value: T) -> None:
        """Append a value; log it if that is not possible."""
        try:
            files.make_directory(self._directory)
            self._make_room()
            self._append(value.model_dump_json(exclude_defaults=True).encode() + b"\n")
        except (OSError, FabricDirectError) as error:
            log.warning("cannot write %s: %s", self.path, error)

    def _make_room(self) -> None:
        """Put a full file in the place of the former one; one writer does so, others go on."""
        if self._is_full():
            lock = self._directory / "lock"
            with suppress(SliverBusy), exclusive(lock, str(self._directory), timeout=0):
                if self._is_full():  # another writer may have been faster
                    self.path.replace(self._former)

    def _is_full(self) -> bool:
        with suppress(FileNotFoundError):
            return self.path.stat().st_size > self._size
        return False

    def _append(self, line: bytes) -> None:
        descriptor = os.open(self.path, _FLAGS, 0o600)
        try:
            os.write(descriptor, b"\n" * _ends_within_a_line(descriptor) + line)
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)

    def mark(self) -> tuple[int, int]:
        """Return what is another one when a line was added since; zeros if there is no file."""
        with suppress(OSError):
            found = self.path.stat()
            return found.st_mtime_ns, found.st_size
        return 0, 0

    def notes(self) -> Iterator[T]:
        """Yield the values; a line that has none, or half of one, is left out.

        :raises OSError: if they cannot be read.
        """
        current, former = _text(self.path), _text(self._former)
        if current and former.startswith(current):  # it took that place between the two looks
            current = ""
        for line in (*former.split("\n"), *current.split("\n")):
            with suppress(ValidationError):
                yield self._model.model_validate_json(line)


def _text(path: Path) -> str:
    with suppress(FileNotFoundError):
        return path.read_text(encoding="utf-8", errors="replace")
    return ""


def _ends_within_a_line(descriptor: int) -> bool:
    """Return whether a writer was killed, or the disk was full, within the last line."""
    size = os.fstat(descriptor).st_size
    return size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
