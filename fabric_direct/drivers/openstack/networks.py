"""Networks that we make in Neutron: those of site.yaml, and those that are slivers of their own.

A network is made in the order: network, router, IPv6 subnet, IPv4 subnet, interfaces of the router. One
that has its IPv4 subnet, and whose router has all its interfaces, is thus complete; one that is not, is
completed by making it again. It is deleted in the order: interfaces, router, network; its subnets go
with it. Neutron refuses to delete a network while a port is on it; then its router is made again.

No two networks have the same segment (Neutron answers 409), so there are no two of the same stamp.

What is known of a network is kept for each connection: ports change every second, networks do not.
"""

from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from openstack.connection import Connection
from openstack.exceptions import BadRequestException, ConflictException, NotFoundException
from openstack.network.v2._proxy import Proxy
from openstack.network.v2.network import Network as NeutronNetwork
from openstack.network.v2.port import Port as NeutronPort
from openstack.network.v2.router import Router
from openstack.network.v2.subnet import Subnet

from fabric_direct.config import OpenStackSettings, Site
from fabric_direct.drivers.openstack import wanted as wishes
from fabric_direct.drivers.openstack.errors import make_once, translated, words
from fabric_direct.drivers.openstack.names import names
from fabric_direct.drivers.openstack.session import cloud, uncached
from fabric_direct.drivers.openstack.stamp import description
from fabric_direct.drivers.openstack.wanted import Wanted
from fabric_direct.errors import (
    Conflict,
    InvalidSite,
    InvalidSliver,
    NotOurs,
    NotVerified,
    QuotaExceeded,
    SliverBusy,
)
from fabric_direct.locks import exclusive

T = TypeVar("T")
# Neutron's own ports, which do not keep it from deleting a network.
_NEUTRONS = ("network:dhcp", "network:distributed", "network:floatingip_agent_gateway")
# Of a call's limit, how long an unclear answer is looked into.
_LOOK = 0.25
_LEAVING = ".leaving."


@dataclass(frozen=True, slots=True)
class Known:
    """A network and its subnets."""

    network: NeutronNetwork
    subnets: tuple[Subnet, ...]

    def subnet(self, version: int) -> Subnet | None:
        """Return the first subnet of this version of IP."""
        return next((s for s in self.subnets if s.ip_version == version), None)


@dataclass(slots=True)
class Memory:
    """What is known of a cloud's networks."""

    by_id: dict[str, Known] = field(default_factory=dict)
    by_stamp: dict[str, Known] = field(default_factory=dict)
    """Networks that we made, known to be complete."""

    def keep(self, known: Known) -> Known:
        """Know a network."""
        self.by_id[known.network.id] = known
        return known

    def forget(self, network_id: str) -> None:
        """Look it up again next time."""
        self.by_id.pop(network_id, None)
        for stamp, known in tuple(self.by_stamp.items()):
            if known.network.id == network_id:
                self.by_stamp.pop(stamp, None)


def _is_held(lock: Path) -> bool:
    try:
        with exclusive(lock, "it", timeout=0):
            return False
    except SliverBusy:
        return True


_memories: "WeakKeyDictionary[Connection, Memory]" = WeakKeyDictionary()


class Networks:
    """The networks of one cloud.

    Its methods raise openstacksdk's errors beside ours: they are called within
    :func:`~fabric_direct.drivers.openstack.errors.translated`.
    """

    def __init__(self, site: Site) -> None:
        """Connect to nothing yet.

        :raises InvalidSite: if the site names no cloud.
        """
        if site.openstack is None:
            raise InvalidSite("is missing, and the driver 'openstack' needs it", field="openstack")
        self.site = site
        self.settings: OpenStackSettings = site.openstack
        self.where = f"cloud {self.settings.cloud}"

    def connection(self) -> Connection:
        """Return this process's connection."""
        return cloud(self.settings, call_limit=self.site.limits.call)

    @property
    def api(self) -> Proxy:
        """Neutron."""
        return self.connection().network

    @property
    def memory(self) -> Memory:
        """What is known of the connection's networks."""
        return _memories.setdefault(self.connection(), Memory())

    def mine(self, found: Iterable[T]) -> list[T]:
        """Return what is the project's own, the oldest first.

        An administrator sees all projects, and anybody can write a description.
        """
        project = self.connection().current_project_id
        own = (thing for thing in found if getattr(thing, "project_id", None) == project)
        return sorted(own, key=lambda thing: (str(getattr(thing, "created_at", "")), thing.id))  # type: ignore[attr-defined]

    def alone(self, name: str, *, timeout: float | None = None) -> AbstractContextManager[None]:
        """Keep other threads and processes of this machine from making or deleting the network.

        :param timeout: how long to wait for them, in seconds; the limit of a call if absent.
        """
        limit = self.site.limits.call if timeout is None else timeout
        return exclusive(self._lock(name), f"network {name}", timeout=limit)

    def leaving(self, name: str, port: str) -> AbstractContextManager[None]:
        """Let others know that a port is being deleted, and the network perhaps with it."""
        lock = self._lock(f"{name}{_LEAVING}{port}")
        return exclusive(lock, f"port {port}", timeout=self.site.limits.call)

    def is_being_left(self, name: str) -> bool:
        """Return whether anybody on this machine is deleting a port of the network."""
        pattern = self._lock(f"{name}{_LEAVING}*")
        return any(map(_is_held, pattern.parent.glob(pattern.name)))

    def _lock(self, name: str) -> Path:
        return self.site.state_dir / "locks" / f"network-{self.settings.cloud}-{name}"

    def once(self, make: Callable[[], T], find: Callable[[], T | None]) -> T:
        """Make a thing by a request that is not repeated; find it if the answer got lost."""
        return make_once(make, find, timeout=self.site.limits.call * _LOOK)

    # --- looking

    def find(self, stamp: str) -> NeutronNetwork | None:
        """Return the network with this stamp, complete or not."""
        return next(iter(self._stamped(stamp)), None)

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

    def known(self, network_id: str, subnet_ids: Collection[str] = ()) -> Known:
        """Return a network by its id, as known; read anew if these subnets are not known."""
        found = self.memory.by_id.get(network_id)
        if found and set(subnet_ids) <= {subnet.id for subnet in found.subnets}:
            return found
        return self.recall(self.api.get_network(network_id))

    def recall(self, network: NeutronNetwork) -> Known:
        """Return what is known of a network that is there, with its subnets."""
        known = Known(network, tuple(self.subnets(network.id)))
        return self.memory.keep(known)

    def subnets(self, network_id: str) -> list[Subnet]:
        """Read the subnets of a network."""
        return list(self.api.subnets(network_id=network_id))

    def routers(self, stamp: str) -> list[Router]:
        """Read the routers with this stamp."""
        return self.mine(self.api.routers(description=stamp))

    def ports(self, network_id: str | list[str]) -> list[NeutronPort]:
        """Read all ports on one or several networks."""
        return list(self.api.ports(network_id=network_id))

    def owner(self, port: NeutronPort) -> str:
        """Say whose a port is: ``<sliver>/<component>``, or its id and what it is plugged into."""
        prefix = description(self.site.site, "")
        if port.description and port.description.startswith(prefix):
            sliver = port.description.removeprefix(prefix)
            return f"{sliver}/{port.name.removeprefix(f'{sliver}-')}"
        user = f"{port.device_owner} {port.device_id}".strip()
        return f"port {port.id}" + (f" ({user})" if user else "")

    def users(self, ports: Iterable[NeutronPort], routers: Iterable[Router]) -> list[NeutronPort]:
        """Return the ports that others have: neither Neutron's own nor those of these routers."""
        ours = {router.id for router in routers}
        return [p for p in ports if p.device_owner not in _NEUTRONS and p.device_id not in ours]

    def left(self, stamp: str) -> tuple[str, ...]:
        """Name everything with this stamp that is still there."""
        networks = [f"network {n.name} ({n.id})" for n in self._stamped(stamp)]
        return (*networks, *(f"router {r.name} ({r.id})" for r in self.routers(stamp)))

    def _stamped(self, stamp: str) -> list[NeutronNetwork]:
        return self.mine(self.api.networks(description=stamp))

    # --- making

    def make(self, wanted: Wanted, *, settle: bool = False) -> Known:
        """Make the network with all that belongs to it; what is there of it already is completed.

        :param settle: whether what can be changed of it is changed to be as wanted.
        :raises Refused: if it cannot be had so.
        :raises Conflict: if it is there and was made otherwise.
        :raises NotOurs: if its name, or its segment, is another network's.
        """
        wishes.refuse_impossible(wanted, self.settings.external_network)
        with uncached():
            network = self.find(wanted.stamp) or self._post(wanted)
            there = self.subnets(network.id)
            wishes.refuse_different(wanted, network, there)
            if settle and not wanted.settings.router:
                self._unroute(wanted, network)
            router = self._wanted_router(wanted)
            made = [
                self._subnet(wanted, network, body, there, settle=settle)
                for body in wishes.subnets(wanted.settings)
            ]
            self._connect(router, made)
        subnets = {subnet.id: subnet for subnet in (*there, *made)}
        known = self.memory.keep(Known(network, tuple(subnets.values())))
        self.memory.by_stamp[wanted.stamp] = known
        return known

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
        asked = {"description": wanted.stamp, **wishes.provider(wanted.settings)}
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
        changes = wishes.changes(body, found) if settle else {}
        return self.api.update_subnet(found, **changes) if changes else found

    def _post_subnet(self, wanted: Wanted, network: NeutronNetwork, body: dict[str, Any]) -> Subnet:
        asked = {"network_id": network.id, "name": wanted.name, "description": wanted.stamp, **body}

        def find() -> Subnet | None:
            there = self.subnets(network.id)
            return next((subnet for subnet in there if subnet.cidr == body["cidr"]), None)

        return self.once(lambda: self.api.create_subnet(**asked), find)

    def _wanted_router(self, wanted: Wanted) -> Router | None:
        external = self.settings.external_network
        if not wanted.settings.router or external is None:
            return None
        found = self.routers(wanted.stamp)
        return found[0] if found else self._post_router(wanted.name, wanted.stamp, self.external())

    def external(self) -> str:
        """Return the id of the cloud's external network.

        :raises InvalidSite: if the site names none, or one that the cloud does not have.
        """
        try:
            found = names(self.connection()).network(self.settings.external_network or "")
        except InvalidSliver as error:
            error_field = "openstack.external_network"
            raise InvalidSite(
                error.what, where=self.where, remedy=error.remedy, field=error_field
            ) from error
        return str(found.id)

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
            networks, routers = self._stamped(stamp), self.routers(stamp)
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
