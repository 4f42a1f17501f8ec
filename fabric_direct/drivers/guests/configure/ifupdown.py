"""ifupdown: a file of our own below ``/etc/network/interfaces.d``."""

from typing import ClassVar

from fabric_direct.drivers.guests.configure.files import FileManager
from fabric_direct.drivers.guests.configure.network import HEAD, ConfiguredLink, texts
from fabric_direct.drivers.guests.configure.root import GuestRoot


class Ifupdown(FileManager):
    """A :class:`~fabric_direct.drivers.guests.configure.network.Manager` by stanzas of interfaces(5)."""

    name: ClassVar[str] = "ifupdown"
    path: ClassVar[str] = "/etc/network/interfaces.d/fabric-direct-{}"

    def content(self, root: GuestRoot, link: ConfiguredLink) -> str:  # noqa: ARG002 - it takes none of the guest's
        """Return the stanzas."""
        # What is there at boot is brought up by its event; a VLAN interface has to be made.
        begins = f"{'auto' if link.vlan else 'allow-hotplug'} {link.name}\n"
        stanzas = (_stanza(link, address) for address in texts(link.addresses))
        return HEAD + begins + "".join(stanzas)

    def apply(self, root: GuestRoot, link: ConfiguredLink) -> None:
        """Take the interface down, as far as it is up, and bring it up."""
        root.run("ifdown", "--force", link.name)
        root.do("ifup", link.name)


def _stanza(link: ConfiguredLink, address: str) -> str:
    family = "inet6" if ":" in address else "inet"
    vlan = f"    vlan-raw-device {link.parent}\n" if link.vlan else ""
    return f"iface {link.name} {family} static\n    address {address}\n{vlan}"
