"""Files, read and written in one piece."""

import errno
import os
import tempfile
from base64 import b64encode
from pathlib import Path
from typing import List, Optional

__all__ = ["read", "resolve", "there"]

# Bytes of a file that is read: it is held in memory, and sent in Base64.
LARGEST = 32 * 1024**2


def read(path: str) -> str:
    """Return the content of a file, in Base64.

    :raises OSError: EFBIG if it is larger than :data:`LARGEST`.
    """
    with Path(path).open("rb") as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise OSError(errno.EFBIG, f"more than {LARGEST} bytes", path)
    return b64encode(content).decode()


def resolve(path: str) -> Optional[str]:
    """Return where a path leads to, all links followed, or None if it leads nowhere."""
    return str(Path(path).resolve()) if Path(path).exists() else None


def there(paths: List[str]) -> List[str]:
    """Return those of the files that exist and that this process can see."""
    return [path for path in paths if os.access(path, os.F_OK)]


def replace(path: str, content: bytes, mode: int) -> None:
    """Replace a file in one step: a reader finds the old or the new content, also after a crash."""
    directory = Path(path).parent
    directory.mkdir(parents=True, exist_ok=True)
    descriptor, new = tempfile.mkstemp(prefix=f".{Path(path).name}.", dir=directory)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        Path(new).replace(path)
    except BaseException:
        Path(new).unlink()
        raise
    _keep(directory)


def _keep(directory: Path) -> None:
    """Sync the directory itself."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
