"""UDP messages that go out by a link of this machine."""

from __future__ import annotations

import socket
from base64 import b64decode

__all__ = ["send"]


def send(link: str, address: str, port: int, content: str) -> None:
    """Send a message, given in Base64, to an IPv4 address by this link and no other.

    :raises OSError: ENODEV if there is no such link.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, link.encode())
        sender.sendto(b64decode(content), (address, port))
