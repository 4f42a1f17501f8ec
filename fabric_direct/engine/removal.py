"""The common base of steps that remove something."""

from collections.abc import Callable
from typing import ClassVar

from fabric_direct.engine.step import Step
from fabric_direct.model import Finding


class Removal(Step):
    """Something is gone; there is no way back.

    What is not seen is removed all the same: no absence in a single answer lets it stay.
    """

    undoable: ClassVar[bool] = False
    trusts_check: ClassVar[bool] = False

    def __init__(self, name: str, left: Callable[[], object], remove: Callable[[], None]) -> None:
        """Make the step.

        :param left: returns what is still there; nothing if it is gone.
        :param remove: removes it; it is gone on return.
        """
        super().__init__(name)
        self._left, self._remove = left, remove

    def check(self) -> Finding:
        """Look for what is left."""
        return Finding.WILL_DELETE if self._left() else Finding.ALREADY_SO

    def make(self) -> None:
        """Remove it."""
        self._remove()
