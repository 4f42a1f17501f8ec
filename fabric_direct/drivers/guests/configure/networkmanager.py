"""NetworkManager: a connection profile of our own, by nmcli."""

from typing import ClassVar

from fabric_direct.drivers.guests.configure.network import ConfiguredLink, texts
from fabric_direct.drivers.guests.configure.root import GuestRoot
from fabric_direct.errors import DriverError

_SHOWN = "ipv4.addresses,ipv6.addresses"


class NetworkManager:
    """A :class:`~fabric_direct.drivers.guests.configure.network.Manager` by nmcli."""

    name: ClassVar[str] = "networkmanager"

    def has(self, root: GuestRoot, label: str) -> bool:
        """Return whether the profile exists."""
        return root.run(*_show(label)).code == 0

    def keeps(self, root: GuestRoot, link: ConfiguredLink) -> bool:
        """Return whether the profile has these addresses."""
        shown = root.run(*_show(link.label))
        words = shown.stdout.decode(errors="replace").replace("\\", "").replace(",", " ").split()
        return shown.code == 0 and set(words) == set(texts(link.addresses))

    def keep(self, root: GuestRoot, link: ConfiguredLink) -> None:
        """Create the profile again, and activate it."""
        self.forget(root, link.label)
        root.do("nmcli", "connection", "add", *_profile(link), "connection.autoconnect", "yes")
        root.do("nmcli", "--wait", "60", "connection", "up", "id", _unit(link.label))

    def forget(self, root: GuestRoot, label: str) -> None:
        """Delete the profile."""
        if self.has(root, label):
            root.do("nmcli", "connection", "delete", "id", _unit(label))
            if self.has(root, label):
                raise DriverError(f"NetworkManager deleted {_unit(label)}, but still has it")


def _unit(label: str) -> str:
    return f"fabric-direct-{label}"


def _show(label: str) -> tuple[str, ...]:
    return ("nmcli", "-g", _SHOWN, "connection", "show", "id", _unit(label))


def _profile(link: ConfiguredLink) -> list[str]:
    told = ["ifname", link.parent]
    if link.vlan:
        told = ["ifname", link.name, "dev", link.parent, "id", str(link.vlan)]
    elif link.mac:
        told = ["ifname", "*", "mac", link.mac]
    kind = ["type", "vlan" if link.vlan else "ethernet", "con-name", _unit(link.label)]
    without = "auto" if link.dhcp else "disabled"
    return [*kind, *told, *_family(link, 4, without), *_family(link, 6, "auto")]


def _family(link: ConfiguredLink, version: int, without: str) -> list[str]:
    addresses = ",".join(str(a) for a in link.addresses if a.version == version)
    if not addresses:
        return [f"ipv{version}.method", without]
    return [f"ipv{version}.method", "manual", f"ipv{version}.addresses", addresses]
