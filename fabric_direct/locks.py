"""Locks between threads and processes, by files that their last user removes."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fabric_direct.deadline import wait_until
from fabric_direct.errors import SliverBusy, TimedOut


@contextmanager
def exclusive(path: Path, what: str, *, timeout: float) -> Iterator[None]:
    """Hold a lock while the block runs; the kernel releases it if the process dies.

    :param path: the file of the lock; created here and removed at the end.
    :param what: what the lock protects, for the message: ``sliver 4711``.
    :raises SliverBusy: if another thread or process holds it for ``timeout`` seconds.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    held: list[int] = []
    try:
        if not _take(path, held):
            wait_until(what, lambda: _take(path, held), timeout=timeout)
    except TimedOut as error:
        raise SliverBusy(
            f"{what} is being worked on by another process or thread",
            where=str(path),
            remedy="try again when that has ended",
        ) from error
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(held[0])


def sliver_lock(state_dir: Path, sliver_id: str) -> Path:
    """Return the lock file of a sliver: only its holder may change the sliver."""
    return state_dir / "locks" / f"sliver-{sliver_id}"


def _take(path: Path, held: list[int]) -> bool:
    """Lock the file if it is free and its path still names it."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.stat().st_ino == os.fstat(file).st_ino:
            held.append(file)
            return True
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(file)
    return False
