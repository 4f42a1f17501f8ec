"""Whole P4 switches: the driver and its records, on a switch in memory."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fabric_direct.actor import SwitchHandler, fim_switch
from fabric_direct.doctor import Verdict
from fabric_direct.doctor.controllers import check_switches
from fabric_direct.drivers.p4switch import driver as p4switch
from fabric_direct.drivers.p4switch.driver import P4SwitchService
from fabric_direct.drivers.p4switch.records import Phase, SwitchRecords
from fabric_direct.errors import (
    Conflict,
    Denied,
    DriverError,
    FabricDirectError,
    InvalidSliver,
    Unreachable,
)
from fabric_direct.model import Outcome, SliverRef, Status
from fabric_direct.model.p4_switches import Switch
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.functional.ssh_server import new_host_key
from tests.outcomes import done

ONE, OTHER = new_host_key(), new_host_key()


class Killed(BaseException):
    """The process ends."""


@dataclass
class Machine:
    """A switch: its disk, and what its network shows."""

    numbers: Any = field(default_factory=lambda: count(1))
    identity: str = "key 0"
    off: bool = False
    marked: bool = False
    stamp: str = ""
    authorized: tuple[str, ...] = ()
    sessions: int = 0
    user: str = "0"
    can: str = "ONIE by GRUB"
    installs: int = 0
    guarded: bool = False
    deaf: bool = False
    """It says that it installs itself, and does not."""
    keeps_disk: bool = False
    """It restarts with another host key, and is not installed."""
    bare: bool = False
    """Its image has no firewalld, and none can be installed."""
    installer: int = 0
    """How often ONIE's own SSH server answers."""
    keeps: bool = False
    """It says that the user is gone, who is not."""
    calls: list[str] = field(default_factory=list)
    die_at: int = 0
    """The number of the call after which its caller dies."""

    def call(self, name: str) -> None:
        """Note a call; fail if the switch is off."""
        if self.off:
            raise Unreachable("no route to host")
        self.calls.append(name)
        if name == "is_marked" and self.installer:
            self.installer -= 1
            raise Denied("ONIE lets nobody in")

    def called(self) -> None:
        """Die after a call that has taken effect, if it is the one."""
        if len(self.calls) == self.die_at:
            raise Killed

    def install(self) -> None:
        """Be installed: another disk, another host key."""
        if self.keeps_disk:
            self.identity = f"key {next(self.numbers)}"
        elif not self.deaf:
            self.identity, self.installs = f"key {next(self.numbers)}", self.installs + 1
            self.marked, self.stamp, self.authorized, self.guarded = False, "", (), False
            self.sessions = 0


class Login:
    """What the driver does on the switch."""

    machine: Machine

    def __init__(self, site: Site, name: str, host_key: str) -> None:
        self.host_key = host_key

    def _do(self, name: str, change: Callable[[], Any]) -> Any:
        self.machine.call(name)
        if self.host_key and self.host_key != self.machine.identity:
            raise Denied("the host key is not the one that is trusted")
        found = change()
        self.machine.called()
        return found

    def begin_install(self) -> None:
        def begin() -> None:
            self.machine.marked = True
            self.machine.install()

        self._do("install", begin)

    def is_marked(self) -> bool:
        return bool(self._do("is_marked", lambda: self.machine.marked))

    def guard(self) -> None:
        if self.machine.bare:
            raise DriverError("firewalld could not be installed")
        self._do("guard", lambda: setattr(self.machine, "guarded", True))

    def let_in(self, sliver_id: str, keys: tuple[str, ...]) -> None:
        def let_in() -> None:
            self.machine.authorized, self.machine.stamp = keys, sliver_id

        self._do("let_in", let_in)

    def user(self) -> str:
        return str(self._do("user", lambda: self.machine.user))

    def installer(self) -> str:
        return str(self._do("installer", lambda: self.machine.can))

    def sliver(self) -> str:
        return str(self._do("sliver", lambda: self.machine.stamp))

    def keys(self) -> tuple[str, ...]:
        return tuple(self._do("keys", lambda: self.machine.authorized))

    def lets_in(self) -> bool:
        return bool(self._do("lets_in", lambda: True))

    def evict(self) -> None:
        def evict() -> None:
            if not self.machine.keeps:
                self.machine.authorized, self.machine.stamp = (), ""
                self.machine.sessions = 0

        self._do("evict", evict)

    def processes(self) -> tuple[str, ...]:
        return tuple(self._do("processes", lambda: ("1",) * self.machine.sessions))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()

    def identity(settings: object, limit: float) -> str:
        if machine.off:
            raise Unreachable("no route to host")
        return machine.identity

    monkeypatch.setattr(p4switch, "SshSwitch", type("Login", (Login,), {"machine": machine}))
    monkeypatch.setattr(p4switch, "host_identity", identity)
    return machine


@pytest.fixture
def site(fake_site: Site) -> Site:
    values = fake_site.model_dump() | {
        "drivers": fake_site.drivers | {"Switch": "p4switch"},
        "p4_switches": {"p4": {"ssh": "ssh://root@192.0.2.4", "user": "tenant"}},
        "limits": {"unanswered": 0.0, "busy": 0.1},
    }
    return Site.model_validate(values)


@pytest.fixture
def driver(site: Site) -> P4SwitchService:
    return P4SwitchService(site, "")


def switch(name: str = "s1", *keys: str, on: str = "p4") -> Switch:
    return Switch(id=name, name=name, switch=on, ssh_keys=keys or (ONE,))


def ref(sliver: Switch) -> SliverRef:
    return SliverRef(id=sliver.id, type="Switch")


def kind(outcome: Outcome) -> str:
    assert outcome.error, outcome
    return outcome.error.kind


def test_the_whole_life(processor: HandlerProcessor, machine: Machine) -> None:
    done(processor.plan(switch()).result())
    assert machine.calls == []

    done(processor.create(switch()).result())
    assert (machine.installs, machine.guarded, machine.authorized) == (1, True, (ONE,))
    done(processor.create(switch()).result())
    done(processor.modify(switch("s1", ONE, OTHER)).result())
    assert (machine.installs, machine.authorized) == (1, (ONE, OTHER))
    found = done(processor.probe(switch("s1", ONE, OTHER)).result()).observed
    assert found
    assert (found.state, found.instance, found.differences) == ("running", "switch p4", ())

    machine.sessions = 3
    done(processor.delete(ref(switch())).result())
    done(processor.delete(ref(switch())).result())
    assert (machine.authorized, machine.sessions) == ((), 0)


def test_the_next_sliver_gets_it_installed_anew(
    processor: HandlerProcessor, machine: Machine
) -> None:
    done(processor.create(switch()).result())
    done(processor.delete(ref(switch())).result())

    done(processor.create(switch("s2", OTHER)).result())

    assert (machine.installs, machine.authorized, machine.stamp) == (2, (OTHER,), "s2")


def test_one_that_is_taken_is_refused_and_its_user_stays(
    processor: HandlerProcessor, machine: Machine
) -> None:
    done(processor.create(switch()).result())

    assert kind(processor.create(switch("s2", OTHER)).result()) == "Conflict"

    assert (machine.installs, machine.authorized, machine.stamp) == (1, (ONE,), "s1")


@pytest.mark.parametrize(
    ("wanted", "field"), [(switch(on="p5"), "switch"), (switch("s1", on="p6"), "switch")]
)
def test_a_switch_that_the_site_does_not_name_is_refused(
    driver: P4SwitchService, wanted: Switch, field: str
) -> None:
    with pytest.raises(InvalidSliver) as caught:
        driver.check(wanted)
    assert caught.value.field == field


def test_two_slivers_at_once_do_not_get_one_switch(site: Site) -> None:
    records = SwitchRecords(site)
    records.claim("p4", "s1")

    with pytest.raises(Conflict):
        records.claim("p4", "s2")

    assert [record.sliver for record in records.all()] == ["s1"]


class TestAnInstallation:
    @pytest.mark.parametrize("how", ["deaf", "keeps_disk"])
    def test_that_does_not_happen_is_not_called_done(
        self, site: Site, machine: Machine, how: str
    ) -> None:
        """Another host key alone is none: the disk may have what the former user left."""
        setattr(machine, how, True)
        limits = site.limits.model_copy(update={"create": 0.5})
        with HandlerProcessor(site.model_copy(update={"limits": limits})) as processor:
            outcome = processor.create(switch()).result()

        assert (kind(outcome), machine.authorized) == ("TimedOut", ())

    def test_is_not_there_while_the_installer_itself_answers(
        self, driver: P4SwitchService, site: Site, machine: Machine
    ) -> None:
        """ONIE shows a host key, too, and lets nobody in."""
        machine.installer = 2

        driver.apply(switch())

        records = SwitchRecords(site).all()
        assert machine.calls.count("is_marked") > 2
        assert [(r.phase, r.identity) for r in records] == [(Phase.INSTALLED, "key 1")]

    def test_whose_image_gets_no_firewall_is_not_handed_out(
        self, processor: HandlerProcessor, machine: Machine
    ) -> None:
        machine.bare = True

        outcome = processor.create(switch()).result()

        assert outcome.error
        assert "firewalld could not be installed" in outcome.error.message
        assert (machine.installs, "let_in" in machine.calls) == (1, False)
        machine.bare = False
        done(processor.create(switch()).result())
        assert (machine.guarded, machine.authorized) == (True, (ONE,))

    def test_of_a_switch_that_is_off_changes_nothing(
        self, processor: HandlerProcessor, machine: Machine
    ) -> None:
        machine.off = True

        outcome = processor.create(switch()).result()

        assert (kind(outcome), machine.installs) == ("Unreachable", 0)


class TestADeletion:
    def test_of_a_switch_that_is_off_is_not_called_done(
        self, processor: HandlerProcessor, machine: Machine
    ) -> None:
        done(processor.create(switch()).result())
        machine.off = True

        outcome = processor.delete(ref(switch())).result()
        assert (outcome.status is Status.DONE, outcome.left) == (False, ("switch p4",))
        assert kind(processor.create(switch("s2")).result()) == "Conflict"

        machine.off = False
        done(processor.delete(ref(switch())).result())

    def test_after_which_the_user_is_still_there_is_not_called_done(
        self, processor: HandlerProcessor, machine: Machine
    ) -> None:
        done(processor.create(switch()).result())
        machine.keeps = True

        outcome = processor.delete(ref(switch())).result()

        assert kind(outcome) == "NotVerified"
        assert kind(processor.create(switch("s2")).result()) == "Conflict"


@pytest.mark.parametrize("at", range(1, 7))
def test_killed_after_any_call_the_next_creation_finishes_or_a_deletion_clears(
    site: Site, machine: Machine, at: int
) -> None:
    """Whoever comes next finds the switch installed for him, and for nobody before."""
    driver, machine.die_at = P4SwitchService(site, ""), at
    with pytest.raises(Killed):
        driver.apply(switch())
    machine.die_at = 0

    again = P4SwitchService(site, "")
    if at % 2:
        again.apply(switch())
        assert again.differences(switch()) == ()
    again.remove("s1")
    was_let_in = "let_in" in machine.calls
    again.apply(switch("s2", OTHER))

    assert machine.authorized == (OTHER,)
    assert machine.installs >= 1 + was_let_in
    assert again.leftovers("s1") == ()


class TestTheDoctor:
    def found(self, site: Site) -> tuple[str, Verdict, str]:
        (found,) = check_switches(site)
        return found.subject, found.verdict, found.found

    def test_tells_by_what_a_switch_is_installed_and_whose_it_is(
        self, site: Site, driver: P4SwitchService, machine: Machine
    ) -> None:
        assert self.found(site) == ("switch p4", Verdict.OK, "ONIE by GRUB, free")
        driver.apply(switch())
        assert self.found(site)[2] == "ONIE by GRUB, sliver s1 has it"

    def test_tells_of_one_that_does_not_answer_or_lacks_what_is_needed(
        self, site: Site, machine: Machine
    ) -> None:
        machine.can = ""
        assert self.found(site)[1] is Verdict.FAIL
        machine.can, machine.user = "ONIE by EFI", "1000"
        assert "not root" in self.found(site)[2]
        machine.off = True
        assert self.found(site)[1] is Verdict.FAIL


class TestTheActor:
    @pytest.fixture
    def handler(self, site: Site, machine: Machine, tmp_path: Path) -> SwitchHandler:
        path = tmp_path / "site.yaml"
        path.write_text(site.model_dump_json(exclude_unset=True))
        return SwitchHandler(None, {"config.properties.file": str(path)}, None)

    def unit(self, keys: str = ONE, **values: Any) -> Any:
        fields = {"label_allocations": None, "labels": None} | values
        sliver = SimpleNamespace(get_name=lambda: "p4", get_type=lambda: "Switch", **fields)
        return SimpleNamespace(
            get_sliver=lambda: sliver,
            get_modified=lambda: None,
            get_reservation_id=lambda: "s1",
            get_properties=lambda: {"user.ssh.key": keys},
            get_resource_type=lambda: "Switch",
        )

    def test_serves_the_life_of_the_sites_only_switch(
        self, handler: SwitchHandler, machine: Machine
    ) -> None:
        assert handler.create(self.unit())[0]["target.code"] == 0
        assert (machine.authorized, machine.stamp) == ((ONE,), "s1")
        assert handler.modify(self.unit(f"{ONE},{OTHER}"))[0]["target.code"] == 0
        assert (machine.authorized, machine.installs) == ((ONE, OTHER), 1)
        assert handler.delete(self.unit())[0]["target.code"] == 0
        assert machine.authorized == ()

    def test_refuses_a_unit_without_keys_and_actions(
        self, handler: SwitchHandler, machine: Machine
    ) -> None:
        assert "user.ssh.key" in str(handler.create(self.unit(""))[0]["exception.message"])
        answer, _ = handler.poa(self.unit(), {"operation": "reboot"})
        assert "no operational actions" in str(answer)
        assert machine.calls == []

    def test_does_not_call_a_user_of_fabric_am_deleted(
        self, handler: SwitchHandler, machine: Machine
    ) -> None:
        assert handler.delete(self.unit())[0]["target.code"] == 0
        machine.authorized = (OTHER,)

        said = handler.delete(self.unit())[0]

        assert "did not get it from here" in str(said["exception.message"])
        assert machine.authorized == (OTHER,)

    def test_takes_the_switch_that_the_labels_name(self, site: Site) -> None:
        two = dict.fromkeys(("p4", "p5"), site.p4_switches["p4"])
        site = site.model_copy(update={"p4_switches": two})
        named = self.unit(labels=SimpleNamespace(local_name="p5"))

        assert fim_switch.switch(site, named).switch == "p5"
        with pytest.raises(InvalidSliver) as caught:
            fim_switch.switch(site, self.unit())
        assert caught.value.field == "label_allocations.local_name"


def test_an_error_names_no_key(driver: P4SwitchService, machine: Machine) -> None:
    machine.off = True

    with pytest.raises(FabricDirectError) as caught:
        driver.check(switch())

    assert ONE not in str(caught.value)
