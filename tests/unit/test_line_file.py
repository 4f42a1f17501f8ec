"""Files of JSON lines: many writers, a bounded size, and lines that were cut off."""

import multiprocessing
from pathlib import Path

import pytest
from pytest_mock import MockerFixture

from fabric_direct.model import Frozen
from fabric_direct.state.line_file import LineFile
from fabric_direct.state.lines import JsonLines

FORK = multiprocessing.get_context("fork")
EACH = 50


class Line(Frozen):
    text: str


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kept" / "history.jsonl"


@pytest.fixture
def lines(path: Path) -> JsonLines[Line]:
    return JsonLines(LineFile(path.parent, 1000), Line)


def texts(lines: JsonLines[Line]) -> list[str]:
    return [line.text for line in lines.notes()]


def write(lines: JsonLines[Line], name: str) -> None:
    for number in range(EACH):
        lines.add(Line(text=f"{name}-{number}"))


def test_nothing_was_written_yet(lines: JsonLines[Line]) -> None:
    assert not texts(lines)


def test_lines_are_read_in_their_order_whatever_is_in_them(lines: JsonLines[Line]) -> None:
    written = ["a\nb", "c\u2028d\x85e", "\x00", ""]
    for text in written:
        lines.add(Line(text=text))
    assert texts(lines) == written


def test_only_their_owner_may_read_them(lines: JsonLines[Line], path: Path) -> None:
    lines.add(Line(text="a"))
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_line_that_was_cut_off_spoils_no_other(lines: JsonLines[Line], path: Path) -> None:
    lines.add(Line(text="a"))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[: len(whole) // 2])
    lines.add(Line(text="b"))
    assert texts(lines) == ["a", "b"]


def test_a_full_file_takes_the_place_of_the_former_one(lines: JsonLines[Line], path: Path) -> None:
    write(lines, "x" * 100)
    kept = [path.stat().st_size for path in path.parent.iterdir()]
    assert len(kept) == 2
    assert sum(kept) < 2 * (1000 + 200)
    assert texts(lines)[-1].endswith(f"-{EACH - 1}")


def test_a_file_that_another_writer_has_just_put_away_stays(
    lines: JsonLines[Line], path: Path, mocker: MockerFixture
) -> None:
    lines.add(Line(text="a"))
    mocker.patch.object(LineFile, "_is_full", side_effect=[True, False])
    lines.add(Line(text="b"))
    assert [path.name for path in path.parent.iterdir()] == ["history.jsonl"]
    assert texts(lines) == ["a", "b"]


def test_a_file_that_is_put_away_between_two_looks_is_read_once(
    lines: JsonLines[Line], path: Path, mocker: MockerFixture
) -> None:
    for text in "ab":
        lines.add(Line(text=text))
    one, both = (path.read_text().splitlines(keepends=True)[0], path.read_text())
    mocker.patch("fabric_direct.state.line_file._text", side_effect=[one, both])
    assert texts(lines) == ["a", "b"]


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    lines = JsonLines(LineFile(tmp_path, 6000), Line)  # it is put away once
    writers = [FORK.Process(target=write, args=(lines, f"writer{n}" + "x" * 20)) for n in range(4)]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    assert (tmp_path / "history.former.jsonl").exists()
    assert len(set(texts(lines))) == 4 * EACH


def test_what_cannot_be_written_is_logged(
    lines: JsonLines[Line], path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", "fabric_direct")
    path.mkdir(parents=True)
    lines.add(Line(text="a"))
    assert "cannot write" in caplog.text
