"""What a test needs and is not here: it is skipped, or fails where all must be tried."""

import os
from typing import NoReturn

import pytest


def absent(reason: str) -> NoReturn:
    """End a test that needs what this machine lacks.

    :param reason: what is missing, and how it comes.
    """
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
