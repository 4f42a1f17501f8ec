"""What the pages show, checked by mypy."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.test_documentation import PAGES, ROOT, blocks


def test_the_python_of_the_pages_is_typed(tmp_path: Path) -> None:
    """As its readers check theirs: strictly, without the settings of this repository."""
    for page in PAGES:
        sources = [text for language, text in blocks(page) if language == "python"]
        for number, text in enumerate(sources):
            name = re.sub(r"\W", "_", page.removesuffix(".md"))
            (tmp_path / f"{name}_{number}.py").write_text(text)
    options = "--strict --follow-imports=silent --config-file= --cache-dir=.mypy_cache/documents"

    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options.split(), *map(str, tmp_path.glob("*.py"))],
        cwd=ROOT,
        env=os.environ | {"MYPYPATH": "examples/driver"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert re.match(r"Success: no issues found in \d\d? source files", done.stdout), done.stdout


def test_all_pages_are_looked_at() -> None:
    there = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if there.returncode:
        pytest.skip("this is no clone of the repository")

    pages = [page for page in there.stdout.split() if not page.startswith(".github/")]

    assert pages == sorted(PAGES)
