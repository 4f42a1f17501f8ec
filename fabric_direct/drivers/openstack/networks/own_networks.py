"""Networks that we make in Neutron: those of site.yaml, and those that are slivers of their own.

A network is made in the order: network, router, IPv6 subnet, IPv4 subnet, interfaces of the router. One
that has its IPv4 subnet, and whose router has all its interfaces, is thus complete; one that is not, is
completed by making it again. It is deleted in the order: interfaces, router, network; its subnets go
with it. Neutron refuses to delete a network while a port is on it; then its router is made again.

No two networks have the same segment (Neutron answers 409), so there are no two of the same stamp.
"""

from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from openstack.exceptions import BadRequestException, ConflictException, NotFoundException
from openstack.network.v2.network import Network as NeutronNetwork
from openstack.network.v2.port import Port as NeutronPort
from openstack.network.v2.router import Router
from openstack.network.v2.subnet import Subnet

from fabric_direct.drivers.openstack.client.errors import translated, words
from fabric_direct.drivers.openstack.client.name_cache import names
from fabric_direct.drivers.openstack.client.session import uncached
from fabric_direct.drivers.openstack.networks import desired_network
from fabric_direct.drivers.openstack.networks.desired_network import Wanted
from fabric_direct.drivers.openstack.networks.neutron import Known, Neutron
from fabric_direct.errors import Conflict, NotOurs, NotVerified, QuotaExceeded


class Networks(Neutron):
    """The networks of one cloud, to be read, made and deleted.

    Its methods raise openstacksdk's errors beside ours: they are called within
    :func:`~fabric_direct.drivers.openstack.client.errors.translated`.
    """

    # --- making

    def make(self, wanted: Wanted, *, settle: bool = False) -> Known:
        """Make the network with all that belongs to it; what is there of it already is completed.

        :param settle: whether what can be changed of it is changed to be as wanted.
        :raises Refused: if it cannot be had so.
        :raises Conflict: if it is there and was made otherwise.
        :raises NotOurs: if its name, or its segment, is another network's.
        """
        desired_network.refuse_impossible(wanted, self.settings.external_network)
        with uncached():
            network = self.find(wanted.stamp) or self._post(wanted)
            there = self.subnets(network.id)
            desired_network.refuse_different(wanted, network, there)
            if settle and not wanted.settings.router:
                self._unroute(wanted, network)
            router = self._wanted_router(wanted)
            made = [
                self._subnet(wanted, network, body, there, settle=settle)
                for body in desired_network.subnets(wanted.settings)
            ]
            self._connect(router, made)
        subnets = {subnet.id: subnet for subnet in (*there, *made)}
        known = self.memory.keep(Known(network, tuple(subnets.values())))
        self.memory.by_stamp[wanted.stamp] = known
        return known

    def refuse_taken(self, wanted: Wanted) -> None:
        """Return if nothing of its name is there that is not ours.

        :raises NotOurs: if there is; of other projects only what they share counts.
        """
        mine = self.connection().current_project_id
        for found in self.api.networks(name=wanted.name):
            near = found.project_id == mine or found.is_shared or found.is_router_external
            if near and found.description != wanted.stamp:
                raise NotOurs(
                    f"network {wanted.name} ({found.id}) is there, and does not bear the stamp",
                    where=self.where,
                    why=f"its description is {found.description!r}, not {wanted.stamp!r}",
                    remedy="delete it, or give ours another name",
                )

    def _unroute(self, wanted: Wanted, network: NeutronNetwork) -> None:
        routers = self.routers(wanted.stamp)
        if not routers:
            return
        try:
            self._remove_routers(routers, self.ports(network.id))
        except ConflictException:
            self._restore([network], routers)
            raise

    def _post(self, wanted: Wanted) -> NeutronNetwork:
        self.refuse_taken(wanted)
        try:
            with translated(f"make network {wanted.name}", self.where):
                return self._request(wanted)
        except QuotaExceeded:
            raise
        except Conflict as error:
            return self._made_by_another(wanted, error)

    def _request(self, wanted: Wanted) -> NeutronNetwork:
        asked = {"description": wanted.stamp, **desired_network.provider(wanted.settings)}
        try:
            return self.once(
                lambda: self.api.create_network(name=wanted.name, **asked),
                lambda: self.find(wanted.stamp),
            )
        except BadRequestException as error:
            why = words(error)
            vlan = wanted.settings.strategy == "vlan" and "physical_network" not in why
            field = "vlan" if vlan else "physical_network"
            raise wanted.refuse(field, "cannot be had", why=why) from error

    def _made_by_another(self, wanted: Wanted, error: Conflict) -> NeutronNetwork:
        """Return the network that another process made at the same time.

        :raises NotOurs: if nobody did: the segment is another network's.
        """
        found = self.find(wanted.stamp)
        if found is None:
            raise NotOurs(
                f"network {wanted.name} cannot be made", where=self.where, why=words(error)
            ) from error
        return found

    def _subnet(
        self,
        wanted: Wanted,
        network: NeutronNetwork,
        body: dict[str, Any],
        there: Iterable[Subnet],
        *,
        settle: bool,
    ) -> Subnet:
        found = next((s for s in there if s.cidr == body["cidr"]), None)
        if found is None:
            return self._post_subnet(wanted, network, body)
        changes = desired_network.changes(body, found) if settle else {}
        return self.api.update_subnet(found, **changes) if changes else found

    def _post_subnet(self, wanted: Wanted, network: NeutronNetwork, body: dict[str, Any]) -> Subnet:
        asked = {"network_id": network.id, "name": wanted.name, "description": wanted.stamp, **body}

        def find() -> Subnet | None:
            there = self.subnets(network.id)
            return next((subnet for subnet in there if subnet.cidr == body["cidr"]), None)

        return self.once(lambda: self.api.create_subnet(**asked), find)

    def _wanted_router(self, wanted: Wanted) -> Router | None:
        if not wanted.settings.router:
            return None
        post = partial(self._post_router, wanted.name, wanted.stamp)
        return next(iter(self.routers(wanted.stamp)), None) or self.with_external(post)

    def _post_router(self, name: str, stamp: str, external: str) -> Router:
        asked = {
            "name": name,
            "description": stamp,
            "external_gateway_info": {"network_id": external},
        }
        return self.once(
            lambda: self.api.create_router(**asked),
            lambda: next(iter(self.routers(stamp)), None),
        )

    def _connect(self, router: Router | None, subnets: Iterable[Subnet]) -> None:
        if router is None:
            return
        ports = self.api.ports(device_id=router.id)
        has = {address["subnet_id"] for port in ports for address in port.fixed_ips}
        for subnet in subnets:
            if subnet.id not in has:
                self.api.add_interface_to_router(router, subnet=subnet.id)

    # --- deleting

    def remove(self, stamp: str) -> None:
        """Delete the network with this stamp and all that was made with it; it is gone on return.

        :raises Conflict: if ports of others are on it; they are named, and nothing is removed.
        """
        with uncached():
            networks, routers = self.stamped(stamp), self.routers(stamp)
            ports = [port for network in networks for port in self.ports(network.id)]
            self._refuse_used(networks, self.users(ports, routers))
            try:
                self._remove_routers(routers, ports)
                for network in networks:
                    self._remove_network(network)
            except ConflictException:
                self._restore(networks, routers)
                raise
            self._verify_gone(stamp)

    def remove_unused(self, stamp: str) -> None:
        """Delete the network with this stamp, unless it has a user, or gets one meanwhile."""
        with suppress(Conflict, ConflictException):
            self.remove(stamp)

    def _refuse_used(self, networks: list[NeutronNetwork], users: list[NeutronPort]) -> None:
        if users:
            raise Conflict(
                f"network {networks[0].name} ({networks[0].id}) is in use",
                where=self.where,
                why=f"on it are {', '.join(sorted(map(self.owner, users)))}",
                remedy="remove these first",
            )

    def _remove_routers(self, routers: Iterable[Router], ports: Iterable[NeutronPort]) -> None:
        for router in routers:
            for port in ports:
                if port.device_id == router.id:
                    self._disconnect(router, port)
            self.api.delete_router(router)

    def _disconnect(self, router: Router, port: NeutronPort) -> None:
        with suppress(NotFoundException):
            self.api.remove_interface_from_router(router, port=port.id)

    def _remove_network(self, network: NeutronNetwork) -> None:
        self.api.delete_network(network)
        self.memory.forget(network.id)
        names(self.connection()).forget("network", network.name)
        names(self.connection()).forget("network", network.id)

    def _restore(self, networks: list[NeutronNetwork], routers: list[Router]) -> None:
        """Make the routers again of a network that somebody plugged into meanwhile."""
        for network in networks if routers else ():
            was, *_ = routers
            there = next(iter(self.routers(was.description)), None)
            external = was.external_gateway_info["network_id"]
            router = there or self._post_router(was.name, was.description, external)
            self._connect(router, self.subnets(network.id))

    def _verify_gone(self, stamp: str) -> None:
        left = self.left(stamp)
        if left:
            raise NotVerified("what was deleted is not gone", where=self.where, why=", ".join(left))
