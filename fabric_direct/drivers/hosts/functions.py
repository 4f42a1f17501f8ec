"""Calls of the agent's functions by name, and the translation of their errors, local and by SSH."""

import errno
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fabric_direct.calls.tracing import remote
from fabric_direct.drivers.contract import CommandResult
from fabric_direct.errors import (
    Denied,
    DriverError,
    FabricDirectError,
    NotFound,
    TimedOut,
    Unsupported,
)

# Seconds for an answer on top of a command's own limit: the worker kills it and reports that.
ANSWER = 10.0
# Seconds for the kernel to answer a request of netlink.
NETLINK = 30.0

_KINDS: dict[int | None, type[FabricDirectError]] = {
    errno.EPERM: Denied,
    errno.EACCES: Denied,
    errno.ENOENT: NotFound,
    errno.ENODEV: NotFound,
    errno.EOPNOTSUPP: Unsupported,
    errno.ENOTTY: Unsupported,
    errno.ETIMEDOUT: TimedOut,
}


class HostFunctions:
    """The methods of a :class:`~fabric_direct.drivers.contract.HostDriver` that are calls of functions.

    :param host: name of the worker, for messages.
    """

    def __init__(self, host: str) -> None:
        self._host = host

    def _ask(self, function: str, arguments: dict[str, Any], timeout: float) -> dict[str, Any]:
        """Return what :func:`~fabric_direct.drivers.hosts.agent.serve.perform` returns on the worker."""
        raise NotImplementedError

    def call(self, function: str, *, timeout: float, **arguments: Any) -> Any:
        """Call a function on the worker: ``pci.survey``, for example."""
        with remote(function, host=self._host):
            reply = self._ask(function, arguments, timeout)
        if "error" in reply:
            raise self._translated(function, *reply["error"])
        return reply["answer"]

    def _translated(
        self, function: str, kind: str, number: int | None, words: str
    ) -> FabricDirectError:
        error = _KINDS.get(number, DriverError)(f"{function} failed", where=self._host, why=words)
        error.__cause__ = (
            RuntimeError(f"{kind}: {words}") if number is None else OSError(number, words)
        )
        return error

    def run(self, argv: tuple[str, ...], stdin: bytes = b"", *, timeout: float) -> CommandResult:
        """Run a command without a shell; it is killed after ``timeout`` seconds."""
        given = b64encode(stdin).decode()
        found = self.call(
            "commands.run", timeout=timeout + ANSWER, argv=list(argv), stdin=given, limit=timeout
        )
        with self._understood("commands.run"):
            out, err = b64decode(found["stdout"]), b64decode(found["stderr"])
            return CommandResult(int(found["code"]), out, err)

    def read_file(self, path: str, *, timeout: float) -> bytes:
        """Return the content of a file."""
        found = self.call("files.read", timeout=timeout, path=path)
        with self._understood("files.read"):
            return b64decode(found)

    @contextmanager
    def _understood(self, function: str) -> Iterator[None]:
        """Turn the errors of reading an answer of another form into ours."""
        try:
            yield
        except (LookupError, TypeError, ValueError, OverflowError) as error:
            raise DriverError(
                f"{function} gave an invalid answer", where=self._host, why=type(error).__name__
            ) from error
