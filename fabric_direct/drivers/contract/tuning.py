"""CPU pinning and NUMA placement of running servers."""

from collections.abc import Collection, Iterable
from typing import Any, Protocol

from fabric_direct.calls.reading import reads
from fabric_direct.errors import InvalidSliver


class TuningDriver(Protocol):
    """Places a running server's CPUs and memory on its host."""

    @reads
    def cpu_info(self, instance: str) -> dict[str, Any]:
        """Return ``{"vcpus": [{"vcpu", "cpu", "state", "cpu_time", "affinity"}], …}``.

        Also ``host_cpus``, the number of host CPUs, and ``pinned``: the host CPUs to which exactly one
        virtual CPU of another running domain is pinned. ``cpu_time`` is in nanoseconds; ``affinity``
        lists host CPUs.
        """

    @reads
    def numa_info(self, instance: str) -> dict[str, Any]:
        """Return ``{"nodes": [{"node", "memory", "free", "cpus"}], "node_set", "mode", "usage"}``.

        ``memory`` and ``free`` are in MiB, of the host's nodes. ``node_set`` is in libvirt's form; see
        :func:`node_set`. ``usage`` is the server's memory on each
        node in MiB, by kind: ``{0: {"Private": 1.5, "Heap": …, "Stack", "Huge"}}``; it is empty while
        the server does not run, and None, with a warning, if it cannot be read.
        """

    def pin_cpus(self, instance: str, pins: dict[int, int]) -> None:
        """Pin virtual CPUs to host CPUs, now and for later starts, and read it back.

        :raises InvalidSliver: if a CPU does not exist.
        """

    def set_numa_nodes(self, instance: str, nodes: frozenset[int]) -> None:
        """Take memory from these host nodes only, now and for later starts, and read it back.

        :raises InvalidSliver: if a node does not exist.
        """


def node_set(text: str) -> frozenset[int]:
    """Read libvirt's form of a set of nodes, for example ``0-1,3``."""
    ranges = [part.partition("-") for part in text.split(",") if part]
    return frozenset(n for low, _, high in ranges for n in range(int(low), int(high or low) + 1))


def refuse_unknown(what: str, asked: Iterable[int], known: Collection[int], field: str) -> None:
    """Raise InvalidSliver if a CPU or NUMA node that an action names is not there.

    :param field: of the action's data.
    """
    for number in asked:
        if number not in known:
            why = f"known: {', '.join(map(str, sorted(known)))}"
            raise InvalidSliver(f"there is no {what} {number}", why=why, field=field)
