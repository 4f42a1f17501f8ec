"""Requests to this machine's kernel by netlink (rtnetlink(7))."""

import os
import socket
import struct
import threading
from base64 import b64decode, b64encode
from typing import Iterator, List, Optional, Tuple, Union

__all__ = ["exchange"]

# linux/netlink.h; struct nlmsghdr: length, type, flags, sequence, port.
HEADER = struct.Struct("=IHHII")
ERROR, _DONE = 2, 3
# linux/sched.h
_CLONE_NEWNET = 0x40000000

Unit = Tuple[int, bytes]
"""Type and bytes of a message or of an attribute, with its head."""


def exchange(request: str, limit: float, netns: Optional[str] = None) -> str:
    """Send a request of rtnetlink and return all that the kernel answers, both in Base64.

    The acknowledgement that follows an answer is left out; alone, it is the answer.

    :param request: one that asks for a list or for an acknowledgement.
    :param limit: seconds for each datagram.
    :param netns: name of a network namespace, as ``ip netns`` knows it; our own if absent.
    """
    messages = ask(b64decode(request), limit, netns)
    padded = (message + bytes(-len(message) % 4) for _, message in messages)
    return b64encode(b"".join(padded)).decode()


def ask(request: bytes, limit: float, netns: Optional[str] = None) -> Iterator[Unit]:
    """Send a request and yield the messages of its answer, up to the one that ends it.

    The arguments are those of :func:`exchange`.
    """
    with opened(netns) as kernel:
        kernel.settimeout(limit)
        kernel.sendto(request, (0, 0))
        answered = False
        while True:
            for kind, message in units(_datagram(kernel), HEADER):
                refused = kind == ERROR and any(message[HEADER.size : HEADER.size + 4])
                if kind != ERROR or refused or not answered:
                    yield kind, message
                if kind in {ERROR, _DONE}:
                    return
                answered = True


def granted(request: bytes, limit: float, netns: Optional[str] = None) -> Iterator[Unit]:
    """Send a request and yield the messages of its answer; the arguments are those of :func:`exchange`.

    :raises OSError: the kernel's refusal.
    """
    for kind, message in ask(request, limit, netns):
        number = -struct.unpack_from("=i", message, HEADER.size)[0] if kind == ERROR else 0
        if number:
            raise OSError(number, os.strerror(number))
        yield kind, message


def _datagram(kernel: socket.socket) -> bytes:
    # Its length is asked for first: a buffer for the longest there may be costs more than all the rest.
    length = kernel.recv_into(bytearray(1), 1, socket.MSG_PEEK | socket.MSG_TRUNC)
    return kernel.recv(length)


def units(data: bytes, head: struct.Struct) -> Iterator[Unit]:
    """Yield messages or attributes: both begin with length and type, and fill up to 4 bytes.

    :param head: the layout of their beginning.
    """
    while len(data) >= head.size:
        length, kind = head.unpack_from(data)[:2]
        yield kind, data[:length]
        data = data[max(length + 3 & ~3, head.size) :]


def opened(netns: Optional[str]) -> socket.socket:
    """Return a socket of rtnetlink in a network namespace, or in our own."""
    return _socket() if netns is None else _elsewhere(netns)


def _socket() -> socket.socket:
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)


def _elsewhere(netns: str) -> socket.socket:
    """Return a socket of a namespace; only a thread of its own enters it, to make the socket."""
    made: List[Union[socket.socket, OSError]] = []

    def make() -> None:
        try:
            _enter(netns)
            made.append(_socket())
        except OSError as error:
            made.append(error)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if isinstance(made[0], OSError):
        raise made[0]
    return made[0]


def _enter(netns: str) -> None:
    import ctypes  # noqa: PLC0415 - slow to load, and seldom needed

    with open(f"/run/netns/{netns}") as namespace:  # noqa: PTH123 - pathlib says no more
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), namespace.name)
