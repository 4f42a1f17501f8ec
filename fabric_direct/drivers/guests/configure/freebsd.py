"""FreeBSD: variables of ``/etc/rc.conf`` by sysrc(8), set at once by ifconfig(8).

Written after rc.conf(5), and not tried on a real FreeBSD yet. Each variable of ours has no mark of its
own, so their names are written to a file.
"""

from typing import ClassVar

from fabric_direct.drivers.guests.configure.network import ConfiguredLink, texts
from fabric_direct.drivers.guests.configure.root import GuestRoot

_OURS = "/var/db/fabric-direct-{}"


class FreeBsd:
    """A :class:`~fabric_direct.drivers.guests.configure.network.Manager` by sysrc."""

    name: ClassVar[str] = "freebsd"

    def has(self, root: GuestRoot, label: str) -> bool:
        """Return whether there is a list of our variables."""
        return root.read(_OURS.format(label)) != ""

    def keeps(self, root: GuestRoot, link: ConfiguredLink) -> bool:
        """Return whether all variables are set as they should be."""
        listed = root.read(_OURS.format(link.label)).split()
        return listed == list(_variables(link)) and all(
            root.run("sysrc", "-n", name).stdout.decode(errors="replace").strip() == value
            for name, value in _variables(link).items()
        )

    def keep(self, root: GuestRoot, link: ConfiguredLink) -> None:
        """Set the variables, then the addresses."""
        self.forget(root, link.label)
        variables = _variables(link)
        root.write(_OURS.format(link.label), "".join(f"{name}\n" for name in variables))
        for name, value in variables.items():
            root.do("sysrc", f"{name}={value}")
        root.do("ifconfig", link.parent, "up")
        if link.vlan and root.run("ifconfig", link.name).code != 0:
            root.do("ifconfig", link.name, "create", "vlan", str(link.vlan), "vlandev", link.parent)
        for address in texts(link.addresses):
            root.do("ifconfig", link.name, _family(address), address, "alias")

    def forget(self, root: GuestRoot, label: str) -> None:
        """Remove the variables; what is set goes with the NIC."""
        for name in root.read(_OURS.format(label)).split():
            root.run("sysrc", "-x", name)
        root.remove(_OURS.format(label))


def _variables(link: ConfiguredLink) -> dict[str, str]:
    """Return the variables by name; in names of interfaces what is no letter or digit becomes ``_``."""
    parent, name = _word(link.parent), _word(link.name)
    tagged = {f"vlans_{parent}": str(link.vlan), f"ifconfig_{parent}": "up"} if link.vlan else {}
    dhcp = {f"ifconfig_{name}": "DHCP"} if link.dhcp else {}
    own = {
        f"ifconfig_{name}{'_ipv6' if ':' in address else ''}": f"{_family(address)} {address}"
        for address in texts(link.addresses)
    }
    return tagged | dhcp | own


def _word(interface: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in interface)


def _family(address: str) -> str:
    return "inet6" if ":" in address else "inet"
