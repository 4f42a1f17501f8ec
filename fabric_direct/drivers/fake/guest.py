"""Guests in memory."""

from ipaddress import IPv4Interface, IPv6Interface

from fabric_direct.drivers.base import (
    CommandResult,
    GuestAddress,
    GuestInterface,
)
from fabric_direct.drivers.fake.substrate import Fake, public_key
from fabric_direct.errors import (
    Unreachable,
)
from fabric_direct.model import State


class FakeGuest(Fake):
    """A :class:`~fabric_direct.drivers.base.GuestDriver` in memory: guests that boot in no time."""

    kind = "guest"
    name = "fake"
    keys: tuple[str, ...] = ()

    def listens(self, guest: GuestAddress) -> bool:
        """Say whether the server runs."""
        return self._call("listens", lambda: self._runs(guest))

    def learn(self, guest: GuestAddress, console: str) -> bool:  # noqa: ARG002
        """Return that there is nothing to learn."""
        return self._call("learn", lambda: True)

    def pins(self, guest: GuestAddress) -> tuple[str, ...]:  # noqa: ARG002
        """Return none."""
        return self._call("pins", tuple)

    def forget(self, guest: GuestAddress) -> None:  # noqa: ARG002
        """Do nothing."""
        self._call("forget", lambda: None)

    def ping(self, guest: GuestAddress) -> bool:
        """Say whether the server runs."""
        return self._call("ping", lambda: self._runs(guest))

    def wait(self, guest: GuestAddress, *, timeout: float) -> None:
        """Return if the server runs, and do not wait for one that does not."""

        def wait() -> None:
            if not self._runs(guest):
                raise Unreachable(f"{guest.instance} does not answer", why=f"waited {timeout} s")

        self._call("wait", wait)

    def boot_finished(self, guest: GuestAddress) -> bool | None:
        """Say yes of a server that runs."""
        return self._call("boot_finished", lambda: self._runs(guest))

    def ssh_host_key(self, guest: GuestAddress) -> str | None:
        """Return a key that is none."""
        return self._call("ssh_host_key", lambda: f"ssh-ed25519 {guest.sliver}")

    def interfaces(self, guest: GuestAddress) -> tuple[GuestInterface, ...]:
        """Return the plugged NICs with the addresses that are held for them."""
        return self._call("interfaces", lambda: tuple(self._interfaces(guest)))

    def _interfaces(self, guest: GuestAddress) -> list[GuestInterface]:
        plugged = self.substrate.servers[guest.sliver].ports
        ports = [self.substrate.ports.get((guest.sliver, p.component)) for p in plugged]
        return [
            GuestInterface(f"eth{n}", port.mac, _texts(port.ipv4, port.ipv6))
            for n, port in enumerate(ports)
            if port
        ]

    def run(
        self,
        guest: GuestAddress,  # noqa: ARG002
        argv: tuple[str, ...],  # noqa: ARG002
        stdin: bytes = b"",  # noqa: ARG002
        *,
        timeout: float,  # noqa: ARG002
    ) -> CommandResult:
        """Say that a command succeeded."""
        return self._call("run", lambda: CommandResult(0))

    def authorized_keys(self, guest: GuestAddress) -> tuple[str, ...]:
        """Return the keys that were let in."""
        return self._call("authorized_keys", lambda: tuple(self._keys(guest).values()))

    def add_keys(self, guest: GuestAddress, keys: tuple[str, ...]) -> None:
        """Let keys in."""
        self._call("add_keys", lambda: self._keys(guest).update({public_key(k): k for k in keys}))

    def remove_keys(self, guest: GuestAddress, keys: tuple[str, ...]) -> None:
        """Let keys no longer in."""

        def remove() -> None:
            for line in keys:
                self._keys(guest).pop(public_key(line), None)

        self._call("remove_keys", remove)

    def _keys(self, guest: GuestAddress) -> dict[str, str]:
        return self.substrate.keys.setdefault(guest.sliver, {})

    def _runs(self, guest: GuestAddress) -> bool:
        server = self.substrate.servers.get(guest.sliver)
        return server is not None and server.state is State.RUNNING


def _texts(*addresses: IPv4Interface | IPv6Interface | None) -> tuple[str, ...]:
    return tuple(str(address) for address in addresses if address)
