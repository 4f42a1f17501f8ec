"""Creating and deleting networks: those of site.yaml, and network slivers.

The order of creation is network, router, IPv6 subnet, IPv4 subnet, router interfaces. So a network that
has its IPv4 subnet, and whose router has all its interfaces, is complete; creating an incomplete one
again completes it. The order of deletion is interfaces, router, network with its subnets. Neutron
refuses to delete a network that has a port; then its router is created again.

No two networks have the same segment (Neutron answers 409), so no two have the same stamp.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from openstack.exceptions import BadRequestException, ConflictException, NotFoundException
from openstack.network.v2.network import Network as NeutronNetwork
from openstack.network.v2.port import Port as NeutronPort
from openstack.network.v2.router import Router
from openstack.network.v2.subnet import Subnet

from fabric_direct.drivers.openstack.client.errors import words
from fabric_direct.drivers.openstack.client.session import uncached
from fabric_direct.drivers.openstack.networks import desired_network
from fabric_direct.drivers.openstack.networks.desired_network import DesiredNetwork
from fabric_direct.drivers.openstack.networks.neutron import KnownNetwork, Neutron
from fabric_direct.errors import Conflict, NotOurs, NotVerified, QuotaExceeded


class OwnNetworks(Neutron):
    """The networks of one cloud.

    The methods also raise openstacksdk's errors: call them within :meth:`translated`.
    """

    # --- create

    def make(self, desired: DesiredNetwork, *, settle: bool = False) -> KnownNetwork:
        """Create the network, its subnets and its router, or complete what exists of them.

        :param settle: whether to change what can be changed and differs.
        :raises Refused: if the cloud cannot provide it.
        :raises Conflict: if it exists and a fixed setting differs.
        :raises NotOurs: if its name or segment belongs to another network.
        """
        desired_network.refuse_impossible(desired, self.settings.external_network)
        with uncached():
            network = self.find(desired.stamp) or self._post(desired)
            there = self.subnets(network.id)
            desired_network.refuse_different(desired, network, there)
            if settle and not desired.settings.router:
                self._unroute(desired, network)
            router = self._desired_router(desired)
            own = {"network_id": network.id, "name": desired.name, "description": desired.stamp}
            bodies = [own | body for body in desired_network.subnets(desired.settings)]
            made = [self._subnet(body, there, settle=settle) for body in bodies]
            self._connect(router, made)
        subnets = {subnet.id: subnet for subnet in (*there, *made)}
        known = KnownNetwork(network, tuple(subnets.values()))
        self.memory.by_id[network.id] = self.memory.by_stamp[desired.stamp] = known
        return known

    def refuse_taken(self, desired: DesiredNetwork) -> None:
        """Raise NotOurs if the project, or one that shares it, has another network of that name."""
        mine = self.connection().current_project_id
        for found in self.api.networks(name=desired.name):
            near = found.project_id == mine or found.is_shared or found.is_router_external
            if near and found.description != desired.stamp:
                raise NotOurs(
                    f"network {desired.name} ({found.id}) exists without this site's stamp",
                    why=f"its description is {found.description!r}, not {desired.stamp!r}",
                    remedy="delete it, or give ours another name",
                )

    def _unroute(self, desired: DesiredNetwork, network: NeutronNetwork) -> None:
        if routers := self.routers(desired.stamp):
            with self._restoring([network], routers):
                self._remove_routers(routers, self.ports(network.id))

    def _post(self, desired: DesiredNetwork) -> NeutronNetwork:
        self.refuse_taken(desired)
        try:
            with self.translated(f"make network {desired.name}"):
                return self._request(desired)
        except QuotaExceeded:
            raise
        except Conflict as error:
            return self._made_by_another(desired, error)

    def _request(self, desired: DesiredNetwork) -> NeutronNetwork:
        asked = {"description": desired.stamp, **desired_network.provider(desired.settings)}
        try:
            return self.once(
                lambda: self.api.create_network(name=desired.name, **asked),
                lambda: self.find(desired.stamp),
            )
        except BadRequestException as error:
            why = words(error)
            vlan = desired.settings.strategy == "vlan" and "physical_network" not in why
            field = "vlan" if vlan else "physical_network"
            raise desired.refuse(field, "cannot be had", why=why) from error

    def _made_by_another(self, desired: DesiredNetwork, error: Conflict) -> NeutronNetwork:
        """Return the network that another process created at the same time.

        :raises NotOurs: if there is none: the segment belongs to another network.
        """
        found = self.find(desired.stamp)
        if found is None:
            raise NotOurs(f"network {desired.name} cannot be made", why=words(error)) from error
        return found

    def _subnet(self, body: dict[str, Any], there: Iterable[Subnet], *, settle: bool) -> Subnet:
        """Return the subnet of a request, which is sent if there is none."""
        found = _same_block(there, body)
        if found is None:
            return self.once(
                lambda: self.api.create_subnet(**body),
                lambda: _same_block(self.subnets(body["network_id"]), body),
            )
        changes = desired_network.changes(body, found) if settle else {}
        return self.api.update_subnet(found, **changes) if changes else found

    def _desired_router(self, desired: DesiredNetwork) -> Router | None:
        if not desired.settings.router:
            return None
        post = partial(self._post_router, desired.name, desired.stamp)
        return self._router(desired.stamp) or self.with_external(post)

    def _router(self, stamp: str) -> Router | None:
        return next(iter(self.routers(stamp)), None)

    def _post_router(self, name: str, stamp: str, external: str) -> Router:
        asked = {
            "name": name,
            "description": stamp,
            "external_gateway_info": {"network_id": external},
        }
        return self.once(lambda: self.api.create_router(**asked), lambda: self._router(stamp))

    def _connect(self, router: Router | None, subnets: Iterable[Subnet]) -> None:
        if router is None:
            return
        ports = self.api.ports(device_id=router.id)
        has = {address["subnet_id"] for port in ports for address in port.fixed_ips}
        for subnet in subnets:
            if subnet.id not in has:
                self.api.add_interface_to_router(router, subnet=subnet.id)

    # --- delete

    def remove(self, stamp: str) -> None:
        """Delete the network with this stamp, its subnets and router; on return they are gone.

        :raises Conflict: if it has ports of others: the error names them, and nothing is deleted.
        """
        with uncached():
            networks, routers = self.stamped(stamp), self.routers(stamp)
            ports = [port for network in networks for port in self.ports(network.id)]
            self._refuse_used(networks, self.users(ports, routers))
            for network in networks:
                self._forget(network)
            with self._restoring(networks, routers):
                self._remove_routers(routers, ports)
                for network in networks:
                    self._remove_network(network)
            if left := self.left(stamp):
                raise NotVerified("the network is not gone", why=", ".join(left))

    def remove_unused(self, stamp: str) -> None:
        """Delete the network with this stamp unless it has a user, or gets one meanwhile.

        :raises Conflict: if Neutron refuses although it has none.
        """
        try:
            self.remove(stamp)
        except (Conflict, ConflictException):
            if self._is_unused(stamp):
                raise

    def _is_unused(self, stamp: str) -> bool:
        with uncached():
            networks = self.stamped(stamp)
            ports = [port for network in networks for port in self.ports(network.id)]
            return bool(networks) and not self.users(ports, self.routers(stamp))

    def _refuse_used(self, networks: list[NeutronNetwork], users: list[NeutronPort]) -> None:
        if users:
            raise Conflict(
                f"network {networks[0].name} ({networks[0].id}) is in use",
                why=f"on it are {', '.join(sorted(map(self.owner, users)))}",
                remedy="remove these first",
            )

    def _remove_routers(self, routers: Iterable[Router], ports: Iterable[NeutronPort]) -> None:
        for router in routers:
            for port in ports:
                if port.device_id == router.id:
                    with suppress(NotFoundException):
                        self.api.remove_interface_from_router(router, port=port.id)
            self.api.delete_router(router)

    def _remove_network(self, network: NeutronNetwork) -> None:
        self.api.delete_network(network)
        self._forget(network)

    def _forget(self, network: NeutronNetwork) -> None:
        """Forget a network, which is not complete any more: the next port on it completes it."""
        self.memory.forget(network.id)
        self.names.forget("network", network.name)
        self.names.forget("network", network.id)

    @contextmanager
    def _restoring(self, networks: list[NeutronNetwork], routers: list[Router]) -> Iterator[None]:
        """Create the router again if a network gets a port while the block deletes it."""
        try:
            yield
        except ConflictException:
            for network in networks if routers else ():
                was, *_ = routers
                external = was.external_gateway_info["network_id"]
                there = self._router(was.description)
                router = there or self._post_router(was.name, was.description, external)
                self._connect(router, self.subnets(network.id))
            raise


def _same_block(there: Iterable[Subnet], body: dict[str, Any]) -> Subnet | None:
    return next((subnet for subnet in there if subnet.cidr == body["cidr"]), None)
