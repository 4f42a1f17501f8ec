"""Guests in memory."""

from dataclasses import replace
from ipaddress import IPv4Interface, IPv6Interface

from fabric_direct.drivers.contract import (
    BareMetalNode,
    CommandResult,
    GuestAddress,
    GuestInterface,
    Server,
)
from fabric_direct.drivers.contract.node_service import node_service
from fabric_direct.drivers.fake.inside import GuestState
from fabric_direct.drivers.fake.substrate import Fake, public_key
from fabric_direct.errors import Unreachable
from fabric_direct.model import State


class FakeGuest(Fake):
    """A :class:`~fabric_direct.drivers.contract.GuestDriver` in memory: guests that boot at once."""

    kind = "guest"
    name = "fake"
    keys: tuple[str, ...] = ()

    def listens(self, guest: GuestAddress) -> bool:
        """Return whether the server runs."""
        return self._runs(guest)

    def learn(self, guest: GuestAddress, console: str) -> bool:  # noqa: ARG002
        """Return True: there is nothing to learn."""
        return True

    def give_host_key(self, guest: GuestAddress) -> None:
        """Return None: no host key is needed."""

    def pins(self, guest: GuestAddress) -> tuple[str, ...]:  # noqa: ARG002
        """Return nothing."""
        return ()

    def pinned(self) -> tuple[str, ...]:
        """Return the addresses that the substrate has host keys of."""
        return tuple(self.substrate.host_keys)

    def forget(self, guest: GuestAddress) -> None:
        """Do nothing."""

    def ping(self, guest: GuestAddress) -> bool:
        """Return whether the server runs."""
        return self._runs(guest)

    def wait(self, guest: GuestAddress, *, timeout: float) -> None:
        """Raise Unreachable unless the server runs; do not wait for it."""
        if not self._runs(guest):
            raise Unreachable(f"{guest.instance} does not answer", why=f"waited {timeout} s")

    def boot_finished(self, guest: GuestAddress) -> bool | None:
        """Return whether the server runs, and its guest is not one that still boots."""
        return self._runs(guest) and not self._inside(guest).booting

    def ssh_host_key(self, guest: GuestAddress) -> str | None:
        """Return a key that is made up."""
        return f"ssh-ed25519 {guest.sliver}"

    def interfaces(self, guest: GuestAddress) -> tuple[GuestInterface, ...]:
        """Return the NICs, and the devices that have a MAC address of ours, with their addresses."""
        if node := self._node(guest):
            return tuple(
                GuestInterface(f"eth{n}", each.mac, each.addresses)
                for n, each in enumerate(node_service(node).interfaces)
            )
        nics, inside = self._interfaces(guest), self._inside(guest)
        devices = self.substrate.plugged.get(guest.sliver, ())
        nics += [GuestInterface(f"ens{n}", d.mac) for n, d in enumerate(devices) if d.mac]
        return tuple(
            replace(nic, addresses=tuple(dict.fromkeys(nic.addresses + inside.addresses(nic.mac))))
            for nic in nics
        )

    def _interfaces(self, guest: GuestAddress) -> list[GuestInterface]:
        """Return the plugged NICs with the addresses of their ports."""
        own = [(guest.sliver, p.component) for p in self.substrate.servers[guest.sliver].ports]
        others = [k for k, p in self.substrate.plugs.items() if p.server == guest.sliver]
        ports = [self.substrate.ports.get(key) for key in (*own, *others)]
        return [
            GuestInterface(f"eth{n}", port.mac, _texts(port.ipv4, port.ipv6))
            for n, port in enumerate(ports)
            if port
        ]

    def _inside(self, guest: GuestAddress) -> GuestState:
        return self.substrate.inside.setdefault(guest.sliver, GuestState())

    def run(
        self,
        guest: GuestAddress,
        argv: tuple[str, ...],
        stdin: bytes = b"",
        *,
        timeout: float,  # noqa: ARG002
    ) -> CommandResult:
        """Run a command; see :mod:`.inside` for those that do something."""
        volumes = () if self._node(guest) else self._server(guest).volumes
        return self._inside(guest).run(argv, stdin, volumes)

    def authorized_keys(self, guest: GuestAddress) -> tuple[str, ...]:
        """Return the authorized keys."""
        return tuple(self._keys(guest).values())

    def add_keys(self, guest: GuestAddress, keys: tuple[str, ...]) -> None:
        """Authorize keys."""
        self._keys(guest).update({public_key(k): k for k in keys})

    def remove_keys(self, guest: GuestAddress, keys: tuple[str, ...]) -> None:
        """Remove authorized keys."""
        for line in keys:
            self._keys(guest).pop(public_key(line), None)

    def _keys(self, guest: GuestAddress) -> dict[str, str]:
        if self._node(guest) is None:
            self._server(guest)
        return self.substrate.keys.setdefault(guest.sliver, {})

    def _server(self, guest: GuestAddress) -> Server:
        """Return the guest's server.

        :raises Unreachable: if it is not there.
        """
        if guest.sliver not in self.substrate.servers:
            raise Unreachable(f"{guest.instance} does not answer", why="there is no such server")
        return self.substrate.servers[guest.sliver]

    def _node(self, guest: GuestAddress) -> BareMetalNode | None:
        """Return the bare-metal node of the guest, if it is the system of one."""
        nodes = self.substrate.bare_metal.values()
        return next((node for node in nodes if node.sliver == guest.sliver), None)

    def _runs(self, guest: GuestAddress) -> bool:
        if node := self._node(guest):
            return node.power == "on"
        server = self.substrate.servers.get(guest.sliver)
        return server is not None and server.state is State.RUNNING


def _texts(*addresses: IPv4Interface | IPv6Interface | None) -> tuple[str, ...]:
    return tuple(str(address) for address in addresses if address)
