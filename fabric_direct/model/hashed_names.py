"""Names of which only a part is valid here: that part, with a hash of all: ``net--0f8d2c7e1b5a``."""

import hashlib
import re

_FOREIGN = re.compile(r"[^A-Za-z0-9]+")
_HASHED = re.compile(r"(.*)--[0-9a-f]{12}")


def hashed(name: str, length: int) -> str:
    """Return the readable part of a name, at most ``length`` characters of it, with a hash."""
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:12]
    return f"{readable(name)[:length].rstrip('-') or 'x'}--{digest}"


def readable(name: str) -> str:
    """Return the letters and digits of a name, joined by ``-``."""
    return _FOREIGN.sub("-", name).strip("-")


def readable_part(name: str) -> str | None:
    """Return the readable part of a name that has a hash; None if it has none."""
    found = _HASHED.fullmatch(name)
    return found[1] if found else None
