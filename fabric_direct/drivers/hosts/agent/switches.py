"""Requests to the daemon of Open vSwitch on this machine, at the sockets that its own commands use."""

import errno
import json
import os
import socket
import struct
import time
from base64 import b64decode, b64encode
from contextlib import suppress
from typing import Dict, List

__all__ = ["appctl", "openflow"]

_HEADER = struct.Struct("!BBHI")  # of OpenFlow: version, type, length, number
_BARRIER_REPLY = 21


def openflow(path: str, messages: str, limit: float) -> str:
    """Send OpenFlow messages and return what comes until a barrier is answered, both in Base64.

    :param path: the socket of a bridge.
    :param messages: the last of them is a barrier request.
    :param limit: seconds for all of it.
    """
    answer, kind = bytearray(), None
    with _Daemon(path, limit) as daemon:
        daemon.send(b64decode(messages))
        while kind != _BARRIER_REPLY:
            head = daemon.receive(_HEADER.size)
            _, kind, length, _ = _HEADER.unpack(head)
            answer += head + daemon.receive(length - _HEADER.size)
    return b64encode(answer).decode()


def appctl(rundir: str, command: str, arguments: List[str], limit: float) -> str:
    """Return what ``ovs-appctl`` prints for a command.

    :param rundir: the directory of the daemon's sockets.
    :param limit: seconds for all of it.
    :raises RuntimeError: with the daemon's words if it refuses.
    """
    with open(f"{rundir}/ovs-vswitchd.pid") as file:  # noqa: PTH123 - pathlib says no more
        process = int(file.read())
    with _Daemon(f"{rundir}/ovs-vswitchd.{process}.ctl", limit) as daemon:
        daemon.send(json.dumps({"id": 0, "method": command, "params": arguments}).encode())
        answer = daemon.receive_object()
    if answer["error"] is not None:
        raise RuntimeError(str(answer["error"]))
    return str(answer["result"])


class _Daemon:
    """A connection to a Unix socket, for one block of at most ``limit`` seconds."""

    def __init__(self, path: str, limit: float) -> None:
        self._path, self._until = path, time.monotonic() + limit
        self._socket = socket.socket(socket.AF_UNIX)

    def __enter__(self) -> "_Daemon":
        self._limit()
        try:
            self._socket.connect(self._path)
        except OSError:
            self._socket.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._limit()
        self._socket.sendall(data)

    def receive(self, length: int) -> bytes:
        """Return so many bytes."""
        data = b""
        while len(data) < length:
            data += self._some(length - len(data))
        return data

    def receive_object(self) -> Dict[str, object]:
        """Return one JSON object, the last that is sent."""
        data = b""
        while True:
            data += self._some(1 << 16)
            if data.endswith(b"}"):
                with suppress(ValueError):
                    found: Dict[str, object] = json.loads(data)
                    return found

    def _some(self, at_most: int) -> bytes:
        self._limit()
        data = self._socket.recv(at_most)
        if not data:
            raise OSError(errno.ECONNRESET, os.strerror(errno.ECONNRESET), self._path)
        return data

    def _limit(self) -> None:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"{self._path} did not answer")
        self._socket.settimeout(left)
