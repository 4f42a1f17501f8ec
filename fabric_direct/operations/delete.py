"""Delete a sliver, from every host that has anything of it."""

from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass

from fabric_direct.calls.deadline import Deadline
from fabric_direct.calls.read_cache import ReadCache
from fabric_direct.engine.run import attempt
from fabric_direct.errors import Conflict, DriverError, Interrupted
from fabric_direct.model import Operation, Outcome, SliverRef
from fabric_direct.operations.flow_runner import FlowRunner, Job
from fabric_direct.operations.late_calls import named
from fabric_direct.operations.locate import Answer, SliverPresence
from fabric_direct.operations.outcomes import (
    before_any_change,
    done,
    failed,
    joined,
    warned,
    with_left,
    with_warnings,
)
from fabric_direct.operations.site_hosts import SiteHosts
from fabric_direct.operations.sliver_ids import SliverIds
from fabric_direct.operations.stitches import SiteStitches
from fabric_direct.state.journal import Entry
from fabric_direct.state.pending_looks import PendingLook

_AT_ONCE = 32
"""Number of hosts that a sliver is deleted from in parallel."""


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes slivers of a site."""

    hosts: SiteHosts
    ids: SliverIds
    stitches: SiteStitches
    runner: FlowRunner

    def __call__(self, sliver: SliverRef, deadline: Deadline) -> Outcome:
        """Delete the sliver from every host that has anything of it; the outcome names what is left.

        :raises Conflict: if it is a network service that nodes are stitched to, or if the id is a
            network service's, and the type is not.
        """
        sliver = self.ids.typed(sliver)
        self.ids.refuse_other(sliver)
        self.stitches.refuse_used(sliver)
        outcome = self._everywhere(sliver, deadline)
        if not outcome.ok:
            return outcome
        orphaned = warned(self.stitches.orphaned, sliver)
        forgotten = (
            *warned(self.hosts.claims.drop, sliver.id),
            *warned(self.ids.free, sliver.id),
        )
        return with_warnings(outcome, (*forgotten, *orphaned))

    def _everywhere(self, sliver: SliverRef, deadline: Deadline) -> Outcome:
        """Delete the sliver from each host as soon as the host says that it has anything of it.

        The journal's entry is about all of them: it ends once nothing is left on any.
        """
        ref, earlier = sliver.ref(), deadline.late()
        locator = self.hosts.locator(deadline)
        unread: tuple[str, ...] = ()
        try:
            may_have = locator.may_have(sliver, self.hosts.looks.of(sliver.id))
        except DriverError as error:  # the books are damaged
            may_have, unread = frozenset(self.hosts.site.hosts), (str(error),)
        answers = locator.everywhere(sliver, may_have)
        entry, warnings = self._begin(ref)
        warnings += unread
        unlooked: list[str] = []
        turns: list[Deadline] = []

        def clear(host: str, answer: Answer) -> Outcome:
            unknown = host in may_have or isinstance(answer, Interrupted)
            if isinstance(answer, Exception) and not unknown:
                unlooked.append(host)
                return _not_looked_at(host, answer, ref)
            turns.append(deadline.of_its_own())
            return self._clear(host, answer, ref, turns[-1], entry)

        with ThreadPoolExecutor(_AT_ONCE, "fabric-direct-delete") as pool:
            clearing = {
                host: pool.submit(copy_context().run, clear, host, answer)
                for host, answer in answers
            }
        # the same, whichever host answers first
        outcomes = {host: clearing[host].result() for host in sorted(clearing)}
        untouched = not (entry.resumed or any(turn.changing for turn in turns))
        if untouched and any(each.failed_by(Interrupted) for each in outcomes.values()):
            nothing = failed(Operation.DELETE, ref, before_any_change(Operation.DELETE, ref))
            return with_warnings(self.runner.end(nothing), warnings)
        unnoted = attempt(self._note_looks, ref, outcomes, unlooked)
        outcome = with_left(joined(ref, outcomes), named({*earlier, *deadline.late()}))
        if isinstance(unnoted, Exception):
            outcome = with_left(outcome, tuple(f"unknown: {host}: {unnoted}" for host in unlooked))
            warnings += (str(unnoted),)
        if outcome.ok:
            warnings += warned(self.stitches.forget, ref.id)
        return with_warnings(self.runner.end(outcome), warnings)

    def _begin(self, ref: SliverRef) -> tuple[Entry, tuple[str, ...]]:
        """Note in the journal that a deletion begins; return the entry, and what failed as a warning.

        A deletion goes by stamp and needs no memory, so that it can free a disk that is full.
        """
        data = ref.model_dump(mode="json", exclude_none=True)
        try:
            return self.hosts.journal.begin(Operation.DELETE, data, owns_everything=True), ()
        except DriverError as error:
            return Entry(resumed=True, owns_everything=True), (str(error),)

    def _clear(
        self, host: str, answer: Answer, ref: SliverRef, deadline: Deadline, entry: Entry
    ) -> Outcome:
        """Delete what a host has of a sliver; an outcome that cannot be known leaves it unknown."""
        if answer is SliverPresence.NOTHING:
            return done(Operation.DELETE, ref)
        outcome = (
            answer
            if isinstance(answer, Exception)
            else attempt(self._delete_on, host, ref, deadline, entry)
        )
        if isinstance(outcome, Exception):
            left = (f"unknown: {outcome}",)
            return failed(Operation.DELETE, ref, outcome).model_copy(update={"left": left})
        return outcome

    def _delete_on(self, host: str, ref: SliverRef, deadline: Deadline, entry: Entry) -> Outcome:
        """Delete what a host has; of a server that its cloud has moved, on its former worker, too."""
        reads = ReadCache()
        outcomes: dict[str, Outcome] = {}
        for place in self.hosts.hosts_to_clear(host, ref, deadline, reads):
            outcomes[place] = self._delete_from(place, ref, deadline, entry, reads)
            if not outcomes[place].ok:
                break
            reads = ReadCache()
        return joined(ref, outcomes)

    def _delete_from(
        self, host: str, ref: SliverRef, deadline: Deadline, entry: Entry, reads: ReadCache
    ) -> Outcome:
        handler = self.hosts.drivers.handler(host, ref, deadline, reads)
        job = Job(Operation.DELETE, ref, handler, handler.delete(ref), reads, entry=entry)
        return self.runner.apply(job, deadline)

    # --- hosts that did not answer

    def _note_looks(
        self, ref: SliverRef, outcomes: Mapping[str, Outcome], unlooked: Collection[str]
    ) -> None:
        """Note the hosts where a deletion could not look, or left something; strike the others."""
        due = [host for host in outcomes if host in unlooked or not outcomes[host].ok]
        if len(outcomes) > 1:
            self.hosts.looks.write(
                PendingLook(ref, host, found=host not in unlooked) for host in due
            )
        for look in self.hosts.looks.of(ref.id):
            if look.host not in due:  # it was looked at, or is no host of the site any more
                self.hosts.looks.strike(ref.id, look.host)

    def pending_looks(self) -> tuple[PendingLook, ...]:
        """Return the hosts where slivers that were deleted, and not made again, were not looked for."""
        looks, homes = self.hosts.looks.all(), self.hosts.claims.homes()
        return tuple(
            look for look in looks if look.latest and not look.found and look.sliver.id not in homes
        )

    def look_again(self, look: PendingLook, deadline: Deadline) -> Outcome:
        """Look at a host for what it has of a deleted sliver, and delete that, and nothing elsewhere.

        :raises Conflict: if the sliver was made again meanwhile.
        """
        ref, host = look.sliver, look.host
        if look not in self.hosts.looks.of(ref.id) or host not in self.hosts.site.hosts:
            self.hosts.looks.strike(ref.id, host)
            return done(Operation.DELETE, ref)
        if self.hosts.claims.home(ref.id) is not None:
            raise Conflict(
                f"sliver {ref.id} was made again", remedy="its next deletion looks there"
            )
        answer = attempt(self.hosts.locator(deadline).presence, ref, host)
        if isinstance(answer, Interrupted):
            raise answer
        if isinstance(answer, Exception):
            return _not_looked_at(host, answer, ref)
        entry = Entry(resumed=False, owns_everything=True)
        outcome = self._clear(host, answer, ref, deadline, entry)
        if outcome.ok:
            self.hosts.looks.strike(ref.id, host)
        return outcome


def _not_looked_at(host: str, why: Exception, ref: SliverRef) -> Outcome:
    """Return the outcome of a deletion on a host that does not answer, and has nothing by the books."""
    said = f"host {host} was not looked at, and will be: {why}"
    return done(Operation.DELETE, ref, warnings=(said,))
