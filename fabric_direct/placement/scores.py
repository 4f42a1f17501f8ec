"""The results of filters and costs for all hosts, updated as instances are assigned."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabric_direct.placement.arrays import Hosts, Ints
from fabric_direct.placement.plugins import Rules
from fabric_direct.placement.request import Needs

IMPOSSIBLE = np.iinfo(np.int64).max
"""The cost of a host that a filter refuses."""


@dataclass
class Scores:
    """The scores of all hosts for one set of needs."""

    refused: NDArray[np.uint8]
    """(n,): the number of the first filter that refuses the host, from 1; 0 if none does."""
    cost: Ints
    """(n,): the weighted sum of costs, or ``IMPOSSIBLE``."""
    seen: int = 0
    """Number of assignments that are included."""

    def copied(self) -> "Scores":
        """Return a copy that can be updated independently."""
        return Scores(self.refused.copy(), self.cost.copy(), self.seen)

    def refusals(self, rules: Rules) -> dict[str, int]:
        """Return by filter the number of hosts that it was the first to refuse."""
        counts = np.bincount(self.refused, minlength=len(rules.filters) + 1)[1:]
        named = zip(rules.filters, counts, strict=True)
        return {name: int(count) for name, count in named if count}


def score(hosts: Hosts, needs: Needs, rules: Rules) -> Scores:
    """Apply all filters to the hosts, and all costs to those that pass.

    :raises Faulty: if a filter or cost of another package fails.
    """
    refused = np.zeros(len(hosts), np.uint8)
    for number, rule in enumerate(rules.filters.values(), 1):
        passes = rule(hosts, needs)
        if not passes.all():
            refused[~passes & (refused == 0)] = number
    cost = np.full(len(hosts), IMPOSSIBLE)
    passing = np.flatnonzero(refused == 0)
    if len(passing):
        those = hosts if len(passing) == len(hosts) else hosts.rows(passing)
        cost[passing] = _weighted(those, needs, rules)
    return Scores(refused, cost)


def _weighted(hosts: Hosts, needs: Needs, rules: Rules) -> Ints:
    total = np.zeros(len(hosts), np.int64)
    for name, rule in rules.costs.items():
        total += rule(hosts, needs) * rules.weights[name]
    return total


def costs(hosts: Hosts, needs: Needs, rules: Rules) -> list[dict[str, int]]:
    """Return the costs of each host by the name of the cost, before weights."""
    columns = [rule(hosts, needs) for rule in rules.costs.values()]
    rows = np.array(columns, dtype=np.int64).reshape(len(columns), len(hosts)).T.tolist()
    return [dict(zip(rules.costs, row, strict=True)) for row in rows]


def rescore(scores: Scores, hosts: Hosts, needs: Needs, rules: Rules, log: list[int]) -> None:
    """Update the scores of the hosts that got instances since the last update.

    :param log: the row of the host of each assignment so far.
    """
    rows = np.array(list(set(log[scores.seen :])), dtype=np.int64)
    if len(rows):
        now = score(hosts.rows(rows), needs, rules)
        scores.refused[rows], scores.cost[rows] = now.refused, now.cost
    scores.seen = len(log)
