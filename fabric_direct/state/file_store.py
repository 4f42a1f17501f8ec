"""The state of a site in files below its ``state_dir``."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from fabric_direct.state.database import SqliteDatabase
from fabric_direct.state.documents import FileDocuments
from fabric_direct.state.line_file import LineFile, LineFiles
from fabric_direct.state.locks import exclusive, is_held, remove_stale, stale
from fabric_direct.state.tables import TABLES


class FileStore:
    """A :class:`~fabric_direct.state.store.StateStore` of this machine."""

    def __init__(self, state_dir: Path) -> None:
        """Open nothing yet."""
        self._state_dir, self._locks = state_dir, state_dir / "locks"

    def database(
        self, name: str, *, what: str, timeout: float, damaged: str = ""
    ) -> SqliteDatabase:
        """Return the SQLite file ``<name>.sqlite``."""
        path, tables = self._state_dir / f"{name}.sqlite", _statements(name)
        return SqliteDatabase(path, *tables, what=what, timeout=timeout, damaged=damaged)

    def documents(self, name: str, what: str) -> FileDocuments:
        """Return the files ``<name>/<key>.json``."""
        return FileDocuments(self._state_dir / name, what)

    def log(self, name: str, size: int) -> LineFile:
        """Return the file ``<name>/history.jsonl``, and the former one."""
        return LineFile(self._state_dir / name, size)

    def notes(self, name: str) -> LineFiles:
        """Return the files ``<name>/<key>.jsonl``."""
        return LineFiles(self._state_dir / name)

    def exclusive(self, name: str, what: str, *, timeout: float) -> AbstractContextManager[None]:
        """Hold the lock of the file ``locks/<name>``; the kernel frees it if the process dies."""
        return exclusive(self._locks / name, what, timeout=timeout)

    def held(self, prefix: str) -> tuple[str, ...]:
        """Return the names of the locks that somebody holds and that begin so."""
        return tuple(path.name for path in self._there(prefix) if is_held(path))

    def _there(self, prefix: str) -> Iterator[Path]:
        if self._locks.exists():
            yield from (path for path in self._locks.iterdir() if path.name.startswith(prefix))

    def stale_locks(self) -> tuple[str, ...]:
        """Return the files of locks that nobody holds."""
        return tuple(path.name for path in stale(self._locks))

    def remove_stale_lock(self, name: str) -> None:
        """Remove the file of a lock, unless a thread or process holds it."""
        remove_stale(self._locks / name)


def _statements(name: str) -> tuple[str, ...]:
    """Return what makes the tables of a database, as far as they are missing."""
    return tuple(f"CREATE TABLE IF NOT EXISTS {n} ({each})" for n, each in TABLES[name].items())
