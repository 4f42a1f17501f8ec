"""FreeBSD: variables of ``/etc/rc.conf`` by sysrc(8), set at once by ifconfig(8).

Written after rc.conf(5), and not tried on a real FreeBSD yet. Each variable of ours has no mark of its
own, so their names are written to a file.
"""

from typing import ClassVar

from fabric_direct.drivers.guests.configure import bsd
from fabric_direct.drivers.guests.configure.network import ConfiguredLink, texts
from fabric_direct.drivers.guests.configure.root import GuestRoot


class FreeBsd:
    """A :class:`~fabric_direct.drivers.guests.configure.network.Manager` by sysrc."""

    name: ClassVar[str] = "freebsd"

    def has(self, root: GuestRoot, label: str) -> bool:
        """Return whether there is a list of our variables."""
        return root.read(bsd.OURS.format(label)) != ""

    def keeps(self, root: GuestRoot, link: ConfiguredLink) -> bool:
        """Return whether all variables are set as they should be."""
        listed = root.read(bsd.OURS.format(link.label)).split()
        return listed == list(_variables(link)) and all(
            root.run("sysrc", "-n", name).stdout.decode(errors="replace").strip() == value
            for name, value in _variables(link).items()
        )

    def keep(self, root: GuestRoot, link: ConfiguredLink) -> None:
        """Set the variables, then the addresses."""
        self.forget(root, link.label)
        variables = _variables(link)
        root.write(bsd.OURS.format(link.label), "".join(f"{name}\n" for name in variables))
        for name, value in variables.items():
            root.do("sysrc", f"{name}={value}")
        if link.vlan:
            root.do("ifconfig", link.parent, "up")
            if root.run("ifconfig", link.name).code != 0:
                tag = ("vlan", str(link.vlan), "vlandev", link.parent)
                root.do("ifconfig", link.name, "create", *tag)
        if any(address.version == 6 for address in link.addresses):
            # FreeBSD disables IPv6 on an interface for which rc.conf(5) had no such address at boot.
            root.do("ifconfig", link.name, "inet6", "-ifdisabled")
        bsd.set_addresses(root, link)

    def forget(self, root: GuestRoot, label: str) -> None:
        """Remove the variables; what is set goes with the NIC."""
        for name in root.read(bsd.OURS.format(label)).split():
            root.run("sysrc", "-x", name)
        root.remove(bsd.OURS.format(label))


def _variables(link: ConfiguredLink) -> dict[str, str]:
    """Return the variables by name; in names of interfaces what is no letter or digit becomes ``_``."""
    parent, name = _word(link.parent), _word(link.name)
    tagged = {f"vlans_{parent}": str(link.vlan), f"ifconfig_{parent}": "up"} if link.vlan else {}
    dhcp = {f"ifconfig_{name}": "DHCP"} if link.dhcp else {}
    own = {
        f"ifconfig_{name}{'_ipv6' if ':' in address else ''}": f"{bsd.family(address)} {address}"
        for address in texts(link.addresses)
    }
    return tagged | dhcp | own


def _word(interface: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in interface)
