"""Translate operational actions: the actor's data to ours, and our answers to the form of FABlib.

FABlib expects the output of tools on a worker: ``virsh vcpuinfo`` and ``lscpu`` for ``cpuinfo``,
``numastat`` and ``numactl`` for ``numainfo``. So numbers are strings, and keys have capitals and spaces.
"""

import re
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from fabric_direct.errors import InvalidSliver, NotVerified

# The actor's actions, each with the data that it takes.
ACTIONS: dict[str, tuple[str, ...]] = {
    "cpuinfo": (),
    "numainfo": (),
    "cpupin": ("vcpu_cpu_map",),
    "numatune": ("node_set",),
    "reboot": (),
    "addkey": ("keys",),
    "removekey": ("keys",),
    "rescan": ("bdf",),
}
_OF_NUMBERS = frozenset({"vcpu_cpu_map", "node_set"})
_NUMBER = re.compile("[0-9]{1,9}")
_KINDS = ("Private", "Heap", "Stack", "Huge")


def data_of(asked: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return an action and its data as plain lists and dictionaries.

    :raises InvalidSliver: if there is no such action.
    """
    action = asked.get("operation")
    if not isinstance(action, str) or action not in ACTIONS:
        known = ", ".join(ACTIONS)
        raise InvalidSliver("there is no such operation", field="operation", why=f"known: {known}")
    return action, {name: _data(name, plain(asked.get(name))) for name in ACTIONS[action]}


def _data(name: str, value: Any) -> Any:
    """Return data with numbers for the texts that FABlib sends."""
    return _numbers(value) if name in _OF_NUMBERS else value


def _numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _numbers(each) for name, each in value.items()}
    if isinstance(value, list):
        return [*map(_numbers, value)]
    return int(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else value


def plain(value: Any) -> Any:
    """Return a copy without the classes of a web framework: dictionaries, lists, texts, numbers.

    A model of Swagger's, as fabric_cf up to 1.9 has them in its lists, is the dictionary of its fields.
    """
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items() if v is not None}
    if isinstance(value, str):
        return str(value)
    if hasattr(value, "to_dict"):
        return plain(value.to_dict())
    return [plain(item) for item in value] if isinstance(value, Iterable) else value


def cpu_info(
    host: str, instance: str, cpus: dict[str, Any], numa: dict[str, Any]
) -> dict[str, Any]:
    """Return ``{host: {"CPU(s):", "NUMA node0 CPU(s):", …, "pinned_cpus"}, instance: [{"VCPU", …}]}``.

    :param cpus: a tuning driver's ``cpu_info``.
    :param numa: its ``numa_info``, for the host's nodes.
    """
    nodes = {f"NUMA node{n['node']} CPU(s):": ranges(n["cpus"]) for n in numa["nodes"]}
    about_host = {
        "CPU(s):": str(cpus["host_cpus"]),
        "NUMA node(s):": str(len(nodes)),
        **nodes,
        "pinned_cpus": [str(cpu) for cpu in cpus["pinned"]],
    }
    return {host: about_host, instance: [_vcpu(vcpu) for vcpu in cpus["vcpus"]]}


def _vcpu(vcpu: dict[str, Any]) -> dict[str, str]:
    return {
        "VCPU": str(vcpu["vcpu"]),
        "CPU": str(vcpu["cpu"]),
        "State": vcpu["state"],
        "CPU time": f"{vcpu['cpu_time'] / 1e9:.1f}s",
        "CPU Affinity": ",".join(map(str, vcpu["affinity"])),
    }


def numa_info(host: str, instance: str, numa: dict[str, Any]) -> dict[str, Any]:
    """Return ``{instance: {"Node 0": {"Total", …}, "Total": {…}}, host: {"node 0": {"free", …}, …}}``.

    The instance's numbers are its process's memory on each node of the host, in MiB.

    :raises NotVerified: if they are not known.
    """
    if numa["usage"] is None:
        raise NotVerified(f"the memory that {instance} has on each node cannot be read", where=host)
    nodes = {f"node {n['node']}": _host_node(n) for n in numa["nodes"]}
    numbers = [n["node"] for n in numa["nodes"]]
    available = f"{len(nodes)} nodes ({ranges(numbers)})"
    used = {f"Node {n}": numa["usage"].get(n, {}) for n in numbers}
    table = {name: _with_total(kinds) for name, kinds in used.items()}
    table["Total"] = _with_total(
        {kind: sum(kinds.get(kind, 0) for kinds in used.values()) for kind in _KINDS}
    )
    return {instance: table, host: {"available": available, **nodes}}


def _host_node(node: dict[str, Any]) -> dict[str, str]:
    return {
        "cpus": " ".join(map(str, node["cpus"])),
        "size": f"{node['memory']} MB",
        "free": f"{node['free']} MB",
    }


def _with_total(kinds: Mapping[str, float]) -> dict[str, str]:
    numbers = {kind: kinds.get(kind, 0) for kind in _KINDS}
    return {kind: str(round(n)) for kind, n in (numbers | {"Total": sum(numbers.values())}).items()}


def ranges(numbers: Iterable[int]) -> str:
    """Return numbers as ``lscpu`` writes them: ``0-7,64-71``."""
    ordered = sorted(numbers)
    runs = groupby(enumerate(ordered), key=lambda pair: pair[1] - pair[0])
    ends = [[number for _, number in run] for _, run in runs]
    return ",".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in ends)
