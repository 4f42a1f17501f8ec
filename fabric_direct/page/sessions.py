"""Access to the page: its token, and the sessions of browsers that presented it."""

import os
import secrets
import stat
import time
from hashlib import sha256
from pathlib import Path

from fabric_direct.errors import InvalidSite
from fabric_direct.page.readings import Clock
from fabric_direct.serving.access import is_token, read_tokens
from fabric_direct.state import files

VARIABLE = "FABRIC_DIRECT_PAGE_TOKEN"
LIFETIME = 12 * 3600
"""Seconds that a session lasts."""
_MOST = 256
"""Sessions at once; with one more, the oldest ends."""
_FIELD = "--token-file"


class Sessions:
    """The sessions of browsers, in memory: they end with the process."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        """Begin without any."""
        self._clock = clock
        self._ends: dict[bytes, float] = {}
        """When each ends, by the digest of its id: looking one up tells nothing of others."""

    def begin(self) -> str:
        """Begin a session; return its id, which is the secret of the browser."""
        for old in [*self._ends][: max(0, len(self._ends) + 1 - _MOST)]:
            del self._ends[old]
        session = secrets.token_urlsafe(32)
        self._ends[_digest(session)] = self._clock() + LIFETIME
        return session

    def has(self, session: str) -> bool:
        """Return whether there is such a session, and it has not ended."""
        return self._ends.get(_digest(session), float("-inf")) > self._clock()

    def end(self, session: str) -> None:
        """End a session; one that is not there has ended."""
        self._ends.pop(_digest(session), None)


def _digest(session: str) -> bytes:
    return sha256(session.encode("utf-8", "replace")).digest()


def token_path(state_dir: Path) -> Path:
    """Return the file of the token that is made if none is named."""
    return state_dir / "page" / "token"


def accepted_tokens(state_dir: Path, named: Path | None) -> tuple[str, ...]:
    """Return the tokens that are let in: of the file that is named, of the environment, or the own one.

    The own one is made if it is not there. The environment loses its variable: no child gets it.

    :raises InvalidSite: if the file cannot be used, others may read it, or a token is none.
    """
    given = os.environ.pop(VARIABLE, "")
    if named is None and given:
        return _of_environment(given)
    path = named or _own(state_dir)
    tokens = read_tokens(path, _FIELD)
    if path.stat().st_mode & stat.S_IRWXO:
        raise InvalidSite(
            f"others may read {path}", remedy=f"chmod 600 {path}, and change it", field=_FIELD
        )
    return tokens


def _of_environment(given: str) -> tuple[str, ...]:
    if not is_token(given):
        why = "a token has letters, digits and -._~+/ only"
        raise InvalidSite("is not a token", why=why, field=VARIABLE)
    return (given,)


def _own(state_dir: Path) -> Path:
    path = token_path(state_dir)
    try:
        files.make_directory(path.parent)
        if not path.exists():
            files.make_once(path, f"{secrets.token_urlsafe(32)}\n")
    except OSError as error:
        why = error.strerror or str(error)
        raise InvalidSite(f"cannot make a token in {path}", why=why, field=_FIELD) from error
    return path
