"""Small databases: what is read and written in one transaction, whatever threads and processes do."""

import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest

from fabric_direct.errors import DriverError
from fabric_direct.state.database import SqliteDatabase
from tests.unit.processes import APART

TABLE = "CREATE TABLE IF NOT EXISTS count (number INTEGER NOT NULL)"
TIMES = 15


def database(path: Path) -> SqliteDatabase:
    return SqliteDatabase(path, TABLE, what="the count", timeout=60)


def count_up(path: Path) -> None:
    for _ in range(TIMES):
        with database(path).changing() as db:
            (number,) = db.execute("SELECT max(number) FROM count").fetchone()
            time.sleep(0.005)
            db.execute("INSERT INTO count VALUES (?)", ((number or 0) + 1,))


def count_in_threads(path: Path) -> None:
    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(count_up, path) for _ in range(4)]:
            done.result()


def test_no_change_is_lost_between_threads_of_several_processes(tmp_path: Path) -> None:
    """A file that any thread closes loses all of its process's locks: POSIX has them so."""
    path = tmp_path / "count.sqlite"
    with ProcessPoolExecutor(2, APART) as processes:
        for done in [processes.submit(count_in_threads, path) for _ in range(2)]:
            done.result(120)

    with database(path).reading() as db:
        numbers = [number for (number,) in db.execute("SELECT number FROM count ORDER BY number")]
    assert numbers == list(range(1, 2 * 4 * TIMES + 1))


def test_it_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "state" / "count.sqlite"
    with database(path).changing():
        assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_statement_alone_says_what_it_found_or_changed(tmp_path: Path) -> None:
    one = database(tmp_path / "count.sqlite")
    with one.changing() as db:
        db.execute("INSERT INTO count VALUES (1), (2)")
    assert one.change("UPDATE count SET number = number + ? WHERE number > ?", 10, 1) == 1
    assert one.rows("SELECT number FROM count WHERE number < ? ORDER BY number", 20) == [
        (1,),
        (12,),
    ]


def test_without_a_file_nothing_is_found_changed_or_made(tmp_path: Path) -> None:
    none = database(tmp_path / "count.sqlite")
    found = none.rows("SELECT number FROM count"), none.change("DELETE FROM count")
    assert (found, list(tmp_path.iterdir())) == (([], 0), [])


def test_what_raises_changes_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with database(tmp_path / "count.sqlite").changing() as db:
            db.execute("INSERT INTO count VALUES (1)")
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    with database(tmp_path / "count.sqlite").reading() as db:
        assert db.execute("SELECT * FROM count").fetchall() == []


def test_a_folder_that_cannot_be_made_is_told_in_plain_words(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with (
        pytest.raises(DriverError, match=r"cannot create the count \(.*\): Not a directory"),
        database(tmp_path / "file/state/count.sqlite").reading(),
    ):
        pass


@pytest.mark.parametrize("there", [True, False])
def test_a_link_in_its_place_is_refused_and_not_followed(tmp_path: Path, there: bool) -> None:
    elsewhere = tmp_path / "elsewhere"
    if there:
        elsewhere.touch()
    (tmp_path / "count.sqlite").symlink_to(elsewhere)

    with (
        pytest.raises(DriverError, match="symbolic link"),
        database(tmp_path / "count.sqlite").changing(),
    ):
        pass

    assert (elsewhere.read_bytes() if there else elsewhere.exists()) == (b"" if there else False)
