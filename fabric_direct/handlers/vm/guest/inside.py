"""The guest of a sliver, as what is set in it needs it."""

from dataclasses import dataclass

from fabric_direct.drivers.contract import DeviceDomain, HostDrivers
from fabric_direct.drivers.guests.configure.root import GuestRoot
from fabric_direct.handlers.vm.guest.access import GuestAccess
from fabric_direct.handlers.vm.server import server_of, tenant_now
from fabric_direct.site.config import Site


@dataclass(frozen=True)
class Inside:
    """A sliver's guest, which is asked for when its server is there."""

    site: Site
    drivers: HostDrivers
    sliver: str

    def root(self) -> GuestRoot:
        """Return the guest, to run commands in as root."""
        server = server_of(self.drivers, self.sliver)
        return GuestRoot(GuestAccess(self.site, self.drivers).needed(server))

    def tenant(self) -> DeviceDomain:
        """Return whom its devices are passed through to."""
        return tenant_now(self.drivers, self.sliver)
