"""The system of a node: the login that it is given at its deployment, and the wait for it."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import cast

from fabric_direct.calls.read_cache import warn
from fabric_direct.drivers.contract import (
    BareMetalDriver,
    GuestAddress,
    GuestDriver,
    HostDrivers,
    HostKey,
    NodeAccess,
)
from fabric_direct.drivers.guests.boot import Boot
from fabric_direct.drivers.guests.guest import Guest
from fabric_direct.engine.field_changes import changed_fields
from fabric_direct.engine.step import Step
from fabric_direct.engine.verify import Await
from fabric_direct.errors import Conflict, DriverError, Unsupported
from fabric_direct.handlers.guests.host_key import ForgetGuest
from fabric_direct.handlers.guests.readiness import Readiness
from fabric_direct.handlers.services.steps import ChangeService, MakeService
from fabric_direct.model import FieldChange, Observed
from fabric_direct.model.bare_metal import BareMetalSliver
from fabric_direct.site.config import Site

_WITHOUT_DRIVER = "the site has no key for its nodes (guest_access.ssh_key of site.yaml)"
_WITHOUT_ADDRESS = "no NIC of the sliver has an address (nics: network, ipv4, ipv6)"
_UNPINNED = "its host key is not known: the site had no key for its nodes when it was deployed"


@dataclass(frozen=True)
class NodeSystem:
    """The system on the node of one sliver, as far as the site logs in to it."""

    site: Site
    drivers: HostDrivers
    sliver: BareMetalSliver

    @property
    def driver(self) -> GuestDriver | None:
        """What logs in to it; None if nothing does."""
        return self.drivers.node_guest if self._why_not is None else None

    @property
    def _why_not(self) -> str | None:
        driver = self.drivers.node_guest
        if driver is None:
            return _WITHOUT_DRIVER
        reached = any(nic.has_address for nic in self.sliver.nics)
        return _WITHOUT_ADDRESS if driver.keys and not reached else None

    @property
    def address(self) -> GuestAddress:
        """How it is reached: by the addresses of its NICs that do not come by DHCP."""
        nics = self._settled.nics
        given = [each for nic in nics for each in (nic.ipv4, nic.ipv6) if each]
        user = self.site.node_user(self.sliver.image)
        addresses = tuple(str(each.ip) for each in given)
        return GuestAddress(self.sliver.id, self.sliver.name, user, addresses)

    @property
    def _settled(self) -> BareMetalSliver:
        """The sliver, with the addresses that its node's stamp says that networks have chosen."""
        if not any(nic.network for nic in self.sliver.nics):
            return self.sliver
        nodes = cast(BareMetalDriver, self.drivers.services[self.sliver.type])
        stamp = nodes.stamp(self.sliver.id)
        return self.sliver.with_addresses(stamp.addresses) if stamp else self.sliver

    def access(self) -> NodeAccess:
        """Return what it is given at its deployment."""
        driver = self.driver
        return NodeAccess(driver.keys, self._host_key) if driver and driver.keys else NodeAccess()

    def _host_key(self) -> HostKey | None:
        assert self.driver  # noqa: S101 - without one it is given no access
        key = self.driver.give_host_key(self.address)
        if key and set(self.driver.pins(self.address)) != set(self.address.addresses):
            raise DriverError("the host key of the node was pinned, but is not so when read back")
        return key

    def guest(self) -> Guest:
        """Return it, as one that can be logged in to.

        :raises Unsupported: if the site does not.
        """
        if self.driver is None:
            raise Unsupported(
                f"nobody logs in to the node of {self.sliver.id}", why=str(self._why_not)
            )
        return self._guest(self.driver)

    def _guest(self, driver: GuestDriver) -> Guest:
        limit = self.site.limits.guest_boot
        return Guest(driver, self.address, self.drivers.deadline, limit)

    @property
    def known(self) -> bool:
        """Whether it is logged in to, and what it is known by is pinned."""
        driver = self.driver
        return driver is not None and bool(not driver.keys or driver.pins(self.address))

    def seen(self, observed: Observed) -> Observed:
        """Return what was observed of its node, with what it answers itself."""
        guest = self.guest()
        answers = guest.observe()
        inside = guest.interfaces() if answers.reachable else {}
        interfaces = tuple(
            each.model_copy(update={"guest_name": nic.name, "guest_addresses": nic.addresses})
            if (nic := inside.get(each.mac))
            else each
            for each in observed.interfaces
        )
        return observed.model_copy(update={"guest": answers, "interfaces": interfaces})

    def forget(self, kept: Collection[str] = ()) -> list[Step]:
        """Return the step that forgets its host key, if one is pinned.

        :param kept: addresses at which it stays.
        """
        driver, address = self.driver, self._without(kept)
        pinned = driver is not None and driver.pins(address)
        return [ForgetGuest(driver, address)] if driver and pinned else []

    def _without(self, left_out: Collection[str]) -> GuestAddress:
        address = self.address
        addresses = tuple(each for each in address.addresses if each not in left_out)
        return replace(address, addresses=addresses)

    def refuse_known(self, own: Collection[str] = ()) -> None:
        """Raise Conflict if a host key is pinned at an address of a system that is not there yet.

        :param own: addresses of the system that this one takes the place of.
        """
        if self.driver and (known := self.driver.pins(self._without(own))):
            raise Conflict(
                f"a host key is pinned at {', '.join(known)}",
                why="another guest of the site has this address, or had it",
                remedy="choose another address, or, if no guest has it, remove its line from the "
                "site's known_hosts",
            )

    def refuse_unknown(self) -> None:
        """Raise Unsupported if it is to be waited for, and the site cannot log in to it."""
        if why := self._why_not:
            self._without_login(why, tell=False)

    def awaited(self, step: type[Await] = Await) -> list[Step]:
        """Return the step that waits for it; warn if there can be none."""
        if why := self._why_not:
            self._without_login(why)
            return []
        return [step("system", self.wait)]

    def wait(self) -> None:
        """Block until it is as far as is waited for; warn of what was not seen by then.

        :raises Unreachable: if it does not let us in.
        :raises TimedOut: if it is not as far as it must be.
        :raises Unsupported: if a login is required, and not possible.
        """
        if not self.known:
            self._without_login(self._why_not or _UNPINNED)
            return
        readiness, guest = Readiness(self.site, self.drivers, self.sliver.stamp()), self.guest()
        if readiness.wait(guest, (), lambda: "") is Boot.FINISHED:
            readiness.tell_of_script(guest)

    def _without_login(self, why: str, *, tell: bool = True) -> None:
        """Warn that nothing proves that it runs, or raise if that is required."""
        if (self.sliver.wait_for or self.site.guest_access.wait_for) in {"login", "boot", "script"}:
            raise Unsupported(
                "nobody logs in to the node, and its system is to be waited for",
                why=why,
                remedy="set wait_for: address, in the sliver or below guest_access of site.yaml",
            )
        if tell:
            with self.drivers.reads.active():
                warn(f"nobody logs in to the node: that its system runs is not verified; {why}")


class MakeNode(MakeService):
    """The sliver has a node that is deployed, with what lets the site log in."""

    def __init__(self, system: NodeSystem, driver: BareMetalDriver) -> None:
        super().__init__(driver, system.sliver.id, lambda: system.sliver, "node")
        self._system = system

    def make(self) -> None:
        """Deploy it, or go on with what was begun."""
        cast(BareMetalDriver, self._driver).apply(self._system.sliver, self._system.access())

    def undo(self) -> None:
        """Forget its host key, and take it away."""
        if driver := self._system.driver:
            driver.forget(self._system.address)
        super().undo()


class RebuildNode(ChangeService):
    """The sliver's node is deployed anew, as wanted; there is no way back to what was on its disk."""

    def __init__(
        self, system: NodeSystem, driver: BareMetalDriver, former: BareMetalSliver
    ) -> None:
        """Make the step.

        :param former: the sliver as the node's stamp says it.
        """
        super().__init__(driver, system.sliver.id, lambda: system.sliver, "rebuild node")
        self._system, self._former = system, former

    def changes(self) -> tuple[FieldChange, ...]:
        """Compare the sliver with what it was, without its boot script."""
        return changed_fields(self._former, self._system.sliver.without_secrets())

    def make(self) -> None:
        """Deploy it anew, or go on with what was begun."""
        cast(BareMetalDriver, self._driver).rebuild(self._system.sliver, self._system.access())
