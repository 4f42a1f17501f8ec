"""The steps of operations under way, as other processes see them."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from fabric_direct.drivers.fake import Substrate
from fabric_direct.model import NodeSliver, StepStatus
from fabric_direct.operations.progress import Progress
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from fabric_direct.state.file_store import FileStore
from fabric_direct.state.step_notes import StepNote, StepNotes

PORT = StepNote(step="port", total=2)
DONE = StepNote(step="port", status=StepStatus.DONE, seconds=0.5, total=2)
SERVER = StepNote(step="server", total=2)


@pytest.fixture
def notes(tmp_path: Path) -> StepNotes:
    return StepNotes(FileStore(tmp_path))


def test_each_step_is_there_once_as_it_is_now(notes: StepNotes, tmp_path: Path) -> None:
    with notes.kept("vm-1"):
        for note in (PORT, SERVER, DONE):
            notes.add("vm-1", note)

        assert StepNotes(FileStore(tmp_path)).of("vm-1") == (DONE, SERVER)
        assert StepNotes(FileStore(tmp_path)).of("vm-2") == ()


def test_none_is_there_when_the_operation_has_ended(notes: StepNotes, tmp_path: Path) -> None:
    with notes.kept("vm-1"):
        notes.add("vm-1", PORT)

    assert notes.of("vm-1") == ()
    assert list((tmp_path / "steps").iterdir()) == []


def test_those_of_a_killed_process_are_none_of_the_next(notes: StepNotes) -> None:
    notes.add("vm-1", PORT)

    with notes.kept("vm-1"):
        assert notes.of("vm-1") == ()


def test_half_a_line_is_left_out(notes: StepNotes, tmp_path: Path) -> None:
    notes.add("vm-1", PORT)
    with (tmp_path / "steps/vm-1.jsonl").open("a") as file:
        file.write('{"step": "ser')

    assert notes.of("vm-1") == (PORT,)


def test_only_their_owner_may_read_them(notes: StepNotes, tmp_path: Path) -> None:
    notes.add("vm-1", PORT)

    assert (tmp_path / "steps").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "steps/vm-1.jsonl").stat().st_mode & 0o777 == 0o600


def test_a_link_in_their_place_is_not_followed(notes: StepNotes, tmp_path: Path) -> None:
    (tmp_path / "steps").mkdir()
    (tmp_path / "steps/vm-1.jsonl").symlink_to(tmp_path / "other")

    notes.add("vm-1", PORT)

    assert not (tmp_path / "other").exists()


def test_what_cannot_be_written_changes_no_outcome(
    site: Site, processor: HandlerProcessor, vm: Callable[..., NodeSliver]
) -> None:
    site.state_dir.mkdir()
    (site.state_dir / "steps").write_text("no directory")

    assert processor.create(vm()).result().ok


def test_an_operation_has_its_steps_while_it_is_under_way(
    site: Site, fakes: Substrate, vm: Callable[..., NodeSliver]
) -> None:
    reached, seen = threading.Event(), threading.Event()

    def tell(progress: Progress) -> None:
        if progress.step == "guest" and progress.status is None:
            reached.set()
            seen.wait(60)

    with HandlerProcessor(site, on_progress=tell) as works, HandlerProcessor(site) as looks:
        created = works.create(vm(components=()))
        assert reached.wait(60)
        steps = {note.step: note.status for note in looks.steps_under_way("sliver-1")}
        seen.set()
        created.result()

        assert steps == {"server": "done", "power": "already so", "guest": None}
        assert looks.steps_under_way("sliver-1") == ()
