"""Which devices of a host serve which needs of an instance."""

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
    """(n,): whether all are free and what is asked for, and no two needs want the same device."""
    on: NDArray[np.int16]
    """(n, m + 1, kinds): how many there are of each kind on each node."""


class Chosen(NamedTuple):
    """What an instance gets of a host."""

    devices: dict[ComponentId, tuple[int, ...]]
    """By their numbers in ``hardware``."""
    node: int | None
    """The NUMA node that it must be on, by its place among the host's."""

    def numa_node(self, hosts: Hosts, row: int) -> int | None:
        """Return the number that the node has on the host."""
        return None if self.node is None else hosts.hardware.node_ids[row][self.node]

    def functions(self, hosts: Hosts, needs: Needs) -> dict[ComponentId, tuple[PciAddress, ...]]:
        """Return the functions for each component: those that it named, or all of its device."""
        return {
            need.component: need.bdf or hosts.hardware.functions[self.devices[need.component][0]]
            for need in needs.devices
        }

    def all(self) -> list[int]:
        """Return all devices."""
        return [device for devices in self.devices.values() for device in devices]


def named(hosts: Hosts, needs: Needs) -> Named:
    """Return what there is of the devices whose functions are named."""
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
    """Return (n,): whether a device of each host, -1 for none, is free and serves a need."""
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
    """Return (…): whether there are devices for all demands at once.

    :param free: (…, kinds).
    :param unions: of :meth:`~fabric_direct.placement.hardware.Hardware.unions`.
    """
    there = np.ones(free.shape[:-1], np.bool_)
    for union in unions:
        there &= free[..., union.kinds].sum(axis=-1) >= union.number
    return there


def fit(hosts: Hosts, needs: Needs) -> Bools:
    """Return (n,): whether a host has all devices free that an instance needs, on whatever nodes."""
    unions = hosts.hardware.unions(needs.devices)
    if not _names_functions(needs):
        return enough(hosts.free, unions)
    given = named(hosts, needs)
    left = hosts.free - given.on.sum(axis=1, dtype=np.int16)
    return given.there & enough(left, unions)


def fit_on(hosts: Hosts, needs: Needs) -> Bools:
    """Return (n, m): which NUMA nodes have cores, memory and all devices that an instance needs."""
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
    """Return (n, m): how far the devices are from an instance whose memory is on a node.

    The mean of the SLIT distances to all devices, the nearest that will do being taken; each set of
    interchangeable needs by itself. Infinite where a node has not the memory.
    """
    mean = np.empty(hosts.node_size.shape[:2])
    for topology, those, rows in _by_topology(hosts) if mean.size else ():
        mean[rows] = _distance(those, needs, hosts.hardware.slit[topology])
    mean[hosts.node_size[:, :, 1] < needs.capacities.ram] = np.inf
    return mean


def _by_topology(hosts: Hosts) -> Iterator[tuple[int, Hosts, Ints | slice]]:
    """Yield each topology, the hosts that have it, and their places among all."""
    first, last = int(hosts.topology.min()), int(hosts.topology.max())
    if first == last:
        yield first, hosts, EVERY
        return
    for topology in np.unique(hosts.topology):
        rows = np.flatnonzero(hosts.topology == topology)
        yield int(topology), hosts.rows(rows), rows


def _distance(hosts: Hosts, needs: Needs, slit: NDArray[np.int16]) -> Floats:
    """Return (n, m) for hosts whose nodes are as far from each other as ``slit`` (m, m + 1) says."""
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
    """Return (n,): the sum of distances to as many of the free devices (n, m + 1), the nearest ones."""
    left = number.copy()
    total = np.zeros(len(free), np.int64)
    for node in np.argsort(distances, kind="stable"):
        taken = np.minimum(left, free[:, node])
        total += taken * int(distances[node])
        left -= taken
    return total


def choose(one: Hosts, needs: Needs, node: int | None = None) -> Chosen:
    """Return the devices of a host that has them for an instance.

    A need of any model gets the most plentiful one; beside that, devices are near to each other and to
    memory, and on the node with fewest others, so that larger sets stay whole.

    :param one: the host alone.
    :param node: the NUMA node, by its place among the host's, if it is known and one is wanted.
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
    """Return the NUMA nodes of a host that have all that an instance needs, by their own numbers."""
    ids = one.hardware.node_ids[int(one.index[0])]
    return {ids[node] for node in np.flatnonzero(fit_on(one, needs)[0])}


def _node_of(one: Hosts, needs: Needs) -> int:
    """Return the node that an instance goes to: fewest devices left, then fewest cores."""
    cores = one.node_promised[0, :, 0] - one.node_used[0, :, 0]
    devices = one.free_on[0, :-1].sum(axis=1)
    fitting = np.flatnonzero(fit_on(one, needs)[0])
    return int(min(fitting, key=lambda node: (devices[node], cores[node])))


def _nearest_node(one: Hosts, needs: Needs) -> int | None:
    """Return the node whose memory is nearest to devices that will do."""
    far = distance(one, needs)[0]
    devices = one.free_on[0, :-1].sum(axis=1)
    order = sorted(range(len(far)), key=lambda node: (far[node], devices[node]))
    return order[0] if order else None


def _named_devices(one: Hosts, need: DeviceNeed) -> tuple[int, ...]:
    columns = [one.hardware.column[address] for address in need.bdf]
    return tuple(sorted({int(device) for device in one.function_device[0, columns]}))


def _wishes(one: Hosts, need: DeviceNeed, free: Iterable[int], near: int | None) -> list[int]:
    """Return the devices that serve a need, the preferred ones first."""
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
    """Return a device for each need, no device twice: augmenting paths (Kuhn's algorithm)."""
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
