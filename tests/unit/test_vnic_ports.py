"""Ports in the servers of other slivers, on the fake drivers, and what fails in their life."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from pydantic import ValidationError

from fabric_direct.calls.deadline import wait_until
from fabric_direct.cli import main
from fabric_direct.documents import load
from fabric_direct.drivers.fake import Substrate, substrate
from fabric_direct.errors import InvalidSliver
from fabric_direct.model import (
    Finding,
    NodeSliver,
    Operation,
    Outcome,
    SliverRef,
    State,
    Status,
    StepStatus,
)
from fabric_direct.model.networks import VNicPortsSliver
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Host, Site
from fabric_direct.state.file_store import FileStore
from fabric_direct.state.store import sliver_lock
from tests.outcomes import done, made
from tests.unit.faults import at_each_call

MakeVm = Callable[..., NodeSliver]
REF = SliverRef(id="net-1", type="vNICPorts")
MAC1, MAC2, MAC3 = "52:54:00:aa:00:01", "52:54:00:aa:00:02", "52:54:00:aa:00:03"
EXAMPLES = Path(__file__).parents[2] / "examples"


def port(name: str, server: str, mac: str, **interface: Any) -> dict[str, Any]:
    return {"id": name, "server": server, "interface": {"mac": mac, **interface}}


P1, P2 = port("p1", "vm-1", MAC1), port("p2", "vm-2", MAC2)


def net(*ports: dict[str, Any], network: str = "red", **values: Any) -> VNicPortsSliver:
    return VNicPortsSliver.model_validate(
        {"id": "net-1", "network": network, "ports": ports or (P1, P2), **values}
    )


def where(fakes: Substrate) -> dict[str, str]:
    """The server of each port of the sliver."""
    return {name: p.server for (of, name), p in fakes.plugs.items() if of == "net-1"}


def held(fakes: Substrate) -> set[str]:
    return {name for of, name in fakes.ports if of == "net-1"}


def error_of(outcome: Outcome) -> tuple[Status, str, str]:
    assert outcome.error
    return outcome.status, outcome.error.kind, outcome.error.field


@pytest.fixture
def vms(processor: HandlerProcessor, fakes: Substrate, vm: MakeVm) -> tuple[NodeSliver, ...]:
    """Two servers, each with a NIC of its own on each network."""
    nics = [
        {"type": "vNIC", "id": n, "network": net} for n, net in (("nic1", "red"), ("nic2", "blue"))
    ]
    both = tuple(vm(id=f"vm-{n}", components=nics) for n in (1, 2))
    for each in both:
        done(processor.create(each).result())
    fakes.calls.clear()
    return both


class TestTheSliver:
    def test_is_read_from_a_file(self) -> None:
        sliver = load(EXAMPLES / "vnic-ports.yaml", VNicPortsSliver, InvalidSliver)

        assert sliver.ref() == SliverRef(id="demo-ports", type="vNICPorts")
        assert sliver.servers() == ("demo-vm",)

    @pytest.mark.parametrize(
        ("ports", "message"),
        [
            ([P1, P1 | {"interface": {}}], "ports: id p1 is given twice"),
            ([P1, P2 | {"interface": {"mac": MAC1.upper()}}], f"ports: mac {MAC1} is given twice"),
            ([P1 | {"server": "net-1"}], "server is the sliver itself"),
            ([P1 | {"server": "vm.1"}], "ports.0.server"),
        ],
    )
    def test_is_refused_if_it_contradicts_itself(self, ports: Any, message: str) -> None:
        with pytest.raises(ValidationError, match=message):
            net(*ports)


@pytest.mark.usefixtures("vms")
class TestCreate:
    def test_plugs_each_port_into_its_server(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        outcome = done(processor.create(net()).result())

        assert where(fakes) == {"p1": "vm-1", "p2": "vm-2"}
        assert outcome.observed
        assert outcome.observed.state is State.RUNNING
        assert [(i.component, i.mac, i.network) for i in outcome.observed.interfaces] == [
            ("p1", MAC1, "red"),
            ("p2", MAC2, "red"),
        ]

    def test_fixes_address_port_security_and_bandwidth(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        asked = port("p1", "vm-1", MAC1, ipv4="10.20.1.77/24", port_security=False, bandwidth=80)

        outcome = done(processor.create(net(asked)).result())

        assert outcome.observed
        (nic,) = outcome.observed.interfaces
        assert (nic.addresses, nic.port_security) == (("10.20.1.77/24",), False)
        assert nic.bandwidth == 80

    def test_twice_is_the_same_as_once(self, processor: HandlerProcessor, fakes: Substrate) -> None:
        done(processor.create(net()).result())

        assert made(done(processor.create(net()).result())) == set()
        assert fakes.calls["compute.attach_port"] == 2

    def test_completes_what_a_killed_one_has_begun(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        done(processor.create(net()).result())
        del fakes.plugs["net-1", "p2"], fakes.ports["net-1", "p2"], fakes.plugs["net-1", "p1"]

        assert made(done(processor.create(net()).result())) == {"nic p1", "port p2", "nic p2"}

    def test_completes_a_nic_that_is_there_by_half(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        done(processor.create(net()).result())
        fakes.plugs["net-1", "p1"] = replace(fakes.plugs["net-1", "p1"], whole=False)
        observed = done(processor.probe(net()).result()).observed
        assert observed
        assert observed.differences == (
            "port p1 is plugged in now or for later starts, but not both",
        )

        assert made(done(processor.create(net()).result())) == {"nic p1"}

        assert fakes.plugs["net-1", "p1"].whole

    @pytest.mark.parametrize(
        "other",
        [
            net(P1),
            net(P1 | {"server": "vm-2"}, P2),
            net(port("p1", "vm-1", MAC3), P2),
            net(network="blue"),
        ],
    )
    def test_of_another_sliver_with_the_same_id_is_a_conflict_and_touches_nothing(
        self, processor: HandlerProcessor, fakes: Substrate, other: VNicPortsSliver
    ) -> None:
        done(processor.create(net()).result())
        before = dict(fakes.ports), dict(fakes.plugs)

        outcome = processor.create(other).result()

        assert error_of(outcome) == (Status.FAILED, "Conflict", "")
        assert (fakes.ports, fakes.plugs) == before

    @pytest.mark.parametrize(
        ("asked", "field"),
        [
            (net(P1, P2 | {"server": "vm-3"}), "ports[1].server"),
            (net(P1, port("p2", "vm-2", MAC2, ipv4="10.99.0.1/24")), "ports[1].interface.ipv4"),
            (net(port("p1", "vm-1", MAC1, auto_config=True)), "ports[0].interface.auto_config"),
            (net(network="green"), "network"),
        ],
    )
    def test_of_what_cannot_be_served_is_refused_and_touches_nothing(
        self, processor: HandlerProcessor, fakes: Substrate, asked: VNicPortsSliver, field: str
    ) -> None:
        outcome = processor.create(asked).result()

        assert error_of(outcome) == (Status.REFUSED, "InvalidSliver", field)
        assert (held(fakes), where(fakes)) == (set(), {})
        assert fakes.calls["network.create_port"] == 0

    @at_each_call(
        {
            "network.find_port": (1, 2, 3, 4, 5),
            "network.create_port": (1, 2),
            "network.ports": (1, 2, 3, 4),
            "compute.find": (1, 2),
            "compute.plugs": (1, 2, 3, 4, 5),
            "compute.attach_port": (1, 2),
        }
    )
    def test_leaves_nothing_when_a_call_fails(
        self, processor: HandlerProcessor, fakes: Substrate, method: str, at: int
    ) -> None:
        fakes.fault(method, at=at, kind="fail")

        outcome = processor.create(net()).result()

        assert (held(fakes), where(fakes)) == (set(), {})
        assert outcome.status is Status.FAILED
        assert outcome.left == ()
        assert set(fakes.servers) == {"vm-1", "vm-2"}

    def test_with_a_driver_that_lies_is_not_called_done(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        fakes.fault("compute.attach_port", kind="lie")

        assert error_of(processor.create(net()).result())[:2] == (Status.FAILED, "NotVerified")
        assert (held(fakes), where(fakes)) == (set(), {})

    def test_names_what_is_left_when_undoing_fails_too(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        fakes.fault("compute.attach_port", at=2, kind="fail")
        fakes.fault("compute.detach_port", at=0, kind="fail")

        outcome = processor.create(net(P1, port("p2", "vm-1", MAC2))).result()

        assert outcome.status is Status.PARTIAL
        assert {left.split()[0] for left in outcome.left} >= {"NIC"}


@pytest.mark.usefixtures("vms")
class TestModify:
    @pytest.fixture(autouse=True)
    def there(self, processor: HandlerProcessor, vms: object, fakes: Substrate) -> None:
        done(processor.create(net()).result())
        fakes.calls.clear()

    def test_adds_and_removes_ports(self, processor: HandlerProcessor, fakes: Substrate) -> None:
        outcome = done(processor.modify(net(P2, port("p3", "vm-1", MAC3))).result())

        assert where(fakes) == {"p2": "vm-2", "p3": "vm-1"}
        assert held(fakes) == {"p2", "p3"}
        assert made(outcome) == {"port p3", "nic p3", "unplug nic p1", "release port p1"}

    def test_moves_a_port_to_another_server_and_keeps_its_place(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        before = fakes.ports["net-1", "p1"]

        outcome = done(processor.modify(net(P1 | {"server": "vm-2"}, P2)).result())

        assert where(fakes) == {"p1": "vm-2", "p2": "vm-2"}
        assert fakes.ports["net-1", "p1"] == before
        assert made(outcome) == {"unplug nic p1", "nic p1"}

    def test_gives_a_port_another_mac(self, processor: HandlerProcessor, fakes: Substrate) -> None:
        outcome = done(processor.modify(net(port("p1", "vm-1", MAC3), P2)).result())

        assert fakes.plugs["net-1", "p1"].nic.mac == MAC3
        assert made(outcome) == {"unplug nic p1", "port p1", "nic p1"}

    def test_moves_all_of_them_to_another_network(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        done(processor.modify(net(network="blue")).result())

        assert {p.network for (of, _), p in fakes.ports.items() if of == "net-1"} == {"blue"}
        assert where(fakes) == {"p1": "vm-1", "p2": "vm-2"}

    def test_changes_a_bandwidth_in_place(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        done(processor.modify(net(port("p1", "vm-1", MAC1, bandwidth=80), P2)).result())

        assert fakes.plugs["net-1", "p1"].nic.bandwidth == 80
        assert fakes.calls["compute.detach_port"] == 0

    def test_plugs_in_again_what_went_with_its_server(
        self, processor: HandlerProcessor, fakes: Substrate, vms: tuple[NodeSliver, ...]
    ) -> None:
        done(processor.delete(vms[0].ref()).result())
        done(processor.create(vms[0]).result())

        assert made(done(processor.modify(net()).result())) == {"nic p1"}
        assert where(fakes) == {"p1": "vm-1", "p2": "vm-2"}

    def test_to_no_port_at_all_and_back(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        none = VNicPortsSliver(id="net-1", network="red")

        done(processor.modify(none).result())
        assert (held(fakes), where(fakes)) == (set(), {})
        done(processor.modify(net()).result())

        assert where(fakes) == {"p1": "vm-1", "p2": "vm-2"}

    def test_to_what_it_is_changes_nothing(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        assert made(done(processor.modify(net()).result())) == set()

    @at_each_call(
        {
            "network.find_port": (1, 2, 3, 4),
            "network.create_port": (1, 2),
            "network.delete_port": (1, 2),
            "compute.plugs": (1, 2, 3, 4),
            "compute.attach_port": (1, 2),
            "compute.detach_port": (1, 2),
        }
    )
    def test_that_fails_leaves_the_sliver_as_it_was_or_says_what_is_not(
        self, processor: HandlerProcessor, fakes: Substrate, method: str, at: int
    ) -> None:
        before = where(fakes), dict(fakes.ports)
        fakes.fault(method, at=at, kind="fail")

        wanted = net(port("p1", "vm-2", MAC3), port("p3", "vm-1", "52:54:00:aa:00:04"))
        outcome = processor.modify(wanted).result()

        if outcome.ok:
            assert where(fakes) == {"p1": "vm-2", "p3": "vm-1"}
        elif outcome.status is Status.FAILED:
            assert (where(fakes), fakes.ports) == before
        else:
            assert outcome.left


@pytest.mark.usefixtures("vms")
class TestDelete:
    @pytest.fixture(autouse=True)
    def there(self, processor: HandlerProcessor, vms: object) -> None:
        done(processor.create(net()).result())

    def test_unplugs_and_removes_and_succeeds_again(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        done(processor.delete(REF).result())
        again = done(processor.delete(REF).result())

        assert (held(fakes), where(fakes)) == (set(), {})
        assert again.steps == ()
        assert set(fakes.servers) == {"vm-1", "vm-2"}

    def test_succeeds_when_a_server_is_gone(
        self, processor: HandlerProcessor, fakes: Substrate, vms: tuple[NodeSliver, ...]
    ) -> None:
        done(processor.delete(vms[0].ref()).result())

        done(processor.delete(REF).result())

        assert held(fakes) == set()

    def test_succeeds_when_a_port_was_taken_away_with_its_server(
        self, processor: HandlerProcessor, fakes: Substrate, vms: tuple[NodeSliver, ...]
    ) -> None:
        done(processor.delete(vms[0].ref()).result())
        del fakes.ports["net-1", "p1"]

        done(processor.delete(REF).result())

        assert (held(fakes), where(fakes)) == (set(), {})

    def test_removes_a_nic_whose_port_is_gone(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        del fakes.ports["net-1", "p1"]

        done(processor.delete(REF).result())

        assert where(fakes) == {}

    def test_that_a_guest_refuses_goes_on_with_the_others_and_names_what_is_left(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        fakes.fault("compute.detach_port", at=1, kind="fail")

        outcome = processor.delete(REF).result()

        (left,) = where(fakes)
        assert outcome.status is Status.PARTIAL
        assert [text.split() for text in outcome.left] == [
            ["NIC", left, "of", f"{where(fakes)[left]}-node"],
            ["port", left],
        ]
        done(processor.delete(REF).result())

    def test_that_lies_is_not_called_done(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        fakes.fault("network.delete_port", at=0, kind="lie")

        assert not processor.delete(REF).result().ok

    def test_never_touches_a_server_that_is_not_ours(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        plug = fakes.plugs["net-1", "p1"]
        fakes.plugs["net-1", "p1"] = replace(plug, server="", instance="somebody's")

        outcome = processor.delete(REF).result()

        assert error_of(outcome)[1] == "NotOurs"
        assert "somebody's" in str(outcome.error)
        assert "p1" in held(fakes)
        assert set(where(fakes)) == {"p1"}


@pytest.mark.usefixtures("vms")
class TestLooking:
    def test_a_plan_says_what_would_be_done_and_does_nothing(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        def plan(sliver: SliverRef, operation: Operation | None = None) -> dict[str, Any]:
            steps = done(processor.plan(sliver, operation).result()).steps
            return {step.step: step.finding for step in steps}

        new = Finding.WILL_CREATE
        assert plan(net(P1)) == {"port p1": new, "nic p1": new}
        done(processor.create(net()).result())
        assert set(plan(net()).values()) == {Finding.ALREADY_SO}
        assert plan(REF, Operation.DELETE) == {
            "remove port p1": Finding.WILL_DELETE,
            "remove port p2": Finding.WILL_DELETE,
        }
        assert where(fakes) == {"p1": "vm-1", "p2": "vm-2"}

    def test_a_probe_says_what_differs(
        self, processor: HandlerProcessor, vms: tuple[NodeSliver, ...]
    ) -> None:
        def probe(sliver: SliverRef) -> tuple[State, tuple[str, ...]]:
            observed = done(processor.probe(sliver).result()).observed
            assert observed
            return observed.state, observed.differences

        missing = ("port p1 is missing", "port p2 is missing")
        assert probe(REF) == (State.ABSENT, ())
        assert probe(net()) == (State.ABSENT, missing)
        done(processor.create(net()).result())
        assert probe(REF) == probe(net()) == (State.RUNNING, ())
        assert probe(net(P1 | {"server": "vm-2"}))[1] == (
            "port p2 is there and not wanted",
            "port p1 is plugged into vm-1, not into vm-2",
        )
        assert probe(net(port("p1", "vm-1", MAC3), P2))[1] == (
            f"vNIC p1 has MAC {MAC1}, not {MAC3}",
        )
        done(processor.delete(vms[0].ref()).result())
        gone = ("port p1 is plugged into no server",)
        assert probe(REF) == probe(net()) == (State.ERROR, gone)

    def test_they_have_no_actions(self, processor: HandlerProcessor) -> None:
        assert processor.actions("vNICPorts") == ()
        assert error_of(processor.poa(REF, "reboot").result())[2] == "action"


class TestTheServersOwnSliver:
    """What the VM's own operations make of NICs whose ports are another sliver's."""

    @pytest.fixture(autouse=True)
    def there(self, processor: HandlerProcessor, vms: object) -> None:
        done(processor.create(net()).result())

    def test_a_probe_finds_no_difference(
        self, processor: HandlerProcessor, vms: tuple[NodeSliver, ...]
    ) -> None:
        for sliver in (vms[0], vms[0].ref()):
            observed = done(processor.probe(sliver).result()).observed
            assert observed
            assert observed.differences == ()
            assert [nic.component for nic in observed.interfaces] == ["nic1", "nic2"]

    def test_made_again_or_modified_it_keeps_them(
        self,
        processor: HandlerProcessor,
        fakes: Substrate,
        vm: MakeVm,
        vms: tuple[NodeSliver, ...],
    ) -> None:
        assert made(done(processor.create(vms[0]).result())) == set()
        fewer = vm(id="vm-1", components=[{"type": "vNIC", "id": "nic3", "network": "blue"}])
        done(processor.modify(fewer).result())

        assert where(fakes) == {"p1": "vm-1", "p2": "vm-2"}
        assert held(fakes) == {"p1", "p2"}

    def test_restarted_it_keeps_them(self, processor: HandlerProcessor, fakes: Substrate) -> None:
        done(processor.poa(SliverRef(id="vm-1"), "reboot").result())

        assert where(fakes)["p1"] == "vm-1"

    def test_deleted_it_leaves_the_port_which_is_not_left_over(
        self, processor: HandlerProcessor, fakes: Substrate, vms: tuple[NodeSliver, ...]
    ) -> None:
        outcome = done(processor.delete(vms[0].ref()).result())

        assert outcome.left == ()
        assert held(fakes) == {"p1", "p2"}
        assert where(fakes) == {"p2": "vm-2"}

    def test_a_component_of_the_same_name_is_another_one(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        done(processor.modify(net(port("nic1", "vm-1", MAC3))).result())
        assert [p.component for p in fakes.servers["vm-1"].ports] == ["nic1", "nic2"]

        done(processor.delete(REF).result())

        assert [p.component for p in fakes.servers["vm-1"].ports] == ["nic1", "nic2"]


class TestAtTheSameTime:
    @pytest.fixture
    def busy(self, fake_site: Site) -> Iterator[Event]:
        """Somebody works on vm-1, in another process as it were, until the event is set."""
        began, end = Event(), Event()

        def work() -> None:
            with FileStore(fake_site.state_dir).exclusive(sliver_lock("vm-1"), "vm-1", timeout=60):
                began.set()
                end.wait()

        thread = Thread(target=work)
        thread.start()
        began.wait()
        yield end
        end.set()
        thread.join()

    def test_a_server_that_is_being_worked_on_is_waited_for(
        self, processor: HandlerProcessor, fakes: Substrate, vms: object, busy: Event
    ) -> None:
        future = processor.create(net())
        untouched = processor.create(net(port("p2", "vm-2", MAC3), id="net-2")).result()
        assert untouched.ok
        assert not future.done()
        assert held(fakes) == set()

        busy.set()

        done(future.result())
        assert where(fakes) == {"p1": "vm-1", "p2": "vm-2"}

    def test_a_server_that_is_worked_on_all_the_time_is_an_error_and_nothing_is_touched(
        self, fake_site: Site, fakes: Substrate, vms: object, busy: Event
    ) -> None:
        limits = fake_site.limits.model_copy(update={"create": 0.3})
        with HandlerProcessor(fake_site.model_copy(update={"limits": limits})) as hasty:
            outcome = hasty.create(net()).result()

        assert error_of(outcome)[:2] == (Status.FAILED, "SliverBusy")
        assert "vm-1" in str(outcome.error)
        assert held(fakes) == set()
        assert hasty.unfinished() == ()

    def test_the_servers_own_sliver_waits_while_ports_are_plugged_in(
        self, processor: HandlerProcessor, fakes: Substrate, vms: tuple[NodeSliver, ...]
    ) -> None:
        fakes.fault("compute.attach_port", at=1, kind="hang")
        future = processor.create(net(P1))
        wait_until("it", lambda: fakes.calls["compute.attach_port"] > 0, timeout=60)

        refused = processor.delete(vms[0].ref()).result()
        fakes.mend()

        assert error_of(refused)[:2] == (Status.FAILED, "SliverBusy")
        future.result()
        done(processor.delete(vms[0].ref()).result())

    def test_a_server_whose_guest_keeps_the_nic_can_be_deleted_while_the_ports_are(
        self, processor: HandlerProcessor, fakes: Substrate, vms: tuple[NodeSliver, ...]
    ) -> None:
        done(processor.create(net(P1)).result())
        fakes.fault("compute.detach_port", at=1, kind="hang")
        future = processor.delete(REF)
        wait_until("it", lambda: fakes.calls["compute.detach_port"] > 0, timeout=60)

        done(processor.delete(vms[0].ref()).result())

        assert where(fakes) == {}
        fakes.mend()
        future.result()
        done(processor.delete(REF).result())

    def test_many_at_once_with_the_same_servers_all_come_to_their_end(
        self, processor: HandlerProcessor, fakes: Substrate, vms: tuple[NodeSliver, ...]
    ) -> None:
        def mac(number: int, of: int) -> str:
            return f"52:54:00:bb:{number:02x}:{of:02x}"

        slivers = [
            net(*(port(f"p{of}", f"vm-{1 + of % 2}", mac(n, of)) for of in range(6)), id=f"net-{n}")
            for n in range(12)
        ]

        for future in [processor.create(sliver) for sliver in slivers]:
            done(future.result())
        assert len(fakes.plugs) == 72
        for future in [processor.delete(sliver.ref()) for sliver in slivers]:
            done(future.result())

        assert fakes.plugs == {}


class TestSeveralHosts:
    @pytest.fixture
    def site(self, fake_site: Site) -> Site:
        return fake_site.model_copy(update={"hosts": {"w1": Host(), "w2": Host()}})

    def test_the_sliver_names_the_host_of_its_servers_and_is_found_there(
        self, site: Site, vm: MakeVm
    ) -> None:
        with HandlerProcessor(site) as processor:
            done(processor.create(vm(id="vm-1", host="w2")).result())

            nowhere = processor.create(net(P1)).result()
            done(processor.create(net(P1, host="w2")).result())

            assert error_of(nowhere) == (Status.REFUSED, "InvalidSliver", "ports[0].server")
            assert where(substrate(site, "w2")) == {"p1": "vm-1"}
            done(processor.delete(REF).result())
        assert where(substrate(site, "w2")) == {}


@pytest.mark.usefixtures("vms")
class TestRecovery:
    @pytest.mark.parametrize("undo", [False, True])
    def test_what_was_interrupted_is_finished_or_taken_back(
        self, processor: HandlerProcessor, fakes: Substrate, undo: bool
    ) -> None:
        fakes.fault("compute.attach_port", at=2, kind="fail")
        fakes.fault("network.delete_port", at=0, kind="fail")
        processor.create(net()).result()
        fakes.mend()

        (outcome,) = (future.result() for future in processor.recover(undo=undo))

        assert outcome.ok
        assert held(fakes) == (set() if undo else {"p1", "p2"})
        assert processor.unfinished() == ()


@pytest.mark.usefixtures("vms")
class TestOnTheCommandLine:
    @pytest.fixture
    def run(self, tmp_path: Path, fake_site: Site) -> Callable[..., Any]:
        path = tmp_path / "site.yaml"
        path.write_text(yaml.safe_dump(json.loads(fake_site.model_dump_json(exclude_none=True))))

        def run(*words: str) -> Any:
            return CliRunner().invoke(main, ["--site", str(path), *words])

        return run

    def test_they_live_and_die_like_a_server(self, run: Callable[..., Any], tmp_path: Path) -> None:
        file = tmp_path / "ports.yaml"
        file.write_text(net().model_dump_json(exclude_none=True))

        assert "will create   nic p1" in run("plan", str(file)).output
        assert "net-1: created in" in run("create", str(file)).output
        probed = run("probe", str(file))
        assert probed.exit_code == 0, probed.output
        assert "net-1: running, red on localhost\n" in probed.output
        assert MAC2 in probed.output
        assert run("delete", "net-1", "--type", "vNICPorts").exit_code == 0
        assert run("probe", str(file)).exit_code == 1

    def test_a_wrong_field_is_refused_with_its_line(
        self, run: Callable[..., Any], tmp_path: Path
    ) -> None:
        file = tmp_path / "ports.yaml"
        file.write_text(
            "id: n\ntype: vNICPorts\nnetwork: red\nports:\n  - {id: p1, server: vm.9}\n"
        )

        result = run("create", str(file))

        assert result.exit_code == 2
        assert "ports.yaml:5: ports[0].server" in result.output, result.output


def test_the_steps_of_a_port_that_fits_are_already_so(
    processor: HandlerProcessor, vms: object
) -> None:
    done(processor.create(net()).result())

    again = done(processor.modify(net()).result())

    assert {step.status for step in again.steps} == {StepStatus.ALREADY_SO}
