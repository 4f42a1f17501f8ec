"""Who is at a port of the lab's switches: sends and receives frames, with VLAN tags."""

import ctypes
import socket
import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count, islice
from pathlib import Path

_TYPE, _PACKET, _AUXDATA, _TAGGED = 0x88B5, 263, 8, 0x10  # the first is for experiments (IEEE)
_macs = count(1)
Tags = int | tuple[int, int]
"""A VLAN, 0 without one; or the outer and the inner one."""
EVERYONE = b"\xff" * 6
PATIENCE, QUIET = 60.0, 0.3
"""Seconds for a frame that must come, on whatever machine; and after which no more is expected."""


def _opened(namespace: str) -> socket.socket:
    """Open a socket in a namespace; the thread that enters it ends with it."""

    def inside() -> socket.socket:
        with Path(f"/run/netns/{namespace}").open() as file:
            assert not ctypes.CDLL(None).setns(file.fileno(), 0x40000000)  # CLONE_NEWNET
        wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        wire.setsockopt(_PACKET, _AUXDATA, 1)
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 25)
        wire.bind(("eth0", 3))
        return wire

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(inside).result()


class Wire:
    """The far end of a port."""

    def __init__(self, switch: str, port: str) -> None:
        self._socket = _opened(f"fd-{switch}-{port}")
        self.mac = b"\x02\xfd\x00\x00\x00" + bytes([next(_macs)])

    def close(self) -> None:
        self._socket.close()

    def send(
        self, payload: bytes, vlan: Tags = 0, to: bytes = EVERYONE, outer: int = 0x88A8
    ) -> None:
        """Send a frame.

        :param outer: the type of the outer one of two tags.
        """
        if isinstance(vlan, tuple):
            tag = struct.pack("!HHHH", outer, vlan[0], 0x8100, vlan[1])
        else:
            tag = struct.pack("!HH", 0x8100, vlan) if vlan else b""
        self._socket.send(to + self.mac + tag + struct.pack("!H", _TYPE) + payload.ljust(60, b"."))

    def received(self, least: int = 0) -> list[tuple[Tags, bytes]]:
        """Return the VLAN and content of all frames until none came for a while.

        :param least: how many must come, however long that takes.
        """
        return [*islice(self.frames(PATIENCE), least), *self.frames()]

    def hears(self, content: bytes, vlan: Tags) -> bool:
        """Return whether a frame comes."""
        return (vlan, content) in self.frames(PATIENCE)

    def frames(self, within: float = 0) -> Iterator[tuple[Tags, bytes]]:
        """Give the VLAN and content of each frame until none came for some seconds, or a while."""
        self._socket.settimeout(within or QUIET)
        while True:
            try:
                data, aside, flags, _ = self._socket.recvmsg(9000, 128)
            except TimeoutError:
                return
            vlan: Tags = _vlan(aside)
            if data[12:14] == b"\x81\x00":
                vlan = _vlan(aside), int.from_bytes(data[14:16]) & 0xFFF
                data = data[:12] + data[16:]
            if flags & socket.MSG_TRUNC or data[12:14] != struct.pack("!H", _TYPE):
                continue
            if data[6:12] != self.mac:
                yield vlan, data[14:].rstrip(b".")


def _vlan(aside: list[tuple[int, int, bytes]]) -> int:
    status, *_, tci, _ = struct.unpack("=IIIHHHH", aside[0][2][:20])
    return tci & 0xFFF if status & _TAGGED else 0


def cross(one: Wire, other: Wire, vlans: tuple[Tags, Tags] = (0, 0)) -> bool:
    """Return whether frames cross in both directions, each with the VLAN of its end.

    A busy machine may lose one, so another is sent each second.
    """
    return _comes(one, other, vlans) and _comes(other, one, (vlans[1], vlans[0]))


def _comes(sender: Wire, receiver: Wire, vlans: tuple[Tags, Tags]) -> bool:
    word, end = f"{time.monotonic_ns()}".encode(), time.monotonic() + PATIENCE
    while time.monotonic() < end:
        sender.send(word, vlans[0])
        if (vlans[1], word) in receiver.frames(1):
            return True
    return False


def apart(one: Wire, other: Wire, vlans: tuple[Tags, Tags] = (0, 0)) -> bool:
    """Return whether no frame crosses in either direction."""
    return lost(one, other, vlans) and lost(other, one, (vlans[1], vlans[0]))


def lost(sender: Wire, receiver: Wire, vlans: tuple[Tags, Tags]) -> bool:
    """Return whether a frame does not arrive."""
    word = f"{time.monotonic_ns()}".encode()
    sender.send(word, vlans[0])
    return (vlans[1], word) not in receiver.received()


def flood(one: Wire, other: Wire, vlans: tuple[Tags, Tags], offered: float) -> tuple[float, float]:
    """Offer some Mbit/s for a second; return how many Mbit arrive, and after how many seconds."""
    other.received()
    began = last = time.monotonic()
    sent = arrived = 0
    while (now := time.monotonic() - began) < 1:
        if sent * 1400 * 8 < offered * 1e6 * now:
            one.send(b"x" * 1382, vlans[0])
            sent += 1
    for vlan, _ in other.frames():
        if vlan == vlans[1]:
            arrived, last = arrived + 1, time.monotonic()
    return arrived * 1400 * 8 / 1e6, last - began
