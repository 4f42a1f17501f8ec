"""The share of the suite runs as the unit tests do: files in memory, examples untimed."""

import pytest

from tests.unit.conftest import in_memory, one_authority, pytest_collection_finish, tmp_path
from tests.unit.cores import keep_to_one_core

__all__ = ["in_memory", "one_authority", "pytest_collection_finish", "tmp_path"]


def pytest_configure(config: pytest.Config) -> None:
    keep_to_one_core(config)
