"""Bare-metal nodes in memory."""

from fabric_direct.drivers.contract import BareMetalNode
from fabric_direct.drivers.fake.substrate import Fake


class FakeBareMetal(Fake):
    """A :class:`~fabric_direct.drivers.contract.BareMetalDriver` in memory."""

    kind = "bare_metal"

    def nodes(self) -> tuple[BareMetalNode, ...]:
        """Return all nodes, by name."""
        return tuple(node for _, node in sorted(self.substrate.bare_metal.items()))

    def examine(self) -> tuple[str, ...]:
        """Return how many nodes there are."""
        return (f"{len(self.substrate.bare_metal)} nodes in memory",)
