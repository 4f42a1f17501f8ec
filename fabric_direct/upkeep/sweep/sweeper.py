"""A dry run of a sweep, and its confirmation by the dry run's token."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from pydantic import TypeAdapter, ValidationError

from fabric_direct.drivers.contract import QUARANTINED
from fabric_direct.errors import NotVerified, Refused
from fabric_direct.model import SliverId
from fabric_direct.model.services import SERVICES
from fabric_direct.site.config import Site
from fabric_direct.upkeep.sweep.books import LocalRecords
from fabric_direct.upkeep.sweep.dry_runs import DryRuns
from fabric_direct.upkeep.sweep.findings import Findings, FoundResource, LeftAlone
from fabric_direct.upkeep.sweep.search import DriversOf, SearchedPlace, search

AT_MOST = 10.0
"""Percent of the slivers that exist that one sweep deletes, unless it is told otherwise."""
_ID: TypeAdapter[str] = TypeAdapter(SliverId)
_UNREADABLE = (
    "its stamp is the site's, but does not say whose it is: look at it, remove it yourself"
)
_OF_PORTS = {"NIC", "port", "floating IP"}
_OF_NETWORKS = {"network", "router"}
_BOOKS = {"journal entry", "claim"}
_UNUSED = "unused network"


class Sweeper:
    """Finds what carries the site's stamp and nobody expects; it removes nothing itself."""

    def __init__(
        self, site: Site, books: LocalRecords, dry_runs: DryRuns, drivers_of: DriversOf
    ) -> None:
        """Read nothing yet.

        :param drivers_of: returns the drivers of a host, or of the cloud for an empty name; their calls
            end by a deadline.
        """
        self._site, self._books, self._dry_runs = site, books, dry_runs
        self._drivers_of = drivers_of

    def dry_run(self, expected: Collection[str]) -> Findings:
        """Return what would go, and keep it for :meth:`confirmed`.

        :raises Refused: if nothing is expected, or a host or the cloud does not answer.
        """
        found = self._found(expected)
        # What begins from here on ends what was found of its sliver; what had begun is under way.
        self._dry_runs.begin(found.types)
        found = self._settled(found)
        self._dry_runs.keep(found)
        return found

    def confirmed(self, expected: Collection[str], token: str, at_most: float) -> Findings:
        """Return what may go: just what the last dry run found.

        :param token: of the last dry run.
        :param at_most: percent of the slivers that exist.
        :raises Refused: if it is not the token of the last dry run, if what is found now is not what
            that found, if too much would go, and as :meth:`dry_run` does.
        """
        before = self._dry_runs.last()
        if not token or token != before.token:
            raise Refused(
                f"{token!r} is not the token of the last dry run: nothing was deleted",
                remedy="sweep without --token, look at what it finds, and give its token",
            )
        found = self._settled(self._found(expected))
        found.refuse_changed(before)
        found.refuse_share(at_most)
        return found

    def _settled(self, found: Findings) -> Findings:
        """Leave alone what is being worked on: looked for after the search, so that none is missed."""
        return found.without(self._books.busy(found.types))

    def _found(self, expected: Collection[str]) -> Findings:
        if not expected:
            raise Refused("no sliver is expected: nothing was deleted", field="expected")
        places = search(self._site, self._drivers_of)
        there = _by_sliver((*_things(places), *self._books.things()))
        unexpected = {s: things for s, things in there.items() if s not in expected}
        going = {s: t for s, things in unexpected.items() if (t := _removable(things))}
        kinds = self._books.types()
        return Findings(
            types={
                s: kinds.get(s) or _type(things, self._books.noted_type(s))
                for s, things in going.items()
            },
            things=(*(t for things in going.values() for t in things), *self._nobodys(places)),
            left_alone=(*self._left_alone(places), *_in_quarantine(unexpected)),
            exist=len(there),
            missing=tuple(sorted(set(expected) - there.keys())),
        )

    def _nobodys(self, places: Mapping[str, SearchedPlace]) -> Iterator[FoundResource]:
        """Yield what belongs to no sliver: networks that nobody uses, locks that nobody holds."""
        for host, place in places.items():
            yield from _unused(place.unused, host)
        yield from self._books.stale_locks()

    def _left_alone(self, places: Mapping[str, SearchedPlace]) -> Iterator[LeftAlone]:
        for host, place in places.items():
            yield from place.astray
            for thing in (t for t in place.stamped if not _is_id(t.sliver)):
                where = f" on {host}" if host else ""
                yield LeftAlone(what=f"{thing.kind} {thing.name}{where}", why=_UNREADABLE)
        yield from self._books.foreign()
        yield from self._keys(places.values())

    def _keys(self, places: Collection[SearchedPlace]) -> Iterator[LeftAlone]:
        held = {a for place in places for thing in place.stamped for a in thing.addresses}
        pinned = {address for place in places for address in place.pinned}
        why = "no guest has this address: remove the line from the known hosts, if it is a guest's"
        for address in sorted(pinned - held - self._books.workers()):
            yield LeftAlone(what=f"host key of {address}", why=why)

    # --- removal of what belongs to no sliver

    def remove_nobodys(self, thing: FoundResource) -> None:
        """Remove a network that nobody uses, or the file of a lock, unless it is used by now.

        :raises NotVerified: if it is still there, and nobody uses it.
        """
        if thing.kind == _UNUSED:
            network = self._drivers_of(thing.host).network
            network.remove_unused()
            left = _unused(network.unused(), thing.host)
        else:
            self._books.remove_lock(thing.name)
            left = self._books.stale_locks()
        if thing in left:
            raise NotVerified(f"{thing} was removed, but is not gone")


def _unused(networks: Iterable[str], host: str) -> Iterator[FoundResource]:
    for name in networks:
        yield FoundResource(kind=_UNUSED, name=name.removeprefix("network "), host=host)


def _things(places: Mapping[str, SearchedPlace]) -> Iterator[FoundResource]:
    for host, place in places.items():
        for each in place.stamped:
            if _is_id(each.sliver):
                yield FoundResource(sliver=each.sliver, kind=each.kind, name=each.name, host=host)


def _is_id(text: str) -> bool:
    try:
        return bool(_ID.validate_python(text))
    except ValidationError:
        return False


def _by_sliver(things: Iterable[FoundResource]) -> dict[str, list[FoundResource]]:
    found: dict[str, list[FoundResource]] = defaultdict(list)
    for thing in things:
        found[thing.sliver].append(thing)
    return {sliver: sorted(found[sliver], key=str) for sliver in sorted(found)}


def _removable(things: Sequence[FoundResource]) -> list[FoundResource]:
    """Return what a deletion removes; nothing if all but books are devices in quarantine."""
    kept = [thing for thing in things if thing.kind != QUARANTINED]
    quarantined = len(kept) < len(things)
    return [] if quarantined and {thing.kind for thing in kept} <= _BOOKS else kept


def _in_quarantine(slivers: Mapping[str, Sequence[FoundResource]]) -> Iterator[LeftAlone]:
    for thing in (t for things in slivers.values() for t in things if t.kind == QUARANTINED):
        address = thing.name.partition(" ")[0]
        why = f"look at it, then: fabric-direct devices release {thing.host} {address}"
        yield LeftAlone(what=str(thing), why=why)


def _type(things: Iterable[FoundResource], noted: str) -> str:
    """Return the resource type whose deletion removes these things of a sliver.

    Ports alone may be what is left of a VM: the deletion of ports removes them all the same.

    :param noted: the type that was noted when it was made, if that is known.
    """
    kinds = {thing.kind for thing in things} - _BOOKS
    for service in sorted(kinds & {*SERVICES, "Switch", "BareMetal"}):
        return service
    if kinds & _OF_NETWORKS:
        return "L2Bridge"
    return "vNICPorts" if kinds and kinds <= _OF_PORTS and noted != "VM" else "VM"
