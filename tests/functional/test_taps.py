"""Taps on the real kernel, in a network namespace."""

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from pyroute2 import netns as namespaces

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")

_CALLS = """
import json, sys
from fabric_direct.drivers.hosts.agent import taps
for function, *arguments in json.loads(sys.argv[1]):
    answer = getattr(taps, function)(*arguments)
print(json.dumps(answer))
"""
Calls = Callable[..., object]


@pytest.fixture
def calls() -> Iterator[Calls]:
    """Calls functions of the agent in a namespace: sysfs shows that of who mounted it."""
    name = f"fdtest-{secrets.token_hex(4)}"
    namespaces.create(name)

    def calls(*calls: tuple[object, ...]) -> object:
        inside = ["ip", "netns", "exec", name, sys.executable, "-c", _CALLS]
        done = subprocess.run(
            [*inside, json.dumps(calls)], check=True, capture_output=True, text=True
        )
        return json.loads(done.stdout)

    yield calls
    namespaces.remove(name)


def test_a_tap_stays_until_it_is_removed_by_its_alias(calls: Calls) -> None:
    make, remove = ("make", "fdt0", "ours", 1400), ("remove", "fdt0", "ours")

    assert calls(make, make, ("taps",)) == {"fdt0": ["ours", False, True]}
    assert calls(("remove", "fdt0", "another's"), ("taps",)) == {"fdt0": ["ours", False, True]}
    assert calls(remove, remove, ("taps",)) == {}


def test_a_link_that_is_no_tap_is_left_alone(calls: Calls) -> None:
    with pytest.raises(subprocess.CalledProcessError) as failed:
        calls(("make", "lo", "ours", None))

    assert "link lo is not ours" in failed.value.stderr
