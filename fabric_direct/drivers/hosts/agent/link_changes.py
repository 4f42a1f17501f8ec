"""Changes of this machine's links, as its kernel tells of them (rtnetlink(7), RTNLGRP_LINK)."""

import errno
import select
import socket
import struct
import time
from typing import Dict, List, Optional, Set

from fabric_direct.drivers.hosts.agent import sockets

__all__ = ["wait"]

# linux/rtnetlink.h, linux/if_link.h, linux/if_bridge.h
_NEWLINK, _DELLINK, _GETLINK = 16, 17, 18
_GROUP_LINK = 1
_REQUEST_DUMP = 0x301
_IFNAME, _AF_SPEC, _BRIDGE_MODE = 3, 26, 1
# Bytes of the longest message: a PF tells of all its VFs.
_LONGEST = 1 << 18
_INFO = struct.Struct("=BxHiII")
_ATTRIBUTE = struct.Struct("=HH")

Modes = Dict[str, int]


def wait(
    links: List[str], known: Optional[Modes], limit: float, netns: Optional[str] = None
) -> Dict[str, object]:
    """Wait until one of the links changes; return their bridge modes, and which have changed.

    A link whose mode is another than is known has changed already. So nothing is missed between two
    calls.

    :param known: the modes that the last call returned; None for the first one, which returns at once.
    :param limit: seconds after which nothing has changed.
    :param netns: name of a network namespace, as ``ip netns`` knows it; our own if absent.
    """
    with sockets.opened(netns) as kernel:
        kernel.bind((0, _GROUP_LINK))
        modes = _modes(links, limit, netns)
        if known is None or known != modes:
            past = known or {}
            return {"modes": modes, "changed": [n for n in links if past.get(n) != modes.get(n)]}
        changed = _next_change(kernel, set(links), time.monotonic() + limit)
        return {"modes": _modes(links, limit, netns), "changed": sorted(changed)}


def _next_change(kernel: socket.socket, links: Set[str], until: float) -> Set[str]:
    """Return the links of the next message that is about one; none if time is over."""
    left = until - time.monotonic()
    while left > 0 and select.select([kernel], [], [], left)[0]:
        try:
            data = kernel.recv(_LONGEST)
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            return links  # messages were lost
        found = {
            _name(message)
            for kind, message in sockets.units(data, sockets.HEADER)
            if kind in {_NEWLINK, _DELLINK}
        }
        if found & links:
            return found & links
        left = until - time.monotonic()
    return set()


def _modes(links: List[str], limit: float, netns: Optional[str]) -> Modes:
    """Return the bridge modes of those links that have one."""
    size = sockets.HEADER.size + _INFO.size
    head = sockets.HEADER.pack(size, _GETLINK, _REQUEST_DUMP, 1, 0)
    request = head + _INFO.pack(socket.AF_BRIDGE, 0, 0, 0, 0)
    modes: Modes = {}
    for kind, message in sockets.ask(request, limit, netns):
        mode = _mode(message) if kind == _NEWLINK else None
        if mode is not None and _name(message) in links:
            modes[_name(message)] = mode
    return modes


def _attributes(data: bytes) -> Dict[int, bytes]:
    """Return attributes by type, without their heads; nested ones have a bit more in it."""
    found = sockets.units(data, _ATTRIBUTE)
    return {kind & 0x3FFF: attribute[_ATTRIBUTE.size :] for kind, attribute in found}


def _of_link(message: bytes) -> Dict[int, bytes]:
    return _attributes(message[sockets.HEADER.size + _INFO.size :])


def _name(message: bytes) -> str:
    return _of_link(message).get(_IFNAME, b"").rstrip(b"\0").decode()


def _mode(message: bytes) -> Optional[int]:
    mode = _attributes(_of_link(message).get(_AF_SPEC, b"")).get(_BRIDGE_MODE)
    return None if mode is None else int.from_bytes(mode[:2], "little")
