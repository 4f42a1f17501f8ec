"""systemd-networkd: a file of our own that comes before the image's."""

from typing import ClassVar

from fabric_direct.drivers.guests.configure.files import FileManager
from fabric_direct.drivers.guests.configure.network import HEAD, ConfiguredLink, texts
from fabric_direct.drivers.guests.configure.root import GuestRoot

# In all ``.network`` files: no boot waits for the interface, and it needs no carrier.
_EASY = "[Link]\nRequiredForOnline=no\n\n[Network]\nConfigureWithoutCarrier=yes\n"
_VLAN = "/etc/systemd/network/05-fabric-direct-{}-vlan"


class Networkd(FileManager):
    """A :class:`~fabric_direct.drivers.guests.configure.network.Manager` by ``.network`` files."""

    name: ClassVar[str] = "networkd"
    path: ClassVar[str] = "/etc/systemd/network/05-fabric-direct-{}.network"

    def keep(self, root: GuestRoot, link: ConfiguredLink) -> None:
        """Write the files, those of a VLAN interface first, and apply them."""
        if link.vlan:
            root.write(f"{_VLAN.format(link.label)}.netdev", _netdev(link))
            root.write(f"{_VLAN.format(link.label)}.network", _network(f"Name={link.name}", link))
        super().keep(root, link)

    def keeps(self, root: GuestRoot, link: ConfiguredLink) -> bool:
        """Return whether the files have the content that they should have."""
        vlan = f"{_VLAN.format(link.label)}.network"
        if link.vlan and root.read(vlan) != _network(f"Name={link.name}", link):
            return False
        return super().keeps(root, link)

    def content(self, root: GuestRoot, link: ConfiguredLink) -> str:  # noqa: ARG002 - it takes none of the guest's
        """Return what the NIC is given."""
        # A VLAN interface has the MAC of its NIC, but is not of the type ether.
        match = f"MACAddress={link.mac}" if link.mac else f"Name={link.parent}"
        if not link.vlan:
            return _network(f"{match}\nType=ether", link)
        return f"{HEAD}[Match]\n{match}\nType=ether\n\n{_EASY}VLAN={link.name}\n"

    def apply(self, root: GuestRoot, link: ConfiguredLink) -> None:
        """Reload the files, and reconfigure the interface."""
        root.do("networkctl", "reload")
        root.do("networkctl", "reconfigure", link.parent)

    def forget(self, root: GuestRoot, label: str) -> None:
        """Remove the files, and reload the others."""
        if self.has(root, label):
            for end in (".netdev", ".network"):
                root.remove(_VLAN.format(label) + end)
            super().forget(root, label)
            root.do("networkctl", "reload")


def _network(match: str, link: ConfiguredLink) -> str:
    dhcp = "DHCP=ipv4\n" if link.dhcp else ""
    addresses = "".join(f"Address={address}\n" for address in texts(link.addresses))
    return f"{HEAD}[Match]\n{match}\n\n{_EASY}{dhcp}{addresses}"


def _netdev(link: ConfiguredLink) -> str:
    return f"{HEAD}[NetDev]\nName={link.name}\nKind=vlan\n\n[VLAN]\nId={link.vlan}\n"
