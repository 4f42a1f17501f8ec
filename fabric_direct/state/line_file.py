"""Files of lines below ``state_dir``: logs of a bounded size, and notes of what is under way.

A line of a log is appended by one write and synced to the disk, without a lock: threads and processes
may write at once, and a kill loses at most the line that is being written. A file that is full becomes
the former one, whose place it takes. Notes are not synced: nothing depends on them.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from fabric_direct.errors import FabricDirectError, SliverBusy, unusable
from fabric_direct.state import files
from fabric_direct.state.locks import exclusive

log = logging.getLogger(__name__)
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


class LineFile:
    """A :class:`~fabric_direct.state.store.Log`: a file of lines, and a former one."""

    def __init__(self, directory: Path, size: int) -> None:
        """Open nothing yet.

        :param directory: made with the first line.
        :param size: bytes of the file, and of the former one.
        """
        self._directory, self._size = directory, size

    @property
    def path(self) -> Path:
        """The file that is written."""
        return self._directory / "history.jsonl"

    @property
    def _former(self) -> Path:
        return self._directory / "history.former.jsonl"

    def append(self, line: str) -> None:
        """Append a line; log it if that is not possible."""
        try:
            files.make_directory(self._directory)
            self._make_room()
            self._append(line.encode() + b"\n")
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

    def lines(self) -> Iterator[str]:
        """Yield the lines; one of them may be cut off."""
        try:
            current, former = _text(self.path), _text(self._former)
        except OSError as error:
            raise unusable("read the history", self.path, error) from error
        if current and former.startswith(current):  # it took that place between the two looks
            current = ""
        yield from (*former.split("\n"), *current.split("\n"))


class LineFiles:
    """:class:`~fabric_direct.state.store.OnlookerNotes`: a file of lines, of mode 0600, for each key."""

    def __init__(self, directory: Path) -> None:
        """Open nothing yet."""
        self._directory = directory

    def append(self, key: str, line: str) -> None:
        """Add a line."""
        try:
            files.make_directory(self._directory)
            descriptor = os.open(self._path(key), _FLAGS, 0o600)
            with os.fdopen(descriptor, "a", encoding="utf-8") as file:
                file.write(f"{line}\n")
        except OSError as error:
            log.debug("cannot write %s: %s", self._path(key), error)

    def lines(self, key: str) -> tuple[str, ...]:
        """Return the lines of a key, the oldest first."""
        with suppress(OSError):
            return tuple(self._path(key).read_text("utf-8", errors="replace").splitlines())
        return ()

    def forget(self, key: str) -> None:
        """Remove the file of a key."""
        with suppress(OSError):
            self._path(key).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self._directory / f"{key}.jsonl"


def _text(path: Path) -> str:
    with suppress(FileNotFoundError):
        return path.read_text(encoding="utf-8", errors="replace")
    return ""


def _ends_within_a_line(descriptor: int) -> bool:
    """Return whether a writer was killed, or the disk was full, within the last line."""
    size = os.fstat(descriptor).st_size
    return size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
