"""Networks of site.yaml without a user, which a killed process or a late request left behind.

The process was killed between creating a network and its first port, or between deleting the last port
and its network. The next port on the network adopts it; until then it is a leftover. So is a router
without its network: the request for it was carried out when the network was gone.
"""

from collections.abc import Collection
from contextlib import suppress

from openstack.network.v2.port import Port as NeutronPort

from fabric_direct.drivers.openstack.client.session import uncached
from fabric_direct.drivers.openstack.networks.desired_network import DesiredNetwork, of_site
from fabric_direct.drivers.openstack.networks.neutron import Neutron
from fabric_direct.errors import SliverBusy

# Seconds to wait for the lock, which others hold briefly for the same look.
_LOOKING = 2.0


def orphans(neutron: Neutron) -> list[DesiredNetwork]:
    """Return the networks of site.yaml that exist without a user.

    One that another thread or process of this machine is creating or deleting has no user either. So a
    network without users is read again under its lock, and is no orphan while one of its ports is being
    deleted.
    """
    there = _there(neutron)
    used = {port.network_id for port in users(neutron, list(there))} if there else set()
    unused = [w for id_, w in there.items() if id_ not in used and _is_orphan(neutron, id_, w)]
    return unused + [w for w in _routed(neutron, there.values()) if _is_router_alone(neutron, w)]


def users(neutron: Neutron, network_ids: list[str]) -> list[NeutronPort]:
    """Return the ports of users, that is without Neutron's own and the interfaces of routers."""
    found = neutron.users(neutron.ports(network_ids), ())
    return [p for p in found if not p.device_owner.startswith("network:router_interface")]


def _there(neutron: Neutron) -> dict[str, DesiredNetwork]:
    networks = neutron.site.networks
    named = [name for name, settings in networks.items() if settings.physical_network]
    if not named:
        return {}
    desired = {w.stamp: w for w in (of_site(neutron.site, name) for name in named)}
    found = neutron.mine(neutron.api.networks(name=named))
    return {n.id: desired[n.description] for n in found if n.description in desired}


def _routed(neutron: Neutron, there: Collection[DesiredNetwork]) -> list[DesiredNetwork]:
    """Return the networks that have a router, but are not there themselves."""
    routed = [name for name, settings in neutron.site.networks.items() if settings.router]
    absent = {w.stamp: w for w in (of_site(neutron.site, n) for n in routed) if w not in there}
    found = neutron.api.routers(description=list(absent)) if absent else ()
    return [absent[stamp] for stamp in {router.description for router in neutron.mine(found)}]


def _is_router_alone(neutron: Neutron, desired: DesiredNetwork) -> bool:
    """Look again under the network's lock: somebody may be creating the network."""
    with suppress(SliverBusy), neutron.alone(desired.name, timeout=_LOOKING), uncached():
        return neutron.find(desired.stamp) is None and bool(neutron.routers(desired.stamp))
    return False


def _is_orphan(neutron: Neutron, network_id: str, desired: DesiredNetwork) -> bool:
    """Look again under the network's lock; if somebody holds it, the network is no orphan."""
    with suppress(SliverBusy), neutron.alone(desired.name, timeout=_LOOKING), uncached():
        found = neutron.find(desired.stamp)
        there = found is not None and found.id == network_id and not users(neutron, [network_id])
        return there and not neutron.is_being_left(desired.name)
    return False
