"""Whole machines: deployed for a sliver, and cleaned after it.

::

    create   node: reserved, deployed with a host key of ours, on → its system answers → verify
    modify   name → verify
    rebuild  host key of addresses that it loses → node: deployed anew → its system answers → verify
    delete   host key → node: taken away, cleaned, given up → nothing is left

Nothing is repaired: what differs on a node needs another deployment, which ends what is on its disk.
Only a sliver, or an action, that says ``rebuild`` has that.
"""

from dataclasses import replace
from typing import Annotated, Any, ClassVar, cast

from pydantic import Field

from fabric_direct.calls.read_cache import warn
from fabric_direct.drivers.contract import BareMetalDriver, HostDrivers, Service
from fabric_direct.drivers.contract.bare_metal import PowerChange
from fabric_direct.drivers.contract.node_choice import needs_deployment
from fabric_direct.drivers.guests.guest import Guest
from fabric_direct.engine.step import Flow
from fabric_direct.engine.verify import Awaited, Verified, Verify
from fabric_direct.errors import InvalidSliver, NotFound, NotVerified, Unsupported
from fabric_direct.handlers.action_data import Nothing, Reboot, action_data
from fabric_direct.handlers.bare_metal.system import MakeNode, NodeSystem, RebuildNode
from fabric_direct.handlers.guests.keys import Keys, add_keys, remove_keys
from fabric_direct.handlers.guests.readiness import await_set_up
from fabric_direct.handlers.handler import Repair, already_there, unknown_wish
from fabric_direct.handlers.services.handler import NetworkServiceSliverHandler
from fabric_direct.model import Frozen, Observed, Sliver, SliverRef, State
from fabric_direct.model.bare_metal import BareMetalSliver, BareMetalStamp
from fabric_direct.site.config import Site


class Rebuild(Frozen):
    """What a rebuild needs and the stamp does not say."""

    boot_script: Annotated[str, Field(max_length=32_768)] | None = None
    """Run at the first boot; None: none is run."""


_ACTIONS: dict[str, type[Frozen]] = {
    "addkey": Keys,
    "reboot": Reboot,
    "rebuild": Rebuild,
    "removekey": Keys,
    "stamp": Nothing,
    "start": Nothing,
    "stop": Reboot,
}
_POWER: dict[str, PowerChange] = {"reboot": "restart", "start": "on", "stop": "off"}


class BareMetalHandler(NetworkServiceSliverHandler):
    """Makes, changes, removes and looks at bare-metal slivers."""

    sliver_model: ClassVar[type[Sliver]] = BareMetalSliver
    actions: ClassVar[tuple[str, ...]] = tuple(_ACTIONS)
    what: ClassVar[str] = "node"

    def __init__(self, site: Site, drivers: HostDrivers) -> None:
        """Make a handler whose drivers keep the operation's deadline.

        :raises InvalidSite: if the site serves no bare metal.
        """
        super().__init__(site, drivers)
        self._site = site
        self._nodes = cast(BareMetalDriver, self._driver)

    def create(self, sliver: Any) -> Flow:
        """Return what gives a node to the sliver, and waits for its system.

        A node that is to be rebuilt was not left by a creation, which takes away what it fails to make.
        """
        sliver = sliver.model_copy(update={"rebuild": False})
        system, found = self._system_of(sliver), self._found(sliver)
        system.refuse_unknown()
        if found is None:
            stamp = self._nodes.stamp(sliver.id)
            if stamp and stamp.rebuild_due:
                remedy = "modify it with rebuild: true, or delete it first"
                raise already_there(sliver, why="its node is to be rebuilt", remedy=remedy)
            self._driver.check(sliver)
            if stamp is None:
                system.refuse_known()
        elif differs := self._driver.differences(sliver):
            raise already_there(sliver, where=found.source, why="; ".join(differs))
        runs = found is None or found.state is State.RUNNING
        return Flow.of(
            [MakeNode(system, self._nodes)],
            system.awaited() if runs else [],
            [Verify(lambda: self._read_back(sliver))],
            owns_everything=found is None,
        )

    def modify(self, sliver: Any) -> Flow:
        """Return what changes the name; for a sliver that says so, what deploys the node anew.

        A rebuild has no way back: one that fails is gone on with. Who was killed when the node was
        deployed may not have seen its system answer.
        """
        flow, stamp = super().modify(sliver), self._nodes.stamp(sliver.id)
        if stamp is None or not sliver.rebuild:
            return flow
        system = self._system_of(sliver)
        if needs_deployment(sliver, stamp):
            return self._rebuilt(sliver, system, stamp)
        found = self._driver.find(sliver.id)
        runs = found is not None and found.state is State.RUNNING
        return (
            replace(flow, stages=(*flow.stages, tuple(system.awaited(Awaited)))) if runs else flow
        )

    def _rebuilt(self, sliver: BareMetalSliver, system: NodeSystem, stamp: BareMetalStamp) -> Flow:
        former = self._system_of(stamp.sliver)
        system.refuse_unknown()
        system.refuse_known(former.address.addresses)
        if stamp.boot_script_sha256 and sliver.boot_script is None:
            with self._drivers.reads.active():
                warn(
                    "the sliver has no boot_script: none is run, as one was at the last deployment"
                )
        return Flow.of(
            former.forget(system.address.addresses),
            [RebuildNode(system, self._nodes, stamp.sliver)],
            system.awaited(Awaited),
            [Verified(lambda: self._read_back(sliver))],
            before=stamp.sliver,
        )

    def delete(self, ref: SliverRef) -> Flow:
        """Return what forgets the host key, while the node says which addresses had it, and the rest."""
        system = self._system(ref)
        flow = super().delete(ref)
        return Flow.of(system.forget() if system else [], *flow.stages, owns_everything=True)

    def _system(self, ref: SliverRef) -> NodeSystem | None:
        stamp = self._nodes.stamp(ref.id)
        return self._system_of(stamp.sliver) if stamp else None

    def _system_of(self, sliver: BareMetalSliver) -> NodeSystem:
        return NodeSystem(self._site, self._drivers, sliver)

    def _compared(self, found: Service, wanted: Any) -> Observed:
        """Compare the node, and ask its system while it is on and can be logged in to."""
        observed = super()._compared(found, wanted)
        if wanted is None or found.state is not State.RUNNING:
            return observed
        system = self._system_of(wanted)
        return system.seen(observed) if system.known else observed

    def reconcile(self, ref: SliverRef) -> Repair:
        """Return how the node differs from its stamp; nothing of that is repaired.

        :raises NotFound: if it is not there.
        :raises Unsupported: if nothing says what it should be.
        """
        repair = super().reconcile(ref)
        why = (
            "only another deployment changes it: the action rebuild, or, on another node, delete the "
            "sliver and create it again"
        )
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
        """Switch the node, deploy it anew, change who may log in to it, or return its stamp.

        :raises InvalidSliver: if there is no such action, or its data are wrong.
        :raises NotFound: if the sliver has no node.
        :raises NotVerified: if something is otherwise when read back.
        :raises Unsupported: if keys are to be changed, and the site cannot log in to the node.
        """
        given = action_data(_ACTIONS, action, data)
        if action == "rebuild":
            return self._rebuild(ref, given)
        if not self.exists(ref):
            left = ", ".join(self._driver.leftovers(ref.id))
            raise NotFound(f"sliver {ref.id} has no node that is deployed", why=left)
        if action in _POWER:
            return self._switch(ref, _POWER[action], hard=getattr(given, "hard", False))
        if action == "stamp":
            return self._stamp(ref)
        change = add_keys if action == "addkey" else remove_keys
        return change(self._set_up_guest(ref), given)

    def _switch(self, ref: SliverRef, power: PowerChange, *, hard: bool) -> dict[str, Any]:
        """Return the node's state, read back; one that is on, when its system answers."""
        self._nodes.set_power(ref.id, power, hard=hard)
        is_on = self._nodes.power(ref.id)
        if is_on != ("off" if power == "off" else "on"):
            raise NotVerified(f"the node is {is_on or 'in an unknown power state'} when read back")
        system = self._system(ref)
        if is_on == "on" and system:
            system.wait()
        return {"state": (State.RUNNING if is_on == "on" else State.STOPPED).value}

    def _rebuild(self, ref: SliverRef, given: Rebuild) -> dict[str, Any]:
        """Deploy the node anew as its stamp says; return its state when its system answers.

        One whose last deployment failed is deployed, too.
        """
        stamp = self._nodes.stamp(ref.id)
        if stamp is None:
            if self._driver.leftovers(ref.id):
                raise unknown_wish(ref, self.what)
            raise NotFound(f"sliver {ref.id} has no node")
        if stamp.boot_script_sha256 and "boot_script" not in given.model_fields_set:
            raise InvalidSliver(
                "the node was deployed with a boot script, which is in no stamp",
                field="data.boot_script",
                remedy="give it, or another one, or null for none",
            )
        sliver = stamp.sliver.model_copy(update={"boot_script": given.boot_script})
        system = self._system_of(sliver)
        system.refuse_unknown()
        self._nodes.rebuild(sliver, system.access())
        self._drivers.reads.invalidate()
        if differs := self._driver.differences(sliver):
            raise NotVerified("the node differs when read back", why="; ".join(differs))
        system.wait()
        return {"state": State.RUNNING.value}

    def _stamp(self, ref: SliverRef) -> dict[str, Any]:
        stamp = self._nodes.stamp(ref.id)
        if stamp is None:
            raise unknown_wish(ref, self.what)
        return stamp.model_dump(mode="json", exclude_none=True)

    def _set_up_guest(self, ref: SliverRef) -> Guest:
        """Return the node's system when cloud-init has set it up, which writes the sliver's keys."""
        system = self._system(ref)
        if system is None:
            raise unknown_wish(ref, self.what)
        guest = system.guest()
        limit = self._drivers.deadline.remaining(self._site.limits.guest_boot)
        await_set_up(guest, limit / 2)
        return guest
