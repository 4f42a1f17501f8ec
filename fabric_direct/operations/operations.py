"""The operations of a site, made of what they share."""

from collections.abc import Callable
from concurrent.futures import Executor

from fabric_direct.calls.deadline import Deadline
from fabric_direct.model import Operation, Outcome, SliverRef
from fabric_direct.operations.act import Act
from fabric_direct.operations.adopt import Adopt
from fabric_direct.operations.create import Create
from fabric_direct.operations.delete import Delete
from fabric_direct.operations.flow_runner import FlowRunner
from fabric_direct.operations.modify import Modify
from fabric_direct.operations.plan import Plan
from fabric_direct.operations.probe import Probe
from fabric_direct.operations.progress import Progress
from fabric_direct.operations.reconcile import Reconcile
from fabric_direct.operations.recover import Recover
from fabric_direct.operations.requests import (
    ActionRequest,
    AdoptionRequest,
    ChangeRequest,
    LookRequest,
    OperationRequest,
    PlanRequest,
    RecoveryRequest,
)
from fabric_direct.operations.site_hosts import SiteHosts
from fabric_direct.operations.site_queries import SiteQueries
from fabric_direct.operations.sliver_ids import SliverIds
from fabric_direct.operations.stitches import SiteStitches
from fabric_direct.site.config import Site
from fabric_direct.state.journal import Journal


class Operations:
    """The operations of a site; each runs in the thread of its caller."""

    def __init__(
        self,
        site: Site,
        journal: Journal,
        steps: Executor,
        tell: Callable[[Progress], None],
    ) -> None:
        """Connect to nothing yet.

        :param steps: the pool that steps run in; not the one that operations are called in.
        :param tell: hears of each step.
        """
        self.hosts = hosts = SiteHosts(site, journal)
        stitches, ids = SiteStitches(hosts), SliverIds(hosts)
        runner = FlowRunner(hosts, stitches, steps, tell)
        self.create = Create(hosts, ids, stitches, runner)
        self.modify = Modify(hosts, ids, stitches, runner)
        self.reconcile = Reconcile(hosts, ids, stitches, runner)
        self.delete = Delete(hosts, ids, stitches, runner)
        self.adopt = Adopt(hosts, ids, runner)
        self.recover = Recover(
            hosts, self.create, self.modify, self.reconcile, self.delete, self.adopt
        )
        self.probe = Probe(hosts, ids, stitches)
        self.plan = Plan(hosts, ids, stitches)
        self.act = Act(hosts, ids)
        self.queries = SiteQueries(hosts, ids, stitches)
        self._on_all_of_it: dict[Operation, Callable[[SliverRef, Deadline], Outcome]] = {
            Operation.DELETE: self.delete,
            Operation.PROBE: self.probe,
            Operation.RECONCILE: self.reconcile,
        }

    def carry_out(self, request: OperationRequest, deadline: Deadline) -> Outcome:
        """Do what a request asks for; return what came of it.

        :raises FabricDirectError: as the operation does, before it has changed anything.
        """
        operation, sliver = request.operation, request.sliver
        match request:
            case ChangeRequest(placement=placement, expected=expected):
                if operation is Operation.CREATE:
                    outcome = self.create(sliver, deadline, placement, expected)
                else:
                    outcome = self.modify(sliver, deadline, expected)
            case ActionRequest(action=action, data=data):
                outcome = self.act(sliver, action, data, deadline)
            case AdoptionRequest(wanted=wanted):
                outcome = self.adopt(wanted, deadline, plan=operation is Operation.PLAN)
            case PlanRequest(planned=planned):
                outcome = self.plan(sliver, planned, deadline)
            case RecoveryRequest(entry=entry, undo=undo):
                outcome = self.recover(entry, deadline, undo=undo)
            case LookRequest(look=look):
                outcome = self.delete.look_again(look, deadline)
            case _:
                outcome = self._on_all_of_it[operation](sliver, deadline)
        return outcome
