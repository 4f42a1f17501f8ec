"""How the guest of a server is reached: its addresses, its console, its login."""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from fabric_direct.calls.read_cache import warn
from fabric_direct.drivers.contract import (
    DeviceDomain,
    GuestAddress,
    GuestDriver,
    HostDrivers,
    Image,
    Server,
)
from fabric_direct.drivers.guests.configure.root import GuestRoot
from fabric_direct.drivers.guests.guest import Guest
from fabric_direct.errors import Conflict, DriverError, FabricDirectError, TimedOut, Unreachable
from fabric_direct.handlers.vm.observe import server_of, tenant_now
from fabric_direct.model import State
from fabric_direct.site.config import Site

# Enough for what a guest says while it boots, host keys included.
CONSOLE_LINES = 2000
# Lines and characters of its end that an error quotes, of so many that are looked at.
_QUOTED_LINES, _QUOTED, _LAST_LINES = 3, 300, 20
_COLOURS_AND_MOVES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True)
class GuestAccess:
    """The way to the guests of a host."""

    site: Site
    drivers: HostDrivers

    def of(self, server: Server) -> Guest | None:
        """Return the guest of a server; None where guests are not looked into."""
        driver = self.drivers.guest
        return self.by(driver, self._address(server)) if driver else None

    def needed(self, server: Server) -> Guest:
        """Return the guest of a server, for what was refused where guests are not looked into."""
        guest = self.of(server)
        assert guest  # noqa: S101 - what needs a guest is planned only where guests are looked into
        return guest

    def by(self, driver: GuestDriver, address: GuestAddress) -> Guest:
        """Return the guest at an address."""
        return Guest(driver, address, self.drivers.deadline, self.site.limits.guest_boot)

    def where(self, sliver_id: str) -> GuestAddress:
        """Return what host keys are pinned to."""
        return GuestAddress(sliver_id, "", "", self._addresses(sliver_id))

    def console(self, sliver_id: str) -> str:
        """Return what the guest wrote to its console; nothing if that cannot be read."""
        with suppress(DriverError, Conflict):
            return self.drivers.compute.console(sliver_id, CONSOLE_LINES)
        return ""

    @contextmanager
    def explained(self, sliver_id: str) -> Iterator[None]:
        """In the block, the error of a guest that does not come tells what may be why.

        That is a server that does not run, as its guest powered itself off or its host paused it, and
        how the console ends: a creation that fails takes it away.
        """
        try:
            yield
        except (TimedOut, Unreachable) as error:
            for tell in (self._not_running, self._end_of_console):
                with suppress(FabricDirectError):
                    error.why = "; ".join(filter(None, (error.why, tell(sliver_id))))
            raise

    def _not_running(self, sliver_id: str) -> str:
        server = self.drivers.compute.find(sliver_id)
        if server is None:
            return "the server is gone"
        return "" if server.state is State.RUNNING else f"the server is {server.state}"

    def _end_of_console(self, sliver_id: str) -> str:
        return _end_of(self.drivers.compute.console(sliver_id, _LAST_LINES))

    def tell(self, text: str) -> None:
        """Warn the caller of the operation, from a step as well."""
        with self.drivers.reads.active():
            warn(text)

    def _address(self, server: Server) -> GuestAddress:
        user = Image.of(self.site, server.stamp.sliver.image).user
        instance = server.domain or server.instance
        return GuestAddress(server.sliver, instance, user, self._addresses(server.sliver))

    def _addresses(self, sliver_id: str) -> tuple[str, ...]:
        """Return where the guest is reached: its floating addresses, or else its own."""
        ports = self.drivers.network.ports(sliver_id)
        floating = tuple(p.floating_ip for p in ports if p.floating_ip)
        own = [p.ipv4 for p in ports] + [p.ipv6 for p in ports]
        return floating or tuple(str(address.ip) for address in own if address)


def _end_of(console: str) -> str:
    """Say how a console ends, on one line."""
    text = _COLOURS_AND_MOVES.sub("", console)
    lines = [
        "".join(c if c.isprintable() else " " for c in line).strip() for line in text.splitlines()
    ]
    last = " | ".join(list(filter(None, lines))[-_QUOTED_LINES:])[-_QUOTED:]
    return f"its console ends with {last!r}" if last else "its console is empty"


@dataclass(frozen=True)
class Inside(GuestAccess):
    """The guest of one sliver, as what is set in it needs it: when its server is there."""

    sliver: str

    def root(self) -> GuestRoot:
        """Return the guest, to run commands in as root."""
        return GuestRoot(self.needed(server_of(self.drivers, self.sliver)))

    def tenant(self) -> DeviceDomain:
        """Return whom its devices are passed through to."""
        return tenant_now(self.drivers, self.sliver)
