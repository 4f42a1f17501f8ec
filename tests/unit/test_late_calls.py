"""Calls that take effect after they were given up: in the outcome, in the journal, and taken away."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fabric_direct.calls.deadline import Call
from fabric_direct.drivers.fake import Substrate, substrate
from fabric_direct.model import NodeSliver, Outcome, SliverRef, State, Status, StepStatus
from fabric_direct.model.networks import VNicPortsSliver
from fabric_direct.model.services import SERVICES
from fabric_direct.operations.late_calls import until
from fabric_direct.operations.progress import Progress
from fabric_direct.placement.claims import Claims
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from fabric_direct.state.file_store import FileStore
from fabric_direct.state.service_claims import ServiceClaims
from tests.outcomes import done
from tests.trust.clock import Clock, Later, await_in_earnest, skipping_faults

MakeVm = Callable[..., NodeSliver]
REF = SliverRef(id="sliver-1", type="VM")
NIC3 = {"type": "vNIC", "id": "nic3", "network": "red"}
DATA2 = {"type": "Storage", "id": "data2", "size": 1}


@pytest.fixture(autouse=True)
def clock() -> Iterator[Clock]:
    """Nobody waits in earnest for a call that hangs."""
    with skipping_faults() as clock:
        yield clock


@pytest.fixture
def later() -> Iterator[Later]:
    """What late calls wait for, so that they return when their operation has ended."""
    event = Later()
    yield event
    event.set()


def things_of(fakes: Substrate, sliver: str = "sliver-1") -> set[str]:
    """Name all that there is of a sliver."""
    server = fakes.servers.get(sliver)
    plugged = (*server.ports, *server.volumes) if server else ()
    held = {f"{kind} {c}" for kind in ("port", "volume") for _, c in getattr(fakes, f"{kind}s")}
    return held | {f"plugged {p.component}" for p in plugged} | ({"server"} if server else set())


def grown(vm: MakeVm) -> NodeSliver:
    """The sliver with another NIC and another volume."""
    components = [c.model_dump(mode="json") for c in vm().components]
    return vm(components=[*components, NIC3, DATA2])


def settle(processor: HandlerProcessor, later: Later) -> None:
    """Let late calls return, and wait until what they made is taken away."""
    later.set()
    await_in_earnest(lambda: not processor.unfinished())


def assert_unknown(outcome: Outcome, method: str) -> None:
    assert not outcome.ok
    assert [left for left in outcome.left if method in left and "may still take effect" in left]


def claimed(site: Site) -> list[str]:
    """Return the slivers with a claim."""
    claims = Claims(FileStore(site.state_dir), lifetime=1, timeout=1).since(time.time())
    return [claim.sliver for claim in claims]


MAKING = ("network.create_port", "volume.create", "compute.create")
CHANGING = ("network.create_port", "volume.create", "compute.attach_port", "compute.attach_volume")


class TestCreate:
    @pytest.mark.parametrize("method", MAKING)
    def test_takes_back_what_comes_while_it_undoes(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm, method: str
    ) -> None:
        fakes.fault(method, kind="late")

        outcome = processor.create(vm()).result()

        assert (outcome.status, outcome.left) == (Status.FAILED, ())
        assert things_of(fakes) == set()
        assert processor.unfinished() == ()

    @pytest.mark.parametrize("method", MAKING)
    def test_names_what_may_still_come_and_takes_it_away_when_it_does(
        self,
        processor: HandlerProcessor,
        fakes: Substrate,
        vm: MakeVm,
        later: Later,
        method: str,
    ) -> None:
        fakes.fault(method, kind="late", until=later)

        outcome = processor.create(vm()).result()

        assert_unknown(outcome, method)
        assert [entry.sliver["id"] for entry in processor.unfinished()] == ["sliver-1"]
        settle(processor, later)
        assert things_of(fakes) == set()

    def test_the_next_one_waits_until_it_is_known(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm, later: Later
    ) -> None:
        fakes.fault("compute.create", kind="late", until=later)
        processor.create(vm()).result()

        busy = processor.create(vm()).result()

        assert_unknown(busy, "compute.create")
        assert busy.error
        assert busy.error.kind == "SliverBusy"
        assert things_of(fakes) == set()
        settle(processor, later)
        done(processor.create(vm()).result())

    def test_what_comes_while_the_next_one_waits_is_taken_away_before_it(
        self, fake_site: Site, fakes: Substrate, vm: MakeVm, later: Later
    ) -> None:
        """Its server has the ports of the first creation, which are gone."""
        with HandlerProcessor(fake_site) as processor:
            fakes.fault("compute.create", kind="late", until=later)
            processor.create(vm()).result()
            done(processor.create(vm(id="other")).result())  # gets the addresses of those ports

            later.promise()
            again = processor.create(vm())
            later.set()

            done(again.result())
            assert processor.unfinished() == ()

    def test_a_call_that_never_returns_keeps_its_entry_and_delete_says_so(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        fakes.fault("compute.create", kind="hang")

        assert_unknown(processor.create(vm()).result(), "compute.create")
        assert_unknown(processor.delete(REF).result(), "compute.create")
        assert processor.unfinished()
        fakes.mend()

    def test_over_a_server_that_is_there_keeps_it(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm, later: Later
    ) -> None:
        done(processor.create(vm()).result())
        done(processor.poa(vm(), "stop").result())
        before = things_of(fakes)
        fakes.fault("compute.start", kind="late", until=later)

        assert_unknown(processor.create(vm()).result(), "compute.start")

        settle(processor, later)
        assert things_of(fakes) == before
        assert fakes.servers["sliver-1"].state is State.RUNNING

    def test_a_read_that_comes_late_changes_nothing(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm, later: Later
    ) -> None:
        fakes.fault("network.find_port", kind="late", until=later)

        outcome = processor.create(vm()).result()

        assert (outcome.status, outcome.left) == (Status.FAILED, ())
        assert processor.unfinished() == ()


class TestPlaced:
    @pytest.fixture
    def site(self, fake_site: Site) -> Site:
        hosts = {"w1": {}, "w2": {}}
        return Site.model_validate(fake_site.model_dump() | {"hosts": hosts})

    @pytest.fixture
    def hosts(self, site: Site) -> Iterator[dict[str, Substrate]]:
        things = {name: substrate(site, name) for name in site.hosts}
        yield things
        for each in things.values():
            each.mend()

    @pytest.mark.parametrize("method", MAKING)
    def test_no_other_host_is_tried_while_it_may_still_come_on_the_first(
        self,
        site: Site,
        hosts: dict[str, Substrate],
        vm: MakeVm,
        later: Later,
        method: str,
    ) -> None:
        hosts["w1"].fault(method, kind="late", until=later)

        with HandlerProcessor(site) as processor:
            outcome = processor.create(vm(host="auto")).result()
            again = processor.create(vm(host="auto")).result()

            assert_unknown(outcome, method)
            assert claimed(site) == ["sliver-1"]
            assert again.error
            assert again.error.kind == "SliverBusy"
            assert not hosts["w2"].servers
            settle(processor, later)
            assert things_of(hosts["w1"]) == things_of(hosts["w2"]) == set()
        assert claimed(site) == []

    def test_another_one_is_tried_when_it_came_and_was_taken_back(
        self, site: Site, hosts: dict[str, Substrate], vm: MakeVm
    ) -> None:
        hosts["w1"].fault("compute.create", kind="late")

        with HandlerProcessor(site) as processor:
            outcome = done(processor.create(vm(host="auto")).result())

        assert outcome.data == {"host": "w2"}
        assert things_of(hosts["w1"]) == set()


class TestModify:
    @pytest.mark.parametrize("method", CHANGING)
    def test_takes_back_what_comes_while_it_undoes(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm, method: str
    ) -> None:
        done(processor.create(vm()).result())
        before = things_of(fakes)
        fakes.fault(method, kind="late")

        outcome = processor.modify(grown(vm)).result()

        assert (outcome.status, outcome.left) == (Status.FAILED, ())
        assert things_of(fakes) == before
        assert processor.unfinished() == ()

    @pytest.mark.parametrize("method", CHANGING)
    def test_names_what_may_still_come_and_takes_it_away_when_it_does(
        self,
        processor: HandlerProcessor,
        fakes: Substrate,
        vm: MakeVm,
        later: Later,
        method: str,
    ) -> None:
        done(processor.create(vm()).result())
        before = things_of(fakes)
        fakes.fault(method, kind="late", until=later)

        outcome = processor.modify(grown(vm)).result()

        assert_unknown(outcome, method)
        settle(processor, later)
        assert things_of(fakes) == before

    def test_names_what_comes_after_its_undo_and_before_the_end(
        self, fake_site: Site, fakes: Substrate, vm: MakeVm, later: Later
    ) -> None:
        def come(progress: Progress) -> None:
            if (progress.step, progress.status) == ("volume data2", StepStatus.UNDONE):
                later.set()
                await_in_earnest(lambda: "plugged nic3" in things_of(fakes))

        with HandlerProcessor(fake_site, on_progress=come) as processor:
            done(processor.create(vm()).result())
            fakes.fault("compute.attach_port", kind="late", until=later)

            assert_unknown(processor.modify(grown(vm)).result(), "compute.attach_port")


class TestPortsOfAnotherServer:
    @pytest.fixture
    def server(self, processor: HandlerProcessor, vm: MakeVm) -> NodeSliver:
        server: NodeSliver = vm(id="vm-1", components=[])
        done(processor.create(server).result())
        return server

    @staticmethod
    def ports(*names: str) -> VNicPortsSliver:
        ports = [{"id": name, "server": "vm-1", "interface": {}} for name in names]
        return VNicPortsSliver.model_validate({"id": "net-1", "network": "red", "ports": ports})

    @pytest.mark.usefixtures("server")
    def test_a_create_takes_away_what_is_plugged_in_late(
        self, processor: HandlerProcessor, fakes: Substrate, later: Later
    ) -> None:
        fakes.fault("compute.attach_port", kind="late", until=later)

        assert_unknown(processor.create(self.ports("p1")).result(), "compute.attach_port")

        settle(processor, later)
        assert (fakes.plugs, fakes.ports) == ({}, {})

    @pytest.mark.usefixtures("server")
    def test_a_modify_takes_back_what_is_plugged_in_late(
        self, processor: HandlerProcessor, fakes: Substrate, later: Later
    ) -> None:
        done(processor.create(self.ports("p1")).result())
        before = dict(fakes.plugs), dict(fakes.ports)
        fakes.fault("compute.attach_port", kind="late", until=later)

        assert_unknown(processor.modify(self.ports("p1", "p2")).result(), "compute.attach_port")

        settle(processor, later)
        assert (fakes.plugs, fakes.ports) == before

    @pytest.mark.usefixtures("server")
    def test_a_modify_after_an_unfinished_one_knows_what_was_before_both(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        done(processor.create(self.ports("p1")).result())
        before = dict(fakes.plugs), dict(fakes.ports)
        for names in ("p2",), ("p2", "p3"):
            fakes.fault("network.delete_port", kind="fail")
            assert processor.modify(self.ports(*names)).result().left

        for outcome in [future.result() for future in processor.recover(undo=True)]:
            done(outcome)

        assert (fakes.plugs, fakes.ports) == before

    def test_a_modify_of_ports_that_are_not_all_plugged_in_keeps_its_entry(
        self,
        processor: HandlerProcessor,
        fakes: Substrate,
        later: Later,
        server: NodeSliver,
    ) -> None:
        done(processor.create(self.ports("p1")).result())
        done(processor.delete(server.ref()).result())
        done(processor.create(server).result())
        fakes.fault("compute.attach_port", kind="late", until=later)

        assert_unknown(processor.modify(self.ports("p1", "p2")).result(), "compute.attach_port")

        later.set()
        await_in_earnest(lambda: bool(fakes.plugs))
        assert processor.unfinished()


class TestDeleteAndActions:
    def test_delete_waits_for_what_it_gave_up(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm, later: Later
    ) -> None:
        done(processor.create(vm()).result())
        fakes.fault("compute.delete", kind="late", until=later)

        assert_unknown(processor.delete(REF).result(), "compute.delete")

        settle(processor, later)
        assert things_of(fakes) == set()

    def test_an_action_that_may_still_take_effect_says_so(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm, later: Later
    ) -> None:
        done(processor.create(vm()).result())
        fakes.fault("compute.start", kind="late", until=later)

        assert_unknown(processor.poa(vm(), "start").result(), "compute.start")


def test_a_late_action_undoes_no_operation_that_was_unfinished_before_it(
    processor: HandlerProcessor, fakes: Substrate, vm: MakeVm, later: Later
) -> None:
    done(processor.create(vm()).result())
    fakes.fault("volume.delete", kind="fail")
    processor.modify(vm(components=vm().components[:2])).result()
    unfinished = processor.unfinished()
    fakes.fault("compute.start", kind="late", until=later)

    assert_unknown(processor.poa(vm(), "start").result(), "compute.start")
    later.set()
    for _ in range(2):  # the second one is behind whatever the late call has caused
        done(processor.poa(vm(), "start").result())

    assert processor.unfinished() == unfinished != ()


def test_who_asked_is_told_of_each_operation_once(
    fake_site: Site, fakes: Substrate, vm: MakeVm, later: Later
) -> None:
    told: list[Outcome] = []
    fakes.fault("compute.create", kind="late", until=later)

    with HandlerProcessor(fake_site, on_done=told.append) as processor:
        outcome = processor.create(vm()).result()
        settle(processor, later)
        assert [each.operation for each in told] == [outcome.operation]


@pytest.mark.parametrize("kind", ["fail", "after"])
@pytest.mark.parametrize("method", MAKING)
def test_a_create_leaves_nothing_whether_it_fails_before_or_after_it_took_effect(
    processor: HandlerProcessor, fakes: Substrate, vm: MakeVm, method: str, kind: Any
) -> None:
    fakes.fault(method, kind=kind)

    outcome = processor.create(vm()).result()

    assert (outcome.status, outcome.left, things_of(fakes)) == (Status.FAILED, (), set())


@pytest.mark.parametrize("kind", ["fail", "after"])
@pytest.mark.parametrize("method", CHANGING)
def test_a_modify_leaves_all_as_it_was_whether_it_fails_before_or_after_it_took_effect(
    processor: HandlerProcessor, fakes: Substrate, vm: MakeVm, method: str, kind: Any
) -> None:
    done(processor.create(vm()).result())
    before = things_of(fakes)
    fakes.fault(method, kind=kind)

    outcome = processor.modify(grown(vm)).result()

    assert (outcome.status, outcome.left, things_of(fakes)) == (Status.FAILED, (), before)


class TestANetworkService:
    @pytest.fixture
    def site(self, fake_site: Site) -> Site:
        drivers = fake_site.drivers | {"L2Bridge": "fake"}
        switches = {"sw1": {"ports": {"p1": {}}}}
        values = fake_site.model_dump() | {"drivers": drivers, "switches": switches}
        return Site.model_validate(values)

    def test_keeps_its_claims_until_a_call_that_was_given_up_has_returned(
        self, processor: HandlerProcessor, site: Site, fakes: Substrate, later: Later
    ) -> None:
        port = {"id": "a", "device": "sw1", "port": "p1", "vlan": 100}
        values = {"id": "net-1", "name": "net", "interfaces": [port]}
        bridge, claims = SERVICES["L2Bridge"].model_validate(values), ServiceClaims(site)
        fakes.fault("service.apply", kind="late", until=later)

        assert_unknown(processor.create(bridge).result(), "service.apply")

        assert [str(claim) for claim in claims.of("net-1")] == ["VLAN 100 on p1 of sw1"]
        settle(processor, later)
        assert (fakes.services, claims.of("net-1")) == ({}, ())


def test_other_processes_expect_for_a_while_what_a_call_that_has_not_returned_may_do(
    later: Later,
) -> None:
    begun, call = time.time(), Call("create_server", later.wait)

    assert until([call]) == 0.0
    assert begun + 30 <= until([call], 30) <= time.time() + 30
