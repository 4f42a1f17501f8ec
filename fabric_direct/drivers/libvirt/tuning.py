"""Which host CPUs and NUMA nodes a domain's CPUs and memory are on."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from xml.etree import ElementTree

import libvirt

from fabric_direct.config import Site
from fabric_direct.drivers.libvirt.connection import connect, translated
from fabric_direct.drivers.libvirt.domain import scope
from fabric_direct.errors import InvalidSliver, NotVerified

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


class LibvirtTuning:
    """The :class:`~fabric_direct.drivers.base.TuningDriver` of a libvirt host.

    A domain is looked up by name alone, whoever made it: Nova's are, where OpenStack is the compute.

    :param site: the site.
    :param host: name of the host in the site.
    """

    def __init__(self, site: Site, host: str) -> None:
        self._uri = site.host(host).libvirt

    def cpu_info(self, instance: str) -> dict[str, Any]:
        """Return ``{"vcpus": [{"vcpu", "cpu", "state", "cpu_time", "affinity"}], "host_cpus"}``.

        ``cpu_time`` is in nanoseconds; ``affinity`` lists host CPUs. From virDomainGetVcpus.

        :raises NotFound: if there is no such domain.
        :raises DriverError: if it does not run.
        """
        with self._domain("read the CPUs", instance) as domain:
            vcpus, affinities = domain.vcpus()
            return {
                "vcpus": [_vcpu(*both) for both in zip(vcpus, affinities, strict=True)],
                "host_cpus": domain.connect().getInfo()[2],
            }

    def numa_info(self, instance: str) -> dict[str, Any]:
        """Return ``{"nodes": [{"node", "memory", "free", "cpus"}], "node_set", "mode"}``.

        ``memory`` and ``free`` are in MiB, of the host's nodes (virNodeGetMemoryStats); ``node_set`` is
        in libvirt's form, for example ``0-1,3``, and empty if the domain may use all.

        :raises NotFound: if there is no such domain.
        """
        with self._domain("read the NUMA nodes", instance) as domain:
            tuning = domain.numaParameters()
            return {
                "nodes": _nodes(domain.connect()),
                "node_set": tuning[_NODESET],
                "mode": _MODES[tuning[libvirt.VIR_DOMAIN_NUMA_MODE]],
            }

    def pin_cpus(self, instance: str, pins: dict[int, int]) -> None:
        """Pin virtual CPUs to host CPUs, now and for later starts, and read it back.

        :param pins: number of the virtual CPU to number of the host CPU.
        :raises InvalidSliver: if a CPU does not exist or is offline; none is pinned then.
        :raises NotFound: if there is no such domain.
        :raises NotVerified: if libvirt says otherwise afterwards.
        """
        with self._domain("pin the CPUs", instance) as domain:
            online = domain.connect().getCPUMap()[1]
            _refuse_unknown("virtual CPU", pins.keys(), set(range(domain.info()[3])))
            _refuse_unknown(
                "host CPU", pins.values(), {n for n, is_on in enumerate(online) if is_on}
            )
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
            _refuse_unknown("NUMA node", nodes, known)
            if not nodes:
                raise InvalidSliver("no NUMA node is given", field="nodes")
            wanted = ",".join(str(node) for node in sorted(nodes))
            # libvirt takes one scope at a time here.
            for flag in _scopes(domain):
                domain.setNumaParameters({_NODESET: wanted}, flag)
                self._verify_nodes(domain, nodes, flag)

    def _verify_pin(self, domain: libvirt.virDomain, vcpu: int, wanted: tuple[bool, ...]) -> None:
        for flag in _scopes(domain):
            if tuple(domain.vcpuPinInfo(flag)[vcpu]) != wanted:
                raise NotVerified(f"virtual CPU {vcpu} is not pinned as asked", where=self._uri)

    def _verify_nodes(self, domain: libvirt.virDomain, wanted: frozenset[int], flag: int) -> None:
        found = domain.numaParameters(flag)[_NODESET]
        if _node_set(found) != wanted:
            raise NotVerified(f"memory is taken from the nodes {found!r}", where=self._uri)

    @contextmanager
    def _domain(self, what: str, instance: str) -> Iterator[libvirt.virDomain]:
        with translated(f"{what} of domain {instance}", self._uri):
            yield connect(self._uri).lookupByName(instance)


def _scopes(domain: libvirt.virDomain) -> list[int]:
    both = (libvirt.VIR_DOMAIN_AFFECT_LIVE, libvirt.VIR_DOMAIN_AFFECT_CONFIG)
    return [flag for flag in both if scope(domain) & flag]


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
    return [_node(connection, cell) for cell in capabilities.iterfind("host/topology/cells/cell")]


def _node(connection: libvirt.virConnect, cell: ElementTree.Element) -> dict[str, Any]:
    number = int(cell.attrib["id"])
    memory = connection.getMemoryStats(number)
    return {
        "node": number,
        "memory": memory[libvirt.VIR_NODE_MEMORY_STATS_TOTAL] // 1024,
        "free": memory[libvirt.VIR_NODE_MEMORY_STATS_FREE] // 1024,
        "cpus": [int(cpu.attrib["id"]) for cpu in cell.iterfind("cpus/cpu")],
    }


def _only(cpu: int, cpus: int) -> tuple[bool, ...]:
    return tuple(number == cpu for number in range(cpus))


def _refuse_unknown(what: str, asked: Iterable[int], known: set[int]) -> None:
    for number in asked:
        if number not in known:
            field = "nodes" if what == "NUMA node" else "pins"
            why = f"known: {', '.join(str(n) for n in sorted(known))}"
            raise InvalidSliver(f"there is no {what} {number}", why=why, field=field)


def _node_set(text: str) -> frozenset[int]:
    """Read libvirt's form of a set, for example ``0-1,3``."""
    ranges = [part.partition("-") for part in text.split(",") if part]
    return frozenset(n for low, _, high in ranges for n in range(int(low), int(high or low) + 1))
