"""A host in memory: its files, and functions that tests set."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from fabric_direct.drivers.contract import CommandResult
from fabric_direct.drivers.fake.substrate import Fake, the
from fabric_direct.errors import Unsupported
from fabric_direct.site.config import Site


class FakeHost(Fake):
    """A :class:`~fabric_direct.drivers.contract.HostDriver` in memory: it keeps files."""

    kind = "host"

    def __init__(self, site: Site, host: str) -> None:
        """Make a driver on the host's substrate."""
        super().__init__(site, host)
        self.functions: dict[str, Callable[..., Any]] = {}
        """Stand-ins for the functions of the agent on the worker, by name."""

    def call(self, function: str, *, timeout: float, **arguments: Any) -> Any:  # noqa: ARG002
        """Call the stand-in for a function of the agent.

        :raises NotFound: if there is none.
        """
        return the(self.functions, function)(**arguments)

    def run(
        self,
        argv: tuple[str, ...],  # noqa: ARG002
        stdin: bytes = b"",  # noqa: ARG002
        *,
        timeout: float,  # noqa: ARG002
    ) -> CommandResult:
        """Return that the command succeeded."""
        return CommandResult(0)

    def read_file(self, path: str, *, timeout: float) -> bytes:  # noqa: ARG002
        """Return a file's content."""
        return the(self.substrate.files, path)

    def netlink(self, netns: str | None = None) -> AbstractContextManager[Any]:  # noqa: ARG002
        """Refuse: there is no kernel in memory."""
        raise Unsupported("a host in memory has no kernel", where=self.host)
