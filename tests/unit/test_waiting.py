"""What is waited for, told by the loops that wait."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, repeat
from queue import SimpleQueue
from typing import Any

import pytest

from fabric_direct.calls.deadline import Deadline, Interruption, bounded, wait_until
from fabric_direct.calls.reading import Reading
from fabric_direct.calls.waiting import Waiting, heard_by, waiting_for
from fabric_direct.drivers.fake import FakeGuest
from fabric_direct.drivers.openstack.client.poller import wait_for
from fabric_direct.drivers.openstack.client.session import cloud
from fabric_direct.engine.run import Event, run
from fabric_direct.engine.step import Flow, Step
from fabric_direct.errors import Interrupted, NotFound
from fabric_direct.model import Finding, NodeSliver, SliverRef, StepStatus
from fabric_direct.operations.progress import Progress
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from fabric_direct.state.locks import exclusive
from fabric_direct.state.store import sliver_lock
from tests.unit.openstack_api import OpenStackApi, neutron_port

MakeVm = Callable[..., NodeSliver]
OVER = Waiting("")


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fabric_direct.calls.deadline.time.sleep", lambda _: None)


@pytest.fixture
def heard() -> Iterator[list[Waiting]]:
    said: list[Waiting] = []
    with heard_by(said.append):
        yield said


def third_time() -> Any:
    answers = chain([False, False], repeat(True))
    return lambda: next(answers)


class TestWhatIsSaid:
    def test_is_each_change_once_and_that_it_is_over(self, heard: list[Waiting]) -> None:
        with waiting_for("the server to be ACTIVE") as still:
            for seen in ("BUILD", "BUILD", "ACTIVE"):
                still(seen)

        what = "the server to be ACTIVE"
        assert heard == [Waiting(what, "BUILD"), Waiting(what, "ACTIVE"), OVER]

    def test_is_nothing_where_nobody_listens(self) -> None:
        with waiting_for("it") as still:
            still("nothing")

    def test_is_what_a_condition_waits_for_that_does_not_hold_at_once(
        self, heard: list[Waiting]
    ) -> None:
        wait_until("it", third_time(), timeout=60)
        wait_until("something that is so", lambda: True, timeout=60)

        assert heard == [Waiting("it"), OVER]

    def test_is_over_also_if_the_waiting_fails(self, heard: list[Waiting]) -> None:
        def gone_at_the_second_look() -> bool:
            if heard:
                raise NotFound("it is gone")
            return False

        with pytest.raises(NotFound):
            wait_until("it", gone_at_the_second_look, timeout=60)

        assert heard == [Waiting("it"), OVER]

    def test_by_the_cloud_is_the_status_that_was_read_last(
        self, api: OpenStackApi, heard: list[Waiting], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("fabric_direct.drivers.openstack.client.poller._SHORTEST", 0.0)
        for status in ("DOWN", "ACTIVE"):
            found = {"ports": [neutron_port(status=status)]}
            api.answer("GET", "network", "/ports", found)

        connection = cloud(api.settings)
        wait_for(
            connection, "port", "p", lambda p: p.status == "ACTIVE", timeout=60, what="port p up"
        )

        assert heard == [Waiting("port p up", "port DOWN"), OVER]


class Waits(Step):
    def __init__(self, name: str = "guest") -> None:
        super().__init__(name)
        self.made = False

    def check(self) -> Finding:
        return Finding.ALREADY_SO if self.made else Finding.WILL_CHANGE

    def make(self) -> None:
        wait_until("the guest to answer", third_time(), timeout=60)
        self.made = True


class TestEvents:
    def test_of_a_step_say_what_it_waits_for_between_its_begin_and_its_end(self) -> None:
        events: list[Event] = []
        with ThreadPoolExecutor(1) as pool:
            run(Flow.of([Waits()]), pool, deadline=Deadline.within(60), listener=events.append)

        said = [(e.waiting, e.report and e.report.status) for e in events]
        waits = Waiting("the guest to answer")
        assert said == [(None, None), (waits, None), (OVER, None), (None, StepStatus.DONE)]
        assert {event.step for event in events} == {"guest"}

    def test_reach_the_caller_of_the_library(
        self, fake_site: Site, vm: MakeVm, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def wait(*_: object, timeout: float) -> None:
            wait_until("the guest to answer", third_time(), timeout=timeout)

        monkeypatch.setattr(FakeGuest, "wait", wait)
        told: list[Progress] = []
        with HandlerProcessor(fake_site, on_progress=told.append) as processor:
            processor.create(vm()).result()

        waited = [(p.step, p.status, p.waiting) for p in told if p.waiting]
        assert waited == [("guest", None, Waiting("the guest to answer")), ("guest", None, OVER)]

    def test_tell_that_another_process_has_the_sliver(self, fake_site: Site) -> None:
        heard: SimpleQueue[Progress] = SimpleQueue()
        path = fake_site.state_dir / "locks" / sliver_lock("vm1")
        with HandlerProcessor(fake_site, on_progress=heard.put) as processor:
            with exclusive(path, "sliver vm1", timeout=1):
                processor.delete(SliverRef(id="vm1"))
                told = heard.get(timeout=60)
            assert (told.step, told.status) == ("", None)
            assert told.waiting == Waiting("another process to leave sliver vm1")


class TestInterruption:
    def test_ends_the_waiting_of_a_step(self) -> None:
        interruption = Interruption()
        interruption.begin()

        with interruption.applies(), pytest.raises(Interrupted, match="waiting for the guest"):
            wait_until("the guest", lambda: False, timeout=60)

    def test_leaves_the_waiting_within_a_changing_call_alone(self) -> None:
        class Driver:
            def create(self) -> str:
                interruption.begin()
                wait_until("the server", third_time(), timeout=60)
                return "made"

        interruption = Interruption()

        with interruption.applies():
            assert bounded(Driver(), "compute", Deadline.within(60), 60).create() == "made"

    def test_gives_up_a_call_that_only_waits(self) -> None:
        class Driver:
            def wait(self, *, timeout: float) -> None:
                interruption.begin()
                never.result(timeout)

        interruption, never = Interruption(), Future[None]()
        driver = bounded(
            Driver(), "guest", Deadline.within(60), 60, reading=Reading(frozenset({"wait"}))
        )

        with interruption.applies(), pytest.raises(Interrupted, match=r"guest\.wait was"):
            driver.wait(timeout=60)
        never.set_result(None)
