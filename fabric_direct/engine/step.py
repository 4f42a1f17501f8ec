"""The step, and the flow of steps."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from fabric_direct.model import FieldChange, Finding, SliverRef


class Step(ABC):
    """One idempotent change of the substrate, on one subject.

    The engine calls :meth:`check` and, unless there is nothing to do, :meth:`look`, :meth:`make` and
    :meth:`check` again. If a later step fails, it calls :meth:`undo`, but only for steps that this
    operation made.
    """

    undoable: ClassVar[bool] = True
    """Whether its failure undoes the operation. Where nothing can be undone (a deletion) the failure is
    recorded, the other steps of its stage go on, later stages are skipped."""

    planned: ClassVar[bool] = True
    """Whether a plan shows the step. A step that only waits or compares is not shown, and not undone."""

    trusts_check: ClassVar[bool] = True
    """Whether there is nothing to do if :meth:`check` says that it is so already. Otherwise it is made
    all the same: an answer may lack what is there."""

    used_later: ClassVar[bool] = False
    """Whether what later stages make uses it: it is not undone while some of that may be there, because
    its undoing failed or a call for it was given up."""

    def __init__(self, name: str) -> None:
        """Create a step.

        :param name: its subject, unique in its flow: ``port nic1``. Reports name it so.
        """
        self.name = name

    @abstractmethod
    def check(self) -> Finding:
        """Return what there is to do, by reading the substrate, not memory."""

    def changes(self) -> tuple[FieldChange, ...]:
        """Return the fields that will change, for a plan, if :meth:`check` says that something will.

        No value may be a secret.
        """
        return ()

    def differs(self) -> tuple[str, ...]:
        """Return how what was made differs from what it should be, if :meth:`check` still says so.

        A sentence each, for the error; without secrets.
        """
        return tuple(map(str, self.changes()))

    def is_implied(self) -> bool:
        """Return whether an earlier step of the flow will do it, too, so that a plan leaves it out."""
        return False

    def look(self) -> None:
        """Remember what :meth:`undo` has to restore. If this fails, the step is not undone."""
        return

    @abstractmethod
    def make(self) -> None:
        """Make the change. Must be idempotent, also after a kill halfway."""

    def undo(self) -> None:
        """Undo what :meth:`make` did, also if it was interrupted."""
        return

    def is_undone(self) -> bool:
        """Return whether :meth:`undo` is complete, by reading the substrate."""
        return self.check() is not Finding.ALREADY_SO


@dataclass(frozen=True)
class Flow:
    """Stages that run one after the other; the steps of a stage run in parallel."""

    stages: tuple[tuple[Step, ...], ...]
    owns_everything: bool = False
    """Whether it covers all of the sliver: if it fails, nothing of the sliver may be left."""
    touches: tuple[str, ...] = ()
    """Ids of other slivers that it changes: their locks are held while it runs."""
    before: SliverRef | None = None
    """What it modifies, as it was asked for: undoing an unfinished modification makes it that again."""

    @classmethod
    def of(
        cls,
        *stages: Iterable[Step],
        owns_everything: bool = False,
        touches: Iterable[str] = (),
        before: SliverRef | None = None,
    ) -> "Flow":
        """Return the flow of these stages, without the empty ones."""
        steps = tuple(steps for steps in map(tuple, stages) if steps)
        return cls(steps, owns_everything, tuple(touches), before)

    def steps(self) -> tuple[Step, ...]:
        """Return all steps in order."""
        return tuple(step for stage in self.stages for step in stage)
