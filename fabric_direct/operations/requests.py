"""Requests: what operations are asked to do, as values."""

from typing import Any

from pydantic import Field

from fabric_direct.model import Frozen, Operation, SliverRef
from fabric_direct.model.adoption import Adoption, ServiceAdoption
from fabric_direct.operations.saved_plan import PlannedSliver
from fabric_direct.placement.placer import Placement
from fabric_direct.state.journal import Unfinished
from fabric_direct.state.pending_looks import PendingLook

SWEEP = "sweep"
"""How a deletion came to be that a sweep asks for."""


class OperationRequest(Frozen):
    """A request for an operation; by itself for one that needs the sliver alone."""

    operation: Operation
    sliver: SliverRef
    """Whole, or a reference, as the operation needs it."""
    action: str = ""
    """The operational action, or how else it came to be; for the audit trail."""

    @property
    def swept(self) -> bool:
        """Whether it may only run if nothing was begun on the sliver since the dry run of a sweep."""
        return self.action == SWEEP


class ChangeRequest(OperationRequest):
    """A request to create or modify a sliver."""

    placement: Placement | None = None
    """Of a build plan, which has claimed what it takes."""
    expected: PlannedSliver | None = None
    """What a saved plan says of it: nothing else is done."""


class ActionRequest(OperationRequest):
    """A request for an operational action."""

    operation: Operation = Operation.POA
    data: dict[Any, Any] = Field(default={}, repr=False)


class AdoptionRequest(OperationRequest):
    """A request to stamp a sliver that others made, or for the plan of that."""

    wanted: Adoption | ServiceAdoption


class PlanRequest(OperationRequest):
    """A request for a plan."""

    operation: Operation = Operation.PLAN
    planned: Operation | None = None
    """What is planned: by default modify if the sliver is there, else create."""


class RecoveryRequest(OperationRequest):
    """A request to end what was left unfinished."""

    entry: Unfinished
    undo: bool


class LookRequest(OperationRequest):
    """A request to look at a host again for what it has of a deleted sliver."""

    operation: Operation = Operation.DELETE
    look: PendingLook
