"""The driver of whole P4 switches.

::

    create   claim → installer's mode, reboot → another host key, another disk → firewall → keys
    delete   keys gone, account locked, sessions ended → to be installed anew before the next sliver

What a kill leaves is told by the switch's record, which is written before each of these.
"""

from dataclasses import replace
from typing import Any

from fabric_direct.calls.deadline import time_left, wait_until
from fabric_direct.drivers.contract import Service, Stamped
from fabric_direct.drivers.p4switch.records import Phase, SwitchRecord, SwitchRecords
from fabric_direct.drivers.p4switch.switch import SshSwitch, host_identity
from fabric_direct.errors import (
    Conflict,
    DriverError,
    InvalidSliver,
    NotOurs,
    NotVerified,
    Unreachable,
)
from fabric_direct.model.p4_switches import Switch
from fabric_direct.site.config import P4Switch, Site


class P4SwitchService:
    """A :class:`~fabric_direct.drivers.contract.ServiceDriver` of switches."""

    def __init__(self, site: Site, host: str) -> None:  # noqa: ARG002 - a switch is on no host
        """Connect to nothing yet."""
        self._site, self._records = site, SwitchRecords(site)

    def examine(self, name: str) -> tuple[str, ...]:
        """Return who we are on a switch, whether it can be installed, and whose it is.

        :raises FabricDirectError: if it does not answer, or does not let us in.
        """
        record = next((r for r in self._records.all() if r.name == name), SwitchRecord(name))
        switch = self._switch(record, self._shown(record) or "")
        whose = f"sliver {record.sliver} has it" if record.sliver else "free"
        return (f"user {switch.user()}", switch.installer(), whose)

    def refuse_strangers(self, name: str) -> None:
        """Raise NotOurs if a switch that was never given away from here has a user all the same."""
        if any(record.name == name for record in self._records.all()):
            return
        if self._switch(SwitchRecord(name)).keys():
            remedy = (
                "delete it by what gave it away, fabric_am perhaps, or take the keys away by hand"
            )
            raise NotOurs(f"switch {name} has a user who did not get it from here", remedy=remedy)

    # --- looking

    def check(self, sliver: Switch) -> None:
        """Raise an error unless the site has the switch, it is free or the sliver's, and it answers."""
        settings = self._settings(sliver.switch)
        held = self._records.of(sliver.id)
        if held and held.name != sliver.switch:
            raise InvalidSliver("cannot be changed", field="switch", why=f"it is {held.name}")
        for record in self._records.all():
            if record.name == sliver.switch and record.sliver not in {"", sliver.id}:
                raise Conflict(
                    f"switch {record.name} is taken", why=f"sliver {record.sliver} has it"
                )
        if held is None:
            host_identity(settings, time_left(self._site.limits.call))

    def _settings(self, name: str) -> P4Switch:
        known = self._site.p4_switches
        if name not in known:
            why = f"known: {', '.join(known) or 'none'}"
            raise InvalidSliver(f"no switch {name!r}", field="switch", why=why)
        return known[name]

    def find(self, sliver_id: str) -> Service | None:
        """Return the switch if it was installed for the sliver, and says that it is the sliver's."""
        record = self._records.of(sliver_id)
        if record is None or record.phase is not Phase.INSTALLED:
            return None
        if self._switch(record).sliver() != sliver_id:
            return None
        return Service(sliver_id, f"switch {record.name}", record.name, type="Switch")

    def differences(self, sliver: Switch) -> tuple[str, ...]:
        """Name what differs on the switch.

        The user's private key is the user's, so nobody logs in with it: the keys are read back, and the
        SSH server is asked whether it takes keys of that account.
        """
        record = self._records.of(sliver.id)
        if record is None or record.phase is not Phase.INSTALLED:
            return ("it is not installed",)
        switch = self._switch(record)
        differs = [] if record.name == sliver.switch else [f"it is on {record.name}"]
        differs += [] if switch.keys() == sliver.ssh_keys else ["its keys are others"]
        differs += [] if switch.lets_in() else ["its SSH server takes no keys"]
        return tuple(differs)

    def leftovers(self, sliver_id: str) -> tuple[str, ...]:
        """Name the switch, if it is the sliver's."""
        record = self._records.of(sliver_id)
        return (f"switch {record.name}",) if record else ()

    def stamped(self) -> tuple[Stamped, ...]:
        """Return the switches that slivers have."""
        held = (record for record in self._records.all() if record.sliver)
        return tuple(Stamped(record.sliver, "Switch", record.name) for record in held)

    # --- changing

    def apply(self, sliver: Switch) -> Service:
        """Install the switch, unless it was installed for the sliver already, and let its user in."""
        self._settings(sliver.switch)
        record = self._records.claim(sliver.switch, sliver.id)
        if record.phase is not Phase.INSTALLED:
            record = self._installed(record)
        switch = self._switch(record)
        switch.guard()
        switch.let_in(sliver.id, sliver.ssh_keys)
        found = self.find(sliver.id)
        if found is None:
            raise NotVerified(f"switch {record.name} does not say whose it is")
        return found

    def _installed(self, record: SwitchRecord) -> SwitchRecord:
        """Install a switch; go on with an installation that was begun."""
        shown = self._shown(record)
        if record.phase is Phase.UNCLEAN or shown == record.identity:
            if shown is None:
                raise Unreachable(f"switch {record.name} does not answer")
            before = self._switch(record, shown)
            record = self._records.note(replace(record, phase=Phase.INSTALLING, identity=shown))
            before.begin_install()
        what, limit = f"switch {record.name} to be installed", time_left(self._site.limits.create)
        wait_until(what, lambda: bool(self._new_identity(record)), timeout=limit)
        now = self._new_identity(record)
        return self._records.note(replace(record, phase=Phase.INSTALLED, identity=now))

    def _new_identity(self, record: SwitchRecord) -> str:
        """Return the host key of the system that was installed; empty while there is none.

        ONIE has an SSH server of its own, which does not let us in.
        """
        shown = self._shown(record)
        if shown in {None, record.identity}:
            return ""
        try:
            marked = SshSwitch(self._site, record.name, shown or "").is_marked()
        except DriverError:
            return ""
        return "" if marked else shown or ""

    def _shown(self, record: SwitchRecord) -> str | None:
        """Return the host key that a switch shows now, or None if it does not answer."""
        try:
            return host_identity(self._settings(record.name), time_left(self._site.limits.call))
        except Unreachable:
            return None

    def _switch(self, record: SwitchRecord, shown: str = "") -> SshSwitch:
        """Return a switch with the host key that is trusted: of its record, or of site.yaml."""
        pinned = self._settings(record.name).host_key or ""
        ours = record.identity or pinned
        return SshSwitch(self._site, record.name, pinned if shown and shown == pinned else ours)

    def remove(self, sliver_id: str) -> None:
        """Take the switch away from its user; the next sliver gets it installed anew.

        :raises NotVerified: if the user still has keys or processes there.
        """
        record = self._records.of(sliver_id)
        if record is None:
            return
        if record.phase is Phase.INSTALLED:
            self._evict(record)
            record = replace(record, phase=Phase.UNCLEAN)
        # An installation that was begun goes on, and nobody was let in yet: it serves the next sliver.
        self._records.note(replace(record, sliver=""))

    def _evict(self, record: SwitchRecord) -> None:
        switch = self._switch(record)
        switch.evict()
        left: tuple[Any, ...] = (*switch.keys(), *switch.processes())
        if left:
            why = f"{len(left)} of them"
            raise NotVerified(f"switch {record.name} still has keys or processes", why=why)
