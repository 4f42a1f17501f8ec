"""Which hosts can.

A filter is a plain function ``(hosts, needs) -> (n,) of bool``: which hosts may take an instance with
these needs. What it says of a host depends on that host's row, on the needs and on what is the same for
the whole batch, and on nothing else: when an instance is assigned, filters and costs are asked about the
host that was taken alone.
"""

import numpy as np

from fabric_direct.placement import devices as hardware
from fabric_direct.placement.arrays import Bools, Hosts, each, sizes
from fabric_direct.placement.request import Needs


def in_service(hosts: Hosts, needs: Needs) -> Bools:  # noqa: ARG001
    """Hosts that are not in maintenance or disabled."""
    return hosts.enabled


def host(hosts: Hosts, needs: Needs) -> Bools:
    """Whichever host is asked for, or any; none of those that are excluded."""
    fits = np.ones(len(hosts), np.bool_) if needs.host is None else hosts.is_named(needs.host)
    for name in needs.rules.exclude_hosts:
        fits &= ~hosts.is_named(name)
    return fits


def capacity(hosts: Hosts, needs: Needs) -> Bools:
    """Hosts with so many cores and so much RAM and disk left of what may be promised.

    An instance is never larger than the host itself, whatever the allocation ratio: it may share
    cores and memory with others, not with itself.
    """
    wanted = sizes(needs.capacities)
    fits = (wanted <= hosts.promised - hosts.used) & (wanted <= hosts.size)
    return each(fits)


def architecture(hosts: Hosts, needs: Needs) -> Bools:
    """Hosts that run the architecture, or do not say which they run."""
    if needs.architecture is None:
        return np.ones(len(hosts), np.bool_)
    return hosts.architecture(needs.architecture)


def traits(hosts: Hosts, needs: Needs) -> Bools:
    """Hosts with all required and no forbidden traits."""
    fits = np.ones(len(hosts), np.bool_)
    for trait in needs.rules.required_traits:
        fits &= hosts.trait(trait)
    for trait in needs.rules.forbidden_traits:
        fits &= ~hosts.trait(trait)
    return fits


def devices(hosts: Hosts, needs: Needs) -> Bools:
    """Hosts with all devices free; where asked for, on one NUMA node with the cores and the RAM.

    A need of a model is served by that model alone, one of an uplink by a VF of that, one that names
    functions by a device of that type that has them.
    """
    if needs.rules.same_numa_node:
        return ~each(~hardware.fit_on(hosts, needs))
    return hardware.fit(hosts, needs) if needs.devices else np.ones(len(hosts), np.bool_)


def affinity(hosts: Hosts, needs: Needs) -> Bools:
    """Hosts that have all slivers which the instance must share its host with."""
    fits = np.ones(len(hosts), np.bool_)
    for sliver in needs.rules.affinity:
        fits &= hosts.have(sliver)
    return fits


def anti_affinity(hosts: Hosts, needs: Needs) -> Bools:
    """Hosts that have none of the slivers which the instance must not share its host with.

    Within a batch this holds both ways: ``place`` gives each of two such slivers the other one.
    """
    return ~hosts.have_any(needs.rules.anti_affinity)
