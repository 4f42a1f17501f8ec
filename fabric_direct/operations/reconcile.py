"""Make a sliver again what its stamp says."""

from dataclasses import dataclass, replace

from fabric_direct.calls.deadline import Deadline
from fabric_direct.calls.read_cache import ReadCache
from fabric_direct.engine.run import attempt
from fabric_direct.engine.verify import observed_by
from fabric_direct.errors import Conflict
from fabric_direct.handlers.handler import Repair
from fabric_direct.model import Operation, Outcome, SliverRef
from fabric_direct.operations.flow_runner import FlowRunner, Job
from fabric_direct.operations.outcomes import reconciled, warned, with_warnings
from fabric_direct.operations.site_hosts import SiteHosts
from fabric_direct.operations.sliver_ids import SliverIds
from fabric_direct.operations.stitches import SiteStitches


@dataclass(frozen=True, slots=True)
class Reconcile:
    """Repairs slivers of a site."""

    hosts: SiteHosts
    ids: SliverIds
    stitches: SiteStitches
    runner: FlowRunner

    def __call__(self, sliver: SliverRef, deadline: Deadline) -> Outcome:
        """Make the sliver again what its stamp says; name what cannot be repaired.

        What it is stitched to is another sliver's: what differs there is a warning.

        :raises Conflict: if another operation on it is unfinished: its stamp may be outdated; or if a
            sliver of another type has the id, by the books.
        """
        entry = self.hosts.journal.of(sliver.id)
        if entry and entry.operation is not Operation.RECONCILE:
            raise Conflict(
                f"an operation on sliver {sliver.id} is unfinished: {entry.operation}",
                remedy="finish or undo it first: fabric-direct recover",
            )
        sliver = self.ids.typed(sliver)
        self.ids.refuse_other(sliver)
        outcome = self._repaired(sliver, deadline)
        return with_warnings(outcome, warned(self.stitches.lost, sliver.ref(), deadline))

    def _repaired(self, sliver: SliverRef, deadline: Deadline) -> Outcome:
        reads = ReadCache()
        host = self.hosts.host_of(sliver.ref(), deadline, reads)
        handler = self.hosts.drivers.handler(host, sliver, deadline, reads)
        with self.hosts.devices.lost_named(host, sliver, deadline):
            repair: Repair = handler.reconcile(sliver.ref())
        if not repair.flow.stages:
            outcome = reconciled(sliver, repair, (), repair.found)
            return self.runner.end(outcome) if self.hosts.journal.of(sliver.id) else outcome
        job = Job(Operation.RECONCILE, repair.sliver, handler, repair.flow, reads)
        outcome = self.runner.apply(job, deadline)
        if not outcome.ok:
            data = outcome.data | {"differences": list(repair.found.differences)}
            return outcome.model_copy(update={"data": data})
        found = observed_by(repair.flow) or repair.found
        if found.differences:  # an answer may lack what is there: once more, before it is said
            reads.invalidate()
            again = attempt(handler.reconcile, sliver.ref())
            if isinstance(again, Repair):
                found, repair = again.found, replace(repair, beyond=again.beyond)
        return reconciled(sliver, repair, outcome.steps, found)
