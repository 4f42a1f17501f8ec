"""What the guest of a sliver is waited for, and what is said of what was not seen by then.

A guest must let us in; its boot may take longer than anybody waits, or never end. cloud-init writes the
files of the network, the keys and ``/etc/fstab`` before it runs the boot script: what is set in a guest
meanwhile could be overwritten, so that is waited for, whatever else is.
"""

from collections.abc import Callable, Iterator, Sequence

from fabric_direct.calls.deadline import Deadline, wait_until
from fabric_direct.calls.read_cache import warn
from fabric_direct.drivers.contract import HostDrivers, Port
from fabric_direct.drivers.guests.boot import Boot
from fabric_direct.drivers.guests.guest import Guest
from fabric_direct.errors import TimedOut, Unreachable
from fabric_direct.model import Stamp, WaitFor
from fabric_direct.site.config import Site

LIMIT, SETTING = "limits.guest_boot", "wait_for"
_SITES = f"{SETTING} of the sliver, or guest_access.{SETTING} in site.yaml"
_SLOW = f"a guest that boots slowly needs more than {LIMIT}"
_NO_KEY = (
    "the guest's console does not show its SSH host key: it was not logged in to, and nothing in it is "
    "verified; add its key to the site's known_hosts"
)
# Characters of a guest's message that a warning of ours quotes.
_WORDS = 500
_SET_UP = (Boot.LAST_STAGE, Boot.FINISHED, Boot.UNKNOWN)
_ENDED = (Boot.FINISHED, Boot.UNKNOWN)


def is_known(guest: Guest, console: Callable[[], str]) -> bool:
    """Return whether the guest's host key is pinned, now that its console was read, or not needed."""
    driver, address = guest.driver, guest.address
    return not driver.keys or bool(driver.pins(address)) or driver.learn(address, console())


def await_set_up(guest: Guest, timeout: float) -> None:
    """Block while cloud-init sets the guest up; a guest without cloud-init is not waited for.

    :raises TimedOut: if it still does after ``timeout`` seconds.
    :raises DriverError: if the guest does not answer.
    """
    try:
        what = "cloud-init to set the guest up"
        wait_until(what, lambda: guest.boot() is not Boot.SETTING_UP, timeout=timeout)
    except TimedOut as error:
        error.where = guest.address.instance
        error.why = "it could overwrite what is set in the guest now"
        error.remedy = f"try again later, or raise {LIMIT}"
        raise


class Readiness:
    """The wait for the guest of one sliver, as the sliver or its site has it.

    :param stamp: the sliver as it is asked for, and whether it had a boot script.
    :param settings: whether the operation sets something in the guest.
    """

    def __init__(
        self, site: Site, drivers: HostDrivers, stamp: Stamp, *, settings: bool = False
    ) -> None:
        self._limit, self._drivers, self._settings = site.limits.guest_boot, drivers, settings
        self._level: WaitFor | None = stamp.sliver.wait_for or site.guest_access.wait_for
        self._script = stamp.boot_script_sha256 is not None

    @property
    def looks(self) -> bool:
        """Whether the guest is looked at: what is set in it needs a login at least."""
        return self._level != "address" or self._settings

    @property
    def _required(self) -> bool:
        """Whether it is not handed out before its boot is as far as is waited for."""
        return self._level in {"boot", "script"}

    @property
    def _needs_login(self) -> bool:
        """Whether the operation fails if nothing proves who answers as the guest."""
        return self._level in {"login", "boot", "script"} or self._settings

    def meet(self, guest: Guest, console: Callable[[], str], *, timeout: float) -> bool:
        """Block until the guest's host key is pinned; return whether it is.

        :raises TimedOut: if it is not, though the guest has to be logged in to, or does not listen.
        """
        try:
            guest.meet(console, timeout=timeout)
        except TimedOut as error:
            if self._needs_login or not guest.driver.listens(guest.address):
                error.remedy = _SLOW
                raise
            self._warn(_NO_KEY)
            return False
        return True

    def wait(self, guest: Guest, ports: Sequence[Port], console: Callable[[], str]) -> bool:
        """Block until the guest is as far as is waited for; warn of what was not seen by then.

        :param ports: those whose addresses come by themselves.
        :param console: returns what the guest wrote to its console, or nothing.
        :returns: whether the guest lets us in.
        :raises Unreachable: if it does not.
        :raises TimedOut: if it is not as far as it must be.
        """
        if not self.looks:
            self._warn(
                f"the guest was not waited for ({SETTING}: address): nothing in it is verified"
            )
            return False
        if not (is_known(guest, console) or self._needs_login):
            self._warn(_NO_KEY)
            return False
        limit = self._drivers.deadline.remaining(self._limit)
        deadline = Deadline.within(limit)
        self._login(guest, limit)
        boot = guest.wait_boot(self._enough(), timeout=self._patience(deadline))
        self._tell_boot(guest, boot, limit - deadline.remaining())
        without = guest.wait_addresses(ports, timeout=self._patience(deadline))
        self._tell_addresses(guest, without, limit - deadline.remaining())
        if self._settings and boot not in _SET_UP:
            await_set_up(guest, self._drivers.deadline.remaining(self._limit) / 2)
        return True

    def tell_of_script(self, guest: Guest) -> None:
        """Warn of what has failed in the first boot of a guest with a boot script, if it has ended."""
        if self._script and (errors := "; ".join(guest.boot_errors())):
            self._warn(
                "the guest's boot script (boot_script), or another part of its boot, has failed: "
                f"{errors[:_WORDS]}. Look into /var/log/cloud-init-output.log in the guest"
            )

    def _enough(self) -> tuple[Boot, ...]:
        return _SET_UP if self._level == "boot" else _ENDED

    def _patience(self, deadline: Deadline) -> float:
        """Return the seconds to wait now: what may be missing leaves the rest of the operation half."""
        if self._required:
            return deadline.remaining()
        half = self._drivers.deadline.remaining() / 2
        return 0.0 if self._level else deadline.remaining(half)

    def _login(self, guest: Guest, limit: float) -> None:
        try:
            guest.driver.wait(guest.address, timeout=limit)
        except (TimedOut, Unreachable) as error:
            error.remedy = "; ".join(filter(None, (error.remedy, _SLOW)))
            raise

    def _tell_boot(self, guest: Guest, boot: Boot, waited: float) -> None:
        if self._required and boot not in self._enough():
            raise TimedOut(
                f"timed out after {waited:.0f} s waiting for the guest to finish its boot",
                where=guest.address.instance,
                why=self._going_on(boot),
                remedy=f"raise {LIMIT}, or wait for less: {_SITES}",
            )
        if boot is not Boot.FINISHED:
            self._warn(
                f"{self._going_on(boot)}{self._waited(waited)}: what it does from now on is not "
                f"verified; probe says whether it has ended. To have it waited for, set {_SITES}, "
                "to script"
            )

    def _going_on(self, boot: Boot) -> str:
        """Say what of a boot is not over, or not known to be."""
        script = "its boot script (boot_script)" if self._script else "its last stage"
        return {
            Boot.SETTING_UP: f"the guest's boot goes on: cloud-init sets it up, {script} is to come",
            Boot.LAST_STAGE: f"the guest's boot goes on: {script} has not ended",
            Boot.UNFINISHED: "the guest's boot goes on, or the guest has no cloud-init: nothing says "
            f"that {script} has ended",
        }.get(boot, f"the guest does not say whether its boot is over: {script} may go on")

    def _waited(self, waited: float) -> str:
        return f" ({SETTING}: {self._level})" if self._level else f" after {waited:.0f} s ({LIMIT})"

    def _tell_addresses(self, guest: Guest, without: Sequence[Port], waited: float) -> None:
        missing = "; ".join(_missing(without))
        if missing and self._required:
            raise TimedOut(
                f"timed out after {waited:.0f} s waiting for the guest's NICs to have their addresses",
                where=guest.address.instance,
                why=f"not seen in the guest: {missing}",
                remedy=f"raise {LIMIT}, or wait for less: {_SITES}",
            )
        if missing:
            self._warn(f"not seen in the guest{self._waited(waited)}: {missing}")

    def _warn(self, text: str) -> None:
        with self._drivers.reads.active():
            warn(text)


def _missing(ports: Sequence[Port]) -> Iterator[str]:
    for port in ports:
        yield f"{port.ipv4.ip} on {port.component}" if port.ipv4 else f"NIC {port.component}"
