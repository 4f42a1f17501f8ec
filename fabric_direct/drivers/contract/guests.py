"""Guests: how they are reached, what they say, and what is run and set inside them."""

from dataclasses import dataclass, field
from typing import Protocol

from fabric_direct.calls.reading import reads
from fabric_direct.drivers.contract.hosts import CommandResult


@dataclass(frozen=True, slots=True)
class GuestInterface:
    """A network interface as the guest sees it."""

    name: str
    mac: str
    addresses: tuple[str, ...] = ()
    """With prefix length."""


@dataclass(frozen=True, slots=True)
class GuestAddress:
    """The instance, user and IP addresses by which a guest is reached."""

    sliver: str
    instance: str
    """Domain name, or the server's id where the API does not tell the name."""
    user: str
    """The user of its image."""
    addresses: tuple[str, ...] = ()
    """IP addresses without prefix, the best first."""


@dataclass(frozen=True, slots=True)
class HostKey:
    """An SSH host key that we give to a guest whose console nobody can read."""

    private: str = field(repr=False)
    """In OpenSSH's form, several lines."""
    public: str
    """``algorithm base64``."""


class GuestDriver(Protocol):
    """All that an entry point of ``fabric_direct.guest`` provides; callers use only a part of it."""

    name: str
    """How it reaches guests: ``agent``, ``ssh``."""
    keys: tuple[str, ...]
    """Public keys that a guest must accept for the driver to log in; empty if it needs no login.
    A driver that has some requires the guest's host key to be pinned first (:meth:`learn`)."""

    @reads
    def listens(self, guest: GuestAddress) -> bool:
        """Return whether something has answered at the guest's addresses: no proof of identity.

        It does not block: it begins to find out, and the next call knows.
        """

    @reads
    def ping(self, guest: GuestAddress) -> bool:
        """Return whether the guest answers now."""

    @reads
    def wait(self, guest: GuestAddress, *, timeout: float) -> None:
        """Block until the guest answers.

        :raises Unreachable: if it does not within ``timeout`` seconds.
        :raises Unsupported: if the server has no channel to reach it by.
        """

    @reads
    def boot_finished(self, guest: GuestAddress) -> bool | None:
        """Return whether cloud-init, or its substitute, has finished; None if that is unknown."""

    def run(
        self, guest: GuestAddress, argv: tuple[str, ...], stdin: bytes = b"", *, timeout: float
    ) -> CommandResult:
        """Run a command in the guest without a shell."""

    @reads
    def interfaces(self, guest: GuestAddress) -> tuple[GuestInterface, ...]:
        """Return the guest's network interfaces except loopback."""

    @reads
    def authorized_keys(self, guest: GuestAddress) -> tuple[str, ...]:
        """Return the public keys that may log in as the image's user."""

    def add_keys(self, guest: GuestAddress, keys: tuple[str, ...]) -> None:
        """Add public keys that may log in as the image's user."""

    def remove_keys(self, guest: GuestAddress, keys: tuple[str, ...]) -> None:
        """Remove public keys that may log in as the image's user."""

    def learn(self, guest: GuestAddress, console: str) -> bool:
        """Pin the host key that the guest printed on its console; return whether one is pinned now."""

    def give_host_key(self, guest: GuestAddress) -> HostKey | None:
        """Make a host key for the guest, which must get it before it boots, and pin it alone.

        :returns: None from a driver without ``keys``, which needs none.
        """

    @reads
    def pins(self, guest: GuestAddress) -> tuple[str, ...]:
        """Return the guest's addresses that have a pinned host key."""

    @reads
    def pinned(self) -> tuple[str, ...]:
        """Return all IP addresses at which a host key is pinned, whoever pinned it."""

    def forget(self, guest: GuestAddress) -> None:
        """Remove the pinned host keys of the guest's addresses."""

    @reads
    def ssh_host_key(self, guest: GuestAddress) -> str | None:
        """Return the guest's SSH host key, ``algorithm base64``, if a trusted source has it."""
