"""Read a sliver, and compare it with what it should be."""

from dataclasses import dataclass

from fabric_direct.calls.deadline import Deadline
from fabric_direct.calls.read_cache import ReadCache
from fabric_direct.engine.run import attempt
from fabric_direct.errors import Conflict
from fabric_direct.model import NodeSliver, Observed, Operation, Outcome, SliverRef
from fabric_direct.operations.outcomes import done
from fabric_direct.operations.site_hosts import SiteHosts
from fabric_direct.operations.sliver_ids import SliverIds
from fabric_direct.operations.stitches import SiteStitches
from fabric_direct.operations.stitching import EndsNow
from fabric_direct.operations.whole_cards import with_whole_cards


@dataclass(frozen=True, slots=True)
class Probe:
    """Reads slivers of a site."""

    hosts: SiteHosts
    ids: SliverIds
    stitches: SiteStitches

    def __call__(self, sliver: SliverRef, deadline: Deadline) -> Outcome:
        """Read the sliver, on whatever host it is; what it leaves open is taken as it is.

        :raises Conflict: if a sliver of another type has the id, by the books.
        """
        sliver, reads = self.ids.typed(sliver), ReadCache()
        self.ids.refuse_other(sliver)
        ends = attempt(self.stitches.ends_now, sliver, deadline)
        if isinstance(ends, Exception):
            ends = EndsNow(sliver, unknown=(str(ends),))
        asked = self.stitches.requested(sliver, deadline) if ends.agree else None
        known = asked or with_whole_cards(self.hosts.site, ends.sliver)
        try:
            observed = self._observe(known, deadline, reads)
        except Conflict:
            observed = self.hosts.handler(known.ref(), deadline, reads).observe(known)
        every = (*observed.differences, *ends.differences)
        observed = observed.model_copy(update={"differences": every})
        warnings = (*ends.unknown, *reads.warnings)
        return done(Operation.PROBE, sliver, observed=observed, warnings=warnings)

    def _observe(self, sliver: SliverRef, deadline: Deadline, reads: ReadCache) -> Observed:
        """Observe the sliver on the host that it names.

        :raises Conflict: if another one has it.
        """
        if isinstance(sliver, NodeSliver) and sliver.open:
            sliver = self.hosts.locator(deadline).known(sliver).sliver
        return self.hosts.handler(sliver, deadline, reads).observe(sliver)
