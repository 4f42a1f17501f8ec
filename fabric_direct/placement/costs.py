"""What each host costs: integers from 0, lower is better; their weighted sum decides.

A cost is a plain function ``(hosts, needs) -> (n,) of int``, for hosts that the filters let pass. The
rule of :mod:`~fabric_direct.placement.filters` holds here too: what it says of a host depends on that
host's row alone. All of these go from 0 to 1000, so that weights can be compared.
"""

import numpy as np

from fabric_direct.placement import devices
from fabric_direct.placement.arrays import ABSENT, UNKNOWN, Floats, Hosts, Ints, sizes
from fabric_direct.placement.hardware import LOCAL
from fabric_direct.placement.request import Needs

MOST = 1000
LEAST = 2.0**-20
"""Of cores or GiB: what a host without any is taken to have, so that there is a share of it."""


def spread(hosts: Hosts, needs: Needs) -> Ints:
    """How full the host will be: per mille of its cores, RAM or disk, whichever is scarcest there."""
    return _whole(_shares(hosts, needs).max(axis=1))


def pack(hosts: Hosts, needs: Needs) -> Ints:
    """How empty the host will be: 1000 less :func:`spread`."""
    return MOST - spread(hosts, needs)


def imbalance(hosts: Hosts, needs: Needs) -> Ints:
    """How unevenly cores and RAM will be used: per mille between the two shares.

    What is left of one is of no use without the other.
    """
    shares = _shares(hosts, needs)
    return _whole(np.abs(shares[:, 0] - shares[:, 1]))


def numa_distance(hosts: Hosts, needs: Needs) -> Ints:
    """How far the devices are from memory: per cent that access to them takes longer than local access.

    The mean of the SLIT distances to all devices, from the NUMA node with enough memory that is
    nearest: 10 (the same node) costs 0, 21 costs 110. 0 without devices; a device on no known node is
    taken to be on another one.
    """
    if not needs.devices or not hosts.node_size.shape[1]:
        return np.zeros(len(hosts), np.int64)
    nearest = devices.distance(hosts, needs).min(axis=1)
    return _whole(np.nan_to_num(nearest / LOCAL - 1, posinf=1.0) / 10)


def scarcity(hosts: Hosts, needs: Needs) -> Ints:
    """How rare the free devices are that the instance would keep from others.

    For each type and model that the host has free and the instance does not ask for: how many of 1000
    hosts have none; in all at most 1000. A need of any model asks for the most plentiful one.
    """
    hardware = hosts.hardware
    if not hardware.kinds:
        return np.zeros(len(hosts), np.int64)
    there = (hosts.free > 0).astype(np.float32) @ hardware.members > 0
    rarity = there.astype(np.float32) @ hardware.spared(needs.devices)
    return np.asarray(np.minimum(rarity, MOST), dtype=np.int64)


def other_owner(hosts: Hosts, needs: Needs) -> Ints:
    """0 where the owner has a sliver already, or if it is not known; else 1000."""
    if needs.owner is None:
        return np.zeros(len(hosts), np.int64)
    return np.where(hosts.owner(needs.owner), 0, MOST)


def image_not_at_hand(hosts: Hosts, needs: Needs) -> Ints:
    """0 where the image is at hand, 1000 where it must be fetched, 500 where it is not known."""
    cost = np.zeros(3, np.int64)
    cost[UNKNOWN], cost[ABSENT] = MOST // 2, MOST
    return cost[hosts.image(needs.image)]


def _shares(hosts: Hosts, needs: Needs) -> Floats:
    """Return (n, 3): how much of what may be promised will be, 1 where nothing may be."""
    taken = hosts.used + sizes(needs.capacities)
    return taken / np.maximum(hosts.promised, LEAST)


def _whole(shares: Floats) -> Ints:
    whole: Ints = np.rint(np.minimum(np.maximum(shares, 0.0), 1.0) * MOST).astype(np.int64)
    return whole
