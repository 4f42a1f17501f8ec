"""A site's racks: one filter and one cost.

A host says by its traits in which rack it is, and whether that rack's power is short::

    hosts:
      w1: {traits: [CUSTOM_RACK_1]}
      w2: {traits: [CUSTOM_RACK_4, CUSTOM_POWER_SHORT]}
    placement:
      weights: {rack_distance: 5}   # 1 if not said; 0 leaves it out

Once the package is installed, both are asked. ``without: [rack_power]`` leaves the filter out.
"""

import numpy as np
from numpy.typing import NDArray

from fabric_direct.placement.arrays import Hosts
from fabric_direct.placement.request import Needs

RACKS = 20
HUNGRY = {"GPU", "FPGA"}


def rack_power(hosts: Hosts, needs: Needs) -> NDArray[np.bool_]:
    """Return (n,): hosts of racks whose power is short take nothing with a GPU or an FPGA."""
    if HUNGRY.isdisjoint(need.type for need in needs.devices):
        return np.ones(len(hosts), np.bool_)
    return ~hosts.trait("CUSTOM_POWER_SHORT")


def rack_distance(hosts: Hosts, needs: Needs) -> NDArray[np.int64]:  # noqa: ARG001
    """Return (n,): 50 for each rack between the host's and the switch's, which is rack 1.

    1000 where the rack is not known.
    """
    cost = np.full(len(hosts), 1000)
    for rack in range(1, RACKS + 1):
        cost[hosts.trait(f"CUSTOM_RACK_{rack}")] = 50 * (rack - 1)
    return cost
