"""Finish or undo an operation that was left unfinished."""

from dataclasses import dataclass
from functools import partial

from fabric_direct.calls.deadline import Deadline
from fabric_direct.errors import InvalidSliver, Unsupported
from fabric_direct.handlers import registry
from fabric_direct.handlers.vm.refusal import FIXED
from fabric_direct.model import NodeSliver, Operation, Outcome, SliverRef
from fabric_direct.model.adoption import of_journal
from fabric_direct.model.bare_metal import BareMetalSliver
from fabric_direct.model.services import NetworkService
from fabric_direct.operations.adopt import Adopt
from fabric_direct.operations.create import Create
from fabric_direct.operations.delete import Delete
from fabric_direct.operations.modify import Modify
from fabric_direct.operations.outcomes import done, with_warnings
from fabric_direct.operations.reconcile import Reconcile
from fabric_direct.operations.site_hosts import SiteHosts
from fabric_direct.state.journal import Unfinished

_NOT_UNDONE = "nothing says what it was before: its modification was finished, not undone"


@dataclass(frozen=True, slots=True)
class Recover:
    """Ends unfinished operations of a site."""

    hosts: SiteHosts
    create: Create
    modify: Modify
    reconcile: Reconcile
    delete: Delete
    adopt: Adopt

    def __call__(self, entry: Unfinished, deadline: Deadline, *, undo: bool) -> Outcome:
        """Finish or undo an unfinished operation, unless it has ended meanwhile.

        A creation of what was there before is finished: undoing would delete what it did not make.
        """
        adoption = of_journal(entry.sliver) if entry.operation is Operation.ADOPT else None
        sliver = adoption.sliver if adoption else _sliver(entry)
        if entry != self.hosts.journal.of(sliver.id):
            return done(entry.operation, sliver)
        if adoption:
            return self.adopt.disown(adoption, deadline) if undo else self.adopt(adoption, deadline)
        if entry.operation is Operation.RECONCILE:
            return self.reconcile(sliver, deadline)
        if entry.operation is Operation.DELETE or type(sliver) is SliverRef:
            return self.delete(sliver, deadline)
        if entry.operation is Operation.MODIFY:
            finish = partial(self._modify_back, entry) if undo else self.modify
            return finish(sliver, deadline)
        undo = undo and entry.owns_everything
        return self.delete(sliver, deadline) if undo else self.create(sliver, deadline)

    def _modify_back(self, entry: Unfinished, sliver: SliverRef, deadline: Deadline) -> Outcome:
        """Make the sliver what it was, whatever has become of what it is stitched to.

        Where nothing says what a network was, or ports, their modification is finished, and a warning
        says so.

        :raises Unsupported: where nothing says what a network service was, and where a node is deployed
            anew.
        """
        former = self._former(entry, sliver, deadline)
        try:
            outcome = self.modify.back(former, deadline)
        except InvalidSliver as error:
            if not (isinstance(sliver, BareMetalSliver) and sliver.rebuild):
                raise
            raise Unsupported(
                f"the modification of {sliver.id} cannot be undone",
                why="it has begun to deploy its node anew, which ends what is on its disk",
                remedy="finish it: recover without --undo, or modify it with its former file and "
                "rebuild: true",
            ) from error
        finished = former is sliver and outcome.ok
        return with_warnings(outcome, (_NOT_UNDONE,) if finished else ())

    def _former(self, entry: Unfinished, sliver: SliverRef, deadline: Deadline) -> SliverRef:
        """Return the sliver as it was before an unfinished modification.

        The journal says so; of what no modification changes in a server, its stamp: it may have been
        resized since.
        """
        former = type(sliver).model_validate(entry.before) if entry.before else sliver
        if isinstance(former, NetworkService) and not entry.before:
            raise Unsupported(
                f"the modification of {sliver.id} cannot be undone",
                why="nothing says what it was: secrets of its peers are kept nowhere",
                remedy="modify it with its former file, or finish it: recover without --undo",
            )
        if not isinstance(former, NodeSliver):
            return former
        host = self.hosts.host_of(sliver, deadline)
        server = self.hosts.drivers.within(host, deadline).compute.find(sliver.id)
        if server is None:
            return former
        stamped = server.stamp.sliver
        if not entry.before:
            return stamped.model_copy(update={"boot_script": former.boot_script})
        return former.model_copy(update={field: getattr(stamped, field) for field in FIXED})


def _sliver(entry: Unfinished) -> SliverRef:
    model = registry.sliver_model(entry.sliver)
    whole = entry.sliver.keys() - {"id", "type"}
    return (model if whole else SliverRef).model_validate(entry.sliver)
