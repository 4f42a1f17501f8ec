"""The programs of a switch's host that services which are routed need."""

from fabric_direct.drivers.gateways.bgp import NEEDED
from fabric_direct.drivers.gateways.gateway import FABNET_TYPES
from fabric_direct.drivers.gateways.namespaces import Namespaces
from fabric_direct.drivers.hosts.choice import switch_host
from fabric_direct.site.config import Site

_ROUTED = ("ip", "nft", "sysctl")
_NEEDED = {
    **dict.fromkeys(FABNET_TYPES, _ROUTED),
    "L3VPN": (*_ROUTED, *NEEDED),
}


def absent_programs(site: Site, device: str) -> tuple[str, ...]:
    """Return the programs that are not there, of those that the types of a switch's driver need.

    :raises DriverError: if its host does not say.
    """
    switch = site.switches[device]
    served = (kind for kind in _NEEDED if site.driver_for(kind) == switch.driver)
    needed = {program for kind in served for program in _NEEDED[kind]}
    if not needed or switch.routing is None:
        return ()
    host = Namespaces(switch_host(site, device), device, site.limits.call)
    return host.absent(*sorted(needed))
