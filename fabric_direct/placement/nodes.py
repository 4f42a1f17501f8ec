"""Place bare-metal slivers on nodes, each of which has room for one.

Which node a sliver can have, and which it prefers, is said by
:mod:`fabric_direct.drivers.contract.node_choice` alone. So placement gives a single sliver the node that
its creation would take.

A batch is a matching of slivers and nodes. Slivers are added in the order given, each by the path that
takes the smallest node more, whichever of the earlier ones moves to it. So no plan places more slivers,
and none that places these takes smaller nodes; an earlier sliver is never given up for a later one.
Nodes are bits of an integer, the smallest first: 10,000 of them are joined in less than a microsecond.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from fabric_direct.drivers.contract import BareMetalNode, NodeCondition
from fabric_direct.drivers.contract.node_choice import (
    MOST_NAMED,
    never,
    order_of,
    shape_of,
    taken,
    unfit,
    why_not,
)
from fabric_direct.errors import InvalidSliver
from fabric_direct.model.bare_metal import BareMetalSliver, NodeNeeds
from fabric_direct.placement.plan import (
    Assignment,
    BuildPlan,
    Choice,
    Explanation,
    NodeScore,
    Unplaced,
)
from fabric_direct.placement.refusals import outdated


def place_nodes(
    slivers: Sequence[BareMetalSliver],
    nodes: Sequence[BareMetalNode],
    *,
    partial: bool = False,
    alternatives: int = 0,
) -> BuildPlan:
    """Return the build plan of a batch of bare-metal slivers.

    :param nodes: all nodes of the site; one that is not free has no room.
    :param partial: whether to assign as many as fit; all or none otherwise.
    :param alternatives: the number of other nodes that an assignment names.
    :raises InvalidSliver: with the field, if no node of the site could ever serve a sliver, or an id is
        given twice.
    """
    _refuse_twins(slivers)
    batch = _Batch(slivers, nodes)
    assigned = batch.node_of if partial or len(batch.node_of) == len(slivers) else {}
    return BuildPlan(
        assignments=tuple(
            Assignment(
                request=slivers[number].id,
                chosen=_choice(batch.nodes[assigned[number]]),
                next=batch.others(number, alternatives),
            )
            for number in sorted(assigned)
        ),
        unplaced=tuple(
            batch.unplaced(number) for number in range(len(slivers)) if number not in batch.node_of
        ),
    )


def explain_nodes(sliver: BareMetalSliver, nodes: Sequence[BareMetalNode]) -> Explanation:
    """Return for each node whether the sliver can have it, and if not, why."""
    scores = [_score(node, sliver.needs) for node in sorted(nodes, key=order_of)]
    can = [score for score in scores if score.refused_by is None]
    cannot = [score for score in scores if score.refused_by is not None]
    return Explanation(nodes=(*can, *sorted(cannot, key=lambda score: score.node)))


def check_nodes(
    plan: BuildPlan, slivers: Sequence[BareMetalSliver], nodes: Sequence[BareMetalNode]
) -> None:
    """Raise Conflict unless every node of a plan can still be given to its sliver.

    :param nodes: as they are now, without what is promised to others.
    :raises Conflict: with the first that cannot, and why.
    """
    by_id = {sliver.id: sliver for sliver in slivers}
    by_name = {node.name: node for node in nodes}
    given: dict[str, str] = {}
    for assignment in plan.assignments:
        name, sliver = str(assignment.chosen.node), by_id[assignment.request]
        if name not in by_name:
            raise outdated(sliver.id, name, "there is no such node any more")
        for _, why in why_not(by_name[name], sliver.needs):
            raise outdated(sliver.id, name, why)
        if name in given:
            raise outdated(sliver.id, name, f"the plan gives it to {given[name]}, too")
        given[name] = sliver.id


def promised(node: BareMetalNode, sliver: str) -> BareMetalNode:
    """Return a free node as one that a sliver has; any other unchanged."""
    if node.condition is not NodeCondition.FREE:
        return node
    return replace(node, condition=NodeCondition.RESERVED, tenant=sliver)


def _refuse_twins(slivers: Sequence[BareMetalSliver]) -> None:
    for twice in (id_ for id_, number in Counter(s.id for s in slivers).items() if number > 1):
        raise InvalidSliver(f"{twice} is given twice", field="id")


def _choice(node: BareMetalNode) -> Choice:
    cores = node.cores or 0
    return Choice(node=node.name, cost=cores, costs={"cores": cores})


def _score(node: BareMetalNode, needs: NodeNeeds) -> NodeScore:
    reasons = list(why_not(node, needs))
    if not reasons:
        return NodeScore(node=node.name, cost=node.cores or 0)
    why = "; ".join(each for _, each in reasons)
    return NodeScore(node=node.name, refused_by=reasons[0][0], why=why)


@dataclass(frozen=True, slots=True)
class _Fit:
    """What fits slivers of equal needs."""

    nodes: int
    refused: dict[str, int]
    """The others, by the field that rules them out first."""


class _Batch:
    """The matching of one batch."""

    def __init__(self, slivers: Sequence[BareMetalSliver], nodes: Sequence[BareMetalNode]) -> None:
        self.nodes = sorted(nodes, key=order_of)
        self.node_of: dict[int, int] = {}
        """By the number of the sliver."""
        self._slivers, self._given = slivers, nodes
        numbers: dict[NodeNeeds, int] = {}
        self._needs = [numbers.setdefault(each.needs, len(numbers)) for each in slivers]
        """The number of each sliver's needs; most have the same as others."""
        self._holder: dict[int, int] = {}
        """By the number of the node: the sliver that has it."""
        shapes = self._shapes(numbers)
        self._fits = [self._fit(shapes, needs) for needs in numbers]
        self._free = sum(
            1 << row for row, node in enumerate(self.nodes) if node.condition is NodeCondition.FREE
        )
        self._taken = 0
        self._held = [0] * len(numbers)
        """The nodes of all slivers of equal needs."""
        for number in range(len(slivers)):
            self._assign(number)

    def _shapes(self, every: Iterable[NodeNeeds]) -> list[tuple[BareMetalNode, int, int]]:
        """Return for each shape one of its nodes, all of them, and how many they are."""
        names = {needs.node for needs in every if needs.node is not None}
        macs = {mac for needs in every for mac in needs.macs}
        members: dict[Hashable, list[int]] = defaultdict(list)
        for row, node in enumerate(self.nodes):
            members[shape_of(node, names, macs)].append(row)
        return [
            (self.nodes[rows[0]], sum(1 << row for row in rows), len(rows))
            for rows in members.values()
        ]

    def _fit(self, shapes: Iterable[tuple[BareMetalNode, int, int]], needs: NodeNeeds) -> _Fit:
        """Return which nodes fit, whether they are free or not.

        :raises InvalidSliver: if there is none.
        """
        nodes, refused = 0, Counter[str]()
        for node, members, number in shapes:
            first = next(unfit(node, needs), None)
            if first is None:
                nodes |= members
            else:
                refused[first[0]] += number
        if not nodes:
            raise never(self._given, needs)
        return _Fit(nodes, dict(refused))

    def _assign(self, first: int) -> None:
        """Give a node to a sliver; others may get another one for that."""
        reached, steps = 0, list[tuple[int, int]]()
        seen, queue = set[int](), deque([first])
        while queue:
            number = queue.popleft()
            needs = self._needs[number]
            if needs in seen:
                continue
            seen.add(needs)
            more = self._fits[needs].nodes & ~reached
            reached |= more
            steps.append((more, number))
            queue.extend(self._holders(more))
        free = reached & self._free
        if free:
            self._shift(_lowest(free), steps)

    def _holders(self, nodes: int) -> Iterator[int]:
        """Yield one sliver of each needs, of those that have some of these nodes."""
        left = nodes & self._taken
        while left:
            number = self._holder[_lowest(left)]
            yield number
            left &= ~self._held[self._needs[number]]

    def _shift(self, node: int, steps: Sequence[tuple[int, int]]) -> None:
        """Give a free node to who reached it, what that had to who reached that, and so on."""
        self._free ^= 1 << node
        self._taken |= 1 << node
        before: int | None = node
        while before is not None:
            node = before
            number = next(number for more, number in steps if more >> node & 1)
            before = self.node_of.get(number)
            self.node_of[number], self._holder[node] = node, number
            self._held[self._needs[number]] ^= (1 << node) | (0 if before is None else 1 << before)

    def others(self, number: int, most: int) -> tuple[str, ...]:
        """Return the free nodes that a sliver could have as well, the smallest first."""
        left, found = self._fits[self._needs[number]].nodes & self._free, list[str]()
        while left and len(found) < most:
            found.append(self.nodes[_lowest(left)].name)
            left &= left - 1
        return tuple(found)

    def unplaced(self, number: int) -> Unplaced:
        """Return why a sliver got no node, after all others got theirs."""
        fit = self._fits[self._needs[number]]
        first, every = islice(_bits(fit.nodes), MOST_NAMED), fit.nodes.bit_count()
        return Unplaced(
            request=self._slivers[number].id,
            refused=fit.refused | {"condition": every},
            why=taken([self._now(row) for row in first], every),
        )

    def _now(self, row: int) -> BareMetalNode:
        """Return a node, reserved if a sliver of the batch got it."""
        if row not in self._holder:
            return self.nodes[row]
        return promised(self.nodes[row], self._slivers[self._holder[row]].id)


def _bits(value: int) -> Iterator[int]:
    while value:
        yield _lowest(value)
        value &= value - 1


def _lowest(value: int) -> int:
    return (value & -value).bit_length() - 1
