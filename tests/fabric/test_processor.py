"""DirectHandlerProcessor, beside fabric_cf's own processor and in fabric_cf's own actor."""

import multiprocessing
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

pytest.importorskip("fabric_cf", reason="the actor's fabric_cf is not installed")

from fabric_cf.actor.boot.configuration_loader import ConfigurationLoader
from fabric_cf.actor.core.core.unit import UnitState
from fabric_cf.actor.core.kernel.reservation_states import ReservationStates
from fabric_cf.actor.core.plugins.handlers import ansible_handler_processor
from fabric_cf.actor.core.plugins.handlers.ansible_handler_processor import AnsibleHandlerProcessor
from fabric_cf.actor.core.plugins.handlers.handler_processor import HandlerProcessor
from hypothesis import given, settings
from hypothesis import strategies as st

from fabric_direct.actor.processor import DirectCalendarPolicy, DirectHandlerProcessor
from fabric_direct.calls.deadline import wait_until
from tests.fabric import processor_actor as fabric
from tests.fabric.processor_handlers import ADDRESS, DISK, FUNCTION, INSTANCE, Talking, gate
from tests.fabric.processor_reservation import SiteAm
from tests.limits import PATIENT

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # fabric_cf's own

Made = Callable[..., tuple[Any, fabric.Recorder]]


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let fabric_cf's processor look every 0.1 s at what has ended, instead of every 5 s."""
    often = SimpleNamespace(sleep=lambda seconds: time.sleep(seconds / 50))
    monkeypatch.setattr(ansible_handler_processor, "time", often)


@pytest.fixture
def direct() -> Iterator[Made]:
    """Make a DirectHandlerProcessor for handlers of this package's tests."""
    made: list[DirectHandlerProcessor] = []

    def make(handler: str, threads: int = 10, **properties: Any) -> tuple[Any, fabric.Recorder]:
        made.append(DirectHandlerProcessor(threads))
        return made[-1], fabric.plug_in(made[-1], fabric.mapping(handler, **properties))

    yield make
    gate.set_open()
    for processor in made:
        processor.shutdown()


@pytest.fixture(params=[AnsibleHandlerProcessor, DirectHandlerProcessor], ids=["pool", "direct"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Made]:
    """Make fabric_cf's own processor with its pool, or ours."""
    fabric.load(fabric.configuration(tmp_path))
    processor = request.param()

    def make(*mappings: Any) -> tuple[Any, fabric.Recorder]:
        return processor, fabric.plug_in(processor, *mappings)

    yield make
    processor.shutdown()


@pytest.fixture(autouse=True)
def _gate() -> None:
    gate.close()


def code_of(result: dict[str, Any]) -> int:
    """Read a result as the actor does, which leaves a unit hanging if it cannot."""
    assert HandlerProcessor.get_action_sequence_number(properties=result) == 0
    return int(HandlerProcessor.get_result_code(properties=result))


# --- as fabric_cf's own processor does it


def test_what_a_handler_writes_is_in_the_actors_sliver(either: Made) -> None:
    processor, actor = either(fabric.mapping("Handler"))
    unit = fabric.unit()
    sliver = unit.get_sliver()

    processor.create(unit=unit)

    told, result = actor.next()
    assert told is unit
    assert result == {"target.name": "create", "target.code": 0, "action.sequence": 0}
    assert unit.get_sliver() is sliver
    assert sliver.label_allocations.instance == INSTANCE
    assert sliver.management_ip == ADDRESS
    devices = sliver.attached_components_info.devices
    assert devices["gpu"].label_allocations.bdf == FUNCTION
    assert devices["data"].label_allocations.device_name == DISK


def test_modify_gives_the_sliver_and_leaves_the_modified_one_to_the_actor(either: Made) -> None:
    processor, actor = either(fabric.mapping("Handler"))
    unit = fabric.unit()

    processor.modify(unit=unit)

    assert code_of(actor.next()[1]) == 0
    assert unit.get_sliver().management_ip == "10.20.1.10"
    assert unit.get_modified().management_ip is None


def test_an_action_leaves_the_sliver_as_it_is(either: Made) -> None:
    processor, actor = either(fabric.mapping("Handler"))
    unit = fabric.unit()

    processor.poa(unit=unit, data={"operation": "reboot", "poa_id": "poa-1"})

    told, result = actor.next()
    assert told is unit
    assert result["poa_info"] == {"operation": "reboot", "poa_id": "poa-1", "code": 0, "info": {}}
    assert unit.get_sliver().management_ip is None


def test_a_handlers_refusal_is_handed_on(either: Made) -> None:
    processor, actor = either(fabric.mapping("Refusing"))

    processor.create(unit=fabric.unit())

    result = actor.next()[1]
    assert code_of(result) == -1
    assert result["exception.message"] == "no room"


def test_a_type_without_a_handler_is_an_error(either: Made) -> None:
    processor, actor = either(fabric.mapping("Handler"))
    unit = fabric.unit(rtype="Switch")

    processor.delete(unit=unit)

    told, result = actor.next()
    assert told is unit
    assert result["target.name"] == "delete"
    assert code_of(result) == -1


def test_a_clean_restart_is_the_handlers_and_the_actor_is_told_nothing(
    either: Made, tmp_path: Path
) -> None:
    processor, actor = either(fabric.mapping("Handler", mark=str(tmp_path / "mark")))

    processor.clean_restart()
    wait_until("the handler to begin", (tmp_path / "mark").exists, timeout=PATIENT["call"])
    processor.shutdown()

    assert (tmp_path / "mark").read_text() == "cleaned"
    assert actor.told.empty()


def test_a_clean_restart_without_a_handler_is_nothing(either: Made) -> None:
    processor, actor = either()

    processor.clean_restart()

    assert actor.told.empty()


def test_the_actors_database_keeps_the_handlers(either: Made, tmp_path: Path) -> None:
    processor, _ = either(fabric.mapping("Handler"))

    restored = fabric.kept(processor)

    actor = fabric.plug_in(restored)
    unit = fabric.unit()
    restored.create(unit=unit)
    assert actor.next()[0] is unit
    assert unit.get_sliver().management_ip == ADDRESS
    restored.shutdown()


def test_the_no_op_handler_of_fabric_cf_runs() -> None:
    processor = DirectHandlerProcessor()
    noop = fabric.mapping("NoOpHandler", "fabric_cf.actor.handlers.no_op_handler")
    actor = fabric.plug_in(processor, noop)
    units = [fabric.unit("vm-1"), fabric.unit("vm-2")]

    for unit in units:
        processor.create(unit=unit)

    assert [code_of(actor.next()[1]) for _ in units] == [0, 0]
    assert [unit.get_sliver().management_ip for unit in units] == ["1.2.3.4"] * 2
    processor.shutdown()


@pytest.fixture
def fake_site(tmp_path: Path) -> Path:
    """Write a site.yaml on the drivers that are held in memory: of each process its own."""
    site = {
        "site": "TEST",
        "state_dir": str(tmp_path / "state"),
        "drivers": {"VM": "fake", "vNIC": "fake", "Storage": "fake"},
        "guest": "fake",
        "networks": {"management": {"strategy": "flat_dhcp", "subnet": "10.20.1.0/24"}},
        "images": {"fabric-guest": {"path": "/no/such/image", "user": "root"}},
        "actor": {"management_network": "management"},
    }
    path = tmp_path / "site.yaml"
    path.write_text(yaml.safe_dump(site))
    return path


def test_our_handler_makes_and_removes_two_vms_at_once(either: Made, fake_site: Path) -> None:
    ours = fabric.mapping(
        "VMHandler", "fabric_direct.actor", **{"config.properties.file": str(fake_site)}
    )
    processor, actor = either(ours)
    units = [fabric.bare_unit("vm-1"), fabric.bare_unit("vm-2")]

    for unit in units:
        processor.create(unit=unit)
    made = [actor.next()[1] for _ in units]
    for unit in units:
        processor.delete(unit=unit)
    removed = [actor.next()[1] for _ in units]

    assert [code_of(result) for result in made + removed] == [0] * 4
    assert all(unit.get_sliver().label_allocations.instance for unit in units)
    addresses = {unit.get_sliver().management_ip for unit in units}
    assert all(address.startswith("10.20.1.") for address in addresses)


# --- each invocation has one end, whatever happens to it


@pytest.mark.parametrize(
    ("handler", "module", "message"),
    [
        ("Handler", "no.such.module", "ModuleNotFoundError: No module named 'no'"),
        ("NoSuchHandler", fabric.HANDLERS, "AttributeError: .* has no attribute 'NoSuchHandler'"),
        ("Unmakeable", fabric.HANDLERS, "OSError: no such file: site.yaml"),
        ("Failing", fabric.HANDLERS, "RuntimeError: the substrate is on fire"),
        ("Exiting", fabric.HANDLERS, r".* tried to end its thread: SystemExit\(1\)"),
    ],
)
def test_a_handler_that_fails_has_an_end(handler: str, module: str, message: str) -> None:
    processor = DirectHandlerProcessor()
    actor = fabric.plug_in(processor, fabric.mapping(handler, module))
    unit = fabric.unit()

    processor.create(unit=unit)
    told, result = actor.next()
    processor.shutdown()

    assert told is unit
    assert result["target.name"] == "create"
    assert code_of(result) == -1
    assert re.match(message, result["exception.message"])
    assert unit.get_sliver().management_ip is None
    assert actor.told.empty()


@pytest.mark.parametrize("answer", Talking.answers)
def test_an_answer_that_the_actor_could_not_read_is_an_error(direct: Made, answer: str) -> None:
    processor, actor = direct("Talking", answer=answer)

    processor.create(unit=fabric.unit())
    result = actor.next()[1]
    processor.shutdown()

    assert result["target.name"] == "create"
    assert code_of(result) == -1
    assert result["exception.message"]
    assert actor.told.empty()


@pytest.mark.parametrize("handler", ["Unwritable", "Nowhere"])
def test_what_is_done_is_done_though_the_actor_cannot_take_its_values(
    direct: Made, handler: str, caplog: pytest.LogCaptureFixture
) -> None:
    processor, actor = direct(handler)
    unit = fabric.unit()

    processor.create(unit=unit)
    told, result = actor.next()
    processor.shutdown()

    assert told is unit
    assert code_of(result) == 0
    assert "the actor's sliver lacks what create of vm-1 wrote" in caplog.text


def test_a_broken_handler_is_told_when_the_processor_starts(
    direct: Made, caplog: pytest.LogCaptureFixture
) -> None:
    direct("Unmakeable")
    assert "handler of VM cannot be made: OSError: no such file: site.yaml" in caplog.text


def test_a_code_that_is_a_string_of_digits_is_the_actors_to_read(direct: Made) -> None:
    processor, actor = direct("Digits")

    processor.create(unit=fabric.unit())

    assert code_of(actor.next()[1]) == 0


@pytest.mark.parametrize("operation", ["create", "modify", "delete"])
def test_each_operation_that_fails_is_told_by_its_name(direct: Made, operation: str) -> None:
    processor, actor = direct("Failing")

    getattr(processor, operation)(unit=fabric.unit())

    result = actor.next()[1]
    assert result["target.name"] == operation
    assert code_of(result) == -1


def test_an_action_that_fails_is_told_by_its_id(direct: Made) -> None:
    processor, actor = direct("Failing")

    processor.poa(unit=fabric.unit(), data={"operation": "reboot", "poa_id": "poa-1"})

    result = actor.next()[1]
    assert code_of(result) == -1
    assert result["poa_info"] == {"operation": "reboot", "poa_id": "poa-1", "code": -1}


def test_a_clean_restart_that_fails_is_logged(
    direct: Made, caplog: pytest.LogCaptureFixture
) -> None:
    processor, actor = direct("Failing")

    processor.clean_restart()
    said = "clean_restart of clean_restart: the substrate is on fire"
    wait_until("the handler to fail", lambda: said in caplog.text, timeout=PATIENT["call"])
    processor.shutdown()

    assert actor.told.empty()


def test_an_actor_that_does_not_take_it_is_not_told_again(
    direct: Made, caplog: pytest.LogCaptureFixture
) -> None:
    processor, actor = direct("Handler")
    actor.error = RuntimeError("the actor is stopped")

    processor.create(unit=fabric.unit("vm-1"))
    actor.next()
    processor.create(unit=fabric.unit("vm-1"))
    actor.next()
    processor.shutdown()

    assert actor.told.empty()
    assert "the actor did not hear of the end of create of vm-1" in caplog.text
    assert "the actor is stopped" in caplog.text


def test_what_has_not_begun_at_shutdown_ends_as_an_error(direct: Made) -> None:
    processor, actor = direct("Waiting", threads=1)
    units = [fabric.unit("vm-1"), fabric.unit("vm-1"), fabric.unit("vm-2")]
    for unit in units:
        processor.create(unit=unit)
    gate.await_came(1)

    end = threading.Thread(target=processor.shutdown)
    end.start()
    while not processor._closed:
        threading.Event().wait(0.01)
    gate.set_open()
    end.join()

    ends = {id(unit): result for unit, result in (actor.next() for _ in units)}
    first, second, third = (ends[id(unit)] for unit in units)
    assert code_of(first) == 0
    for result in (second, third):
        assert code_of(result) == -1
        assert "shut down before the handler began" in result["exception.message"]
    assert gate.came == ["create vm-1"]
    assert actor.told.empty()


def test_a_processor_that_is_shut_down_takes_nothing_until_it_is_started(direct: Made) -> None:
    processor, actor = direct("Handler")
    processor.shutdown()

    processor.create(unit=fabric.unit())
    refused = actor.next()[1]
    processor.start()
    processor.create(unit=fabric.unit())

    assert code_of(refused) == -1
    assert code_of(actor.next()[1]) == 0


@settings(deadline=None, max_examples=50)
@given(
    asked=st.lists(
        st.tuples(
            st.sampled_from(["vm-1", "vm-2", "vm-3"]),
            st.sampled_from(["fine", "raise", "exit", "talk"]),
        ),
        max_size=12,
    ),
    threads=st.integers(1, 3),
)
def test_whatever_is_asked_is_told_once_and_in_order(
    asked: list[tuple[str, str]], threads: int
) -> None:
    processor = DirectHandlerProcessor(threads)
    actor = fabric.plug_in(processor, fabric.mapping("Unlucky"))
    for number, (name, luck) in enumerate(asked):
        processor.poa(unit=fabric.unit(name), data={"operation": luck, "poa_id": number})

    told = [actor.next() for _ in asked]
    processor.shutdown()

    assert actor.told.empty()
    for name in {name for name, _ in asked}:
        mine = [result for unit, result in told if str(unit.get_reservation_id()) == name]
        wanted = [(number, luck) for number, (each, luck) in enumerate(asked) if each == name]
        assert [result["poa_info"]["poa_id"] for result in mine] == [n for n, _ in wanted]
        assert [code_of(r) for r in mine] == [0 if luck == "fine" else -1 for _, luck in wanted]


# --- order


def test_a_delete_waits_for_the_create_of_its_unit_and_sees_what_that_wrote(direct: Made) -> None:
    processor, actor = direct("Waiting")
    unit = fabric.unit()

    processor.create(unit=unit)
    processor.delete(unit=unit)
    gate.await_came(1)
    gate.set_open()

    assert [actor.next()[1]["target.name"] for _ in range(2)] == ["create", "delete"]
    assert gate.came == ["create vm-1", f"delete {INSTANCE}"]
    assert unit.get_sliver().label_allocations.instance is None


def test_units_do_not_wait_for_each_other(direct: Made) -> None:
    processor, _ = direct("Waiting")

    processor.create(unit=fabric.unit("vm-1"))
    processor.create(unit=fabric.unit("vm-2"))

    assert sorted(gate.await_came(2)) == ["create vm-1", "create vm-2"]


def test_what_is_asked_after_a_clean_restart_waits_for_its_end(direct: Made) -> None:
    processor, actor = direct("Waiting")

    processor.clean_restart()
    processor.create(unit=fabric.unit())
    gate.await_came(1)
    gate.set_open()
    actor.next()

    assert gate.came == ["clean_restart", "create vm-1"]
    assert gate.most == 1


def test_one_thread_is_enough_for_a_clean_restart_amid_others(direct: Made) -> None:
    processor, actor = direct("Waiting", threads=1)
    gate.set_open()

    processor.create(unit=fabric.unit("vm-1"))
    processor.create(unit=fabric.unit("vm-1"))
    processor.clean_restart()
    processor.clean_restart()
    processor.delete(unit=fabric.unit("vm-1"))
    processor.create(unit=fabric.unit("vm-2"))

    assert len([actor.next() for _ in range(4)]) == 4


def test_the_actors_sliver_does_not_change_while_a_handler_writes(direct: Made) -> None:
    processor, actor = direct("Waiting")
    unit = fabric.unit()

    processor.create(unit=unit)
    gate.await_came(1)

    assert unit.get_sliver().management_ip is None
    assert unit.get_sliver().label_allocations.instance is None
    gpu = unit.get_sliver().attached_components_info.devices["gpu"]
    assert gpu.label_allocations.bdf == "0000:25:00.0"
    gate.set_open()
    actor.next()
    assert unit.get_sliver().management_ip == ADDRESS


def test_a_handlers_properties_say_how_many_run_at_once(direct: Made) -> None:
    processor, actor = direct("Waiting", threads=10, **{"handler.threads": 2})
    units = [fabric.unit(f"vm-{number}") for number in range(4)]
    for unit in units:
        processor.create(unit=unit)

    gate.await_came(2)
    gate.set_open()
    for _ in units:
        actor.next()

    assert gate.most == 2


@pytest.mark.parametrize("threads", [0, -1, "many", None, 1.5])
def test_a_number_of_threads_that_is_none_is_an_error_that_names_it(
    direct: Made, threads: Any
) -> None:
    processor, actor = direct("Handler", **{"handler.threads": threads})

    processor.create(unit=fabric.unit())

    result = actor.next()[1]
    assert code_of(result) == -1
    assert result["exception.message"].startswith("handler.threads: must be a number from 1 on")


def test_a_pickled_processor_keeps_its_number_of_threads() -> None:
    restored = fabric.kept(DirectHandlerProcessor(3))

    assert restored.threads == 3


# --- in fabric_cf's own actor


@pytest.fixture
def site_am(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Make fabric_cf's actor by a configuration that names our policy and a handler."""
    policy = {"module": "fabric_direct.actor.processor", "class": "DirectCalendarPolicy"}
    resources = [fabric.resource("Handler", **{"handler.threads": 2})]
    path = fabric.configuration(tmp_path, policy=policy, resources=resources)
    with fabric.actor(path, monkeypatch) as made:
        yield made


def test_the_policy_of_the_configuration_brings_the_processor(site_am: Any) -> None:
    processor = site_am.get_plugin().get_handler_processor()

    assert isinstance(site_am.get_policy(), DirectCalendarPolicy)
    assert isinstance(processor, DirectHandlerProcessor)
    assert processor.config_mappings["VM"].get_class_name() == "Handler"
    assert processor.config_mappings["VM"].get_properties() == {"handler.threads": 2}


def test_the_actor_is_kept_with_its_processor_and_restored(site_am: Any) -> None:
    restored = fabric.kept(site_am)

    processor = restored.get_plugin().get_handler_processor()
    assert isinstance(processor, DirectHandlerProcessor)
    assert isinstance(restored.policy, DirectCalendarPolicy)
    assert processor.config_mappings["VM"].get_class_name() == "Handler"


def test_the_handlers_that_the_database_knows_go_before_those_of_the_configuration(
    site_am: Any, tmp_path: Path
) -> None:
    changed = fabric.configuration(tmp_path, resources=[fabric.resource("Refusing")])
    config = ConfigurationLoader(path=str(changed)).read_configuration().get_actor_config()
    processor = DirectHandlerProcessor()
    processor.set_plugin(plugin=site_am.get_plugin())

    processor.initialize(config=config)

    assert processor.config_mappings["VM"].get_class_name() == "Handler"


def test_the_actors_plugin_makes_modifies_and_removes_a_unit(site_am: Any) -> None:
    unit = fabric.unit()
    plugin = site_am.get_plugin()

    plugin.do_transfer_in(reservation=None, unit=unit)
    fabric.await_state(unit, UnitState.ACTIVE)
    assert unit.get_sliver().management_ip == ADDRESS

    unit.set_state(state=UnitState.MODIFYING)
    wanted = unit.get_modified()
    plugin.do_modify(reservation=None, unit=unit)
    fabric.await_state(unit, UnitState.ACTIVE)
    assert unit.get_sliver() is wanted

    plugin.do_transfer_out(reservation=None, unit=unit)
    fabric.await_state(unit, UnitState.CLOSED)


# --- fabric_cf's own actor with its policy in front, from the orchestrator's request to its answer

POLICIES = {
    "pool": {
        "module": "fabric_cf.actor.core.policy.authority_calendar_policy",
        "class": "AuthorityCalendarPolicy",
    },
    "direct": {"module": "fabric_direct.actor.processor", "class": "DirectCalendarPolicy"},
}


@pytest.fixture
def am(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., SiteAm]]:
    """Make the actor of a site with a policy and a handler."""
    with ExitStack() as stack:

        def make(policy: str, resource: dict[str, Any]) -> SiteAm:
            path = fabric.configuration(tmp_path, policy=POLICIES[policy], resources=[resource])
            return SiteAm(stack.enter_context(fabric.actor(path, monkeypatch)))

        yield make


def test_the_processes_of_the_actors_own_processor_are_ended(am: Any) -> None:
    before = set(multiprocessing.active_children())

    am("direct", fabric.resource("Handler"))

    assert set(multiprocessing.active_children()) <= before


@pytest.mark.parametrize("policy", POLICIES)
def test_a_reservation_becomes_active_and_is_closed(am: Any, policy: str) -> None:
    site = am(policy, fabric.resource("Handler"))
    reservation = site.request()

    site.redeem(reservation)
    site.await_state(reservation, ReservationStates.Active)
    sliver = site.lease().get_resources().get_sliver()
    assert sliver.management_ip == ADDRESS
    assert sliver.label_allocations.instance == INSTANCE

    site.actor.close(reservation=reservation)
    site.await_state(reservation, ReservationStates.Closed)


@pytest.mark.parametrize("handler", ["Failing", "Refusing", "Exiting"])
def test_a_reservation_whose_handler_fails_does_not_hang(am: Any, handler: str) -> None:
    site = am("direct", fabric.resource(handler))
    reservation = site.request()

    site.redeem(reservation)
    site.await_state(reservation, ReservationStates.Failed)

    assert "Exception during create for unit" in reservation.get_notices()


def test_our_handler_serves_the_actors_reservations(am: Any, fake_site: Path) -> None:
    properties = {"config.properties.file": str(fake_site)}
    site = am("direct", fabric.resource("VMHandler", "fabric_direct.actor", **properties))
    reservations = [site.request("node1"), site.request("node2")]

    for reservation in reservations:
        site.redeem(reservation)
    slivers = [site.lease().get_resources().get_sliver() for _ in reservations]
    addresses = {sliver.management_ip for sliver in slivers}
    assert len(addresses) == 2
    assert all(address.startswith("10.20.1.") for address in addresses)

    site.act(reservations[0], "cpuinfo")
    result = site.result()
    assert result.error_code == 0
    assert "cpuinfo" in result.get_info()

    for reservation in reservations:
        site.actor.close(reservation=reservation)
        site.await_state(reservation, ReservationStates.Closed)
