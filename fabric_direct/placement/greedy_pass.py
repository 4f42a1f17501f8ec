"""Instances assigned one after the other, in one order; each sees what those before it left."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fabric_direct.model import ComponentId, PciAddress
from fabric_direct.placement.affinity_groups import Unit
from fabric_direct.placement.arrays import Bools, Hosts, Ints, each
from fabric_direct.placement.devices import choose, enough
from fabric_direct.placement.plan import Assignment, Choice
from fabric_direct.placement.plugins import Rules
from fabric_direct.placement.request import Needs, Request
from fabric_direct.placement.scores import IMPOSSIBLE, Verdicts, costs, update, verdicts


class Untouched:
    """Hosts of which nothing is taken, and what is said of them to each of the needs of a batch."""

    def __init__(self, hosts: Hosts, rules: Rules, batch: Iterable[Unit]) -> None:
        self.hosts, self.rules = hosts, rules
        numbers: dict[Needs, int] = {}
        self.number: dict[str, int] = {}
        """Of each request: the number of its needs."""
        self.uses: list[int] = []
        """How many requests have the same needs."""
        for request in (request for unit in batch for request in unit.requests):
            number = numbers.setdefault(request.needs, len(numbers))
            self.uses += [0] * (len(numbers) - len(self.uses))
            self.number[request.id] = number
            self.uses[number] += 1
        self._columns = hosts.rows()
        self._said: dict[int, Verdicts] = {}

    def ease(self, unit: Unit) -> tuple[int, ...]:
        """Return how easily a unit is placed: how many hosts can take its first, how small it is."""
        hosts = int((self.verdicts(unit.requests[0]).refused == 0).sum())
        return hosts, *(-size for size in unit.size)

    def verdicts(self, request: Request) -> Verdicts:
        """Return what is said of all hosts.

        :raises Faulty: if a filter or cost of another package cannot be used.
        """
        number = self.number[request.id]
        if number not in self._said:
            self._said[number] = verdicts(self._columns, request.needs, self.rules)
        return self._said[number]


@dataclass(frozen=True)
class Placed:
    """An instance has a host."""

    request: Request
    cost: int
    costs: dict[str, int]
    host: str
    devices: dict[ComponentId, tuple[PciAddress, ...]]
    numa_node: int | None
    next: tuple[str, ...]

    def assignment(self) -> Assignment:
        """Return it as a value of the plan."""
        chosen = Choice(
            host=self.host,
            cost=self.cost,
            costs=self.costs,
            devices=self.devices,
            numa_node=self.numa_node,
        )
        return Assignment(request=self.request.id, chosen=chosen, next=self.next)


State = tuple[Hosts, dict[str, Placed], int]
"""The hosts, what is placed on them, and how often one was taken of."""


class Attempt:
    """Units placed in one order.

    :param retries: how many other hosts are noted for each instance, and tried for a unit that turns
        out not to fit where there seemed to be room for it.
    :raises Faulty: if a filter or cost of another package cannot be used.
    """

    def __init__(self, untouched: Untouched, order: Iterable[Unit], retries: int) -> None:
        self._untouched, self._rules, self._retries = untouched, untouched.rules, retries
        self._hosts = untouched.hosts.copied()
        self._columns = self._hosts.rows()
        self._known: dict[int, Verdicts] = {}
        self._uses = list(untouched.uses)
        self._taken: list[int] = []
        self.placed: dict[str, Placed] = {}
        self.refused: dict[str, dict[str, int]] = {}
        """For those that fit nowhere: by filter, how many hosts it was the first to refuse."""
        for unit in order:
            self._place_all(unit)

    @property
    def cost(self) -> int:
        """The summed cost."""
        return sum(placed.cost for placed in self.placed.values())

    def _place_all(self, unit: Unit) -> None:
        if len(unit.requests) == 1:
            self._place(unit.requests[0])
        elif unit.requests:
            self._place_together(unit)

    def _place_together(self, unit: Unit) -> None:
        before = self._state()
        lost = self._try_hosts(unit, before)
        gone = unit.stranded(lost) if lost else lost
        if gone != lost:
            self._undo(before)
            self.refused |= {id_: {"affinity": len(self._hosts)} for id_ in gone - lost}
            self._place_all(unit.without(gone))

    def _try_hosts(self, unit: Unit, before: State) -> set[str]:
        """Place a unit on the cheapest host that takes it whole, or else on the cheapest one.

        Return those that fit nowhere.
        """
        room = self._room(unit)
        left, lost = room.copy(), self._place_each(unit, room)
        for _ in range(self._retries):
            left &= ~self._columns.is_named(self._host_of(unit))
            if not lost or not left.any():
                break
            self._undo(before)
            lost = self._place_each(unit, left)
        if lost:
            self._undo(before)
            lost = self._place_each(unit, room)
        return lost

    def _place_each(self, unit: Unit, room: Bools) -> set[str]:
        """Place the instances of a unit; return those that fit nowhere."""
        for request in unit.requests:
            self.refused.pop(request.id, None)
            self._place(request, room if request is unit.requests[0] else None)
        return {request.id for request in unit.requests if request.id in self.refused}

    def _host_of(self, unit: Unit) -> str:
        first = self.placed.get(unit.requests[0].id)
        return first.host if first else ""

    def _state(self) -> State:
        return self._hosts.copied(), dict(self.placed), len(self._taken)

    def _undo(self, state: State) -> None:
        """Go back to an earlier state; hosts that were taken of since are to be asked about again."""
        hosts, placed, taken = state
        self._hosts = hosts.copied()
        self._columns = self._hosts.rows()
        self.placed = dict(placed)
        self._taken += self._taken[taken:]

    def _place(self, request: Request, room: Bools | None = None) -> None:
        said = self._verdicts(request)
        cost = said.cost
        if room is not None and (room & (said.refused == 0)).any():
            cost = np.where(room, cost, IMPOSSIBLE)
        rows = list(_cheapest(cost, 1 + self._retries))
        if rows:
            self._take(rows[0], request, int(cost[rows[0]]), rows[1:])
        else:
            self.refused[request.id] = said.refusals(self._rules)
        self._forget(request)

    def _verdicts(self, request: Request) -> Verdicts:
        number = self._untouched.number[request.id]
        if number not in self._known:
            self._known[number] = self._untouched.verdicts(request).copied()
        update(self._known[number], self._columns, request.needs, self._rules, self._taken)
        return self._known[number]

    def _forget(self, request: Request) -> None:
        number = self._untouched.number[request.id]
        self._uses[number] -= 1
        if self._uses[number] <= 0:
            del self._known[number]

    def _take(self, row: int, request: Request, cost: int, others: Sequence[int]) -> None:
        hosts, names = self._hosts, self._hosts.names
        one = hosts.rows(np.array([row]))
        chosen = choose(one, request.needs)
        self.placed[request.id] = Placed(
            request=request,
            cost=cost,
            costs=costs(one, request.needs, self._rules)[0],
            host=names[row],
            devices=chosen.functions(hosts, request.needs),
            numa_node=chosen.numa_node(hosts, row),
            next=tuple(names[other] for other in others),
        )
        hosts.take(row, request, chosen.all(), chosen.node)
        self._taken.append(row)

    def _room(self, unit: Unit) -> Bools:
        """Return (n,): whether a host looks as if it could take all instances of a unit."""
        hosts, (first, *_) = self._columns, unit.requests
        room = each(hosts.promised - hosts.used >= np.array(unit.size))
        room &= enough(hosts.free, hosts.hardware.demands(unit.devices))
        for needs in {request.needs for request in unit.requests[1:]}:
            alone = _not_following(needs, first.id)
            room &= verdicts(hosts, alone, self._rules).refused == 0
        return room


def _not_following(needs: Needs, first: str) -> Needs:
    affinity = tuple(sliver for sliver in needs.rules.affinity if sliver != first)
    rules = needs.rules.model_copy(update={"affinity": affinity})
    return needs.model_copy(update={"rules": rules})


def _cheapest(cost: Ints, most: int) -> Iterator[int]:
    """Yield the numbers of the cheapest hosts, the first by name of equally cheap ones first."""
    left = cost.copy()
    for _ in range(min(most, len(left))):
        best = int(left.argmin())
        if left[best] == IMPOSSIBLE:
            return
        yield best
        left[best] = IMPOSSIBLE
