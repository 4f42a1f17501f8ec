"""What only its own zone can read: sealed blobs, which others keep and hand back.

A blob is a Fernet token (AES-128-CBC, HMAC-SHA256) by the zone's own key, in ``<state_dir>/zone/key``.
It has its purpose and its end in it, both under the seal. Its content is compressed: a blob that wraps a
child's is then hardly longer than that.
"""

import json
import os
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from tempfile import mkstemp
from typing import Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from fabric_direct.errors import Conflict, InvalidSite

_AGAIN = "select again"


class Seal:
    """Seals values and opens what it sealed."""

    def __init__(self, keys: list[bytes], *, clock: Callable[[], float] = time.time) -> None:
        """Make a seal.

        :param keys: Fernet keys: the first seals, each of them opens.
        :param clock: tells the seconds since the epoch.
        :raises ValueError: if there is none, or one is no Fernet key.
        """
        self._fernet = MultiFernet([Fernet(key) for key in keys])
        self._clock = clock

    def seal(self, value: Any, purpose: str, lifetime: float) -> str:
        """Return a blob with a JSON value.

        :param purpose: what it is for; it is of no use for anything else.
        :param lifetime: seconds for which it can be opened.
        """
        content = [purpose, self._clock() + lifetime, value]
        packed = zlib.compress(json.dumps(content, separators=(",", ":")).encode(), 9)
        return self._fernet.encrypt(packed).decode()

    def open(self, blob: str, purpose: str) -> Any:
        """Return the value of a blob.

        :raises Conflict: if it is altered, another zone's, for another purpose, or expired.
        """
        try:
            packed = self._fernet.decrypt(blob.encode())
        except InvalidToken as error:
            raise _foreign(purpose) from error
        sealed_for, end, value = json.loads(zlib.decompress(packed))
        if sealed_for != purpose:
            raise _foreign(purpose)
        if end <= self._clock():
            raise Conflict(f"the {purpose} is expired", remedy=_AGAIN)
        return value


def _foreign(purpose: str) -> Conflict:
    return Conflict(f"the {purpose} is not this zone's, or was altered", remedy=_AGAIN)


def seal_of(state_dir: Path) -> Seal:
    """Return the seal with the zone's own key, which is made if there is none.

    The file has a key on each line. To change it, a new one is put before the others, and those are
    taken out when what they sealed is expired.

    :raises InvalidSite: if the file cannot be read, or has anything but keys.
    """
    path = state_dir / "zone" / "key"
    try:
        return Seal(_keys(path))
    except (OSError, ValueError) as error:
        raise InvalidSite(
            f"cannot take the zone's key from {path}",
            why="a line is no Fernet key" if isinstance(error, ValueError) else str(error.strerror),
            remedy="mend it; or remove it, and all offers that are out are void",
            field="state_dir",
        ) from None


def _keys(path: Path) -> list[bytes]:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        _make(path)
    return path.read_bytes().split()


def _make(path: Path) -> None:
    """Make a key, whole and for its owner alone; of several that do so at once, one wins."""
    descriptor, new = mkstemp(dir=path.parent)  # of mode 0600
    with open(descriptor, "wb") as file:  # noqa: PTH123
        file.write(Fernet.generate_key() + b"\n")
    try:
        os.link(new, path)
    except FileExistsError:
        pass
    finally:
        Path(new).unlink()
