"""Why hosts refuse an instance, in words."""

from collections.abc import Iterable, Iterator, Mapping

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
