"""Networks of site.yaml that are there and that nobody uses: left by a call that was killed midway.

It was killed between making a network and its first port, or between deleting the last port and its
network. Who uses the network next takes it up; until then it is left over.
"""

from contextlib import suppress

from openstack.network.v2.port import Port as NeutronPort

from fabric_direct.drivers.openstack.client.session import uncached
from fabric_direct.drivers.openstack.networks.desired_network import Wanted, of_site
from fabric_direct.drivers.openstack.networks.neutron import Neutron
from fabric_direct.errors import SliverBusy

# Seconds to wait for others that only look, too.
_LOOKING = 2.0


def deserted(neutron: Neutron) -> list[Wanted]:
    """Return which networks of site.yaml are there without a port of others.

    One that another thread or process of this machine is just making or leaving has none either: so
    what looks deserted is looked at again while nobody makes it, and is not if anybody leaves it.
    """
    there = _there(neutron)
    if not there:
        return []
    used = {port.network_id for port in users(neutron, list(there))}
    return [w for id_, w in there.items() if id_ not in used and _is_deserted(neutron, id_, w)]


def users(neutron: Neutron, network_ids: list[str]) -> list[NeutronPort]:
    """Return the ports of others; an interface of a router counts as Neutron's own here."""
    found = neutron.users(neutron.ports(network_ids), ())
    return [p for p in found if not p.device_owner.startswith("network:router_interface")]


def _there(neutron: Neutron) -> dict[str, Wanted]:
    networks = neutron.site.networks
    named = [name for name, settings in networks.items() if settings.physical_network]
    if not named:
        return {}
    wanted = {w.stamp: w for w in (of_site(neutron.site, name) for name in named)}
    found = neutron.mine(neutron.api.networks(name=named))
    return {n.id: wanted[n.description] for n in found if n.description in wanted}


def _is_deserted(neutron: Neutron, network_id: str, wanted: Wanted) -> bool:
    """Look while nobody makes or deletes the network; if somebody does, it is not deserted."""
    with suppress(SliverBusy), neutron.alone(wanted.name, timeout=_LOOKING), uncached():
        found = neutron.find(wanted.stamp)
        there = found is not None and found.id == network_id and not users(neutron, [network_id])
        return there and not neutron.is_being_left(wanted.name)
    return False
