"""Virtual machines: each operation is in a module of its name."""

from functools import partial
from typing import Any, ClassVar

from fabric_direct.drivers.contract import HostDrivers
from fabric_direct.engine.step import Flow
from fabric_direct.handlers.handler import OneModel, Repair
from fabric_direct.handlers.vm import actions
from fabric_direct.handlers.vm.adoption import adopt
from fabric_direct.handlers.vm.comparison import ServerComparison
from fabric_direct.handlers.vm.create import create
from fabric_direct.handlers.vm.delete import delete, leftovers
from fabric_direct.handlers.vm.guest.access import GuestAccess
from fabric_direct.handlers.vm.modify import modify
from fabric_direct.handlers.vm.observe import server_of
from fabric_direct.handlers.vm.reconcile import reconcile
from fabric_direct.model import NodeSliver, Observed, Sliver, SliverRef
from fabric_direct.model.adoption import Adoption
from fabric_direct.site.config import Site


class VMSliverHandler(OneModel):
    """Makes, changes, removes and looks at virtual machines.

    Everything is found by the sliver's stamp.
    """

    sliver_model: ClassVar[type[Sliver]] = NodeSliver
    actions: ClassVar[tuple[str, ...]] = actions.NAMES
    hosted: ClassVar[bool] = True

    def __init__(self, site: Site, drivers: HostDrivers) -> None:
        """Make a handler whose drivers keep the operation's deadline.

        :raises InvalidSite: if the site serves no VMs.
        """
        site.refuse_without_vms()
        self._site, self._drivers = site, drivers

    def create(self, sliver: NodeSliver) -> Flow:
        """Return what makes the server with everything that belongs to it."""
        return create(self._site, self._drivers, sliver)

    def modify(self, sliver: NodeSliver) -> Flow:
        """Return what turns the server that is there into the one asked for."""
        return modify(self._site, self._drivers, sliver)

    def reconcile(self, ref: SliverRef) -> Repair:
        """Return what puts back what others took away, and sets what they changed."""
        return reconcile(self._site, self._drivers, ref)

    def delete(self, ref: SliverRef) -> Flow:
        """Return what removes the server, its ports and its volumes."""
        return delete(self._site, self._drivers, ref)

    def adopt(self, wanted: Adoption) -> Flow:
        """Return what stamps a server that others made, with all that belongs to it."""
        return adopt(self._site, self._drivers, wanted)

    def exists(self, ref: SliverRef) -> bool:
        """Return whether the server is there."""
        return self._drivers.compute.find(ref.id) is not None

    def observe(self, ref: SliverRef) -> Observed:
        """Read the server and all that belongs to it, and compare it with what it should be."""
        return ServerComparison(self._site, self._drivers).observe(ref)

    def leftovers(self, ref: SliverRef) -> tuple[str, ...]:
        """Name everything of the sliver that is there."""
        return leftovers(self._site, self._drivers, ref)

    def act(self, ref: SliverRef, action: str, data: dict[str, Any]) -> dict[str, Any]:
        """Carry an operational action out and return its answer."""
        run = actions.parse(action, data)
        server, access = server_of(self._drivers, ref.id), GuestAccess(self._site, self._drivers)
        guest, console = access.of(server), partial(access.console, ref.id)
        return run(actions.Target(self._site, self._drivers, server, guest, console))
