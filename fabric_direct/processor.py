"""The processor: operations in threads, in order for each sliver, with futures of their outcomes.

One processor serves a process. It may be created before a fork and used after it, by any thread, and by
coroutines: its futures can be awaited.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import ExitStack, contextmanager
from contextvars import Context, copy_context
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from inspect import iscoroutinefunction
from threading import Thread, get_ident
from types import NoneType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from fabric_direct.calls import forks, metrics
from fabric_direct.calls.deadline import Deadline, Interruption
from fabric_direct.calls.fence import outside
from fabric_direct.calls.keyed_queue import KeyedQueue
from fabric_direct.calls.log_context import about
from fabric_direct.calls.metrics import Measurement
from fabric_direct.calls.tracing import span
from fabric_direct.drivers.contract import (
    BareMetalNode,
    FoundPort,
    FoundServer,
    HostDevice,
    NodeCondition,
    Server,
)
from fabric_direct.engine.run import attempt, attempt_each
from fabric_direct.errors import Conflict, InvalidSite, Refused, Unsupported
from fabric_direct.handlers import registry
from fabric_direct.handlers.driver_settings import check_driver_settings
from fabric_direct.handlers.handler import Handler
from fabric_direct.handlers.vm.adoption_draft import Draft
from fabric_direct.model import NodeSliver, Operation, Outcome, PciAddress, Sliver, SliverRef
from fabric_direct.model.adoption import Adoption, ServiceAdoption
from fabric_direct.model.bare_metal import BareMetalSliver, MachineSliver
from fabric_direct.model.references import Needs, needs
from fabric_direct.operations import site_metrics
from fabric_direct.operations.late_calls import LateCalls, named, until
from fabric_direct.operations.operation_future import OperationFuture
from fabric_direct.operations.operations import Operations
from fabric_direct.operations.outcomes import failed, report, status_of
from fabric_direct.operations.progress import Progress, telling
from fabric_direct.operations.requests import (
    SWEEP,
    ActionRequest,
    AdoptionRequest,
    ChangeRequest,
    LookRequest,
    OperationRequest,
    PlanRequest,
    RecoveryRequest,
)
from fabric_direct.operations.saved_plan import SavedPlan
from fabric_direct.operations.whole_cards import with_whole_cards
from fabric_direct.placement.placer import NodePlacement, Placement
from fabric_direct.placement.plan import BuildPlan, Explanation
from fabric_direct.placement.state import HostState
from fabric_direct.site.config import Site
from fabric_direct.state.audit_trail import Asker, AuditTrail, Record, asking
from fabric_direct.state.journal import Journal, Unfinished
from fabric_direct.state.pending_looks import PendingLook
from fabric_direct.state.repair_history import Note
from fabric_direct.state.site_store import store_of
from fabric_direct.state.step_notes import StepNote, StepNotes
from fabric_direct.state.store import sliver_lock
from fabric_direct.upkeep.device_owners import Lacks
from fabric_direct.upkeep.drift import SiteDrift
from fabric_direct.upkeep.services import SitePorts, SiteServices
from fabric_direct.upkeep.sweep.dry_runs import DryRuns
from fabric_direct.upkeep.sweep.findings import Findings, FoundResource, LeftAlone
from fabric_direct.upkeep.sweep.sweeper import AT_MOST, Sweeper
from fabric_direct.upkeep.watch import Watcher

if TYPE_CHECKING:
    from fabric_direct.operations.front import Front

log = logging.getLogger(__name__)
# A program that does not configure logging does not find the messages on its standard error.
logging.getLogger("fabric_direct").addHandler(logging.NullHandler())
T = TypeVar("T")
S = TypeVar("S", bound=SliverRef)
_READING = frozenset({Operation.PLAN, Operation.PROBE})
_PLANNED = (None, Operation.CREATE, Operation.MODIFY, Operation.DELETE, Operation.RECONCILE)
"""Operations that change nothing."""


@dataclass
class _Invocation:
    request: OperationRequest
    told: bool = True
    """Whether somebody asked for it, and is told of its outcome."""
    before: "Mapping[str, Future[Outcome]]" = field(default_factory=dict)
    """The same operation on other slivers, by their ids: it begins after these have ended, and is
    carried out only if they were done."""
    future: OperationFuture = field(default_factory=OperationFuture)
    interruption: Interruption = field(default_factory=Interruption)
    context: Context = field(default_factory=copy_context)
    """The context of the caller, for the threads of the operation: its logs can tell whose it is."""
    undone: tuple[str, ...] = ()
    """Slivers of which another process knows that the operation was not done that must be first."""

    @property
    def operation(self) -> Operation:
        return self.request.operation

    @property
    def sliver(self) -> SliverRef:
        return self.request.sliver

    def refuse_undone(self) -> None:
        """Raise Conflict if an operation was not done that must be first."""
        undone = [name for name, future in self.before.items() if not _is_done(future)]
        if undone := [*undone, *self.undone]:
            raise Conflict(
                f"{self.operation} of {self.sliver.id} was not begun",
                why=f"{self.operation} of {', '.join(undone)} was not done, which must be first",
                remedy="mend that, and ask for both again",
            )


def _is_done(future: "Future[Outcome]") -> bool:
    return not future.cancelled() and future.result().ok


def _when_done(futures: "Collection[Future[Outcome]]", then: Callable[[], object]) -> None:
    """Call a function as soon as all futures are done."""
    undone = next((future for future in futures if not future.done()), None)
    if undone is None:
        then()
    else:
        undone.add_done_callback(lambda _: _when_done(futures, then))


@dataclass(frozen=True)
class Sweep:
    """A sweep that was confirmed and has begun."""

    findings: Findings
    deletions: list[OperationFuture]
    """Of the slivers that go, in the order of ``findings.types``."""
    kept: tuple[LeftAlone, ...]
    """What belongs to no sliver, would go, and could not be removed."""


class _Threads(ThreadPoolExecutor):
    """Threads that run each function in the context of the thread that submitted it."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        return super().submit(copy_context().run, fn, *args, **kwargs)


class HandlerProcessor:
    """Run operations on slivers and return futures of their outcomes.

    Operations on one sliver run strictly in the order of the calls, those on different slivers in
    parallel. An operation that has not begun can be cancelled by its future. Its failure (a refusal, an
    error of an API, a time limit) is an :class:`~fabric_direct.model.Outcome`, not an exception. What is
    not a sliver is refused at once by a TypeError.
    """

    def __init__(
        self,
        site: Site,
        *,
        workers: int = 10,
        step_workers: int = 32,
        on_progress: Callable[[Progress], None] | None = None,
        on_done: Callable[[Outcome], None] | None = None,
    ) -> None:
        """Create a processor; it starts no thread before the first call.

        :param workers: how many operations run at once.
        :param step_workers: how many of their steps run at once, in a pool of their own.
        :param on_progress: called from an operation's thread when a step begins or ends, or what it
            waits for changes. It must not block.
        :param on_done: called from an operation's thread with each outcome that was asked for, before
            its future is set. Its errors are logged.
        :raises InvalidSite: if ``driver_settings`` has what no driver of the site takes.
        """
        _refuse_other(site, Site)
        for name, callback in (("on_progress", on_progress), ("on_done", on_done)):
            _refuse_no_callback(name, callback)
        check_driver_settings(site)
        self.site = site
        self._workers, self._step_workers = workers, step_workers
        self._on_progress, self._on_done = on_progress, on_done
        self._store = store = store_of(site)
        self._journal = Journal(store)
        self._dry_runs = DryRuns(store, timeout=site.limits.call)
        self._trail = AuditTrail(store, site.history * 1024)
        self._survey = site_metrics.Survey(site.metrics.refresh)
        self._notes = StepNotes(store)
        self._closed = False
        self._reset()
        forks.in_child(self._reset)
        metrics.observe(self._readings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Wait as :meth:`shutdown` does, in a thread: the event loop goes on meanwhile."""
        from asyncio import to_thread  # noqa: PLC0415 - see OperationFuture

        await to_thread(self.shutdown)

    def _reset(self) -> None:
        """Start over without threads: they do not survive a fork."""
        self._queue = KeyedQueue()
        self._pending: dict[Future[Outcome], _Invocation] = {}
        self._threads: dict[int, str] = {}
        """The slivers of the operations that threads run, with their callbacks."""
        self._load = site_metrics.Load()
        self._watchers: list[Watcher] = []
        self._invocations = ThreadPoolExecutor(self._workers, "fabric-direct")
        self._steps = _Threads(self._step_workers, "fabric-direct-step")
        self._interruption = Interruption()
        self._late = LateCalls(self.site.limits.busy)
        self._owed: dict[str, Unfinished] = {}
        """What is undone before anything else, once the late calls of the sliver have returned."""
        self._operations = Operations(self.site, self._journal, self._steps, self._tell)
        self._hosts, self._queries = self._operations.hosts, self._operations.queries
        self._front = self._make_front()

    def _make_front(self) -> "Front | None":
        """Return what has conductors carry out operations, if the site has them."""
        if self.site.conductors is None or self.site.state_database is None:
            return None
        from fabric_direct.operations.front import Front  # noqa: PLC0415 - an extra
        from fabric_direct.operations.signatures import RequestKeys  # noqa: PLC0415
        from fabric_direct.state.postgresql.queue import queue_of  # noqa: PLC0415

        return Front(
            queue_of(self.site.site, self.site.state_database),
            at_most=self.site.conductors.waiting,
            patience=self.site.limits.call,
            keys=RequestKeys(self.site.conductors.key_file),
            ended=lambda future, outcome: self._invocations.submit(self._answered, future, outcome),
            tell=self._on_progress,
        )

    # --- operations

    def create(self, sliver: Sliver) -> OperationFuture:
        """Create the sliver, or make sure that it exists as requested."""
        _refuse_other(sliver, Sliver)
        return self._submit(ChangeRequest(operation=Operation.CREATE, sliver=sliver))

    def modify(self, sliver: Sliver) -> OperationFuture:
        """Change the existing sliver into the requested one; components are matched by their id."""
        _refuse_other(sliver, Sliver)
        return self._submit(ChangeRequest(operation=Operation.MODIFY, sliver=sliver))

    def reconcile(self, sliver: SliverRef) -> OperationFuture:
        """Make the sliver again what its stamp says, whatever others have changed.

        It is done if nothing differs afterwards; what cannot be repaired is named, and not touched.
        A server that somebody stopped stays so. No volume or network is removed, and no device cleaned.
        """
        return self._by_reference(Operation.RECONCILE, sliver)

    def delete(self, sliver: SliverRef) -> OperationFuture:
        """Delete everything with the stamp of the sliver, and verify that it is gone."""
        return self._by_reference(Operation.DELETE, sliver)

    def probe(self, sliver: SliverRef) -> OperationFuture:
        """Read the sliver from the substrate; compare it, unless only a reference is given."""
        return self._by_reference(Operation.PROBE, sliver)

    def poa(
        self, sliver: SliverRef, action: str, data: dict[str, Any] | None = None
    ) -> OperationFuture:
        """Carry out an operational action; its result is the ``data`` of the outcome."""
        _refuse_other(sliver, SliverRef)
        _refuse_other(action, str)
        values = dict(_mapping(data))
        return self._submit(ActionRequest(sliver=sliver, action=action, data=values))

    def adopt(self, wanted: Adoption | ServiceAdoption, *, plan: bool = False) -> OperationFuture:
        """Stamp a sliver that others made, so that it is found, changed and deleted from then on.

        Nothing else of it is changed. What does not fit is refused, or warned of. If it fails, the
        stamps are removed again.

        :param wanted: the sliver, and where its parts are.
        :param plan: only return what would be stamped.
        """
        _refuse_other(wanted, Adoption, ServiceAdoption)
        operation = Operation.PLAN if plan else Operation.ADOPT
        return self._submit(
            AdoptionRequest(operation=operation, sliver=wanted.sliver, wanted=wanted)
        )

    def strangers(self, prefix: str = "") -> tuple[FoundServer, ...]:
        """Return the unstamped servers whose name starts with ``prefix``.

        Also those whose adoption is unfinished. Empty if servers of others cannot be adopted.
        """
        _refuse_other(prefix, str)
        return self._queries.strangers(prefix)

    def ports_named(self, names: Sequence[str]) -> tuple[FoundPort, ...]:
        """Return the project's ports of these ids, names or MAC addresses, whoever owns them.

        Empty if ports of others cannot be adopted.
        """
        return self._queries.ports_named(names)

    def drafts(self, prefix: str = "") -> tuple[Draft, ...]:
        """Return fabric_am's servers whose name starts with ``prefix``, each as it would be adopted.

        :raises Unsupported: if the site's servers cannot be adopted.
        """
        return self._queries.drafts(prefix)

    def plan(self, sliver: SliverRef, operation: Operation | None = None) -> OperationFuture:
        """Return what each step of an operation that makes or removes would do; change nothing.

        :param operation: create, modify, delete or reconcile; by default modify if the sliver is there,
            else create.
        :raises ValueError: if it is another one.
        """
        _refuse_other(operation, Operation, NoneType)
        if operation not in _PLANNED:
            raise ValueError(
                f"there is no plan of {operation}: only of {', '.join(filter(None, _PLANNED))}"
            )
        by_reference = operation in {Operation.DELETE, Operation.RECONCILE}
        _refuse_other(sliver, SliverRef if by_reference else Sliver)
        return self._submit(PlanRequest(sliver=sliver, planned=operation))

    # --- many at once

    def create_all(self, slivers: Sequence[Sliver]) -> list[OperationFuture]:
        """Create several slivers, each after those that it names; the others in parallel.

        If a creation fails, those that name its sliver are not begun, and say so.

        :returns: futures of the outcomes, in the order of the slivers.
        :raises InvalidSliver: if one is given twice, or some name each other in a circle; nothing has
            begun then.
        """
        slivers = _several(slivers, Sliver)
        return self._put_all(
            [ChangeRequest(operation=Operation.CREATE, sliver=sliver) for sliver in slivers],
            needs(slivers),
        )

    def carry_out(self, plan: SavedPlan) -> list[OperationFuture]:
        """Create, or modify, the slivers of a saved plan as it says, and do nothing else.

        All of it is planned again before the first operation begins, and each sliver once more by its
        operation, when nothing else can change the sliver. So an operation does what the plan says, or
        is refused. Creations are ordered as by :meth:`create_all`.

        :returns: futures of the outcomes, in the order of the slivers.
        :raises Refused: if the plan is for another site, or the site's settings, or what is there, are
            not what it found; what differs is named. Nothing has begun then.
        """
        _refuse_other(plan, SavedPlan)
        plan.refuse_other_site(self.site)
        slivers, planned = plan.wanted(), {each.id: each for each in plan.slivers}
        for future in [self.plan(sliver) for sliver in slivers]:
            outcome = future.result()
            planned[outcome.sliver.id].refuse_other(outcome)
        creates = plan.operation is Operation.CREATE
        return self._put_all(
            [
                ChangeRequest(operation=plan.operation, sliver=sliver, expected=planned[sliver.id])
                for sliver in slivers
            ],
            needs(slivers) if creates else {sliver.id: () for sliver in slivers},
        )

    def delete_all(self, slivers: Sequence[SliverRef]) -> list[OperationFuture]:
        """Delete several slivers, each after those that name it or are stitched to it.

        If a deletion fails, what its sliver names is not begun to be deleted, and says so.

        :returns: futures of the outcomes, in the order of the slivers.
        :raises InvalidSliver: as :meth:`create_all` does.
        """
        return self._delete_all(slivers)

    def _delete_all(self, slivers: Sequence[SliverRef], action: str = "") -> list[OperationFuture]:
        slivers = _several(slivers, SliverRef)
        needed = needs(slivers, self._queries.needs(slivers))
        users = {s.id: [u for u, names in needed.items() if s.id in names] for s in slivers}
        return self._put_all(
            [
                OperationRequest(operation=Operation.DELETE, sliver=s, action=action)
                for s in slivers
            ],
            users,
        )

    def _put_all(self, requests: Sequence[OperationRequest], after: Needs) -> list[OperationFuture]:
        """Put an operation on each sliver in line, to begin after it was done on others."""
        futures = {request.sliver.id: OperationFuture() for request in requests}
        self._put_together(
            [
                _Invocation(
                    request,
                    before={name: futures[name] for name in after[request.sliver.id]},
                    future=futures[request.sliver.id],
                )
                for request in requests
            ]
        )
        return [*futures.values()]

    def hosts(self) -> tuple[HostState, ...]:
        """Return the hosts that answer, as placement sees them: without what is in use or claimed.

        :raises FabricDirectError: if the cloud does not answer, or refuses to.
        """
        return self._queries.placer().hosts()

    def free_nodes(self) -> tuple[BareMetalNode, ...]:
        """Return the bare-metal nodes that are free and promised to nobody, by name.

        :raises FabricDirectError: if they cannot be listed.
        """
        nodes = self._queries.placer().nodes()
        return tuple(node for node in nodes if node.condition is NodeCondition.FREE)

    def place(self, slivers: Sequence[MachineSliver], *, partial: bool = False) -> BuildPlan:
        """Return a plan that assigns hosts and nodes to slivers, all at once; create and claim nothing.

        VMs get hosts, bare-metal slivers each a node. A sliver that names its host or node is placed
        there or nowhere. One that exists stays where it is, at
        no cost.

        :param partial: place as many as fit; by default all or none.
        :returns: the plan. It also has the slivers that could not be placed, and the filters that
            refused them.
        :raises InvalidSliver: if no host has the image of one, one excludes the host that it names, or
            no node of the site could ever serve one.
        """
        slivers = tuple(slivers)
        for sliver in slivers:
            _refuse_other(sliver, NodeSliver, BareMetalSliver)
        whole = [with_whole_cards(self.site, sliver) for sliver in slivers]
        return self._queries.placer().place(whole, partial=partial)

    def explain(self, sliver: MachineSliver) -> Explanation:
        """Return for each host the filter that refuses the sliver, or the cost of placing it there.

        For a bare-metal sliver, return for each node why it cannot have it, or that it can.

        :raises InvalidSliver: as :meth:`place` does.
        """
        _refuse_other(sliver, NodeSliver, BareMetalSliver)
        return self._queries.placer().explain(with_whole_cards(self.site, sliver))

    def build(self, plan: BuildPlan, slivers: Sequence[MachineSliver]) -> list[OperationFuture]:
        """Create the slivers that a plan assigns, each on its host or node.

        Before the first creation begins, the plan is checked against the current state of the hosts
        and nodes, and all that it assigns is claimed. So no other plan, and no creation that begins
        later at this site, gets the same. If a host refuses its sliver, others are tried, at most
        ``placement.retries``. A bare-metal sliver is created on its node or not at all.

        :param slivers: those that the plan was made for.
        :returns: futures of the outcomes, in the order of the assignments.
        :raises Conflict: if an assignment is not possible any more, or the processor is shut down. No
            creation has begun then, and nothing is claimed.
        :raises InvalidSliver: if the plan is not for these slivers.
        """
        self._refuse_closed()
        _refuse_other(plan, BuildPlan)
        for sliver in slivers:
            _refuse_other(sliver, NodeSliver, BareMetalSliver)
        by_id = {sliver.id: sliver for sliver in slivers}
        placements = self._queries.placer().claim(plan, slivers)
        try:
            with self._queue.lock:  # no shutdown comes between two of them
                return [self._create_planned(by_id[p.sliver.id], p) for p in placements]
        except Conflict:
            for placement in placements:
                if placement.new:
                    self._hosts.claims.drop(placement.sliver.id)
            raise

    def _create_planned(
        self, sliver: MachineSliver, planned: Placement | NodePlacement
    ) -> OperationFuture:
        """Create a sliver on the host of a plan, or another one; or on the node of the plan."""
        if isinstance(planned, NodePlacement):
            return self._create_claimed(planned.sliver)
        return self._create_claimed(sliver, planned)

    def _create_claimed(
        self, sliver: MachineSliver, planned: Placement | None = None
    ) -> OperationFuture:
        def drop_claim(future: "Future[Outcome]") -> None:
            if future.cancelled():
                self._hosts.claims.drop(sliver.id)

        future = self._submit(
            ChangeRequest(
                operation=Operation.CREATE, sliver=sliver, placement=planned, claimed=True
            )
        )
        future.add_done_callback(drop_claim)
        return future

    # --- what nobody expects

    def find_unexpected(self, expected: Collection[str]) -> Findings:
        """Return what carries the site's stamp and belongs to none of these slivers: a sweep's dry run.

        Nothing is changed, but the dry run is kept in the site's state, for :meth:`sweep`. What another
        site stamped is not found; what is being worked on, or cannot be removed safely, is left alone.

        :param expected: the ids of all slivers that shall exist, of every resource type.
        :raises TypeError: if it is a text.
        :raises Refused: if it is empty, or a host or the cloud does not answer with all it has.
        :raises SliverBusy: if another sweep is under way.
        """
        _refuse_text(expected)
        with self._sweeping() as sweeper:
            return sweeper.dry_run(expected)

    def sweep(self, expected: Collection[str], token: str, *, at_most: float = AT_MOST) -> Sweep:
        """Delete what the last dry run found, each sliver as :meth:`delete` does.

        A sliver on which another operation was begun since the dry run is refused. Others go on.

        :param token: of the last dry run's findings.
        :param at_most: percent of the slivers that exist that may go.
        :raises Refused: if what is found now is not what the token stands for, or too much would go, or
            as :meth:`find_unexpected` does. Nothing is deleted then.
        :raises SliverBusy: if another sweep is under way.
        """
        self._refuse_closed()
        _refuse_text(expected)
        with self._sweeping() as sweeper, self._interruption.applies():
            found = sweeper.confirmed(expected, token, at_most)
            tried = {
                thing: attempt(self._remove_nobodys, sweeper, thing) for thing in found.of_nobody()
            }
            errors = {t: error for t, error in tried.items() if isinstance(error, Exception)}
            kept = tuple(LeftAlone(what=str(t), why=str(error)) for t, error in errors.items())
            return Sweep(found, self._delete_all(found.slivers(), SWEEP), kept)

    def _remove_nobodys(self, sweeper: Sweeper, thing: FoundResource) -> None:
        self._noted("remove", str(thing), "sweep", partial(sweeper.remove_nobodys, thing))

    @contextmanager
    def _sweeping(self) -> Iterator[Sweeper]:
        """Give what finds things, while no other process of the site sweeps."""
        limit = self.site.limits.busy
        with self._store.exclusive("sweep", "the site's sweep", timeout=limit):
            yield self._queries.sweeper(self._dry_runs)

    # --- what there is

    def slivers(self) -> tuple[Server, ...]:
        """Return the servers with this site's stamp on all hosts."""
        return self._hosts.devices.servers(self._probing())

    def services(self, *kinds: str) -> SiteServices:
        """Return the network services with this site's stamp.

        Types of services whose driver does not answer are named in the result.

        :param kinds: resource types: only their drivers are asked, and only their services are returned.
            All if none is named.
        """
        return self._queries.services(*kinds)

    def port_slivers(self) -> tuple[SitePorts, ...]:
        """Return the slivers that are ports in the servers of others, ``vNICPorts``, on all hosts.

        So are VMs that have ports and no server: half made, half deleted, or deleted by others. The
        journal and the notes of types tell them; without these they are ``vNICPorts``, too.

        :raises FabricDirectError: if the cloud, or any host, does not answer.
        """
        return self._queries.port_slivers()

    def lacking(self, servers: Sequence[Server] | None = None) -> Lacks:
        """Return what servers lack of the devices that their stamps name.

        Each host that has such a server is asked once; one that does not answer is named in the result.

        :param servers: by default all :meth:`slivers`.
        """
        servers = self.slivers() if servers is None else tuple(servers)
        for server in servers:
            _refuse_other(server, Server)
        return self._hosts.devices.lacking(servers, self._probing())

    def _probing(self) -> Deadline:
        return Deadline.within(self.site.limits.probe)

    @property
    def in_cloud(self) -> bool:
        """Return whether the site's servers belong to a cloud, whatever host they are on."""
        return self._hosts.drivers.cloud

    def drift(self, hosts: Collection[str] | None = None, *, services: bool = True) -> SiteDrift:
        """Return which slivers differ from their stamps, by listings of the whole site.

        Guests are not looked into; :meth:`reconcile` does so. Network services are compared each by
        itself, if a stamp says what they should be. A host, or a type of network services, that does not
        answer is named.

        :param hosts: look at these; at all by default. A cloud is listed whole for any of them.
        :param services: look at network services, too, unless hosts are named: they are on none.
        :raises NotFound: if the site has no such host.
        :raises FabricDirectError: if the cloud cannot be read.
        """
        _refuse_text(hosts)
        for host in () if self.in_cloud else hosts or ():
            self.site.host(host)
        return self._queries.drift(hosts, services=services)

    def watch(self, on_note: Callable[[Note], None] | None = None) -> Watcher:
        """Repair slivers and uplinks when others change them, until the watcher is stopped.

        It listens to libvirt, Nova and the kernels of workers. Shutting the processor down stops it.

        :param on_note: called from its threads with each note of what it did.
        :raises InvalidSite: if site.yaml does not ask for it.
        """
        if not self.site.watch.enabled:
            raise InvalidSite(
                "the site does not ask for repairs",
                field="watch.enabled",
                remedy="set it to true; reconcile repairs what is named",
            )
        watcher = Watcher(self.site, self, self._queries.sources(), on_note=on_note)
        self._watchers.append(watcher)
        watcher.start()
        return watcher

    def differences(self, sliver: SliverRef) -> OperationFuture:
        """Return what :meth:`reconcile` would do; change nothing."""
        return self.plan(sliver, Operation.RECONCILE)

    def devices(self, host: str) -> tuple[HostDevice, ...]:
        """Return the PCI devices of a host.

        One that no domain has and the stamp of a server names, on whatever host the server is, is
        ``lost``. The servers are listed only if a device was left behind; if they cannot be, it is
        ``unclean``, and its ``why`` says so.

        :raises NotFound: if the site has no such host.
        """
        return self._hosts.devices.of(host, self._probing())

    def nodes(self) -> tuple[BareMetalNode, ...]:
        """Return the bare-metal nodes of the site, by name; none if it names no driver for them.

        :raises FabricDirectError: if they cannot be listed.
        """
        return self._queries.nodes()

    def release(self, host: str, address: PciAddress, *, force: bool = False) -> None:
        """Clean a PCI device that was not, or could not be, cleaned, and make it available again.

        :param force: do not clean it; the caller is responsible for its state.
        :raises NotFound: if the site has no such host, or the host no such device; by force, if it has
            no record of one either.
        :raises DeviceClaimed: if a domain still has it.
        :raises DeviceLost: if the stamp of a server names it, also by force. What its own sliver's
            removal could not clean, and is quarantined, may be released.
        :raises Conflict: if its last sliver is not gone, though no stamp of it can be read.
        :raises Unreachable: if the stamps of the servers cannot be read: the cloud, or a host, does not
            answer.
        :raises DeviceUnclean: if it could not be verified to be clean; it is quarantined then.
        """

        def release() -> None:
            deadline = Deadline.within(self.site.limits.clean)
            self._hosts.devices.release(host, address, deadline, force=force)

        self._noted("release", f"{host}/{address}", "force" if force else "", release)

    def bridge_mode(self, host: str, link: str, mode: str | None = None) -> str:
        """Return the bridge mode of a host's uplink, ``veb`` or ``vepa``, after setting it if given.

        :raises NotFound: if the site has no such host, or the host no such link.
        :raises Unsupported: if the link's driver has no such mode; it is named.
        """
        ask = partial(self._queries.bridge_mode, host, link, mode)
        return self._noted("uplink", f"{host}/{link}", mode, ask) if mode else ask()

    def actions(self, resource_type: str) -> tuple[str, ...]:
        """Return the names of the operational actions of a resource type."""
        handler: type[Handler] = registry.handler_for(resource_type)
        return handler.actions

    def history(self, sliver: str | None = None) -> tuple[Record, ...]:
        """Return who asked for what at this site, and what came of it, the oldest first.

        What processes that share the site's state began is there, as far back as
        ``history`` of site.yaml allows; plans and probes are not.

        :param sliver: the id of a sliver, or ``host/device``, ``host/link``; all if absent.
        :raises DriverError: if it cannot be read.
        """
        _refuse_other(sliver, str, NoneType)
        return self._trail.records(sliver)

    def unfinished(self) -> tuple[Unfinished, ...]:
        """Return the operations that have begun and not ended."""
        return self._journal.unfinished()

    def unreadable_entries(self) -> tuple[str, ...]:
        """Return where the journal has what is no valid entry: damaged, or of another version.

        What was begun by them is not known, so :meth:`recover` leaves it alone.

        :raises DriverError: if the journal cannot be read.
        """
        return self._journal.foreign()

    def recover(self, *, undo: bool = False) -> list[OperationFuture]:
        """Finish the operations that other processes left unfinished, but not those under way.

        Hosts that did not answer a deletion are looked at again.

        :param undo: undo them instead: delete a sliver that was being created, make one that was
            being modified what it was. A deletion is always finished, and so is a creation of a
            sliver that was there before. So is a modification of a network or of ports, of which nothing
            says what they were: the outcome has a warning. That of a service with secrets is refused,
            and one that has begun to deploy a node anew.
        """
        entries = self.unfinished()
        begun = {entry.sliver["id"] for entry in entries}
        looks = [look for look in self.pending_looks() if look.sliver.id not in begun]
        return [
            *(self._recover(entry, undo=undo) for entry in entries),
            *(self._put(self._second_look(look, told=True)) for look in looks),
        ]

    def pending_looks(self) -> tuple[PendingLook, ...]:
        """Return where slivers that were deleted were not looked for, as a host did not answer.

        :meth:`recover`, the watcher, and each operation on such a host look there again.
        """
        return self._operations.delete.pending_looks()

    def look_again(self, host: str) -> None:
        """Begin to look at a host that answers again for what it has of slivers that were deleted."""
        for look in (each for each in self.pending_looks() if each.host == host):
            with self._queue.lock:
                begun = {invocation.sliver.id for invocation in self._pending.values()}
                if not self._closed and look.sliver.id not in begun:
                    self._put(self._second_look(look, told=False))

    def _second_look(self, look: PendingLook, *, told: bool) -> _Invocation:
        request = LookRequest(sliver=look.sliver, look=look, action=f"look at {look.host} again")
        return _Invocation(request, told)

    def _recover(self, entry: Unfinished, *, undo: bool, told: bool = True) -> OperationFuture:
        return self._put(self._recovery(entry, undo=undo, told=told))

    def _recovery(self, entry: Unfinished, *, undo: bool, told: bool) -> _Invocation:
        request = RecoveryRequest(
            operation=entry.operation,
            sliver=SliverRef(id=entry.sliver["id"], type=entry.sliver["type"]),
            action="recover --undo" if undo else "recover",
            entry=entry,
            undo=undo,
        )
        return _Invocation(request, told)

    # --- metrics

    def _readings(self) -> Iterator[Measurement]:
        """Yield what gauges show; what takes time only until the processor is shut down."""
        with self._queue.lock:
            asked = [(i.operation, i.sliver, i.future.running()) for i in self._pending.values()]
        yield from self._load.readings(asked)
        yield Measurement(metrics.CALL_LATE, self._late.number())
        if not self._closed:
            yield from self._survey.readings(self._look)

    def _look(self) -> Iterator[Measurement]:
        """Read what takes time: the devices of the hosts, bare-metal nodes, and the journal."""
        hosts = filter(self.site.passes_devices, self.site.hosts)
        yield from site_metrics.of_devices(attempt_each(self.devices, hosts))
        if self.site.driver_for("BareMetal"):
            yield from site_metrics.of_nodes(attempt(self.nodes))
        journal = attempt(self._look_at_journal)
        yield from () if isinstance(journal, Exception) else journal

    def _look_at_journal(self) -> tuple[Measurement, ...]:
        return tuple(site_metrics.of_journal(self.unfinished(), datetime.now(UTC)))

    # --- order

    def shutdown(self, wait: bool = True, timeout: float | None = None) -> bool:
        """Refuse new operations; those that were requested still run.

        :param wait: whether to wait for them.
        :param timeout: seconds to wait at most; operations that have not begun by then are cancelled.
        :returns: whether all have ended.
        :raises RuntimeError: if an operation's own callback waits: it would wait for itself.
        """
        if wait and get_ident() in self._threads:
            raise RuntimeError("an operation's callback cannot wait for it: shutdown(wait=False)")
        for watcher in self._watchers:
            watcher.stop()
        with self._queue.lock:
            self._closed, pending = True, [each.future for each in self._pending.values()]
        if wait:
            wait_for(pending, timeout)
            self._cancel([future for future in pending if not future.done()])
        if all(future.done() for future in pending):
            if self._front:
                self._front.close(and_wait=wait)
            self._invocations.shutdown(wait=wait)
            self._steps.shutdown(wait=wait)
        return all(future.done() for future in pending)

    def _cancel(self, futures: "Collection[OperationFuture]") -> None:
        """Cancel what has not begun; what was posted together, as the database may not answer."""
        if self._front and futures:
            self._front.cancel([future.id for future in futures])
        for future in () if self._front else futures:
            future.cancel()

    def leave(self) -> None:
        """Leave what was asked for to conductors, and refuse new operations.

        It returns once all is posted. What could not be has an outcome that says so; other futures stay
        pending, and their ``id`` is that of the operation: ``fabric-direct operations show ID``.

        :raises Unsupported: if the site has no conductors.
        """
        if self._front is None:
            raise Unsupported(
                "nobody goes on with operations when this process ends",
                why="the site has no conductors",
                remedy="wait for them, or add conductors to site.yaml",
            )
        with self._queue.lock:
            self._closed = True
        self._front.leave()
        self._front.close(and_wait=True)
        self._invocations.shutdown()
        with self._queue.lock:
            self._pending.clear()

    def pending(self) -> tuple[SliverRef, ...]:
        """Return the slivers whose operations have not ended, in the order of the requests."""
        with self._queue.lock:
            return tuple(dict.fromkeys(i.sliver.ref() for i in self._pending.values()))

    def interrupt(self) -> tuple[SliverRef, ...]:
        """Begin nothing more, and refuse new operations; may be called by the handler of a signal.

        What has not begun is cancelled. What is under way ends after the calls that it is in, or with
        the steps or the action that have begun to change something, each call within its limit; a guest
        is not waited for. It is not undone, unless a step failed. Its outcome
        has the error Interrupted, and in ``left`` what is there, or what is not done. The journal has
        it: the same operation, or :meth:`recover`, finishes it.

        :returns: the slivers whose operations were cancelled.
        """
        self._interruption.begin()
        with self._queue.lock:
            self._closed, pending = True, dict(self._pending)
        if self._front:
            return self._give_up(
                self._front, {i.future.id: i.sliver.ref() for i in pending.values()}
            )
        return tuple(i.sliver.ref() for future, i in pending.items() if future.cancel())

    def _give_up(self, front: "Front", pending: Mapping[str, SliverRef]) -> tuple[SliverRef, ...]:
        """Cancel or interrupt what was posted, in a thread: this one may hold any lock."""
        cancelled = list[SliverRef]()

        def give_up() -> None:
            cancelled.extend(pending[id_] for id_ in front.give_up(pending))

        thread = Thread(target=give_up, name="fabric-direct-give-up", daemon=True)
        thread.start()
        thread.join(self.site.limits.busy)
        return tuple(cancelled)

    def _by_reference(self, operation: Operation, sliver: SliverRef) -> OperationFuture:
        _refuse_other(sliver, SliverRef)
        return self._submit(OperationRequest(operation=operation, sliver=sliver))

    def _submit(self, request: OperationRequest) -> OperationFuture:
        return self._put(_Invocation(request))

    def _put(self, invocation: _Invocation) -> OperationFuture:
        self._put_together([invocation])
        return invocation.future

    def _put_together(self, invocations: Sequence[_Invocation]) -> None:
        """Put operations in line; nothing of another call comes between: no two wait for each other."""
        with self._queue.lock:
            self._refuse_closed()
            for each in invocations:
                self._pending[each.future] = each
                each.interruption = self._interruption.part()
                each.future.in_line(each.sliver.id, self._threads, each.interruption)
            if self._front:
                self._front.ask([(i.request, i.future, i.before.values()) for i in invocations])
            else:
                for each in invocations:
                    self._queue.put(each.sliver.id, partial(self._begin, each))
        for each in invocations:
            each.future.add_done_callback(self._forget)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise Conflict("the processor is shut down", remedy="create a new one")

    def _forget(self, future: "Future[Outcome]") -> None:
        with self._queue.lock:
            self._pending.pop(future, None)

    def _begin(self, invocation: _Invocation) -> bool:
        if invocation.future.cancelled():
            invocation.future.set_running_or_notify_cancel()
            return False
        begun_after = invocation.before.values()
        _when_done(begun_after, lambda: self._invocations.submit(self._run, invocation))
        return True

    def _run(self, invocation: _Invocation) -> None:
        self._threads[get_ident()] = invocation.sliver.id
        try:
            if invocation.future.set_running_or_notify_cancel():
                invocation.future.set_result(invocation.context.run(self._invoke, invocation))
        except BaseException as error:  # noqa: BLE001 - carried to who waits, not swallowed
            invocation.future.set_exception(error)
        finally:
            self._threads.pop(get_ident(), None)
            self._queue.leave(invocation.sliver.id)

    def _invoke(self, invocation: _Invocation) -> Outcome:
        operation, sliver = invocation.operation.value, invocation.sliver
        action = invocation.request.action
        with (
            outside(),
            about(operation=operation, sliver=sliver.id),
            span(operation, sliver=sliver.id, type=sliver.type, action=action) as traced,
            invocation.interruption.applies(),
        ):
            outcome = self._recorded(invocation)
            self._settle_claim(invocation)
            self._settle_looks(outcome)
            if outcome.error:
                traced.failed(outcome.error.kind, outcome.error.message)
            site_metrics.count_operation(outcome)
            _log(outcome)
            self._tell_done(invocation, outcome)
        return outcome

    def _tell_done(self, invocation: _Invocation, outcome: Outcome) -> None:
        if self._on_done and invocation.told:
            error = attempt(self._on_done, outcome)
            if isinstance(error, Exception):
                name = f"{outcome.operation} of {outcome.sliver.id}"
                log.error("on_done failed for %s", name, exc_info=error)

    def _answered(self, future: OperationFuture, outcome: Outcome) -> None:
        """Tell of an outcome that a conductor has sent."""
        invocation = self._pending[future]
        future.has_begun()
        self._threads[get_ident()] = invocation.sliver.id
        try:
            invocation.context.run(self._tell_done, invocation, outcome)
            future.set_result(outcome)
        finally:
            self._threads.pop(get_ident(), None)

    def _settle_claim(self, invocation: _Invocation) -> None:
        """End what a plan has claimed for the operation, unless a late call may still take it."""
        request, sliver = invocation.request, invocation.sliver.id
        if isinstance(request, ChangeRequest) and request.claimed and not self._late.of(sliver):
            error = attempt(self._hosts.claims.settle, sliver)
            if isinstance(error, Exception):
                log.warning("the claim of %s ends by itself: %s", sliver, error)

    def _settle_looks(self, outcome: Outcome) -> None:
        """Look again at the host of an operation that it has answered."""
        host = outcome.observed.host if outcome.ok and outcome.observed else None
        if host and outcome.operation not in _READING:
            error = attempt(self.look_again, host)
            if isinstance(error, Exception):
                log.warning("%s is not looked at again: %s", host, error)

    def _tell(self, progress: Progress) -> None:
        """Note a step for onlookers, and tell the caller of it."""
        note = StepNote(
            step=progress.step,
            status=progress.status,
            seconds=round(progress.seconds, 3),
            total=progress.total,
        )
        self._notes.add(progress.sliver, note)
        if self._on_progress:
            self._on_progress(progress)

    def steps_under_way(self, sliver: str) -> tuple[StepNote, ...]:
        """Return the steps so far of the operation that is under way on a sliver, in any process.

        Empty if there is none. Those are meant that share the site's state.
        """
        _refuse_other(sliver, str)
        return self._notes.of(sliver)

    def _recorded(self, invocation: _Invocation) -> Outcome:
        """Carry out an operation; note in the audit trail that it begins, and what comes of it."""
        began, record = time.monotonic(), self._begun(invocation)
        outcome = self._outcome(invocation)
        outcome = outcome.model_copy(update={"seconds": time.monotonic() - began})
        if record:
            self._trail.end(record, outcome.status, outcome.seconds, outcome.error, outcome.left)
        return outcome

    def _begun(self, invocation: _Invocation) -> Record | None:
        """Note in the audit trail that an operation begins, unless it only reads."""
        if invocation.operation in _READING:
            return None
        sliver, action = invocation.sliver, invocation.request.action
        return self._trail.begin(invocation.operation, sliver.id, kind=sliver.type, action=action)

    def _noted(self, operation: str, subject: str, action: str, work: Callable[[], T]) -> T:
        """Do what changes something that is no sliver, and note it in the audit trail."""
        began = time.monotonic()
        record = self._trail.begin(operation, subject, action=action)
        answer = attempt(work)
        error = answer if isinstance(answer, Exception) else None
        status, seconds = status_of(error), time.monotonic() - began
        self._trail.end(record, status, seconds, report(error) if error else None)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _outcome(self, invocation: _Invocation) -> Outcome:
        outcome = attempt(self._work, invocation)
        if isinstance(outcome, Exception):
            late = named(self._late.of(invocation.sliver.id))
            return failed(invocation.operation, invocation.sliver, outcome, late)
        return outcome

    def _work(self, invocation: _Invocation) -> Outcome:
        limit, unanswered = self._limit(invocation.operation), self.site.limits.unanswered
        if invocation.operation in _READING:
            return self._carry_out(invocation, Deadline.within(limit))
        self._undo_late(invocation)
        with self._sliver_locked(invocation):
            self._end_dry_run(invocation)
            with self._notes.kept(invocation.sliver.id):
                return self._keep_late(invocation, Deadline.within(limit, unanswered))

    def _carry_out(self, invocation: _Invocation, deadline: Deadline) -> Outcome:
        invocation.refuse_undone()
        return self._operations.carry_out(invocation.request, deadline)

    def _end_dry_run(self, invocation: _Invocation) -> None:
        """End what a sweep's dry run found of the sliver: it is about to change.

        :raises Refused: if this is the sweep, and another operation has begun since.
        """
        untouched = self._dry_runs.end(invocation.sliver.id)
        if invocation.request.swept and not untouched:
            raise Refused(
                f"sliver {invocation.sliver.id} was not swept",
                why="another operation on it was begun after the dry run",
                remedy="sweep without --token, and look at what it finds",
            )

    def _undo_late(self, invocation: _Invocation) -> None:
        """Wait for the late calls of the sliver, and undo what they made before anything is built on it.

        A deletion takes it away itself.
        """
        sliver = invocation.sliver.id
        self._recall(sliver)
        owed = self._owed.pop(sliver, None) if self._late.settle(sliver) else None
        if owed and invocation.told and invocation.operation is not Operation.DELETE:
            undoing = self._recovery(owed, undo=True, told=False)
            self._invoke(replace(undoing, interruption=invocation.interruption))

    def _recall(self, sliver: str) -> None:
        """Take over what another process asked for the sliver and may still take effect."""
        entry = attempt(self._journal.of, sliver)
        if isinstance(entry, Unfinished):
            self._late.recall(sliver, entry.until)

    def _keep_late(self, invocation: _Invocation, deadline: Deadline) -> Outcome:
        self._recall(invocation.sliver.id)
        with self._late.kept(invocation.operation, invocation.sliver.id, deadline):
            outcome = self._carry_out(invocation, deadline)
        shared = self.site.limits.unanswered if self.site.state_database else None
        if at := until(deadline.late(), shared):
            attempt(self._journal.expect, invocation.sliver.id, at)
        self._watch(outcome, deadline)
        return outcome

    def _watch(self, outcome: Outcome, deadline: Deadline) -> None:
        """Undo the operation once more when the calls that it names as late have returned.

        An action has no entry in the journal: the one that is there belongs to an earlier operation.
        """
        left = set(outcome.left) if outcome.operation is not Operation.POA else set()
        calls = [call for call in deadline.given_up if left.issuperset(named([call]))]
        entry = attempt(self._journal.of, outcome.sliver.id) if calls else None

        def take_away(_: object) -> None:
            if all(call.over.done() for call in calls):
                attempt(self._take_away, entry)

        if isinstance(entry, Unfinished) and _remembered(entry):
            self._owed[outcome.sliver.id] = entry
            for call in calls:
                call.over.add_done_callback(take_away)

    def _take_away(self, entry: Unfinished) -> None:
        if entry == self._journal.of(entry.sliver["id"]):
            self._recover(entry, undo=True, told=False)

    @contextmanager
    def _sliver_locked(self, invocation: _Invocation) -> Iterator[None]:
        """Hold the lock of a sliver against other processes."""
        sliver, limit = invocation.sliver.id, self.site.limits.busy
        lock = self._store.exclusive(sliver_lock(sliver), f"sliver {sliver}", timeout=limit)
        with ExitStack() as stack:
            with telling(self._tell, invocation.operation, sliver):
                stack.enter_context(lock)
            yield

    def _limit(self, operation: Operation) -> float:
        limits = self.site.limits
        as_modify = operation in {Operation.ADOPT, Operation.RECONCILE}
        limited = Operation.MODIFY if as_modify else operation
        return float(getattr(limits, limited.value, limits.probe))


def carry_out_request(
    processor: HandlerProcessor,
    request: OperationRequest,
    asker: Asker,
    undone: Sequence[str] = (),
) -> OperationFuture:
    """Carry out what another process was asked for.

    :param processor: of a site without conductors.
    :param asker: who asked.
    :param undone: slivers of which the operation was not done that must be first: then this one is not
        begun, and its outcome says so.
    """
    with asking(asker):
        return processor._put(_Invocation(request, undone=tuple(undone)))


def _refuse_other(value: object, *kinds: type) -> None:
    """Raise TypeError for what the caller's type checker would have refused."""
    if not isinstance(value, kinds):
        named = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"expected {named}, not {type(value).__name__}: {value!r:.60}")


def _several(slivers: Sequence[S] | SliverRef, kind: type[S]) -> tuple[S, ...]:
    """Return slivers; raise TypeError for one alone, which is a collection of its fields."""
    if isinstance(slivers, SliverRef):
        raise TypeError(f"expected several slivers, not one: {slivers!r:.60}")
    slivers = tuple(slivers)
    for sliver in slivers:
        _refuse_other(sliver, kind)
    return slivers


def _mapping(data: dict[str, Any] | None) -> dict[str, Any]:
    _refuse_other(data, Mapping, NoneType)
    return data or {}


def _refuse_no_callback(name: str, callback: object) -> None:
    """Raise TypeError for what cannot be called, or would only make a coroutine that nobody awaits."""
    if callback is not None and not callable(callback):
        raise TypeError(f"{name}: expected a callable, not {callback!r:.60}")
    if iscoroutinefunction(callback) or iscoroutinefunction(type(callback).__call__):
        raise TypeError(f"{name}: nothing awaits a coroutine function: {callback!r:.60}")


def _refuse_text(names: object) -> None:
    """Raise TypeError for a text, which is a collection of its letters."""
    if isinstance(names, str):
        raise TypeError(f"expected a collection of names, not a text: {names!r:.60}")


def _log(outcome: Outcome) -> None:
    said = f"{outcome.operation} {outcome.sliver.id}: {outcome.status} in {outcome.seconds:.3f} s"
    if outcome.error:
        said += f": {outcome.error.message}"
    if outcome.left:
        said += f"; left: {', '.join(outcome.left)}"
    log.log(logging.INFO if outcome.ok else logging.WARNING, "%s", said)


def _remembered(entry: Unfinished) -> bool:
    """Return whether something says what the sliver was before: nothing does of a changed network."""
    model = registry.sliver_model(entry.sliver)
    known = issubclass(model, NodeSliver) or entry.before is not None
    return known or entry.operation is not Operation.MODIFY
