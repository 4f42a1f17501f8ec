"""Who runs when: a thread for each invocation, order for each sliver, the outcome as a future.

One processor serves a process. It may be made before a fork and used after it, in any thread, and its
futures may be awaited (``asyncio.wrap_future``).
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import contextmanager
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Any, Self

from fabric_direct import engine, forks, registry
from fabric_direct.config import Site
from fabric_direct.deadline import Deadline
from fabric_direct.drivers.contract import HostDevice, Server
from fabric_direct.errors import Conflict
from fabric_direct.handlers.base import Handler
from fabric_direct.journal import Journal, Unfinished
from fabric_direct.keyed_queue import KeyedQueue
from fabric_direct.locks import exclusive, sliver_lock
from fabric_direct.model import NodeSliver, Operation, Outcome, PciAddress, SliverRef
from fabric_direct.operations import Operations, Progress
from fabric_direct.outcomes import failed
from fabric_direct.placement.placer import Placement
from fabric_direct.placement.plan import BuildPlan, Explanation
from fabric_direct.placement.state import HostState

log = logging.getLogger(__name__)


@dataclass
class _Invocation:
    operation: Operation
    sliver: SliverRef
    work: Callable[[Deadline], Outcome]
    future: "Future[Outcome]"
    context: Context = field(default_factory=copy_context)
    """Of who asked for it; the operation's threads have it, so that a log can tell whose it is."""


class _Threads(ThreadPoolExecutor):
    """Threads that work in the context of who gave them the work."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        return super().submit(copy_context().run, fn, *args, **kwargs)


class HandlerProcessor:
    """Runs operations on slivers and answers with futures of their outcomes.

    Operations on one sliver run strictly in the order they were asked for, those on different slivers
    in parallel. An operation that has not begun can be cancelled by its future. What fails on purpose
    (a refusal, an API's error, a budget that is spent) is an :class:`~fabric_direct.model.Outcome`, not
    an exception.
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
        """Make a processor; it starts no thread before the first call.

        :param workers: how many operations run at once.
        :param step_workers: how many of their steps run at once, in a pool of their own.
        :param on_progress: called from an operation's thread when a step begins or ends.
        :param on_done: called from an operation's thread with each outcome, before its future is set.
        """
        self.site = site
        self._workers, self._step_workers = workers, step_workers
        self._on_progress, self._on_done = on_progress, on_done
        self._journal = Journal(site.state_dir)
        self._reset()
        forks.in_child(self._reset)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def _reset(self) -> None:
        """Begin anew, without threads: they do not survive a fork."""
        self._queue = KeyedQueue()
        self._pending: set[Future[Outcome]] = set()
        self._closed = False
        self._invocations = ThreadPoolExecutor(self._workers, "fabric-direct")
        self._steps = _Threads(self._step_workers, "fabric-direct-step")
        self._operations = Operations(self.site, self._journal, self._steps, self._on_progress)

    # --- operations

    def create(self, sliver: SliverRef) -> "Future[Outcome]":
        """Make the sliver, or make sure that it is there as asked for."""
        return self._submit(Operation.CREATE, sliver, lambda d: self._operations.create(sliver, d))

    def modify(self, sliver: SliverRef) -> "Future[Outcome]":
        """Turn the sliver that is there into the one asked for, told apart by component id."""
        return self._submit(Operation.MODIFY, sliver, lambda d: self._operations.modify(sliver, d))

    def delete(self, sliver: SliverRef) -> "Future[Outcome]":
        """Remove everything that bears the sliver's stamp, and see that it is gone."""
        return self._submit(Operation.DELETE, sliver, lambda d: self._operations.delete(sliver, d))

    def probe(self, sliver: SliverRef) -> "Future[Outcome]":
        """Read the sliver from the substrate; a whole sliver is also compared with what is there."""
        return self._submit(Operation.PROBE, sliver, lambda d: self._operations.probe(sliver, d))

    def poa(
        self, sliver: SliverRef, action: str, data: dict[str, Any] | None = None
    ) -> "Future[Outcome]":
        """Carry an operational action out; its answer is the outcome's ``data``."""
        values = dict(data or {})
        return self._submit(
            Operation.POA, sliver, lambda d: self._operations.poa(sliver, action, values, d)
        )

    def plan(self, sliver: SliverRef, operation: Operation | None = None) -> "Future[Outcome]":
        """Say what each step of ``create``, ``modify`` or ``delete`` would do; nothing is changed.

        :param operation: modify if the sliver is there and create if not, if absent.
        """
        return self._submit(
            Operation.PLAN, sliver, lambda d: self._operations.plan(sliver, operation, d)
        )

    # --- many at once

    def hosts(self) -> tuple[HostState, ...]:
        """Return the hosts that answer, as placement sees them: without what is taken or claimed.

        :raises FabricDirectError: if the cloud does not answer, or will not tell.
        """
        return self._operations.hosts()

    def place(self, slivers: Sequence[NodeSliver], *, partial: bool = False) -> BuildPlan:
        """Say where each sliver would go, all of them at once; nothing is made or claimed.

        A sliver that names its host goes there or nowhere. One that is there already stays where it
        is, at no cost.

        :param partial: whether as many as fit will do; all or nothing if not.
        :returns: the plan; what could not be placed is in it, with the filters that refused.
        :raises InvalidSliver: if no host has the image of one, or one excludes the host that it names.
        """
        return self._operations.place(slivers, partial=partial)

    def explain(self, sliver: NodeSliver) -> Explanation:
        """Say of each host which filter refuses the sliver, or what it would cost there.

        :raises InvalidSliver: as :meth:`place` does.
        """
        return self._operations.explain(sliver)

    def build(self, plan: BuildPlan, slivers: Sequence[NodeSliver]) -> "list[Future[Outcome]]":
        """Make the slivers that a plan assigns, each where the plan says.

        The plan is checked against the hosts as they are now, and all that it assigns is claimed before
        the first sliver is begun. So no other plan or creation of this machine is given the same. A
        host that then refuses is left for another one, as often as ``placement.retries`` says.

        :param slivers: those that the plan was made for.
        :returns: the outcomes to come, in the order of the plan's assignments.
        :raises Conflict: if the world has moved on and an assignment cannot be had any more. Nothing was
            begun then.
        :raises InvalidSliver: if the plan is not for these slivers.
        """
        self._refuse_closed()
        by_id = {sliver.id: sliver for sliver in slivers}
        placements = self._operations.claim(plan, slivers)
        return [self._create_planned(by_id[p.sliver.id], p) for p in placements]

    def _create_planned(self, sliver: NodeSliver, planned: Placement) -> "Future[Outcome]":
        def end_claim(future: "Future[Outcome]") -> None:
            self._operations.end_claim(sliver, begun=not future.cancelled())

        future = self._submit(
            Operation.CREATE, sliver, lambda d: self._operations.create(sliver, d, planned)
        )
        future.add_done_callback(end_claim)
        return future

    # --- what there is

    def slivers(self) -> tuple[Server, ...]:
        """Return the servers with our stamp on all hosts."""
        return self._operations.servers()

    def devices(self, host: str) -> tuple[HostDevice, ...]:
        """Return the PCI devices of a host.

        :raises NotFound: if the site has no such host.
        """
        return self._operations.devices(host)

    def release(self, host: str, address: PciAddress, *, force: bool = False) -> None:
        """Clean a PCI device that was not, or could not be, cleaned, and let it be free.

        :param force: do not clean it: a person answers for it.
        :raises NotFound: if the site has no such host, or the host no such device, unless by force.
        :raises DeviceClaimed: if a domain still has it.
        :raises DeviceUnclean: if it could not be verified to be clean; it is quarantined then.
        """
        self._operations.release(host, address, force=force)

    def bridge_mode(self, host: str, link: str, mode: str | None = None) -> str:
        """Return the bridge mode of a host's uplink, ``veb`` or ``vepa``; set it before, if given.

        :raises NotFound: if the site has no such host, or the host no such link.
        :raises Unsupported: if the link's driver has no such mode; it is named.
        """
        return self._operations.bridge_mode(host, link, mode)

    def actions(self, resource_type: str) -> tuple[str, ...]:
        """Return the names of a type's operational actions."""
        handler: type[Handler] = registry.handler_for(resource_type)
        return handler.actions

    def unfinished(self) -> tuple[Unfinished, ...]:
        """Return the operations that a process began and did not end."""
        return self._journal.unfinished()

    def recover(self, *, undo: bool = False) -> "list[Future[Outcome]]":
        """Finish what other processes began and did not end; those under way are left alone.

        :param undo: take back what was begun instead: a sliver that was being created is deleted, one
            that was being modified becomes what its stamp says. A deletion is always finished.
        """
        return [self._recover(entry, undo=undo) for entry in self.unfinished()]

    def _recover(self, entry: Unfinished, *, undo: bool) -> "Future[Outcome]":
        model: type[SliverRef] = registry.handler_for(entry.sliver["type"]).sliver_model
        whole = entry.sliver.keys() - {"id", "type"}
        sliver = (model if whole else SliverRef).model_validate(entry.sliver)
        return self._submit(
            entry.operation,
            sliver,
            lambda d: self._operations.recover(entry, sliver, d, undo=undo),
        )

    # --- order

    def shutdown(self, wait: bool = True, timeout: float | None = None) -> bool:
        """Take no more operations, and let those asked for come to their end.

        :param wait: whether to wait for them.
        :param timeout: seconds to wait at most; what has not begun by then is cancelled.
        :returns: whether all have ended.
        """
        with self._queue.lock:
            self._closed, pending = True, set(self._pending)
        running = wait_for(pending, timeout).not_done if wait else pending
        for future in running if wait else ():
            future.cancel()
        if all(future.done() for future in pending):
            self._invocations.shutdown(wait=wait)
            self._steps.shutdown(wait=wait)
        return all(future.done() for future in pending)

    def _submit(
        self, operation: Operation, sliver: SliverRef, work: Callable[[Deadline], Outcome]
    ) -> "Future[Outcome]":
        invocation = _Invocation(operation, sliver, work, Future())
        with self._queue.lock:
            self._refuse_closed()
            self._pending.add(invocation.future)
            self._queue.put(sliver.id, lambda: self._begin(invocation))
        invocation.future.add_done_callback(self._forget)
        return invocation.future

    def _refuse_closed(self) -> None:
        if self._closed:
            raise Conflict("the processor is shut down", remedy="make a new one")

    def _forget(self, future: "Future[Outcome]") -> None:
        with self._queue.lock:
            self._pending.discard(future)

    def _begin(self, invocation: _Invocation) -> bool:
        if invocation.future.cancelled():
            invocation.future.set_running_or_notify_cancel()
            return False
        self._invocations.submit(self._run, invocation)
        return True

    def _run(self, invocation: _Invocation) -> None:
        try:
            if invocation.future.set_running_or_notify_cancel():
                invocation.future.set_result(invocation.context.run(self._invoke, invocation))
        finally:
            self._queue.leave(invocation.sliver.id)

    def _invoke(self, invocation: _Invocation) -> Outcome:
        began = time.monotonic()
        outcome = self._outcome(invocation)
        outcome = outcome.model_copy(update={"seconds": time.monotonic() - began})
        log.info(
            "%s %s: %s in %.3f s",
            outcome.operation,
            outcome.sliver.id,
            outcome.status,
            outcome.seconds,
        )
        if self._on_done:
            engine.attempt(self._on_done, outcome)
        return outcome

    def _outcome(self, invocation: _Invocation) -> Outcome:
        limit = self._limit(invocation.operation)

        def work() -> Outcome:
            with self._sliver_locked(invocation):
                return invocation.work(Deadline.within(limit))

        outcome = engine.attempt(work)
        if isinstance(outcome, Exception):
            return failed(invocation.operation, invocation.sliver, outcome)
        return outcome

    @contextmanager
    def _sliver_locked(self, invocation: _Invocation) -> Iterator[None]:
        """Hold the lock of the sliver against other processes, unless nothing is changed."""
        if invocation.operation in {Operation.PLAN, Operation.PROBE}:
            yield
            return
        sliver = invocation.sliver.id
        path = sliver_lock(self.site.state_dir, sliver)
        with exclusive(path, f"sliver {sliver}", timeout=self.site.limits.busy):
            yield

    def _limit(self, operation: Operation) -> float:
        limits = self.site.limits
        return float(getattr(limits, operation.value, limits.probe))
