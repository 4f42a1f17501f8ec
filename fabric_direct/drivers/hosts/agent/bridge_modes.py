"""The bridge modes of this machine's NICs, VEB and VEPA, by netlink: RTM_GETLINK and RTM_SETLINK."""

import socket
import struct
from typing import Dict, List, Optional

from fabric_direct.drivers.hosts.agent import sockets

__all__ = ["put"]

# linux/rtnetlink.h, linux/if_link.h, linux/if_bridge.h
NEWLINK, _GETLINK, _SETLINK = 16, 18, 19
_REQUEST, _ACK, _DUMP = 0x1, 0x4, 0x300
_IFNAME, _PROTINFO, _AF_SPEC, _NESTED = 3, 12, 26, 0x8000
_BRIDGE_FLAGS, _BRIDGE_MODE = 0, 1
# BRIDGE_FLAGS_SELF addresses the NIC's own bridge.
_SELF = 2
# struct ifinfomsg: family, type, index, flags, mask. struct rtattr: length, type.
_INFO = struct.Struct("=BxHiII")
_ATTRIBUTE = struct.Struct("=HH")

Modes = Dict[str, int]


def put(link: str, mode: int, limit: float, netns: Optional[str] = None) -> Optional[int]:
    """Set the bridge mode of a link; return the one that it has then, or None if it tells none.

    The request is that of ``bridge link set dev LINK hwmode vepa``, byte for byte.

    :param mode: 0 is VEB, 1 is VEPA (BRIDGE_MODE_VEB, BRIDGE_MODE_VEPA).
    :param limit: seconds for each answer of the kernel.
    :param netns: name of a network namespace, as ``ip netns`` knows it; our own if absent.
    :raises OSError: the kernel's refusal: ENODEV without such a link, EOPNOTSUPP if it has no modes.
    """
    flags = _attribute(_BRIDGE_FLAGS, struct.pack("=H", _SELF))
    spec = flags + _attribute(_BRIDGE_MODE, struct.pack("=H", mode))
    attributes = _attribute(_PROTINFO | _NESTED, b"") + _attribute(_AF_SPEC, spec)
    index = _index(link, limit, netns)
    _links(_request(_SETLINK, _ACK, socket.AF_BRIDGE, index, attributes), limit, netns)
    return modes([link], limit, netns).get(link)


def modes(links: List[str], limit: float, netns: Optional[str] = None) -> Modes:
    """Return the bridge modes of those links that have one; the arguments are those of :func:`put`."""
    found: Modes = {}
    for message in _links(_request(_GETLINK, _DUMP, socket.AF_BRIDGE), limit, netns):
        mode = _mode(message)
        if mode is not None and name_of(message) in links:
            found[name_of(message)] = mode
    return found


def _index(link: str, limit: float, netns: Optional[str]) -> int:
    name = _attribute(_IFNAME, link.encode() + b"\0")
    (message,) = _links(_request(_GETLINK, _ACK, attributes=name), limit, netns)
    index: int = _INFO.unpack_from(message, sockets.HEADER.size)[2]
    return index


def _links(request: bytes, limit: float, netns: Optional[str]) -> List[bytes]:
    """Return the links that the kernel tells of."""
    found = sockets.granted(request, limit, netns)
    return [message for kind, message in found if kind == NEWLINK]


def _request(
    kind: int, flags: int, family: int = 0, index: int = 0, attributes: bytes = b""
) -> bytes:
    size = sockets.HEADER.size + _INFO.size + len(attributes)
    head = sockets.HEADER.pack(size, kind, _REQUEST | flags, 1, 0)
    return head + _INFO.pack(family, 0, index, 0, 0) + attributes


def _attribute(kind: int, payload: bytes) -> bytes:
    head = _ATTRIBUTE.pack(_ATTRIBUTE.size + len(payload), kind)
    return head + payload + bytes(-len(payload) % 4)


def name_of(message: bytes) -> str:
    """Return the name of the link that a message is about."""
    return _of_link(message).get(_IFNAME, b"").rstrip(b"\0").decode()


def _mode(message: bytes) -> Optional[int]:
    mode = _attributes(_of_link(message).get(_AF_SPEC, b"")).get(_BRIDGE_MODE)
    return None if mode is None else int.from_bytes(mode[:2], "little")


def _of_link(message: bytes) -> Dict[int, bytes]:
    return _attributes(message[sockets.HEADER.size + _INFO.size :])


def _attributes(data: bytes) -> Dict[int, bytes]:
    """Return attributes by type, without their heads; nested ones have a bit more in it."""
    found = sockets.units(data, _ATTRIBUTE)
    return {kind & 0x3FFF: attribute[_ATTRIBUTE.size :] for kind, attribute in found}
