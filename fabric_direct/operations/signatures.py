"""Signatures of requests, so that conductors carry out only what comes from who knows the site's key."""

import hmac
import stat
from pathlib import Path

from fabric_direct.errors import InvalidSite

_FIELD = "conductors.key_file"
_AT_LEAST = 32
"""Characters of a key: 128 bits in hexadecimal digits."""


class RequestKeys:
    """The keys of a site's requests; without any, nothing is signed or refused."""

    def __init__(self, path: Path | None) -> None:
        """Read them, one on each line: the first one signs, each is accepted.

        :raises InvalidSite: if they cannot be read, others may read them, or one is too short.
        """
        self._keys = _read(path) if path else ()

    def sign(self, *texts: str) -> str:
        """Return the signature of texts; empty without a key."""
        return _signature(self._keys[0], texts) if self._keys else ""

    def accept(self, signature: str, *texts: str) -> bool:
        """Return whether this is the signature of the texts, or there is no key."""
        given = signature.encode("utf-8", "surrogatepass")
        valid = [hmac.compare_digest(_signature(key, texts).encode(), given) for key in self._keys]
        return any(valid) or not self._keys


def _read(path: Path) -> tuple[bytes, ...]:
    try:
        lines, mode = path.read_bytes().split(), path.stat().st_mode
    except OSError as error:
        why = error.strerror or str(error)
        raise InvalidSite(f"cannot read {path}", field=_FIELD, why=why) from error
    if mode & stat.S_IRWXO:
        raise InvalidSite(
            f"others may read {path}", remedy=f"chmod 600 {path}, and change it", field=_FIELD
        )
    if not lines or any(len(line) < _AT_LEAST for line in lines):
        raise InvalidSite(
            f"{path} must have a key of at least {_AT_LEAST} characters on each line",
            field=_FIELD,
            remedy="make one: openssl rand -hex 32",
        )
    return tuple(lines)


def _signature(key: bytes, texts: tuple[str, ...]) -> str:
    # The lengths are signed, too: no part of one text can be moved to the next.
    message = "\n".join([*(str(len(text)) for text in texts), *texts])
    return hmac.new(key, message.encode("utf-8", "surrogatepass"), "sha256").hexdigest()
