"""What is under way, kept so that the next process can finish or undo what a killed one began.

It is TaskFlow's logbook: one for each sliver, in a directory of its own below ``<state_dir>/journal``
(or all in the database of a URL), there only while an operation runs or when it left something behind.
It holds the sliver as it was asked for, never a credential or a connection; its directory has mode 0700
and its files 0600.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid4, uuid5

from taskflow import exceptions as taskflow_errors
from taskflow.persistence import backends, models
from taskflow.persistence.backends import impl_dir

from fabric_direct.model import Operation

# No sliver's id has a dot.
_ENDED = ".ended"


@dataclass(frozen=True, slots=True)
class Unfinished:
    """An operation that was begun and has not come to its end."""

    operation: Operation
    sliver: dict[str, Any]
    """The sliver or the reference to it, as JSON data."""
    since: str
    """When it was begun, in ISO 8601."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The journal's record of one operation under way: what TaskFlow needs to keep it."""

    backend: Any
    book: Any
    flow_detail: Any
    resumed: bool
    """Whether an earlier operation on the sliver has not come to its end."""
    whole: bool
    """Whether everything there is of the sliver was made by this operation and unfinished ones."""


class Journal:
    """The journal of a site."""

    def __init__(self, state_dir: Path, url: str | None = None) -> None:
        """Open nothing yet.

        :param state_dir: directory of the site's state; made with the first entry.
        :param url: a database (``postgresql://…``, ``sqlite://…``) instead of the directory.
        """
        self._path, self._url = state_dir / "journal", url

    def begin(self, operation: Operation, sliver: dict[str, Any], *, whole: bool = False) -> Entry:
        """Record that an operation begins, beside earlier ones that are unfinished.

        :param whole: whether it is about all there is of the sliver: a creation from nothing, or a
            deletion.
        """
        backend = self._backend(sliver["id"])
        with closing(backend.get_connection()) as connection:
            connection.upgrade()
            book = _book(connection, sliver["id"])
            resumed = len(book) > 0
            whole = whole or any(earlier.meta["whole"] for earlier in book)
            detail = models.FlowDetail(operation.value, str(uuid4()))
            detail.meta = {
                "operation": operation.value,
                "sliver": sliver,
                "whole": whole,
                "since": datetime.now(UTC).isoformat(timespec="seconds"),
            }
            book.add(detail)
            connection.save_logbook(book)
        return Entry(backend, book, detail, resumed, whole)

    def end(self, sliver_id: str) -> None:
        """Record that nothing is under way any more."""
        if self._url is None:
            _remove(self._path / sliver_id)
            return
        with (
            closing(self._backend(sliver_id).get_connection()) as connection,
            suppress(taskflow_errors.NotFound),
        ):
            connection.destroy_logbook(_book_uuid(sliver_id))

    def unfinished(self) -> tuple[Unfinished, ...]:
        """Return the latest unfinished operation of each sliver."""
        return tuple(_unfinished(book) for book in self._books() if len(book))

    def of(self, sliver_id: str) -> Unfinished | None:
        """Return the latest unfinished operation of one sliver, if any."""
        with self._reading(sliver_id) as connection, suppress(taskflow_errors.NotFound):
            book = connection.get_logbook(_book_uuid(sliver_id))
            return _unfinished(book) if len(book) else None
        return None

    def _books(self) -> Iterator[Any]:
        """Yield all books but those that are ended while they are read."""
        names = [self._url] if self._url else sorted(_names(self._path))
        for name in names:
            with self._reading(name) as connection, suppress(taskflow_errors.NotFound):
                yield from list(connection.get_logbooks())

    @contextmanager
    def _reading(self, sliver_id: str) -> Iterator[Any]:
        """Give a connection; a directory is not made by it."""
        with closing(self._backend(sliver_id).get_connection()) as connection:
            if self._url is not None:
                connection.upgrade()
            yield connection

    def _backend(self, sliver_id: str) -> Any:
        if self._url is not None:
            return backends.fetch({"connection": self._url})
        self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _DirBackend({"path": str(self._path / sliver_id)})


class _DirConnection(impl_dir.Connection):  # type: ignore[misc]
    """A sliver's directory: no process but the one that holds the sliver's lock writes it."""

    def _write_to(self, filename: str, contents: str) -> None:
        """Write a file whole or not at all, for a process may be killed here, and to its owner only."""
        if filename not in self.backend.file_cache:
            self._ensure_path(Path(filename).parent)
        new = f"{filename}.new"
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:  # noqa: PTH123
            file.write(contents)
        os.replace(new, filename)  # noqa: PTH105
        self.backend.file_cache[filename] = contents

    def _read_from(self, filename: str) -> str:
        if filename not in self.backend.file_cache:
            self.backend.file_cache[filename] = Path(filename).read_text("utf-8")
        return str(self.backend.file_cache[filename])

    @contextmanager
    def _path_lock(self, _: str) -> Iterator[None]:
        with impl_dir._storagefailure_wrapper():
            yield


class _DirBackend(impl_dir.DirBackend):  # type: ignore[misc]
    def get_connection(self) -> _DirConnection:
        return _DirConnection(self)


def _names(path: Path) -> list[str]:
    names = [child.name for child in path.iterdir()] if path.is_dir() else []
    return [name for name in names if not name.endswith(_ENDED)]


def _remove(path: Path) -> None:
    """Remove a directory, for others in one moment: it is moved aside first."""
    ended = path.with_name(path.name + _ENDED)
    if ended.exists():  # a process was killed while it removed it
        shutil.rmtree(ended)
    if path.exists():
        path.rename(ended)
        shutil.rmtree(ended)


def _book_uuid(sliver_id: str) -> str:
    return str(uuid5(NAMESPACE_URL, sliver_id))


def _book(connection: Any, sliver_id: str) -> Any:
    try:
        return connection.get_logbook(_book_uuid(sliver_id))
    except taskflow_errors.NotFound:
        return models.LogBook(sliver_id, _book_uuid(sliver_id))


def _unfinished(book: Any) -> Unfinished:
    latest = max(book, key=lambda detail: str(detail.meta["since"]))
    return Unfinished(
        Operation(latest.meta["operation"]), latest.meta["sliver"], latest.meta["since"]
    )
