"""The IP addresses of this machine's network interfaces, by netlink: RTM_GETADDR."""

import socket
import struct
from typing import Dict, List

from fabric_direct.drivers.hosts.agent.sockets import HEADER, granted, units

# include/uapi/linux/netlink.h: NLM_F_REQUEST, NLM_F_ROOT and _MATCH (both are NLM_F_DUMP).
_REQUEST_DUMP = 0x1 | 0x300
# include/uapi/linux/rtnetlink.h.
_RTM_NEWADDR, _RTM_GETADDR = 20, 22
# include/uapi/linux/if_addr.h: of a point-to-point link IFA_ADDRESS is the other end.
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
# struct ifaddrmsg: family, prefix length, flags, scope, index of the link. struct rtattr: length, type.
_IFADDRMSG = struct.Struct("=BBBBI")
_ATTRIBUTE = struct.Struct("=HH")
_SIZE = HEADER.size + _IFADDRMSG.size
_FAMILIES = (socket.AF_INET, socket.AF_INET6)
# Seconds for the kernel to answer.
_LIMIT = 10.0


def addresses() -> Dict[int, List[str]]:
    """Return the addresses with their prefix lengths by the index of their interface.

    :raises OSError: the error of the kernel.
    """
    request = HEADER.pack(_SIZE, _RTM_GETADDR, _REQUEST_DUMP, 1, 0) + bytes(_IFADDRMSG.size)
    found: Dict[int, List[str]] = {}
    for kind, message in granted(request, _LIMIT):
        if kind == _RTM_NEWADDR:
            _add(found, message)
    return found


def _add(found: Dict[int, List[str]], message: bytes) -> None:
    family, prefix, _, _, index = _IFADDRMSG.unpack_from(message, HEADER.size)
    parts = dict(units(message[_SIZE:], _ATTRIBUTE))
    packed = parts.get(_IFA_LOCAL, parts.get(_IFA_ADDRESS))
    if family in _FAMILIES and packed:
        address = socket.inet_ntop(family, packed[_ATTRIBUTE.size :])
        found.setdefault(index, []).append(f"{address}/{prefix}")
