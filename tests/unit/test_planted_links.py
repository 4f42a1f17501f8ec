"""Links that another user has put into the state directory lead nowhere: nothing is written there."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from fabric_direct.drivers.libvirt.passthrough.records import DeviceRecords
from fabric_direct.drivers.ssh import known_hosts
from fabric_direct.errors import DriverError, FabricDirectError, InvalidSite
from fabric_direct.model import Operation, PciAddress
from fabric_direct.site.config import Site
from fabric_direct.state.database import SqliteDatabase
from fabric_direct.state.file_store import FileStore
from fabric_direct.state.journal import Journal
from fabric_direct.state.store import sliver_lock
from fabric_direct.zones.sealing import seal_of
from tests.conftest import KEY

SLIVER = {"id": "s", "type": "VM"}
_real = Path.lstat


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    made = tmp_path / "theirs"
    made.mkdir()
    (made / "s.json").write_text("theirs")
    return made


@pytest.fixture
def state(tmp_path: Path) -> Path:
    made = tmp_path / "state"
    made.mkdir()
    return made


def plant(monkeypatch: pytest.MonkeyPatch, link: Path, to: Path) -> None:
    """Put a link there that looks like another user's."""
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(to)

    def lstat(path: Path) -> os.stat_result:
        found = _real(path)
        return (
            os.stat_result((*found[:4], found.st_uid + 4711, *found[5:])) if path == link else found
        )

    monkeypatch.setattr(Path, "lstat", lstat)


def begin(state: Path) -> None:
    Journal(FileStore(state)).begin(Operation.CREATE, SLIVER)


def end(state: Path) -> None:
    Journal(FileStore(state)).end("s")


def unfinished(state: Path) -> None:
    Journal(FileStore(state)).unfinished()


def lock(state: Path) -> None:
    with FileStore(state).exclusive(sliver_lock("s"), "sliver s", timeout=0):
        pass


def count(state: Path) -> None:
    table = "CREATE TABLE IF NOT EXISTS t (a)"
    with SqliteDatabase(state / "zone/x.sqlite", table, what="it", timeout=0).changing() as db:
        db.execute("INSERT INTO t VALUES (1)")


def seal(state: Path) -> None:
    seal_of(state)


def strike(state: Path) -> None:
    records = DeviceRecords(Site(site="TEST", state_dir=state), "w1")
    records._on_host = lambda *_, **__: {}  # type: ignore[method-assign]
    records.remove(PciAddress.parse("0000:04:00.0"))


USES: tuple[tuple[str, Callable[[Path], None], type[FabricDirectError]], ...] = (
    ("journal", begin, DriverError),
    ("journal", end, DriverError),
    ("journal", unfinished, DriverError),
    ("locks", lock, DriverError),
    ("zone", count, DriverError),
    ("zone", seal, InvalidSite),
    ("devices", strike, DriverError),
    ("devices/w1", strike, DriverError),
)


@pytest.mark.parametrize(("name", "use", "error"), USES)
def test_in_the_place_of_a_directory_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    state: Path,
    theirs: Path,
    name: str,
    use: Callable[[Path], None],
    error: type[FabricDirectError],
) -> None:
    plant(monkeypatch, state / name, theirs)

    with pytest.raises(error):
        use(state)

    assert {path.name: path.read_text() for path in theirs.iterdir()} == {"s.json": "theirs"}


@pytest.mark.parametrize("name", ["journal", "locks"])
def test_of_the_operator_are_followed(state: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "disk").mkdir()
    (state / name).symlink_to(tmp_path / "disk")

    begin(state)
    lock(state)

    assert [entry.sliver for entry in Journal(FileStore(state)).unfinished()] == [SLIVER]


def test_in_the_place_of_the_state_directory_itself_is_followed(
    state: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(state)

    begin(tmp_path / "link")

    assert (state / "journal/s.json").exists()


@pytest.mark.parametrize("name", ["known_hosts", ".known_hosts.new", "known_hosts.lock"])
def test_in_the_place_of_the_pinned_keys_are_not_written_through(
    state: Path, theirs: Path, name: str
) -> None:
    (state / name).symlink_to(theirs / "s.json")

    with suppress(DriverError):
        known_hosts.pin(Site(site="TEST", state_dir=state), "192.0.2.7", KEY)

    assert (theirs / "s.json").read_text() == "theirs"


@pytest.mark.parametrize("suffix", ["-journal", "-wal", "-shm"])
def test_beside_a_database_are_not_written_through(state: Path, theirs: Path, suffix: str) -> None:
    count(state)
    (state / "zone" / f"x.sqlite{suffix}").symlink_to(theirs / "s.json")

    with suppress(DriverError, sqlite3.Error):
        count(state)

    assert (theirs / "s.json").read_text() == "theirs"
