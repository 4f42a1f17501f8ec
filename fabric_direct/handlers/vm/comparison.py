"""A server compared with what it should be: what a probe, and the end of each flow, look at."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from fabric_direct.drivers.contract import HostDrivers, Server
from fabric_direct.drivers.guests.guest import Guest
from fabric_direct.engine.verify import ReadBack
from fabric_direct.handlers.vm.devices import SliverDevices, cold_driver, components_of
from fabric_direct.handlers.vm.differences import differences, down, switched_off, without
from fabric_direct.handlers.vm.found import other_disks
from fabric_direct.handlers.vm.guest.access import GuestAccess
from fabric_direct.handlers.vm.observe import observe_server, tenant_of
from fabric_direct.model import Component, NodeSliver, Observed, SliverRef, State
from fabric_direct.site.config import Site

_ABSENT = "there is no such server"


@dataclass(frozen=True)
class ServerComparison:
    """The comparison of servers with their slivers."""

    site: Site
    drivers: HostDrivers

    def observe(self, ref: SliverRef) -> Observed:
        """Read the server and all that belongs to it, and compare it with what it should be."""
        server = self.drivers.compute.find(ref.id)
        if server is None:
            unlike = (_ABSENT, *_by_stamp_alone(self.drivers, ref))
            return Observed(state=State.ABSENT, differences=unlike)
        wanted = ref if isinstance(ref, NodeSliver) else server.stamp.sliver
        return self.whole(wanted, server, self._guest(server))

    def whole(self, wanted: NodeSliver, server: Server, guest: Guest | None) -> Observed:
        """Read the server, with the differences that operations make and those that others made."""
        found, _ = self._compared(wanted, server, guest)
        unlike = (*found.differences, *self._done_by_others(server, found))
        return found.model_copy(update={"differences": unlike})

    def read_back(
        self,
        sliver: NodeSliver,
        settable: Callable[[NodeSliver], NodeSliver],
        gone: Iterable[Component] = (),
        *,
        runs: bool = True,
    ) -> ReadBack:
        """Read back and compare, but for what is removed in the end, when all else is verified.

        What was read after the last change counts; the server's state changes by itself.

        :param settable: returns the sliver without what was found impossible to set in the guest.
        """
        self.drivers.reads.invalidate("servers")
        server = self.drivers.compute.find(sliver.id)
        found, others = Observed(state=State.ABSENT, differences=(_ABSENT,)), tuple[str, ...]()
        if server:
            found, others = self._compared(sliver, server, self._guest(server))
        unlike = differences(settable(sliver), without(gone, found), runs=runs)
        return ReadBack(found, (*unlike, *others))

    def _compared(
        self, wanted: NodeSliver, server: Server, guest: Guest | None
    ) -> tuple[Observed, tuple[str, ...]]:
        """Read the server; return it with all differences, and those that it alone does not show."""
        records = SliverDevices(self.site, self.drivers).records(wanted.id)
        devices = (*components_of(records), *wanted.devices())
        found = observe_server(self.drivers, server, guest, devices)
        unfinished = ("its adoption is unfinished",) if server.unfinished else ()
        others = (
            *map(str, other_disks(self.drivers.volume, wanted, server)),
            *device_differences(self.drivers, wanted, server, found),
        )
        every = (*unfinished, *differences(wanted, found), *others)
        return found.model_copy(update={"differences": every}), (*unfinished, *others)

    def _done_by_others(self, server: Server, found: Observed) -> Iterator[str]:
        """Yield what others have done to the server, which no operation on its sliver does."""
        yield from switched_off(found)
        yield from down(found)
        if driver := SliverDevices(self.site, self.drivers).driver():
            name = server.domain if self.drivers.compute.cloud else None
            yield from driver.domain_differences(tenant_of(self.drivers, server), name)

    def _guest(self, server: Server) -> Guest | None:
        return GuestAccess(self.site, self.drivers).of(server)


def device_differences(
    drivers: HostDrivers, wanted: NodeSliver, server: Server, found: Observed
) -> Iterator[str]:
    """Yield where devices that are there are not as wanted."""
    there, tenant = {d.component for d in found.devices}, tenant_of(drivers, server)
    for component in wanted.devices():
        if component.id in there:
            yield from drivers.device(component).differences(component, tenant)
    served = wanted.devices() if drivers.devices else ()
    cold = cold_driver(drivers, served) if found.state is State.RUNNING else None
    if cold and cold.pending(tenant):
        yield "its devices wait for a power cycle"


def _by_stamp_alone(drivers: HostDrivers, ref: SliverRef) -> Iterator[str]:
    """Yield what carries the sliver's stamp, and is no server of it.

    In a cloud, that are servers whose stamp cannot be read, or that are marked as deleted; on
    libvirt, domains of another UUID.
    """
    if drivers.compute.cloud:
        yield from (f"there is {what}" for what in drivers.compute.leftovers(ref.id))
        return
    for server in drivers.compute.servers():
        if server.sliver == ref.id:
            yield f"domain {server.instance} carries its stamp, but has another UUID"
