"""What is asked of the package as pip installs it: a wheel in a folder of its own."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PIP = "-m pip install -q --no-index --no-deps --no-build-isolation --disable-pip-version-check"
Run = Callable[..., str]


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the package; return the folder with its modules and, in ``share``, its other files."""
    there = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, *PIP.split(), "--target", there, ROOT], check=True)
    return there


@pytest.fixture
def python(installed: Path, tmp_path: Path) -> Run:
    """Run this Python, with the installed package and in a folder of its own; return what it says."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "MYPY"))}

    def run(*argv: object) -> str:
        done = subprocess.run(
            [sys.executable, *map(str, argv)],
            cwd=tmp_path,
            env=kept | {"PYTHONPATH": str(installed), "MYPYPATH": str(installed)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.stdout

    return run
