"""Requests: what operations are asked to do, as values, which other processes can read."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer
from pydantic_core import PydanticSerializationError

from fabric_direct.errors import InvalidSliver
from fabric_direct.handlers import registry
from fabric_direct.model import Frozen, Operation, SliverRef
from fabric_direct.model.adoption import Adoption, ServiceAdoption
from fabric_direct.operations.saved_plan import PlannedSliver
from fabric_direct.placement.placer import Placement
from fabric_direct.state.journal import Unfinished
from fabric_direct.state.pending_looks import PendingLook

SWEEP = "sweep"
"""How a deletion came to be that a sweep asks for."""


def _read(sliver: Any) -> Any:
    """Return a sliver, from its document if it is one."""
    if not isinstance(sliver, Mapping):
        return sliver
    document = dict(sliver)
    whole = document.pop("whole")
    model = registry.sliver_model(document) if whole else SliverRef
    return model.model_validate(document)


def _written(sliver: SliverRef) -> dict[str, Any]:
    """Return the document of a sliver, which says whether it is all of it."""
    whole = type(sliver) is not SliverRef
    return {"whole": whole, **sliver.model_dump(mode="json", exclude_none=True)}


class OperationRequest(Frozen):
    """A request for an operation; by itself for one that needs the sliver alone."""

    operation: Operation
    sliver: Annotated[SliverRef, BeforeValidator(_read), PlainSerializer(_written)]
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
    claimed: bool = False
    """Whether a plan has claimed what it takes: the claim ends with the operation."""


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


_KINDS = {
    kind.__name__: kind
    for kind in (
        OperationRequest,
        ChangeRequest,
        ActionRequest,
        AdoptionRequest,
        PlanRequest,
        RecoveryRequest,
        LookRequest,
    )
}


def dumps(request: OperationRequest) -> str:
    """Return a request as JSON, for another process. It has the secrets of the sliver.

    :raises InvalidSliver: if the data of its action are no values of JSON.
    """
    try:
        text = request.model_dump_json(exclude_none=True)
    except PydanticSerializationError as error:
        raise InvalidSliver(
            f"bad data for {request.action}", field="data", why="must be values of JSON"
        ) from error
    return f"{type(request).__name__} {text}"


def loads(text: str) -> OperationRequest:
    """Return the request of a text that :func:`dumps` made.

    :raises ValueError: if it is none, or one of another version of this library.
    """
    kind, _, document = text.partition(" ")
    if kind not in _KINDS:
        raise ValueError(f"there is no {kind!r} here")
    return _KINDS[kind].model_validate_json(document)
