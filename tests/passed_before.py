"""A plugin of pytest: leave out what passed before the lab replaced its worker (``lab guard``)."""

import os
from pathlib import Path

import pytest

PASSED = Path(os.environ["FABRIC_PASSED"])
"""Names these tests, one a line."""
CALLED: set[str] = set()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    passed = set(PASSED.read_text().splitlines())
    items[:] = [item for item in items if item.nodeid not in passed]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and report.passed:
        CALLED.add(report.nodeid)
    if report.when == "teardown" and report.passed and report.nodeid in CALLED:
        with PASSED.open("a") as file:
            file.write(f"{report.nodeid}\n")
