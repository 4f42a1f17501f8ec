"""What an operation tells while it is under way."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fabric_direct.calls.waiting import Waiting, heard_by
from fabric_direct.engine.run import attempt
from fabric_direct.model import Operation, StepStatus


@dataclass(frozen=True, slots=True)
class Progress:
    """A step of an operation begins, waits or ends."""

    sliver: str
    operation: Operation
    step: str
    """Empty while the operation itself waits, before its first step: for a lock."""
    status: StepStatus | None
    """None: it begins, or waits."""
    seconds: float
    done: int
    """How many steps have ended so far."""
    total: int
    host: str = ""
    """The host that placement chose; empty if the sliver names its host."""
    waiting: Waiting | None = None
    """What it waits for from now on, or, if that is empty, that the waiting is over; None: it begins or
    ends."""


@contextmanager
def telling(tell: Callable[[Progress], None], operation: Operation, sliver: str) -> Iterator[None]:
    """Tell what an operation waits for in the block, before its first step."""

    def hear(waiting: Waiting) -> None:
        attempt(tell, Progress(sliver, operation, "", None, 0.0, 0, 0, "", waiting))

    with heard_by(hear):
        yield
