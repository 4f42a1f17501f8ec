"""Steps that change nothing: they wait for the guest and compare the result with the request."""

from collections.abc import Callable

from fabric_direct.engine.step import Step
from fabric_direct.errors import NotVerified
from fabric_direct.model import Finding


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
        return Finding.ALREADY_SO if self._over else Finding.WILL_CHANGE

    def make(self) -> None:
        """Wait."""
        self._wait()
        self._over = True


class Awaited(Await):
    """Like :class:`Await`, but its failure does not roll back the operation."""

    undoable = False


class Verify(Step):
    """The result is what was requested."""

    planned = False

    def __init__(self, differences: Callable[[], tuple[str, ...]]) -> None:
        """Make the step; ``differences`` reads the substrate and returns a sentence for each."""
        super().__init__("verify")
        self._differences = differences

    def check(self) -> Finding:
        """Read back and compare."""
        return Finding.WILL_CHANGE if self._differences() else Finding.ALREADY_SO

    def make(self) -> None:
        """Raise NotVerified with the differences: they do not go away by themselves."""
        raise NotVerified("the result differs from the request", why="; ".join(self._differences()))


class Verified(Verify):
    """The same at the end of a flow whose last steps have no way back."""

    undoable = False

    def __init__(self, differences: Callable[[], tuple[str, ...]]) -> None:
        """Make the step; ``differences`` reads the substrate and returns a sentence for each."""
        super().__init__(differences)
        self.name = "verify again"
