"""The free devices of all hosts, numbered and classified.

Devices of one *kind* are interchangeable for the batch: they have the same type and model, and, if a
need asks for them, the same uplink and VEPA mode. The kinds of one type and model are a *group*.
"""

import copy
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabric_direct.model import PciAddress
from fabric_direct.placement.request import DeviceNeed
from fabric_direct.placement.state import FreeDevice, HostState, NumaNode

LOCAL, REMOTE = 10, 20
"""Default SLIT distances of a node to itself and to another: Linux's own
``LOCAL_DISTANCE`` and ``REMOTE_DISTANCE`` (include/linux/topology.h)."""

Devices = tuple[DeviceNeed, ...]


class DeviceKind(NamedTuple):
    """A kind of devices."""

    type: str
    model: str
    """Empty if unknown."""
    uplink: str
    """Empty if no need names it."""
    vepa: bool
    """False if no need asks for it."""

    def serves(self, need: DeviceNeed) -> bool:
        """Return whether a device of this kind satisfies a need."""
        return (
            need.type == self.type
            and need.model in {None, self.model}
            and need.uplink in {None, self.uplink}
            and self.vepa >= need.vepa
        )


class Demand(NamedTuple):
    """A number of devices, each of any of some kinds."""

    kinds: tuple[int, ...]
    number: int


class Hardware:
    """The free devices of all hosts; each has a number.

    :param states: the hosts, in the order of their names.
    :param needs: the devices that the batch asks for.
    """

    def __init__(self, states: Sequence[HostState], needs: Sequence[DeviceNeed]) -> None:
        self.node_ids = [tuple(sorted(node.id for node in state.numa_nodes)) for state in states]
        """By host: the ids of its NUMA nodes."""
        self.nodes = max(map(len, self.node_ids), default=0)
        """The largest number of NUMA nodes of a host."""
        self.topology, self.slit = _topologies(states, self.nodes)
        """By host: the number of its topology; (topologies, nodes, nodes + 1): their SLITs."""
        self._demands: dict[Devices, tuple[Demand, ...]] = {}
        self._unions: dict[Devices, tuple[Demand, ...]] = {}
        self._spared: dict[Devices, NDArray[np.float32]] = {}
        self._number(states, needs)
        self._group(len(states))

    def _number(self, states: Sequence[HostState], needs: Sequence[DeviceNeed]) -> None:
        devices = [list(_each_once(state.devices)) for state in states]
        flat = list(chain.from_iterable(devices))
        self.functions = [device.functions for device in flat]
        """By device."""
        self.host = np.repeat(np.arange(len(states)), [len(some) for some in devices])
        """By device: the number of its host."""
        self.first = np.searchsorted(self.host, np.arange(len(states) + 1))
        """By host: the number of its first device."""
        self.node = np.fromiter(
            chain.from_iterable(map(_places, self.node_ids, devices)), np.int64, len(flat)
        ) % (self.nodes + 1)
        """By device: the index of its NUMA node, or ``nodes`` if that is unknown."""
        self.kinds, self.kind = _kinds(flat, needs)
        """All kinds, sorted; and the number of each device's kind."""
        self.free = np.ones(len(flat), dtype=np.bool_)
        """By device: whether it is free."""
        named = chain.from_iterable(need.bdf for need in needs)
        self.column = {address: number for number, address in enumerate(dict.fromkeys(named))}
        """The column of each function that the needs name."""

    def _group(self, hosts: int) -> None:
        groups = list(dict.fromkeys(kind[:2] for kind in self.kinds))
        self.group = np.array([groups.index(kind[:2]) for kind in self.kinds], dtype=np.int64)
        """By kind: the number of its group."""
        self.members = np.eye(len(groups), dtype=np.float32)[self.group]
        """(kinds, groups): 1 if the kind belongs to the group, else 0."""
        group = self.group[self.kind]
        self.plenty = np.bincount(group, minlength=len(groups))
        """By group: the number of devices."""
        there = np.unique(group * hosts + self.host) // max(hosts, 1)
        without = hosts - np.bincount(there, minlength=len(groups))
        self.rarity = 1000 * without // max(hosts, 1)
        """By group: how many of 1000 hosts have no such device."""

    def copied(self) -> "Hardware":
        """Return a copy that assignments change independently."""
        other = copy.copy(self)
        other.free = self.free.copy()
        return other

    def free_on(self, hosts: int) -> NDArray[np.int16]:
        """Return (hosts, nodes + 1, kinds): the number of devices."""
        shape = (hosts, self.nodes + 1, len(self.kinds))
        flat = (self.host * shape[1] + self.node) * shape[2] + self.kind
        counts = np.bincount(flat, minlength=hosts * shape[1] * shape[2])
        return counts.astype(np.int16).reshape(shape)

    def function_device(self, hosts: int) -> NDArray[np.int32]:
        """Return (hosts, functions that needs name): the device of the function, -1 if none."""
        devices = np.full((hosts, len(self.column)), -1, dtype=np.int32)
        for number, functions in enumerate(self.functions if self.column else ()):
            for address in self.column.keys() & set(functions):
                devices[self.host[number], self.column[address]] = number
        return devices

    def on(self, host: int) -> Iterator[int]:
        """Yield the numbers of a host's free devices."""
        first, last = int(self.first[host]), int(self.first[host + 1])
        yield from (int(number) for number in first + np.flatnonzero(self.free[first:last]))

    def serving(self, need: DeviceNeed) -> tuple[int, ...]:
        """Return the kinds that satisfy a need."""
        return tuple(number for number, kind in enumerate(self.kinds) if kind.serves(need))

    def demands(self, devices: Devices) -> tuple[Demand, ...]:
        """Return the demands of all needs that name no functions, each set of kinds once."""
        if devices not in self._demands:
            counts = Counter(self.serving(need) for need in devices if not need.bdf)
            self._demands[devices] = tuple(Demand(kinds, n) for kinds, n in counts.items())
        return self._demands[devices]

    def unions(self, devices: Devices) -> tuple[Demand, ...]:
        """Return the demands that are together sufficient for all devices at once (Hall's theorem).

        The kinds of any set of demands must have as many devices as the set asks for. Sets without
        common kinds are left out: their parts imply them.
        """
        if devices not in self._unions:
            demands = self.demands(devices)
            sets = chain.from_iterable(
                combinations(demands, size) for size in range(1, len(demands) + 1)
            )
            self._unions[devices] = tuple(map(_union, filter(_overlap, sets)))
        return self._unions[devices]

    def spared(self, devices: Devices) -> NDArray[np.float32]:
        """Return the rarity of each group; 0 for requested groups.

        A need of any model counts as one of the group with most devices.
        """
        if devices not in self._spared:
            rarity = self.rarity.astype(np.float32)
            rarity[[self._commonest(need) for need in devices if self.serving(need)]] = 0
            self._spared[devices] = rarity
        return self._spared[devices]

    def _commonest(self, need: DeviceNeed) -> int:
        groups = self.group[list(self.serving(need))]
        return int(groups[self.plenty[groups].argmax()])


def _overlap(demands: Sequence[Demand]) -> bool:
    return len(demands) == 1 or all(
        any(set(one.kinds) & set(other.kinds) for other in demands if other is not one)
        for one in demands
    )


def _union(demands: Sequence[Demand]) -> Demand:
    kinds = set(chain.from_iterable(demand.kinds for demand in demands))
    return Demand(tuple(sorted(kinds)), sum(demand.number for demand in demands))


def _each_once(devices: Iterable[FreeDevice]) -> Iterator[FreeDevice]:
    """Yield devices without those that share a function with an earlier one."""
    seen: set[PciAddress] = set()
    for device in devices:
        if device.functions and seen.isdisjoint(device.functions):
            seen.update(device.functions)
            yield device


def _places(ids: Sequence[int], devices: Iterable[FreeDevice]) -> list[int]:
    """Return the index of each device's NUMA node among the host's; -1 if it is unknown."""
    places: dict[int | None, int] = {node: place for place, node in enumerate(ids)}
    if len(ids) == 1:
        places[None] = 0
    return [places.get(device.numa_node, -1) for device in devices]


def _kinds(
    devices: Iterable[FreeDevice], needs: Sequence[DeviceNeed]
) -> tuple[tuple[DeviceKind, ...], NDArray[np.int64]]:
    uplinks = {need.uplink for need in needs if need.uplink is not None}
    vepa = any(need.vepa for need in needs)
    each = [
        DeviceKind(
            device.type,
            device.model or "",
            device.uplink if device.uplink in uplinks else "",
            device.vepa and vepa,
        )
        for device in devices
    ]
    kinds = tuple(sorted(set(each)))
    numbers = {kind: number for number, kind in enumerate(kinds)}
    return kinds, np.array([numbers[kind] for kind in each], dtype=np.int64)


def _topologies(
    states: Iterable[HostState], most: int
) -> tuple[NDArray[np.int64], NDArray[np.int16]]:
    """Return the number of each host's topology, and (topologies, nodes, nodes + 1): their SLITs.

    The last column is the distance to a device on no known node.
    """
    numbers: dict[tuple[tuple[int, ...], ...], int] = {}
    codes = [numbers.setdefault(_distances(state.numa_nodes), len(numbers)) for state in states]
    slit = np.full((len(numbers), most, most + 1), REMOTE, dtype=np.int16)
    for rows, number in numbers.items():
        for place, row in enumerate(rows):
            slit[number, place, : len(row)] = row
    return np.array(codes, dtype=np.int64), slit


def _distances(nodes: Iterable[NumaNode]) -> tuple[tuple[int, ...], ...]:
    ordered = sorted(nodes, key=lambda node: node.id)
    return tuple(
        tuple(one.distances.get(other.id, LOCAL if one is other else REMOTE) for other in ordered)
        for one in ordered
    )
