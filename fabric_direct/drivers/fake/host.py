"""A host's files in memory."""

from fabric_direct.drivers.base import (
    CommandResult,
)
from fabric_direct.drivers.fake.substrate import Fake, the


class FakeHost(Fake):
    """A :class:`~fabric_direct.drivers.base.HostDriver` in memory: it keeps files."""

    kind = "host"

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
