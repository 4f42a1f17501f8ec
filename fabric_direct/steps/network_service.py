"""Network services: made, changed and removed with a sliver of their own."""

from functools import partial

from fabric_direct.drivers.contract import ServiceDriver
from fabric_direct.model import Finding
from fabric_direct.networks import NetworkSliver
from fabric_direct.steps.base import Step
from fabric_direct.steps.removal import Removal


class MakeNetwork(Step):
    """The sliver's network is there, with its subnets and its router."""

    def __init__(self, driver: ServiceDriver, sliver: NetworkSliver) -> None:
        super().__init__("network")
        self._driver, self._sliver = driver, sliver

    def check(self) -> Finding:
        """Look for the network and compare it."""
        if self._driver.find(self._sliver.id) is None:
            return Finding.WILL_CREATE
        differs = self._driver.differences(self._sliver)
        return Finding.WILL_CHANGE if differs else Finding.ALREADY_SO

    def make(self) -> None:
        """Make it, or what is missing of it."""
        self._driver.apply(self._sliver)

    def undo(self) -> None:
        """Remove it with all that was made with it."""
        self._driver.remove(self._sliver.id)


class ChangeNetwork(MakeNetwork):
    """The sliver's network that is there is as wanted; what it was before is not known any more."""

    undoable = False


class RemoveNetwork(Removal):
    """The sliver's network is gone, with its subnets and its router."""

    def __init__(self, driver: ServiceDriver, sliver_id: str) -> None:
        left, delete = partial(driver.leftovers, sliver_id), partial(driver.remove, sliver_id)
        super().__init__("remove network", left, delete)
