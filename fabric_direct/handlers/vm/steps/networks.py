"""Networks that nobody uses any more."""

from fabric_direct.drivers.contract import NetworkDriver
from fabric_direct.engine.removal import Removal


class RemoveUnused(Removal):
    """Networks that an interrupted call left without a user are gone."""

    def __init__(self, network: NetworkDriver, unused: tuple[str, ...]) -> None:
        """Make the step for the networks that were ``unused`` at planning time."""

        def left() -> set[str]:
            # Others may have come since, or one of these may be in use by now.
            return set(unused) & set(network.unused())

        super().__init__("remove unused networks", left, network.remove_unused)
