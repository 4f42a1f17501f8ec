"""Outcomes: how an operation and its steps ended."""

import json
from enum import StrEnum
from typing import Any

from fabric_direct.errors import FabricDirectError
from fabric_direct.model.base import Frozen
from fabric_direct.model.observed import Observed
from fabric_direct.model.vm import SliverRef


class Operation(StrEnum):
    """The operations of a handler."""

    PLAN = "plan"
    CREATE = "create"
    MODIFY = "modify"
    DELETE = "delete"
    PROBE = "probe"
    POA = "poa"
    RECONCILE = "reconcile"
    ADOPT = "adopt"


class Finding(StrEnum):
    """The result of comparing the current state of a step's subject with the desired one."""

    ALREADY_SO = "already so"
    WILL_CREATE = "will create"
    WILL_CHANGE = "will change"
    WILL_DELETE = "will delete"
    WILL_WAIT = "will wait"
    """For what comes by itself, a guest's boot; that changes nothing, and a plan does not show it."""


class StepStatus(StrEnum):
    """The result of a step."""

    ALREADY_SO = "already so"
    DONE = "done"
    FAILED = "failed"
    UNDONE = "undone"
    UNDO_FAILED = "undo failed"
    SKIPPED = "skipped"
    PLANNED = "planned"


class FieldChange(Frozen):
    """A field that a step will change."""

    field: str
    """Its path: ``bandwidth``, ``interfaces.i1.vlan``."""
    was: Any
    """Its value now; null if there is none."""
    will_be: Any

    def __str__(self) -> str:
        """Return it for people: ``bandwidth 100 → 200``."""
        return f"{self.field} {_shown(self.was)} → {_shown(self.will_be)}"


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class StepReport(Frozen):
    """One step of an operation."""

    step: str
    status: StepStatus
    finding: Finding | None = None
    changes: tuple[FieldChange, ...] = ()
    """In a plan: what a step that will change something will change, as far as it has fields."""
    seconds: float = 0.0
    error: str | None = None


class Status(StrEnum):
    """The result of an operation; see :class:`Outcome`."""

    DONE = "done"
    FAILED = "failed"
    REFUSED = "refused"
    PARTIAL = "partial"


class ErrorReport(Frozen):
    """An error as a value."""

    kind: str
    """Class of the error, for example ``DeviceClaimed``; see :mod:`fabric_direct.errors`."""
    message: str
    field: str = ""
    """Path of the offending field, where there is one."""


class Outcome(Frozen):
    """The result of one operation on one sliver.

    ``done``: completed, and verified by reading it back; ``warnings`` name what of a guest was not seen
    yet. ``failed``: nothing was done, or it was taken back; ``left`` says what a deletion could not
    remove, what an action may have done, or what a call may still make. ``refused``: the input is
    invalid, and nothing was changed. ``partial``: ``steps`` say what was done, ``error`` what failed,
    ``left`` what is left behind.
    """

    operation: Operation
    sliver: SliverRef
    status: Status
    error: ErrorReport | None = None
    observed: Observed | None = None
    steps: tuple[StepReport, ...] = ()
    left: tuple[str, ...] = ()
    """Names of what is left behind on the substrate; what begins with ``unknown:`` may be there."""
    warnings: tuple[str, ...] = ()
    data: dict[str, Any] = {}
    """The answer of an operational action; the ``operation`` of a plan; the ``host`` that placement
    chose; what a repair ``repaired``, or the ``differences`` before one that failed."""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Return whether the operation was completed."""
        return self.status is Status.DONE

    def failed_by(self, *errors: type[FabricDirectError]) -> bool:
        """Return whether an error of just one of these classes ended the operation."""
        return self.error is not None and self.error.kind in {each.__name__ for each in errors}
