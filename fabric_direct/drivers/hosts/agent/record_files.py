"""Records of devices, as texts: one file for each, in one directory.

Because each device has a file of its own, concurrent writers of different records lose nothing.
"""

from contextlib import suppress
from pathlib import Path
from typing import Dict, List, Optional

from fabric_direct.drivers.hosts.agent.files import replace

__all__ = ["read", "remove", "write"]

_SUFFIX = ".json"


def read(directory: str) -> Dict[str, Optional[str]]:
    """Return all texts by their names; None for one that cannot be read, or is no text.

    :raises OSError: if the directory is there and cannot be read.
    """
    found = {}
    for name in _names(directory):
        with suppress(FileNotFoundError):  # removed meanwhile
            found[name] = _text(Path(_path(directory, name)))
    return found


def _names(directory: str) -> List[str]:
    try:
        paths = list(Path(directory).iterdir())
    except FileNotFoundError:
        return []
    return sorted(p.stem for p in paths if p.suffix == _SUFFIX and not p.name.startswith("."))


def _text(path: Path) -> Optional[str]:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise
    except (OSError, ValueError):
        return None


def write(directory: str, name: str, text: str) -> None:
    """Store a text under a name, replacing the former one; it is on disk on return."""
    replace(_path(directory, name), text.encode(), 0o600)


def remove(directory: str, name: str) -> None:
    """Remove the text of a name, if there is one."""
    with suppress(FileNotFoundError):
        Path(_path(directory, name)).unlink()


def _path(directory: str, name: str) -> str:
    """Return a file's path.

    :raises ValueError: if the name would lead out of the directory.
    """
    if not name or name.startswith(".") or "/" in name:
        raise ValueError(f"{name!r} is not a valid name")
    return str(Path(directory, f"{name}{_SUFFIX}"))
