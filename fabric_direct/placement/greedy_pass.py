"""One greedy pass: assign instances in a given order, each to the host that is cheapest by then."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from fabric_direct.placement.affinity_groups import AffinityGroup
from fabric_direct.placement.arrays import Bools, Hosts, Ints, each
from fabric_direct.placement.devices import choose, enough
from fabric_direct.placement.plan import Assignment, Choice
from fabric_direct.placement.plugins import Rules
from fabric_direct.placement.request import Needs, Request
from fabric_direct.placement.scores import IMPOSSIBLE, Scores, costs, rescore, score


class InitialScores:
    """The scores of all hosts before anything of the batch is assigned, for each distinct needs."""

    def __init__(self, hosts: Hosts, rules: Rules, batch: Iterable[AffinityGroup]) -> None:
        self.hosts, self.rules = hosts, rules
        numbers: dict[Needs, int] = {}
        self.number = {
            request.id: numbers.setdefault(request.needs, len(numbers))
            for group in batch
            for request in group.requests
        }
        """By request id: the number of its needs."""
        self._columns = hosts.rows()
        self._scores: dict[int, Scores] = {}

    def ease(self, group: AffinityGroup) -> tuple[int, ...]:
        """Return a sort key: groups that few hosts can take come first, then large ones."""
        hosts = int((self.of(group.requests[0]).refused == 0).sum())
        return hosts, *(-size for size in group.size)

    def of(self, request: Request) -> Scores:
        """Return the scores of all hosts for a request.

        :raises Faulty: if a filter or cost of another package fails.
        """
        number = self.number[request.id]
        if number not in self._scores:
            self._scores[number] = score(self._columns, request.needs, self.rules)
        return self._scores[number]


State = tuple[Hosts, dict[str, Assignment], int]
"""The hosts, the assignments so far, and the length of the log of assignments."""


class GreedyPass:
    """Affinity groups assigned in one order.

    :param retries: number of alternative hosts that are recorded for each instance, and that are tried
        for a group that turns out not to fit on a host that seemed to have room.
    :raises Faulty: if a filter or cost of another package fails.
    """

    def __init__(
        self, initial: InitialScores, order: Iterable[AffinityGroup], retries: int
    ) -> None:
        self._initial, self._rules, self._retries = initial, initial.rules, retries
        self._hosts = initial.hosts.copied()
        self._columns = self._hosts.rows()
        self._scores: dict[int, Scores] = {}
        self._uses = Counter(initial.number.values())
        """By the number of needs: how many requests that have them are still to be assigned."""
        self._log: list[int] = []
        """The host of each assignment, undone ones included."""
        self.assigned: dict[str, Assignment] = {}
        self.refused: dict[str, dict[str, int]] = {}
        """Requests that fit nowhere: by filter, the number of hosts that it was the first to refuse."""
        for group in order:
            self._assign_group(group)

    @property
    def cost(self) -> int:
        """The total cost."""
        return sum(assignment.chosen.cost for assignment in self.assigned.values())

    def _assign_group(self, group: AffinityGroup) -> None:
        if len(group.requests) == 1:
            self._assign(group.requests[0])
        elif group.requests:
            self._assign_together(group)

    def _assign_together(self, group: AffinityGroup) -> None:
        before = self._hosts.copied(), dict(self.assigned), len(self._log)
        lost = self._try_hosts(group, before)
        gone = group.stranded(lost) if lost else lost
        if gone != lost:
            self._undo(before)
            self.refused |= {id_: {"affinity": len(self._hosts)} for id_ in gone - lost}
            self._assign_group(group.without(gone))

    def _try_hosts(self, group: AffinityGroup, before: State) -> set[str]:
        """Assign a group to the cheapest host that takes all of it, or else to the cheapest one.

        Return the ids that fit nowhere.
        """
        room = self._room(group)
        left, lost = room.copy(), self._assign_each(group, room)
        for _ in range(self._retries):
            left &= ~self._columns.is_named(self._host_of(group))
            if not lost or not left.any():
                break
            self._undo(before)
            lost = self._assign_each(group, left)
        if lost:
            self._undo(before)
            lost = self._assign_each(group, room)
        return lost

    def _assign_each(self, group: AffinityGroup, room: Bools) -> set[str]:
        """Assign the instances of a group; return the ids that fit nowhere."""
        for request in group.requests:
            self.refused.pop(request.id, None)
            self._assign(request, room if request is group.requests[0] else None)
        return {request.id for request in group.requests if request.id in self.refused}

    def _host_of(self, group: AffinityGroup) -> str:
        first = self.assigned.get(group.requests[0].id)
        return first.chosen.place if first else ""

    def _undo(self, state: State) -> None:
        """Go back to an earlier state; hosts that were assigned since are logged to be scored again."""
        hosts, assigned, logged = state
        self._hosts = hosts.copied()
        self._columns = self._hosts.rows()
        self.assigned = dict(assigned)
        self._log += self._log[logged:]

    def _assign(self, request: Request, room: Bools | None = None) -> None:
        scores = self._current(request)
        cost = scores.cost
        if room is not None and (room & (scores.refused == 0)).any():
            cost = np.where(room, cost, IMPOSSIBLE)
        rows = list(_cheapest(cost, 1 + self._retries))
        if rows:
            self._take(rows[0], request, int(cost[rows[0]]), rows[1:])
        else:
            self.refused[request.id] = scores.refusals(self._rules)
        self._release(request)

    def _current(self, request: Request) -> Scores:
        number = self._initial.number[request.id]
        if number not in self._scores:
            self._scores[number] = self._initial.of(request).copied()
        rescore(self._scores[number], self._columns, request.needs, self._rules, self._log)
        return self._scores[number]

    def _release(self, request: Request) -> None:
        """Free the scores of needs that no later request has."""
        number = self._initial.number[request.id]
        self._uses[number] -= 1
        if self._uses[number] <= 0:
            del self._scores[number]

    def _take(self, row: int, request: Request, cost: int, others: Sequence[int]) -> None:
        hosts, names = self._hosts, self._hosts.names
        one = hosts.rows(np.array([row]))
        devices = choose(one, request.needs)
        # Not validated: these are our own values, and validation takes a fifth of a pass.
        chosen = Choice.model_construct(
            host=names[row],
            cost=cost,
            costs=costs(one, request.needs, self._rules)[0],
            devices=devices.functions(hosts, request.needs),
            numa_node=devices.numa_node(hosts, row),
        )
        self.assigned[request.id] = Assignment.model_construct(
            request=request.id, chosen=chosen, next=tuple(names[other] for other in others)
        )
        hosts.take(row, request, devices.all(), devices.node)
        self._log.append(row)

    def _room(self, group: AffinityGroup) -> Bools:
        """Return (n,): whether a host seems to have room for all instances of a group."""
        hosts, (first, *_) = self._columns, group.requests
        room = each(hosts.promised - hosts.used >= np.array(group.size))
        room &= enough(hosts.free, hosts.hardware.demands(group.devices))
        for needs in {request.needs for request in group.requests[1:]}:
            alone = _not_following(needs, first.id)
            room &= score(hosts, alone, self._rules).refused == 0
        return room


def _not_following(needs: Needs, first: str) -> Needs:
    affinity = tuple(sliver for sliver in needs.rules.affinity if sliver != first)
    rules = needs.rules.model_copy(update={"affinity": affinity})
    return needs.model_copy(update={"rules": rules})


def _cheapest(cost: Ints, most: int) -> Iterator[int]:
    """Yield the rows of the cheapest hosts; ties are broken by name."""
    left = cost.copy()
    for _ in range(min(most, len(left))):
        best = int(left.argmin())
        if left[best] == IMPOSSIBLE:
            return
        yield best
        left[best] = IMPOSSIBLE
