"""The Python of the README and of the library's page does what these pages say."""

import re
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)


def blocks(page: str) -> list[tuple[str, str]]:
    """Return the fenced blocks of a page, each with its language."""
    return FENCE.findall((ROOT / page).read_text())


@pytest.mark.parametrize("page", ["README.md", "docs/library.md"])
def test_the_first_example_prints_what_the_page_shows(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    found = blocks(page)
    first = next(n for n, (language, _) in enumerate(found) if language == "python")
    printed = StringIO()
    with redirect_stdout(printed):
        exec(found[first][1], {})  # noqa: S102
    assert sorted(printed.getvalue().splitlines()) == sorted(found[first + 1][1].splitlines())


def test_the_example_of_a_test_passes(tmp_path):
    (source,) = (text for _, text in blocks("docs/library.md") if "import pytest" in text)
    (tmp_path / "test_example.py").write_text(source)
    alone = ["-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist", tmp_path]
    subprocess.run([sys.executable, "-m", "pytest", *alone], cwd=tmp_path, check=True)


def test_it_fits_two_screens():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150
