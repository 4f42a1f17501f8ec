"""What the guest of a sliver is waited for, and what is said of what was not seen by then.

A guest must let us in; its boot may take longer than anybody waits, or never end. cloud-init writes the
files of the network, the keys and ``/etc/fstab`` before it runs the boot script: what is set in a guest
meanwhile could be overwritten, so that is waited for, whatever else is.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial

from fabric_direct.calls.deadline import Deadline, wait_until
from fabric_direct.calls.read_cache import warn
from fabric_direct.drivers.contract import HostDrivers, Port
from fabric_direct.drivers.guests.boot import Boot
from fabric_direct.drivers.guests.guest import Guest
from fabric_direct.errors import Denied, TimedOut, Unreachable, Unsupported
from fabric_direct.model import Stamp, WaitFor
from fabric_direct.model.bare_metal import BareMetalStamp
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


def pin_shown_key(guest: Guest, console: Callable[[], str]) -> bool:
    """Pin the guest's host key if it is not, and its console shows it.

    :returns: whether it is pinned, or its driver needs none.
    """
    driver, address = guest.driver, guest.address
    return not driver.keys or bool(driver.pins(address)) or driver.learn(address, console())


def await_set_up(guest: Guest, timeout: float) -> None:
    """Block while cloud-init sets the guest up; a guest without cloud-init is not waited for.

    :raises TimedOut: if it still does, or does not answer, after ``timeout`` seconds.
    """

    def is_set_up() -> bool:
        with suppress(Unreachable, TimedOut):  # it may not answer each time
            return guest.boot() is not Boot.SETTING_UP
        return False

    try:
        wait_until("cloud-init to set the guest up", is_set_up, timeout=timeout)
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
        self,
        site: Site,
        drivers: HostDrivers,
        stamp: Stamp | BareMetalStamp,
        *,
        settings: bool = False,
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

        Where no login is needed, half of the time that the operation has left is waited at most.

        :raises TimedOut: if it is not, though the guest has to be logged in to, or its SSH server has
            never answered.
        :raises DriverError: if the console cannot be read, though it has to be.
        """
        deadline = Deadline.within(timeout if self._needs_login else self._patience(timeout))
        try:
            guest.meet(console, timeout=deadline.remaining())
        except TimedOut as error:
            if self._needs_login or not guest.listened:
                error.remedy = _SLOW
                raise
            self._warn(_NO_KEY)
            return False
        except (Denied, Unsupported) as error:
            if self._needs_login:
                raise
            if not guest.listened:
                what, answers = "the guest's SSH server to answer", guest.driver.listens
                wait_until(what, partial(answers, guest.address), timeout=deadline.remaining())
            self._warn(f"{_NO_KEY}: its console cannot be read: {error}")
            return False
        return True

    def wait(self, guest: Guest, ports: Sequence[Port], console: Callable[[], str]) -> Boot | None:
        """Block until the guest is as far as is waited for; warn of what was not seen by then.

        :param ports: those whose addresses come by themselves.
        :param console: returns what the guest wrote to its console, or nothing.
        :returns: how far its boot is; None if it was not logged in to.
        :raises Unreachable: if it does not let us in.
        :raises TimedOut: if it is not as far as it must be.
        """
        if not self.looks:
            self._warn(
                f"the guest was not waited for ({SETTING}: address): nothing in it is verified"
            )
            return None
        known = pin_shown_key(guest, console)
        if not (known or self._needs_login):
            self._warn(_NO_KEY)
            return None
        limit = self._drivers.deadline.remaining(self._limit)
        deadline = Deadline.within(limit)
        self._login(guest, limit, known=known)
        boot = guest.wait_boot(self._enough(), timeout=self._patience(deadline.remaining()))
        self._tell_boot(guest, boot, limit - deadline.remaining())
        without = guest.wait_addresses(ports, timeout=self._patience(deadline.remaining()))
        self._tell_addresses(guest, without, limit - deadline.remaining())
        if self._settings and boot not in _SET_UP:
            await_set_up(guest, self._drivers.deadline.remaining(self._limit) / 2)
        return boot

    def tell_of_script(self, guest: Guest) -> None:
        """Warn of what has failed in the first boot of a guest with a boot script, which has ended."""
        if self._script and (errors := "; ".join(guest.boot_errors())):
            self._warn(
                "the guest's boot script (boot_script), or another part of its boot, has failed: "
                f"{errors[:_WORDS]}. Look into /var/log/cloud-init-output.log in the guest"
            )

    def _enough(self) -> tuple[Boot, ...]:
        """Return what ends the wait; what is asked for must be seen, so one that cannot tell is not."""
        return {
            "boot": (Boot.LAST_STAGE, Boot.FINISHED),
            "script": (Boot.FINISHED,),
        }.get(self._level or "", (Boot.FINISHED, Boot.UNKNOWN))

    def _patience(self, left: float) -> float:
        """Return the seconds to wait now: what may be missing leaves the rest of the operation half."""
        if self._required:
            return left
        if self._level:
            return 0.0
        return min(left, self._drivers.deadline.remaining() / 2)

    def _login(self, guest: Guest, limit: float, *, known: bool) -> None:
        try:
            guest.driver.wait(guest.address, timeout=limit)
        except (TimedOut, Unreachable) as error:
            if known:
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
        """Say how long was waited, and what has set that."""
        if self._level:
            return f" ({SETTING}: {self._level})"
        whole = waited >= self._limit
        return (
            f" after {waited:.0f} s ({LIMIT if whole else 'half of what the operation had left'})"
        )

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
