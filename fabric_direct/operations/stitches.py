"""The stitches of a site: found for each operation, noted, and looked at from the other end."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TypeVar

from fabric_direct.calls.deadline import Deadline
from fabric_direct.drivers.contract import Service
from fabric_direct.engine.run import attempt, attempt_each
from fabric_direct.engine.step import Flow
from fabric_direct.errors import Conflict, InvalidSliver
from fabric_direct.handlers.vm.steps.stitches import HoldStitches, ReleaseStitches
from fabric_direct.model import Operation, SliverRef
from fabric_direct.model.references import Needs
from fabric_direct.model.services import SERVICES
from fabric_direct.operations.site_hosts import SiteHosts
from fabric_direct.operations.stitching import (
    EndsNow,
    Stitched,
    StitchedNode,
    Stitching,
    ends_of,
    unanswered,
)
from fabric_direct.operations.whole_cards import with_whole_cards
from fabric_direct.state.stitches import Stitch, Stitches

S = TypeVar("S", bound=SliverRef)


class SiteStitches:
    """The stitches of a site. Each method ends by the deadline that it is given."""

    def __init__(self, hosts: SiteHosts) -> None:
        """Read nothing yet."""
        self._hosts, self._noted = hosts, Stitches(hosts.site)

    def stitched(self, sliver: S, deadline: Deadline) -> S:
        """Return the sliver with what it takes from the ends that it names.

        :raises InvalidSliver: as :meth:`.Stitching.stitched` does.
        """
        made: S = self._stitching(deadline).stitched(sliver).sliver
        return made

    def requested(self, sliver: S, deadline: Deadline) -> S:
        """Return the sliver as :meth:`stitched` does, and with whole cards."""
        return with_whole_cards(self._hosts.site, self.stitched(sliver, deadline))

    def around(self, flow: Flow, sliver: SliverRef, deadline: Deadline) -> Flow:
        """Return the flow that makes or changes a sliver, with the notes of what it is stitched to."""
        found: Stitched = self._stitching(deadline).stitched(sliver)
        surplus = set(self._noted.of(sliver.id)) - set(found.stitches)
        hold = HoldStitches(
            self._noted, sliver.id, found.stitches, lambda: self.stitched(sliver, deadline)
        )
        release = ReleaseStitches(self._noted, sliver.id, found.stitches)
        before, after = [(hold,)] if found.stitches else [], [(release,)] if surplus else []
        return replace(flow, stages=(*before, *flow.stages, *after))

    def back(self, flow: Flow, sliver: SliverRef, deadline: Deadline) -> Flow:
        """Return the flow that makes a sliver what it was, with the notes of what it is stitched to.

        An end that has changed since does not refuse it: what is noted of that end stays.
        """
        try:
            return self.around(flow, sliver, deadline)
        except InvalidSliver:
            ends = set(ends_of(sliver))
            kept = tuple(s for s in self._noted.of(sliver.id) if (s.part, s.other) in ends)
            release = ReleaseStitches(self._noted, sliver.id, kept)
            return replace(flow, stages=(*flow.stages, (release,)))

    def ends_now(self, sliver: SliverRef, deadline: Deadline) -> EndsNow:
        """Return what the ends are that a sliver names, or that its stamp does if it is a reference.

        :raises Exception: if its stamp cannot be read, or its stitches.
        """
        stitching = self._stitching(deadline)
        if type(sliver) is not SliverRef:
            found = stitching.ends_now(sliver, None)
            return (
                stitching.ends_now(sliver, self._stamp(sliver, deadline))
                if found.unknown
                else found
            )
        stamp = self._stamp(sliver, deadline) if self._noted.of(sliver.id) else None
        found = stitching.ends_now(stamp, None) if stamp else EndsNow(sliver)
        return replace(found, sliver=sliver)

    def lost(self, ref: SliverRef, deadline: Deadline) -> tuple[str, ...]:
        """Return how the ends that a sliver's stamp names differ from what it says; none is repaired."""
        return self.ends_now(ref, deadline).differences

    def outdated(self, sliver: SliverRef, deadline: Deadline) -> tuple[str, ...]:
        """Return which slivers have other values from this one than it has now, a sentence each.

        Also where it could not be read what it has.
        """
        stitching, service = self._stitching(deadline), sliver.type in SERVICES
        there = self._noted.to(sliver.id)
        now = {s: attempt(partial(stitching.now, service=service), s) for s in there}
        return tuple(
            unanswered(s, found) if isinstance(found, Exception) else _outdated(s, found)
            for s, found in now.items()
            if found != s.taken
        )

    def refuse_used(self, ref: SliverRef) -> None:
        """Raise Conflict if nodes are stitched to a service, which is to be deleted."""
        users = self._noted.to(ref.id) if ref.type in SERVICES else ()
        if users:
            raise Conflict(
                f"service {ref.id} is in use",
                why=", ".join(f"{user} is stitched to interface {user.end}" for user in users),
                remedy="delete these slivers first, or with the same command; or modify them",
            )

    def orphaned(self, ref: SliverRef) -> tuple[str, ...]:
        """Return which slivers name a part of one that was deleted, a sentence each."""
        return tuple(
            f"sliver {s.sliver} is still stitched to {s.other}/{s.end}: modify or delete it"
            for s in self._noted.to(ref.id)
        )

    def forget(self, sliver_id: str) -> None:
        """Forget what a sliver that is gone was stitched to."""
        if there := self._noted.of(sliver_id):
            self._noted.release(there)

    def needs(self, refs: Sequence[SliverRef]) -> Needs:
        """Return what each of these slivers is stitched to."""
        return {ref.id: tuple(s.other for s in self._noted.of(ref.id)) for ref in refs}

    # --- the other ends

    def _stitching(self, deadline: Deadline) -> Stitching:
        return Stitching(
            self._hosts.site,
            cache(lambda sliver: self._node(sliver, deadline)),
            cache(lambda sliver: self._service(sliver, deadline)),
            cache(lambda host: self._hosts.drivers.within(host, deadline)),
        )

    def _node(self, sliver_id: str, deadline: Deadline) -> StitchedNode | None:
        host = self._hosts.host_of(SliverRef(id=sliver_id, type="VM"), deadline)
        drivers = self._hosts.drivers.within(host, deadline)
        server = drivers.compute.find(sliver_id)
        if server is None or server.unfinished or self._begun(sliver_id):
            return None
        return StitchedNode(server, drivers)

    def _service(self, sliver_id: str, deadline: Deadline) -> Service | None:
        """Return a service that is there; all drivers are asked, for an id does not say its type.

        :raises Exception: of a driver that does not answer, if no other has the service.
        """
        if self._begun(sliver_id):
            return None
        drivers = self._hosts.drivers
        services = drivers.within(drivers.some_host, deadline).services
        each = {id(driver): driver for driver in services.values()}
        answers = attempt_each(lambda key: each[key].find(sliver_id), each).values()
        errors = [answer for answer in answers if isinstance(answer, Exception)]
        found = next((a for a in answers if a and not isinstance(a, Exception)), None)
        if found is None and errors:
            raise errors[0]
        return found

    def _begun(self, sliver_id: str) -> bool:
        """Return whether the sliver's creation, or deletion, has begun and not ended."""
        entry = self._hosts.journal.of(sliver_id)
        return entry is not None and entry.operation in {Operation.CREATE, Operation.DELETE}

    def _stamp(self, ref: SliverRef, deadline: Deadline) -> SliverRef | None:
        if ref.type in SERVICES:
            service = self._service(ref.id, deadline)
            return service.stamp if service else None
        node = self._node(ref.id, deadline)
        return node.server.stamp.sliver if node else None


def _outdated(stitch: Stitch, now: str) -> str:
    return (
        f"modify {stitch.sliver}: {stitch.part} was stitched to {stitch.other}/{stitch.end} with "
        f"{stitch.taken}, which now has {now}"
    )
