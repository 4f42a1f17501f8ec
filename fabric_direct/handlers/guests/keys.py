"""The public keys of people, added to a guest and removed from it by operational actions."""

from typing import Annotated, Any

from pydantic import Field

from fabric_direct.drivers.guests.guest import Guest
from fabric_direct.errors import NotVerified
from fabric_direct.model import Frozen, SshPublicKey


class Key(Frozen):
    """A public key."""

    key: SshPublicKey
    comment: Annotated[str, Field(max_length=256, pattern=r"^[^\n\r]*$")] = ""


class Keys(Frozen):
    """Public keys of people."""

    keys: Annotated[tuple[Key, ...], Field(min_length=1)]

    def lines(self) -> tuple[str, ...]:
        """Return them as lines of ``authorized_keys``, with their comments."""
        return tuple(f"{' '.join(k.key.split()[:2])} {_comment(k)}".strip() for k in self.keys)


def _comment(key: Key) -> str:
    return key.comment or " ".join(key.key.split()[2:])


def add_keys(guest: Guest, keys: Keys) -> dict[str, Any]:
    """Let keys in; return how many the guest has then.

    :raises NotVerified: if one of them, read back, is missing.
    """
    guest.driver.add_keys(guest.address, keys.lines())
    return _read_back(guest, present=True, keys=keys)


def remove_keys(guest: Guest, keys: Keys) -> dict[str, Any]:
    """Let keys in no more; return how many the guest has then.

    :raises NotVerified: if one of them, read back, is still there.
    """
    guest.driver.remove_keys(guest.address, keys.lines())
    return _read_back(guest, present=False, keys=keys)


def _read_back(guest: Guest, *, present: bool, keys: Keys) -> dict[str, Any]:
    """Read the keys back; the comment is no part of a key."""
    have = {tuple(line.split()[:2]) for line in guest.driver.authorized_keys(guest.address)}
    for line in keys.lines():
        if (tuple(line.split()[:2]) in have) is not present:
            verb = "added" if present else "removed"
            raise NotVerified(f"a key was {verb}, but the guest, asked again, says otherwise")
    return {"authorized_keys": len(have)}
