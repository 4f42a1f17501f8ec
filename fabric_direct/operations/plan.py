"""Say what an operation on a sliver would do."""

from dataclasses import dataclass
from typing import Any

from fabric_direct.calls.deadline import Deadline, read_within
from fabric_direct.calls.read_cache import ReadCache
from fabric_direct.engine.run import preview
from fabric_direct.handlers import registry
from fabric_direct.handlers.handler import Handler, Repair
from fabric_direct.model import NodeSliver, Operation, Outcome, SliverRef, StepReport
from fabric_direct.operations.outcomes import done, warned
from fabric_direct.operations.saved_plan import placement_devices
from fabric_direct.operations.site_hosts import SiteHosts
from fabric_direct.operations.sliver_ids import SliverIds
from fabric_direct.operations.stitches import SiteStitches
from fabric_direct.placement.placer import Placement


@dataclass(frozen=True, slots=True)
class Plan:
    """Plans operations on slivers of a site."""

    hosts: SiteHosts
    ids: SliverIds
    stitches: SiteStitches

    def __call__(
        self, sliver: SliverRef, operation: Operation | None, deadline: Deadline
    ) -> Outcome:
        """Return what each step of an operation would do. One limit holds for all steps together.

        The data of the outcome have the ``operation``. Of a sliver that leaves its host or devices open,
        they name the functions of its ``devices`` and, if it is not there, the ``host`` that placement
        would choose. Of a service whose controller shows what it would send to its devices, they have
        that as ``device_changes``, by the names of the devices.

        :param operation: by default modify if the sliver is there, else create.
        :raises Conflict: if the id is a network service's, and the type is not.
        """
        sliver = self.ids.typed(sliver)
        self.ids.refuse_other(sliver)
        if operation is Operation.RECONCILE:
            return self._repair(sliver.ref(), deadline)
        make: type[Handler] = registry.handler_for(sliver.type)
        reads = ReadCache(read_only=True)
        if operation is not Operation.DELETE:
            sliver = self.stitches.requested(sliver, deadline)
        placement = self._foreseen(sliver, operation, deadline)
        wanted = placement.sliver if placement else sliver
        host = self.hosts.host_of(wanted, deadline, reads)

        def ask() -> tuple[Operation, tuple[StepReport, ...]]:
            with reads.active():
                handler = make(self.hosts.site, self.hosts.drivers.of(host))
                usual = Operation.MODIFY if handler.exists(wanted) else Operation.CREATE
                chosen = operation or usual
                flow = getattr(handler, chosen.value)(wanted)
                if operation is not Operation.DELETE:
                    flow = self.stitches.around(flow, wanted, deadline)
                return chosen, preview(flow)

        with self.hosts.devices.lost_named(host, sliver, deadline):
            what = f"the plan to {operation or 'change it'}"
            planned, steps = read_within(deadline.remaining(), what, ask)
        data: dict[str, Any] = {"operation": planned.value}
        if placement:
            data |= {**placement.data(), "devices": placement_devices(placement.sliver)}
        if reads.device_changes:
            data["device_changes"] = reads.device_changes
        warnings = (*(placement.warnings if placement else ()), *reads.warnings)
        return done(Operation.PLAN, sliver, steps=steps, data=data, warnings=warnings)

    def _foreseen(
        self, sliver: SliverRef, operation: Operation | None, deadline: Deadline
    ) -> Placement | None:
        """Return the placement of a sliver that leaves its host or devices open, without a claim."""
        if not (isinstance(sliver, NodeSliver) and sliver.open) or operation is Operation.DELETE:
            return None
        locator = self.hosts.locator(deadline)
        placement = locator.place(sliver, claim=False)
        if placement.new or not placement.sliver.open:
            return placement
        return Placement(locator.change(sliver, claim=False))

    def _repair(self, ref: SliverRef, deadline: Deadline) -> Outcome:
        """Return how the sliver differs from its stamp, and what each step of its repair would do."""
        make: type[Handler] = registry.handler_for(ref.type)
        reads = ReadCache(read_only=True)
        host = self.hosts.host_of(ref, deadline, reads)

        def ask() -> tuple[Repair, tuple[StepReport, ...]]:
            with reads.active():
                handler = make(self.hosts.site, self.hosts.drivers.of(host))
                repair: Repair = handler.reconcile(ref)
                return repair, preview(repair.flow)

        repair, steps = read_within(deadline.remaining(), "the plan to reconcile it", ask)
        return done(
            Operation.PLAN,
            ref,
            steps=steps,
            observed=repair.found,
            warnings=(*reads.warnings, *warned(self.stitches.lost, ref, deadline)),
            data={"beyond": list(repair.beyond)} if repair.beyond else {},
        )
