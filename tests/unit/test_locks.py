"""Locks by files, between threads and processes."""

import os
import signal
from pathlib import Path

import pytest

from fabric_direct.errors import SliverBusy
from fabric_direct.locks import exclusive


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
