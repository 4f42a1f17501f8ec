"""Create a sliver."""

from dataclasses import dataclass

from fabric_direct.calls.deadline import Deadline
from fabric_direct.calls.read_cache import ReadCache
from fabric_direct.engine.run import attempt
from fabric_direct.errors import FabricDirectError
from fabric_direct.model import NodeSliver, Operation, Outcome, SliverRef
from fabric_direct.operations.flow_runner import FlowRunner, Job
from fabric_direct.operations.outcomes import HostRefusals, failed, warned, with_warnings
from fabric_direct.operations.saved_plan import PlannedSliver
from fabric_direct.operations.site_hosts import SiteHosts
from fabric_direct.operations.sliver_ids import SliverIds
from fabric_direct.operations.stitches import SiteStitches
from fabric_direct.placement.placer import Placement


@dataclass(frozen=True, slots=True)
class Create:
    """Creates slivers of a site."""

    hosts: SiteHosts
    ids: SliverIds
    stitches: SiteStitches
    runner: FlowRunner

    def __call__(
        self,
        sliver: SliverRef,
        deadline: Deadline,
        planned: Placement | None = None,
        expected: PlannedSliver | None = None,
    ) -> Outcome:
        """Create the sliver; if that fails, remove all of it, or name in the outcome what is left.

        A sliver that leaves its host or devices open is placed. If the host refuses it, the next host
        is tried.

        :param planned: its placement in a build plan, which has claimed what it takes.
        :param expected: what a saved plan says of it: nothing else is done.
        :raises Refused: if that is not what would be done now.
        :raises Conflict: if a sliver of another type has the id, as far as that can be read.
        """

        def create() -> Outcome:
            wanted = self.stitches.requested(sliver, deadline)
            with self.hosts.settling(wanted, deadline) as warnings:
                if isinstance(wanted, NodeSliver) and (wanted.open or planned):
                    outcome = self._placed(wanted, deadline, planned, expected)
                else:
                    unpromised = self.hosts.unpromised(wanted, deadline)
                    outcome = self._named(unpromised, deadline, expected)
            return with_warnings(outcome, warnings)

        return self.ids.taken(sliver, create)

    def _placed(
        self,
        sliver: NodeSliver,
        deadline: Deadline,
        planned: Placement | None,
        expected: PlannedSliver | None,
    ) -> Outcome:
        """Try one host after the other until one does not refuse the sliver.

        A saved plan has one host: no other is tried.
        """
        site = self.hosts.site
        refusals = HostRefusals(0 if expected else site.placement.retries)
        chosen = expected.host if expected else None
        others = {host for host in site.hosts if chosen not in {None, host}}
        while True:
            turn = deadline.of_its_own()
            without = others.union(refusals.hosts)
            try:
                placement = self.hosts.locator(turn).place(sliver, planned, without=without)
            except FabricDirectError as error:
                return refusals.none_left(error)
            outcome = self._there(placement, turn, expected)
            next_one = refusals.take(placement.sliver.host, outcome)
            if not next_one or not deadline.remaining():
                return refusals.told(outcome)

    def _there(
        self, placement: Placement, deadline: Deadline, expected: PlannedSliver | None
    ) -> Outcome:
        sliver, new, reads = placement.sliver, placement.new, ReadCache()
        host = sliver.host or self.hosts.host_of(sliver, deadline, reads)  # a stamp may name none
        outcome = self._create(sliver, host, deadline, reads, expected, new=new, placed=sliver)
        warnings = placement.warnings + outcome.warnings
        return outcome.model_copy(update={"warnings": warnings, "data": {"host": host}})

    def _named(
        self, sliver: SliverRef, deadline: Deadline, expected: PlannedSliver | None
    ) -> Outcome:
        """Create the sliver on the host that it names, or where nothing else can have it.

        The host is remembered: so the sliver is not created on another one as well, and no other has to
        be asked whether it has it.
        """
        reads, claims = ReadCache(), self.hosts.claims
        host = self.hosts.host_of(sliver, deadline, reads)
        new = not self.hosts.drivers.one_place and claims.home(sliver.id) != host
        if new:
            claims.remember(sliver.id, host)
        return self._create(sliver, host, deadline, reads, expected, new=new)

    def _create(
        self,
        sliver: SliverRef,
        host: str,
        deadline: Deadline,
        reads: ReadCache,
        expected: PlannedSliver | None,
        *,
        new: bool,
        placed: NodeSliver | None = None,
    ) -> Outcome:
        """Create the sliver on a host; forget the host if that is new and nothing is there.

        :param placed: the sliver, if placement has chosen the host.
        """

        def create() -> Outcome:
            if expected and placed:
                expected.refuse_other_place(placed)
            handler = self.hosts.drivers.handler(host, sliver, deadline, reads)
            with self.hosts.devices.lost_named(host, sliver, deadline):
                flow = self.stitches.around(handler.create(sliver), sliver, deadline)
            chosen = host if placed else ""
            job = Job(Operation.CREATE, sliver, handler, flow, reads, chosen, expected=expected)
            self.hosts.looks.made(sliver.id, host)
            return self.runner.apply(job, deadline)

        outcome = attempt(create)
        if isinstance(outcome, Exception):
            outcome = failed(Operation.CREATE, sliver, outcome)
        if not new or outcome.ok or outcome.left:
            return outcome
        return with_warnings(outcome, warned(self.hosts.claims.drop, sliver.id))
