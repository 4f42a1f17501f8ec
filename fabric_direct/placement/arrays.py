"""Hosts as NumPy columns, for filters and costs.

The first axis of every column is the hosts in the order of their names. An assignment updates the
columns, so that the next instance sees what is left.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from fabric_direct.calls.forks import cached_property
from fabric_direct.errors import InvalidSite
from fabric_direct.model import Capacities, PciAddress, PlacementRules
from fabric_direct.placement.hardware import Hardware
from fabric_direct.placement.request import Request
from fabric_direct.placement.state import HostState

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
A = TypeVar("A")
EVERY = slice(None)
"""All rows."""

UNKNOWN, AT_HAND, ABSENT = 0, 1, 2
"""Whether a host has an image."""


class NameSets:
    """A set of names for each host; equal sets are stored once."""

    def __init__(self, sets: Iterable[frozenset[str]]) -> None:
        numbers: dict[frozenset[str], int] = {}
        codes = [numbers.setdefault(names, len(numbers)) for names in sets]
        self.codes = np.array(codes, dtype=np.int64)
        """The number of each host's set."""
        self._sets = tuple(numbers)
        self._with: dict[str, Bools] = {}

    def having(self, name: str) -> Bools:
        """Return (sets,): whether a set contains the name."""
        if name not in self._with:
            self._with[name] = np.array([name in names for names in self._sets], dtype=np.bool_)
        return self._with[name]

    @cached_property
    def empty(self) -> Bools:
        """(sets,): whether a set is empty."""
        return np.array([not names for names in self._sets], dtype=np.bool_)


class Column(Generic[A]):
    """A column of :class:`Hosts`; if only some rows are left, it is computed at the first access."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, hosts: "Hosts", owner: type | None = None) -> A:
        values: A = hosts.some_rows(self._name)
        hosts.__dict__[self._name] = values
        return values


@dataclass
class Lookup:
    """The part of :class:`Hosts` that does not depend on the rows."""

    hardware: Hardware
    row: Mapping[str, int]
    traits: NameSets
    architectures: NameSets
    image_column: Mapping[str, int]
    owner_column: Mapping[str, int]
    slivers: dict[str, list[int]]

    def copied(self) -> "Lookup":
        """Return a copy that assignments change independently."""
        slivers = {sliver: list(rows) for sliver, rows in self.slivers.items()}
        return replace(self, hardware=self.hardware.copied(), slivers=slivers)


class Hosts:
    """Hosts as columns; ``n`` is their number, ``m`` the largest number of NUMA nodes of one.

    The columns are read-only for filters and costs. :meth:`rows` selects some hosts: its columns are
    shorter, and the result of a filter or cost for a host must not depend on the other rows. For
    ``kinds`` of devices see :mod:`~fabric_direct.placement.hardware`.
    """

    names = Column[NDArray[np.object_]]()
    """(n,), sorted."""
    index = Column[Ints]()
    """(n,): the number of each host among all hosts of the batch."""
    enabled = Column[Bools]()
    """(n,)"""
    size = Column[Floats]()
    """(n, 3): cores, GiB of RAM, GiB of disk that the host has; none is negative."""
    promised = Column[Floats]()
    """(n, 3): the size times the allocation ratios."""
    used = Column[Floats]()
    """(n, 3): usage; more than ``promised`` if the host is over-committed."""
    node_size = Column[Floats]()
    """(n, m, 2): cores and GiB of RAM of each NUMA node; 0 if the host has fewer nodes."""
    node_promised = Column[Floats]()
    """(n, m, 2): the size times the allocation ratios."""
    node_used = Column[Floats]()
    """(n, m, 2): used by instances of this batch that must be on one node."""
    topology = Column[Ints]()
    """(n,): the number of the host's SLIT in ``hardware.slit``."""
    free_on = Column[NDArray[np.int16]]()
    """(n, m + 1, kinds): free devices on each NUMA node; the last row is those without a known node."""
    free = Column[NDArray[np.int16]]()
    """(n, kinds): free devices."""
    function_device = Column[NDArray[np.int32]]()
    """(n, functions that the batch names): the device that has the function, -1 if none."""
    images = Column[NDArray[np.uint8]]()
    """(n, images of the batch); see :meth:`image`."""
    owners = Column[Bools]()
    """(n, owners of the batch); see :meth:`owner`."""
    trait_set = Column[Ints]()
    """(n,); see :meth:`trait`."""
    architecture_set = Column[Ints]()
    """(n,); see :meth:`architecture`."""

    def __init__(self, lookup: Lookup, columns: Mapping[str, NDArray[Any]]) -> None:
        self._lookup = lookup
        self.hardware, self.row = lookup.hardware, lookup.row
        """The devices of all hosts of the batch; the number of each host by its name."""
        self._whole: Hosts = self
        self._rows: Ints | slice = EVERY
        self.__dict__.update(columns)

    def __len__(self) -> int:
        return len(self.index)

    def rows(self, rows: Ints | slice = EVERY) -> "Hosts":
        """Return some hosts, read-only; those of a slice follow later assignments."""
        part = Hosts(self._lookup, {})
        part._whole, part._rows = self, rows
        return part

    def some_rows(self, column: str) -> Any:
        """Return a column of the hosts that :meth:`rows` selected."""
        values = getattr(self._whole, column)[self._rows]
        values.setflags(write=False)
        return values

    def copied(self) -> "Hosts":
        """Return a copy of the hosts that assignments change independently."""
        lookup = self._lookup.copied()
        columns = {name: getattr(self, name) for name in _COLUMNS}
        return Hosts(lookup, columns | {name: columns[name].copy(order="K") for name in _TAKEN_OF})

    def trait(self, name: str) -> Bools:
        """Return (n,): whether a host has a trait."""
        return self._lookup.traits.having(name)[self.trait_set]

    def architecture(self, name: str) -> Bools:
        """Return (n,): whether a host runs an architecture, or its architectures are unknown."""
        fits = self._lookup.architectures.having(name) | self._lookup.architectures.empty
        return fits[self.architecture_set]

    def image(self, name: str) -> NDArray[np.uint8]:
        """Return (n,) of ``UNKNOWN``, ``AT_HAND``, ``ABSENT`` for an image that the batch names."""
        column = self._lookup.image_column.get(name)
        return np.zeros(len(self), np.uint8) if column is None else self.images[:, column]

    def owner(self, name: str) -> Bools:
        """Return (n,): whether a host has a sliver of an owner that the batch names."""
        column = self._lookup.owner_column.get(name)
        return np.zeros(len(self), np.bool_) if column is None else self.owners[:, column]

    def have(self, sliver: str) -> Bools:
        """Return (n,): whether a host has a sliver that the batch names."""
        return self.have_any((sliver,))

    def have_any(self, slivers: Iterable[str]) -> Bools:
        """Return (n,): whether a host has any of some slivers that the batch names."""
        where = [self._lookup.slivers.get(sliver, []) for sliver in slivers]
        there = np.zeros(len(self.row), np.bool_)
        there[list(chain.from_iterable(where))] = True
        having: Bools = there[self.index]
        return having

    def is_named(self, name: str) -> Bools:
        """Return (n,): whether a host has that name."""
        named: Bools = self.index == self.row.get(name, -1)
        return named

    def is_free(self, row: int, function: PciAddress) -> bool:
        """Return whether a function that the batch names belongs to a free device of a host."""
        device = self.function_device[row, self.hardware.column[function]]
        return bool(device >= 0 and self.hardware.free[device])

    def take(self, row: int, request: Request, devices: Sequence[int], node: int | None) -> None:
        """Assign an instance to a host.

        :param devices: its devices by their numbers in ``hardware``.
        :param node: index of its NUMA node in ``node_size``, if it must be on one.
        """
        needs = request.needs
        self.used[row] += sizes(needs.capacities)
        if node is not None:
            self.node_used[row, node] += sizes(needs.capacities)[:2]
        for device in devices:
            self._take_device(row, device)
        self._take_names(row, request)

    def _take_device(self, row: int, device: int) -> None:
        self.hardware.free[device] = False
        kind, node = self.hardware.kind[device], self.hardware.node[device]
        self.free[row, kind] -= 1
        self.free_on[row, node, kind] -= 1

    def _take_names(self, row: int, request: Request) -> None:
        if request.id in self._lookup.slivers:
            self._lookup.slivers[request.id].append(row)
        self.image(request.needs.image)[row] = AT_HAND
        if request.needs.owner is not None:
            self.owner(request.needs.owner)[row] = True


_COLUMNS = tuple(name for name, value in vars(Hosts).items() if isinstance(value, Column))
_TAKEN_OF = ("used", "node_used", "free_on", "free", "images", "owners")


def sizes(capacities: Capacities) -> Floats:
    """Return cores, GiB of RAM, GiB of disk."""
    return np.array([capacities.core, capacities.ram, capacities.disk], dtype=np.float64)


def each(truths: Bools) -> Bools:
    """Return (n,) of (n, …): whether all values of a host are true."""
    return np.asarray(truths.all(axis=1), dtype=np.bool_)


def columns(states: Iterable[HostState], requests: Sequence[Request] = ()) -> Hosts:
    """Return hosts as columns, for a batch of requests.

    :raises InvalidSite: if a host is given twice.
    """
    ordered = sorted(states, key=lambda state: state.name)
    row = {state.name: number for number, state in enumerate(ordered)}
    _refuse_twins(ordered)
    devices = [need for request in requests for need in request.needs.devices]
    hardware = Hardware(ordered, devices)
    nodes = _nodes(ordered, hardware.nodes)
    ratios = _matrix([[s.cpu_ratio, s.ram_ratio, s.disk_ratio] for s in ordered], 3)
    size = _matrix([[s.cores, s.ram, s.disk] for s in ordered], 3)
    lookup = Lookup(
        hardware=hardware,
        row=row,
        traits=NameSets(state.traits for state in ordered),
        architectures=NameSets(state.architectures for state in ordered),
        image_column=_numbered(request.needs.image for request in requests),
        owner_column=_numbered(r.needs.owner for r in requests if r.needs.owner is not None),
        slivers=_whereabouts(ordered, [request.needs.rules for request in requests]),
    )
    free_on = hardware.free_on(len(ordered))
    values = {
        "names": np.array([state.name for state in ordered], dtype=np.object_),
        "index": np.arange(len(ordered)),
        "enabled": np.array([state.enabled for state in ordered], dtype=np.bool_),
        "size": size,
        "promised": _rounded(size * ratios),
        "used": _rounded(_matrix([[s.cores_used, s.ram_used, s.disk_used] for s in ordered], 3)),
        "node_size": nodes,
        "node_promised": _rounded(nodes * ratios[:, np.newaxis, :2]),
        "node_used": np.zeros_like(nodes),
        "topology": hardware.topology,
        "free_on": free_on,
        "free": free_on.sum(axis=1, dtype=np.int16),
        "function_device": hardware.function_device(len(ordered)),
        "images": _image_columns(ordered, lookup.image_column),
        "owners": _owner_columns(ordered, lookup.owner_column),
        "trait_set": lookup.traits.codes,
        "architecture_set": lookup.architectures.codes,
    }
    return Hosts(lookup, {name: np.asfortranarray(column) for name, column in values.items()})


def _refuse_twins(ordered: Sequence[HostState]) -> None:
    for one, other in pairwise(ordered):
        if one.name == other.name:
            raise InvalidSite(f"the host {one.name} is there twice", field="hosts")


def _matrix(rows: list[list[float]], width: int) -> Floats:
    """Return (n, width); NaN, infinite and negative values count as 0."""
    values = np.array(rows, dtype=np.float64).reshape(len(rows), width)
    return np.maximum(np.nan_to_num(values, posinf=0.0), 0.0)


def _rounded(values: Floats) -> Floats:
    """Round to multiples of 2⁻²⁰ (of a GiB: 1 KiB), so that sums have no rounding errors."""
    return np.round(values * 2**20) / 2**20


def _nodes(ordered: Sequence[HostState], most: int) -> Floats:
    empty = [0.0, 0.0]
    sizes_of = (
        [[node.cores, node.ram] for node in sorted(state.numa_nodes, key=lambda node: node.id)]
        for state in ordered
    )
    padded = [nodes + [empty] * (most - len(nodes)) for nodes in sizes_of]
    flat = _matrix([node for nodes in padded for node in nodes], 2)
    return flat.reshape(len(ordered), most, 2)


def _numbered(names: Iterable[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(dict.fromkeys(names))}


def _image_columns(ordered: Sequence[HostState], columns: Mapping[str, int]) -> NDArray[np.uint8]:
    values = np.full((len(ordered), len(columns)), UNKNOWN, dtype=np.uint8)
    for row, state in enumerate(ordered):
        if state.images is not None:
            values[row] = ABSENT
            values[row, [columns[name] for name in state.images if name in columns]] = AT_HAND
    return values


def _owner_columns(ordered: Sequence[HostState], columns: Mapping[str, int]) -> Bools:
    values = np.zeros((len(ordered), len(columns)), dtype=np.bool_)
    for row, state in enumerate(ordered):
        for owner in state.slivers.values():
            if owner is not None and owner in columns:
                values[row, columns[owner]] = True
    return values


def _whereabouts(
    ordered: Sequence[HostState], rules: Iterable[PlacementRules]
) -> dict[str, list[int]]:
    """Return the rows of the hosts that have each sliver that rules name."""
    where: dict[str, list[int]] = {s: [] for r in rules for s in (*r.affinity, *r.anti_affinity)}
    for row, state in enumerate(ordered) if where else ():
        for sliver in state.slivers.keys() & where.keys():
            where[sliver].append(row)
    return where
