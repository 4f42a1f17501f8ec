"""Taking a device from a domain: what is asked of libvirt, in which order, and when it ends."""

from collections.abc import Callable
from unittest.mock import ANY, Mock, call
from xml.etree import ElementTree

import libvirt
import pytest
from pytest_mock import MockerFixture

from fabric_direct.calls.waiting import Waiting, heard_by
from fabric_direct.drivers.libvirt.domains import unplug as module
from fabric_direct.drivers.libvirt.domains.unplug import detach
from fabric_direct.drivers.libvirt.xml import attribute
from fabric_direct.errors import DriverError, NotVerified, TimedOut, Unreachable
from fabric_direct.model import PciAddress

ALIAS = "ua-sliver-gpu-0"
WHERE = "qemu:///system"
LIVE, CONFIG = libvirt.VIR_DOMAIN_AFFECT_LIVE, libvirt.VIR_DOMAIN_AFFECT_CONFIG
REMOVED = libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_REMOVED
REFUSED = libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_REMOVAL_FAILED
PENDING = "Device ua-sliver-gpu-0 is already in the process of unplug"


def error(code: int, message: str) -> libvirt.libvirtError:
    made = libvirt.libvirtError(message)
    made.err = (code, libvirt.VIR_FROM_QEMU, message, 2, None, None, None, -1, -1)
    return made


MISSING = error(libvirt.VIR_ERR_DEVICE_MISSING, "no device found with alias")
UNKNOWN = error(libvirt.VIR_ERR_INTERNAL_ERROR, "unknown alias")
GONE = error(libvirt.VIR_ERR_NO_DOMAIN, "Domain not found")
BROKEN = error(libvirt.VIR_ERR_SYSTEM_ERROR, "Unable to write to monitor: Broken pipe")


class Libvirt:
    """A domain with the device, live and as defined, and a connection that delivers events."""

    def __init__(self, *, live: bool) -> None:
        self.calls = Mock()
        self.connection, self.domain = self.calls.connection, self.calls.domain
        self.held = {LIVE, CONFIG} if live else {CONFIG}
        self.live = live
        self.callbacks: dict[int, Callable[..., None]] = {}
        # What the guest does when it is asked, one action for each time.
        self.guest: list[Callable[[], None]] = []
        self.domain.isActive.side_effect = lambda: int(self.live)
        self.domain.XMLDesc.side_effect = self.xml
        self.domain.detachDeviceAlias.side_effect = self.ask
        self.connection.domainEventRegisterAny.side_effect = self.register

    def xml(self, flags: int) -> str:
        inactive = flags == libvirt.VIR_DOMAIN_XML_INACTIVE or not self.live
        there = (CONFIG if inactive else LIVE) in self.held
        device = f"<hostdev><alias name='{ALIAS}'/></hostdev>" if there else ""
        head = "<domain type='kvm'>" if inactive else "<domain type='kvm' id='1'>"
        return f"{head}<devices>{device}<disk><alias name='{ALIAS}0'/></disk></devices></domain>"

    def ask(self, _alias: str, scope: int) -> None:
        if scope == CONFIG:
            self.held -= {CONFIG}
        elif self.guest:
            self.guest.pop(0)()

    def register(
        self, _domain: object, event: int, callback: Callable[..., None], _: object
    ) -> int:
        self.callbacks[event] = callback
        return event

    def lets_go(self) -> None:
        self.held -= {LIVE}
        self.callbacks[REMOVED](self.connection, self.domain, ALIAS, None)

    def refuses(self) -> None:
        self.callbacks[REFUSED](self.connection, self.domain, ALIAS, None)

    def stops(self) -> None:
        self.live = False
        self.held -= {LIVE}

    def fails(self, failure: libvirt.libvirtError, then: Callable[[], None] | None = None) -> None:
        def fail() -> None:
            if then:
                then()
            raise failure

        self.guest.append(fail)

    def detach(self, timeout: float = 5) -> None:
        detach(self.connection, self.domain, ALIAS, timeout=timeout, where=WHERE)

    def asked(self) -> list[int]:
        return [c.args[1] for c in self.domain.detachDeviceAlias.call_args_list]

    def deregistered(self) -> list[int]:
        return [c.args[0] for c in self.connection.domainEventDeregisterAny.call_args_list]


@pytest.fixture(autouse=True)
def short_pauses(mocker: MockerFixture) -> None:
    mocker.patch.multiple(module, ASK_AGAIN=0.05, LOOK_AGAIN=0.01, REST=0.01)


@pytest.fixture
def running() -> Libvirt:
    return Libvirt(live=True)


@pytest.fixture
def stopped() -> Libvirt:
    return Libvirt(live=False)


def test_a_domain_that_others_destroy_meanwhile_is_done_though_libvirt_sees_it_late(
    running: Libvirt, mocker: MockerFixture
) -> None:
    mocker.patch.object(module, "ENDING", 300.0)

    def read(flags: int) -> str:
        if len(running.domain.XMLDesc.call_args_list) > looks + 4:
            running.stops()
        return running.xml(flags)

    running.fails(BROKEN)
    looks = len(running.domain.XMLDesc.call_args_list)
    running.domain.XMLDesc.side_effect = read

    running.detach()

    assert running.held == set()


def test_a_domain_that_nobody_can_write_to_and_that_stays_is_an_error(
    running: Libvirt, mocker: MockerFixture
) -> None:
    mocker.patch.object(module, "ENDING", 0.01)
    running.fails(BROKEN)

    with pytest.raises(DriverError, match="Broken pipe"):
        running.detach()

    assert running.held == {LIVE, CONFIG}


def test_the_answer_is_listened_for_before_the_guest_is_asked(running: Libvirt) -> None:
    running.guest = [running.lets_go]

    running.detach()

    assert running.calls.mock_calls == [
        call.domain.isActive(),
        call.domain.UUIDString(),
        call.connection.domainEventRegisterAny(running.domain, REMOVED, ANY, None),
        call.connection.domainEventRegisterAny(running.domain, REFUSED, ANY, None),
        call.domain.detachDeviceAlias(ALIAS, LIVE),
        call.domain.XMLDesc(0),
        call.domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE),
        call.connection.domainEventDeregisterAny(REFUSED),
        call.connection.domainEventDeregisterAny(REMOVED),
        call.domain.detachDeviceAlias(ALIAS, CONFIG),
        call.domain.XMLDesc(0),
        call.domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE),
    ]


def test_of_a_stopped_domain_only_the_definition_is_changed(stopped: Libvirt) -> None:
    stopped.detach()

    assert stopped.calls.mock_calls == [
        call.domain.isActive(),
        call.domain.detachDeviceAlias(ALIAS, CONFIG),
        call.domain.XMLDesc(0),
    ]


def test_a_guest_that_answers_late_is_waited_for(running: Libvirt, mocker: MockerFixture) -> None:
    mocker.patch.object(module, "ASK_AGAIN", 20.0)
    looks = iter([True, True, False])

    def xml(flags: int) -> str:
        if flags == 0 and LIVE in running.held and not next(looks):
            running.lets_go()
        return running.xml(flags)

    running.domain.XMLDesc.side_effect = xml

    running.detach()

    assert running.asked() == [LIVE, CONFIG]
    assert not running.held


def test_a_guest_that_does_not_answer_is_asked_again(running: Libvirt) -> None:
    running.guest = [lambda: None, lambda: None, running.lets_go]

    running.detach()

    assert running.asked() == [LIVE, LIVE, LIVE, CONFIG]


def test_how_often_the_guest_was_asked_is_told(running: Libvirt) -> None:
    running.guest = [lambda: None, running.lets_go]
    told: list[Waiting] = []

    with heard_by(told.append):
        running.detach(timeout=5)

    what = f"the guest to release {ALIAS}"
    asked = [Waiting(what, f"removal asked {number} of 100") for number in (1, 2)]
    assert told == [*asked, Waiting("")]


def test_a_guest_that_refuses_is_asked_again(running: Libvirt) -> None:
    running.guest = [running.refuses, running.lets_go]

    running.detach()

    assert running.asked() == [LIVE, LIVE, CONFIG]


def test_a_device_that_the_guest_still_holds_stays_in_the_definition(running: Libvirt) -> None:
    with pytest.raises(TimedOut, match=r"still holds ua-sliver-gpu-0.*still the sliver's"):
        running.detach(timeout=0)

    assert running.held == {LIVE, CONFIG}
    assert running.asked() == [LIVE]


def test_that_the_guest_refused_is_said(running: Libvirt) -> None:
    running.guest = [running.refuses]

    with pytest.raises(TimedOut, match="the guest refused it"):
        running.detach(timeout=0)


@pytest.mark.parametrize("outcome", ["lets go", "timeout", "error"])
def test_nothing_is_listened_for_any_more_however_it_ends(running: Libvirt, outcome: str) -> None:
    if outcome == "lets go":
        running.guest = [running.lets_go]
        running.detach()
    else:
        if outcome == "error":
            running.fails(error(libvirt.VIR_ERR_OPERATION_FAILED, "no"))
        with pytest.raises(DriverError):
            running.detach(timeout=0)

    assert sorted(running.deregistered()) == sorted([REMOVED, REFUSED])


def test_if_the_second_event_cannot_be_registered_the_first_is_deregistered(
    running: Libvirt,
) -> None:
    failure = error(libvirt.VIR_ERR_RPC, "broken pipe")
    running.connection.domainEventRegisterAny.side_effect = [REMOVED, failure]

    with pytest.raises(Unreachable, match="broken pipe"):
        running.detach()

    assert running.deregistered() == [REMOVED]
    assert running.asked() == []


def test_another_devices_event_is_no_answer(running: Libvirt) -> None:
    def another() -> None:
        running.callbacks[REFUSED](running.connection, running.domain, "ua-other-0", None)
        running.callbacks[REMOVED](running.connection, running.domain, "ua-other-0", None)

    running.guest = [another]

    with pytest.raises(TimedOut, match="the guest did not answer"):
        running.detach(timeout=0)


@pytest.mark.parametrize("failure", [MISSING, UNKNOWN], ids=["missing", "unknown alias"])
def test_a_device_that_the_running_domain_does_not_have_is_taken_from_the_definition(
    running: Libvirt, failure: libvirt.libvirtError
) -> None:
    running.held = {CONFIG}
    running.fails(failure)

    running.detach()

    assert running.asked() == [LIVE, CONFIG]
    assert not running.held


def test_an_alias_that_is_nowhere_is_a_success(stopped: Libvirt) -> None:
    stopped.held = set()
    stopped.domain.detachDeviceAlias.side_effect = MISSING

    stopped.detach()

    assert stopped.asked() == [CONFIG]


def test_a_guest_that_was_asked_already_is_waited_for(running: Libvirt) -> None:
    running.fails(error(libvirt.VIR_ERR_INTERNAL_ERROR, PENDING))
    running.guest.append(running.lets_go)

    running.detach()

    assert not running.held


def test_any_other_refusal_is_an_error_in_libvirts_words(running: Libvirt) -> None:
    running.fails(error(libvirt.VIR_ERR_OPERATION_UNSUPPORTED, "cannot hot unplug this"))

    with pytest.raises(DriverError, match=r"cannot detach ua-sliver-gpu-0.*cannot hot unplug this"):
        running.detach()

    assert running.held == {LIVE, CONFIG}


def test_a_domain_that_stops_while_it_is_asked_leaves_only_its_definition(
    running: Libvirt,
) -> None:
    failure = error(libvirt.VIR_ERR_OPERATION_INVALID, "domain is not running")
    running.fails(failure, then=running.stops)

    running.detach()

    assert running.asked() == [LIVE, CONFIG]


def test_a_domain_that_stops_while_it_is_waited_for_leaves_only_its_definition(
    running: Libvirt,
) -> None:
    running.guest = [running.stops]

    running.detach()

    assert running.asked() == [LIVE, CONFIG]


@pytest.mark.parametrize("method", ["isActive", "detachDeviceAlias", "XMLDesc"])
def test_a_domain_that_is_gone_is_a_success(running: Libvirt, method: str) -> None:
    getattr(running.domain, method).side_effect = GONE

    running.detach()

    assert CONFIG not in running.asked()


def test_a_device_that_libvirt_did_not_take_away_is_no_success(stopped: Libvirt) -> None:
    stopped.domain.detachDeviceAlias.side_effect = None

    with pytest.raises(NotVerified, match="ua-sliver-gpu-0 is still in domain"):
        stopped.detach()


def test_a_domain_that_was_started_meanwhile_is_no_success(stopped: Libvirt) -> None:
    def start(_alias: str, _scope: int) -> None:
        stopped.live, stopped.held = True, {LIVE}

    stopped.domain.detachDeviceAlias.side_effect = start

    with pytest.raises(NotVerified, match="may have been started meanwhile"):
        stopped.detach()


class TestAFunctionThatOthersPluggedIn:
    """It has no alias of ours: it is asked for by its XML, and looked for by its address."""

    ADDRESS = PciAddress.parse("0000:25:00.0")

    @pytest.fixture
    def strange(self) -> "Strange":
        return Strange(live=True)

    def test_is_asked_for_as_each_xml_has_it(self, strange: "Strange") -> None:
        strange.guest = [strange.lets_go]

        strange.detach()

        assert strange.asked_for() == [(LIVE, "hostdev0"), (CONFIG, None)]
        assert strange.held == set()
        assert not strange.domain.detachDeviceAlias.called

    def test_is_heard_of_by_the_alias_that_libvirt_gave_it(self, strange: "Strange") -> None:
        strange.guest = [strange.refuses, strange.lets_go]

        strange.detach()

        assert [scope for scope, _ in strange.asked_for()] == [LIVE, LIVE, CONFIG]

    def test_stays_the_domains_while_the_guest_holds_it(self, strange: "Strange") -> None:
        with pytest.raises(TimedOut, match=r"0000:25:00\.0 of domain"):
            strange.detach(timeout=0.05)

        assert CONFIG in strange.held

    def test_that_is_not_there_is_a_success(self, strange: "Strange") -> None:
        strange.held = set()

        strange.detach()

        assert strange.asked_for() == []


class Strange(Libvirt):
    """A domain with a hostdev as virsh attach-device leaves it: in the definition without an alias."""

    def __init__(self, *, live: bool) -> None:
        super().__init__(live=live)
        self.domain.name.return_value = "instance-1"
        self.domain.detachDeviceFlags.side_effect = self.ask

    def xml(self, flags: int) -> str:
        inactive = flags == libvirt.VIR_DOMAIN_XML_INACTIVE or not self.live
        there = (CONFIG if inactive else LIVE) in self.held
        devices = _hostdev("0x25", "" if inactive else "hostdev0") if there else ""
        head = "<domain type='kvm'>" if inactive else "<domain type='kvm' id='1'>"
        return f"{head}<devices>{devices}{_hostdev('0x26', 'hostdev1')}</devices></domain>"

    def lets_go(self) -> None:
        self.held -= {LIVE}
        self.callbacks[REMOVED](self.connection, self.domain, "hostdev0", None)

    def refuses(self) -> None:
        self.callbacks[REFUSED](self.connection, self.domain, "hostdev0", None)

    def detach(self, timeout: float = 5) -> None:
        address = TestAFunctionThatOthersPluggedIn.ADDRESS
        detach(self.connection, self.domain, address, timeout=timeout, where=WHERE)

    def asked_for(self) -> list[tuple[int, str | None]]:
        """Return the scopes that it was asked for in, with the aliases that were given."""
        calls = self.domain.detachDeviceFlags.call_args_list
        elements = [(c.args[1], ElementTree.fromstring(c.args[0])) for c in calls]
        assert all(e.find("source/address[@bus='0x25']") is not None for _, e in elements)
        return [(scope, attribute(element, "alias", "name")) for scope, element in elements]


def _hostdev(bus: str, alias: str) -> str:
    label = f"<alias name='{alias}'/>" if alias else ""
    source = f"<source><address domain='0x0000' bus='{bus}' slot='0x00' function='0x0'/></source>"
    return f"<hostdev mode='subsystem' type='pci' managed='yes'>{source}{label}</hostdev>"
