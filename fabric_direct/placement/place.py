"""Where instances go: a whole batch placed at once, explained, and checked before it is carried out.

Instances are assigned one after the other to the host that is cheapest then; what they take is gone for
the next. The batch is tried in the order given and with what is hardest to place first, and the better
of both is the plan: more instances placed, then the lower sum of costs, then the order given. So no
plan places fewer, or the same at a higher cost, than one by one in the order given.

Nothing depends on the order of the hosts: equally cheap ones are taken by name.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from fabric_direct.config import PlacementSettings
from fabric_direct.errors import Conflict
from fabric_direct.placement.affinity_groups import Unit, units
from fabric_direct.placement.arrays import Hosts, columns
from fabric_direct.placement.devices import choose, fitting_nodes
from fabric_direct.placement.greedy_pass import Attempt, Untouched
from fabric_direct.placement.plan import (
    Assignment,
    BuildPlan,
    Choice,
    Explanation,
    HostVerdict,
    Unplaced,
)
from fabric_direct.placement.plugins import Faulty, Rules, rules
from fabric_direct.placement.request import Needs, Request
from fabric_direct.placement.scores import costs, verdicts
from fabric_direct.placement.state import HostState

USUAL = PlacementSettings()
T = TypeVar("T")


def place(
    requests: Sequence[Request],
    hosts: Iterable[HostState],
    settings: PlacementSettings = USUAL,
    *,
    partial: bool = False,
) -> BuildPlan:
    """Return where the instances of a batch go.

    :param partial: whether as many as fit are assigned; all or none if not.
    :raises InvalidSliver: if an id is given twice.
    :raises InvalidSite: if the settings name a filter or cost that is not installed, or a host is
        there twice.
    """
    batch = units(requests)
    columns_ = columns(hosts, [request for unit in batch for request in unit.requests])
    order = [request.id for request in requests]
    return _with_sound(
        rules(settings),
        lambda sound: _plan(_best(batch, columns_, sound, settings.retries), order, sound, partial),
    )


def explain(
    request: Request, hosts: Iterable[HostState], settings: PlacementSettings = USUAL
) -> Explanation:
    """Return what filters and costs say of each host for one instance.

    :raises InvalidSite: as :func:`place` does.
    """
    ((meant,), *_) = [unit.requests for unit in units([request])]
    columns_ = columns(hosts, [meant])
    return _with_sound(rules(settings), lambda sound: _explained(columns_, meant, sound))


def check(
    plan: BuildPlan,
    requests: Sequence[Request],
    hosts: Iterable[HostState],
    settings: PlacementSettings = USUAL,
) -> None:
    """Return if a plan can still be carried out: each host takes its instances with the same devices.

    :param requests: those that the plan was made for.
    :param hosts: as they are now.
    :raises Conflict: with the first instance for which the world has moved on, and why.
    :raises InvalidSite: as :func:`place` does.
    """
    by_id = {request.id: request for request in requests}
    pinned = [_pinned(assignment, by_id) for assignment in plan.assignments]
    meant = [request for unit in units(pinned) for request in unit.requests]
    columns_ = columns(hosts, meant)
    _with_sound(rules(settings), lambda sound: _carry_out(meant, plan, columns_.copied(), sound))


def _with_sound(installed: Rules, work: Callable[[Rules], T]) -> T:
    """Return what comes of the work without the filters and costs that turn out not to be usable."""
    while True:
        try:
            return work(installed)
        except Faulty as faulty:
            installed = installed.without(faulty)


def _best(batch: Sequence[Unit], hosts: Hosts, sound: Rules, retries: int) -> Attempt:
    untouched = Untouched(hosts, sound, batch)
    attempt = Attempt(untouched, batch, retries)
    hardest = sorted(batch, key=untouched.ease)
    if hardest == list(batch):
        return attempt
    other = Attempt(untouched, hardest, retries)
    return min(attempt, other, key=lambda one: (-len(one.placed), one.cost))


def _plan(attempt: Attempt, order: Sequence[str], sound: Rules, partial: bool) -> BuildPlan:
    assigned = () if attempt.refused and not partial else order
    return BuildPlan(
        assignments=tuple(
            attempt.placed[request].assignment()
            for request in assigned
            if request in attempt.placed
        ),
        unplaced=tuple(
            Unplaced(request=request, refused=attempt.refused[request])
            for request in order
            if request in attempt.refused
        ),
        warnings=sound.warnings,
    )


def _explained(hosts: Hosts, request: Request, sound: Rules) -> Explanation:
    said = verdicts(hosts.rows(), request.needs, sound)
    passing, refused = np.flatnonzero(said.refused == 0), np.flatnonzero(said.refused)
    cheapest = passing[np.argsort(said.cost[passing], kind="stable")]
    each = costs(hosts.rows(cheapest), request.needs, sound) if len(cheapest) else []
    names = (None, *sound.filters)
    can = (
        HostVerdict(host=hosts.names[row], cost=int(said.cost[row]), costs=by_name)
        for row, by_name in zip(cheapest, each, strict=True)
    )
    cannot = (
        HostVerdict(host=hosts.names[row], refused_by=names[said.refused[row]]) for row in refused
    )
    return Explanation(
        hosts=(*can, *cannot),
        weights={name: sound.weights[name] for name in sound.costs},
        warnings=sound.warnings,
    )


def _pinned(assignment: Assignment, requests: Mapping[str, Request]) -> Request:
    """Return a request that can be placed as the plan says, and nowhere else."""
    request = requests.get(assignment.request)
    if request is None:
        raise Conflict(f"the plan has an instance that is not asked for: {assignment.request}")
    chosen = assignment.chosen
    why = _other(request.needs, chosen)
    if why:
        raise _moved_on(request.id, chosen.host, f"it is asked for {why}")
    devices = (
        need.model_copy(update={"bdf": chosen.devices[need.component]})
        for need in request.needs.devices
    )
    update = {"host": chosen.host, "devices": tuple(devices)}
    return request.model_copy(update={"needs": request.needs.model_copy(update=update)})


def _other(needs: Needs, chosen: Choice) -> str:
    """Return in what the plan is not what is asked for; empty if it is."""
    if needs.host not in {None, chosen.host}:
        return f"on {needs.host}"
    if chosen.devices.keys() != {need.component for need in needs.devices}:
        return "with other devices"
    for need in needs.devices:
        if need.bdf and need.bdf != chosen.devices[need.component]:
            return f"with other functions of {need.component}"
    return ""


def _carry_out(requests: Iterable[Request], plan: BuildPlan, hosts: Hosts, sound: Rules) -> None:
    nodes = {one.request: one.chosen.numa_node for one in plan.assignments}
    for request in requests:
        name = str(request.needs.host)
        if name not in hosts.row:
            raise _moved_on(request.id, name, "the host is not there")
        row = hosts.row[name]
        one = hosts.rows(np.array([row]))
        for refusing in verdicts(one, request.needs, sound).refusals(sound):
            raise _moved_on(request.id, name, _why(refusing, hosts, row, request))
        chosen = choose(one, request.needs, _place_of(nodes[request.id], one, request))
        hosts.take(row, request, chosen.all(), chosen.node)


def _place_of(node: int | None, one: Hosts, request: Request) -> int | None:
    """Return where the NUMA node of a plan is among those of the host."""
    if node is None:
        return None
    if node not in fitting_nodes(one, request.needs):
        why = f"it does not fit on the NUMA node {node} any more"
        raise _moved_on(request.id, one.names[0], why)
    return one.hardware.node_ids[int(one.index[0])].index(node)


def _why(refusing: str, hosts: Hosts, row: int, request: Request) -> str:
    """Return why a filter refuses the host of a plan."""
    asked = [address for need in request.needs.devices for address in need.bdf]
    gone = [str(address) for address in asked if not hosts.is_free(row, address)]
    if refusing == "devices" and gone:
        return f"{', '.join(gone)} {'is' if len(gone) == 1 else 'are'} not free there any more"
    return f"the filter {refusing} refuses it now"


def _moved_on(request: str, host: str, why: str) -> Conflict:
    return Conflict(
        f"the plan for {request} cannot be carried out any more",
        where=host,
        why=why,
        remedy="place it again",
    )
