"""Network slivers, in Neutron."""

from collections.abc import Iterable

from openstack.network.v2.network import Network as NeutronNetwork
from openstack.network.v2.port import Port as NeutronPort
from openstack.network.v2.router import Router
from openstack.network.v2.subnet import Subnet

from fabric_direct.drivers.contract import Service, Stamped
from fabric_direct.drivers.openstack.client.base import CloudDriver
from fabric_direct.drivers.openstack.client.stamp import described_sliver, description
from fabric_direct.drivers.openstack.networks import desired_network
from fabric_direct.drivers.openstack.networks.desired_network import DesiredNetwork, of_sliver
from fabric_direct.drivers.openstack.networks.own_networks import OwnNetworks
from fabric_direct.errors import InvalidSliver
from fabric_direct.model.networks import NetworkSliver
from fabric_direct.site.config import Site


class OpenStackBridge(CloudDriver):
    """The :class:`~fabric_direct.drivers.contract.ServiceDriver` of a cloud.

    Network, subnets and router bear the sliver's stamp. DNS servers, pool, gateway and router of an
    existing network can be changed, as far as Neutron allows; the rest is fixed.
    """

    def __init__(self, site: Site, host: str) -> None:
        super().__init__(site, host)
        self._networks = OwnNetworks(site)

    def check(self, sliver: NetworkSliver) -> None:
        """Raise an error unless the network can be created, or changed into what the sliver describes.

        Whether the segment is free is not known before ``create``.

        :raises InvalidSliver: with the field that the cloud cannot provide, or that cannot be changed.
        :raises InvalidSite: if the cloud has no external network of the site's name for it.
        :raises NotOurs: if a network of that name exists without the sliver's stamp.
        """
        desired = of_sliver(self.site, sliver)
        with self.translated(f"look for network {sliver.name}"):
            self._refuse_impossible(desired)
            found = self._networks.find(desired.stamp)
            if found is None:
                self._networks.refuse_taken(desired)
            else:
                desired_network.refuse_changed(desired, found, self._networks.subnets(found.id))

    def _refuse_impossible(self, desired: DesiredNetwork) -> None:
        if desired.name in self.site.networks:
            raise InvalidSliver(
                f"{desired.name} is a network of site.yaml",
                field="name",
                remedy="name it otherwise",
            )
        desired_network.refuse_impossible(desired, self.settings.external_network)
        if desired.settings.router:
            self._networks.with_external(str)

    def find(self, sliver_id: str) -> Service | None:
        """Return the network with the sliver's stamp, or None if it does not exist or is incomplete."""
        with self.translated(f"look for the network of {sliver_id}"):
            network = self._networks.find(self._stamp(sliver_id))
            if network is None:
                return None
            subnets, ports, routers = self._parts(network)
            if not _complete(subnets, ports, routers):
                return None
            users = map(self._networks.owner, self._networks.users(ports, routers))
        return _network(sliver_id, network, _cidrs(subnets), users)

    def differences(self, sliver: NetworkSliver) -> tuple[str, ...]:
        """Return a sentence for each difference between the existing network and the sliver.

        Only administrators see the segment.
        """
        desired = of_sliver(self.site, sliver)
        with self.translated(f"look for the network of {sliver.id}"):
            network = self._networks.find(desired.stamp)
            if network is None:
                return ("there is no such network",)
            subnets, ports, routers = self._parts(network)
        differs = [text for _, text in desired_network.fixed_differences(desired, network, subnets)]
        for body in desired_network.subnets(sliver.network):
            found = next((s for s in subnets if s.cidr == body["cidr"]), None)
            if found:
                differs += desired_network.changed(body, found)
        if sliver.network.router != bool(routers):
            differs.append("it has a router" if routers else "it has no router")
        if not _complete(subnets, ports, routers):
            differs.append("not all of it is there")
        return tuple(differs)

    def apply(self, sliver: NetworkSliver) -> Service:
        """Create the network, its subnets, and its router if the sliver asks for one.

        Complete what exists, and change what can be changed.

        :raises InvalidSliver: as ``check`` does.
        :raises Conflict: if it exists and a fixed setting differs, or its use prevents a change.
        :raises NotOurs: if its name or segment belongs to a network without the sliver's stamp.
        :raises QuotaExceeded: if the project's quota is used up.
        :raises Denied: if only an administrator may create it.
        :raises SliverBusy: if another thread or process holds the network's lock longer than
            ``limits.call``.
        """
        desired = of_sliver(self.site, sliver)
        with self.translated(f"make network {sliver.name}"), self._networks.alone(sliver.name):
            self._refuse_impossible(desired)
            network = self._networks.make(desired, settle=True).network
        self.names.forget("network", sliver.name)
        return _network(sliver.id, network, map(str, sliver.network.blocks()))

    def remove(self, sliver_id: str) -> None:
        """Delete the network, its subnets and its router; when the call returns, they are gone.

        :raises Conflict: if it has ports of others: the error names them, and nothing is deleted.
        :raises NotVerified: if any of it still exists.
        """
        with self.translated(f"delete the network of {sliver_id}"):
            self._networks.remove(self._stamp(sliver_id))

    def leftovers(self, sliver_id: str) -> tuple[str, ...]:
        """Name whatever still exists of the network."""
        with self.translated(f"look for what is left of {sliver_id}"):
            return self._networks.left(self._stamp(sliver_id))

    def stamped(self) -> tuple[Stamped, ...]:
        """Return all networks and routers of slivers."""
        api, mine = self._networks.api, {"project_id": self.connection().current_project_id}
        with self.translated("list the networks"):
            found = {"network": api.networks(**mine), "router": api.routers(**mine)}
            return tuple(
                Stamped(sliver, kind, f"{thing.name} ({thing.id})")
                for kind, things in found.items()
                for thing in self._networks.mine(things)
                if (sliver := described_sliver(self.site.site, thing)) is not None
            )

    def _parts(
        self, network: NeutronNetwork
    ) -> tuple[list[Subnet], list[NeutronPort], list[Router]]:
        subnets = self._networks.subnets(network.id)
        ports = self._networks.ports(network.id)
        return subnets, ports, self._networks.routers(network.description)

    def _stamp(self, sliver_id: str) -> str:
        return description(self.site.site, sliver_id)


def _network(
    sliver_id: str, found: NeutronNetwork, subnets: Iterable[str], users: Iterable[str] = ()
) -> Service:
    return Service(
        sliver=sliver_id,
        source=found.id,
        name=found.name,
        subnets=tuple(subnets),
        vlan=found.provider_segmentation_id,
        users=tuple(sorted(users)),
        type="L2Bridge",
    )


def _cidrs(subnets: Iterable[Subnet]) -> list[str]:
    """Return the address blocks, IPv4 first; Neutron lists them in any order."""
    return [subnet.cidr for subnet in sorted(subnets, key=lambda subnet: subnet.ip_version)]


def _complete(subnets: list[Subnet], ports: list[NeutronPort], routers: list[Router]) -> bool:
    """Return whether everything exists that ``own_networks`` creates."""
    ours = {router.id for router in routers}
    routed = {ip["subnet_id"] for p in ports if p.device_id in ours for ip in p.fixed_ips}
    connected = not routers or {subnet.id for subnet in subnets} <= routed
    return connected and any(subnet.ip_version == 4 for subnet in subnets)
