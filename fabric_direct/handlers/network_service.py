"""Networks that are slivers of their own (``L2Bridge``).

::

    create   network with its subnets and router → verify
    modify   DNS servers, pool, gateway, router on or off → verify
    delete   network, unless ports of others are on it → nothing is left

The network bears the sliver's stamp. It is named by the sliver's name, and vNICs of other slivers name
it so.
"""

from typing import Any, ClassVar

from fabric_direct.config import Site
from fabric_direct.drivers.contract import HostDrivers, ServiceDriver
from fabric_direct.errors import Conflict, InvalidSite, InvalidSliver, NotFound, Unsupported
from fabric_direct.handlers.base import Repair, unknown_wish
from fabric_direct.model import Observed, SliverRef, State
from fabric_direct.networks import NetworkSliver
from fabric_direct.steps.base import Flow
from fabric_direct.steps.network_service import ChangeNetwork, MakeNetwork, RemoveNetwork
from fabric_direct.steps.verify import Verified, Verify


class L2BridgeHandler:
    """Makes, changes, removes and looks at networks."""

    sliver_model: ClassVar[type[SliverRef]] = NetworkSliver
    actions: ClassVar[tuple[str, ...]] = ()

    def __init__(self, site: Site, drivers: HostDrivers) -> None:  # noqa: ARG002 - as for all handlers
        """Make a handler whose drivers keep the operation's deadline.

        :raises InvalidSite: if the site serves no networks.
        """
        self.observed: Observed | None = None
        self._drivers = drivers
        self._driver = _driver(drivers)

    def create(self, sliver: NetworkSliver) -> Flow:
        """Return what makes the network with everything that belongs to it."""
        found = self._driver.find(sliver.id)
        if found is None:
            self._driver.check(sliver)
        elif differs := self._driver.differences(sliver):
            raise Conflict(
                f"sliver {sliver.id} is there and differs from what is asked for",
                where=found.source,
                why="; ".join(differs),
                remedy="use modify, or delete it first",
            )
        return Flow.of(
            [MakeNetwork(self._driver, sliver)],
            [Verify(lambda: self._differences(sliver))],
            owns_everything=found is None,
        )

    def modify(self, sliver: NetworkSliver) -> Flow:
        """Return what turns the network that is there into the one asked for, also an incomplete one."""
        if not self._driver.leftovers(sliver.id):
            raise NotFound(f"sliver {sliver.id} is not there")
        self._driver.check(sliver)
        return Flow.of(
            [ChangeNetwork(self._driver, sliver)],
            [Verified(lambda: self._differences(sliver))],
        )

    def delete(self, ref: SliverRef) -> Flow:
        """Return what removes the network."""
        return Flow.of([RemoveNetwork(self._driver, ref.id)], owns_everything=True)

    def reconcile(self, ref: SliverRef) -> Repair:
        """Refuse: nothing at the site says what it should be."""
        raise unknown_wish(ref, "network")

    def adopt(self, wanted: Any) -> Flow:
        """Refuse: fabric_am makes no networks of a cloud.

        :raises Unsupported: always.
        """
        raise Unsupported(f"{wanted.sliver.id} is a network: networks cannot be adopted")

    def exists(self, ref: SliverRef) -> bool:
        """Return whether the network is there, complete."""
        return self._driver.find(ref.id) is not None

    def observe(self, ref: SliverRef) -> Observed:
        """Read the network, and compare it with what it should be.

        What it should be is not written on it: by its id alone it is not compared.
        """
        found = self._driver.find(ref.id)
        if found is None:
            return self._incomplete(ref)
        wanted = ref if isinstance(ref, NetworkSliver) else None
        return Observed(
            state=State.RUNNING,
            instance=found.source,
            differences=self._driver.differences(wanted) if wanted else (),
        )

    def _incomplete(self, ref: SliverRef) -> Observed:
        left = self._driver.leftovers(ref.id)
        if left:
            said = f"not all of it is there, only {', '.join(left)}"
            return Observed(state=State.ERROR, differences=(said,))
        return Observed(state=State.ABSENT, differences=("there is no such network",))

    def _differences(self, sliver: NetworkSliver) -> tuple[str, ...]:
        self._drivers.reads.invalidate()
        self.observed = self.observe(sliver)
        return self.observed.differences

    def leftovers(self, ref: SliverRef) -> tuple[str, ...]:
        """Name everything of the sliver that is there."""
        self._drivers.reads.invalidate()
        return self._driver.leftovers(ref.id)

    def act(self, ref: SliverRef, action: str, data: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        """Refuse: a network has no operational actions."""
        raise InvalidSliver(f"there is no action {action!r} on a network", field="action")


def _driver(drivers: HostDrivers) -> ServiceDriver:
    if "L2Bridge" not in drivers.services:
        raise InvalidSite(
            "names no driver for L2Bridge",
            field="drivers",
            remedy="add `L2Bridge: openstack` below drivers in site.yaml",
        )
    return drivers.services["L2Bridge"]
