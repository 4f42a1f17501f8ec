"""Group the requests of a batch by affinity: which must share a host, which must not."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from fabric_direct.errors import InvalidSliver
from fabric_direct.placement.request import DeviceNeed, Request


@dataclass(frozen=True)
class AffinityGroup:
    """Instances that must share a host; the others follow the first. Most groups have one instance."""

    requests: tuple[Request, ...]
    """With the affinity rules of the batch resolved; see :func:`affinity_groups`."""
    given: tuple[Request, ...]
    """The same requests as they were given."""

    @property
    def size(self) -> tuple[int, int, int]:
        """Total cores, GiB of RAM and GiB of disk."""
        sizes = [request.needs.capacities for request in self.requests]
        return sum(s.core for s in sizes), sum(s.ram for s in sizes), sum(s.disk for s in sizes)

    @property
    def devices(self) -> tuple[DeviceNeed, ...]:
        """The devices of all instances."""
        return tuple(need for request in self.requests for need in request.needs.devices)

    def stranded(self, gone: Iterable[str]) -> set[str]:
        """Return the ids that are gone, and those whose affinity cannot be met without them."""
        gone = set(gone)
        more = {r.id for r in self.given if gone.intersection(r.needs.rules.affinity)} - gone
        if self.requests[0].id in gone:
            return {request.id for request in self.requests}
        return self.stranded(gone | more) if more else gone

    def without(self, gone: Collection[str]) -> "AffinityGroup":
        """Return the group without some of its requests."""
        return AffinityGroup(
            tuple(request for request in self.requests if request.id not in gone),
            tuple(request for request in self.given if request.id not in gone),
        )


def affinity_groups(requests: Sequence[Request]) -> list[AffinityGroup]:
    """Return the requests in groups, in the order of the first request of each group.

    Anti-affinity between two requests is made mutual, whichever named the other. Affinity to slivers of
    the batch becomes affinity to the first request of the group.

    :raises InvalidSliver: if an id is given twice.
    """
    _refuse_twins(requests)
    apart = _apart(requests)
    groups: dict[str, list[Request]] = defaultdict(list)
    together = _together(requests)
    for request in requests:
        groups[together[request.id]].append(request)
    return [
        AffinityGroup(tuple(_followers(group, apart, together.keys())), tuple(group))
        for group in groups.values()
    ]


def _refuse_twins(requests: Iterable[Request]) -> None:
    seen: set[str] = set()
    for number, request in enumerate(requests):
        if request.id in seen:
            raise InvalidSliver(f"{request.id} is given twice", field=f"requests[{number}].id")
        seen.add(request.id)


def _apart(requests: Sequence[Request]) -> dict[str, set[str]]:
    """Return for each id the ids that must not share its host, in both directions, and itself.

    Including itself makes the needs of all members of a set equal; it has no effect, because an instance
    that is not placed yet is on no host.
    """
    ids = {request.id for request in requests}
    apart: dict[str, set[str]] = {request.id: set() for request in requests}
    for request in requests:
        others = ids.intersection(request.needs.rules.anti_affinity) - {request.id}
        apart[request.id] |= others | {request.id} if others else others
        for other in others:
            apart[other] |= {request.id, other}
    return apart


def _together(requests: Sequence[Request]) -> dict[str, str]:
    """Return for each id the representative of its group (union-find)."""
    stands: dict[str, str] = {request.id: request.id for request in requests}

    def root(of: str) -> str:
        while stands[of] != of:
            stands[of] = of = stands[stands[of]]
        return of

    for request in requests:
        for other in stands.keys() & set(request.needs.rules.affinity):
            stands[root(other)] = root(request.id)
    return {request.id: root(request.id) for request in requests}


def _followers(
    group: Sequence[Request], apart: dict[str, set[str]], ids: Collection[str]
) -> Iterable[Request]:
    """Yield the requests of a group; the first is one without affinity to another, if there is one."""
    mates = {request.id for request in group}
    first = min(group, key=lambda r: bool((mates - {r.id}) & set(r.needs.rules.affinity)))
    yield _resolved(first, apart[first.id], ids, ())
    for request in group:
        if request is not first:
            yield _resolved(request, apart[request.id], ids, (first.id,))


def _resolved(
    request: Request, apart: set[str], ids: Collection[str], follows: tuple[str, ...]
) -> Request:
    """Return a request with the rules that the batch implies for it."""
    rules = request.needs.rules
    affinity = tuple(sliver for sliver in rules.affinity if sliver not in ids) + follows
    anti_affinity = tuple(sorted({*rules.anti_affinity, *apart}))
    if not affinity and not anti_affinity and not rules.affinity:
        return request
    resolved = rules.model_copy(update={"affinity": affinity, "anti_affinity": anti_affinity})
    needs = request.needs.model_copy(update={"rules": resolved})
    return request.model_copy(update={"needs": needs})
