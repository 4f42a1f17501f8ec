"""What the requests of a batch mean for each other: who must share a host, who must not."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from fabric_direct.errors import InvalidSliver
from fabric_direct.placement.request import DeviceNeed, Request


@dataclass(frozen=True)
class Unit:
    """Instances that must share a host: the others follow the first. Most are alone."""

    requests: tuple[Request, ...]
    """With all that is meant by the batch; see :func:`units`."""
    asked: tuple[Request, ...]
    """The same as they were given."""

    @property
    def size(self) -> tuple[int, int, int]:
        """Cores, GiB of RAM and GiB of disk of all together."""
        sizes = [request.needs.capacities for request in self.requests]
        return sum(s.core for s in sizes), sum(s.ram for s in sizes), sum(s.disk for s in sizes)

    @property
    def devices(self) -> tuple[DeviceNeed, ...]:
        """The devices of all together."""
        return tuple(need for request in self.requests for need in request.needs.devices)

    def stranded(self, gone: Iterable[str]) -> set[str]:
        """Return who cannot stay without those that are gone, and them."""
        gone = set(gone)
        more = {r.id for r in self.asked if gone.intersection(r.needs.rules.affinity)} - gone
        if self.requests[0].id in gone:
            return {request.id for request in self.requests}
        return self.stranded(gone | more) if more else gone

    def without(self, gone: Collection[str]) -> "Unit":
        """Return what is left of the unit."""
        return Unit(
            tuple(request for request in self.requests if request.id not in gone),
            tuple(request for request in self.asked if request.id not in gone),
        )


def units(requests: Sequence[Request]) -> list[Unit]:
    """Return the requests as they are placed, in the order of the first of each unit.

    Of two that must not share a host, each has the other in ``anti_affinity`` then, whichever named
    whom. ``affinity`` to slivers of the batch becomes affinity to the first of the unit.

    :raises InvalidSliver: if an id is given twice.
    """
    _refuse_twins(requests)
    apart = _apart(requests)
    groups: dict[str, list[Request]] = defaultdict(list)
    together = _together(requests)
    for request in requests:
        groups[together[request.id]].append(request)
    return [
        Unit(tuple(_followers(group, apart, together.keys())), tuple(group))
        for group in groups.values()
    ]


def _refuse_twins(requests: Iterable[Request]) -> None:
    seen: set[str] = set()
    for number, request in enumerate(requests):
        if request.id in seen:
            raise InvalidSliver(f"{request.id} is given twice", field=f"requests[{number}].id")
        seen.add(request.id)


def _apart(requests: Sequence[Request]) -> dict[str, set[str]]:
    """Return who must not share a host with whom, both ways; itself is in it, too.

    So that all of a set that are to be apart have the same needs. (An instance that is yet to be placed
    is nowhere.)
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
    """Return for each id one that stands for all who must share its host."""
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
    """Yield the requests of a unit, the first being one that names no other if there is one."""
    mates = {request.id for request in group}
    first = min(group, key=lambda r: bool((mates - {r.id}) & set(r.needs.rules.affinity)))
    yield _meant(first, apart[first.id], ids, ())
    for request in group:
        if request is not first:
            yield _meant(request, apart[request.id], ids, (first.id,))


def _meant(
    request: Request, apart: set[str], ids: Collection[str], follows: tuple[str, ...]
) -> Request:
    """Return a request with all that must, and must not, be on its host before it."""
    rules = request.needs.rules
    affinity = tuple(sliver for sliver in rules.affinity if sliver not in ids) + follows
    anti_affinity = tuple(sorted({*rules.anti_affinity, *apart}))
    if not affinity and not anti_affinity and not rules.affinity:
        return request
    meant = rules.model_copy(update={"affinity": affinity, "anti_affinity": anti_affinity})
    needs = request.needs.model_copy(update={"rules": meant})
    return request.model_copy(update={"needs": needs})
