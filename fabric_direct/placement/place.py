"""Place a batch of instances, explain a placement, and check a plan before it is carried out.

Instances are assigned one after the other to the host that is cheapest by then. The batch is assigned in
the given order and with the instances that are hardest to place first, and the better result is the
plan: more instances placed, then the lower total cost, then the given order. A plan therefore never
places fewer instances, or the same number at a higher cost, than placing them one by one in that order.

The result does not depend on the order of the hosts: ties are broken by name.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from fabric_direct.errors import Conflict
from fabric_direct.placement.affinity_groups import AffinityGroup, affinity_groups
from fabric_direct.placement.arrays import Hosts, columns
from fabric_direct.placement.devices import choose, fitting_nodes
from fabric_direct.placement.greedy_pass import GreedyPass, InitialScores
from fabric_direct.placement.plan import (
    Assignment,
    BuildPlan,
    Choice,
    Explanation,
    HostScore,
    Unplaced,
)
from fabric_direct.placement.plugins import Faulty, Rules, rules
from fabric_direct.placement.refusals import outdated
from fabric_direct.placement.request import Needs, Request
from fabric_direct.placement.scores import costs, score
from fabric_direct.placement.state import HostState
from fabric_direct.site.config import PlacementSettings

DEFAULTS = PlacementSettings()
T = TypeVar("T")


def place(
    requests: Sequence[Request],
    hosts: Iterable[HostState],
    settings: PlacementSettings = DEFAULTS,
    *,
    partial: bool = False,
) -> BuildPlan:
    """Return the build plan of a batch.

    :param partial: whether to assign as many as fit; all or none otherwise.
    :raises InvalidSliver: if an id is given twice.
    :raises InvalidSite: if the settings name a filter or cost that is not installed, or a host is
        given twice.
    """
    batch = affinity_groups(requests)
    table = columns(hosts, [request for group in batch for request in group.requests])
    order = [request.id for request in requests]
    return _with_working(
        rules(settings),
        lambda working: _plan(
            _best(batch, table, working, settings.retries), order, working, partial
        ),
    )


def explain(
    request: Request, hosts: Iterable[HostState], settings: PlacementSettings = DEFAULTS
) -> Explanation:
    """Return the results of filters and costs for each host and one instance.

    :raises InvalidSite: as :func:`place` does.
    """
    ((resolved,),) = [group.requests for group in affinity_groups([request])]
    table = columns(hosts, [resolved])
    return _with_working(rules(settings), lambda working: _explained(table, resolved, working))


def check(
    plan: BuildPlan,
    requests: Sequence[Request],
    hosts: Iterable[HostState],
    settings: PlacementSettings = DEFAULTS,
) -> None:
    """Raise Conflict unless every host can still take its instances, with the same devices.

    :param requests: the requests that the plan was made for.
    :param hosts: their current state.
    :raises Conflict: with the first instance that its host cannot take any more, and why.
    :raises InvalidSite: as :func:`place` does.
    """
    by_id = {request.id: request for request in requests}
    pinned = [_pinned(assignment, by_id) for assignment in plan.assignments]
    resolved = [request for group in affinity_groups(pinned) for request in group.requests]
    table = columns(hosts, resolved)
    _with_working(
        rules(settings), lambda working: _carry_out(resolved, plan, table.copied(), working)
    )


def _with_working(installed: Rules, work: Callable[[Rules], T]) -> T:
    """Return the result of ``work`` with the filters and costs that do not fail."""
    while True:
        try:
            return work(installed)
        except Faulty as faulty:
            installed = installed.without(faulty)


def _best(batch: Sequence[AffinityGroup], hosts: Hosts, working: Rules, retries: int) -> GreedyPass:
    initial = InitialScores(hosts, working, batch)
    as_given = GreedyPass(initial, batch, retries)
    hardest_first = sorted(batch, key=initial.ease)
    if hardest_first == list(batch):
        return as_given
    other = GreedyPass(initial, hardest_first, retries)
    return min(as_given, other, key=lambda one: (-len(one.assigned), one.cost))


def _plan(best: GreedyPass, order: Sequence[str], working: Rules, partial: bool) -> BuildPlan:
    assigned = {} if best.refused and not partial else best.assigned
    return BuildPlan(
        assignments=tuple(assigned[request] for request in order if request in assigned),
        unplaced=tuple(
            Unplaced(request=request, refused=best.refused[request])
            for request in order
            if request in best.refused
        ),
        warnings=working.warnings,
    )


def _explained(hosts: Hosts, request: Request, working: Rules) -> Explanation:
    scores = score(hosts.rows(), request.needs, working)
    passing, refused = np.flatnonzero(scores.refused == 0), np.flatnonzero(scores.refused)
    cheapest = passing[np.argsort(scores.cost[passing], kind="stable")]
    each = costs(hosts.rows(cheapest), request.needs, working) if len(cheapest) else []
    names = (None, *working.filters)
    can = (
        HostScore(host=hosts.names[row], cost=int(scores.cost[row]), costs=by_name)
        for row, by_name in zip(cheapest, each, strict=True)
    )
    cannot = (
        HostScore(host=hosts.names[row], refused_by=names[scores.refused[row]]) for row in refused
    )
    return Explanation(
        hosts=(*can, *cannot),
        weights={name: working.weights[name] for name in working.costs},
        warnings=working.warnings,
    )


def _pinned(assignment: Assignment, requests: Mapping[str, Request]) -> Request:
    """Return a request that fits only the host and the devices of the plan."""
    request = requests.get(assignment.request)
    if request is None:
        raise Conflict(f"the plan has an instance that is not requested: {assignment.request}")
    chosen = assignment.chosen
    why = _other(request.needs, chosen)
    if why:
        raise outdated(request.id, chosen.place, f"it is requested {why}")
    devices = (
        need.model_copy(update={"bdf": chosen.devices[need.component]})
        for need in request.needs.devices
    )
    update = {"host": chosen.host, "devices": tuple(devices)}
    return request.model_copy(update={"needs": request.needs.model_copy(update=update)})


def _other(needs: Needs, chosen: Choice) -> str:
    """Return how the request differs from the plan; empty if it does not."""
    if needs.host not in {None, chosen.host}:
        return f"on {needs.host}"
    if chosen.devices.keys() != {need.component for need in needs.devices}:
        return "with other devices"
    for need in needs.devices:
        if need.bdf and need.bdf != chosen.devices[need.component]:
            return f"with other functions of {need.component}"
    return ""


def _carry_out(requests: Iterable[Request], plan: BuildPlan, hosts: Hosts, working: Rules) -> None:
    nodes = {one.request: one.chosen.numa_node for one in plan.assignments}
    for request in requests:
        name = str(request.needs.host)
        if name not in hosts.row:
            raise outdated(request.id, name, "there is no such host any more")
        row = hosts.row[name]
        one = hosts.rows(np.array([row]))
        for refusing in score(one, request.needs, working).refusals(working):
            raise outdated(request.id, name, _why(refusing, hosts, row, request))
        chosen = choose(one, request.needs, _node_index(nodes[request.id], one, request))
        hosts.take(row, request, chosen.all(), chosen.node)


def _node_index(node: int | None, one: Hosts, request: Request) -> int | None:
    """Return the index of the plan's NUMA node among those of the host."""
    if node is None:
        return None
    if node not in fitting_nodes(one, request.needs):
        why = f"it does not fit on the NUMA node {node} any more"
        raise outdated(request.id, one.names[0], why)
    return one.hardware.node_ids[int(one.index[0])].index(node)


def _why(refusing: str, hosts: Hosts, row: int, request: Request) -> str:
    """Return why a filter refuses the host of a plan."""
    asked = [address for need in request.needs.devices for address in need.bdf]
    gone = [str(address) for address in asked if not hosts.is_free(row, address)]
    if refusing == "devices" and gone:
        return f"{', '.join(gone)} {'is' if len(gone) == 1 else 'are'} not free there any more"
    return f"the filter {refusing} refuses it now"
