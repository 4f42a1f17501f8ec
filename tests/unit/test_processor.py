"""Who runs when: order, parallelism, cancelling, shutting down, forks, asyncio, other processes."""

import asyncio
import logging
import multiprocessing
import os
import re
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fabric_direct.drivers.contract import DeviceRecord, HostDevice, PciFunction
from fabric_direct.drivers.fake import FakeCompute, Substrate, substrate
from fabric_direct.errors import Conflict, DeviceUnclean, InvalidSliver, NotFound
from fabric_direct.model import (
    DeviceState,
    NodeSliver,
    Operation,
    Outcome,
    PciAddress,
    SliverRef,
    Status,
    StepStatus,
)
from fabric_direct.operations.progress import Progress
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import AllowedDevice, Site
from fabric_direct.state.locks import exclusive

MakeVm = Callable[..., NodeSliver]


class Gate:
    """Holds the fakes' servers up until it is opened, and says which have come to it."""

    def __init__(self, fakes: Substrate) -> None:
        self.opened, self.reached = threading.Event(), threading.Semaphore(0)
        self.order: list[str] = []
        inner = fakes.call

        def call(method: str, effect: Callable[[], object]) -> object:
            if method == "compute.create":
                self.reached.release()
                self.opened.wait(60)
            if method in {"compute.create", "compute.delete"}:
                self.order.append(method)
            return inner(method, effect)

        fakes.call = call  # type: ignore[method-assign,assignment]

    def wait_for(self, number: int) -> None:
        for _ in range(number):
            assert self.reached.acquire(timeout=60)


@pytest.fixture
def gate(fakes: Substrate) -> Gate:
    return Gate(fakes)


def test_operations_on_one_sliver_keep_their_order(
    processor: HandlerProcessor, gate: Gate, vm: MakeVm
) -> None:
    futures = [
        processor.create(vm()),
        processor.delete(vm()),
        processor.create(vm()),
        processor.delete(vm()),
    ]
    gate.opened.set()

    assert all(future.result(60).ok for future in futures)
    assert gate.order == ["compute.create", "compute.delete"] * 2


def test_different_slivers_run_at_the_same_time(
    processor: HandlerProcessor, gate: Gate, vm: MakeVm
) -> None:
    futures = [processor.create(vm(id=f"s{n}")) for n in range(4)]

    gate.wait_for(4)
    gate.opened.set()

    assert all(future.result(60).ok for future in futures)


def test_no_more_run_at_once_than_there_are_workers(
    fake_site: Site, gate: Gate, vm: MakeVm
) -> None:
    with HandlerProcessor(fake_site, workers=2) as processor:
        futures = [processor.create(vm(id=f"s{n}")) for n in range(3)]
        gate.wait_for(2)
        assert not gate.reached.acquire(timeout=0.2)
        gate.opened.set()
        assert all(future.result(60).ok for future in futures)


def test_what_has_not_begun_can_be_cancelled(
    processor: HandlerProcessor, fakes: Substrate, gate: Gate, vm: MakeVm
) -> None:
    first, second = processor.create(vm()), processor.delete(vm())
    gate.wait_for(1)

    assert second.cancel()
    assert not first.cancel()
    gate.opened.set()

    assert first.result(60).ok
    assert "sliver-1" in fakes.servers
    with pytest.raises(CancelledError):
        second.result()


def test_what_follows_a_cancelled_operation_still_runs(
    processor: HandlerProcessor, fakes: Substrate, gate: Gate, vm: MakeVm
) -> None:
    processor.create(vm())
    cancelled, last = processor.probe(vm()), processor.delete(vm())
    gate.wait_for(1)
    cancelled.cancel()
    gate.opened.set()

    assert last.result(60).ok
    assert not fakes.servers


def test_the_callback_gets_each_outcome_once(fake_site: Site, vm: MakeVm) -> None:
    outcomes: list[Outcome] = []

    with HandlerProcessor(fake_site, on_done=outcomes.append) as processor:
        created = processor.create(vm()).result()
        deleted = processor.delete(vm()).result()

    assert outcomes == [created, deleted]


def test_a_callback_that_raises_does_no_harm_and_is_told(
    fake_site: Site, vm: MakeVm, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: Outcome) -> None:
        raise ValueError("broken callback")

    with HandlerProcessor(fake_site, on_done=broken) as processor:
        assert processor.create(vm()).result().ok
        assert processor.probe(vm()).result().ok

    told = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.getMessage() for record in told] == [
        "on_done failed for create of sliver-1",
        "on_done failed for probe of sliver-1",
    ]
    assert "broken callback" in caplog.text


class TestACallbackThatEndsItsThread:
    """As ``sys.exit()`` does in a callback: the future ends with the outcome all the same."""

    @staticmethod
    def leave(*_: object) -> None:
        raise SystemExit(3)

    def test_when_an_operation_is_done(self, fake_site: Site, vm: MakeVm) -> None:
        with HandlerProcessor(fake_site, on_done=self.leave) as processor:
            assert processor.create(vm()).result(60).ok

    def test_when_a_step_begins(self, fake_site: Site, vm: MakeVm) -> None:
        with HandlerProcessor(fake_site, on_progress=self.leave) as processor:
            assert processor.create(vm()).result(60).ok

    def test_in_a_driver_it_is_a_failure_as_any_other(
        self,
        processor: HandlerProcessor,
        fakes: Substrate,
        vm: MakeVm,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(FakeCompute, "create", self.leave)

        outcome = processor.create(vm()).result(60)

        assert outcome.status is Status.FAILED
        assert outcome.error
        assert "SystemExit(3)" in outcome.error.message
        assert not fakes.ports


def test_a_callback_that_waits_for_its_own_operation_is_refused(
    fake_site: Site, vm: MakeVm, caplog: pytest.LogCaptureFixture
) -> None:
    held: list[HandlerProcessor] = []

    def wait(_: Outcome) -> None:
        held[0].shutdown()

    with HandlerProcessor(fake_site, on_done=wait) as processor:
        held.append(processor)
        assert processor.create(vm()).result(60).ok
    assert "an operation's callback cannot wait for it" in caplog.text


def test_a_callback_that_waits_for_the_next_operation_on_its_sliver_is_refused(
    fake_site: Site, vm: MakeVm, caplog: pytest.LogCaptureFixture
) -> None:
    """It would begin only when the callback has returned."""
    held: list[HandlerProcessor] = []
    begun: list[Future[Outcome]] = []

    def delete(outcome: Outcome) -> None:
        if outcome.operation is Operation.CREATE:
            begun.append(held[0].delete(outcome.sliver))
            begun[0].result()

    with HandlerProcessor(fake_site, on_done=delete) as processor:
        held.append(processor)
        assert processor.create(vm()).result(60).ok
        assert begun[0].result(60).ok
    assert "the callback of an operation on sliver-1 cannot wait for the next one" in caplog.text


_NO_SLIVERS: list[Any] = [{"id": "x"}, None, "x", 5]


def test_an_error_that_a_driver_does_not_foresee_is_told_as_that_drivers(
    processor: HandlerProcessor, vm: MakeVm, monkeypatch: pytest.MonkeyPatch
) -> None:
    always = KeyError("uuid")

    def create(*_: object) -> None:
        raise always

    monkeypatch.setattr(FakeCompute, "create", create)

    processor.create(vm()).result()
    error = processor.create(vm()).result().error

    assert error is not None
    assert error.kind == "KeyError"
    assert error.message == (
        "'uuid'; raised by compute.create (fabric_direct.drivers.fake.compute.FakeCompute)"
    )


class TestWhatIsNotASliver:
    """It is refused at once, by the call: nothing is begun, and the processor can be left."""

    @pytest.mark.parametrize("wrong", _NO_SLIVERS, ids=repr)
    @pytest.mark.parametrize(
        "operation",
        ["create", "modify", "reconcile", "delete", "probe", "plan", "adopt", "differences"],
    )
    def test_is_refused_by_each_operation(
        self, fake_site: Site, operation: str, wrong: Any
    ) -> None:
        with (
            HandlerProcessor(fake_site) as processor,
            pytest.raises(TypeError, match=f"not {type(wrong).__name__}"),
        ):
            getattr(processor, operation)(wrong)
        assert processor.pending() == ()

    @pytest.mark.parametrize("wrong", _NO_SLIVERS, ids=repr)
    def test_is_refused_by_an_action(self, fake_site: Site, wrong: Any) -> None:
        with HandlerProcessor(fake_site) as processor, pytest.raises(TypeError):
            processor.poa(wrong, "start")

    @pytest.mark.parametrize("wrong", _NO_SLIVERS, ids=repr)
    @pytest.mark.parametrize("operation", ["create_all", "delete_all", "place"])
    def test_is_refused_among_others(
        self, fake_site: Site, vm: MakeVm, fakes: Substrate, operation: str, wrong: Any
    ) -> None:
        with HandlerProcessor(fake_site) as processor, pytest.raises(TypeError):
            getattr(processor, operation)([vm(), wrong])
        assert not fakes.servers

    @pytest.mark.parametrize("operation", ["create_all", "delete_all"])
    def test_one_sliver_is_not_several(self, fake_site: Site, vm: MakeVm, operation: str) -> None:
        """It is a collection of its fields."""
        with (
            HandlerProcessor(fake_site) as processor,
            pytest.raises(TypeError, match="expected several slivers, not one: "),
        ):
            getattr(processor, operation)(vm())

    @pytest.mark.parametrize("operation", ["create", "modify"])
    def test_a_reference_does_not_say_what_to_make(self, fake_site: Site, operation: str) -> None:
        with (
            HandlerProcessor(fake_site) as processor,
            pytest.raises(TypeError, match="expected Sliver, not SliverRef"),
        ):
            getattr(processor, operation)(SliverRef(id="x"))

    def test_a_text_is_not_a_collection_of_ids(
        self, fake_site: Site, vm: MakeVm, fakes: Substrate
    ) -> None:
        """Each of its letters, or parts, would be one that is expected."""
        with HandlerProcessor(fake_site) as processor:
            assert processor.create(vm(id="vm-1")).result(60).ok
            with pytest.raises(TypeError, match="not a text: 'web'"):
                processor.find_unexpected("web")
            with pytest.raises(TypeError):
                processor.sweep("web", "token", at_most=100)
            with pytest.raises(TypeError):
                processor.drift("localhost")
            with pytest.raises(NotFound):
                processor.drift(["nohost"])
        assert fakes.servers

    @pytest.mark.parametrize("wrong", [None, 5, ["sliver-1"]], ids=repr)
    @pytest.mark.parametrize("question", ["strangers", "steps_under_way"])
    def test_is_refused_in_place_of_a_name(
        self, processor: HandlerProcessor, question: str, wrong: Any
    ) -> None:
        with pytest.raises(TypeError, match="expected str, not "):
            getattr(processor, question)(wrong)

    def test_is_refused_in_place_of_whose_history_is_asked(
        self, processor: HandlerProcessor
    ) -> None:
        wrong: Any = SliverRef(id="sliver-1")
        with pytest.raises(TypeError, match="expected str or NoneType, not SliverRef"):
            processor.history(wrong)

    def test_is_refused_in_place_of_a_server(self, processor: HandlerProcessor) -> None:
        wrong: Any = ["sliver-1"]
        with pytest.raises(TypeError, match="expected Server, not str"):
            processor.lacking(wrong)

    @pytest.mark.parametrize("operation", [Operation.POA, Operation.PROBE, Operation.ADOPT])
    def test_what_has_no_plan_is_refused(
        self, processor: HandlerProcessor, vm: MakeVm, operation: Operation
    ) -> None:
        said = f"there is no plan of {operation}: only of create, modify, delete, reconcile"
        with pytest.raises(ValueError, match=said):
            processor.plan(vm(), operation)

    @pytest.mark.parametrize("several", ["create_all", "delete_all"])
    def test_one_that_is_given_twice_is_refused(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm, several: str
    ) -> None:
        with pytest.raises(InvalidSliver, match="sliver sliver-1 is given twice"):
            getattr(processor, several)([vm(name="one"), vm(name="two")])
        assert processor.pending() == ()
        assert not fakes.servers

    def test_data_of_an_action_are_values_by_name(self, fake_site: Site, vm: MakeVm) -> None:
        wrong: Any = ["hard"]
        with HandlerProcessor(fake_site) as processor, pytest.raises(TypeError, match="not list"):
            processor.poa(vm(), "reboot", wrong)

    def test_an_action_has_a_name(self, processor: HandlerProcessor, vm: MakeVm) -> None:
        wrong: Any = {"hard": True}
        with pytest.raises(TypeError, match="expected str, not dict"):
            processor.poa(vm(), wrong)


async def _tell_later(_: object) -> None:
    """Be a callback that nobody awaits."""


class _TellLater:
    async def __call__(self, _: object) -> None:
        """Be another one."""


class TestAProcessor:
    @pytest.mark.parametrize("wrong", [{"site": "TEST"}, "site.yaml", None], ids=repr)
    def test_is_made_of_a_site(self, wrong: Any) -> None:
        with pytest.raises(TypeError, match=f"expected Site, not {type(wrong).__name__}"):
            HandlerProcessor(wrong)

    @pytest.mark.parametrize("callback", ["on_progress", "on_done"])
    @pytest.mark.parametrize(
        ("wrong", "why"),
        [
            ("print", "expected a callable"),
            (_tell_later, "nothing awaits"),
            (partial(_tell_later), "nothing awaits"),
            (_TellLater(), "nothing awaits"),
        ],
        ids=["a name", "a coroutine function", "a partial one", "an object"],
    )
    def test_tells_functions(self, fake_site: Site, callback: str, wrong: Any, why: str) -> None:
        with pytest.raises(TypeError, match=f"{callback}: {why}"):
            HandlerProcessor(fake_site, **{callback: wrong})


class TestLog:
    @pytest.fixture(autouse=True)
    def told(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "fabric_direct.processor")

    def test_says_of_a_success_how_long_it_took(
        self, processor: HandlerProcessor, vm: MakeVm, caplog: pytest.LogCaptureFixture
    ) -> None:
        processor.create(vm()).result()

        assert re.fullmatch(r"create sliver-1: done in [0-9.]+ s", caplog.messages[-1])

    def test_warns_of_a_failure_with_its_reason(
        self,
        processor: HandlerProcessor,
        fakes: Substrate,
        vm: MakeVm,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        fakes.fault("compute.create", kind="fail")

        processor.create(vm()).result()

        (told,) = (r for r in caplog.records if r.name == "fabric_direct.processor")
        assert told.levelno == logging.WARNING
        assert re.fullmatch(
            r"create sliver-1: failed in [0-9.]+ s: compute.create failed: .*", told.getMessage()
        )

    def test_names_what_a_failure_left(
        self,
        processor: HandlerProcessor,
        fakes: Substrate,
        vm: MakeVm,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        fakes.fault("compute.create", kind="fail")
        fakes.fault("network.delete_port", at=0, kind="fail")

        outcome = processor.create(vm()).result()

        assert outcome.left
        assert caplog.messages[-1].endswith(f"; left: {', '.join(outcome.left)}")


def test_progress_names_operation_step_and_count(fake_site: Site, vm: MakeVm) -> None:
    told: list[Progress] = []

    with HandlerProcessor(fake_site, on_progress=told.append) as processor:
        processor.create(vm()).result()

    ended = [p for p in told if p.status is not None]
    assert {p.operation for p in told} == {Operation.CREATE}
    assert [p.done for p in ended] == list(range(1, ended[0].total + 1))
    assert ended[-1].step == "verify"


class TestShutdown:
    def test_waits_for_what_was_asked_for(
        self, processor: HandlerProcessor, gate: Gate, vm: MakeVm
    ) -> None:
        futures = [processor.create(vm()), processor.probe(vm())]
        gate.opened.set()

        assert processor.shutdown()
        assert all(future.done() for future in futures)

    def test_cancels_what_has_not_begun_when_its_time_is_up(
        self, processor: HandlerProcessor, gate: Gate, vm: MakeVm
    ) -> None:
        running, waiting = processor.create(vm()), processor.delete(vm())
        gate.wait_for(1)

        assert not processor.shutdown(timeout=0.05)

        assert waiting.cancelled()
        gate.opened.set()
        assert running.result(60).ok

    def test_takes_no_more_operations(self, processor: HandlerProcessor, vm: MakeVm) -> None:
        processor.shutdown()

        with pytest.raises(Conflict, match="shut down"):
            processor.create(vm())


class TestInAnEventLoop:
    def test_an_operation_is_awaited(self, fake_site: Site, vm: MakeVm) -> None:
        async def main() -> list[Status]:
            async with HandlerProcessor(fake_site) as processor:
                created, deleted = await processor.create(vm()), await processor.delete(vm())
            return [created.status, deleted.status]

        assert asyncio.run(main()) == [Status.DONE, Status.DONE]

    def test_several_are_awaited_at_once(self, fake_site: Site, vm: MakeVm) -> None:
        async def main() -> list[Outcome]:
            async with HandlerProcessor(fake_site) as processor:
                return await asyncio.gather(*(processor.create(vm(id=f"s{n}")) for n in range(3)))

        assert [outcome.status for outcome in asyncio.run(main())] == [Status.DONE] * 3

    def test_some_of_several_are_waited_for(self, fake_site: Site, vm: MakeVm) -> None:
        async def main() -> int:
            async with HandlerProcessor(fake_site) as processor:
                futures = [asyncio.ensure_future(processor.create(vm(id=f"s{n}"))) for n in (1, 2)]
                ended, _ = await asyncio.wait(futures)
            return len(ended)

        assert asyncio.run(main()) == 2

    def test_the_loop_goes_on_while_the_block_is_left(
        self, fake_site: Site, gate: Gate, vm: MakeVm
    ) -> None:
        """An operation that only the loop lets go on is waited for."""

        async def main() -> bool:
            async with HandlerProcessor(fake_site) as processor:
                created = processor.create(vm())
                asyncio.get_running_loop().call_soon(gate.opened.set)
            return created.result(0).ok

        assert asyncio.run(main())

    def test_who_stops_waiting_cancels_what_has_not_begun(
        self, fake_site: Site, gate: Gate, vm: MakeVm
    ) -> None:
        async def main() -> tuple[bool, bool]:
            async with HandlerProcessor(fake_site) as processor:
                created, deleted = processor.create(vm()), processor.delete(vm())
                await asyncio.to_thread(gate.wait_for, 1)
                waiting = asyncio.gather(created, deleted)
                await asyncio.sleep(0)  # both are awaited from here on
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                gate.opened.set()
            return created.result(0).ok, deleted.cancelled()

        assert asyncio.run(main()) == (True, True)


def test_one_that_was_used_before_a_fork_can_be_used_after_it(
    processor: HandlerProcessor, vm: MakeVm
) -> None:
    processor.create(vm()).result()

    child = os.fork()
    if child == 0:
        outcome = processor.create(vm(id="child")).result(60)
        os._exit(0 if outcome.ok else 1)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert processor.delete(vm()).result().ok


def test_one_that_was_shut_down_before_a_fork_stays_so_after_it(
    processor: HandlerProcessor, vm: MakeVm
) -> None:
    processor.shutdown()

    child = os.fork()
    if child == 0:
        try:
            processor.create(vm())
        except Conflict:
            os._exit(0)
        os._exit(1)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def in_worker(site: Site, sliver: NodeSliver) -> Outcome:
    with HandlerProcessor(site) as processor:
        return processor.create(sliver).result(60)


def test_it_works_in_a_forked_pool_worker_and_its_outcome_comes_back(
    fake_site: Site, vm: MakeVm
) -> None:
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        futures: list[Future[Outcome]] = [
            pool.submit(in_worker, fake_site, vm(id=f"s{n}")) for n in range(2)
        ]
        assert [future.result(60).status for future in futures] == [Status.DONE] * 2


def test_a_sliver_that_another_process_works_on_is_busy(
    processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
) -> None:
    with exclusive(processor.site.state_dir / "locks/sliver-sliver-1", "it", timeout=1):
        outcome = processor.create(vm()).result()

    assert outcome.error
    assert outcome.error.kind == "SliverBusy"
    assert not fakes.servers
    assert processor.create(vm()).result().ok


def test_no_lock_file_is_left(processor: HandlerProcessor, vm: MakeVm) -> None:
    processor.create(vm()).result()

    assert list((processor.site.state_dir / "locks").iterdir()) == []


def test_a_sliver_of_a_site_with_several_hosts_must_name_one(fake_site: Site, vm: MakeVm) -> None:
    hosts = dict.fromkeys(("w1", "w2"), fake_site.hosts["localhost"])
    site = fake_site.model_copy(update={"hosts": hosts})
    with HandlerProcessor(site) as processor:
        refused = processor.create(vm()).result()
        made = processor.create(vm(host="w2")).result()
        found = processor.probe(SliverRef(id="sliver-1")).result()
        deleted = processor.delete(SliverRef(id="sliver-1")).result()

    assert refused.error
    assert refused.error.field == "host"
    assert made.ok
    assert found.observed
    assert found.observed.host == "w2"
    assert deleted.ok
    assert not substrate(site, "w2").servers


class TestRecovery:
    """What a killed process began is finished or undone by the next."""

    @staticmethod
    def killed_while_creating(site: Site, sliver: NodeSliver) -> None:
        child = os.fork()
        if child == 0:
            things = substrate(site, "localhost")
            things.call = Dying(things, "compute.create").call  # type: ignore[method-assign,assignment]
            HandlerProcessor(site).create(sliver).result()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9

    def test_a_killed_creation_is_named(self, processor: HandlerProcessor, vm: MakeVm) -> None:
        self.killed_while_creating(processor.site, vm())

        (entry,) = processor.unfinished()

        assert entry.operation is Operation.CREATE
        assert NodeSliver.model_validate(entry.sliver) == vm()

    def test_a_killed_creation_is_finished(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        self.killed_while_creating(processor.site, vm())

        (future,) = processor.recover()

        assert future.result(60).ok
        assert "sliver-1" in fakes.servers
        assert processor.unfinished() == ()

    def test_a_killed_creation_is_undone(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        self.killed_while_creating(processor.site, vm())

        (future,) = processor.recover(undo=True)

        assert future.result(60).operation is Operation.DELETE
        assert not fakes.servers
        assert processor.unfinished() == ()

    def test_a_creation_over_what_was_there_before_is_finished_when_undone(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        processor.create(vm()).result()
        data = vm().model_dump(mode="json", exclude_none=True)
        processor._journal.begin(Operation.CREATE, data, owns_everything=False)

        (future,) = processor.recover(undo=True)

        assert future.result(60).operation is Operation.CREATE
        assert future.result().ok
        assert "sliver-1" in fakes.servers
        assert processor.unfinished() == ()

    def test_a_modification_is_undone_to_what_the_stamp_says(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        processor.create(vm(boot_script="#!/bin/sh\n")).result()
        wanted = vm(boot_script="#!/bin/sh\n", components=vm().components[:1])
        data = wanted.model_dump(mode="json", exclude_none=True)
        processor._journal.begin(Operation.MODIFY, data)

        (future,) = processor.recover(undo=True)

        outcome = future.result(60)
        assert outcome.ok, outcome.error
        assert len(fakes.servers["sliver-1"].ports) == 2
        assert not [s for s in outcome.steps if s.status is StepStatus.FAILED]

    def test_what_was_ended_meanwhile_is_not_undone(
        self, processor: HandlerProcessor, fakes: Substrate, gate: Gate, vm: MakeVm
    ) -> None:
        creating = processor.create(vm())
        gate.wait_for(1)

        (recovering,) = processor.recover(undo=True)
        gate.opened.set()

        assert creating.result(60).ok
        assert recovering.result(60).ok
        assert "sliver-1" in fakes.servers

    @pytest.mark.parametrize("change", [{"type": "Switch"}, {"bogus": 1}], ids=["type", "field"])
    def test_an_entry_of_another_version_does_not_keep_the_others_from_being_finished(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm, change: dict[str, Any]
    ) -> None:
        other = vm(id="sliver-0").model_dump(mode="json", exclude_none=True) | change
        processor._journal.begin(Operation.CREATE, other, owns_everything=True)
        self.killed_while_creating(processor.site, vm())

        refused, finished = (future.result(60) for future in processor.recover())

        assert not refused.ok
        assert finished.ok, finished.error
        assert [entry.sliver["id"] for entry in processor.unfinished()] == ["sliver-0"]


class TestAfterAKill:
    """The journal holds what was begun; the substrate holds what was made until the kill."""

    @staticmethod
    def begun(processor: HandlerProcessor, operation: Operation, sliver: NodeSliver) -> None:
        data = sliver.model_dump(mode="json", exclude_none=True)
        processor._journal.begin(operation, data, owns_everything=operation is Operation.CREATE)

    @pytest.mark.parametrize("method", ["network.find_port", "volume.find", "guest.wait"])
    def test_a_creation_that_fails_takes_back_what_the_killed_one_made(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm, method: str
    ) -> None:
        processor.create(vm()).result()
        self.begun(processor, Operation.CREATE, vm())
        fakes.fault(method, kind="fail")

        outcome = processor.create(vm()).result()

        assert outcome.status is Status.FAILED
        assert outcome.left == ()
        assert not fakes.servers
        assert not fakes.ports
        assert not fakes.volumes
        assert processor.unfinished() == ()

    def test_a_creation_gives_up_what_the_killed_one_held_and_nobody_wants(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        processor.create(vm()).result()
        fakes.servers.clear()
        self.begun(processor, Operation.CREATE, vm())

        assert processor.create(vm(components=vm().components[:1])).result().ok

        assert set(fakes.ports) == {("sliver-1", "nic1")}
        assert not fakes.volumes

    def test_a_deletion_removes_what_a_request_of_the_killed_one_made_meanwhile(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        processor.create(vm()).result()
        late = fakes.ports.pop(("sliver-1", "nic1"))
        self.begun(processor, Operation.CREATE, vm())
        inner = fakes.call

        def call(method: str, effect: Callable[[], object]) -> object:
            if method == "compute.delete":
                fakes.ports["sliver-1", "nic1"] = late
            return inner(method, effect)

        fakes.call = call  # type: ignore[method-assign,assignment]

        outcome = processor.delete(vm()).result()

        assert outcome.ok, outcome.left
        assert not fakes.ports
        assert processor.unfinished() == ()

    def test_a_modification_that_fails_does_not_touch_what_the_killed_creation_made(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        processor.create(vm()).result()
        self.begun(processor, Operation.CREATE, vm())
        fakes.fault("compute.attach_port", kind="fail")
        nic3 = {"type": "vNIC", "id": "nic3", "network": "red"}

        outcome = processor.modify(vm(components=[*vm().components, nic3])).result()

        assert outcome.status is Status.FAILED
        assert set(fakes.ports) == {("sliver-1", "nic1"), ("sliver-1", "nic2")}
        assert len(fakes.servers["sliver-1"].ports) == 2

    def test_a_modification_that_fails_names_what_the_killed_one_left(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
    ) -> None:
        nic3 = {"type": "vNIC", "id": "nic3", "network": "red"}
        wanted = vm(components=[*vm().components, nic3])
        processor.create(vm()).result()
        stamp = fakes.servers["sliver-1"].stamp
        processor.modify(wanted).result()
        fakes.servers["sliver-1"] = replace(fakes.servers["sliver-1"], stamp=stamp)
        self.begun(processor, Operation.MODIFY, wanted)
        fakes.fault("network.find_port", kind="fail")

        outcome = processor.modify(wanted).result()

        assert not outcome.ok
        assert outcome.left == ("vNIC nic3 is there and not wanted",)
        assert processor.unfinished()


class TestSeveralHosts:
    @pytest.fixture
    def pair(self, fake_site: Site) -> Site:
        hosts = dict.fromkeys(("w1", "w2"), fake_site.hosts["localhost"])
        return fake_site.model_copy(update={"hosts": hosts})

    def test_a_sliver_is_made_on_one_of_them_only(self, pair: Site, vm: MakeVm) -> None:
        with HandlerProcessor(pair) as processor:
            processor.create(vm(host="w1")).result()

            outcome = processor.create(vm(host="w2")).result()

        assert outcome.error
        assert outcome.error.kind == "Conflict"
        assert not substrate(pair, "w2").servers

    def test_a_deletion_looks_on_all_of_them(self, pair: Site, vm: MakeVm) -> None:
        with HandlerProcessor(pair) as processor:
            processor.create(vm(host="w1")).result()
            port = substrate(pair, "w1").ports["sliver-1", "nic1"]
            substrate(pair, "w2").ports["sliver-1", "nic1"] = port

            assert processor.delete(vm().ref()).result().ok

        assert not substrate(pair, "w1").ports
        assert not substrate(pair, "w2").ports

    def test_a_deletion_cleans_what_is_written_down_on_any_of_them(
        self, pair: Site, vm: MakeVm
    ) -> None:
        host = pair.hosts["w1"].model_copy(update={"devices": (GPU_ALLOWED,)})
        site = pair.model_copy(update={"hosts": dict.fromkeys(("w1", "w2"), host)})
        with HandlerProcessor(site) as processor:
            processor.create(vm(host="w1")).result()
            add_gpu(substrate(site, "w2"), written=True)

            assert processor.delete(vm().ref()).result().ok

        assert not substrate(site, "w1").servers
        assert not substrate(site, "w2").records

    def test_what_cannot_be_looked_for_everywhere_is_not_called_deleted(
        self, pair: Site, vm: MakeVm
    ) -> None:
        substrate(pair, "w2").fault("compute.leftovers", at=0, kind="fail")

        with HandlerProcessor(pair) as processor:
            assert not processor.delete(vm().ref()).result().ok


GPU = PciAddress.parse("25:00.0")
GPU_ALLOWED = AllowedDevice(type="GPU", bdf=GPU)


def add_gpu(things: Substrate, *, written: bool) -> None:
    """Give a host a GPU, perhaps one that ``sliver-1`` had and that is not clean yet."""
    function = PciFunction(GPU, "10de", "1eb8")
    things.devices[GPU] = HostDevice(function, DeviceState.FREE, type="GPU")
    if written:
        record = DeviceRecord(GPU, "GPU", None, "sliver-1", "gpu", "10de", "1eb8")
        things.records[GPU] = record


class TestTheDevicesOfAHost:
    def test_are_those_that_its_driver_finds(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        add_gpu(fakes, written=False)

        assert [device.address for device in processor.devices("localhost")] == [GPU]

    @pytest.mark.parametrize("dirty", [False, True])
    def test_are_released_clean_or_by_force(
        self, processor: HandlerProcessor, fakes: Substrate, *, dirty: bool
    ) -> None:
        add_gpu(fakes, written=True)
        fakes.dirty = {GPU} if dirty else set()

        if dirty:
            with pytest.raises(DeviceUnclean):
                processor.release("localhost", GPU)
            assert fakes.records
        processor.release("localhost", GPU, force=dirty)

        assert not fakes.records

    @pytest.mark.parametrize(
        ("host", "address"), [("nowhere", GPU), ("localhost", PciAddress.parse("99:00.0"))]
    )
    def test_that_are_not_there_are_not_found(
        self, processor: HandlerProcessor, fakes: Substrate, host: str, address: PciAddress
    ) -> None:
        add_gpu(fakes, written=True)

        with pytest.raises(NotFound):
            processor.release(host, address)

        assert fakes.records

    def test_have_an_uplink_whose_bridge_mode_is_read_and_set(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        fakes.uplinks = {"ens6f1": "veb"}

        modes = [
            processor.bridge_mode("localhost", "ens6f1", mode) for mode in (None, "vepa", None)
        ]

        assert modes == ["veb", "vepa", "vepa"]


class Dying:
    """A substrate whose process ends at a call."""

    def __init__(self, things: Substrate, method: str) -> None:
        self.things, self.method = things, method

    def call(self, method: str, effect: Callable[[], object]) -> object:
        if method == self.method:
            os._exit(9)
        return Substrate.call(self.things, method, effect)


def test_the_state_directory_is_its_owners_alone(
    processor: HandlerProcessor, vm: MakeVm, tmp_path: Path
) -> None:
    processor.create(vm()).result()

    assert (tmp_path / "state/journal").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "state/locks").stat().st_mode & 0o777 == 0o700
