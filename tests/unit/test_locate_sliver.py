"""Slivers that leave their host or devices open: made, changed, recovered; many at once."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fabric_direct.calls.deadline import wait_until
from fabric_direct.drivers.contract import HostInventory
from fabric_direct.drivers.fake import Substrate, substrate
from fabric_direct.errors import (
    Conflict,
    DriverError,
    InvalidSliver,
    NoHost,
    QuotaExceeded,
    SliverBusy,
)
from fabric_direct.model import (
    NodeSliver,
    Operation,
    Outcome,
    PciAddress,
    SliverRef,
    State,
    Status,
)
from fabric_direct.operations.outcomes import HostRefusals, failed
from fabric_direct.operations.progress import Progress
from fabric_direct.placement.claims import Claims
from fabric_direct.placement.plan import BuildPlan
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from fabric_direct.state.file_store import FileStore
from fabric_direct.state.journal import Journal
from fabric_direct.state.store import sliver_lock
from tests.outcomes import done
from tests.unit.several_hosts import FakeCloud, served_by

MakeVm = Callable[..., NodeSliver]
NIC = {"type": "vNIC", "id": "nic1", "network": "red"}
GPU = {"type": "GPU", "id": "gpu"}
HOSTS = ("w1", "w2", "w3")


@pytest.fixture
def site(fake_site: Site) -> Site:
    """Three hosts; all else being equal w1 is the cheapest by name, and w2 and w3 have GPUs."""
    values = fake_site.model_dump() | {
        "hosts": {name: {} for name in HOSTS},
        "fake": {
            "hosts": {
                "w1": {"cores": 8, "ram": 32, "disk": 100},
                "w2": {"cores": 8, "ram": 32, "disk": 100, "gpus": 1},
                "w3": {"cores": 8, "ram": 32, "disk": 100, "gpus": 2, "vfs": 2},
            }
        },
        "placement": {"weights": {"scarcity": 0}},
    }
    return Site.model_validate(values)


@pytest.fixture
def hosts(site: Site) -> Iterator[dict[str, Substrate]]:
    things = {name: substrate(site, name) for name in HOSTS}
    yield things
    for each in things.values():
        each.mend()


@pytest.fixture
def processor(site: Site, hosts: dict[str, Substrate]) -> Iterator[HandlerProcessor]:
    with HandlerProcessor(site) as processor:
        yield processor
        for each in hosts.values():
            each.mend()


@pytest.fixture
def auto(vm: MakeVm) -> MakeVm:
    """Make a sliver that leaves its host open."""

    def make(**values: Any) -> NodeSliver:
        return vm(**({"host": "auto", "components": (NIC,)} | values))

    return make


def where(hosts: dict[str, Substrate], sliver: str = "sliver-1") -> list[str]:
    """Return the hosts that have a server of the sliver."""
    return [name for name, things in hosts.items() if sliver in things.servers]


def silence(things: Substrate) -> None:
    """Let a host answer nothing about its servers."""
    things.fault("compute.*", at=0, kind="fail")


def claimed(site: Site) -> list[str]:
    """Return the slivers with a claim."""
    claims = Claims(FileStore(site.state_dir), lifetime=1, timeout=1).since(time.time() + 0.001)
    return [claim.sliver for claim in claims]


class TestCreate:
    def test_it_is_made_on_the_cheapest_host_and_its_stamp_says_which(
        self, processor: HandlerProcessor, hosts: dict[str, Substrate], auto: MakeVm
    ) -> None:
        outcome = done(processor.create(auto()).result())

        assert where(hosts) == ["w1"]
        assert outcome.data == {"host": "w1"}
        assert hosts["w1"].servers["sliver-1"].stamp.sliver.host == "w1"

    def test_its_open_devices_get_functions_of_that_host(
        self, processor: HandlerProcessor, hosts: dict[str, Substrate], auto: MakeVm
    ) -> None:
        vf = {"type": "SharedNIC", "id": "vf", "uplink": "ens1", "vepa": True}
        done(processor.create(auto(components=(NIC, GPU, vf))).result())

        assert where(hosts) == ["w3"]
        there = {p.component: p.host_address for p in hosts["w3"].plugged["sliver-1"]}
        stamped = hosts["w3"].servers["sliver-1"].stamp.sliver.devices()
        assert {d.id: d.bdf for d in stamped} == {name: (at,) for name, at in there.items()}
        assert stamped[0].model == "A30"

    def test_a_sliver_that_names_its_host_gets_open_devices_of_that_host(
        self, processor: HandlerProcessor, hosts: dict[str, Substrate], auto: MakeVm
    ) -> None:
        done(processor.create(auto(host="w2", components=(GPU,))).result())
        assert [p.component for p in hosts["w2"].plugged["sliver-1"]] == ["gpu"]

    def test_twice_is_the_same_as_once(
        self, processor: HandlerProcessor, hosts: dict[str, Substrate], auto: MakeVm
    ) -> None:
        sliver = auto(components=(NIC, GPU))
        done(processor.create(sliver).result())
        (first,) = where(hosts)
        hosts[first].calls.clear()

        again = done(processor.create(sliver).result())

        assert where(hosts) == [first]
        assert "compute.create" not in hosts[first].calls
        assert {step.status.value for step in again.steps} <= {"already so", "done"}

    def test_one_that_is_there_and_differs_is_refused_by_its_host_alone(
        self, processor: HandlerProcessor, hosts: dict[str, Substrate], auto: MakeVm
    ) -> None:
        done(processor.create(auto()).result())

        outcome = processor.create(auto(components=(GPU,))).result()

        assert (outcome.status, where(hosts)) == (Status.FAILED, ["w1"])
        assert outcome.error
        assert "differs from what is asked for" in outcome.error.message

    def test_what_is_there_of_it_keeps_it_on_that_host(
        self, processor: HandlerProcessor, hosts: dict[str, Substrate], auto: MakeVm, vm: MakeVm
    ) -> None:
        hosts["w3"].fault("compute.create", kind="fail")
        hosts["w3"].fault("network.delete_port", at=0, kind="fail")
        assert processor.create(vm(host="w3")).result().status is Status.PARTIAL
        hosts["w3"].mend()
        Journal(FileStore(processor.site.state_dir)).end("sliver-1")

        done(processor.create(auto()).result())

        assert where(hosts) == ["w3"]

    def test_fits_nowhere_says_which_filters_refuse(
        self, processor: HandlerProcessor, hosts: dict[str, Substrate], auto: MakeVm, site: Site
    ) -> None:
        many = tuple({"type": "GPU", "id": f"gpu{n}"} for n in range(3))

        outcome = processor.create(auto(components=many)).result()

        assert outcome.status is Status.FAILED
        assert outcome.error
        assert outcome.error.kind == "NoHost"
        assert "3 hosts refused: no free " in outcome.error.message
        assert claimed(site) == []

    def test_an_unknown_host_is_refused_by_its_field(
        self, processor: HandlerProcessor, auto: MakeVm
    ) -> None:
        outcome = processor.create(auto(host="w9", components=(GPU,))).result()
        assert (outcome.status, outcome.error and outcome.error.field) == (Status.REFUSED, "host")

    def test_open_devices_alone_leave_no_host_open(
        self, processor: HandlerProcessor, auto: MakeVm
    ) -> None:
        outcome = processor.create(auto(host=None, components=(GPU,))).result()
        assert outcome.error
        assert outcome.error.message.startswith("host: must be given")

    def test_where_there_is_but_one_host_it_need_not_be_named(
        self, fake_site: Site, auto: MakeVm
    ) -> None:
        fakes = {"hosts": {"localhost": {"gpus": 1}}}
        one = Site.model_validate(fake_site.model_dump() | {"fake": fakes})
        with HandlerProcessor(one) as processor:
            for sliver in (auto(host=None, components=(GPU,)), auto(components=(GPU,))):
                done(processor.create(sliver).result())
        assert substrate(one, "localhost").plugged["sliver-1"]

    def test_a_host_in_maintenance_is_left_out(self, site: Site, auto: MakeVm) -> None:
        values = site.model_dump()
        values["hosts"]["w1"]["maintenance"] = "new disks"
        with HandlerProcessor(Site.model_validate(values)) as processor:
            assert done(processor.create(auto()).result()).data == {"host": "w2"}

    def test_its_progress_names_the_host(
        self, site: Site, hosts: dict[str, Substrate], auto: MakeVm, vm: MakeVm
    ) -> None:
        told: list[Progress] = []
        with HandlerProcessor(site, on_progress=told.append) as processor:
            done(processor.create(auto()).result())
            done(processor.create(vm(id="named", host="w2")).result())
        assert {(p.sliver, p.host) for p in told} == {("sliver-1", "w1"), ("named", "")}

    def test_claims_end_with_it(
        self, processor: HandlerProcessor, hosts: dict[str, Substrate], auto: MakeVm, site: Site
    ) -> None:
        held: list[list[str]] = []
        inner = hosts["w1"].call

        def call(method: str, effect: Callable[[], object]) -> object:
            if method == "compute.create":
                held.append(claimed(site))
            return inner(method, effect)

        hosts["w1"].call = call  # type: ignore[method-assign,assignment]
        done(processor.create(auto()).result())

        assert held == [["sliver-1"]]
        assert claimed(site) == []


class TestRefusals:
    def test_the_next_host_is_tried_and_the_outcome_names_the_first(
        self, processor: HandlerProcessor, hosts: dict[str, Substrate], auto: MakeVm
    ) -> None:
        hosts["w1"].fault("compute.create", kind="fail")

        outcome = done(processor.create(auto()).result())

        assert where(hosts) == ["w2"]
        assert not hosts["w1"].ports
        (warning,) = outcome.warnings
        assert warning.startswith("host w1 refused: compute.create failed")

    @pytest.mark.parametrize("method", ["compute.check", "network.check", "network.create_port"])
    def test_so_it_is_whatever_the_host_refuses(
        self, processor: HandlerProcessor, hosts: dict[str, Substrate], auto: MakeVm, method: str
    ) -> None:
        hosts["w1"].fault(method, at=0, kind="fail")
        done(processor.create(auto()).result())
        assert where(hosts) == ["w2"]

    def test_a_host_that_did_not_do_what_it_said_is_one_that_refuses(
        self, processor: HandlerProcessor, hosts: dict[str, Substrate], auto: MakeVm
    ) -> None:
        hosts["w1"].fault("compute.create", kind="lie")
        assert "w1 refused" in done(processor.create(auto()).result()).warnings[0]

    def test_an_image_that_one_host_has_not_is_found_on_another(
        self, processor: HandlerProcessor, hosts: dict[str, Substrate], auto: MakeVm
    ) -> None:
        hosts["w1"].images = hosts["w2"].images = set()
        done(processor.create(auto()).result())
        assert where(hosts) == ["w3"]

    def test_the_first_refusal_is_told_also_where_the_next_host_cannot_be_looked_for(
        self, processor: HandlerProcessor, hosts: dict[str, Substrate], auto: MakeVm
    ) -> None:
        hosts["w1"].fault("compute.create", kind="fail")
        for name in ("w2", "w3"):
            hosts[name].fault("compute.image_needs", at=0, kind="fail")
        answers, inner = iter(["the first"]), hosts["w1"].call

        def call(method: str, effect: Callable[[], object]) -> object:
            if method == "compute.image_needs" and next(answers, None) is None:
                raise DriverError("image_needs failed")
            return inner(method, effect)

        hosts["w1"].call = call  # type: ignore[method-assign,assignment]
        outcome = processor.create(auto()).result()

        assert outcome.error
        assert "w1 refused: compute.create failed" in outcome.error.message
        assert "image_needs failed" in outcome.error.message

    def test_taking_back_what_one_refused_takes_no_time_from_the_next(
        self, site: Site, hosts: dict[str, Substrate], auto: MakeVm
    ) -> None:
        """The second host needs longer than there is for taking back."""
        limits = site.limits.model_copy(update={"undo": 0.5})
        hosts["w1"].fault("compute.create", kind="fail")
        hosts["w2"].delay = 0.03

        with HandlerProcessor(site.model_copy(update={"limits": limits})) as processor:
            done(processor.create(auto()).result())

        assert where(hosts) == ["w2"]

    def test_no_more_are_tried_than_the_site_allows(
        self, site: Site, hosts: dict[str, Substrate], auto: MakeVm
    ) -> None:
        for name in ("w1", "w2"):
            hosts[name].fault("compute.create", at=0, kind="fail")
        once = Site.model_validate(site.model_dump() | {"placement": {"retries": 1}})

        with HandlerProcessor(once) as processor:
            outcome = processor.create(auto()).result()

        assert outcome.status is Status.FAILED
        assert [w.split(":")[0] for w in outcome.warnings] == ["host w1 refused", "host w2 refused"]
        assert hosts["w3"].calls["compute.create"] == 0

    def test_when_none_is_left_the_outcome_says_what_each_said(
        self, site: Site, hosts: dict[str, Substrate], auto: MakeVm
    ) -> None:
        for things in hosts.values():
            things.fault("compute.create", at=0, kind="fail")
        often = Site.model_validate(site.model_dump() | {"placement": {"retries": 9}})

        with HandlerProcessor(often) as processor:
            outcome = processor.create(auto()).result()

        assert (outcome.status, outcome.error and outcome.error.kind) == (Status.FAILED, "NoHost")
        assert outcome.error
        assert all(
            f"{name} refused: compute.create failed" in outcome.error.message for name in hosts
        )
        assert not any(things.ports for things in hosts.values())

    def test_what_every_host_refuses_at_once_is_a_refusal(
        self, processor: HandlerProcessor, hosts: dict[str, Substrate], auto: MakeVm
    ) -> None:
        volume = {"type": "Storage", "id": "data", "volume": "nowhere"}
        outcome = processor.create(auto(components=(volume,))).result()
        assert outcome.status is Status.REFUSED
        assert outcome.error
        assert outcome.error.field.startswith("components[0]")

    def test_what_leaves_something_is_not_tried_elsewhere(
        self, processor: HandlerProcessor, hosts: dict[str, Substrate], auto: MakeVm
    ) -> None:
        hosts["w1"].fault("compute.create", kind="fail")
        hosts["w1"].fault("network.delete_port", at=0, kind="fail")

        outcome = processor.create(auto()).result()

        assert outcome.status is Status.PARTIAL
        assert outcome.data == {"host": "w1"}
        assert hosts["w2"].calls["compute.create"] == 0

    @pytest.mark.parametrize(
        "error",
        [
            QuotaExceeded("the project may have no more"),
            SliverBusy("another process has it"),
            InvalidSliver("cannot be read", field="ssh_keys[0]"),
            KeyError("a mistake of ours"),
        ],
        ids=lambda error: type(error).__name__,
    )
    def test_what_no_other_host_does_better_is_not_tried_elsewhere(
        self, vm: MakeVm, error: Exception
    ) -> None:
        assert not HostRefusals(retries=2).take("w1", failed(Operation.CREATE, vm(), error))

    def test_a_host_that_is_chosen_again_is_the_last_one(self, vm: MakeVm) -> None:
        refusals, said = HostRefusals(retries=5), failed(Operation.CREATE, vm(), Conflict("no"))
        assert refusals.take("w1", said)
        assert not refusals.take("w1", said)

    def test_says_what_the_only_host_said_and_no_more(self, vm: MakeVm) -> None:
        refusals = HostRefusals(retries=2)
        refusals.take("w1", failed(Operation.CREATE, vm(), Conflict("no")))

        error = refusals.none_left(NoHost("no host is left")).error

        assert error
        assert error.message.endswith(": w1 refused: no")

    def test_hosts_that_do_not_answer_are_left_out_and_named(
        self, processor: HandlerProcessor, hosts: dict[str, Substrate], auto: MakeVm
    ) -> None:
        silence(hosts["w1"])

        outcome = done(processor.create(auto()).result())

        assert where(hosts) == ["w2"]
        assert "host w1 is left out: compute.inventory failed" in outcome.warnings[0]

    def test_one_that_may_have_the_sliver_is_waited_for(
        self, processor: HandlerProcessor, hosts: dict[str, Substrate], auto: MakeVm
    ) -> None:
        done(processor.create(auto()).result())
        silence(hosts["w1"])

        outcome = processor.create(auto()).result()

        assert outcome.status is Status.FAILED
        assert where(hosts) == ["w1"]

    def test_after_a_failure_that_left_nothing_it_may_go_elsewhere(
        self, site: Site, hosts: dict[str, Substrate], auto: MakeVm
    ) -> None:
        never = Site.model_validate(site.model_dump() | {"placement": {"retries": 0}})
        hosts["w1"].fault("compute.create", kind="fail")
        with HandlerProcessor(never) as processor:
            assert processor.create(auto()).result().status is Status.FAILED
            silence(hosts["w1"])
            done(processor.create(auto()).result())
        assert where(hosts) == ["w2"]

    def test_once_deleted_it_may_go_elsewhere(
        self, processor: HandlerProcessor, hosts: dict[str, Substrate], auto: MakeVm
    ) -> None:
        done(processor.create(auto()).result())
        done(processor.delete(auto()).result())
        silence(hosts["w1"])

        done(processor.create(auto()).result())

        assert where(hosts) == ["w2"]


class TestUnfinished:
    """A process was killed when it had decided, and had made a port at most."""

    def killed(self, site: Site, auto: MakeVm, **values: Any) -> NodeSliver:
        decided = auto(**({"host": "w3"} | values))
        data = decided.model_dump(mode="json", exclude_none=True)
        Journal(FileStore(site.state_dir)).begin(Operation.CREATE, data, owns_everything=True)
        return decided

    def test_recovery_resumes_where_it_was_begun(
        self, processor: HandlerProcessor, hosts: dict[str, Substrate], site: Site, auto: MakeVm
    ) -> None:
        self.killed(site, auto)

        (outcome,) = [future.result() for future in processor.recover()]

        done(outcome)
        assert where(hosts) == ["w3"]
        assert processor.unfinished() == ()

    def test_recovery_may_undo_it(
        self, processor: HandlerProcessor, hosts: dict[str, Substrate], site: Site, auto: MakeVm
    ) -> None:
        self.killed(site, auto)
        (outcome,) = [future.result() for future in processor.recover(undo=True)]
        done(outcome)
        assert where(hosts) == []

    def test_creating_it_again_resumes_where_it_was_begun_with_the_same_devices(
        self, processor: HandlerProcessor, hosts: dict[str, Substrate], site: Site, auto: MakeVm
    ) -> None:
        second = PciAddress.parse("41:00.0")
        self.killed(site, auto, components=(NIC, {**GPU, "model": "A30", "bdf": [str(second)]}))

        done(processor.create(auto(components=(NIC, GPU))).result())

        assert [p.host_address for p in hosts["w3"].plugged["sliver-1"]] == [second]

    def test_what_a_killed_process_had_claimed_for_it_is_no_hindrance(
        self, processor: HandlerProcessor, site: Site, auto: MakeVm
    ) -> None:
        whole = auto(components=(), capacities={"core": 8, "ram": 32, "disk": 100})
        placed = whole.model_copy(update={"host": "w1"})
        processor._queries.placer().resume(placed)
        for other in ("w2", "w3"):
            full = auto(id=other, host=other, components=(), capacities=whole.capacities)
            done(processor.create(full).result())

        assert done(processor.create(whole).result()).data == {"host": "w1"}

    def test_what_it_leaves_after_a_failure_is_tried_elsewhere_only_if_that_is_nothing(
        self, processor: HandlerProcessor, hosts: dict[str, Substrate], site: Site, auto: MakeVm
    ) -> None:
        self.killed(site, auto)
        hosts["w3"].fault("compute.create", kind="fail")

        outcome = done(processor.create(auto()).result())

        assert where(hosts) == ["w1"]
        assert "w3 refused" in outcome.warnings[0]


class TestOtherOperations:
    def test_a_plan_says_where_it_would_go_and_claims_nothing(
        self, processor: HandlerProcessor, hosts: dict[str, Substrate], auto: MakeVm, site: Site
    ) -> None:
        outcome = done(processor.plan(auto(components=(NIC, GPU))).result())

        assert (outcome.data["host"], outcome.data["next"]) == ("w2", ["w3"])
        assert [step.step for step in outcome.steps if step.finding] != []
        assert not any(things.servers or things.ports for things in hosts.values())
        assert claimed(site) == []

    def test_a_plan_of_one_that_is_there_is_one_of_what_differs(
        self, processor: HandlerProcessor, auto: MakeVm
    ) -> None:
        done(processor.create(auto(components=(NIC, GPU))).result())

        outcome = done(processor.plan(auto(components=(NIC, GPU))).result())

        assert (outcome.data["operation"], "host" in outcome.data) == ("modify", False)
        assert {s.finding.value for s in outcome.steps if s.finding} == {"already so"}

    def test_a_plan_of_its_removal_chooses_nothing(
        self, processor: HandlerProcessor, auto: MakeVm
    ) -> None:
        impossible = auto(capacities={"core": 900, "ram": 1, "disk": 1})
        done(processor.plan(impossible, Operation.DELETE).result())

    def test_a_probe_finds_it_as_wanted(self, processor: HandlerProcessor, auto: MakeVm) -> None:
        done(processor.create(auto(components=(NIC, GPU))).result())

        observed = done(processor.probe(auto(components=(NIC, GPU))).result()).observed

        assert observed
        assert (observed.host, observed.differences) == ("w2", ())

    def test_a_probe_of_one_that_is_not_there_says_so(
        self, processor: HandlerProcessor, auto: MakeVm
    ) -> None:
        observed = done(processor.probe(auto()).result()).observed
        assert observed
        assert observed.state is State.ABSENT

    def test_an_action_needs_no_host(self, processor: HandlerProcessor, auto: MakeVm) -> None:
        done(processor.create(auto()).result())
        done(processor.poa(auto(), "console", {"lines": 1}).result())
        absent = processor.poa(auto(id="absent"), "console", {"lines": 1}).result()
        assert absent.error
        assert absent.error.kind == "NotFound"

    def test_it_is_deleted_by_its_id_alone(
        self, processor: HandlerProcessor, hosts: dict[str, Substrate], auto: MakeVm
    ) -> None:
        done(processor.create(auto(components=(NIC, GPU))).result())
        done(processor.delete(SliverRef(id="sliver-1")).result())
        assert where(hosts) == []
        assert not any(things.records for things in hosts.values())


class TestModify:
    def test_keeps_host_and_devices(
        self, processor: HandlerProcessor, hosts: dict[str, Substrate], auto: MakeVm
    ) -> None:
        done(processor.create(auto(components=(GPU,))).result())
        before = hosts["w2"].plugged["sliver-1"]

        done(processor.modify(auto(components=(GPU, NIC))).result())

        assert hosts["w2"].plugged["sliver-1"] == before
        assert [port.component for port in hosts["w2"].servers["sliver-1"].ports] == ["nic1"]

    def test_a_new_open_device_is_one_of_its_host(
        self, processor: HandlerProcessor, hosts: dict[str, Substrate], auto: MakeVm, site: Site
    ) -> None:
        vf, more = {"type": "SharedNIC", "id": "vf"}, {"type": "GPU", "id": "gpu2"}
        done(processor.create(auto(components=(vf,))).result())

        done(processor.modify(auto(components=(vf, more))).result())

        assert {p.component for p in hosts["w3"].plugged["sliver-1"]} == {"vf", "gpu2"}
        assert claimed(site) == []
        done(processor.create(auto(components=(vf, more))).result())

    def test_its_own_size_is_not_counted_again(
        self, processor: HandlerProcessor, auto: MakeVm
    ) -> None:
        vf = {"type": "SharedNIC", "id": "vf"}
        whole = {"core": 8, "ram": 32, "disk": 100}
        done(processor.create(auto(components=(vf,), capacities=whole)).result())
        done(processor.modify(auto(components=(vf, GPU), capacities=whole)).result())

    def test_a_device_that_its_host_has_not_is_refused_and_changes_nothing(
        self, processor: HandlerProcessor, hosts: dict[str, Substrate], auto: MakeVm
    ) -> None:
        done(processor.create(auto()).result())

        outcome = processor.modify(auto(components=(NIC, GPU))).result()

        assert outcome.error
        assert outcome.error.kind == "NoHost"
        assert hosts["w1"].servers["sliver-1"].stamp.sliver.devices() == ()

    def test_the_same_numa_node_is_that_of_the_devices_that_it_has(
        self, processor: HandlerProcessor, hosts: dict[str, Substrate], auto: MakeVm
    ) -> None:
        """The VFs are on node 0 and so is the first GPU; the second one is on node 1."""
        rules, vf = {"same_numa_node": True}, {"type": "SharedNIC", "id": "vf"}
        second = {"type": "GPU", "id": "gpu", "bdf": ["41:00.0"]}
        done(processor.create(auto(host="w3", components=(second,))).result())

        outcome = processor.modify(auto(components=(second, vf), placement=rules)).result()

        assert outcome.error
        assert outcome.error.kind == "NoHost"

    def test_one_that_is_not_there_is_not_found(
        self, processor: HandlerProcessor, auto: MakeVm
    ) -> None:
        outcome = processor.modify(auto()).result()
        assert outcome.error
        assert outcome.error.kind == "NotFound"


class TestMany:
    def several(self, auto: MakeVm, number: int, **values: Any) -> tuple[NodeSliver, ...]:
        return tuple(auto(id=f"s{n}", **values) for n in range(number))

    def test_hosts_are_told_without_what_is_claimed(
        self, processor: HandlerProcessor, site: Site, auto: MakeVm
    ) -> None:
        plan = processor.place(self.several(auto, 1, components=(GPU,)))
        free = {h.name: len(h.devices) for h in processor.hosts()}
        processor._queries.placer().claim(plan, self.several(auto, 1, components=(GPU,)))

        assert free == {"w1": 0, "w2": 1, "w3": 4}
        assert {h.name: len(h.devices) for h in processor.hosts()} == free | {"w2": 0}

    def test_a_plan_is_carried_out_as_it_says(
        self, processor: HandlerProcessor, hosts: dict[str, Substrate], auto: MakeVm
    ) -> None:
        slivers = self.several(auto, 3, components=(GPU,))
        plan = processor.place(slivers)
        assert not any(things.servers for things in hosts.values())

        outcomes = [future.result() for future in processor.build(plan, slivers)]

        assert all(map(done, outcomes))
        planned = {a.request: a.chosen.host for a in plan.assignments}
        assert {o.sliver.id: o.data["host"] for o in outcomes} == planned
        assert sorted(planned.values()) == ["w2", "w3", "w3"]

    def test_as_many_as_fit_only_if_that_will_do(
        self, processor: HandlerProcessor, hosts: dict[str, Substrate], auto: MakeVm
    ) -> None:
        slivers = self.several(auto, 5, components=(GPU,))

        assert processor.place(slivers).assignments == ()
        some = processor.place(slivers, partial=True)
        outcomes = [future.result() for future in processor.build(some, slivers)]

        assert [done(outcome).sliver.id for outcome in outcomes] == ["s0", "s1", "s2"]
        assert [one.request for one in some.unplaced] == ["s3", "s4"]

    def test_a_stored_plan_is_refused_when_the_world_has_moved_on(
        self, processor: HandlerProcessor, hosts: dict[str, Substrate], auto: MakeVm, site: Site
    ) -> None:
        slivers = self.several(auto, 2, components=(GPU,))
        stored = processor.place(slivers).model_dump_json()
        done(processor.create(auto(id="quicker", host="w2", components=(GPU,))).result())

        with pytest.raises(Conflict):
            processor.build(BuildPlan.model_validate_json(stored), slivers)

        assert where(hosts, "s0") == where(hosts, "s1") == []
        assert claimed(site) == []

    def test_of_two_plans_for_the_same_device_one_is_carried_out(
        self, processor: HandlerProcessor, hosts: dict[str, Substrate], auto: MakeVm
    ) -> None:
        one, other = (auto(id=name, host="w2", components=(GPU,)) for name in ("one", "other"))
        plans = processor.place([one]), processor.place([other])

        futures = processor.build(plans[0], [one])
        with pytest.raises(Conflict):
            processor.build(plans[1], [other])

        assert [done(future.result()).ok for future in futures] == [True]
        assert where(hosts, "other") == []

    def test_a_processor_that_is_shut_down_claims_nothing(
        self, processor: HandlerProcessor, auto: MakeVm, site: Site
    ) -> None:
        plan = processor.place([auto()])
        processor.shutdown()
        with pytest.raises(Conflict, match="shut down"):
            processor.build(plan, [auto()])
        assert claimed(site) == []

    def test_one_that_is_shut_down_while_it_claims_gives_its_claims_up(
        self, site: Site, hosts: dict[str, Substrate], auto: MakeVm
    ) -> None:
        inner = hosts["w1"].call
        with HandlerProcessor(site) as processor:
            plan = processor.place([auto()])

            def call(method: str, effect: Callable[[], object]) -> object:
                processor.shutdown()
                return inner(method, effect)

            hosts["w1"].call = call  # type: ignore[method-assign,assignment]
            with pytest.raises(Conflict, match="shut down"):
                processor.build(plan, [auto()])

        assert claimed(site) == []

    def test_a_plan_for_others_is_refused(self, processor: HandlerProcessor, auto: MakeVm) -> None:
        plan = processor.place(self.several(auto, 2))
        with pytest.raises(InvalidSliver, match="other slivers"):
            processor.build(plan, self.several(auto, 1))

    def test_a_plan_that_names_another_host_than_the_sliver_is_refused(
        self, processor: HandlerProcessor, auto: MakeVm
    ) -> None:
        plan = processor.place([auto()])
        with pytest.raises(Conflict):
            processor.build(plan, [auto(host="w3")])

    def test_what_is_there_already_stays_and_needs_no_room(
        self, processor: HandlerProcessor, hosts: dict[str, Substrate], auto: MakeVm
    ) -> None:
        slivers = self.several(auto, 3, components=(GPU,))
        plan = processor.place(slivers)
        first = [done(future.result()) for future in processor.build(plan, slivers)]

        again = processor.place(slivers)
        for chosen in (again, plan):
            for future in processor.build(chosen, slivers):
                done(future.result())

        assert again.cost == 0
        assert {a.request: a.chosen.host for a in again.assignments} == {
            o.sliver.id: o.data["host"] for o in first
        }
        assert sum(len(things.servers) for things in hosts.values()) == 3

    def test_a_host_that_refuses_its_part_of_a_plan_is_left_for_another(
        self, processor: HandlerProcessor, hosts: dict[str, Substrate], auto: MakeVm
    ) -> None:
        hosts["w2"].fault("device.attach", kind="fail")
        slivers = self.several(auto, 2, components=(GPU,))

        outcomes = [
            future.result() for future in processor.build(processor.place(slivers), slivers)
        ]

        assert all(map(done, outcomes))
        assert {o.data["host"] for o in outcomes} == {"w3"}

    def test_one_that_is_cancelled_gives_up_its_claim(
        self, site: Site, hosts: dict[str, Substrate], auto: MakeVm
    ) -> None:
        gate = threading.Event()
        inner = hosts["w1"].call

        def call(method: str, effect: Callable[[], object]) -> object:
            if method == "compute.create":
                gate.wait(60)
            return inner(method, effect)

        hosts["w1"].call = call  # type: ignore[method-assign,assignment]
        slivers = self.several(auto, 2, host="w1")
        with HandlerProcessor(site, workers=1) as processor:
            running, waiting = processor.build(processor.place(slivers), slivers)
            assert waiting.cancel()
            assert claimed(site) == ["s0"]
            gate.set()
            done(running.result(60))

    def test_one_that_cannot_begin_gives_up_its_claim(
        self, processor: HandlerProcessor, site: Site, auto: MakeVm
    ) -> None:
        plan = processor.place([auto()])
        with FileStore(site.state_dir).exclusive(sliver_lock("sliver-1"), "it", timeout=1):
            (future,) = processor.build(plan, [auto()])
            outcome = future.result()

        assert outcome.error
        assert outcome.error.kind == "SliverBusy"
        wait_until("the claim to end", lambda: not claimed(site), timeout=60)

    def test_a_claim_that_has_expired_in_the_queue_is_made_anew(
        self, site: Site, hosts: dict[str, Substrate], auto: MakeVm
    ) -> None:
        slivers = self.several(auto, 1, components=(GPU,))
        with HandlerProcessor(site) as processor:
            plan = processor.place(slivers)
            (planned,) = processor._queries.placer().claim(plan, slivers)
            Claims(FileStore(site.state_dir), lifetime=1, timeout=1).drop("s0")
            done(processor.create(auto(id="quicker", host="w2", components=(GPU,))).result())
            outcome = done(processor._create_planned(slivers[0], planned).result())
        assert outcome.warnings == ()
        assert where(hosts, "s0") == ["w3"]

    def test_an_explanation_says_what_refuses_each_host(
        self, processor: HandlerProcessor, auto: MakeVm
    ) -> None:
        told = {v.host: v for v in processor.explain(auto(components=(GPU,))).hosts}
        assert told["w1"].refused_by == "devices"
        assert told["w2"].cost is not None

    def test_two_processors_and_eight_threads_never_take_more_than_there_is(
        self, site: Site, hosts: dict[str, Substrate], auto: MakeVm
    ) -> None:
        """The fakes have no room for more than fits: a host that had to refuse would be named."""
        slivers = self.several(auto, 14, capacities={"core": 2, "ram": 2, "disk": 2}, components=())
        with HandlerProcessor(site) as one, HandlerProcessor(site) as other:
            with ThreadPoolExecutor(8) as threads:
                futures = [
                    threads.submit((one, other)[n % 2].create, sliver)
                    for n, sliver in enumerate(slivers)
                ]
            outcomes: list[Outcome] = [future.result().result(60) for future in futures]

        by_status = Counter(outcome.status for outcome in outcomes)
        assert by_status == {Status.DONE: 12, Status.FAILED: 2}
        assert {len(things.servers) for things in hosts.values()} == {4}
        assert not any("refused" in warning for o in outcomes for warning in o.warnings)
        assert {o.error.kind for o in outcomes if o.error} == {"NoHost"}


class CloudOfThree(FakeCloud):
    """It tells what its hosts have."""

    chosen = "w3"

    def inventory(self) -> tuple[HostInventory, ...]:
        things = self.substrate
        on = {host: [s for s in things.servers.values() if s.host == host] for host in HOSTS}
        return tuple(
            HostInventory(h, 8, 32 * 1024, 100, slivers={s.sliver: None for s in on[h]})
            for h in HOSTS
        )


class TestCloud:
    @pytest.fixture
    def site(self, site: Site) -> Site:
        """Nobody looks into its guests, which are on the substrates of the hosts."""
        return site.model_copy(update={"guest": "none"})

    @pytest.fixture
    def cloud(
        self, site: Site, hosts: dict[str, Substrate], monkeypatch: pytest.MonkeyPatch
    ) -> Substrate:
        return served_by(CloudOfThree, site, monkeypatch)

    def test_a_worker_is_chosen_where_that_is_left_open(
        self, cloud: Substrate, processor: HandlerProcessor, auto: MakeVm
    ) -> None:
        for _ in range(2):
            done(processor.create(auto(components=())).result())
        assert cloud.servers["sliver-1"].host == "w1"
        assert cloud.servers["sliver-1"].stamp.sliver.host == "w1"

    def test_it_chooses_by_itself_where_none_is_named(
        self, cloud: Substrate, processor: HandlerProcessor, auto: MakeVm
    ) -> None:
        done(processor.create(auto(host=None, components=())).result())
        assert cloud.servers["sliver-1"].host == "w3"
        assert cloud.calls["inventory"] == 0

    def test_open_devices_have_a_worker_chosen_that_has_them(
        self, cloud: Substrate, processor: HandlerProcessor, auto: MakeVm
    ) -> None:
        sliver = auto(host=None, components=(GPU,))
        for _ in range(2):
            done(processor.create(sliver).result())
        assert cloud.servers["sliver-1"].host == "w2"

        done(processor.modify(sliver).result())
        done(processor.modify(auto(host=None, components=())).result())

    def test_a_worker_that_refuses_is_left_for_another(
        self, cloud: Substrate, processor: HandlerProcessor, auto: MakeVm
    ) -> None:
        cloud.fault("compute.create", kind="fail")
        outcome = done(processor.create(auto(components=())).result())
        assert "host w1 refused" in outcome.warnings[0]
        assert cloud.servers["sliver-1"].host == "w2"

    def test_recovery_finds_it_on_its_worker(
        self, cloud: Substrate, processor: HandlerProcessor, auto: MakeVm, site: Site
    ) -> None:
        decided = auto(host="w2", components=()).model_dump(mode="json", exclude_none=True)
        Journal(FileStore(site.state_dir)).begin(Operation.CREATE, decided, owns_everything=True)
        assert [done(future.result()).ok for future in processor.recover()] == [True]
        assert cloud.servers["sliver-1"].host == "w2"
