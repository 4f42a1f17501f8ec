"""One core for each process of tests.

The threads of an interpreter run one after the other. On several cores they wake each other across
cores, which is a tenth to a fifth of what the tests take.
"""

import os

import pytest

_CORES = "FABRIC_DIRECT_TEST_CORES"


def keep_to_one_core(config: pytest.Config) -> None:
    """Keep a process of pytest-xdist to one core; its forked children run on all of them."""
    worker: str | None = getattr(config, "workerinput", {}).get("workerid")
    if worker is None or _CORES in os.environ:
        return
    cores = sorted(os.sched_getaffinity(0))
    os.environ[_CORES] = " ".join(map(str, cores))
    os.sched_setaffinity(0, [cores[int(worker.removeprefix("gw")) % len(cores)]])


def _spread() -> None:
    """Let processes that race run beside each other."""
    if cores := os.environ.get(_CORES):
        os.sched_setaffinity(0, map(int, cores.split()))


os.register_at_fork(after_in_child=_spread)
