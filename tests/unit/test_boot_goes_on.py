"""Guests whose boot takes longer than anybody waits: handed out with a warning, or not, as asked for."""

import json
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from itertools import chain, repeat
from typing import Any

import pytest
from pytest_mock import MockerFixture
from rich.console import Console

from fabric_direct.cli.sliver_report import show
from fabric_direct.drivers.fake import FakeCompute, FakeGuest, Substrate
from fabric_direct.drivers.fake.inside import GuestState
from fabric_direct.drivers.guests.boot import ENABLED, RESULT, STATUS, Boot, stage_of
from fabric_direct.drivers.guests.guest import Guest
from fabric_direct.errors import Denied, DriverError, TimedOut, Unreachable, Unsupported
from fabric_direct.model import NodeSliver, Outcome, State, Status
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import GuestSettings, Limits, Site
from tests.conftest import KEY
from tests.outcomes import done, made

MakeVm = Callable[..., NodeSliver]
SCRIPT = "#!/bin/sh\nsleep 600\n"
NIC = {"type": "vNIC", "id": "nic1", "network": "red"}
MOUNTED = {"type": "Storage", "id": "data", "size": 1, "mount": "/data"}
ADDED = {"key": KEY, "comment": ""}


def status(*over: str) -> bytes:
    """Return what cloud-init 24 says while it is at the stage after these."""
    stages = ("init-local", "init", "modules-config", "modules-final")
    values: dict[str, Any] = {
        stage: {
            "errors": [],
            "finished": 23.07 if stage in over else None,
            "recoverable_errors": {},
            "start": 22.91 if number <= len(over) else None,
        }
        for number, stage in enumerate(stages)
    }
    stage = stages[len(over)]
    source = "DataSourceNoCloud [seed=/dev/sr0]"
    return json.dumps({"v1": {"datasource": source, **values, "stage": stage}}).encode()


SETTING_UP = status("init-local", "init")
LAST_STAGE = status("init-local", "init", "modules-config")


@pytest.fixture
def site(fake_site: Site) -> Site:
    limits = Limits(busy=0.1, guest_boot=0.3)
    return fake_site.model_copy(update={"limits": limits})


def asking(site: Site, wait_for: Any) -> Site:
    return site.model_copy(update={"guest_access": GuestSettings(wait_for=wait_for)})


def boots(fakes: Substrate, said: bytes | None = LAST_STAGE) -> GuestState:
    """Have the guest of the sliver boot without an end, and say this of it."""
    files = {} if said is None else {STATUS: said}
    return fakes.inside.setdefault("sliver-1", GuestState(files=files, booting=True))


def ended(fakes: Substrate, result: Any) -> None:
    """Have cloud-init say this of the sliver's guest, whose boot has ended."""
    fakes.inside["sliver-1"] = GuestState(files={RESULT: json.dumps(result).encode()})


def things_of(fakes: Substrate) -> tuple[int, int, int]:
    return len(fakes.servers), len(fakes.ports), len(fakes.volumes)


def failed(outcome: Outcome) -> str:
    assert outcome.status is Status.FAILED, outcome
    assert outcome.error
    assert outcome.error.kind == "TimedOut"
    return outcome.error.message


class TestAGuestWhoseBootScriptDoesNotEnd:
    def test_is_handed_out_with_a_warning_that_names_the_script_the_limit_and_the_setting(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        boots(fakes)

        [warning] = done(processor.create(vm(boot_script=SCRIPT)).result()).warnings

        assert "the guest's boot goes on: its boot script (boot_script) has not ended" in warning
        assert "limits.guest_boot" in warning
        assert "wait_for of the sliver, or guest_access.wait_for in site.yaml" in warning
        assert "not verified" in warning

    def test_is_told_of_by_a_probe(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        boots(fakes)
        done(processor.create(vm(boot_script=SCRIPT)).result())

        observed = done(processor.probe(vm().ref()).result()).observed

        assert observed
        assert observed.guest
        assert observed.guest.boot_finished is False
        out = StringIO()
        show(observed, vm(), Console(file=out, width=200))
        assert "answers by fake, has not said that its boot is over" in out.getvalue()

    def test_is_no_hindrance_to_what_comes_later(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        boots(fakes)
        done(processor.create(vm(boot_script=SCRIPT)).result())

        modified = done(processor.modify(vm(components=[NIC])).result())
        rebooted = done(processor.poa(vm().ref(), "reboot", {}).result())
        keyed = done(processor.poa(vm().ref(), "addkey", {"keys": [ADDED]}).result())

        assert "goes on" in modified.warnings[0]
        assert "goes on" in rebooted.warnings[0]
        assert keyed.warnings == ()

    def test_without_a_script_is_told_of_as_what_it_is(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        boots(fakes)

        [warning] = done(processor.create(vm()).result()).warnings

        assert "its last stage has not ended" in warning
        assert "boot_script" not in warning

    @pytest.mark.parametrize(
        "said",
        [None, b"", b"[]", b'{"v1": 1}', b"\xff", b"[" * 100_000],
        ids=["no file", "empty", "no stages", "no mapping", "no text", "too deep"],
    )
    def test_that_says_nothing_of_it_is_told_of_so(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm, said: bytes | None
    ) -> None:
        boots(fakes, said)

        [warning] = done(processor.create(vm(boot_script=SCRIPT)).result()).warnings

        assert "or the guest has no cloud-init: nothing says that its boot script" in warning

    def test_that_ends_in_time_is_not_warned_of(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        assert done(processor.create(vm(boot_script=SCRIPT)).result()).warnings == ()


class TestABootScriptThatFails:
    """Its VM stays, to be looked into."""

    @pytest.mark.parametrize("wait_for", [None, "script"])
    def test_is_told_of_in_the_words_of_cloud_init(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm, wait_for: str | None
    ) -> None:
        ended(fakes, {"v1": {"datasource": "NoCloud", "errors": ["part-001: exit status 3"]}})

        created = done(processor.create(vm(boot_script=SCRIPT, wait_for=wait_for)).result())
        modified = done(processor.modify(vm(components=[NIC])).result())

        [warning] = created.warnings
        assert "boot script (boot_script), or another part of its boot, has failed" in warning
        assert "part-001: exit status 3" in warning
        assert modified.warnings == ()

    def test_is_told_of_where_cloud_init_says_so_a_moment_after_the_end(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm, mocker: MockerFixture
    ) -> None:
        ended(fakes, {})
        late = [None, json.dumps({"v1": {"errors": ["late"]}}).encode()]
        told = Guest._of_cloud_init
        mocker.patch.object(
            Guest,
            "_of_cloud_init",
            lambda guest, path: (
                late.pop(0)
                if path == RESULT
                else LAST_STAGE
                if path == STATUS
                else told(guest, path)
            ),
        )

        [warning] = done(processor.create(vm(boot_script=SCRIPT)).result()).warnings

        assert "late" in warning

    def test_is_told_of_in_text_that_can_be_printed_whatever_the_guest_says(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        ended(fakes, {"v1": {"errors": ["\ud800x"]}})

        outcome = done(processor.create(vm(boot_script=SCRIPT)).result())

        assert "?x" in outcome.model_dump_json()

    @pytest.mark.parametrize(
        "result", [{"v1": {"errors": []}}, {"v1": {"errors": 1}}, {"v1": {"errors": "x"}}, {}, []]
    )
    def test_is_not_told_of_where_none_has(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm, result: Any
    ) -> None:
        ended(fakes, result)

        assert done(processor.create(vm(boot_script=SCRIPT)).result()).warnings == ()


class TestWhatIsWaitedFor:
    def test_is_nothing_in_the_guest_if_an_address_is_enough(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        fakes.fault("guest.ping", kind="fail", at=0)

        outcome = done(processor.create(vm(wait_for="address", boot_script=SCRIPT)).result())

        assert fakes.calls["guest.wait"] == 0
        [warning] = outcome.warnings
        assert "(wait_for: address): nothing in it is verified" in warning

    def test_is_no_end_of_the_boot_if_a_login_is_enough(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm, mocker: MockerFixture
    ) -> None:
        boots(fakes)
        waits = mocker.spy(Guest, "wait_boot")

        outcome = done(processor.create(vm(wait_for="login", boot_script=SCRIPT)).result())

        assert [call.kwargs["timeout"] for call in waits.call_args_list] == [0]
        [warning] = outcome.warnings
        assert "has not ended (wait_for: login)" in warning

    def test_is_no_boot_script_if_the_boot_is_enough(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        boots(fakes, LAST_STAGE)

        outcome = done(processor.create(vm(wait_for="boot", boot_script=SCRIPT)).result())

        [warning] = outcome.warnings
        assert "its boot script (boot_script) has not ended (wait_for: boot)" in warning

    @pytest.mark.parametrize(
        ("wait_for", "said", "why"),
        [
            ("boot", SETTING_UP, "cloud-init sets it up"),
            ("boot", None, "nothing says that"),
            ("script", LAST_STAGE, "its boot script (boot_script) has not ended"),
            ("script", SETTING_UP, "its boot script (boot_script) is to come"),
        ],
    )
    def test_must_be_so_if_it_is_asked_for(
        self,
        processor: HandlerProcessor,
        fakes: Substrate,
        vm: MakeVm,
        wait_for: str,
        said: bytes | None,
        why: str,
    ) -> None:
        boots(fakes, said)

        message = failed(processor.create(vm(wait_for=wait_for, boot_script=SCRIPT)).result())

        assert "waiting for the guest to finish its boot" in message
        assert why in message
        assert "boot_script" in message
        assert "raise limits.guest_boot" in message
        assert "wait_for of the sliver, or guest_access.wait_for in site.yaml" in message
        assert things_of(fakes) == (0, 0, 0)

    def test_is_what_the_site_says_unless_the_sliver_does(
        self, site: Site, fakes: Substrate, vm: MakeVm
    ) -> None:
        boots(fakes)
        with HandlerProcessor(asking(site, "script")) as processor:
            failed(processor.create(vm(boot_script=SCRIPT)).result())
            boots(fakes)
            done(processor.create(vm(boot_script=SCRIPT, wait_for="login")).result())

    def test_can_be_changed_later(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        boots(fakes)
        done(processor.create(vm()).result())

        done(processor.modify(vm(wait_for="login")).result())

        assert fakes.servers["sliver-1"].stamp.sliver.wait_for == "login"

    def test_is_a_login_always_and_its_message_names_the_limit(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm, mocker: MockerFixture
    ) -> None:
        mocker.patch.object(FakeGuest, "wait", side_effect=TimedOut("no answer"))

        message = failed(processor.create(vm()).result())

        assert "limits.guest_boot" in message
        assert things_of(fakes) == (0, 0, 0)

    def test_is_not_so_in_a_guest_that_cannot_tell(
        self, processor: HandlerProcessor, vm: MakeVm, mocker: MockerFixture
    ) -> None:
        mocker.patch.object(FakeGuest, "boot_finished", side_effect=DriverError("not allowed"))

        [warning] = done(processor.create(vm(boot_script=SCRIPT)).result()).warnings
        other = vm(id="sliver-2", name="two", boot_script=SCRIPT, wait_for="script")
        message = failed(processor.create(other).result())

        for said in (warning, message):
            assert "does not say whether its boot is over" in said

    def test_a_silent_guest_is_not_one_whose_boot_has_ended(
        self, processor: HandlerProcessor, vm: MakeVm, mocker: MockerFixture
    ) -> None:
        mocker.patch.object(FakeGuest, "boot_finished", side_effect=TimedOut("no answer"))

        failed(processor.create(vm(wait_for="script")).result())

    def test_addresses_that_the_guest_does_not_have_are_named_and_fail_it_only_if_asked_for(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm, mocker: MockerFixture
    ) -> None:
        mocker.patch.object(FakeGuest, "interfaces", return_value=())

        [warning] = done(processor.create(vm(components=[NIC])).result()).warnings
        other = vm(id="sliver-2", name="two", components=[NIC], wait_for="boot")
        message = failed(processor.create(other).result())

        assert "not seen in the guest" in warning
        assert "10.20.1.2 on nic1" in warning
        assert "NICs to have their addresses" in message
        assert "10.20.1.3 on nic1" in message


class TestWhatIsSetInAGuestThatBoots:
    def test_waits_until_cloud_init_does_not_write_it_over(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        guest = boots(fakes, SETTING_UP)

        message = failed(processor.create(vm(wait_for="login", components=[MOUNTED])).result())

        assert "cloud-init to set the guest up" in message
        assert "overwrite" in message
        assert set(guest.files) == {STATUS}

    @pytest.mark.parametrize("wait_for", ["address", "login", "boot", None])
    def test_does_not_wait_for_the_boot_script(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm, wait_for: str | None
    ) -> None:
        boots(fakes, LAST_STAGE)

        outcome = processor.create(vm(wait_for=wait_for, components=[MOUNTED])).result()

        assert "mount data" in made(done(outcome))

    def test_waits_for_a_cloud_init_that_has_not_said_anything_yet(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        guest = boots(fakes, None)
        guest.files[ENABLED] = b""

        failed(processor.create(vm(wait_for="login", components=[MOUNTED])).result())

    @pytest.mark.parametrize(
        "later", [(), (Unreachable("its SSH server restarts"),)], ids=["answers", "not each time"]
    )
    def test_is_set_when_cloud_init_has_come_so_far(
        self, site: Site, vm: MakeVm, mocker: MockerFixture, later: tuple[Exception, ...]
    ) -> None:
        stages = [Boot.SETTING_UP, Boot.SETTING_UP, *later, Boot.LAST_STAGE]
        mocker.patch.object(Guest, "boot", side_effect=stages)

        with HandlerProcessor(site.model_copy(update={"limits": Limits()})) as processor:
            outcome = processor.create(vm(wait_for="login", components=[MOUNTED])).result()

        assert "mount data" in made(done(outcome))

    @pytest.mark.parametrize("action", ["addkey", "removekey"])
    def test_are_no_keys_while_cloud_init_writes_those_of_the_sliver(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm, action: str
    ) -> None:
        boots(fakes, SETTING_UP)
        done(processor.create(vm()).result())
        before = dict(fakes.keys.get("sliver-1", {}))

        message = failed(processor.poa(vm().ref(), action, {"keys": [ADDED]}).result())

        assert "cloud-init to set the guest up" in message
        assert fakes.keys.get("sliver-1", {}) == before


class TestAGuestThatShowsNoHostKey:
    """Its SSH server answers, but who answers cannot be known."""

    @pytest.fixture(autouse=True)
    def _shows_none(self, mocker: MockerFixture) -> None:
        mocker.patch.object(FakeGuest, "keys", (KEY,))
        mocker.patch.object(FakeGuest, "learn", return_value=False)

    def test_is_handed_out_with_a_warning_and_not_logged_in_to(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        [warning] = done(processor.create(vm()).result()).warnings

        assert "console does not show its SSH host key" in warning
        assert "nothing in it is verified" in warning
        assert fakes.calls["guest.wait"] == 0

    @pytest.mark.parametrize(
        "values",
        [{"wait_for": "login"}, {"wait_for": "boot"}, {"components": [MOUNTED]}],
        ids=["login", "boot", "set"],
    )
    def test_is_not_handed_out_if_it_has_to_be_logged_in_to(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm, values: dict[str, Any]
    ) -> None:
        message = failed(processor.create(vm(**values)).result())

        assert "to show its SSH host key" in message
        assert ": its console ends with 'booting | " in message
        assert "limits.guest_boot" in message
        assert things_of(fakes) == (0, 0, 0)

    def test_is_told_as_a_server_that_does_not_run_if_it_stopped_meanwhile(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm, mocker: MockerFixture
    ) -> None:
        def stops(*_: object) -> bool:
            fakes.servers["sliver-1"] = replace(fakes.servers["sliver-1"], state=State.STOPPED)
            return False

        mocker.patch.object(FakeGuest, "learn", side_effect=stops)

        message = failed(processor.create(vm(wait_for="login")).result())

        assert ": the server is stopped; its console ends with " in message

    def test_is_not_handed_out_if_no_ssh_server_answers(
        self, processor: HandlerProcessor, vm: MakeVm, mocker: MockerFixture
    ) -> None:
        mocker.patch.object(FakeGuest, "listens", return_value=False)

        failed(processor.create(vm()).result())

    def test_is_handed_out_though_its_ssh_server_did_not_answer_at_the_end(
        self, processor: HandlerProcessor, vm: MakeVm, mocker: MockerFixture
    ) -> None:
        """One look is not enough: what has answered is not kept for long."""
        mocker.patch.object(FakeGuest, "listens", side_effect=chain([True], repeat(False)))

        [warning] = done(processor.create(vm()).result()).warnings

        assert "console does not show its SSH host key" in warning

    def test_is_handed_out_before_the_time_of_the_operation_is_spent(
        self, site: Site, vm: MakeVm, mocker: MockerFixture
    ) -> None:
        limits, waited = Limits(guest_boot=900, create=600), []

        def meet(guest: Guest, _: Any, *, timeout: float) -> None:
            waited.append(timeout)
            guest.listened = True
            raise TimedOut("no key")

        mocker.patch.object(Guest, "meet", meet)
        with HandlerProcessor(site.model_copy(update={"limits": limits})) as processor:
            done(processor.create(vm()).result())

        assert 200 < waited[0] <= 300

    @pytest.mark.parametrize("error", [Denied("policy"), Unsupported("no console")])
    def test_is_handed_out_where_the_console_cannot_be_read_at_all(
        self,
        processor: HandlerProcessor,
        vm: MakeVm,
        mocker: MockerFixture,
        error: DriverError,
    ) -> None:
        mocker.patch.object(FakeCompute, "console", side_effect=error)

        warnings = done(processor.create(vm()).result()).warnings
        other = vm(id="sliver-2", name="two", wait_for="login")
        refused = processor.create(other).result()

        assert any(str(error) in warning for warning in warnings)
        assert refused.status is Status.FAILED

    def test_is_not_waited_for_if_an_address_is_enough(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        outcome = done(processor.create(vm(wait_for="address")).result())

        assert "host key" not in {step.step for step in outcome.steps}

    def test_has_its_key_pinned_by_the_next_change_after_it_shows_it(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm, mocker: MockerFixture
    ) -> None:
        done(processor.create(vm()).result())
        mocker.patch.object(FakeGuest, "learn", return_value=True)

        assert done(processor.modify(vm(components=[NIC])).result()).warnings == ()

    def test_can_be_changed_without_a_login_until_then(
        self, processor: HandlerProcessor, vm: MakeVm
    ) -> None:
        done(processor.create(vm()).result())

        [warning] = done(processor.modify(vm(components=[NIC])).result()).warnings

        assert "console does not show its SSH host key" in warning


@pytest.mark.parametrize(
    ("said", "stage"),
    [
        (status(), Boot.SETTING_UP),
        (status("init-local"), Boot.SETTING_UP),
        (SETTING_UP, Boot.SETTING_UP),
        (LAST_STAGE, Boot.LAST_STAGE),
        (b"", Boot.UNFINISHED),
    ],
)
def test_the_stage_of_a_boot_is_read_from_what_cloud_init_says(said: bytes, stage: Boot) -> None:
    assert stage_of(said) is stage


class TestTheErrorOfAGuestThatDoesNotCome:
    """The console that would tell why goes with the creation that is taken back."""

    @pytest.fixture(autouse=True)
    def silent(self, mocker: MockerFixture) -> None:
        mocker.patch.object(FakeGuest, "wait", side_effect=TimedOut("no answer", why="late"))

    @pytest.mark.parametrize(
        ("console", "told"),
        [
            pytest.param("", "its console is empty", id="empty"),
            pytest.param("a\nb\r\n\nc\nd\n", "its console ends with 'b | c | d'", id="lines"),
            pytest.param(
                "\x1b[0;1;31mKernel\x1b[0m panic\x07\n",
                "its console ends with 'Kernel panic'",
                id="red",
            ),
            pytest.param("x" * 5000, f"its console ends with '{'x' * 300}'", id="long"),
        ],
    )
    def test_tells_how_its_console_ends(
        self,
        processor: HandlerProcessor,
        vm: MakeVm,
        mocker: MockerFixture,
        console: str,
        told: str,
    ) -> None:
        mocker.patch.object(FakeCompute, "console", return_value=console)

        assert failed(processor.create(vm()).result()).startswith(f"no answer: late; {told}. ")

    @pytest.mark.parametrize("state", [State.STOPPED, State.PAUSED, State.ERROR])
    def test_tells_that_its_server_does_not_run(
        self,
        processor: HandlerProcessor,
        vm: MakeVm,
        fakes: Substrate,
        mocker: MockerFixture,
        state: State,
    ) -> None:
        def stops(*_: object, **__: object) -> None:
            fakes.servers["sliver-1"] = replace(fakes.servers["sliver-1"], state=state)
            raise TimedOut("no answer", why="late")

        mocker.patch.object(FakeGuest, "wait", side_effect=stops)

        told = failed(processor.create(vm()).result())

        assert told.startswith(f"no answer: late; the server is {state}; its console ")

    def test_tells_that_its_server_is_gone(
        self, processor: HandlerProcessor, vm: MakeVm, fakes: Substrate, mocker: MockerFixture
    ) -> None:
        def goes(*_: object, **__: object) -> None:
            del fakes.servers["sliver-1"]
            raise TimedOut("no answer", why="late")

        mocker.patch.object(FakeGuest, "wait", side_effect=goes)

        told = failed(processor.create(vm()).result())

        assert told.startswith("no answer: late; the server is gone")

    def test_is_told_all_the_same_where_its_console_cannot_be_read(
        self, processor: HandlerProcessor, vm: MakeVm, fakes: Substrate
    ) -> None:
        fakes.fault("compute.console", kind="fail")

        assert failed(processor.create(vm()).result()).startswith("no answer: late. ")
