"""What a host has, and what only a program on it can do."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class HostCapacity:
    """What a host has in all, used or not."""

    cores: int
    ram: int
    """MiB."""
    disk: int
    """GiB, free where volumes are kept."""


@dataclass(frozen=True, slots=True)
class HostNode:
    """A NUMA node of a host."""

    id: int
    cores: int
    ram: int
    """MiB."""
    distances: Mapping[int, int] = field(default_factory=dict)
    """To each node, as ACPI's SLIT has it: 10 is its own."""


@dataclass(frozen=True, slots=True)
class HostInventory:
    """What a host has for servers, and what those that are there take of it, whoever made them."""

    host: str
    cores: int
    """As ``ram`` and ``disk``: in all, without what the host keeps for itself."""
    ram: int
    """MiB."""
    disk: int
    """GiB."""
    cores_used: int = 0
    """Promised to servers, running or not."""
    ram_used: int = 0
    """MiB."""
    disk_used: int = 0
    """GiB."""
    cpu_ratio: float | None = None
    """How much of it the API lets be promised; None: it does not say."""
    ram_ratio: float | None = None
    disk_ratio: float | None = None
    nodes: tuple[HostNode, ...] = ()
    architectures: frozenset[str] = frozenset()
    """Whose machines it runs; empty: it does not say."""
    traits: frozenset[str] = frozenset()
    """As os-traits names them."""
    images: frozenset[str] | None = None
    """Names of the images that are at hand there; None: it does not say."""
    slivers: Mapping[str, str | None] = field(default_factory=dict)
    """The slivers that it has a server of, and their owners."""
    enabled: bool = True
    why_disabled: str = ""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a command on a host or in a guest came to."""

    code: int
    stdout: bytes = b""
    stderr: bytes = b""


class HostDriver(Protocol):
    """What only a program on the worker can do.

    The functions of :mod:`fabric_direct.drivers.hosts.agent` run there: over SSH, or in place if the
    host is this machine.
    """

    def call(self, function: str, *, timeout: float, **arguments: Any) -> Any:
        """Call a function on the worker: ``pci.survey``, for example.

        Arguments and answer are JSON values.

        :param timeout: seconds until an answer.
        :raises Unreachable: if the worker does not answer, or its connection breaks in the call.
        :raises Denied: if it does not let us in, or the function lacks a right (EPERM, EACCES).
        :raises NotFound: if what the function is about is not there (ENOENT, ENODEV).
        :raises Unsupported: if the kernel or device does not know how (EOPNOTSUPP, ENOTTY).
        :raises TimedOut: if no answer came in time.
        :raises DriverError: in the words of any other error there.
        """

    def run(self, argv: tuple[str, ...], stdin: bytes = b"", *, timeout: float) -> CommandResult:
        """Run a command; no shell reads its arguments. It is ended after ``timeout`` seconds."""

    def read_file(self, path: str, *, timeout: float) -> bytes:
        """Return the content of a file."""

    def write_file(self, path: str, content: bytes, mode: int = 0o600, *, timeout: float) -> None:
        """Replace a file in one step, and make its directory."""

    def netlink(self, netns: str | None = None) -> AbstractContextManager[Any]:
        """Give a pyroute2 ``IPRoute`` that speaks with the worker's kernel, for one thread and block.

        :param netns: name of a network namespace there; the host's own if absent.
        """
