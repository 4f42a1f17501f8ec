"""An interface of a guest with its addresses, and what a network manager does with it."""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv6Interface
from typing import ClassVar, Protocol

from fabric_direct.drivers.guests.configure.root import GuestRoot

Address = IPv4Interface | IPv6Interface
# Characters of an interface's name (IFNAMSIZ, without the zero at its end).
_NAME = 15
HEAD = "# Written by fabric-direct; it is replaced and removed with the NIC.\n"


@dataclass(frozen=True, slots=True)
class ConfiguredLink:
    """One interface of a guest, and the addresses that it is given."""

    label: str
    """Of the sliver's interface: ``nic1``, or ``smart.0`` of a device with several."""
    parent: str
    """The guest's name of the NIC."""
    mac: str | None
    """The MAC address that identifies the NIC, if it is ours and permanent; None if the name does."""
    vlan: int | None
    """The VLAN that the guest tags."""
    addresses: tuple[Address, ...]
    dhcp: bool = False
    """Whether its network hands the IPv4 address out."""

    @property
    def name(self) -> str:
        """The interface that has the addresses: the NIC, or a VLAN interface on top of it."""
        return vlan_name(self.parent, self.vlan) if self.vlan else self.parent


def vlan_name(parent: str, vlan: int) -> str:
    """Return the name of a VLAN interface; of a long name the end is cut off to make room."""
    tag = f".{vlan}"
    return parent[: _NAME - len(tag)] + tag


class Manager(Protocol):
    """One way to configure interfaces of a guest."""

    name: ClassVar[str]
    """As :data:`~fabric_direct.drivers.guests.scripts.MANAGERS` has it."""

    def has(self, root: GuestRoot, label: str) -> bool:
        """Return whether the guest keeps anything of ours for an interface of the sliver."""

    def keeps(self, root: GuestRoot, link: ConfiguredLink) -> bool:
        """Return whether the guest will have these addresses after it was restarted."""

    def keep(self, root: GuestRoot, link: ConfiguredLink) -> None:
        """Give the addresses to the interface permanently; they may take effect a moment later.

        :raises DriverError: in the guest's words.
        """

    def forget(self, root: GuestRoot, label: str) -> None:
        """Remove everything of ours for an interface."""


def texts(addresses: Sequence[Address]) -> list[str]:
    """Return addresses with their prefix lengths, as text."""
    return [str(address) for address in addresses]
