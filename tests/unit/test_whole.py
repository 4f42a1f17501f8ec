"""``make test-whole``: what it writes into its page, and what it refuses."""

import subprocess
from pathlib import Path

import pytest

from tests import whole

MAKEFILE = """
some:
\t@echo "==== 3 passed, 1 skipped in 2.00s ===="
\t@echo "==== 4 passed in 61.00s (0:01:01) ===="
bad:
\t@echo "==== 1 failed, 6 passed in 2.00s ===="
\t@false
"""
PARTS = whole.PARTS
PAGE = "# What was tried whole\n\nText.\n\n| part | commit |\n| --- | --- |\n"


@pytest.fixture(autouse=True)
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout whose parts take no time."""
    monkeypatch.setattr(whole, "ROOT", tmp_path)
    monkeypatch.setattr(whole, "PAGE", tmp_path / "docs/verified.md")
    parts = {name: whole.Part((name,), ("covered",)) for name in ("some", "bad")}
    monkeypatch.setattr(whole, "PARTS", parts)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/verified.md").write_text(PAGE)
    (tmp_path / "Makefile").write_text(MAKEFILE)
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    return tmp_path


def main(arguments: list[str]) -> int:
    """Run the command; return its exit status."""
    with pytest.raises(SystemExit) as ended:
        whole.main(arguments)
    return int(ended.value.code or 0)


def git(checkout: Path, *arguments: str) -> None:
    who = ("-c", "user.name=n", "-c", "user.email=e@example.net", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *arguments], cwd=checkout, check=True, capture_output=True)


def commit(checkout: Path) -> None:
    git(checkout, "add", "-A")
    git(checkout, "commit", "-q", "--allow-empty", "-m", "m")


def test_a_part_on_an_openstack_ends_the_one_that_ran_before() -> None:
    on_a_cloud = [p.make for p in PARTS.values() if {"test-openstack", "test-site"} & {*p.make}]

    assert len(on_a_cloud) == 4
    assert {make[0] for make in on_a_cloud} == {"openstack-down"}


def test_a_part_that_passes_writes_its_line() -> None:
    assert main(["some"]) == 0

    (line,) = whole.lines().values()
    assert (line.part, line.passed, line.skipped) == ("some", 7, 1)
    assert whole.PAGE.read_text().startswith("# What was tried whole\n\nText.\n\n| part | commit |")


def test_a_part_that_fails_leaves_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    was = whole.Line("bad", "abc", "2026-01-01", 2, 1, 0, 5)
    whole.write({"bad": was})

    assert main([]) == 1

    assert whole.lines()["bad"] == was
    assert "some" in whole.lines()
    assert "bad failed after" in capsys.readouterr().out


def test_more_that_is_skipped_than_before_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    was = whole.Line("some", "abc", "2026-01-01", 2, 8, 0, 5)
    whole.write({"some": was})

    assert main(["some"]) == 1

    assert whole.lines() == {"some": was}
    assert "1 tests were skipped, 0 at abc" in capsys.readouterr().out


def test_a_part_that_is_not_there_is_told_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["some", "nosuch"]) == 2

    assert capsys.readouterr().err == "Error: there is no part nosuch: some, bad\n"
    assert whole.lines() == {}


def test_what_is_not_committed_is_not_tried(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkout / "new").write_text("")

    assert main(["some"]) == 2

    said = "Error: commit first, for a line is of a commit; changed files: 1\n"
    assert capsys.readouterr().err == said


def test_commits_since_a_line_are_counted_where_they_touch_what_it_covers(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["some"]) == 0
    for name in ("covered", "other"):
        (checkout / name).write_text("")
        commit(checkout)
    capsys.readouterr()

    assert main(["--since"]) == 0

    some, bad = capsys.readouterr().out.splitlines()
    assert some.split()[:3] == ["some", "1", "commits"]
    assert bad.split() == ["bad", "never", "run", "whole"]
