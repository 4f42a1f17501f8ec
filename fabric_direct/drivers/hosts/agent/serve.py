"""Answers requests by calls of this package's functions: on a worker, or in this process."""

import errno
import os
import re
import socket
import sys
import threading
from importlib import import_module
from typing import Any, Callable, Dict, Optional, Tuple

from fabric_direct.drivers.hosts.agent import commands, frames

_NAME = re.compile(r"([a-z_]+)\.([a-z_]+)")
# Python names 95 by its other name, ENOTSUP.
ERROR_NAMES = {**errno.errorcode, errno.EOPNOTSUPP: "EOPNOTSUPP"}
# The latter is an error of its own before Python 3.10.
_TOO_LATE = (TimeoutError, socket.timeout)


def perform(function: str, arguments: Dict[str, Any]) -> Dict[str, Any]:
    """Call a function and return ``{"answer": …}``, or ``{"error": [kind, errno, message]}``.

    :param function: ``module.function``, of a module that has it in ``__all__``.
    """
    try:
        return {"answer": _find(function)(**arguments)}
    except Exception as error:  # noqa: BLE001 - told to the caller, not swallowed
        return {"error": [type(error).__name__, _number(error), _words(error)]}


def _find(function: str) -> Callable[..., Any]:
    parts = _NAME.fullmatch(function)
    try:
        module = import_module(f"{__package__}.{parts[1]}") if parts else None
    except ModuleNotFoundError:
        module = None
    if module is None or parts is None or parts[2] not in getattr(module, "__all__", ()):
        raise RuntimeError(f"there is no function {function}")
    found: Callable[..., Any] = getattr(module, parts[2])
    return found


def _number(error: Exception) -> Optional[int]:
    number = error.errno if isinstance(error, OSError) else None
    return errno.ETIMEDOUT if number is None and isinstance(error, _TOO_LATE) else number


def _words(error: Exception) -> str:
    """Return the message of an error; that of an unexpected one begins with its type."""
    if isinstance(error, OSError) and error.errno is not None:
        about = f": {error.filename}" if error.filename else ""
        return f"{ERROR_NAMES.get(error.errno, error.errno)}, {error.strerror}{about}"
    text = str(error)
    return (
        text if isinstance(error, (RuntimeError, *_TOO_LATE)) else f"{type(error).__name__}: {text}"
    )


def reply(request: Dict[str, Any]) -> bytes:
    """Call what a request asks for and return the frame that answers it."""
    number, function = request["id"], request["function"]
    try:
        return frames.pack({"id": number, **perform(function, request["arguments"])})
    except (TypeError, ValueError) as error:
        words = f"{function} gave an answer that cannot be sent: {error}"
        return frames.pack({"id": number, "error": [type(error).__name__, None, words]})


def serve() -> None:
    """Answer the requests on standard input until it ends; then end all programs, and this process.

    A request that takes its time delays no other.
    """
    requests, answers = _streams()
    python = {"python": list(sys.version_info[:3]), "executable": sys.executable}
    greeting = {**python, "user": os.geteuid()}
    _send(answers, threading.Lock(), frames.pack(greeting))
    _Server(requests, answers).work()


class _Server:
    """Threads that take turns to read: each answers the request that it has read.

    Handing each request to a new thread would cost more than most requests do.
    """

    def __init__(self, requests: int, answers: int) -> None:
        self._requests, self._answers = requests, answers
        self._reading, self._writing = threading.Lock(), threading.Lock()
        self._counting, self._idle = threading.Lock(), 0

    def work(self) -> None:
        while True:
            self._count(1)
            with self._reading:
                request = frames.receive(lambda length: os.read(self._requests, length))
                if request is None:
                    commands.end_all()
                    os._exit(0)
            if not self._count(-1):
                threading.Thread(target=self.work, daemon=True).start()
            _send(self._answers, self._writing, reply(request))

    def _count(self, more: int) -> int:
        """Count the threads that wait to read."""
        with self._counting:
            self._idle += more
            return self._idle


def _streams() -> Tuple[int, int]:
    """Return what standard input and output were, and leave nothing there for anyone else to use."""
    streams = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    return streams


def _send(answers: int, lock: threading.Lock, frame: bytes) -> None:
    """Write a frame in one piece."""
    left = memoryview(frame)
    with lock:
        while left:
            left = left[os.write(answers, left) :]
