"""Links of a host that networks are built on: its bridges, and VLAN interfaces of ours.

A VLAN interface of ours carries its owner in its alias (IFLA_IFALIAS): the stamp that it is found and
deleted by. The kernel takes no alias with a new link, so it is made under a name that follows from the
stamp, and gets its alias and final name in one message: whenever a call is interrupted, it is known
as ours. Every function takes the name of a network namespace (the host's own if absent) and the host
(this machine if absent).
"""

import hashlib
from typing import Any, NamedTuple

from fabric_direct.drivers.contract import HostDriver
from fabric_direct.drivers.netlink.uplink import link_index, session
from fabric_direct.errors import NotOurs, NotVerified

_NAME_LENGTH = 15  # IFNAMSIZ less the terminating zero


def short_name(text: str) -> str:
    """Return a link name of 14 characters that follows from ``text``."""
    return f"fd{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def vlan_name(uplink: str, vlan: int) -> str:
    """Return ``<uplink>.<vlan>``, or a name derived from that if it is longer than Linux allows."""
    name = f"{uplink}.{vlan}"
    return name if len(name) <= _NAME_LENGTH else short_name(name)


def link_exists(link: str, netns: str | None = None, host: HostDriver | None = None) -> bool:
    """Return whether there is a link of that name."""
    with session("look for the link", link, netns, host) as ip:
        return bool(ip.link_lookup(ifname=link))


def is_bridge(link: str, netns: str | None = None, host: HostDriver | None = None) -> bool:
    """Return whether there is a bridge of that name."""
    with session("look for the bridge", link, netns, host) as ip:
        return bool(ip.link_lookup(ifname=link, kind="bridge"))


class VlanPort(NamedTuple):
    """A VLAN interface of ours that is a port of a bridge."""

    uplink: str
    vlan: int
    bridge: str
    stamp: str


def attach_vlan(port: VlanPort, netns: str | None = None, host: HostDriver | None = None) -> None:
    """Create the VLAN interface if it is not there, make it a port of the bridge, and bring it up.

    One of the same stamp on another uplink or VLAN is deleted.

    :raises NotFound: if there is no such uplink or bridge.
    :raises NotOurs: if there is such a VLAN interface, or a link of its name, without the stamp.
    :raises Unsupported: if the kernel has no VLANs (module 8021q).
    """
    uplink, vlan, bridge, stamp = port
    with session(f"put VLAN {vlan} into bridge {bridge}", uplink, netns, host) as ip:
        parent, master = link_index(ip, uplink), link_index(ip, bridge)
        _remove(ip, [m for m in _stamped(ip, stamp) if _place(m) != (parent, vlan)])
        index = _find_or_make(ip, parent, vlan, vlan_name(uplink, vlan), stamp)
        ip.link("set", index=index, master=master, state="up")
    if not vlan_attached(port, netns, host):
        raise NotVerified(f"VLAN {vlan} of {uplink} is not in bridge {bridge}")


def vlan_attached(port: VlanPort, netns: str | None = None, host: HostDriver | None = None) -> bool:
    """Return whether the stamped VLAN interface is a port of the bridge."""
    with session(f"look for VLAN {port.vlan}", port.uplink, netns, host) as ip:
        parents, masters = ip.link_lookup(ifname=port.uplink), ip.link_lookup(ifname=port.bridge)
        return any(
            [_place(m)[0]] == parents and _place(m)[1] == port.vlan and [m.get("master")] == masters
            for m in _stamped(ip, port.stamp)
        )


def remove_vlans(stamp: str, netns: str | None = None, host: HostDriver | None = None) -> None:
    """Delete every VLAN interface that carries the stamp, or was being made for it."""
    with session("delete the VLAN interfaces", stamp, netns, host) as ip:
        _remove(ip, _stamped(ip, stamp))


def vlans(stamp: str, netns: str | None = None, host: HostDriver | None = None) -> tuple[str, ...]:
    """Name every VLAN interface that carries the stamp, or is being made for it."""
    with session("list the VLAN interfaces", stamp, netns, host) as ip:
        return tuple(m.get("ifname") for m in _stamped(ip, stamp))


def _find_or_make(ip: Any, parent: int, vlan: int, name: str, stamp: str) -> int:
    found = next((m for m in _vlan_links(ip) if _place(m) == (parent, vlan)), None)
    if found is None:
        if ip.link_lookup(ifname=name):
            raise NotOurs(f"there is a link {name} that is not ours", remedy="rename or remove it")
        ip.link("add", ifname=short_name(stamp), kind="vlan", link=parent, vlan_id=vlan)
        index = link_index(ip, short_name(stamp))
    elif not _bears(found, stamp):
        raise NotOurs(f"VLAN {vlan} is on {found.get('ifname')}, which is not ours")
    else:
        index = found["index"]
    ip.link("set", index=index, ifname=name, ifalias=stamp)
    return index


def _remove(ip: Any, messages: list[Any]) -> None:
    for message in messages:
        ip.link("del", index=message["index"])


def _stamped(ip: Any, stamp: str) -> list[Any]:
    return [m for m in _vlan_links(ip) if _bears(m, stamp)]


def _bears(message: Any, stamp: str) -> bool:
    names: tuple[str | None, ...] = (message.get("ifalias"), message.get("ifname"))
    return names[0] == stamp or names[1] == short_name(stamp)


def _vlan_links(ip: Any) -> list[Any]:
    return [m for m in ip.get_links() if m.get_nested("IFLA_LINKINFO", "IFLA_INFO_KIND") == "vlan"]


def _place(message: Any) -> tuple[int, int]:
    """Return the index of a VLAN interface's uplink, and its VLAN."""
    vlan = message.get_nested("IFLA_LINKINFO", "IFLA_INFO_DATA", "IFLA_VLAN_ID")
    return message.get("link"), vlan
