"""Replace small files so that neither a kill nor a crash of the machine leaves half of one."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkstemp

# A link that somebody else put in a file's place leads to a file that is not ours.
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW


def replace(path: Path, text: str) -> None:
    """Replace a file of mode 0600 in one step; the new content is on the disk on return.

    Readers find the old content or the new. The caller keeps other writers of the same file away. What a
    writer that was killed left behind, ``.NAME.new`` in the same directory, is overwritten.

    :raises OSError: if the file cannot be written; the old one is still there then.
    """
    new = path.with_name(f".{path.name}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _FLAGS, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    new.replace(path)
    sync(path.parent)


def make_once(path: Path, text: str) -> None:
    """Make a file of mode 0600 in one step, unless it is there; if several do so, one wins.

    :raises OSError: if it cannot be made.
    """
    with _beside(path, text) as new, suppress(FileExistsError):
        os.link(new, path)


def replace_lazily(path: Path, text: str) -> None:
    """Replace a file of mode 0600 in one step; if several do so, one wins.

    For what can be found out again: after a crash of the machine it may be empty.

    :raises OSError: if it cannot be written; the old one is still there then.
    """
    with _beside(path, text) as new:
        new.replace(path)


@contextmanager
def _beside(path: Path, text: str) -> Iterator[Path]:
    """Write a new file of mode 0600 in the same directory; remove it if it is still there in the end."""
    descriptor, name = mkstemp(dir=path.parent)  # of mode 0600
    try:
        with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123
            file.write(text)
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def make_directory(directory: Path) -> None:
    """Make a directory, and what is above it, for this user alone; one that is there stays as it is.

    :raises PermissionError: if it is a link that another user has put there.
    :raises OSError: if it cannot be made.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    refuse_planted(directory)


def refuse_planted(directory: Path) -> None:
    """Raise PermissionError if a directory is a link that another user has put there.

    A link of this user, of root, or of whose directory it is in is followed: it is the operator's.

    :raises OSError: if that cannot be found out.
    """
    if directory.is_symlink():
        operators = {0, os.geteuid(), directory.parent.stat().st_uid}
        if directory.lstat().st_uid not in operators:
            raise PermissionError(errno.EPERM, "another user has put a link there", str(directory))


def sync(directory: Path) -> None:
    """Write a directory itself to the disk: what was created, renamed or removed in it."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
