"""What a host has, and what is taken of it: what placement decides by."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fabric_direct.model import PciAddress


@dataclass(frozen=True, slots=True)
class NumaNode:
    """A NUMA node of a host."""

    id: int
    cores: int
    ram: float
    """GiB."""
    distances: Mapping[int, int] = field(default_factory=dict)
    """To each node, as ACPI's SLIT has it: 10 is its own."""


@dataclass(frozen=True, slots=True)
class FreeDevice:
    """A device that may be passed through now, whole."""

    type: str
    functions: tuple[PciAddress, ...]
    """One for a VF; all of its functions for another device."""
    model: str | None = None
    numa_node: int | None = None
    uplink: str | None = None
    """Of a VF: the network interface of its PF."""
    vepa: bool = False
    """Whether that is, or at its first use will be, in VEPA."""


@dataclass(frozen=True, slots=True)
class HostState:
    """One host at one moment.

    What is in all is without what the host keeps for itself. What may be promised is that times the
    allocation ratio, less what is taken.
    """

    name: str
    cores: int
    ram: float
    """GiB."""
    disk: float
    """GiB."""
    cores_used: int = 0
    ram_used: float = 0.0
    """GiB."""
    disk_used: float = 0.0
    """GiB."""
    cpu_ratio: float = 1.0
    ram_ratio: float = 1.0
    disk_ratio: float = 1.0
    numa_nodes: tuple[NumaNode, ...] = ()
    devices: tuple[FreeDevice, ...] = ()
    """Those that are free."""
    architectures: frozenset[str] = frozenset()
    """Empty: unknown, and none is refused."""
    traits: frozenset[str] = frozenset()
    """As os-traits names them: ``HW_CPU_X86_AVX2``, ``CUSTOM_…``."""
    images: frozenset[str] | None = None
    """Images that are at hand; None: unknown."""
    slivers: Mapping[str, str | None] = field(default_factory=dict)
    """The slivers that are on it, and whose they are."""
    enabled: bool = True
    why_disabled: str = ""
    """Maintenance, in the words of whoever took it out of service."""
