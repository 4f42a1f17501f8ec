"""A host's files in memory, and answers that were agreed."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from fabric_direct.config import Site
from fabric_direct.drivers.contract import (
    CommandResult,
)
from fabric_direct.drivers.fake.substrate import Fake, the
from fabric_direct.errors import Unsupported


class FakeHost(Fake):
    """A :class:`~fabric_direct.drivers.contract.HostDriver` in memory: it keeps files."""

    kind = "host"

    def __init__(self, site: Site, host: str) -> None:
        """Make a driver on the host's substrate."""
        super().__init__(site, host)
        self.functions: dict[str, Callable[..., Any]] = {}
        """What is called in the stead of the worker's functions, by their names."""

    def call(self, function: str, *, timeout: float, **arguments: Any) -> Any:  # noqa: ARG002
        """Call what stands for the worker's function.

        :raises NotFound: if nothing does.
        """
        return self._call("call", lambda: the(self.functions, function)(**arguments))

    def run(
        self,
        argv: tuple[str, ...],  # noqa: ARG002
        stdin: bytes = b"",  # noqa: ARG002
        *,
        timeout: float,  # noqa: ARG002
    ) -> CommandResult:
        """Say that a command succeeded."""
        return self._call("run", lambda: CommandResult(0))

    def read_file(self, path: str, *, timeout: float) -> bytes:  # noqa: ARG002
        """Return a file's content."""
        return self._call("read_file", lambda: the(self.substrate.files, path))

    def write_file(
        self,
        path: str,
        content: bytes,
        mode: int = 0o600,  # noqa: ARG002
        *,
        timeout: float,  # noqa: ARG002
    ) -> None:
        """Keep a file's content."""
        self._call("write_file", lambda: self.substrate.files.update({path: content}))

    def netlink(self, netns: str | None = None) -> AbstractContextManager[Any]:  # noqa: ARG002
        """Refuse: there is no kernel in memory."""
        raise Unsupported("a host in memory has no kernel", where=self.host)
