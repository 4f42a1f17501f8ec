"""What the meters of the lab's switches do with frames."""

import re
import time

from tests.network.conftest import ofctl, vsctl
from tests.network.wire import PATIENCE, Tags, Wire, flood

BURST = 0.2
"""What may pass at once, in seconds of a rate, where a sliver says nothing of it."""


def dropped() -> int:
    """Return how many frames the meters of sw1 have dropped since they were made."""
    bridges = set(vsctl("sw1", "list-br").split()) - {"underlay"}
    told = "".join(ofctl("sw1", "meter-stats", bridge) for bridge in bridges)
    return sum(int(count) for count in re.findall(r"^0: packet_count:(\d+)", told, re.MULTILINE))


def limits(one: Wire, other: Wire, vlans: tuple[Tags, Tags], rate: int) -> bool:
    """Return whether a meter drops what exceeds a rate in Mbit/s, and lets no more pass.

    A machine may be too slow to exceed it at once.
    """
    before, end = dropped(), time.monotonic() + PATIENCE
    passed = [flood(one, other, vlans, 2 * rate)]
    while dropped() == before and time.monotonic() < end:
        passed.append(flood(one, other, vlans, 2 * rate))
    most = [rate * (seconds + BURST) * 1.1 for _, seconds in passed]
    return dropped() > before and all(
        arrived < bound for (arrived, _), bound in zip(passed, most, strict=True)
    )
