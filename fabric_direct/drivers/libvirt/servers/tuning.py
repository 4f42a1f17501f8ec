"""CPU pinning and NUMA placement of domains."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from xml.etree import ElementTree

import libvirt

from fabric_direct.calls.read_cache import warn
from fabric_direct.drivers.contract.tuning import node_set, refuse_unknown
from fabric_direct.drivers.hosts.choice import host_driver
from fabric_direct.drivers.libvirt.connection.connections import connect, translated
from fabric_direct.drivers.libvirt.domains.lookup import CELLS, scope, scopes
from fabric_direct.errors import FabricDirectError, InvalidSliver, NotVerified
from fabric_direct.site.config import Site

_VCPU_STATES = {
    libvirt.VIR_VCPU_OFFLINE: "offline",
    libvirt.VIR_VCPU_RUNNING: "running",
    libvirt.VIR_VCPU_BLOCKED: "blocked",
}
_MODES = {
    libvirt.VIR_DOMAIN_NUMATUNE_MEM_STRICT: "strict",
    libvirt.VIR_DOMAIN_NUMATUNE_MEM_PREFERRED: "preferred",
    libvirt.VIR_DOMAIN_NUMATUNE_MEM_INTERLEAVE: "interleave",
    libvirt.VIR_DOMAIN_NUMATUNE_MEM_RESTRICTIVE: "restrictive",
}
_NODESET = libvirt.VIR_DOMAIN_NUMA_NODESET
_PINS, _NODES = "data.vcpu_cpu_map", "data.node_set"
"""Fields of the actions' data."""
_PID_FILE = "/run/libvirt/qemu/{}.pid"
_PAGES = re.compile(r"\bN(\d+)=(\d+)")
_PAGE_SIZE = re.compile(r"\bkernelpagesize_kB=(\d+)")


class LibvirtTuning:
    """The :class:`~fabric_direct.drivers.contract.TuningDriver` of a libvirt host.

    A domain is looked up by name alone, whoever made it: Nova's are, where OpenStack is the compute.

    :param site: the site.
    :param host: name of the host in the site.
    """

    def __init__(self, site: Site, host: str) -> None:
        self._site, self._host = site, host
        self._uri = site.host(host).libvirt

    def cpu_info(self, instance: str) -> dict[str, Any]:
        """Return ``{"vcpus": [{"vcpu", "cpu", "state", "cpu_time", "affinity"}], …}``.

        Also ``host_cpus``, their number, and ``pinned``, the host CPUs of other running domains.
        ``cpu_time`` is in nanoseconds; ``affinity`` lists host CPUs. From virDomainGetVcpus and
        virDomainGetVcpuPinInfo.

        :raises NotFound: if there is no such domain.
        :raises DriverError: if it does not run.
        """
        with self._domain("read the CPUs", instance) as domain:
            vcpus, affinities = domain.vcpus()
            return {
                "vcpus": [_vcpu(*both) for both in zip(vcpus, affinities, strict=True)],
                "host_cpus": domain.connect().getInfo()[2],
                "pinned": sorted(_pinned(domain)),
            }

    def numa_info(self, instance: str) -> dict[str, Any]:
        """Return ``{"nodes": [{"node", "memory", "free", "cpus"}], "node_set", "mode", "usage"}``.

        ``memory`` and ``free`` are in MiB, of the host's nodes (virNodeGetMemoryStats); ``node_set`` is
        in libvirt's form, for example ``0-1,3``, and empty if the domain may use all. ``usage`` is the
        memory of QEMU's process on each node in MiB, by kind, from ``/proc/<pid>/numa_maps``; None,
        with a warning, if that cannot be read.

        :raises NotFound: if there is no such domain.
        """
        with self._domain("read the NUMA nodes", instance) as domain:
            tuning, runs = domain.numaParameters(), bool(domain.isActive())
            found = {
                "nodes": _nodes(domain.connect()),
                "node_set": tuning[_NODESET],
                "mode": _MODES[tuning[libvirt.VIR_DOMAIN_NUMA_MODE]],
            }
        return {**found, "usage": self._usage(instance) if runs else {}}

    def pin_cpus(self, instance: str, pins: dict[int, int]) -> None:
        """Pin virtual CPUs to host CPUs, now and for later starts, and read it back.

        :param pins: number of the virtual CPU to number of the host CPU.
        :raises InvalidSliver: if a CPU does not exist or is offline; none is pinned then.
        :raises NotFound: if there is no such domain.
        :raises NotVerified: if libvirt says otherwise afterwards.
        """
        with self._domain("pin the CPUs", instance) as domain:
            online = domain.connect().getCPUMap()[1]
            there = {n for n, is_on in enumerate(online) if is_on}
            refuse_unknown("virtual CPU", pins, range(domain.info()[3]), _PINS)
            refuse_unknown("host CPU", pins.values(), there, _PINS)
            for vcpu, cpu in pins.items():
                domain.pinVcpuFlags(vcpu, _only(cpu, len(online)), scope(domain))
            for vcpu, cpu in pins.items():
                self._verify_pin(domain, vcpu, _only(cpu, len(online)))

    def set_numa_nodes(self, instance: str, nodes: frozenset[int]) -> None:
        """Take memory from these host nodes only, now and for later starts, and read it back.

        :raises InvalidSliver: if a node does not exist, or none is given.
        :raises NotFound: if there is no such domain.
        :raises NotVerified: if libvirt says otherwise afterwards.
        """
        with self._domain("set the NUMA nodes", instance) as domain:
            known = {node["node"] for node in _nodes(domain.connect())}
            refuse_unknown("NUMA node", nodes, known, _NODES)
            if not nodes:
                raise InvalidSliver("no NUMA node is given", field=_NODES)
            wanted = ",".join(str(node) for node in sorted(nodes))
            # libvirt takes one scope at a time here.
            for flag in scopes(domain):
                domain.setNumaParameters({_NODESET: wanted}, flag)
                self._verify_nodes(domain, nodes, flag)

    def _verify_pin(self, domain: libvirt.virDomain, vcpu: int, wanted: tuple[bool, ...]) -> None:
        for flag in scopes(domain):
            if tuple(domain.vcpuPinInfo(flag)[vcpu]) != wanted:
                raise NotVerified(f"virtual CPU {vcpu} is not pinned as asked", where=self._uri)

    def _verify_nodes(self, domain: libvirt.virDomain, wanted: frozenset[int], flag: int) -> None:
        found = domain.numaParameters(flag)[_NODESET]
        if node_set(found) != wanted:
            raise NotVerified(f"memory is taken from the nodes {found!r}", where=self._uri)

    def _usage(self, instance: str) -> dict[int, dict[str, float]] | None:
        host, limit = host_driver(self._site, self._host), self._site.limits.call
        try:
            pid = host.read_file(_PID_FILE.format(instance), timeout=limit).decode()
            maps = host.read_file(f"/proc/{int(pid)}/numa_maps", timeout=limit)
        except FabricDirectError as error:
            warn(f"the memory of {instance} on each node is unknown: {error}")
            return None
        return memory_by_node(maps.decode(errors="replace"))

    @contextmanager
    def _domain(self, what: str, instance: str) -> Iterator[libvirt.virDomain]:
        with translated(f"{what} of domain {instance}", self._uri):
            yield connect(self._uri).lookupByName(instance)


def _vcpu(vcpu: tuple[int, int, int, int], affinity: Iterable[bool]) -> dict[str, Any]:
    number, state, cpu_time, cpu = vcpu
    return {
        "vcpu": number,
        "cpu": cpu,
        "state": _VCPU_STATES[state],
        "cpu_time": cpu_time,
        "affinity": [n for n, allowed in enumerate(affinity) if allowed],
    }


def _nodes(connection: libvirt.virConnect) -> list[dict[str, Any]]:
    capabilities = ElementTree.fromstring(connection.getCapabilities())
    return [_node(connection, cell) for cell in capabilities.iterfind(CELLS)]


def _node(connection: libvirt.virConnect, cell: ElementTree.Element) -> dict[str, Any]:
    number = int(cell.attrib["id"])
    memory = connection.getMemoryStats(number)
    return {
        "node": number,
        "memory": memory[libvirt.VIR_NODE_MEMORY_STATS_TOTAL] // 1024,
        "free": memory[libvirt.VIR_NODE_MEMORY_STATS_FREE] // 1024,
        "cpus": [int(cpu.attrib["id"]) for cpu in cell.iterfind("cpus/cpu")],
    }


def _pinned(domain: libvirt.virDomain) -> set[int]:
    """Return the host CPUs to which exactly one virtual CPU of another running domain is pinned."""
    active = domain.connect().listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE)
    others = [other for other in active if other.UUID() != domain.UUID()]
    pins: list[tuple[bool, ...]] = []
    for other in others:
        with suppress(libvirt.libvirtError):  # it may have ended meanwhile
            pins += other.vcpuPinInfo()
    return {pin.index(True) for pin in pins if sum(pin) == 1}


def memory_by_node(numa_maps: str) -> dict[int, dict[str, float]]:
    """Return a process's memory on each node in MiB, by kind, as ``numastat -p`` counts it."""
    found: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for line in numa_maps.splitlines():
        size, words = _PAGE_SIZE.search(line), set(line.split())
        if size:
            kind = next(
                (k for k in ("huge", "heap", "stack") if k in words), "private"
            ).capitalize()
            for node, pages in _PAGES.findall(line):
                found[int(node)][kind] += int(pages) * int(size[1]) / 1024
    return {node: dict(kinds) for node, kinds in found.items()}


def _only(cpu: int, cpus: int) -> tuple[bool, ...]:
    return tuple(number == cpu for number in range(cpus))
