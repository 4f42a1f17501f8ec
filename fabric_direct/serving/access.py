"""Bearer tokens and loopback addresses, for both sides of a connection."""

import hmac
import ipaddress
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from fabric_direct.errors import InvalidSite

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750, section 2.1


def is_token(text: str) -> bool:
    """Return whether ``text`` has the form of a bearer token."""
    return bool(_TOKEN.fullmatch(text))


def token_lines(path: Path, **said: str) -> list[str]:
    """Return the lines of a file of tokens, stripped.

    :param said: ``where`` and ``field`` of the error: which part of the configuration names the file.
    :raises InvalidSite: if it cannot be read.
    """
    try:
        return [line.strip() for line in path.read_text("ascii").split("\n")]
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSite(f"cannot read {path}", why=type(error).__name__, **said) from error


def read_tokens(path: Path, field: str) -> tuple[str, ...]:
    """Return the tokens of a file, one on each line.

    :param field: which part of the configuration names the file.
    :raises InvalidSite: if it cannot be read, has none, or something else.
    """
    tokens = tuple(line for line in token_lines(path, field=field) if line)
    if not tokens or not all(map(is_token, tokens)):
        raise InvalidSite(
            f"{path} must have one token on each line",
            why="a token has letters, digits and -._~+/ only",
            field=field,
        )
    return tokens


class Tokens:
    """The tokens that a server accepts."""

    def __init__(self, tokens: Iterable[str]) -> None:
        """Take the tokens."""
        self._tokens = [token.encode() for token in tokens]

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self._tokens)

    def has(self, given: bytes) -> bool:
        """Return whether this is one of the tokens, in a time that tells nothing."""
        same = [hmac.compare_digest(given, token) for token in self._tokens]
        return any(same)

    def in_header(self, header: bytes) -> bool:
        """Return whether an ``Authorization`` header has one of the tokens."""
        scheme, _, given = header.partition(b" ")
        same = self.has(given.strip())
        return scheme.lower() == b"bearer" and same


def refuse_open(host: str, needed: Mapping[str, object]) -> None:
    """Raise InvalidSite if an address is not loopback and something that it needs then is None.

    :param needed: settings by their fields.
    """
    if is_loopback(host):
        return
    for field in (field for field, setting in needed.items() if setting is None):
        raise InvalidSite(
            f"is required to listen on {host}",
            why="it is not a loopback address",
            remedy="set it, or listen on 127.0.0.1",
            field=field,
        )


def is_loopback(host: str) -> bool:
    """Return whether a host name or address can be reached only from this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
