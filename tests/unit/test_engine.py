"""Flows of steps: order, checks, undoing, events."""

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fabric_direct.calls.deadline import Call, Deadline, Interruption, wait_until
from fabric_direct.engine.run import Event, Result, preview, run
from fabric_direct.engine.step import Flow, Step
from fabric_direct.errors import DriverError, Interrupted, NotVerified, TimedOut
from fabric_direct.model import FieldChange, Finding, StepStatus


class Thing(Step):
    """A thing in a shared set; it can fail, lie, or be there before."""

    def __init__(self, name: str, there: set[str], log: list[str], fail: str = "") -> None:
        super().__init__(name)
        self.there, self.log, self.fail = there, log, fail

    def check(self) -> Finding:
        return Finding.ALREADY_SO if self.name in self.there else Finding.WILL_CREATE

    def make(self) -> None:
        self.log.append(f"make {self.name}")
        if self.fail == "make":
            raise DriverError(f"{self.name} failed")
        if self.fail != "lie":
            self.there.add(self.name)

    def undo(self) -> None:
        self.log.append(f"undo {self.name}")
        if self.fail == "undo":
            raise DriverError(f"{self.name} cannot be undone")
        self.there.discard(self.name)


class Removal(Thing):
    """A thing that must not be there; nothing brings it back."""

    undoable = False

    def check(self) -> Finding:
        return Finding.WILL_DELETE if self.name in self.there else Finding.ALREADY_SO

    def make(self) -> None:
        self.log.append(f"remove {self.name}")
        if self.fail:
            raise DriverError(f"{self.name} stays")
        self.there.discard(self.name)


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


@pytest.fixture
def go(executor: ThreadPoolExecutor) -> Callable[..., Result]:
    def go(*stages: list[Step], **options: Any) -> Result:
        return run(Flow.of(*stages), executor, deadline=Deadline.within(10), **options)

    return go


@pytest.fixture
def there() -> set[str]:
    return set()


@pytest.fixture
def log() -> list[str]:
    return []


Go = Callable[..., Result]


def test_stages_run_one_after_the_other(go: Go, there: set[str], log: list[str]) -> None:
    result = go(*([Thing(name, there, log)] for name in "abc"))

    assert log == ["make a", "make b", "make c"]
    assert [r.status for r in result.reports] == [StepStatus.DONE] * 3
    assert result.error is None


def test_steps_of_a_stage_run_at_the_same_time(go: Go, there: set[str], log: list[str]) -> None:
    meeting = threading.Barrier(3, timeout=60)

    class Meeting(Thing):
        def make(self) -> None:
            meeting.wait()
            super().make()

    assert go([Meeting(name, there, log) for name in "abc"]).error is None


def test_what_is_so_already_is_not_made(go: Go, there: set[str], log: list[str]) -> None:
    there.add("a")

    result = go([Thing("a", there, log)])

    assert log == []
    assert result.reports[0].status is StepStatus.ALREADY_SO


def test_a_failure_takes_back_what_was_made_in_reverse_order(
    go: Go, there: set[str], log: list[str]
) -> None:
    result = go(
        [Thing("a", there, log)],
        [Thing("b", there, log)],
        [Thing("c", there, log, fail="make")],
        [Thing("d", there, log)],
    )

    assert log == ["make a", "make b", "make c", "undo c", "undo b", "undo a"]
    assert there == set()
    assert str(result.error) == "c failed"
    assert result.undone


def test_a_failure_leaves_alone_what_was_there_before(
    go: Go, there: set[str], log: list[str]
) -> None:
    there.add("a")

    go([Thing("a", there, log)], [Thing("b", there, log, fail="make")])

    assert there == {"a"}


def test_a_step_that_says_done_and_is_not_fails(go: Go, there: set[str], log: list[str]) -> None:
    result = go([Thing("a", there, log, fail="lie")])

    assert isinstance(result.error, NotVerified)
    assert "a was made, but is not so" in str(result.error)


def test_a_step_that_says_done_and_is_not_says_what_would_change_still(
    go: Go, there: set[str], log: list[str]
) -> None:
    class Stubborn(Thing):
        def check(self) -> Finding:
            return Finding.WILL_CHANGE

        def changes(self) -> tuple[FieldChange, ...]:
            return (FieldChange(field="bandwidth", was=None, will_be=100),)

    error = go([Stubborn("a", there, log)]).error

    assert isinstance(error, NotVerified)
    assert "is not so when read back: bandwidth none → 100" in str(error)


def test_a_step_that_does_not_trust_its_check_is_made_though_nothing_is_to_do(
    go: Go, there: set[str], log: list[str]
) -> None:
    class Overlooking(Removal):
        """A removal whose first look misses what is there."""

        trusts_check = False
        looks = 0

        def check(self) -> Finding:
            self.looks += 1
            return Finding.ALREADY_SO if self.looks == 1 else super().check()

    there.add("a")

    result = go([Overlooking("a", there, log)])

    assert result.error is None
    assert there == set()


def test_an_undo_that_fails_does_not_keep_the_others_from_being_undone(
    go: Go, there: set[str], log: list[str]
) -> None:
    result = go(
        [Thing("a", there, log)],
        [Thing("b", there, log, fail="undo")],
        [Thing("c", there, log, fail="make")],
    )

    assert there == {"b"}
    statuses = {r.step: r.status for r in result.reports}
    assert statuses["b"] is StepStatus.UNDO_FAILED
    assert statuses["a"] is StepStatus.UNDONE


class Holding(Thing):
    """A thing that what later stages make uses."""

    used_later = True


def test_what_is_used_later_is_kept_if_a_later_undo_fails(
    go: Go, there: set[str], log: list[str]
) -> None:
    result = go(
        [Holding("a", there, log), Thing("b", there, log)],
        [Thing("c", there, log, fail="undo")],
        [Holding("d", there, log)],
        [Thing("e", there, log, fail="make")],
    )

    assert there == {"a", "c"}
    statuses = {r.step: (r.status, r.error) for r in result.reports}
    assert statuses["a"] == (StepStatus.UNDO_FAILED, "kept: something may use it still")
    assert statuses["b"] == statuses["d"] == (StepStatus.UNDONE, None)


def test_what_is_used_later_is_kept_while_a_call_may_still_take_effect(
    executor: ThreadPoolExecutor, there: set[str], log: list[str]
) -> None:
    deadline, release = Deadline.within(60), threading.Event()

    class Late(Thing):
        def make(self) -> None:
            deadline.give_up([Call(self.name, release.wait)])
            raise TimedOut("no answer")

    flow = Flow.of([Holding("a", there, log), Thing("b", there, log)], [Late("c", there, log)])
    run(flow, executor, deadline=deadline, undo_limit=0.01)
    release.set()

    assert there == {"a"}


def test_an_undo_that_lies_is_told(go: Go, there: set[str], log: list[str]) -> None:
    class Sticky(Thing):
        def undo(self) -> None:
            return

    result = go([Sticky("a", there, log)], [Thing("b", there, log, fail="make")])

    assert result.reports[0].status is StepStatus.UNDO_FAILED
    assert "still there" in str(result.reports[0].error)


def test_an_unexpected_error_is_a_failure_too(go: Go, there: set[str], log: list[str]) -> None:
    class Broken(Thing):
        def make(self) -> None:
            raise ZeroDivisionError("broken")

    result = go([Thing("a", there, log)], [Broken("b", there, log)])

    assert isinstance(result.error, ZeroDivisionError)
    assert there == set()


def test_a_failed_removal_lets_its_neighbours_end_and_skips_what_follows(
    go: Go, there: set[str], log: list[str]
) -> None:
    there |= {"a", "b", "c"}

    result = go(
        [Removal("a", there, log, fail="make"), Removal("b", there, log)],
        [Removal("c", there, log)],
    )

    assert there == {"a", "c"}
    assert not result.undone
    assert [r.status for r in result.reports] == [
        StepStatus.FAILED,
        StepStatus.DONE,
        StepStatus.SKIPPED,
    ]


def test_undoing_has_time_of_its_own(executor: ThreadPoolExecutor) -> None:
    deadline = Deadline.within(0)
    left: list[float] = []

    class Timed(Thing):
        def undo(self) -> None:
            left.append(deadline.remaining())
            super().undo()

    flow = Flow.of([Timed("a", set(), [], fail="make")])
    run(flow, executor, deadline=deadline, undo_limit=50)

    assert left
    assert 0 < left[0] <= 50


def test_what_a_call_makes_after_it_was_given_up_is_undone_too(
    executor: ThreadPoolExecutor, there: set[str], log: list[str]
) -> None:
    deadline, undoing = Deadline.within(10), threading.Event()

    class Late(Thing):
        def make(self) -> None:
            deadline.give_up([Call(self.name, self._come)])
            raise TimedOut("no answer")

        def _come(self) -> None:
            undoing.wait()
            self.there.add(self.name)

    def tell(event: Event) -> None:
        if event.report and event.report.status is StepStatus.FAILED:
            undoing.set()

    flow = Flow.of([Late("a", there, log)])
    result = run(flow, executor, deadline=deadline, undo_limit=60, listener=tell)

    assert result.undone
    assert (there, log, deadline.late()) == (set(), ["undo a"], ())


def test_a_plan_asks_and_changes_nothing(there: set[str], log: list[str]) -> None:
    there.add("a")

    reports = preview(Flow.of([Thing("a", there, log)], [Thing("b", there, log)]))

    assert log == []
    assert [r.finding for r in reports] == [Finding.ALREADY_SO, Finding.WILL_CREATE]


def test_progress_tells_each_begin_and_end(go: Go, there: set[str], log: list[str]) -> None:
    told: list[tuple[str, StepStatus | None, int]] = []

    def tell(event: Event) -> None:
        told.append((event.step, event.report and event.report.status, event.ended))

    go(
        [Thing("a", there, log)],
        [Thing("b", there, log)],
        listener=tell,
    )

    assert told == [
        ("a", None, 0),
        ("a", StepStatus.DONE, 1),
        ("b", None, 1),
        ("b", StepStatus.DONE, 2),
    ]


def test_an_empty_flow_is_done(go: Go) -> None:
    assert go([], []) == Result(())


def test_a_step_that_was_made_is_undone_only_after_its_whole_stage_has_ended(
    go: Go, there: set[str], log: list[str]
) -> None:
    failed = threading.Event()

    class Failing(Thing):
        def make(self) -> None:
            failed.set()
            super().make()

    class Slow(Thing):
        def make(self) -> None:
            assert failed.wait(60)
            super().make()

    go([Failing("a", there, log, fail="make"), Slow("b", there, log)])

    assert there == set()
    assert log[:2] == ["make a", "make b"]
    assert set(log[2:]) == {"undo a", "undo b"}


def test_the_steps_of_a_stage_are_undone_at_the_same_time(
    go: Go, there: set[str], log: list[str]
) -> None:
    meeting = threading.Barrier(3, timeout=60)

    class Meeting(Thing):
        def undo(self) -> None:
            meeting.wait()
            super().undo()

    result = go([Meeting(name, there, log) for name in "abc"], [Thing("d", there, log, "make")])

    assert [r.status for r in result.reports] == [StepStatus.UNDONE] * 3 + [StepStatus.FAILED]


def test_events_tell_what_is_undone_too(go: Go, there: set[str], log: list[str]) -> None:
    events: list[Event] = []

    go([Thing("a", there, log)], [Thing("b", there, log, fail="make")], listener=events.append)

    assert [(e.step, e.report and e.report.status, e.ended) for e in events] == [
        ("a", None, 0),
        ("a", StepStatus.DONE, 1),
        ("b", None, 1),
        ("b", StepStatus.FAILED, 2),
        ("a", StepStatus.UNDONE, 2),
    ]


def test_events_come_in_the_thread_of_the_caller(go: Go, there: set[str], log: list[str]) -> None:
    threads: set[int] = set()

    go([Thing(n, there, log) for n in "ab"], listener=lambda _: threads.add(threading.get_ident()))

    assert threads == {threading.get_ident()}


def test_a_listener_that_fails_does_not_stop_the_flow(
    go: Go, there: set[str], log: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Event) -> None:
        raise ZeroDivisionError

    with caplog.at_level(logging.WARNING, "fabric_direct"):
        assert go([Thing("a", there, log)], listener=fail).error is None

    assert there == {"a"}
    assert "the listener of step a failed" in caplog.text


def test_a_step_that_only_waits_is_not_undone(go: Go, there: set[str], log: list[str]) -> None:
    class Wait(Thing):
        planned = False

    go([Wait("a", there, log)], [Thing("b", there, log, fail="make")])

    assert log == ["make a", "make b", "undo b"]


class TestInterrupted:
    @pytest.fixture
    def interruption(self) -> Iterator[Interruption]:
        interruption = Interruption()
        with interruption.applies():
            yield interruption

    def test_it_ends_what_runs_begins_nothing_more_and_undoes_nothing(
        self, go: Go, there: set[str], log: list[str], interruption: Interruption
    ) -> None:
        class Interrupting(Thing):
            def make(self) -> None:
                interruption.begin()
                super().make()

        result = go([Interrupting("a", there, log)], [Thing("b", there, log)])

        assert log == ["make a"]
        assert isinstance(result.error, Interrupted)
        assert not result.undone
        assert [r.status for r in result.reports] == [StepStatus.DONE, StepStatus.SKIPPED]

    def test_a_failure_at_the_same_moment_is_undone_as_usual(
        self, go: Go, there: set[str], log: list[str], interruption: Interruption
    ) -> None:
        class Interrupting(Thing):
            def make(self) -> None:
                interruption.begin()
                super().make()

        stages = [Thing("a", there, log)], [Interrupting("b", there, log, fail="make")]
        result = go(*stages, [Thing("c", there, log)])

        assert (there, str(result.error), result.undone) == (set(), "b failed", True)
        assert log == ["make a", "make b", "undo b", "undo a"]

    def test_a_failure_is_the_error_also_if_it_comes_after_the_interruption(
        self, go: Go, there: set[str], log: list[str], interruption: Interruption
    ) -> None:
        begun, interrupted = threading.Barrier(2, timeout=60), threading.Event()

        class Waiting(Thing):
            def make(self) -> None:
                begun.wait()
                interruption.begin()
                raise Interrupted("it was interrupted")

        class Failing(Thing):
            def make(self) -> None:
                begun.wait()
                assert interrupted.wait(60)
                super().make()

        def tell(event: Event) -> None:
            if event.step == "a" and event.report:
                interrupted.set()

        steps: list[Step] = [Waiting("a", there, log), Failing("b", there, log, fail="make")]
        result = go(steps, listener=tell)

        assert (str(result.error), result.undone) == ("b failed", True)

    def test_nothing_interrupts_the_undoing(
        self,
        go: Go,
        there: set[str],
        log: list[str],
        interruption: Interruption,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr("fabric_direct.calls.deadline.time.sleep", lambda _: None)

        class Slow(Thing):
            def undo(self) -> None:
                interruption.begin()
                wait_until("it", iter([False, True]).__next__, timeout=60)
                super().undo()

        go([Thing("a", there, log)], [Slow("b", there, log)], [Thing("c", there, log, "make")])

        assert there == set()
