"""VNIs of tunnels between the devices of a service (VXLAN, RFC 7348)."""

from collections.abc import Callable, Iterable
from hashlib import sha256
from itertools import count

VNIS = 1 << 24


def choose_vni(site: str, sliver_id: str, held: Iterable[int], free: Callable[[int], bool]) -> int:
    """Return the VNI that a service holds, or else the first that is free from a hash of it on.

    :param free: whether no other service has it on any device of this one.
    """
    hashed = int(sha256(f"{site}/{sliver_id}".encode()).hexdigest(), 16)
    fresh = ((hashed + number) % (VNIS - 1) + 1 for number in count())
    return next(vni for vnis in (held, fresh) for vni in vnis if free(vni))
