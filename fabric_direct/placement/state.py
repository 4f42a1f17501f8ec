"""The state of a host as placement sees it: capacity, usage, free devices."""

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
    """A free device, with all of its functions."""

    type: str
    functions: tuple[PciAddress, ...]
    """One for a VF; all of its functions for another device."""
    model: str | None = None
    numa_node: int | None = None
    uplink: str | None = None
    """The network interface of a VF's PF."""
    vepa: bool = False
    """Whether the uplink is in VEPA, or will be after its first use."""


@dataclass(frozen=True, slots=True)
class HostState:
    """The state of one host.

    Totals exclude what the host reserves for itself. Free capacity is the total times the allocation
    ratio, less what is used.
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
    """The free devices."""
    architectures: frozenset[str] = frozenset()
    """Empty if unknown; no architecture is refused then."""
    traits: frozenset[str] = frozenset()
    """As os-traits names them: ``HW_CPU_X86_AVX2``, ``CUSTOM_…``."""
    images: frozenset[str] | None = None
    """Cached images; None if unknown."""
    slivers: Mapping[str, str | None] = field(default_factory=dict)
    """The slivers on the host, with their owners."""
    enabled: bool = True
    why_disabled: str = ""
    """The reason given for the maintenance."""
