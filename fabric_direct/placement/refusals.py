"""Why hosts and nodes refuse an instance, in words."""

from collections.abc import Iterable, Iterator, Mapping

from fabric_direct.errors import Conflict

_REASONS = {
    "in_service": "disabled or in maintenance",
    "host": "another host was asked for, or it is excluded",
    "capacity": "too few free cores, RAM or disk",
    "architecture": "another architecture",
    "traits": "a required trait is missing, or a forbidden one is there",
    "devices": "no free device as asked for",
    "affinity": "the slivers to be together with are elsewhere",
    "anti_affinity": "it has a sliver to be apart from",
}
_REASONS_OF_NODES = {
    "node": "another node was asked for",
    "resource_class": "another resource class",
    "traits": "a required trait is missing",
    "capacities": "too few cores, too little RAM or disk, or not told",
    "nics": "too few network interfaces, or other MAC addresses",
    "condition": "not free",
}


def refusals(refused: Mapping[str, int], devices: Iterable[str] = ()) -> Iterator[str]:
    """Yield for each filter how many hosts it refused, and why.

    For example ``1 host refused: no free GPU (filter: devices)``.

    :param refused: the number of hosts by filter; one of another package has no words of ours.
    :param devices: the types of the devices that the instance needs.
    """
    types = " or ".join(dict.fromkeys(devices))
    reasons = _REASONS | ({"devices": f"no free {types} as asked for"} if types else {})
    for name, hosts in refused.items():
        if hosts:
            why = f"{reasons[name]} (filter: {name})" if name in reasons else f"filter {name}"
            yield f"{hosts} host{'s' if hosts > 1 else ''} refused: {why}"


def refusals_of_nodes(refused: Mapping[str, int]) -> Iterator[str]:
    """Yield for each field how many bare-metal nodes it rules out: ``2 nodes: not free``.

    :param refused: the number of nodes by field; one of a newer zone has no words of ours.
    """
    for name, nodes in refused.items():
        if nodes:
            yield f"{nodes} node{'s' if nodes > 1 else ''}: {_REASONS_OF_NODES.get(name, name)}"


def outdated(request: str, place: str, why: str) -> Conflict:
    """Return the error of a plan whose host or node cannot take its instance any more."""
    return Conflict(
        f"the plan for {request} cannot be carried out any more",
        where=place,
        why=why,
        remedy="place it again",
    )
