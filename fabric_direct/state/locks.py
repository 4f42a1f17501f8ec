"""Locks between threads and processes, by files that their last user removes."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fabric_direct.calls import forks
from fabric_direct.calls.deadline import wait_until
from fabric_direct.errors import SliverBusy, TimedOut, unusable
from fabric_direct.state import files


@contextmanager
def exclusive(path: Path, what: str, *, timeout: float) -> Iterator[None]:
    """Hold a lock while the block runs; the kernel releases it if the process dies.

    A forked child does not hold it, not even one that outlives the process.

    :param path: the file of the lock; created here and removed at the end.
    :param what: what the lock protects, for the message: ``sliver 4711``.
    :raises SliverBusy: if another thread or process holds it for ``timeout`` seconds.
    :raises DriverError: if the file cannot be created.
    """
    file = _File(path, what)
    try:
        if not file.lock():
            wait_until(f"another process to leave {what}", file.lock, timeout=timeout)
    except TimedOut as error:
        raise SliverBusy(
            f"{what} is being worked on by another process or thread",
            where=str(path),
            remedy="try again when that has ended",
        ) from error
    try:
        yield
    finally:
        file.remove()


def is_held(path: Path) -> bool:
    """Return whether a thread or process holds a lock.

    :raises DriverError: if the file cannot be opened.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise unusable("look at a lock", path, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def stale(directory: Path) -> tuple[Path, ...]:
    """Return the files of locks that nobody holds: those of processes that were killed.

    :raises DriverError: if they cannot be read.
    """
    try:
        there = sorted(directory.iterdir()) if directory.exists() else []
    except OSError as error:
        raise unusable("list the locks", directory, error) from error
    return tuple(path for path in there if path.is_file() and not is_held(path))


def remove_stale(path: Path) -> None:
    """Remove the file of a lock, unless a thread or process holds it."""
    with suppress(SliverBusy), exclusive(path, path.name, timeout=0):
        pass  # whoever ends holding it removes it


class _File:
    """The file of a lock, locked or not."""

    def __init__(self, path: Path, what: str) -> None:
        self._path, self._what = path, what
        # The kernel's lock is that of all processes which have inherited the descriptor.
        self._descriptors: list[int] = []
        forks.in_child(self._close)

    def lock(self) -> bool:
        """Lock the file if it is free and its path still names it."""
        descriptor = self._open()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._path.stat().st_ino == os.fstat(descriptor).st_ino:
                return True
        except (BlockingIOError, FileNotFoundError):
            pass
        self._close()
        return False

    def remove(self) -> None:
        """Remove the file and release its lock, unless it is that of the process we were forked from."""
        if self._descriptors:
            with suppress(OSError):  # the lock is the kernel's: a file that stays does no harm
                self._path.unlink()
            self._close()

    def _open(self) -> int:
        try:
            files.make_directory(self._path.parent)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._descriptors.append(os.open(self._path, flags, 0o600))
        except OSError as error:
            raise unusable(f"lock {self._what}", self._path, error) from error
        return self._descriptors[0]

    def _close(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.pop())
