"""Tests beside each other on one cloud, and tests that must be the only one there."""

import fcntl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.openstack.target import TARGET

LOCK = Path(tempfile.gettempdir()) / f"fabric-direct-tests-{TARGET.cloud}.lock"


@contextmanager
def turn(*, alone: bool) -> Iterator[None]:
    """Run beside the other tests on the cloud; if alone, after those that run and before the next.

    Processes share the turn, whatever started them.
    """
    with LOCK.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield
