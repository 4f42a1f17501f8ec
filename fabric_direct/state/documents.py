"""Documents in files of a directory, one for each key, synced to the disk.

The directory has mode 0700 and its files 0600.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fabric_direct.errors import DriverError
from fabric_direct.state import files

log = logging.getLogger(__name__)


class FileDocuments:
    """A :class:`~fabric_direct.state.store.StateDocuments`: ``<directory>/<key>.json``."""

    def __init__(self, directory: Path, what: str) -> None:
        """Open nothing yet."""
        self._path, self._what = directory, what
        self.where = str(directory)

    def read(self, key: str) -> str | None:
        """Return the content of a key's file; what is there and is no file is read as empty."""
        with self._translated(), suppress(FileNotFoundError):
            return _text(self._file(key))
        return None

    def write(self, key: str, text: str, *, new: bool) -> None:
        """Write or replace a key's file; remove a new one that may not be on the disk."""
        with self._translated():
            self._make()
            path = self._file(key)
            try:
                files.replace(path, text)
            except OSError:
                if new:
                    path.unlink(missing_ok=True)
                raise

    def remove(self, key: str) -> None:
        """Remove a key's file."""
        with self._translated(), suppress(FileNotFoundError):
            self._file(key).unlink()
            files.sync(self._path)

    def all(self) -> Iterator[tuple[str, str, str]]:
        """Yield what is in the directory, without what is removed meanwhile or still being written."""
        with self._translated():
            there = self._path.iterdir() if self._path.exists() else ()
            for path in sorted(there, key=lambda path: path.stem):
                with suppress(FileNotFoundError):
                    if path.suffix != ".new":
                        key = path.stem if path.suffix == ".json" else ""
                        yield key, _text(path), str(path)

    def set_aside(self, key: str) -> bool:
        """Rename a key's file.

        :returns: whether there is such a file, renamed now or before, or one of an older version.
        """
        with self._translated():
            self._make()
            path, begin = self._file(key), f"{key}.unreadable-"
            if path.exists():
                aside = path.with_name(f"{begin}{time.time_ns()}")
                path.rename(aside)
                log.warning("%s cannot be read; it was renamed to %s", path, aside.name)
            # glob() would compile a pattern for each key, and keep it.
            names = {path.name for path in self._path.iterdir()}
            return key in names or any(name.startswith(begin) for name in names)

    def _make(self) -> None:
        if not self._path.exists():
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
            files.sync(self._path.parent)

    def _file(self, key: str) -> Path:
        return self._path / f"{key}.json"

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            files.refuse_planted(self._path)
            yield
        except OSError as error:
            where, why = str(self._path), str(error)
            raise DriverError(f"cannot use {self._what}", where=where, why=why) from error


def _text(path: Path) -> str:
    """Return what a file has; nothing if it is no text, as one of zero bytes after a crash."""
    text = ""
    with suppress(IsADirectoryError, UnicodeDecodeError):
        text = path.read_text("utf-8")
    return "" if "\0" in text else text
