"""Locks by files, between threads and processes."""

import os
import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from fabric_direct.errors import DriverError, SliverBusy
from fabric_direct.state.locks import exclusive, is_held, remove_stale, stale


def test_a_lock_is_held_once(tmp_path: Path) -> None:
    lock = tmp_path / "locks" / "a"

    with (
        exclusive(lock, "sliver a", timeout=1),
        pytest.raises(SliverBusy, match="sliver a is being worked on"),
        exclusive(lock, "sliver a", timeout=0.05),
    ):
        pass


def test_it_is_free_again_and_its_file_gone(tmp_path: Path) -> None:
    for _ in range(2):
        with exclusive(tmp_path / "a", "a", timeout=0):
            assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == []


def test_it_is_free_again_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), exclusive(tmp_path / "a", "a", timeout=0):
        raise ZeroDivisionError
    with exclusive(tmp_path / "a", "a", timeout=0):
        pass


def test_another_process_keeps_it_until_it_is_killed(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with exclusive(tmp_path / "a", "a", timeout=1):
            os.write(writing, b"held")
            signal.pause()
    assert os.read(reading, 4) == b"held"

    with pytest.raises(SliverBusy), exclusive(tmp_path / "a", "a", timeout=0.05):
        pass
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)

    with exclusive(tmp_path / "a", "a", timeout=1):
        pass


def forked(work: Callable[[], object]) -> int:
    """Return the id of a child that works, and then waits for its end."""
    child = os.fork()
    if child == 0:
        work()
        signal.pause()
    return child


def test_a_child_of_the_process_that_was_killed_does_not_keep_it(tmp_path: Path) -> None:
    reading, writing = os.pipe()

    def hold() -> None:
        with exclusive(tmp_path / "a", "a", timeout=1):
            os.write(writing, str(forked(lambda: None)).encode())
            signal.pause()

    holder = forked(hold)
    heir = int(os.read(reading, 20))
    os.kill(holder, signal.SIGKILL)
    os.waitpid(holder, 0)

    try:
        with exclusive(tmp_path / "a", "a", timeout=1):
            pass
    finally:
        os.kill(heir, signal.SIGKILL)


def test_a_child_that_leaves_its_parents_block_leaves_it_alone(tmp_path: Path) -> None:
    with ExitStack() as block:
        block.enter_context(exclusive(tmp_path / "a", "a", timeout=1))
        child = os.fork()
        if child == 0:
            block.close()
            os._exit(0)
        os.waitpid(child, 0)

        with pytest.raises(SliverBusy), exclusive(tmp_path / "a", "a", timeout=0):
            pass


def test_a_folder_that_cannot_be_made_is_told_in_plain_words(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with (
        pytest.raises(DriverError, match=r"cannot lock sliver a \(.*\): Not a directory\. check"),
        exclusive(tmp_path / "file/locks/a", "sliver a", timeout=0),
    ):
        pass


def test_a_link_in_its_place_is_refused_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "elsewhere")

    with (
        pytest.raises(DriverError, match="cannot lock a"),
        exclusive(tmp_path / "a", "a", timeout=0),
    ):
        pass

    assert not (tmp_path / "elsewhere").exists()


class TestALockThatIsLookedAt:
    def test_is_held_while_somebody_holds_it(self, tmp_path: Path) -> None:
        with exclusive(tmp_path / "a", "a", timeout=0):
            assert is_held(tmp_path / "a")
            assert stale(tmp_path) == ()
        assert not is_held(tmp_path / "a")

    def test_is_not_made_by_the_look(self, tmp_path: Path) -> None:
        assert not is_held(tmp_path / "a")
        assert stale(tmp_path / "none") == ()
        assert list(tmp_path.iterdir()) == []

    def test_is_stale_if_its_file_is_there_and_nobody_holds_it(self, tmp_path: Path) -> None:
        (tmp_path / "a").touch()

        assert stale(tmp_path) == (tmp_path / "a",)
        remove_stale(tmp_path / "a")

        assert stale(tmp_path) == ()

    def test_is_not_removed_while_somebody_holds_it(self, tmp_path: Path) -> None:
        with exclusive(tmp_path / "a", "a", timeout=0):
            remove_stale(tmp_path / "a")
            assert is_held(tmp_path / "a")

    def test_that_is_a_link_is_not_followed(self, tmp_path: Path) -> None:
        (tmp_path / "a").symlink_to(tmp_path / "b")

        with pytest.raises(DriverError, match="cannot look at a lock"):
            is_held(tmp_path / "a")
