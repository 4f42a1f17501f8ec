"""Settings inside of guests."""

from typing import Protocol

from fabric_direct.engine.step import Step
from fabric_direct.errors import NotFound, Unreachable
from fabric_direct.model import Finding


class Setting(Protocol):
    """Something that can be set in a guest, and taken back."""

    def is_so(self) -> bool:
        """Return whether it is set in the guest."""

    def make(self) -> None:
        """Set it."""

    def take_back(self) -> None:
        """Restore what was before."""

    def is_taken_back(self) -> bool:
        """Return whether what was before is restored."""


class InverseSetting:
    """The opposite of a setting: made where the setting is taken back."""

    def __init__(self, setting: Setting) -> None:
        self.is_so, self.make = setting.is_taken_back, setting.take_back
        self.take_back, self.is_taken_back = setting.make, setting.is_so


class SetInGuest(Step):
    """Something is set in the guest, permanently.

    While the guest cannot be asked (it does not exist yet, or does not answer), it counts as not set; it
    is asked once more before anything is set.
    """

    def __init__(self, name: str, setting: Setting) -> None:
        super().__init__(name)
        self._setting, self._asked, self._was_so = setting, True, False

    def check(self) -> Finding:
        """Read it back from the guest."""
        try:
            so, self._asked = self._setting.is_so(), True
        except (NotFound, Unreachable):
            so = self._asked = False
        return Finding.ALREADY_SO if so else Finding.WILL_CHANGE

    def make(self) -> None:
        """Set it."""
        self._was_so = not self._asked and self._setting.is_so()
        if not self._was_so:
            self._setting.make()

    def undo(self) -> None:
        """Take it back."""
        if not self._was_so:
            self._setting.take_back()

    def is_undone(self) -> bool:
        """Ask the guest again."""
        return self._was_so or self._setting.is_taken_back()


class SetAndKeepInGuest(SetInGuest):
    """Like :class:`SetInGuest`, but its failure does not roll back the operation."""

    undoable = False
