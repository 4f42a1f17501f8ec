"""The share of the suite runs as the unit tests do: files in memory, examples untimed."""

from tests.unit.conftest import in_memory, one_authority, pytest_collection_finish, tmp_path

__all__ = ["in_memory", "one_authority", "pytest_collection_finish", "tmp_path"]
