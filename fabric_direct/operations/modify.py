"""Modify a sliver."""

from collections.abc import Callable
from dataclasses import dataclass

from fabric_direct.calls.deadline import Deadline
from fabric_direct.calls.read_cache import ReadCache
from fabric_direct.engine.step import Flow
from fabric_direct.model import NodeSliver, Operation, Outcome, SliverRef
from fabric_direct.operations.flow_runner import FlowRunner, Job
from fabric_direct.operations.outcomes import warned, with_warnings
from fabric_direct.operations.saved_plan import PlannedSliver
from fabric_direct.operations.site_hosts import SiteHosts
from fabric_direct.operations.sliver_ids import SliverIds
from fabric_direct.operations.stitches import SiteStitches

_Around = Callable[[Flow, SliverRef, Deadline], Flow]


@dataclass(frozen=True, slots=True)
class Modify:
    """Modifies slivers of a site."""

    hosts: SiteHosts
    ids: SliverIds
    stitches: SiteStitches
    runner: FlowRunner

    def __call__(
        self, sliver: SliverRef, deadline: Deadline, expected: PlannedSliver | None = None
    ) -> Outcome:
        """Modify the sliver; if that fails, restore it, or name in the outcome what is not restored.

        What the sliver leaves open stays as it is; placement chooses the functions of new devices.

        :param expected: what a saved plan says of it: nothing else is done.
        :raises Refused: if that is not what would be done now.
        """

        def modify() -> Outcome:
            wanted = self.stitches.requested(sliver, deadline)
            return self._modify(wanted, deadline, self.stitches.around, expected)

        outcome = self.ids.taken(sliver, modify)
        if not outcome.ok:
            return outcome
        return with_warnings(outcome, warned(self.stitches.outdated, sliver, deadline))

    def back(self, former: SliverRef, deadline: Deadline) -> Outcome:
        """Make a sliver what it was, whatever has become of what it is stitched to."""
        return self._modify(former, deadline, self.stitches.back)

    def _modify(
        self,
        sliver: SliverRef,
        deadline: Deadline,
        around: _Around,
        expected: PlannedSliver | None = None,
    ) -> Outcome:
        if not (isinstance(sliver, NodeSliver) and sliver.open):
            return self._as_placed(sliver, deadline, around, expected)
        with self.hosts.settling(sliver, deadline) as warnings:
            placed = self.hosts.locator(deadline).change(sliver)
            if expected:
                expected.refuse_other_place(placed)
            outcome = self._as_placed(placed, deadline, around, expected)
        return with_warnings(outcome, warnings)

    def _as_placed(
        self,
        sliver: SliverRef,
        deadline: Deadline,
        around: _Around,
        expected: PlannedSliver | None,
    ) -> Outcome:
        reads = ReadCache()
        host = self.hosts.host_of(sliver, deadline, reads)
        handler = self.hosts.drivers.handler(host, sliver, deadline, reads)
        with self.hosts.devices.lost_named(host, sliver, deadline):
            flow = around(handler.modify(sliver), sliver, deadline)
        job = Job(Operation.MODIFY, sliver, handler, flow, reads, expected=expected)
        return self.runner.apply(job, deadline)
