"""The lines of an ``authorized_keys`` file: which key a line lets in, and which lines a change keeps.

A key is identified by its algorithm and base64 part. Options before it and a comment after it do not
count: a key that is there with others is not added again, and is removed with them.
"""

import re
from collections.abc import Iterable

from fabric_direct.drivers.contract import GuestAddress
from fabric_direct.errors import NotVerified

# As in OpenSSH's sshd(8): an algorithm's name, a blank, and base64 that begins with a length below 2^24.
_KEY = re.compile(r"(?<!\S)((?:sk-)?(?:ssh|ecdsa)-\S+)\s+(AAAA[A-Za-z0-9+/]+={0,3})(?!\S)")


def key_of(line: str) -> tuple[str, str] | None:
    """Return algorithm and base64 part of the key in a line, or None if it holds none."""
    match = None if line.lstrip().startswith("#") else _KEY.search(line)
    return (match[1], match[2]) if match else None


def keys_in(lines: Iterable[str]) -> tuple[str, ...]:
    """Return those lines that let a key in."""
    return tuple(line for line in lines if key_of(line))


def missing(keys: Iterable[str], lines: Iterable[str]) -> tuple[str, ...]:
    """Return those of the keys that no line lets in, each once; what is no key is let in by none."""
    there = {key_of(line) for line in lines} - {None}
    wanted = {key_of(key) or key: key for key in keys}
    return tuple(key for part, key in wanted.items() if part not in there)


def matching(keys: Iterable[str], lines: Iterable[str]) -> tuple[str, ...]:
    """Return those lines that let one of the keys in."""
    unwanted = {key_of(key) for key in keys} - {None}
    return tuple(line for line in lines if key_of(line) in unwanted)


def verify(guest: GuestAddress, so: bool, where: str) -> None:
    """Raise NotVerified unless a change of the keys that may log in to a guest was read back.

    :param so: whether it was.
    :param where: the file, or the hypervisor whose agent changed it.
    """
    if not so:
        raise NotVerified(
            f"the authorized keys of {guest.user} in {guest.instance} did not change",
            where=where,
            why="the guest reported success",
            remedy="try again",
        )
