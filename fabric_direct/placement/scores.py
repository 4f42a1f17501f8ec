"""What filters and costs say of hosts, kept up to date as instances are assigned."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabric_direct.placement.arrays import Hosts, Ints
from fabric_direct.placement.plugins import Rules
from fabric_direct.placement.request import Needs

IMPOSSIBLE = np.iinfo(np.int64).max
"""The cost of a host that a filter refuses."""


@dataclass
class Verdicts:
    """What is said of all hosts about an instance with some needs."""

    refused: NDArray[np.uint8]
    """(n,): the number of the first filter that refuses the host, from 1; 0 if none does."""
    cost: Ints
    """(n,): the weighted sum, or ``IMPOSSIBLE``."""
    seen: int = 0
    """How many assignments are considered in it."""

    def copied(self) -> "Verdicts":
        """Return the same, to be kept up to date independently."""
        return Verdicts(self.refused.copy(), self.cost.copy(), self.seen)

    def refusals(self, rules: Rules) -> dict[str, int]:
        """Return, by filter, how many hosts it was the first to refuse."""
        counts = np.bincount(self.refused, minlength=len(rules.filters) + 1)[1:]
        named = zip(rules.filters, counts, strict=True)
        return {name: int(count) for name, count in named if count}


def verdicts(hosts: Hosts, needs: Needs, rules: Rules) -> Verdicts:
    """Ask all filters, and all costs about the hosts that pass.

    :raises Faulty: if one of another package cannot be used.
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
    return Verdicts(refused, cost)


def _weighted(hosts: Hosts, needs: Needs, rules: Rules) -> Ints:
    total = np.zeros(len(hosts), np.int64)
    for name, rule in rules.costs.items():
        total += rule(hosts, needs) * rules.weights[name]
    return total


def costs(hosts: Hosts, needs: Needs, rules: Rules) -> list[dict[str, int]]:
    """Return what each cost says of each host, by the cost's name."""
    columns = [rule(hosts, needs) for rule in rules.costs.values()]
    rows = np.array(columns, dtype=np.int64).reshape(len(columns), len(hosts)).T.tolist()
    return [dict(zip(rules.costs, row, strict=True)) for row in rows]


def update(known: Verdicts, hosts: Hosts, needs: Needs, rules: Rules, taken: list[int]) -> None:
    """Ask again about the hosts that were taken of since.

    :param taken: the number of the host of each assignment so far.
    """
    rows = np.array(list(set(taken[known.seen :])), dtype=np.int64)
    if len(rows):
        now = verdicts(hosts.rows(rows), needs, rules)
        known.refused[rows], known.cost[rows] = now.refused, now.cost
    known.seen = len(taken)
