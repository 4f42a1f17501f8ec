"""Fixtures that the suites have in common."""

import secrets

import pytest


class Slivers:
    """The slivers of a suite; override ``sliver`` where ids must have a certain form."""

    @pytest.fixture
    def sliver(self) -> str:
        """Return the id of a sliver that nobody else has."""
        return f"contract-{secrets.token_hex(4)}"

    @pytest.fixture
    def other(self, sliver: str) -> str:
        """Return the id of another sliver; that of the first one is the beginning of it."""
        return f"{sliver}-2"
