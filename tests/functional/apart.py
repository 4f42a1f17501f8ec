"""What keeps the processes of one run apart: names and subnets that no other process of it has.

pytest-xdist numbers its processes; without it there is one. The numbers have two digits, so that no name
is the beginning of another's.
"""

import os

NUMBER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
TAG = f"fdtest-{NUMBER:02}"
"""What the names of this process's sites, slivers, domains and networks begin with."""
BRIDGE = f"fdt{NUMBER:02}"
"""The same for interfaces, which have 15 characters."""


def subnet(second: int) -> str:
    """Return the first three bytes of an IPv4 network of this process's own."""
    return f"10.{second}.{NUMBER + 1}"
