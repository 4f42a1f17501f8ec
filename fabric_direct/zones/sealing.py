"""Sealed blobs: others keep them and send them back, only the zone that made them can read them.

A blob is a Fernet token (AES-128-CBC, HMAC-SHA256) under the zone's own key, ``<state_dir>/zone/key``.
Purpose and expiry are part of the encrypted content. The content is compressed, so that a blob that
wraps a child's blob is hardly longer than the child's.
"""

import errno
import json
import os
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from fabric_direct.errors import Conflict, InvalidSite
from fabric_direct.state import files

_AGAIN = "select again"


class Seal:
    """Encrypts values, and decrypts them again."""

    def __init__(self, keys: list[bytes], *, clock: Callable[[], float] = time.time) -> None:
        """Take the keys.

        :param keys: Fernet keys: the first encrypts, all of them decrypt.
        :param clock: returns seconds since the epoch.
        :raises ValueError: if there is no key, or one is not a Fernet key.
        """
        self._fernet = MultiFernet([Fernet(key) for key in keys])
        self._clock = clock

    def seal(self, value: Any, purpose: str, lifetime: float) -> str:
        """Return a blob that holds a JSON value.

        :param purpose: :meth:`open` accepts the blob for this purpose only.
        :param lifetime: seconds until it expires.
        """
        content = [purpose, self._clock() + lifetime, value]
        packed = zlib.compress(json.dumps(content, separators=(",", ":")).encode(), 9)
        return self._fernet.encrypt(packed).decode()

    def open(self, blob: str, purpose: str) -> Any:
        """Return the value of a blob.

        :raises Conflict: if it was altered, is another zone's, has another purpose, or is expired.
        """
        try:
            packed = self._fernet.decrypt(blob.encode())
        except (InvalidToken, UnicodeEncodeError) as error:
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
    """Return the seal with the zone's own key; the key is generated if there is none.

    The file has one key on each line. To rotate keys, insert a new first line, and remove the others
    when the blobs that they sealed are expired.

    :raises InvalidSite: if the file cannot be read, or contains something other than keys.
    """
    path = state_dir / "zone" / "key"
    try:
        return Seal(_keys(path))
    except OSError as error:
        why = str(error.strerror)
    except ValueError:
        why = "a line is not a Fernet key"
    raise InvalidSite(
        f"cannot read the zone's key from {path}",
        why=why,
        remedy="repair the file, or delete it, which invalidates all open offers",
        field="state_dir",
    )


def _keys(path: Path) -> list[bytes]:
    files.make_directory(path.parent)
    if not path.exists():
        files.make_once(path, f"{Fernet.generate_key().decode()}\n")
    if path.stat().st_uid not in {0, os.geteuid()}:
        raise PermissionError(errno.EPERM, "it is another user's, who can read what it seals")
    return path.read_bytes().split()
