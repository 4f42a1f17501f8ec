"""OpenBSD: lines of ``/etc/hostname.<interface>``, set at once by ifconfig(8).

Written after hostname.if(5), and not tried on a real OpenBSD yet. The file may be the image's, so our
lines are between two of comment; which interface has some is written to a file of ours.
"""

from ipaddress import ip_interface
from typing import ClassVar

from fabric_direct.drivers.guests.configure import bsd
from fabric_direct.drivers.guests.configure.network import ConfiguredLink, texts
from fabric_direct.drivers.guests.configure.root import GuestRoot
from fabric_direct.errors import Unsupported

_FILE = "/etc/hostname.{}"
_BEGIN, _END = "# Begin of fabric-direct {}", "# End of fabric-direct {}"


class OpenBsd:
    """A :class:`~fabric_direct.drivers.guests.configure.network.Manager` by hostname.if(5)."""

    name: ClassVar[str] = "openbsd"

    def has(self, root: GuestRoot, label: str) -> bool:
        """Return whether an interface is noted."""
        return root.read(bsd.OURS.format(label)) != ""

    def keeps(self, root: GuestRoot, link: ConfiguredLink) -> bool:
        """Return whether the interface's file has our lines as they should be."""
        noted = root.read(bsd.OURS.format(link.label)).strip()
        text = root.read(_FILE.format(link.name))
        return noted == link.name and f"\n{_block(link)}" in f"\n{text}"

    def keep(self, root: GuestRoot, link: ConfiguredLink) -> None:
        """Write the lines, then set the addresses.

        :raises Unsupported: for an interface on which the guest tags.
        """
        if link.vlan:
            raise Unsupported(
                f"the guest cannot be told to tag {link.label} with VLAN {link.vlan}",
                why="that is not served on OpenBSD",
                remedy="configure it in the boot script",
            )
        self.forget(root, link.label)
        root.write(bsd.OURS.format(link.label), f"{link.name}\n")
        path = _FILE.format(link.name)
        others = "".join(f"{line}\n" for line in root.read(path).splitlines())
        root.write(path, others + _block(link), "0640")
        bsd.set_addresses(root, link)

    def forget(self, root: GuestRoot, label: str) -> None:
        """Remove our lines, and a file that has no others; what is set goes with the NIC."""
        name = root.read(bsd.OURS.format(label)).strip()
        if not name:
            return
        path = _FILE.format(name)
        rest = _without(root.read(path), label)
        if rest:
            root.write(path, rest, "0640")
        else:
            root.remove(path)
        root.remove(bsd.OURS.format(label))


def _block(link: ConfiguredLink) -> str:
    own = map(_line, texts(link.addresses))
    dhcp = ("inet autoconf",) if link.dhcp else ()
    lines = (_BEGIN.format(link.label), *dhcp, *own, "up", _END.format(link.label))
    return "".join(f"{line}\n" for line in lines)


def _line(address: str) -> str:
    """Return an address with its netmask, or its prefix length, as hostname.if(5) has them."""
    given = ip_interface(address)
    extent = given.netmask if given.version == 4 else given.network.prefixlen
    return f"{bsd.family(address)} alias {given.ip} {extent}"


def _without(text: str, label: str) -> str:
    lines = text.splitlines()
    begin, end = _BEGIN.format(label), _END.format(label)
    if begin in lines and end in lines:
        del lines[lines.index(begin) : lines.index(end) + 1]
    return "".join(f"{line}\n" for line in lines)
