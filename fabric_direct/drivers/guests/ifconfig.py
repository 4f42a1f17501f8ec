"""What ifconfig(8) says of the interfaces of a BSD guest, which has neither sysfs nor ``ip``.

The formats are those of FreeBSD 14 and OpenBSD 7.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import IPv4Address, ip_interface
from itertools import pairwise

HEAD = "ifconfig\n"
"""Precedes the output, where a script writes what a Linux guest says or else this."""

# Built-ins alone in a Linux guest, which passes by. OpenBSD shows all addresses by -A, FreeBSD by -a.
SHOW = """if [ ! -d /sys/class/net ]; then
  PATH=$PATH:/sbin:/usr/sbin
  case $(uname -s) in
  OpenBSD) echo ifconfig; exec ifconfig -A ;;
  *BSD) echo ifconfig; exec ifconfig -a ;;
  esac
fi
"""
"""Writes :data:`HEAD` and the interfaces in a BSD guest, and ends there."""

# What names an interface below: of a VLAN interface on FreeBSD ("parent interface: vtnet0") and OpenBSD
# ("vnetid 100 parent vio0"), of an aggregate and of a bridge.
_MEMBERS = {"laggport:", "member:", "trunkport"}


@dataclass(slots=True)
class Shown:
    """An interface."""

    name: str
    mac: str = ""
    """Its permanent one, where it has another for now."""
    addresses: list[str] = field(default_factory=list)
    """With prefix length."""
    below: list[str] = field(default_factory=list)
    """Names of its lower interfaces."""
    groups: list[str] = field(default_factory=list)

    @property
    def real(self) -> bool:
        """Whether it is a device's: one that was made is in the group of its kind."""
        kind = self.name.rstrip("0123456789")
        return bool(self.mac) and not self.below and not {kind, "vlan"} & set(self.groups)


def parse(text: str) -> tuple[Shown, ...]:
    """Return the interfaces in the order in which they are shown; what is not understood is left out."""
    found: list[Shown] = []
    for line in text.splitlines():
        words = line.split()
        if words and not line[0].isspace() and words[0].endswith(":"):
            found.append(Shown(words[0][:-1]))
        elif words and found:
            _note(found[-1], words)
    return tuple(found)


def _note(shown: Shown, words: list[str]) -> None:
    match words:
        case ["ether" | "lladdr" | "hwaddr", mac, *_]:
            shown.mac = mac.lower()
        case ["inet" | "inet6", address, *rest]:
            with suppress(ValueError):
                shown.addresses.append(_address(address, dict(pairwise(rest))))
        case ["groups:", *groups]:
            shown.groups = groups
        case [key, name, *_] if key in _MEMBERS:
            shown.below.append(name)
        case _:
            shown.below.extend(_parent(words))


def _address(text: str, said: dict[str, str]) -> str:
    """Return an address with prefix length: ``netmask 0xffffff00``, ``prefixlen 64``, or a CIDR one.

    :raises ValueError: if it is none.
    """
    address, _, length = text.partition("/")
    mask = said.get("netmask", "")
    if mask.startswith("0x"):
        length = str(IPv4Address(int(mask, 16)))
    return str(ip_interface(f"{address.partition('%')[0]}/{length or said.get('prefixlen', '')}"))


def _parent(words: list[str]) -> Iterator[str]:
    rest = words[words.index("parent") + 1 :] if "parent" in words else []
    names = rest[1:] if rest[:1] == ["interface:"] else rest
    yield from (name for name in names[:1] if name not in {"none", "<none>"})
