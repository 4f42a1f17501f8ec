"""Which sliver an id is: ids are unique at a site, whatever the resource type.

The type of a sliver that is named by its id alone is, whatever comes first::

    an operation on it is unfinished          as the journal says
    a host is still to be looked at for it    as its deletion noted
    it was made here, and is there            as was noted then (state/sliver_types.py)
    anything of it is there                   the type whose deletion removes all of it
    nothing of it is anywhere                 a VM, or the first type of a site without VMs

A sliver of another type does not get the id, nor is it deleted, as long as the books say, or do not rule
out, that there is something of the first.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from fabric_direct.calls.deadline import Deadline
from fabric_direct.engine.run import attempt, attempt_each
from fabric_direct.errors import Conflict, Refused, Unreachable
from fabric_direct.handlers import registry
from fabric_direct.model import Outcome, SliverRef
from fabric_direct.model.services import SERVICES
from fabric_direct.operations.site_hosts import SiteHosts
from fabric_direct.state.journal import Unfinished
from fabric_direct.state.service_claims import ServiceClaims
from fabric_direct.state.site_store import store_of
from fabric_direct.state.sliver_types import SliverTypes

_VM = "VM"


@dataclass(frozen=True, slots=True)
class TypeMatch:
    """What the site has of a sliver, if it is one of a type."""

    exists: bool
    """Whether the sliver itself is there."""
    things: frozenset[str]
    """Everything of it that is there."""


Look = Callable[[SliverRef], TypeMatch]
"""Returns what the site has of a sliver; raises Refused if it serves none of the type."""


class SliverIds:
    """The ids of a site's slivers."""

    def __init__(self, hosts: SiteHosts) -> None:
        """Read nothing yet."""
        self._hosts, self._site = hosts, hosts.site
        self._types = SliverTypes(store_of(self._site), timeout=self._site.limits.call)

    def typed(self, sliver: SliverRef) -> SliverRef:
        """Return the sliver; a reference without a type with the type that its id has.

        :raises Conflict: if slivers of several types have the id.
        :raises Unreachable: if no sliver of it is there, and one may be where nothing answers.
        """
        if sliver.type:
            return sliver
        begun = next((kind for kind, _ in self._unfinished(sliver.id)), "")
        return SliverRef(id=sliver.id, type=begun or self._found(sliver.id))

    def booked(self, sliver_id: str) -> str:
        """Return the type of a sliver by the books alone; empty if they have none, or cannot be read."""
        begun = next((kind for kind, _ in self._unfinished(sliver_id)), "")
        return begun or self._noted(sliver_id)

    def _found(self, sliver_id: str) -> str:
        if noted := self._noted(sliver_id):
            found = attempt(self._look, SliverRef(id=sliver_id, type=noted))
            if isinstance(found, Exception) or found.exists or found.things:
                return noted
        usual = _VM if self._site.serves_vms else self._served()
        return type_of(sliver_id, registry.resource_types(), self._look, usual)

    def _look(self, ref: SliverRef) -> TypeMatch:
        """Return what the site has of a sliver, on the hosts that answer within ``limits.search``.

        :raises Refused: if the site serves no slivers of its type.
        """
        deadline, drivers = Deadline.within(self._site.limits.of_search), self._hosts.drivers
        hosts = self._hosts.searched(ref, deadline)
        there = [drivers.handler(host, ref, deadline) for host in hosts]
        things = frozenset(thing for each in there for thing in each.leftovers(ref))
        service = drivers.within(drivers.some_host, deadline).services.get(ref.type)
        if service is None:
            return TypeMatch(any(each.exists(ref) for each in there), things)
        found = service.find(ref.id)
        return TypeMatch(found is not None and found.resource_type in {"", ref.type}, things)

    def _noted(self, sliver_id: str) -> str:
        noted = attempt(self._types.of, sliver_id)
        return "" if isinstance(noted, Exception) else noted

    def _served(self) -> str:
        return next(
            kind for kind in (*SERVICES, "Switch", "BareMetal") if self._site.driver_for(kind)
        )

    def refuse_other(self, sliver: SliverRef) -> None:
        """Raise Conflict if a sliver of another type has the id, or may have it, by the books."""
        for kind, why in self._unfinished(sliver.id):
            if kind != sliver.type:
                remedy = "finish or undo that first: fabric-direct recover"
                raise _is_another(sliver, kind, why, remedy)
        noted = self._noted(sliver.id)
        if noted not in {"", sliver.type}:
            self._refuse_noted(sliver, noted)
        held = () if sliver.type in SERVICES else attempt(ServiceClaims(self._site).of, sliver.id)
        if held and not isinstance(held, Exception):
            remedy = "name its type, or choose another id"
            raise _is_another(sliver, "network service", f"it holds {held[0]}", remedy)

    def _refuse_noted(self, sliver: SliverRef, noted: str) -> None:
        found = attempt(self._look, SliverRef(id=sliver.id, type=noted))
        if isinstance(found, Refused):
            return
        if isinstance(found, Exception):
            raise Conflict(
                f"sliver {sliver.id} may be a {noted}, not a {sliver.type}",
                why=str(found),
                remedy=f"once it answers, ask again; delete --type {noted} deletes what is there",
            ) from found
        if found.exists or found.things:
            raise _is_another(sliver, noted, "", "name its type, or choose another id")

    def taken(self, sliver: SliverRef, make: Callable[[], Outcome]) -> Outcome:
        """Make a sliver, with its type noted before; the id is free again if nothing was made.

        Without a note, a network service is refused the id of a VM where all VMs are in one place, and
        any other sliver that of a network service which holds something.

        :raises Conflict: as :meth:`refuse_other` does.
        :raises DriverError: if it cannot be noted.
        """
        self.refuse_other(sliver)
        noted = self._types.of(sliver.id)
        if noted == sliver.type:
            return make()
        if not noted and not registry.handler_for(sliver.type).hosted:
            self._refuse_vm(sliver)
        self._types.note(sliver)
        made = False
        try:
            outcome = make()
            made = outcome.ok or bool(outcome.left)
            return outcome
        finally:
            if not made:
                attempt(self.free, sliver.id)

    def _refuse_vm(self, sliver: SliverRef) -> None:
        if self._site.serves_vms and self._hosts.drivers.one_place:
            found = attempt(self._look, SliverRef(id=sliver.id, type=_VM))
            if isinstance(found, TypeMatch) and found.exists:
                raise _is_another(sliver, _VM, "", "give the network service another id")

    def free(self, sliver_id: str) -> None:
        """Forget the type of a sliver that is gone.

        :raises DriverError: if that cannot be noted.
        """
        self._types.strike(sliver_id)

    def _unfinished(self, sliver_id: str) -> Iterator[tuple[str, str]]:
        """Yield the types that what is unfinished was for, each with what that is."""
        entry = attempt(self._hosts.journal.of, sliver_id)
        if isinstance(entry, Unfinished):
            yield str(entry.sliver["type"]), f"its {entry.operation} is unfinished"
        looks = attempt(self._hosts.looks.of, sliver_id)
        for look in () if isinstance(looks, Exception) else looks:
            yield look.sliver.type, f"{look.host} was not looked at since it was deleted"


def _is_another(sliver: SliverRef, kind: str, why: str, remedy: str) -> Conflict:
    return Conflict(f"sliver {sliver.id} is a {kind}, not a {sliver.type}", why=why, remedy=remedy)


def type_of(sliver_id: str, kinds: Iterable[str], look: Look, usual: str) -> str:
    """Return the type of the sliver of an id, by what is there.

    :param kinds: the types that are asked for, in parallel.
    :param usual: the type of what is nowhere. Where nothing answers for it, its operation says so.
    :raises Conflict: if slivers of several types have the id.
    :raises Unreachable: if no sliver of it is there, and one may be where nothing answers.
    """
    answers = attempt_each(lambda kind: look(SliverRef(id=sliver_id, type=kind)), kinds)
    found = {
        k: a for k, a in answers.items() if isinstance(a, TypeMatch) and (a.exists or a.things)
    }
    fitting = _most(found)
    there = [kind for kind in fitting if found[kind].exists]
    if there:
        return there[0]
    for kind, error in answers.items():
        met_again = kind == usual and not fitting
        if isinstance(error, Exception) and not (isinstance(error, Refused) or met_again):
            raise Unreachable(
                f"whether {sliver_id} is a {kind} is not known",
                why=str(error),
                remedy="name the sliver's type: what has another one is not asked then",
            ) from error
    return next(iter(fitting), usual)


def _most(found: Mapping[str, TypeMatch]) -> list[str]:
    """Return the types that account for everything that was found.

    :raises Conflict: if there is none, or another one exists, too: two slivers have one id.
    """
    everything = frozenset().union(*(each.things for each in found.values()))
    most = [kind for kind, each in found.items() if each.things == everything]
    there = [kind for kind, each in found.items() if each.exists]
    if found and (not most or not {*there} <= {*most}):
        kinds = ", a ".join(there if len(there) > 1 else found)
        raise Conflict(f"several slivers have this id: a {kinds}", remedy="name the sliver's type")
    return most
