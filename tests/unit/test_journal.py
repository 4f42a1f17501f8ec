"""The journal: what it tells of unfinished operations, and of files that it cannot read."""

import gc
import json
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest

from fabric_direct.calls.deadline import Deadline
from fabric_direct.engine.run import run
from fabric_direct.engine.step import Flow, Step
from fabric_direct.errors import DriverError
from fabric_direct.model import Finding, Operation
from fabric_direct.state import files
from fabric_direct.state.file_store import FileStore
from fabric_direct.state.journal import Journal

SLIVER = {"id": "s", "type": "VM"}
OTHER = {"id": "s-2", "type": "VM"}


def entry(**changes: object) -> bytes:
    """Return a file's content."""
    values = {"operation": "create", "sliver": SLIVER, "since": "", "owns_everything": True}
    return json.dumps(values | changes).encode()


class Deadly(Step):
    """A step that its process does not survive."""

    def check(self) -> Finding:
        return Finding.WILL_CREATE

    def make(self) -> None:
        os._exit(9)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "state/journal"


@pytest.fixture
def journal(directory: Path) -> Journal:
    return Journal(FileStore(directory.parent))


def test_keeps_nothing_when_nothing_is_under_way(journal: Journal, directory: Path) -> None:
    journal.begin(Operation.CREATE, SLIVER)
    journal.end("s")

    assert journal.unfinished() == ()
    journal.end("s")
    assert list(directory.iterdir()) == []


def test_an_empty_one_can_be_read_and_ended(journal: Journal, directory: Path) -> None:
    journal.end("s")

    assert (journal.unfinished(), journal.foreign(), journal.of("s")) == ((), (), None)
    assert not directory.exists()


def test_names_what_was_begun_and_not_ended(journal: Journal) -> None:
    journal.begin(Operation.MODIFY, SLIVER)

    (found,) = journal.unfinished()

    assert (found.operation, found.sliver) == (Operation.MODIFY, SLIVER)


def test_its_files_are_readable_by_their_owner_alone(journal: Journal, directory: Path) -> None:
    journal.begin(Operation.CREATE, SLIVER)

    assert [file.stat().st_mode & 0o777 for file in directory.iterdir()] == [0o600]
    assert directory.stat().st_mode & 0o777 == 0o700


def test_knows_that_an_earlier_operation_is_unfinished(journal: Journal) -> None:
    assert not journal.begin(Operation.MODIFY, SLIVER).resumed
    assert journal.begin(Operation.MODIFY, SLIVER).resumed
    assert journal.begin(Operation.DELETE, SLIVER).resumed


def test_what_was_begun_from_nothing_stays_so_until_it_is_finished(journal: Journal) -> None:
    journal.begin(Operation.CREATE, SLIVER, owns_everything=True)
    assert journal.begin(Operation.CREATE, SLIVER).owns_everything
    assert journal.begin(Operation.MODIFY, SLIVER).owns_everything

    journal.end("s")

    assert not journal.begin(Operation.CREATE, SLIVER).owns_everything


def test_of_modifications_in_a_row_it_keeps_what_was_before_the_first(journal: Journal) -> None:
    first, second = SLIVER | {"name": "first"}, SLIVER | {"name": "second"}
    journal.begin(Operation.MODIFY, SLIVER, before=first)
    journal.begin(Operation.MODIFY, SLIVER, before=second)

    (found,) = journal.unfinished()

    assert found.before == first


def test_what_was_before_ends_with_a_deletion(journal: Journal) -> None:
    first, second = SLIVER | {"name": "first"}, SLIVER | {"name": "second"}
    journal.begin(Operation.MODIFY, SLIVER, before=first)
    journal.begin(Operation.DELETE, SLIVER)
    journal.begin(Operation.CREATE, SLIVER)
    journal.begin(Operation.MODIFY, SLIVER, before=second)

    (found,) = journal.unfinished()

    assert found.before == second


def test_keeps_the_slivers_apart(journal: Journal) -> None:
    journal.begin(Operation.CREATE, SLIVER)
    journal.begin(Operation.DELETE, OTHER)

    journal.end("s")

    assert [found.sliver for found in journal.unfinished()] == [OTHER]


def test_tells_the_latest_of_one_sliver(journal: Journal) -> None:
    assert journal.of("s") is None
    journal.begin(Operation.CREATE, OTHER)
    journal.begin(Operation.CREATE, SLIVER)
    journal.begin(Operation.MODIFY, SLIVER)

    found = journal.of("s")

    assert found
    assert (found.operation, found.sliver) == (Operation.MODIFY, SLIVER)
    assert [found.operation for found in journal.unfinished()] == [
        Operation.MODIFY,
        Operation.CREATE,
    ]
    journal.end("s")
    assert journal.of("s") is None


def test_what_another_process_ends_while_it_is_read_is_left_out(
    journal: Journal, directory: Path
) -> None:
    """The file is gone between the listing of the directory and the reading."""
    journal.begin(Operation.CREATE, SLIVER)
    journal.begin(Operation.CREATE, OTHER)
    (directory / "s.json").unlink()
    (directory / "s.json").symlink_to("gone")

    assert [found.sliver for found in journal.unfinished()] == [OTHER]
    assert journal.foreign() == ()
    assert journal.of("s") is None


def test_says_what_a_killed_process_was_about(journal: Journal) -> None:
    child = os.fork()
    if child == 0:
        journal.begin(Operation.CREATE, SLIVER, owns_everything=True)
        with ThreadPoolExecutor(2) as pool:
            run(Flow.of([Deadly("a")]), pool, deadline=Deadline.within(10))
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9

    (found,) = journal.unfinished()

    assert (found.operation, found.sliver) == (Operation.CREATE, SLIVER)
    assert journal.begin(Operation.CREATE, SLIVER).owns_everything


@pytest.mark.parametrize(
    ("calls", "there"), [(1, Operation.CREATE), (2, Operation.MODIFY)], ids=["file", "directory"]
)
def test_a_kill_while_it_writes_leaves_the_old_entry_or_the_new_one(
    journal: Journal, directory: Path, calls: int, there: Operation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies in the ``fsync`` of the new file, or in that of the directory."""
    journal.begin(Operation.CREATE, SLIVER)
    left = iter(range(calls - 1))
    monkeypatch.setattr(os, "fsync", lambda _: next(left, None) is None and os._exit(9))
    child = os.fork()
    if child == 0:
        journal.begin(Operation.MODIFY, SLIVER)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    monkeypatch.undo()

    assert [found.operation for found in journal.unfinished()] == [there]
    assert journal.foreign() == ()
    journal.begin(Operation.DELETE, SLIVER)
    journal.end("s")
    assert list(directory.iterdir()) == []


def test_an_entry_is_on_the_disk_before_its_operation_begins(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(
        os, "fsync", lambda file: synced.append(Path(f"/proc/self/fd/{file}").resolve().name)
    )

    journal.begin(Operation.CREATE, SLIVER)

    assert synced == ["state", ".s.json.new", "journal"]
    synced.clear()
    journal.end("s")
    assert synced == ["journal"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        entry(sliver={"id": "s"}),
        entry(operation="fly"),
        entry(sliver=OTHER),
        entry(more="than that"),
    ],
    ids=["empty", "cut", "binary", "list", "no-type", "operation", "other-sliver", "newer"],
)
class TestDamagedFile:
    def test_hides_no_other_entry(self, journal: Journal, directory: Path, content: bytes) -> None:
        journal.begin(Operation.CREATE, OTHER)
        (directory / "s.json").write_bytes(content)

        assert [found.sliver for found in journal.unfinished()] == [OTHER]
        assert journal.foreign() == (str(directory / "s.json"),)
        assert journal.of("s") is None

    def test_is_kept_by_the_next_operation_and_counts_as_unfinished(
        self, journal: Journal, directory: Path, content: bytes
    ) -> None:
        directory.mkdir(parents=True)
        (directory / "s.json").write_bytes(content)

        begun = journal.begin(Operation.MODIFY, SLIVER)
        journal.end("s")

        assert begun.resumed
        assert not begun.owns_everything
        (kept,) = journal.foreign()
        assert Path(kept).name.startswith("s.unreadable-")
        assert Path(kept).read_bytes() == content


class TestOlderJournal:
    """A directory for each sliver, as earlier versions kept it."""

    @pytest.fixture(autouse=True)
    def older(self, directory: Path) -> Path:
        older = directory / "s/books"
        older.mkdir(parents=True)
        return older

    def test_is_named_and_hides_nothing(self, journal: Journal, directory: Path) -> None:
        journal.begin(Operation.CREATE, OTHER)

        assert [found.sliver for found in journal.unfinished()] == [OTHER]
        assert journal.foreign() == (str(directory / "s"),)

    def test_counts_as_unfinished_and_stays(self, journal: Journal, older: Path) -> None:
        assert journal.begin(Operation.MODIFY, SLIVER).resumed
        assert not journal.begin(Operation.MODIFY, OTHER).resumed
        journal.end("s")

        assert older.is_dir()


def test_one_that_cannot_be_written_says_where(tmp_path: Path) -> None:
    (tmp_path / "journal").write_text("no directory")

    with pytest.raises(DriverError, match=f"cannot use the journal.*{tmp_path}/journal"):
        Journal(FileStore(tmp_path)).begin(Operation.CREATE, SLIVER)


def test_a_full_disk_leaves_the_entry_that_was_there(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal.begin(Operation.CREATE, SLIVER)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(DriverError, match="No space left on device"):
        journal.begin(Operation.MODIFY, SLIVER)
    assert [found.operation for found in journal.unfinished()] == [Operation.CREATE]


@pytest.mark.parametrize("name", ["s-1.json", ".s-1.json.new"])
def test_a_link_in_an_entrys_place_does_not_lead_to_somebody_elses_file(
    tmp_path: Path, name: str
) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_text("theirs")
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal" / name).symlink_to(theirs)

    with suppress(DriverError):
        Journal(FileStore(tmp_path)).begin(Operation.CREATE, {"id": "s-1", "type": "VM"})

    assert theirs.read_text() == "theirs"


def test_an_operation_that_has_ended_leaves_nothing_in_memory(tmp_path: Path) -> None:
    journal = Journal(FileStore(tmp_path))

    def operations(name: int) -> int:
        for number in range(40):
            sliver = {"id": f"{name}-{number}", "type": "VM"}
            journal.begin(Operation.DELETE, sliver)
            journal.end(sliver["id"])
        gc.collect()
        return len(gc.get_objects())

    # What is kept grows with every forty; what other threads make, or a first use, grows only once.
    counts = [operations(name) for name in range(4)]
    assert min(later - earlier for earlier, later in pairwise(counts)) <= 20
