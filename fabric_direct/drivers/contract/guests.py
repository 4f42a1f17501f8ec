"""What is seen and set inside a guest, and the driver that does so."""

from dataclasses import dataclass
from typing import Protocol

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
    """How a guest may be reached: what the drivers for guests are called with."""

    sliver: str
    instance: str
    """Domain name, or the server's id where the name is not told."""
    user: str
    """The user of its image."""
    addresses: tuple[str, ...] = ()
    """IP addresses without prefix, the best first."""


class GuestDriver(Protocol):
    """What must be seen or set inside the guest."""

    name: str
    """How it reaches guests: ``agent``, ``ssh``."""
    keys: tuple[str, ...]
    """Public keys that a guest must let in for the driver to reach it; none if it needs no login.
    A driver that has any asks a guest's host key to be pinned before (:meth:`learn`)."""

    def listens(self, guest: GuestAddress) -> bool:
        """Return whether something answers at the guest's addresses: cheap, and no proof of who."""

    def learn(self, guest: GuestAddress, console: str) -> bool:
        """Pin the host key that the guest showed on its console; return whether it is known now."""

    def pins(self, guest: GuestAddress) -> tuple[str, ...]:
        """Return the guest's addresses that have a pinned host key."""

    def forget(self, guest: GuestAddress) -> None:
        """Pin no host key to the guest's addresses any more."""

    def ping(self, guest: GuestAddress) -> bool:
        """Return whether the guest answers now."""

    def wait(self, guest: GuestAddress, *, timeout: float) -> None:
        """Return when the guest answers.

        :raises Unreachable: if it did not within ``timeout`` seconds.
        """

    def boot_finished(self, guest: GuestAddress) -> bool | None:
        """Return whether cloud-init, or what stands in for it, is through; None if that is unknown."""

    def ssh_host_key(self, guest: GuestAddress) -> str | None:
        """Return the guest's SSH host key, ``algorithm base64``, if it can be read in a trusted way."""

    def interfaces(self, guest: GuestAddress) -> tuple[GuestInterface, ...]:
        """Return the guest's network interfaces, without its loopback."""

    def run(
        self, guest: GuestAddress, argv: tuple[str, ...], stdin: bytes = b"", *, timeout: float
    ) -> CommandResult:
        """Run a command in the guest; no shell reads its arguments."""

    def authorized_keys(self, guest: GuestAddress) -> tuple[str, ...]:
        """Return the public keys that may log in as the image's user."""

    def add_keys(self, guest: GuestAddress, keys: tuple[str, ...]) -> None:
        """Let these public keys log in as the image's user."""

    def remove_keys(self, guest: GuestAddress, keys: tuple[str, ...]) -> None:
        """Let these public keys no longer log in as the image's user."""
