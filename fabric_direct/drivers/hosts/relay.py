"""The relay: a Python process on a worker that answers many requests at a time over one SSH channel.

Nothing of it is written to the worker's disk: Python is started with a few lines that read the modules
of :mod:`fabric_direct.drivers.hosts.agent` from standard input. It ends, with all processes that it
started, when the channel closes.
"""

import itertools
import json
import shlex
import threading
import zlib
from concurrent.futures import Future
from contextlib import suppress
from importlib import resources
from typing import Any

import paramiko

from fabric_direct.calls.deadline import Deadline, unanswered
from fabric_direct.drivers.hosts import agent
from fabric_direct.drivers.hosts.agent import frames
from fabric_direct.drivers.ssh.login import transport_of
from fabric_direct.errors import TimedOut, Unreachable, Unsupported

# Seconds for a channel to open, and for the process to send its greeting.
START = 30.0
# Seconds for the worker to accept a part of a request: it reads all the time.
STALL = 10.0
PYTHONS = (
    "python3",
    *(f"python3.{minor}" for minor in range(14, 5, -1)),
    "/usr/libexec/platform-python",
)
"""Where Python is searched for on a worker; the last one is part of Enterprise Linux 8 (it is 3.6)."""
_INSTALL = (
    "install Python 3.6 or newer there: apt install python3; on Rocky 8: dnf install python39"
)
_OTHER = "correct its python in site.yaml, or omit it to have one searched for; else "
_PACKAGE = agent.__name__
_BOOTSTRAP = "bootstrap.py"
# Python 2 has no -I, and says which version it is without it.
_CHECK = """import sys
if sys.version_info < (3, 6):
    sys.exit("%s is Python %d.%d" % ((sys.executable,) + tuple(sys.version_info[:2])))
"""
# In the locale C, which SSH gives, paths and arguments are ASCII before Python 3.7 (PEP 538).
# -I and -S: nothing of the worker's environment or packages gets in; -B: nothing is written.
_START = """check=$1 bootstrap=$2 missing=
shift 2
export LC_CTYPE=C.UTF-8
for python; do
  if ! command -v "$python" >/dev/null; then
    missing="$missing $python"
  elif "$python" -EsSBc "$check" </dev/null; then
    exec "$python" -ISBc "$bootstrap"
  fi
done
[ -z "$missing" ] || echo "not found:$missing" >&2
exit 127
"""


class Relay:
    """A process on a worker.

    :param client: a connection of its own, which it closes when it ends.
    :param where: the worker, for messages.
    :param python: the worker's Python, by name or path; if absent, the first of :data:`PYTHONS`.
    :raises Unsupported: if the worker has no Python there, or one older than 3.6.
    :raises Unreachable: if the connection breaks.
    :raises ValueError: if what greets is not our process.
    """

    def __init__(self, client: paramiko.SSHClient, where: str, python: str | None = None) -> None:
        self._client, self._where = client, where
        self._numbers = itertools.count()
        self._waiting: dict[int, Future[dict[str, Any]]] = {}
        self._ended = False
        self._lock, self._sending = threading.Lock(), threading.Lock()
        self._channel = _started(client, (python,) if python else PYTHONS)
        greeting = frames.receive(self._channel.recv)
        if greeting is None:
            raise self._refused(python)
        self.python, self.executable, self.user = _greeted(greeting)
        """Version and path of the worker's Python, and number of the user that it runs as: 0 is root."""
        self._channel.settimeout(STALL)
        threading.Thread(target=self._listen, name=f"relay {where}", daemon=True).start()

    @property
    def alive(self) -> bool:
        """Return whether the relay runs, as far as is known."""
        return not self._ended

    def ask(self, function: str, arguments: dict[str, Any], deadline: Deadline) -> dict[str, Any]:
        """Call a function and return what :func:`~fabric_direct.drivers.hosts.agent.serve.perform` does.

        :raises Unreachable: if the relay ends before it answers. Whether the function was called, or
            has finished, is unknown then.
        :raises TimedOut: if it does not answer in time; other requests are not held up.
        """
        number, answer = next(self._numbers), Future[dict[str, Any]]()
        request = {"id": number, "function": function, "arguments": arguments}
        with self._lock:
            if self._ended:
                raise self._broken(function)
            self._waiting[number] = answer
        try:
            self._send(function, frames.pack(request), deadline)
            return self._answered(function, answer, deadline)
        except TimeoutError as error:
            raise TimedOut(f"{function} did not answer in time", where=self._where) from error
        finally:
            self._waiting.pop(number, None)

    def _answered(
        self, function: str, answer: Future[dict[str, Any]], deadline: Deadline
    ) -> dict[str, Any]:
        """Return the reply; if there is none, note that the worker may still do it."""
        try:
            return answer.result(_seconds(deadline))
        except (TimeoutError, Unreachable):
            unanswered(f"{function} on {self._where}")
            raise

    def close(self) -> None:
        """End it; calls in progress fail."""
        self._client.close()

    def forget(self) -> None:
        """Drop it in a forked child, without a message to the worker: the connection is the parent's."""
        # Their finalizers must send nothing, and wait for no lock of a thread that the child lacks.
        self._channel.lock, self._channel.closed = threading.Lock(), True
        if transport := self._client.get_transport():
            transport.active = False  # type: ignore[attr-defined]
            transport.sock.close()

    def _send(self, function: str, frame: bytes, deadline: Deadline) -> None:
        if not self._sending.acquire(timeout=_seconds(deadline)):
            raise TimeoutError
        try:
            self._channel.sendall(frame)
        except OSError as error:
            # Half a request may be sent: nothing can follow it.
            self.close()
            raise self._broken(function) from error
        finally:
            self._sending.release()

    def _listen(self) -> None:
        try:
            with suppress(OSError, EOFError, ValueError):
                while reply := frames.receive(self._patiently):
                    self._deliver(*_numbered(reply))
        finally:
            self._end()

    def _deliver(self, number: int, reply: dict[str, Any]) -> None:
        waiting = self._waiting.pop(number, None)
        if waiting:
            waiting.set_result(reply)

    def _end(self) -> None:
        """Fail the calls in progress, and refuse others."""
        with self._lock:
            self._ended = True
            left = list(self._waiting.values())
        for waiting in left:
            waiting.set_exception(self._broken("a call"))
        self._client.close()

    def _patiently(self, length: int) -> bytes:
        while True:
            with suppress(TimeoutError):
                return self._channel.recv(length)

    def _broken(self, function: str) -> Unreachable:
        return Unreachable(
            f"{function} got no answer",
            where=self._where,
            why="the connection to the worker broke, or our process there ended",
            remedy="check whether the change was made before you try again",
        )

    def _refused(self, python: str | None) -> Unsupported:
        said = self._channel.makefile_stderr("rb").read(4096).decode(errors="replace").split("\n")
        return Unsupported(
            "the worker's Python cannot run the agent",
            where=self._where,
            why="; ".join(filter(None, map(str.strip, said)))
            or f"the start of Python ended with code {self._channel.recv_exit_status()}",
            remedy=f"{_OTHER if python else ''}{_INSTALL}",
        )


def _started(client: paramiko.SSHClient, pythons: tuple[str, ...]) -> paramiko.Channel:
    channel = transport_of(client).open_session(timeout=START)
    channel.settimeout(START)
    start = ("exec", "sh", "-c", _START, "sh", _CHECK, _text(_BOOTSTRAP), *pythons)
    channel.exec_command(shlex.join(start))
    with suppress(OSError):  # it may have ended by now, which is told where its greeting is read
        channel.sendall(_modules())
    return channel


def _greeted(greeting: Any) -> tuple[tuple[int, ...], str, int]:
    """Return the version of the worker's Python, its path, and our user id there."""
    match greeting:
        case {"python": [*version], "executable": str(path), "user": int(user)}:
            return tuple(version), path, user
    raise ValueError("what greets is not our process")


def _numbered(reply: Any) -> tuple[int, dict[str, Any]]:
    """Return the number of the request that a reply is for, and the reply."""
    match reply:
        case {"id": int(number), "answer": _}:
            return number, reply
        case {"id": int(number), "error": [str(), None | int(), str()]}:
            return number, reply
    raise ValueError("a reply has no number, or neither an answer nor an error")


def _modules() -> bytes:
    files = [f.name for f in resources.files(agent).iterdir() if f.name.endswith(".py")]
    sources = {f"{_PACKAGE}.{name.removesuffix('.py')}": _text(name) for name in files}
    sources[_PACKAGE] = sources.pop(f"{_PACKAGE}.__init__")
    del sources[f"{_PACKAGE}.{_BOOTSTRAP.removesuffix('.py')}"]
    parents = itertools.accumulate(_PACKAGE.split(".")[:-1], "{}.{}".format)
    packed = zlib.compress(json.dumps(dict.fromkeys(parents, "") | sources).encode())
    return len(packed).to_bytes(4, "big") + packed


def _text(name: str) -> str:
    return (resources.files(agent) / name).read_text()


def _seconds(deadline: Deadline) -> float:
    return deadline.remaining(threading.TIMEOUT_MAX)
