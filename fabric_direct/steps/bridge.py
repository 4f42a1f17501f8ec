"""Networks: made, changed and removed with a sliver of their own, and removed when nobody uses them."""

from functools import partial

from fabric_direct.drivers.contract import BridgeDriver, UnusedNetworks
from fabric_direct.model import Finding
from fabric_direct.networks import NetworkSliver
from fabric_direct.steps.base import Step
from fabric_direct.steps.removal import Removal


class MakeNetwork(Step):
    """The sliver's network is there, with its subnets and its router."""

    def __init__(self, bridge: BridgeDriver, sliver: NetworkSliver) -> None:
        super().__init__("network")
        self._bridge, self._sliver = bridge, sliver

    def check(self) -> Finding:
        """Look for the network and compare it."""
        if self._bridge.find(self._sliver.id) is None:
            return Finding.WILL_CREATE
        differs = self._bridge.differences(self._sliver)
        return Finding.WILL_CHANGE if differs else Finding.ALREADY_SO

    def make(self) -> None:
        """Make it, or what is missing of it."""
        self._bridge.create(self._sliver)

    def undo(self) -> None:
        """Remove it with all that was made with it."""
        self._bridge.delete(self._sliver.id)


class ChangeNetwork(MakeNetwork):
    """The sliver's network that is there is as wanted; what it was before is not known any more."""

    undoable = False


class RemoveNetwork(Removal):
    """The sliver's network is gone, with its subnets and its router."""

    def __init__(self, bridge: BridgeDriver, sliver_id: str) -> None:
        left, delete = partial(bridge.leftovers, sliver_id), partial(bridge.delete, sliver_id)
        super().__init__("remove network", left, delete)


class RemoveUnused(Removal):
    """Networks that an interrupted call left without a user are gone."""

    def __init__(self, network: UnusedNetworks, unused: tuple[str, ...]) -> None:
        """Make the step for the networks that were ``unused`` at planning time."""

        def left() -> set[str]:
            # Others may have come since, or one of these may be in use by now.
            return set(unused) & set(network.unused())

        super().__init__("remove unused networks", left, network.remove_unused)
