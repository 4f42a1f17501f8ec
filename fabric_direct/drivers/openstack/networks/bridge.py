"""Networks that are slivers of their own, in Neutron."""

from contextlib import AbstractContextManager

from openstack.network.v2.network import Network as NeutronNetwork
from openstack.network.v2.port import Port as NeutronPort
from openstack.network.v2.router import Router
from openstack.network.v2.subnet import Subnet

from fabric_direct.config import Site
from fabric_direct.drivers.contract import Network
from fabric_direct.drivers.openstack.client.errors import translated
from fabric_direct.drivers.openstack.client.name_cache import names
from fabric_direct.drivers.openstack.client.stamp import description
from fabric_direct.drivers.openstack.networks import desired_network
from fabric_direct.drivers.openstack.networks.desired_network import Wanted, of_sliver
from fabric_direct.drivers.openstack.networks.own_networks import Networks
from fabric_direct.errors import InvalidSliver
from fabric_direct.networks import NetworkSliver


class OpenStackBridge:
    """The :class:`~fabric_direct.drivers.contract.BridgeDriver` of a cloud.

    Network, subnets and router bear the sliver's stamp. DNS servers, pool, gateway and router
    of a network that is there can be changed, where Neutron can; the rest is fixed.

    :param site: the site.
    :param host: name of the worker, or empty; networks are the same for all.
    """

    def __init__(self, site: Site, host: str) -> None:  # noqa: ARG002 - as for all drivers
        """Make the driver; nothing is asked yet.

        :raises InvalidSite: if the site names no cloud.
        """
        self._site, self._networks = site, Networks(site)

    def check(self, sliver: NetworkSliver) -> None:
        """Return if the network can be made, or what is there of it can become it.

        Whether its segment is free is seen when it is made.

        :raises InvalidSliver: with the field if the cloud cannot have it so, or it cannot be changed.
        :raises InvalidSite: if the site's external network is not there.
        :raises NotOurs: if a network of its name is there without the sliver's stamp.
        """
        wanted = of_sliver(self._site, sliver)
        with self._translated(f"look for network {sliver.name}"):
            self._refuse_impossible(wanted)
            found = self._networks.find(wanted.stamp)
            if found is None:
                self._networks.refuse_taken(wanted)
            else:
                desired_network.refuse_changed(wanted, found, self._networks.subnets(found.id))

    def _refuse_impossible(self, wanted: Wanted) -> None:
        if wanted.name in self._site.networks:
            raise InvalidSliver(
                f"{wanted.name} is a network of site.yaml", field="name", remedy="name it otherwise"
            )
        desired_network.refuse_impossible(wanted, self._networks.settings.external_network)
        if wanted.settings.router:
            self._networks.with_external(str)

    def find(self, sliver_id: str) -> Network | None:
        """Return the network that bears the sliver's stamp if all of it is there, or None."""
        with self._translated(f"look for the network of {sliver_id}"):
            network = self._networks.find(self._stamp(sliver_id))
            if network is None:
                return None
            subnets, ports, routers = self._parts(network)
            if not _complete(subnets, ports, routers):
                return None
            users = self._networks.users(ports, routers)
            return Network(
                sliver=sliver_id,
                source=network.id,
                name=network.name,
                subnets=tuple(subnet.cidr for subnet in subnets),
                vlan=network.provider_segmentation_id,
                users=tuple(sorted(map(self._networks.owner, users))),
            )

    def differences(self, sliver: NetworkSliver) -> tuple[str, ...]:
        """Say where the network that is there is not what the sliver wants, a sentence each.

        Of the segment Neutron tells administrators alone.
        """
        wanted = of_sliver(self._site, sliver)
        with self._translated(f"look for the network of {sliver.id}"):
            network = self._networks.find(wanted.stamp)
            if network is None:
                return ("there is no such network",)
            subnets, ports, routers = self._parts(network)
        differs = [text for _, text in desired_network.fixed_differences(wanted, network, subnets)]
        for body in desired_network.subnets(sliver.network):
            found = next((s for s in subnets if s.cidr == body["cidr"]), None)
            if found:
                differs += desired_network.changed(body, found)
        if sliver.network.router != bool(routers):
            differs.append("it has a router" if routers else "it has no router")
        if not _complete(subnets, ports, routers):
            differs.append("not all of it is there")
        return tuple(differs)

    def create(self, sliver: NetworkSliver) -> Network:
        """Make the network, its subnets, and its router where one is asked for.

        What is there of it is completed, and what can be changed of it is changed.

        :raises InvalidSliver: as ``check`` does.
        :raises Conflict: if it is there and was made otherwise, or is used in a way that keeps it from
            being changed.
        :raises NotOurs: if a network of its name, or its segment, is there without the sliver's stamp.
        :raises QuotaExceeded: if the project has no room for it.
        :raises Denied: if it takes an administrator to make it.
        :raises SliverBusy: if others work on a network of its name for longer than the limit of a call.
        """
        wanted = of_sliver(self._site, sliver)
        with self._translated(f"make network {sliver.name}"), self._networks.alone(sliver.name):
            self._refuse_impossible(wanted)
            network = self._networks.make(wanted, settle=True).network
        names(self._networks.connection()).forget("network", sliver.name)
        return Network(
            sliver=sliver.id,
            source=network.id,
            name=network.name,
            subnets=tuple(map(str, sliver.network.blocks())),
            vlan=network.provider_segmentation_id,
        )

    def delete(self, sliver_id: str) -> None:
        """Remove the network with all that was made with it; it is gone on return.

        :raises Conflict: if ports of others are on it; they are named, and nothing is removed.
        :raises NotVerified: if it is still there.
        """
        with self._translated(f"delete the network of {sliver_id}"):
            self._networks.remove(self._stamp(sliver_id))

    def leftovers(self, sliver_id: str) -> tuple[str, ...]:
        """Name everything of the network that is still there."""
        with self._translated(f"look for what is left of {sliver_id}"):
            return self._networks.left(self._stamp(sliver_id))

    def _parts(
        self, network: NeutronNetwork
    ) -> tuple[list[Subnet], list[NeutronPort], list[Router]]:
        subnets = self._networks.subnets(network.id)
        ports = self._networks.ports(network.id)
        return subnets, ports, self._networks.routers(network.description)

    def _stamp(self, sliver_id: str) -> str:
        return description(self._site.site, sliver_id)

    def _translated(self, what: str) -> AbstractContextManager[None]:
        return translated(what, self._networks.where)


def _complete(subnets: list[Subnet], ports: list[NeutronPort], routers: list[Router]) -> bool:
    """Return whether the last of what is made is there; see ``networks``."""
    ours = {router.id for router in routers}
    routed = {ip["subnet_id"] for p in ports if p.device_id in ours for ip in p.fixed_ips}
    connected = not routers or {subnet.id for subnet in subnets} <= routed
    return connected and any(subnet.ip_version == 4 for subnet in subnets)
