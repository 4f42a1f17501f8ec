"""The steps that wait for a guest: its host key, its boot and addresses, its devices."""

from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from fabric_direct.drivers.contract import Port
from fabric_direct.drivers.guests.boot import Boot
from fabric_direct.drivers.guests.guest import Guest
from fabric_direct.engine.step import Step
from fabric_direct.engine.verify import Await
from fabric_direct.errors import TimedOut, Unreachable, Unsupported
from fabric_direct.handlers.guests.host_key import KnowGuest
from fabric_direct.handlers.guests.readiness import Readiness
from fabric_direct.handlers.vm.guest.access import CONSOLE_LINES, GuestAccess
from fabric_direct.handlers.vm.guest.settings import mounts, nics
from fabric_direct.handlers.vm.observe import plugged_devices, server_of, tenant_now
from fabric_direct.model import NodeSliver, Stamp, VNic


@dataclass(frozen=True)
class GuestWait(GuestAccess):
    """The wait for the guest of one sliver."""

    sliver: NodeSliver

    def known(self) -> list[Step]:
        """Return the step that pins the guest's host key, if its driver needs one."""
        driver, readiness = self.drivers.guest, self._readiness(self.sliver.stamp(), self.sliver)
        if driver is None or not driver.keys or not readiness.looks:
            return []
        where = partial(self.where, self.sliver.id)

        def learn() -> bool:
            limit = self.drivers.deadline.remaining(self.site.limits.guest_boot)
            guest = self.by(driver, where())
            console = partial(self.drivers.compute.console, self.sliver.id, CONSOLE_LINES)
            with self.explained(self.sliver.id):
                return readiness.meet(guest, console, timeout=limit)

        return [KnowGuest(driver, where, learn)]

    def answers(self, was: NodeSliver | None = None) -> list[Step]:
        """Return the step that waits for the guest and its devices, if guests are looked into.

        :param was: the sliver before, if it is modified.
        """

        def wait() -> None:
            guest, boot = self.ready(was)
            if boot and self.sliver.devices():
                self._await_devices(guest, boot)
            if boot is Boot.FINISHED and was is None:
                self._readiness(self.sliver.stamp()).tell_of_script(guest)

        return [Await("guest", wait)] if self.drivers.guest else []

    def ready(self, was: NodeSliver | None = None) -> tuple[Guest, Boot | None]:
        """Block until the guest is as far as it must be; return it, and how far it is.

        That is None if it was not logged in to.
        """
        server = server_of(self.drivers, self.sliver.id)
        guest = self.needed(server)
        wanted = {vnic.id: vnic for vnic in self.sliver.vnics()}
        ports = [
            port
            for port in self.drivers.network.ports(self.sliver.id)
            if (vnic := wanted.get(port.component)) and _comes_by_itself(port, vnic)
        ]
        stamp, slivers = server.stamp.of(self.sliver), filter(None, (self.sliver, was))
        console = partial(self.console, self.sliver.id)
        with self.explained(self.sliver.id):
            return guest, self._readiness(stamp, *slivers).wait(guest, ports, console)

    def _await_devices(self, guest: Guest, boot: Boot) -> None:
        """Wait until the guest sees its devices; as the last resort restart it.

        It is not restarted while it boots: its boot script would be broken off, and not run again.
        """
        try:
            self._see_devices(guest)
        except TimedOut as error:
            with suppress(Unreachable, TimedOut):
                boot = guest.boot()
            restarts = boot in {Boot.FINISHED, Boot.UNKNOWN}
            why = f"the guest was {'' if restarts else 'not '}restarted"
            why += ", for" if restarts else ", as it does not say that its boot has ended:"
            self.tell(f"{why} {error}")
            if not restarts:
                return
            timeout = self.site.limits.detach
            self.drivers.compute.reboot(self.sliver.id, hard=False, timeout=timeout)
            self.ready()
            self._see_devices(guest)

    def _see_devices(self, guest: Guest) -> None:
        """Wait until the guest sees its devices; warn of them in a guest that cannot show them."""
        tenant = tenant_now(self.drivers, self.sliver.id)
        plugged = plugged_devices(self.drivers, tenant, self.sliver.devices())
        limit = self.site.limits.guest_devices
        try:
            guest.wait_devices(plugged, timeout=self.drivers.deadline.remaining(limit))
        except Unsupported as error:
            self.tell(str(error))

    def _readiness(self, stamp: Stamp, *slivers: NodeSliver) -> Readiness:
        """Return the wait for a guest, in which these slivers may have settings."""
        settings = any(nics(sliver) or mounts(sliver) for sliver in slivers)
        return Readiness(self.site, self.drivers, stamp, settings=settings)


def _comes_by_itself(port: Port, vnic: VNic) -> bool:
    """Return whether the guest gets the port's address without us; what we set is not waited for."""
    return port.dhcp or not vnic.interface.auto_config
