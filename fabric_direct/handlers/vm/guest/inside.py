"""The guest of a sliver, as what is set in it needs it."""

from collections.abc import Callable
from dataclasses import dataclass

from fabric_direct.drivers.contract import DeviceDomain, HostDrivers
from fabric_direct.drivers.guests.configure.root import GuestRoot
from fabric_direct.drivers.guests.guest import Guest


@dataclass(frozen=True)
class Inside:
    """A sliver's guest, which is asked for when its server is there."""

    drivers: HostDrivers
    sliver: str
    guest: Callable[[], Guest]
    tenant: Callable[[], DeviceDomain]

    def root(self) -> GuestRoot:
        """Return the guest, to run commands in as root."""
        return GuestRoot(self.guest())
