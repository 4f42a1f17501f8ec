"""Flows of steps: order, checks, undoing, the journal."""

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fabric_direct.deadline import Deadline
from fabric_direct.engine import Result, run, survey
from fabric_direct.errors import DriverError, NotVerified
from fabric_direct.journal import Journal
from fabric_direct.model import Finding, Operation, StepStatus
from fabric_direct.steps.base import Flow, Step

SLIVER = {"id": "s", "type": "VM"}


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
    meeting = threading.Barrier(3, timeout=5)

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


def test_a_survey_asks_and_changes_nothing(there: set[str], log: list[str]) -> None:
    there.add("a")

    reports = survey(Flow.of([Thing("a", there, log)], [Thing("b", there, log)]))

    assert log == []
    assert [r.finding for r in reports] == [Finding.ALREADY_SO, Finding.WILL_CREATE]


def test_progress_tells_each_begin_and_end(go: Go, there: set[str], log: list[str]) -> None:
    told: list[tuple[str, StepStatus | None, int]] = []

    go(
        [Thing("a", there, log)],
        [Thing("b", there, log)],
        on_step=lambda report, step, done: told.append((step, report and report.status, done)),
    )

    assert told == [
        ("a", None, 0),
        ("a", StepStatus.DONE, 1),
        ("b", None, 1),
        ("b", StepStatus.DONE, 2),
    ]


def test_an_empty_flow_is_done(go: Go) -> None:
    assert go([], []) == Result(())


class TestJournal:
    @pytest.fixture(params=["directory", "database"])
    def journal(self, request: pytest.FixtureRequest, tmp_path: Path) -> Journal:
        url = f"sqlite:///{tmp_path}/journal.sqlite" if request.param == "database" else None
        return Journal(tmp_path / "state", url)

    def test_keeps_nothing_when_nothing_is_under_way(self, journal: Journal) -> None:
        journal.begin(Operation.CREATE, SLIVER)
        journal.end("s")

        assert journal.unfinished() == ()
        journal.end("s")

    def test_names_what_was_begun_and_not_ended(self, journal: Journal) -> None:
        journal.begin(Operation.MODIFY, SLIVER)

        (entry,) = journal.unfinished()

        assert (entry.operation, entry.sliver) == (Operation.MODIFY, SLIVER)

    def test_its_files_are_readable_by_their_owner_alone(self, tmp_path: Path) -> None:
        journal = Journal(tmp_path / "state")
        journal.begin(Operation.CREATE, SLIVER)

        files = [f for f in (tmp_path / "state/journal").rglob("metadata") if f.is_file()]

        assert files
        assert {f.stat().st_mode & 0o777 for f in files} == {0o600}
        assert (tmp_path / "state/journal").stat().st_mode & 0o777 == 0o700

    def test_knows_that_an_earlier_operation_is_unfinished(self, journal: Journal) -> None:
        assert not journal.begin(Operation.MODIFY, SLIVER).resumed
        assert journal.begin(Operation.MODIFY, SLIVER).resumed

    def test_what_was_begun_from_nothing_stays_so_until_it_is_finished(
        self, journal: Journal
    ) -> None:
        journal.begin(Operation.CREATE, SLIVER, whole=True)
        assert journal.begin(Operation.CREATE, SLIVER).whole

        journal.end("s")

        assert not journal.begin(Operation.CREATE, SLIVER).whole

    def test_keeps_the_slivers_apart(self, journal: Journal) -> None:
        other = {"id": "s-2", "type": "VM"}
        journal.begin(Operation.CREATE, SLIVER)
        journal.begin(Operation.DELETE, other)

        journal.end("s")

        assert [entry.sliver for entry in journal.unfinished()] == [other]

    def test_tells_the_latest_of_one_sliver(self, journal: Journal) -> None:
        assert journal.of("s") is None
        journal.begin(Operation.CREATE, {"id": "s-2", "type": "VM"})
        journal.begin(Operation.MODIFY, SLIVER)

        found = journal.of("s")

        assert found
        assert (found.operation, found.sliver) == (Operation.MODIFY, SLIVER)
        journal.end("s")
        assert journal.of("s") is None

    def test_what_another_process_ends_while_it_is_read_is_left_out(self, tmp_path: Path) -> None:
        """Its directory is moved aside between the listing of the books and their reading."""
        journal, other = Journal(tmp_path), {"id": "s-2", "type": "VM"}
        journal.begin(Operation.CREATE, SLIVER)
        journal.begin(Operation.CREATE, other)
        for metadata in (tmp_path / "journal/s/books").rglob("metadata"):
            metadata.unlink()

        assert [entry.sliver for entry in journal.unfinished()] == [other]
        assert journal.of("s") is None

    def test_can_be_read_after_a_kill_in_the_midst_of_ending(self, tmp_path: Path) -> None:
        journal = Journal(tmp_path)
        journal.begin(Operation.CREATE, SLIVER)
        (tmp_path / "journal/s").rename(tmp_path / "journal/s.ended")
        shutil.rmtree(tmp_path / "journal/s.ended/books")

        assert journal.unfinished() == ()
        journal.begin(Operation.CREATE, SLIVER)
        journal.end("s")
        assert list((tmp_path / "journal").iterdir()) == []

    def test_says_what_a_killed_process_was_about(self, journal: Journal) -> None:
        child = os.fork()
        if child == 0:
            entry = journal.begin(Operation.CREATE, SLIVER, whole=True)
            with ThreadPoolExecutor(2) as pool:
                run(Flow.of([Deadly("a")]), pool, deadline=Deadline.within(10), entry=entry)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9

        (entry,) = journal.unfinished()

        assert (entry.operation, entry.sliver) == (Operation.CREATE, SLIVER)
        assert journal.begin(Operation.CREATE, SLIVER).whole


class Deadly(Step):
    """A step that its process does not survive."""

    def check(self) -> Finding:
        return Finding.WILL_CREATE

    def make(self) -> None:
        os._exit(9)
