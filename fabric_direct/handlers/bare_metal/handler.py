"""Whole machines: deployed for a sliver, and cleaned after it.

::

    create   node: reserved, deployed, on → verify
    modify   name → verify
    delete   node: taken away, cleaned, given up → nothing is left

Nothing is repaired: what differs on a node needs another deployment, which ends what runs there.
"""

from typing import Any, ClassVar, cast

from fabric_direct.calls.read_cache import warn
from fabric_direct.drivers.contract import BareMetalDriver
from fabric_direct.drivers.contract.bare_metal import PowerChange
from fabric_direct.engine.step import Flow
from fabric_direct.errors import NotFound, NotVerified, Unsupported
from fabric_direct.handlers.action_data import Nothing, Reboot, action_data
from fabric_direct.handlers.handler import Repair
from fabric_direct.handlers.services.handler import NetworkServiceSliverHandler
from fabric_direct.model import Frozen, Sliver, SliverRef, State
from fabric_direct.model.bare_metal import BareMetalSliver

_ACTIONS: dict[str, tuple[type[Frozen], PowerChange]] = {
    "reboot": (Reboot, "restart"),
    "start": (Nothing, "on"),
    "stop": (Reboot, "off"),
}


class BareMetalHandler(NetworkServiceSliverHandler):
    """Makes, changes, removes and looks at bare-metal slivers."""

    sliver_model: ClassVar[type[Sliver]] = BareMetalSliver
    actions: ClassVar[tuple[str, ...]] = tuple(_ACTIONS)
    what: ClassVar[str] = "node"

    def create(self, sliver: Any) -> Flow:
        """Return what gives a node to the sliver."""
        flow = super().create(sliver)
        if flow.owns_everything:
            with self._drivers.reads.active():
                warn("nobody logs in to the node: that its system runs is not verified")
        return flow

    def reconcile(self, ref: SliverRef) -> Repair:
        """Return how the node differs from its stamp; nothing of that is repaired.

        :raises NotFound: if it is not there.
        :raises Unsupported: if nothing says what it should be.
        """
        repair = super().reconcile(ref)
        why = "only another deployment changes it: delete the sliver and create it again"
        beyond = tuple(f"{each}; {why}" for each in repair.found.differences)
        return Repair(repair.sliver, repair.found, Flow.of(), beyond)

    def adopt(self, wanted: Any) -> Flow:
        """Refuse: a node that others deployed has no record of what was asked for.

        :raises Unsupported: always.
        """
        raise Unsupported(
            f"{wanted.sliver.id} is a bare-metal sliver: these are not adopted",
            why="nothing of a node says what it was deployed with",
        )

    def act(self, ref: SliverRef, action: str, data: dict[str, Any]) -> dict[str, Any]:
        """Switch the node on or off, or restart it; return its state, read back.

        :raises InvalidSliver: if there is no such action, or its data are wrong.
        :raises NotFound: if the sliver has no node.
        :raises NotVerified: if the node is otherwise when read back.
        """
        models = {name: model for name, (model, _) in _ACTIONS.items()}
        given = action_data(models, action, data)
        if not self.exists(ref):
            left = ", ".join(self._driver.leftovers(ref.id))
            raise NotFound(f"sliver {ref.id} has no node that is deployed", why=left)
        driver, wanted = cast(BareMetalDriver, self._driver), _ACTIONS[action][1]
        driver.set_power(ref.id, wanted, hard=getattr(given, "hard", False))
        is_on = driver.power(ref.id)
        if is_on != ("off" if wanted == "off" else "on"):
            raise NotVerified(f"the node is {is_on or 'in an unknown power state'} when read back")
        return {"state": (State.RUNNING if is_on == "on" else State.STOPPED).value}
