"""Changes of this machine's links, as its kernel tells of them (rtnetlink(7), RTNLGRP_LINK)."""

import errno
import select
import socket
import time
from typing import Dict, List, Optional, Set

from fabric_direct.drivers.hosts.agent import bridge_modes, sockets

__all__ = ["wait"]

# linux/rtnetlink.h
_DELLINK, _GROUP_LINK = 17, 1
# Bytes of the longest message: a PF tells of all its VFs.
_LONGEST = 1 << 18


def wait(
    links: List[str], known: Optional[bridge_modes.Modes], limit: float, netns: Optional[str] = None
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
        modes = bridge_modes.modes(links, limit, netns)
        if known is None or known != modes:
            past = known or {}
            return {"modes": modes, "changed": [n for n in links if past.get(n) != modes.get(n)]}
        changed = _next_change(kernel, set(links), time.monotonic() + limit)
        return {"modes": bridge_modes.modes(links, limit, netns), "changed": sorted(changed)}


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
            bridge_modes.name_of(message)
            for kind, message in sockets.units(data, sockets.HEADER)
            if kind in {bridge_modes.NEWLINK, _DELLINK}
        }
        if found & links:
            return found & links
        left = until - time.monotonic()
    return set()
