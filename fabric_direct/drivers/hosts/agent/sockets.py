"""Questions to this machine's kernel by netlink (rtnetlink(7))."""

from __future__ import annotations

import os
import socket
import struct
import threading
from base64 import b64decode, b64encode
from collections.abc import Iterator

__all__ = ["exchange"]

# linux/netlink.h; struct nlmsghdr: length, type, flags, sequence, port.
_HEADER = struct.Struct("=IHHII")
_ERROR, _DONE = 2, 3
# linux/sched.h
_CLONE_NEWNET = 0x40000000


def exchange(request: str, limit: float, netns: str | None = None) -> str:
    """Send a request of rtnetlink and return all that the kernel answers, both in Base64.

    The acknowledgement that follows an answer is left out; alone, it is the answer.

    :param request: one that asks for a list or for an acknowledgement.
    :param limit: seconds for each datagram.
    :param netns: name of a network namespace, as ``ip netns`` knows it; our own if absent.
    """
    with _socket() if netns is None else _elsewhere(netns) as kernel:
        kernel.settimeout(limit)
        kernel.sendto(b64decode(request), (0, 0))
        return b64encode(b"".join(_answers(kernel))).decode()


def _answers(kernel: socket.socket) -> Iterator[bytes]:
    """Give the messages of an answer, up to the one that ends it."""
    answered = False
    while True:
        for kind, message in _messages(_datagram(kernel)):
            refused = kind == _ERROR and any(message[_HEADER.size : _HEADER.size + 4])
            if kind != _ERROR or refused or not answered:
                yield message
            if kind in {_ERROR, _DONE}:
                return
            answered = True


def _datagram(kernel: socket.socket) -> bytes:
    # Its length is asked for first: a buffer for the longest there may be costs more than all the rest.
    length = kernel.recv_into(bytearray(1), 1, socket.MSG_PEEK | socket.MSG_TRUNC)
    return kernel.recv(length)


def _messages(datagram: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(datagram):
        length, kind, *_ = _HEADER.unpack_from(datagram, at)
        yield kind, datagram[at : at + length] + bytes(-length % 4)
        at += length + -length % 4


def _socket() -> socket.socket:
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)


def _elsewhere(netns: str) -> socket.socket:
    """Return a socket of a namespace, made in a thread of its own: only that thread enters it."""
    made: list[socket.socket | OSError] = []

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
