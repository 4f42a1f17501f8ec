"""The pinned host keys of guests."""

from collections.abc import Callable
from functools import partial

from fabric_direct.drivers.contract import GuestAddress, GuestDriver
from fabric_direct.engine.removal import Removal
from fabric_direct.engine.step import Step
from fabric_direct.model import Finding


class KnowGuest(Step):
    """The guest's host key is pinned to its addresses, as its console showed it.

    A guest that does not show it may be one that is handed out all the same.
    """

    def __init__(
        self, driver: GuestDriver, guest: Callable[[], GuestAddress], learn: Callable[[], bool]
    ) -> None:
        """Make the step.

        :param guest: asked when its ports are there.
        :param learn: waits for its key; returns False if it can be handed out without one.
        """
        super().__init__("host key")
        self._driver, self._guest, self._learn, self._needed = driver, guest, learn, True

    def check(self) -> Finding:
        """Look for pinned keys."""
        so = not self._needed or self._driver.pins(self._guest())
        return Finding.ALREADY_SO if so else Finding.WILL_CREATE

    def make(self) -> None:
        """Wait until the guest shows its key, and pin it."""
        self._needed = self._learn()

    def undo(self) -> None:
        """Forget it."""
        self._driver.forget(self._guest())

    def is_undone(self) -> bool:
        """Look for pinned keys."""
        return not self._driver.pins(self._guest())


class ForgetGuest(Removal):
    """No host key is pinned to the guest's addresses: the next guest that gets them has another."""

    def __init__(self, driver: GuestDriver, guest: GuestAddress) -> None:
        pins, forget = partial(driver.pins, guest), partial(driver.forget, guest)
        super().__init__("forget host key", pins, forget)
