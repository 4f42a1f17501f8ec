"""Match the devices of hosts with the needs of an instance."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabric_direct.model import ComponentId, PciAddress
from fabric_direct.placement.arrays import EVERY, Bools, Floats, Hosts, Ints, sizes
from fabric_direct.placement.hardware import Demand
from fabric_direct.placement.request import DeviceNeed, Needs


class Named(NamedTuple):
    """The devices whose functions the needs name."""

    there: Bools
    """(n,): whether all are free and as requested, and no two needs name the same device."""
    on: NDArray[np.int16]
    """(n, m + 1, kinds): their number by node and kind."""


class Chosen(NamedTuple):
    """The devices and the NUMA node for an instance."""

    devices: dict[ComponentId, tuple[int, ...]]
    """By their numbers in ``hardware``."""
    node: int | None
    """Index of the NUMA node among the host's, if the instance must be on one."""

    def numa_node(self, hosts: Hosts, row: int) -> int | None:
        """Return the host's own id of the NUMA node."""
        return None if self.node is None else hosts.hardware.node_ids[row][self.node]

    def functions(self, hosts: Hosts, needs: Needs) -> dict[ComponentId, tuple[PciAddress, ...]]:
        """Return the functions of each component: those that it names, or all of its device."""
        return {
            need.component: need.bdf or hosts.hardware.functions[self.devices[need.component][0]]
            for need in needs.devices
        }

    def all(self) -> list[int]:
        """Return all devices."""
        return [device for devices in self.devices.values() for device in devices]


def named(hosts: Hosts, needs: Needs) -> Named:
    """Return the devices whose functions the needs name."""
    there = np.ones(len(hosts), np.bool_)
    on = np.zeros_like(hosts.free_on)
    earlier: list[NDArray[np.int32]] = []
    for need in needs.devices:
        mine: list[NDArray[np.int32]] = []
        for address in need.bdf:
            device = hosts.function_device[:, hosts.hardware.column[address]]
            there &= _serves(hosts, device, need) & ~_among(device, earlier)
            _count(hosts, on, device, ~_among(device, mine))
            mine.append(device)
        earlier += mine
    return Named(there, on)


def _names_functions(needs: Needs) -> bool:
    return any(need.bdf for need in needs.devices)


def _serves(hosts: Hosts, device: NDArray[np.int32], need: DeviceNeed) -> Bools:
    """Return (n,): whether a device of each host, -1 for none, is free and satisfies a need."""
    serving = np.zeros(len(hosts.hardware.kinds), np.bool_)
    serving[list(hosts.hardware.serving(need))] = True
    found = np.flatnonzero(device >= 0)
    good = np.zeros(len(hosts), np.bool_)
    number = device[found]
    good[found] = hosts.hardware.free[number] & serving[hosts.hardware.kind[number]]
    return good


def _among(device: NDArray[np.int32], others: Iterable[NDArray[np.int32]]) -> Bools:
    again = np.zeros(len(device), np.bool_)
    for other in others:
        again |= device == other
    return again


def _count(hosts: Hosts, on: NDArray[np.int16], device: NDArray[np.int32], first: Bools) -> None:
    rows = np.flatnonzero((device >= 0) & first)
    number = device[rows]
    on[rows, hosts.hardware.node[number], hosts.hardware.kind[number]] += 1


def enough(free: NDArray[np.int16], unions: Iterable[Demand]) -> Bools:
    """Return (…): whether the free devices are sufficient for all demands at once.

    :param free: (…, kinds).
    :param unions: of :meth:`~fabric_direct.placement.hardware.Hardware.unions`.
    """
    there = np.ones(free.shape[:-1], np.bool_)
    for union in unions:
        there &= free[..., union.kinds].sum(axis=-1) >= union.number
    return there


def fit(hosts: Hosts, needs: Needs) -> Bools:
    """Return (n,): whether a host has all devices free that an instance needs, on any nodes."""
    unions = hosts.hardware.unions(needs.devices)
    if not _names_functions(needs):
        return enough(hosts.free, unions)
    given = named(hosts, needs)
    left = hosts.free - given.on.sum(axis=1, dtype=np.int16)
    return given.there & enough(left, unions)


def fit_on(hosts: Hosts, needs: Needs) -> Bools:
    """Return (n, m): whether a NUMA node has the cores, memory and devices that an instance needs."""
    wanted = sizes(needs.capacities)[:2]
    room = (wanted <= hosts.node_size) & (wanted <= hosts.node_promised - hosts.node_used)
    given = named(hosts, needs)
    total = given.on.sum(axis=(1, 2))[:, np.newaxis]
    here = given.on.sum(axis=2)[:, :-1] == total
    left = (hosts.free_on - given.on)[:, :-1]
    served = enough(left, hosts.hardware.unions(needs.devices))
    fitting: Bools = room.all(axis=2) & here & served & given.there[:, np.newaxis]
    return fitting


def distance(hosts: Hosts, needs: Needs) -> Floats:
    """Return (n, m): the distance of the devices from memory on a node.

    The mean of the SLIT distances to the nearest suitable devices, chosen separately for each set of
    interchangeable needs. Infinite if the node has too little memory.
    """
    mean = np.empty(hosts.node_size.shape[:2])
    for topology, those, rows in _by_topology(hosts) if mean.size else ():
        mean[rows] = _distance(those, needs, hosts.hardware.slit[topology])
    mean[hosts.node_size[:, :, 1] < needs.capacities.ram] = np.inf
    return mean


def _by_topology(hosts: Hosts) -> Iterator[tuple[int, Hosts, Ints | slice]]:
    """Yield each topology, the hosts that have it, and their rows."""
    first, last = int(hosts.topology.min()), int(hosts.topology.max())
    if first == last:
        yield first, hosts, EVERY
        return
    for topology in np.unique(hosts.topology):
        rows = np.flatnonzero(hosts.topology == topology)
        yield int(topology), hosts.rows(rows), rows


def _distance(hosts: Hosts, needs: Needs, slit: NDArray[np.int16]) -> Floats:
    """Return :func:`distance` for hosts of one topology, with the SLIT (m, m + 1)."""
    wanted = [
        (hosts.free_on[:, :, demand.kinds].sum(axis=2), np.full(len(hosts), demand.number))
        for demand in hosts.hardware.demands(needs.devices)
    ]
    if _names_functions(needs):
        given = named(hosts, needs).on.sum(axis=2)
        wanted.append((given, given.sum(axis=1)))
    count = np.maximum(np.sum([number for _, number in wanted], axis=0), 1)
    far = [sum(_nearest(free, number, row) for free, number in wanted) / count for row in slit]
    return np.stack(far, axis=1)


def _nearest(free: Ints, number: Ints, distances: NDArray[np.int16]) -> Ints:
    """Return (n,): the sum of distances to the nearest ``number`` (n,) of free devices (n, m + 1)."""
    left = number.copy()
    total = np.zeros(len(free), np.int64)
    for node in np.argsort(distances, kind="stable"):
        taken = np.minimum(left, free[:, node])
        total += taken * int(distances[node])
        left -= taken
    return total


def choose(one: Hosts, needs: Needs, node: int | None = None) -> Chosen:
    """Choose devices for an instance on a host that has them.

    A need of any model gets the most plentiful one. Devices are chosen near to each other and to memory,
    and on the node with fewest others, so that larger sets remain available.

    :param one: that host only.
    :param node: index of the NUMA node among the host's, if one is required and chosen already.
    """
    if not needs.devices and not needs.rules.same_numa_node:
        return Chosen({}, None)
    on = _node_of(one, needs) if needs.rules.same_numa_node and node is None else node
    near = on if on is not None or not needs.devices else _nearest_node(one, needs)
    devices = {need.component: _named_devices(one, need) for need in needs.devices if need.bdf}
    taken = {device for devices_ in devices.values() for device in devices_}
    free = [device for device in one.hardware.on(int(one.index[0])) if device not in taken]
    if on is not None:
        free = [device for device in free if one.hardware.node[device] == on]
    wanted = [need for need in needs.devices if not need.bdf]
    served = _match([_wishes(one, need, free, near) for need in wanted])
    devices |= {need.component: (served[number],) for number, need in enumerate(wanted)}
    return Chosen(devices, on)


def fitting_nodes(one: Hosts, needs: Needs) -> set[int]:
    """Return the ids of the NUMA nodes of a host that have everything that an instance needs."""
    ids = one.hardware.node_ids[int(one.index[0])]
    return {ids[node] for node in np.flatnonzero(fit_on(one, needs)[0])}


def _node_of(one: Hosts, needs: Needs) -> int:
    """Return the node for an instance: the one with fewest free devices, then fewest free cores."""
    cores = one.node_promised[0, :, 0] - one.node_used[0, :, 0]
    devices = one.free_on[0, :-1].sum(axis=1)
    fitting = np.flatnonzero(fit_on(one, needs)[0])
    return int(min(fitting, key=lambda node: (devices[node], cores[node])))


def _nearest_node(one: Hosts, needs: Needs) -> int | None:
    """Return the node whose memory is nearest to suitable devices."""
    far = distance(one, needs)[0]
    devices = one.free_on[0, :-1].sum(axis=1)
    order = sorted(range(len(far)), key=lambda node: (far[node], devices[node]))
    return order[0] if order else None


def _named_devices(one: Hosts, need: DeviceNeed) -> tuple[int, ...]:
    columns = [one.hardware.column[address] for address in need.bdf]
    return tuple(sorted({int(device) for device in one.function_device[0, columns]}))


def _wishes(one: Hosts, need: DeviceNeed, free: Iterable[int], near: int | None) -> list[int]:
    """Return the devices that satisfy a need, the preferred ones first."""
    hardware = one.hardware
    serving = set(hardware.serving(need))
    slit = None if near is None else hardware.slit[int(one.topology[0]), near]

    def key(device: int) -> tuple[object, ...]:
        kind, node = hardware.kind[device], hardware.node[device]
        far = 0 if slit is None else int(slit[node])
        first = min(hardware.functions[device])
        address = (first.domain, first.bus, first.slot, first.function)
        return -int(hardware.plenty[hardware.group[kind]]), far, address

    return sorted((d for d in free if hardware.kind[d] in serving), key=key)


def _match(wishes: Sequence[Sequence[int]]) -> dict[int, int]:
    """Return a device for each need, no device twice, by augmenting paths (Kuhn's algorithm)."""
    holder: dict[int, int] = {}

    def serve(need: int, asked: set[int]) -> bool:
        for device in sorted(wishes[need], key=holder.__contains__):
            if device not in asked:
                asked.add(device)
                if device not in holder or serve(holder[device], asked):
                    holder[device] = need
                    return True
        return False

    for need in range(len(wishes)):
        serve(need, set())
    return {need: device for device, need in holder.items()}
