"""The IP addresses of this machine's network interfaces, by netlink: RTM_GETADDR."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator

# include/uapi/linux/netlink.h: NLM_F_REQUEST, NLM_F_ROOT and _MATCH (both are NLM_F_DUMP).
_REQUEST_DUMP = 0x1 | 0x300
_ERROR, _DONE = 2, 3
# include/uapi/linux/rtnetlink.h.
_RTM_GETADDR = 22
# include/uapi/linux/if_addr.h: of a point-to-point link IFA_ADDRESS is the other end.
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
# struct nlmsghdr: length, type, flags, sequence, port. struct ifaddrmsg: family, prefix length, flags,
# scope, index of the link. struct rtattr: length, type.
_HEADER = struct.Struct("=IHHII")
_IFADDRMSG = struct.Struct("=BBBBI")
_ATTRIBUTE = struct.Struct("=HH")
_FAMILIES = (socket.AF_INET, socket.AF_INET6)

Message = tuple[int, bytes]


def addresses() -> dict[int, list[str]]:
    """Return the addresses with their prefix lengths by the index of their interface.

    :raises OSError: what the kernel answers.
    """
    found: dict[int, list[str]] = {}
    for _, body in _dump(_RTM_GETADDR):
        family, prefix, _, _, index = _IFADDRMSG.unpack_from(body)
        parts = dict(_units(body[_IFADDRMSG.size :], _ATTRIBUTE))
        packed = parts.get(_IFA_LOCAL, parts.get(_IFA_ADDRESS))
        if family in _FAMILIES and packed:
            found.setdefault(index, []).append(f"{socket.inet_ntop(family, packed)}/{prefix}")
    return found


def _dump(kind: int) -> Iterator[Message]:
    """Ask for all of a kind, and give the messages until the last."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC) as link:
        body = _IFADDRMSG.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
        link.send(_HEADER.pack(_HEADER.size + len(body), kind, _REQUEST_DUMP, 1, 0) + body)
        while True:
            for found, rest in _units(link.recv(1 << 20), _HEADER):
                if found == _DONE:
                    return
                if found == _ERROR:
                    number = -struct.unpack_from("=i", rest)[0]
                    raise OSError(number, f"netlink: {os.strerror(number)}")
                yield found, rest


def _units(data: bytes, head: struct.Struct) -> Iterator[Message]:
    """Take messages or attributes apart: both begin with length and type, and fill up to 4 bytes."""
    while len(data) >= head.size:
        length, kind = head.unpack_from(data)[:2]
        yield kind, data[head.size : length]
        data = data[max(length + 3 & ~3, head.size) :]
