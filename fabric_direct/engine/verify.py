"""Steps that change nothing: they wait for the guest and compare the result with the request."""

from collections.abc import Callable
from dataclasses import dataclass

from fabric_direct.engine.step import Flow, Step
from fabric_direct.errors import NotVerified
from fabric_direct.model import Finding, Observed


class Await(Step):
    """Something that happens by itself has happened."""

    planned = False

    def __init__(self, name: str, wait: Callable[[], object]) -> None:
        """Make the step; ``wait`` blocks until it has happened, and raises if it does not."""
        super().__init__(name)
        self._wait = wait
        self._over = False

    def check(self) -> Finding:
        """Say whether the wait is over."""
        return Finding.ALREADY_SO if self._over else Finding.WILL_WAIT

    def make(self) -> None:
        """Wait."""
        self._wait()
        self._over = True


class Awaited(Await):
    """Like :class:`Await`, but its failure does not roll back the operation."""

    undoable = False


@dataclass(frozen=True, slots=True)
class ReadBack:
    """What was read back of a sliver, and compared with the request."""

    observed: Observed | None
    """None if it could not be read."""
    differences: tuple[str, ...]
    """A sentence for each that the flow should not have left at this step."""


class Verify(Step):
    """The result is what was requested."""

    planned = False
    title = "verify"

    def __init__(self, read: Callable[[], ReadBack]) -> None:
        """Make the step; ``read`` reads the substrate and compares."""
        super().__init__(self.title)
        self._read = read
        self.observed: Observed | None = None

    def check(self) -> Finding:
        """Read back and compare."""
        back = self._read()
        self.observed = back.observed
        return Finding.WILL_CHANGE if back.differences else Finding.ALREADY_SO

    def make(self) -> None:
        """Raise NotVerified with the differences: they do not go away by themselves."""
        why = "; ".join(self._read().differences)
        raise NotVerified("the result differs from the request", why=why)


class Verified(Verify):
    """The same at the end of a flow whose last steps have no way back."""

    undoable = False
    title = "verify again"


def observed_by(flow: Flow) -> Observed | None:
    """Return what a flow that was run has read back of its sliver in the end, if it did."""
    seen = (step.observed for step in reversed(flow.steps()) if isinstance(step, Verify))
    return next(filter(None, seen), None)
