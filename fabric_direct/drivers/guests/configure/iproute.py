"""``ip`` alone, where a guest has nothing else: what it sets is gone with the next boot."""

from typing import ClassVar

from fabric_direct.calls.read_cache import warn
from fabric_direct.drivers.guests.configure.network import ConfiguredLink, texts
from fabric_direct.drivers.guests.configure.root import GuestRoot


class IpRoute:
    """A :class:`~fabric_direct.drivers.guests.configure.network.Manager` that keeps nothing."""

    name: ClassVar[str] = "ip"

    def has(self, root: GuestRoot, label: str) -> bool:  # noqa: ARG002
        """Return False: nothing is kept."""
        return False

    def keeps(self, root: GuestRoot, link: ConfiguredLink) -> bool:  # noqa: ARG002
        """Return True: no more can be kept."""
        return True

    def keep(self, root: GuestRoot, link: ConfiguredLink) -> None:
        """Set the addresses, and warn that they will not stay."""
        root.do("ip", "link", "set", link.parent, "up")
        if link.vlan and link.name not in {each.name for each in root.guest.links()}:
            tag = ("name", link.name, "type", "vlan", "id", str(link.vlan))
            root.do("ip", "link", "add", "link", link.parent, *tag)
        root.do("ip", "link", "set", link.name, "up")
        there = {a for each in root.guest.links() if each.name == link.name for a in each.addresses}
        for address in texts(link.addresses):
            if address not in there:
                root.do("ip", "addr", "add", address, "dev", link.name)
        warn(
            f"the addresses of {link.label} ({link.name}) in the guest go with its next boot: it has "
            "no NetworkManager, netplan, systemd-networkd or ifupdown"
        )

    def forget(self, root: GuestRoot, label: str) -> None:
        """Do nothing."""


def remove_address(root: GuestRoot, interface: str, address: str) -> None:
    """Remove an address of an interface."""
    root.do("ip", "addr", "del", address, "dev", interface)


def destroy(root: GuestRoot, interface: str) -> None:
    """Remove a VLAN interface."""
    root.do("ip", "link", "del", interface)
