"""What a step is, and how steps make a flow."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from fabric_direct.model import Finding


class Step(ABC):
    """One idempotent change of the substrate, on one subject.

    The engine asks :meth:`check`; unless it is so already it calls :meth:`make` and checks again. If a
    later step fails, it calls :meth:`undo`, but only for what this operation made.
    """

    undoable: ClassVar[bool] = True
    """Whether its failure takes the operation back. Where there is no way back (a deletion) the
    failure is recorded, the steps beside it go on, those behind it are skipped."""

    planned: ClassVar[bool] = True
    """Whether a plan shows it; a step that only waits or compares is not shown."""

    def __init__(self, name: str) -> None:
        """Make a step.

        :param name: what it is about, unique in its flow: ``port nic1``. Reports name it so.
        """
        self.name = name

    @abstractmethod
    def check(self) -> Finding:
        """Return whether it is so already, from the substrate and not from memory."""

    @abstractmethod
    def make(self) -> None:
        """Make it so."""

    def undo(self) -> None:
        """Take back what :meth:`make` did, also if it was cut short."""
        return

    def is_undone(self) -> bool:
        """Return whether :meth:`undo` has taken it back, from the substrate."""
        return self.check() is not Finding.ALREADY_SO


@dataclass(frozen=True)
class Flow:
    """Stages one after the other; the steps of a stage have no order and run in parallel."""

    stages: tuple[tuple[Step, ...], ...]
    owns_everything: bool = False
    """Whether it is about all of the sliver: if it fails, nothing of the sliver may be left."""
    touches: tuple[str, ...] = ()
    """Other slivers that something is plugged into: nobody else changes them while it runs."""

    @classmethod
    def of(
        cls,
        *stages: Iterable[Step],
        owns_everything: bool = False,
        touches: Iterable[str] = (),
    ) -> "Flow":
        """Return the flow of these stages, without the empty ones."""
        steps = tuple(steps for steps in map(tuple, stages) if steps)
        return cls(steps, owns_everything, tuple(touches))

    def steps(self) -> tuple[Step, ...]:
        """Return all steps in order."""
        return tuple(step for stage in self.stages for step in stage)
