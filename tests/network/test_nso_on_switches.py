"""Network services by NSO's stand-in, whose devices are the lab's switches; yanglint reads all of it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from fabric_direct.drivers.nso.driver import NsoService
from fabric_direct.model import Outcome, SliverRef, State, Status
from fabric_direct.model.services import NetworkService
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from fabric_direct.state.service_claims import ServiceClaims
from fabric_direct.testing import ServiceContract
from labs.network import nso_standin
from labs.network.nso_devices import DeviceManager
from labs.network.nso_standin import PASSWORD, USER, Controller
from tests.network import yanglint
from tests.network.conftest import lab, vsctl
from tests.network.nso_switches import BRIDGE, FAR, Switches, ofctl
from tests.network.wire import Wire, apart, cross, lost
from tests.outcomes import done
from tests.services.slivers import interface, service

At = Callable[..., Wire]


@pytest.fixture
def network(nothing_left: None) -> Iterator[Switches]:
    with Switches() as network:
        yield network
        assert {switch: network.read(switch) for switch in FAR} == {"sw1": {}, "sw2": {}}


@pytest.fixture
def nso(network: Switches) -> Iterator[Controller]:
    nso = Controller(devices=DeviceManager(network))
    nso.validators = (nso_standin.refusal, yanglint.refusal)
    yield nso
    assert all(bool(ours) == bool(foreign) for ours, foreign in nso.verdicts), nso.verdicts


@pytest.fixture
def site(nso: Controller, tmp_path: Path) -> Iterator[Site]:
    url, end = nso_standin.serve(nso)
    password = tmp_path / "password"
    password.write_text(f"{PASSWORD}\n")
    values = {
        "site": "NSOTEST",
        "state_dir": tmp_path,
        "drivers": dict.fromkeys(("L2Bridge", "L2PTP", "L2STS"), "nso"),
        "services": {"nso": {"url": url, "user": USER, "password_file": password}},
        "limits": {"call": 60.0, "unanswered": 0.0, "busy": 0.1},
    }
    yield Site.model_validate(values)
    end()


@pytest.fixture
def driver(site: Site) -> NsoService:
    return NsoService(site, "")


@pytest.fixture
def processor(site: Site) -> Iterator[HandlerProcessor]:
    with HandlerProcessor(site) as processor:
        yield processor


@pytest.fixture
def sliver() -> str:
    return str(uuid4())


def error(outcome: Outcome) -> str:
    assert outcome.error, outcome
    return outcome.error.message


def bridge(sliver: str, *vlans: Any) -> NetworkService:
    ends = (interface(f"i{n}", vlan, f"p{n}") for n, vlan in enumerate(vlans, 1))
    return service(*ends, sliver=sliver)


def between(kind: str, sliver: str, here: int, there: int, *more: dict[str, Any]) -> NetworkService:
    ends = interface("i1", here), interface("i2", there, switch="sw2")
    return service(*ends, *more, kind=kind, sliver=sliver)


class TestLives:
    def test_of_a_segment(
        self, processor: HandlerProcessor, at: At, nso: Controller, sliver: str
    ) -> None:
        done(processor.create(bridge(sliver, 100, 200)).result())
        other = bridge(str(uuid4()), 101, 201)
        done(processor.create(other).result())
        one, two, three = at("p1"), at("p2"), at("p3")
        assert cross(one, two, (100, 200))
        assert cross(one, two, (101, 201))
        assert apart(one, two, (100, 201))

        done(processor.modify(bridge(sliver, 100, 300, "untagged")).result())

        assert cross(one, two, (100, 300))
        assert cross(one, three, (100, 0))
        assert apart(one, two, (100, 200))
        for wanted in (other, bridge(sliver, 100)):
            done(processor.delete(wanted.ref()).result())
        assert apart(one, two, (100, 300))
        assert nso.names() == []

    @pytest.mark.parametrize("kind", ["L2PTP", "L2STS"])
    def test_across_the_switches(
        self, processor: HandlerProcessor, at: At, nso: Controller, sliver: str, kind: str
    ) -> None:
        done(processor.create(between(kind, sliver, 100, 200)).result())
        here, there = at("p1"), at("p1", "sw2")
        here.send(b"the switch asks for its neighbor's MAC, and drops this", 100)
        there.received()
        assert cross(here, there, (100, 200))
        assert apart(here, there, (100, 100))

        done(processor.modify(between(kind, sliver, 101, 200)).result())

        assert cross(here, there, (101, 200))
        assert apart(here, there, (100, 200))
        probed = done(processor.probe(between(kind, sliver, 101, 200)).result()).observed
        assert probed
        assert (probed.state, probed.differences) == (State.RUNNING, ())
        done(processor.delete(SliverRef(id=sliver, type=kind)).result())
        assert nso.names() == []


class TestFailures:
    def test_what_one_device_refuses_is_taken_back_on_the_other(
        self, processor: HandlerProcessor, at: At, nso: Controller, network: Switches, sliver: str
    ) -> None:
        nso.devices.refusing = {"sw2": "no free label"}
        refused = processor.create(between("L2STS", sliver, 100, 200)).result()
        assert "RPC error towards sw2: no free label" in error(refused)
        assert (refused.left, nso.names(), network.read("sw1")) == ((), [], {})

        nso.devices.refusing = {}
        done(processor.create(between("L2STS", sliver, 100, 200)).result())
        before = network.read("sw1"), network.read("sw2")
        nso.devices.refusing = {"sw2": "no free label"}
        assert not processor.modify(between("L2STS", sliver, 101, 201)).result().ok

        assert (network.read("sw1"), network.read("sw2")) == before
        nso.devices.refusing = {}
        done(processor.delete(SliverRef(id=sliver, type="L2STS")).result())

    def test_a_port_that_the_switch_does_not_have(
        self, processor: HandlerProcessor, nso: Controller, network: Switches, sliver: str
    ) -> None:
        refused = processor.create(service(interface("i1", 100, "p9"), sliver=sliver)).result()

        assert "RPC error towards sw1" in error(refused)
        assert "unknown port" in error(refused)
        assert (refused.left, nso.names()) == ((), [])

    def test_a_queue_item_of_which_one_device_fails_leaves_nothing_on_the_other(
        self, processor: HandlerProcessor, nso: Controller, sliver: str
    ) -> None:
        nso.queued, nso.devices.refusing = True, {"sw2": "no free label"}
        failed = processor.create(between("L2PTP", sliver, 100, 200)).result()
        assert "sw2: no free label" in error(failed)
        assert f"l2ptp net-{sliver}" in failed.left

        nso.devices.refusing = {}
        done(processor.delete(SliverRef(id=sliver, type="L2PTP")).result())

    def test_a_change_that_comes_after_it_was_given_up_is_named_and_removed(
        self, site: Site, nso: Controller, network: Switches, sliver: str
    ) -> None:
        limits = site.limits.model_copy(update={"call": 4.0, "unanswered": 60.0, "undo": 4.0})
        late = nso.fault("PATCH", "services", "late")
        with HandlerProcessor(site.model_copy(update={"limits": limits})) as processor:
            given_up = processor.create(bridge(sliver, 100, 200)).result()
            assert any("PATCH" in said for said in given_up.left)
            nso.released.set()
            assert late.over.wait(60)
            assert network.read("sw1")

        with HandlerProcessor(site) as processor:
            again = processor.delete(SliverRef(id=sliver, type="L2Bridge")).result()
        assert network.read("sw1") == {}
        assert all("may still take effect" in said for said in again.left)

    def test_a_document_that_is_not_as_the_yang_says_is_refused_by_both(
        self, processor: HandlerProcessor, nso: Controller, sliver: str
    ) -> None:
        wanted = service(interface("i1", "untagged", inner_vlan=None), sliver=sliver)
        doubly = wanted.interfaces[0].model_copy(update={"inner_vlan": 5})

        refused = processor.plan(wanted.model_copy(update={"interfaces": (doubly,)})).result()

        assert refused.status is Status.REFUSED
        assert all(nso.verdicts[-1])


def undo_one_flow(switch: str) -> None:
    ofctl(switch, "del-flows", BRIDGE, "in_port=p1,dl_vlan=100")


def forward_elsewhere(switch: str) -> None:
    ofctl(switch, "mod-flows", BRIDGE, "in_port=p1,dl_vlan=100,actions=output:p4")


def forget_all(switch: str) -> None:
    lab("restart", switch, "daemon")
    vsctl(switch, "br-set-external-id", BRIDGE, "back", "yes")  # returns when the daemon has it


class TestWhatSomebodyChangedOnASwitch:
    @pytest.mark.parametrize("undermine", [undo_one_flow, forward_elsewhere, forget_all])
    def test_is_found_and_repaired(
        self,
        processor: HandlerProcessor,
        at: At,
        sliver: str,
        undermine: Callable[[str], None],
    ) -> None:
        wanted = bridge(sliver, 100, 200)
        done(processor.create(wanted).result())
        undermine("sw1")

        probed = done(processor.probe(wanted.ref()).result()).observed
        assert probed
        assert probed.differences == ("its devices are not as NSO configures them",)
        assert lost(at("p1"), at("p2"), (100, 200))
        done(processor.reconcile(wanted.ref()).result())

        assert cross(at("p1"), at("p2"), (100, 200))
        assert done(processor.reconcile(wanted.ref()).result()).steps == ()
        done(processor.delete(wanted.ref()).result())

    def test_beside_a_service_is_left_alone(
        self, processor: HandlerProcessor, network: Switches, sliver: str
    ) -> None:
        wanted = bridge(sliver, 100, 200)
        done(processor.create(wanted).result())
        ofctl("sw1", "add-flow", BRIDGE, "in_port=p4,dl_vlan=7,actions=drop")

        refused = processor.delete(wanted.ref()).result()
        assert "device sw1: out of sync" in error(refused)
        nso_side = processor.probe(wanted.ref()).result().observed
        assert nso_side
        assert nso_side.differences == ()
        ofctl("sw1", "del-flows", BRIDGE, "in_port=p4,dl_vlan=7")
        done(processor.delete(wanted.ref()).result())


class TestContract(ServiceContract):
    @pytest.fixture
    def sliver(self) -> str:
        return str(uuid4())

    @pytest.fixture
    def other(self) -> str:
        return str(uuid4())

    @pytest.fixture
    def service(self, site: Site, sliver: str) -> NetworkService:
        wanted = between("L2STS", sliver, 100, 200, interface("i3", "untagged", "p2"))
        return ServiceClaims(site).claim(wanted)  # a sweep knows a service by its claims

    @pytest.fixture
    def changed(self, sliver: str) -> NetworkService:
        ends = interface("i1", 101, bandwidth=2_000), interface("i2", 7, "p3", "sw2")
        return service(*ends, kind="L2STS", sliver=sliver)
