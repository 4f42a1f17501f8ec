"""The resources of a host, and the driver that runs programs on it."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class HostCapacity:
    """The total resources of a host, used or not."""

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
    """To each node, as in ACPI's SLIT: 10 is the distance to itself."""


@dataclass(frozen=True, slots=True)
class HostInventory:
    """The resources that a host has for servers, and those that its servers use, whoever made them."""

    host: str
    cores: int
    """Total; as ``ram`` and ``disk``, without what the host reserves for itself."""
    ram: int
    """MiB."""
    disk: int
    """GiB."""
    cores_used: int = 0
    """Allocated to servers, running or not."""
    ram_used: int = 0
    """MiB."""
    disk_used: int = 0
    """GiB."""
    cpu_ratio: float | None = None
    """Overcommit ratio that the API allows; None if it does not say."""
    ram_ratio: float | None = None
    disk_ratio: float | None = None
    nodes: tuple[HostNode, ...] = ()
    architectures: frozenset[str] = frozenset()
    """Guest architectures that it runs; empty if it does not say."""
    traits: frozenset[str] = frozenset()
    """Names from os-traits."""
    images: frozenset[str] | None = None
    """Names of the images that are stored there; None if it does not say."""
    slivers: Mapping[str, str | None] = field(default_factory=dict)
    """The slivers whose servers it runs, with their owners."""
    enabled: bool = True
    why_disabled: str = ""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of a command on a host or in a guest."""

    code: int
    stdout: bytes = b""
    stderr: bytes = b""


class HostDriver(Protocol):
    """Runs functions and commands on a worker.

    The functions of :mod:`fabric_direct.drivers.hosts.agent` run there: over SSH, or in this process if
    the host is this machine.
    """

    def call(self, function: str, *, timeout: float, **arguments: Any) -> Any:
        """Call a function on the worker: ``pci.survey``, for example.

        Arguments and answer are JSON values.

        :param timeout: seconds until an answer.
        :raises Unreachable: if the worker does not answer, or the connection breaks during the call.
        :raises Denied: if the worker rejects the login, or the function lacks a permission (EPERM,
            EACCES).
        :raises NotFound: if the object of the function does not exist (ENOENT, ENODEV).
        :raises Unsupported: if the kernel or device does not support it (EOPNOTSUPP, ENOTTY).
        :raises TimedOut: if there is no answer in time.
        :raises DriverError: with the message of any other error there.
        """

    def run(self, argv: tuple[str, ...], stdin: bytes = b"", *, timeout: float) -> CommandResult:
        """Run a command without a shell; it is killed after ``timeout`` seconds."""

    def read_file(self, path: str, *, timeout: float) -> bytes:
        """Return the content of a file."""

    def netlink(self, netns: str | None = None) -> AbstractContextManager[Any]:
        """Return a pyroute2 ``IPRoute`` on the worker's kernel, for one thread and one ``with`` block.

        :param netns: name of a network namespace there; the host's own if absent.
        """
