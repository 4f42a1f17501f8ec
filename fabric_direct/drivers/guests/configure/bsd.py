"""What FreeBSD and OpenBSD have in common: addresses are set and removed by ifconfig(8)."""

from fabric_direct.drivers.guests.configure.network import ConfiguredLink, texts
from fabric_direct.drivers.guests.configure.root import GuestRoot

OURS = "/var/db/fabric-direct-{}"
"""Of an interface's label: what of ours the guest keeps for it."""


def family(address: str) -> str:
    """Return the word of ifconfig for an address's family."""
    return "inet6" if ":" in address else "inet"


def set_addresses(root: GuestRoot, link: ConfiguredLink) -> None:
    """Set the addresses of an interface beside those that it has."""
    root.do("ifconfig", link.name, "up")
    for address in texts(link.addresses):
        root.do("ifconfig", link.name, family(address), address, "alias")


def remove_address(root: GuestRoot, interface: str, address: str) -> None:
    """Remove an address of an interface."""
    root.do("ifconfig", interface, family(address), address.partition("/")[0], "delete")


def destroy(root: GuestRoot, interface: str) -> None:
    """Remove a VLAN interface."""
    root.do("ifconfig", interface, "destroy")
