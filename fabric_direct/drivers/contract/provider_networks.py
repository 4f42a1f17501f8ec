"""Networks on the physical networks of a cloud: what of one follows from its settings alone."""

from dataclasses import dataclass
from ipaddress import IPv4Address

from fabric_direct.model.networks import SiteNetwork


@dataclass(frozen=True, slots=True)
class Impossibility:
    """Why no cloud can make a network."""

    field: str
    """Of the network's settings."""
    what: str
    why: str = ""
    remedy: str = ""


def impossibility(settings: SiteNetwork, external: str | None) -> Impossibility | None:
    """Return why no cloud can make the network, or None if one can.

    :param external: the cloud's external network, if the site names one.
    """
    if settings.physical_network is None:
        why = "a cloud makes a network on a physical network"
        remedy = "name one of the cloud's (bridge_mappings of its agents)"
        return Impossibility("physical_network", "is missing", why, remedy)
    if settings.router and external is None:
        remedy = "name it as openstack.external_network in site.yaml"
        return Impossibility("router", "needs an external network", remedy=remedy)
    if not pools(settings):
        return Impossibility("pool", f"no address of {settings.subnet} can be given out")
    return None


def gateway(settings: SiteNetwork) -> IPv4Address | None:
    """Return the guests' default gateway: as configured, or the address of the network's router."""
    first = settings.subnet[1] if settings.router else None
    return settings.gateway or first


def pools(settings: SiteNetwork) -> list[tuple[IPv4Address, IPv4Address]]:
    """Return the ranges of addresses that ports may get."""
    subnet = settings.subnet
    first, last = settings.pool or (subnet[2], subnet[-2])
    kept = {subnet[0], subnet[-1], *settings.dns, gateway(settings)}
    inside = sorted(a for a in kept if a is not None and first <= a <= last)
    starts = [first, *(address + 1 for address in inside)]
    ends = [*(address - 1 for address in inside), last]
    return [(start, end) for start, end in zip(starts, ends, strict=True) if start <= end]
