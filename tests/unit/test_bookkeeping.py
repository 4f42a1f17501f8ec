"""Journal, claims and locks that cannot be written: what is on the substrate is told as it is."""

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fabric_direct.drivers.fake import Substrate
from fabric_direct.errors import DriverError
from fabric_direct.model import NodeSliver, SliverRef, Status
from fabric_direct.placement.claims import Claims
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from fabric_direct.state import files
from fabric_direct.state.database import SqliteDatabase
from fabric_direct.state.journal import Journal
from tests.outcomes import done

MakeVm = Callable[..., NodeSliver]
REF = SliverRef(id="sliver-1", type="VM")
FULL = OSError(errno.ENOSPC, "No space left on device")


def full(*_: object, **__: object) -> None:
    raise FULL


def broken(*_: object, **__: object) -> None:
    raise DriverError("cannot write", why=str(FULL))


def grown(vm: MakeVm) -> NodeSliver:
    components = [c.model_dump(mode="json") for c in vm().components]
    return vm(components=[*components, {"type": "vNIC", "id": "nic3", "network": "red"}])


@pytest.fixture
def auto(vm: MakeVm) -> NodeSliver:
    """A sliver that is placed."""
    return vm(host="auto")


@pytest.fixture
def fill(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Fill the disk: nothing can be written in the site's directory any more."""

    def fill() -> None:
        monkeypatch.setattr(files, "replace", full)
        monkeypatch.setattr(files, "sync", full)
        monkeypatch.setattr(SqliteDatabase, "change", broken)

    return fill


@pytest.fixture
def filling(
    processor: HandlerProcessor, fill: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """The disk becomes full in the middle of an operation: once it has noted that it begins."""
    begin = Journal.begin

    def last(*args: Any, **kw: Any) -> Any:
        entry = begin(*args, **kw)
        fill()
        return entry

    monkeypatch.setattr(Journal, "begin", last)
    yield
    monkeypatch.undo()


class TestABookThatFails:
    """When an operation ends."""

    @pytest.fixture(
        autouse=True,
        params=[(Path, "unlink", full), (Claims, "settle", broken)],
        ids=["journal", "claims"],
    )
    def failing(
        self,
        request: pytest.FixtureRequest,
        processor: HandlerProcessor,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(*request.param)

    def test_a_creation_that_worked_is_done_with_a_warning(
        self, processor: HandlerProcessor, fakes: Substrate, auto: NodeSliver
    ) -> None:
        outcome = done(processor.create(auto).result())

        assert "No space left" in " ".join(outcome.warnings)
        assert list(fakes.servers) == ["sliver-1"]

    def test_one_that_failed_says_why(
        self, processor: HandlerProcessor, fakes: Substrate, auto: NodeSliver
    ) -> None:
        fakes.fault("compute.create", kind="fail")

        outcome = processor.create(auto).result()

        assert (outcome.status, outcome.left) == (Status.FAILED, ())
        assert outcome.error
        assert "compute.create failed" in outcome.error.message
        assert "No space left" in " ".join(outcome.warnings)


class TestAFullDisk:
    def test_refuses_a_creation_and_a_modification_before_anything_is_made(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm, fill: Callable[[], None]
    ) -> None:
        done(processor.create(vm()).result())
        fill()

        outcomes = [processor.create(vm(id="new")).result(), processor.modify(grown(vm)).result()]

        assert {(o.status, o.left) for o in outcomes} == {(Status.FAILED, ())}
        assert all("No space left" in str(o.error) for o in outcomes)
        assert len(fakes.ports) == 2
        assert processor.unfinished() == ()

    def test_does_not_keep_a_deletion_which_needs_no_memory(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm, fill: Callable[[], None]
    ) -> None:
        done(processor.create(vm()).result())
        fill()

        outcome = done(processor.delete(REF).result())

        assert "No space left" in " ".join(outcome.warnings)
        assert (fakes.servers, fakes.ports, fakes.volumes) == ({}, {}, {})

    @pytest.mark.usefixtures("filling")
    def test_in_the_middle_of_a_creation_makes_it_no_failure(
        self, processor: HandlerProcessor, fakes: Substrate, auto: NodeSliver
    ) -> None:
        outcome = done(processor.create(auto).result())

        assert "No space left" in " ".join(outcome.warnings)
        assert list(fakes.servers) == ["sliver-1"]

    def test_in_the_middle_of_a_modification_makes_it_no_failure(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm, request: Any
    ) -> None:
        done(processor.create(vm()).result())
        request.getfixturevalue("filling")

        outcome = done(processor.modify(grown(vm)).result())

        assert "No space left" in " ".join(outcome.warnings)
        assert len(fakes.ports) == 3

    def test_in_the_middle_of_a_modification_that_fails_is_not_called_its_error(
        self, processor: HandlerProcessor, fakes: Substrate, vm: MakeVm, request: Any
    ) -> None:
        done(processor.create(vm()).result())
        request.getfixturevalue("filling")
        fakes.fault("compute.attach_port", kind="fail")
        fakes.fault("network.delete_port", kind="fail")

        outcome = processor.modify(grown(vm)).result()

        assert outcome.status is Status.PARTIAL
        assert outcome.error
        assert "compute.attach_port failed" in outcome.error.message
        assert "port nic3" in " ".join(outcome.left)


def test_an_operation_that_ended_is_over_though_its_entry_cannot_be_removed(
    processor: HandlerProcessor, fakes: Substrate, vm: MakeVm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the next one that fails would take what this one made for its own, and remove it."""
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", full)
        done(processor.create(vm()).result())

    assert processor.unfinished() == ()
    fakes.fault("guest.wait", kind="fail")
    outcome = processor.create(vm()).result()

    assert (outcome.status, outcome.left) == (Status.FAILED, ())
    assert list(fakes.servers) == ["sliver-1"]
    assert processor.unfinished() == ()


def test_an_operation_that_is_not_noted_on_the_disk_never_begins(
    processor: HandlerProcessor, fakes: Substrate, vm: MakeVm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry is written, and its directory cannot be synced: nobody shall finish it."""
    done(processor.create(vm(id="other")).result())
    with monkeypatch.context() as patched:
        patched.setattr(files, "sync", full)
        outcome = processor.create(vm()).result()

    assert outcome.status is Status.FAILED
    assert processor.unfinished() == ()
    assert list(fakes.servers) == ["other"]


def test_a_creation_whose_leftovers_cannot_be_listed_for_removal_names_them(
    processor: HandlerProcessor, fakes: Substrate, vm: MakeVm
) -> None:
    fakes.fault("guest.wait", kind="fail")
    fakes.fault("volume.delete", at=0, kind="fail")
    fakes.fault("volume.volumes", at=2, kind="fail")

    outcome = processor.create(vm()).result()

    assert outcome.status is Status.PARTIAL
    assert outcome.left == ("/fake/sliver-1.data",)


def test_a_lock_whose_file_stays_changes_no_outcome(
    processor: HandlerProcessor, fake_site: Site, vm: MakeVm, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlink = Path.unlink

    def stays(path: Path, missing_ok: bool = False) -> None:
        if path.parent.name == "locks":
            raise FULL
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", stays)

    done(processor.create(vm()).result())

    assert [*(fake_site.state_dir / "locks").iterdir()]
    done(processor.delete(REF).result())


def test_an_entry_that_cannot_be_read_when_its_operation_ends_is_removed(
    processor: HandlerProcessor, vm: MakeVm, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = Journal.end

    def unread(journal: Journal, sliver_id: str) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(Path, "read_bytes", full)
            end(journal, sliver_id)

    monkeypatch.setattr(Journal, "end", unread)

    assert done(processor.create(vm()).result()).warnings == ()
    assert processor.unfinished() == ()
