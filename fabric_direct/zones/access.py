"""Bearer tokens and loopback addresses, for both sides of a connection."""

import ipaddress
import re
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


def is_loopback(host: str) -> bool:
    """Return whether a host name or address can be reached only from this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
