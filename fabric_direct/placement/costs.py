"""Costs: integers from 0, lower is better; the host with the lowest weighted sum is chosen.

A cost is a function ``(hosts, needs) -> (n,) of int``, applied to hosts that pass all filters. As for
:mod:`~fabric_direct.placement.filters`, its result for a host must depend on that host's row alone.
All costs of the library range from 0 to 1000, so that their weights are comparable.
"""

import numpy as np

from fabric_direct.placement import devices
from fabric_direct.placement.arrays import ABSENT, UNKNOWN, Floats, Hosts, Ints, sizes
from fabric_direct.placement.hardware import LOCAL
from fabric_direct.placement.request import Needs

MOST = 1000
LEAST = 2.0**-20
"""Cores or GiB assumed for a host that has none, to avoid a division by zero."""


def spread(hosts: Hosts, needs: Needs) -> Ints:
    """Return the share that will be in use, per mille of cores, RAM or disk, whichever is scarcest."""
    return _whole(_shares(hosts, needs).max(axis=1))


def pack(hosts: Hosts, needs: Needs) -> Ints:
    """Return the share that will be left free: 1000 less :func:`spread`."""
    return MOST - spread(hosts, needs)


def imbalance(hosts: Hosts, needs: Needs) -> Ints:
    """Return the difference, per mille, between the shares of cores and of RAM that will be in use.

    Free cores are of no use without free RAM, and the reverse.
    """
    shares = _shares(hosts, needs)
    return _whole(np.abs(shares[:, 0] - shares[:, 1]))


def numa_distance(hosts: Hosts, needs: Needs) -> Ints:
    """Return the distance of the devices from memory: per cent above the distance of local access.

    The mean of the SLIT distances to all devices from the nearest NUMA node with enough memory: 10 (the
    same node) costs 0, 21 costs 110. Without devices it is 0; a device whose node is unknown counts as
    being on another node.
    """
    if not needs.devices or not hosts.node_size.shape[1]:
        return np.zeros(len(hosts), np.int64)
    nearest = devices.distance(hosts, needs).min(axis=1)
    return _whole(np.nan_to_num(nearest / LOCAL - 1, posinf=1.0) / 10)


def scarcity(hosts: Hosts, needs: Needs) -> Ints:
    """Return the rarity of the free devices that the instance would block without using them.

    The sum over each type and model that is free on the host and not requested: the number of hosts
    per 1000 that have none; at most 1000 in total. A need without a model counts as one of the most
    plentiful model.
    """
    hardware = hosts.hardware
    if not hardware.kinds:
        return np.zeros(len(hosts), np.int64)
    there = (hosts.free > 0).astype(np.float32) @ hardware.members > 0
    rarity = there.astype(np.float32) @ hardware.spared(needs.devices)
    return np.asarray(np.minimum(rarity, MOST), dtype=np.int64)


def other_owner(hosts: Hosts, needs: Needs) -> Ints:
    """0 if the owner has a sliver on the host, or the owner is unknown; else 1000."""
    if needs.owner is None:
        return np.zeros(len(hosts), np.int64)
    return np.where(hosts.owner(needs.owner), 0, MOST)


def image_not_at_hand(hosts: Hosts, needs: Needs) -> Ints:
    """0 if the host has the image, 1000 if it must fetch the image, 500 if that is unknown."""
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
