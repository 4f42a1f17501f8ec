"""The contract finds drivers that are wrong: each of a table of them fails the test that it should."""

import os
import re
import subprocess
import sys

import pytest

from tests.unit.driver_packages import ROOT
from tests.unit.wrong_drivers import WRONG, Wrong

SUITES = "tests/unit/wrong_drivers.py"


@pytest.fixture(scope="module")
def failed() -> set[tuple[str, str]]:
    """Run the suites of all wrong drivers once; return suite and test of what failed."""
    run = "-m pytest -q -p no:cacheprovider -p no:randomly -p no:xdist --tb=no -o python_files=*.py"
    done = subprocess.run(
        [sys.executable, *run.split(), SUITES],
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.findall(r"^FAILED \S+?::(\w+)::(\w+)", done.stdout, re.MULTILINE)
    assert found, done.stdout + done.stderr
    return set(found)


@pytest.mark.xdist_group("wrong_drivers")
@pytest.mark.parametrize("wrong", WRONG, ids=[wrong.name for wrong in WRONG])
def test_a_wrong_driver_fails(failed: set[tuple[str, str]], wrong: Wrong) -> None:
    assert (wrong.name, wrong.found_by) in failed


def test_each_wrong_driver_has_a_name_of_its_own() -> None:
    assert len({wrong.name for wrong in WRONG}) == len(WRONG)
