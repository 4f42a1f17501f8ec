"""UDP messages sent from a network interface of this machine."""

import socket
from base64 import b64decode

__all__ = ["send"]


def send(link: str, address: str, port: int, content: str) -> None:
    """Send a message, given in Base64, to an IPv4 address from this link alone.

    :raises OSError: ENODEV if there is no such link.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, link.encode())
        sender.sendto(b64decode(content), (address, port))
