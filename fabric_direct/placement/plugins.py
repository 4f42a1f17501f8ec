"""Load filters and costs, the library's own and those of other packages, by entry point.

The groups ``fabric_direct.placement.filters`` and ``.costs`` name functions ``(hosts, needs) -> array``;
:mod:`~fabric_direct.placement.filters` says what they may depend on. If one of another package cannot be
imported, raises, or returns something invalid, it is left out with a warning, so that the site can still
place instances.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points
from itertools import groupby
from typing import Any

import numpy as np

from fabric_direct.errors import InvalidSite
from fabric_direct.placement.arrays import Hosts
from fabric_direct.placement.request import Needs
from fabric_direct.site.config import PlacementSettings

Rule = Callable[[Hosts, Needs], Any]

FILTERS = (
    "in_service",
    "host",
    "capacity",
    "architecture",
    "traits",
    "devices",
    "affinity",
    "anti_affinity",
)
"""The library's filters in the order of their application; others follow by name."""
ESSENTIAL = frozenset({"host", "devices"})
"""Filters that cannot be left out: without them, plans could not be carried out."""
WEIGHTS = {
    "spread": 10,
    "pack": 0,
    "imbalance": 2,
    "numa_distance": 10,
    "scarcity": 30,
    "other_owner": 1,
    "image_not_at_hand": 1,
}
"""Default weights of the library's costs; the default for others is 1."""
LARGEST_COST = 1_000_000
"""Largest cost of a host, before its weight."""


class Faulty(Exception):
    """A filter or cost of another package failed."""

    def __init__(self, kind: str, name: str, why: str) -> None:
        super().__init__(f"the {kind} {name} is left out: {why}")
        self.kind, self.name = kind, name


@dataclass(frozen=True)
class Rules:
    """The filters and costs of a site."""

    filters: dict[str, Rule]
    """In the order of their application."""
    costs: dict[str, Rule]
    """Those with a weight other than 0."""
    weights: dict[str, int]
    warnings: tuple[str, ...] = ()
    """Which ones are left out, and why."""

    def without(self, faulty: Faulty) -> "Rules":
        """Return the rules without one that failed."""
        filters, costs = dict(self.filters), dict(self.costs)
        del (filters if faulty.kind == "filter" else costs)[faulty.name]
        warnings = (*self.warnings, str(faulty))
        return replace(self, filters=filters, costs=costs, warnings=warnings)


def rules(settings: PlacementSettings) -> Rules:
    """Return the filters and costs of a site.

    :raises InvalidSite: if it names one that is not installed, or leaves out an essential one.
    """
    filters, costs = _installed("filter"), _installed("cost")
    _refuse_unknown("without", settings.without, [name for name, _ in filters])
    _refuse_unknown("weights", settings.weights, [name for name, _ in costs])
    for name in ESSENTIAL.intersection(settings.without):
        raise InvalidSite(f"the filter {name} cannot be left out", field="placement.without")
    weights = {name: settings.weights.get(name, WEIGHTS.get(name, 1)) for name, _ in costs}
    asked = [(name, rule) for name, rule in filters if name not in settings.without]
    counted = [(name, rule) for name, rule in costs if weights[name]]
    return Rules(
        filters={name: rule for name, rule in asked if not isinstance(rule, Faulty)},
        costs={name: rule for name, rule in counted if not isinstance(rule, Faulty)},
        weights=weights,
        warnings=tuple(str(rule) for _, rule in (*asked, *counted) if isinstance(rule, Faulty)),
    )


def _refuse_unknown(setting: str, names: Collection[str], known: list[str]) -> None:
    for name in names:
        if name not in known:
            raise InvalidSite(
                f"no filter or cost of this name is installed: {name}",
                field=f"placement.{setting}.{name}",
                why=f"known: {', '.join(sorted(known))}",
                remedy="use one of these names, or install the package that provides it",
            )


@cache
def _installed(kind: str) -> tuple[tuple[str, Rule | Faulty], ...]:
    """Return the installed filters or costs in the order in which they are asked."""
    group = f"fabric_direct.placement.{kind}s"
    points = sorted(entry_points(group=group), key=_order)
    by_name = groupby(points, key=lambda point: point.name)
    return tuple((name, _load(kind, name, list(same))) for name, same in by_name)


def _order(point: EntryPoint) -> tuple[int, str, str]:
    ours = FILTERS.index(point.name) if point.name in FILTERS else len(FILTERS)
    return ours, point.name, point.value


def _load(kind: str, name: str, points: list[EntryPoint]) -> Rule | Faulty:
    ours = [point for point in points if point.module.startswith(f"{__package__}.")]
    if ours:
        rule: Rule = ours[0].load()
        return rule
    if len({point.value for point in points}) > 1:
        return Faulty(kind, name, "several packages provide one of that name")
    try:
        return partial(_asked, kind, name, points[0].load())
    except Exception as error:  # noqa: BLE001 - told to the caller, not swallowed
        return Faulty(kind, name, f"{points[0].value}: {_said(error)}")


def _asked(kind: str, name: str, rule: Rule, hosts: Hosts, needs: Needs) -> Any:
    """Return the result of a filter or cost of another package.

    :raises Faulty: if it raises, or returns something invalid.
    """
    try:
        answer = rule(hosts, needs)
    except Exception as error:
        raise Faulty(kind, name, f"it raised {_said(error)}") from error
    why = _nonsense(kind, answer, len(hosts))
    if why:
        raise Faulty(kind, name, f"it returned {why}")
    return answer if kind == "filter" else answer.astype(np.int64)


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:200]


def _nonsense(kind: str, answer: Any, hosts: int) -> str:
    """Return what is wrong with an answer; empty if nothing is."""
    if not isinstance(answer, np.ndarray):
        return f"{type(answer).__name__}, which is not an array"
    if answer.shape != (hosts,):
        return f"an array of the shape {answer.shape} for {hosts} hosts"
    if kind == "filter":
        return "" if answer.dtype == np.bool_ else f"{answer.dtype}, which is not bool"
    if not np.issubdtype(answer.dtype, np.integer):
        return f"{answer.dtype}, which is not an integer type"
    outside = answer[(answer < 0) | (answer > LARGEST_COST)]
    return f"{outside[0]}, which is not from 0 to {LARGEST_COST}" if len(outside) else ""
