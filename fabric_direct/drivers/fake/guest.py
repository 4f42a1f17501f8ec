"""Guests in memory."""

from dataclasses import replace
from ipaddress import IPv4Interface, IPv6Interface

from fabric_direct.drivers.contract import (
    CommandResult,
    GuestAddress,
    GuestInterface,
)
from fabric_direct.drivers.fake.inside import Inside
from fabric_direct.drivers.fake.substrate import Fake, public_key
from fabric_direct.errors import (
    Unreachable,
)
from fabric_direct.model import State


class FakeGuest(Fake):
    """A :class:`~fabric_direct.drivers.contract.GuestDriver` in memory: guests that boot in no time."""

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
        """Return the plugged NICs with their addresses: held for them, or set in the guest."""
        return self._call("interfaces", lambda: tuple(self._links(guest)))

    def _interfaces(self, guest: GuestAddress) -> list[GuestInterface]:
        own = [(guest.sliver, p.component) for p in self.substrate.servers[guest.sliver].ports]
        others = [k for k, p in self.substrate.plugs.items() if p.server == guest.sliver]
        ports = [self.substrate.ports.get(key) for key in (*own, *others)]
        return [
            GuestInterface(f"eth{n}", port.mac, _texts(port.ipv4, port.ipv6))
            for n, port in enumerate(ports)
            if port
        ]

    def _links(self, guest: GuestAddress) -> list[GuestInterface]:
        """Return the interfaces of vNICs and of devices that have a MAC address of ours."""
        nics, inside = self._interfaces(guest), self._inside(guest)
        devices = self.substrate.plugged.get(guest.sliver, ())
        nics += [GuestInterface(f"ens{n}", d.mac) for n, d in enumerate(devices) if d.mac]
        return [
            replace(nic, addresses=tuple(dict.fromkeys(nic.addresses + inside.addresses(nic.mac))))
            for nic in nics
        ]

    def _inside(self, guest: GuestAddress) -> Inside:
        return self.substrate.inside.setdefault(guest.sliver, Inside())

    def run(
        self,
        guest: GuestAddress,
        argv: tuple[str, ...],
        stdin: bytes = b"",
        *,
        timeout: float,  # noqa: ARG002
    ) -> CommandResult:
        """Run one of the commands that a fake guest knows, see :mod:`.inside`."""

        def run() -> CommandResult:
            server = self.substrate.servers.get(guest.sliver)
            volumes = server.volumes if server else ()
            return self._inside(guest).run(argv, stdin, volumes)

        return self._call("run", run)

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
