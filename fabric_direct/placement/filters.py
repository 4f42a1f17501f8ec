"""Filters: which hosts can take an instance.

A filter is a function ``(hosts, needs) -> (n,) of bool``. Its result for a host may depend only on that
host's row, on the needs, and on what is constant for the whole batch: after an assignment, filters and
costs are evaluated again for the assigned host alone.
"""

import numpy as np

from fabric_direct.placement import devices as hardware
from fabric_direct.placement.arrays import Bools, Hosts, each, sizes
from fabric_direct.placement.request import Needs


def in_service(hosts: Hosts, needs: Needs) -> Bools:  # noqa: ARG001
    """Accept hosts that are neither disabled nor in maintenance."""
    return hosts.enabled


def host(hosts: Hosts, needs: Needs) -> Bools:
    """Accept the requested host, or any if none is requested, except excluded ones."""
    fits = np.ones(len(hosts), np.bool_) if needs.host is None else hosts.is_named(needs.host)
    for name in needs.rules.exclude_hosts:
        fits &= ~hosts.is_named(name)
    return fits


def capacity(hosts: Hosts, needs: Needs) -> Bools:
    """Accept hosts with enough free cores, RAM and disk, allocation ratios applied.

    An instance must not be larger than the host itself, whatever the allocation ratio: it can share
    cores and memory with others, not with itself.
    """
    size = sizes(needs.capacities)
    fits = (size <= hosts.promised - hosts.used) & (size <= hosts.size)
    return each(fits)


def architecture(hosts: Hosts, needs: Needs) -> Bools:
    """Accept hosts of the architecture, and hosts whose architecture is unknown."""
    if needs.architecture is None:
        return np.ones(len(hosts), np.bool_)
    return hosts.architecture(needs.architecture)


def traits(hosts: Hosts, needs: Needs) -> Bools:
    """Accept hosts with all required and no forbidden traits."""
    fits = np.ones(len(hosts), np.bool_)
    for trait in needs.rules.required_traits:
        fits &= hosts.trait(trait)
    for trait in needs.rules.forbidden_traits:
        fits &= ~hosts.trait(trait)
    return fits


def devices(hosts: Hosts, needs: Needs) -> Bools:
    """Accept hosts that have all devices free; if required, on one NUMA node with cores and RAM.

    A model, an uplink or PCI functions in a need must match exactly.
    """
    if needs.rules.same_numa_node:
        return ~each(~hardware.fit_on(hosts, needs))
    return hardware.fit(hosts, needs) if needs.devices else np.ones(len(hosts), np.bool_)


def affinity(hosts: Hosts, needs: Needs) -> Bools:
    """Accept hosts that have all slivers of the instance's affinity."""
    fits = np.ones(len(hosts), np.bool_)
    for sliver in needs.rules.affinity:
        fits &= hosts.have(sliver)
    return fits


def anti_affinity(hosts: Hosts, needs: Needs) -> Bools:
    """Accept hosts that have no sliver of the instance's anti-affinity.

    Within a batch anti-affinity is mutual: ``place`` adds each of two such slivers to the other.
    """
    return ~hosts.have_any(needs.rules.anti_affinity)
