"""Networks: made, changed and removed with a sliver of their own, and removed when nobody uses them."""

from fabric_direct.drivers.contract import BridgeDriver, UnusedNetworks
from fabric_direct.model import Finding
from fabric_direct.networks import NetworkSliver
from fabric_direct.steps.base import Step


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


class RemoveNetwork(Step):
    """The sliver's network is gone, with its subnets and its router."""

    undoable = False

    def __init__(self, bridge: BridgeDriver, sliver_id: str) -> None:
        super().__init__("remove network")
        self._bridge, self._sliver = bridge, sliver_id

    def check(self) -> Finding:
        """Look for anything that is left of it."""
        left = self._bridge.leftovers(self._sliver)
        return Finding.WILL_DELETE if left else Finding.ALREADY_SO

    def make(self) -> None:
        """Remove it."""
        self._bridge.delete(self._sliver)


class RemoveUnused(Step):
    """Networks that were left without a user, by a call that was killed, are gone."""

    undoable = False

    def __init__(self, network: UnusedNetworks, unused: tuple[str, ...]) -> None:
        """Make the step for these networks, as the driver named them."""
        super().__init__("remove unused networks")
        self._network, self._unused = network, unused

    def check(self) -> Finding:
        """Look for them; others may have come meanwhile, or be in use by now."""
        left = set(self._unused) & set(self._network.unused())
        return Finding.WILL_DELETE if left else Finding.ALREADY_SO

    def make(self) -> None:
        """Remove them."""
        self._network.remove_unused()
