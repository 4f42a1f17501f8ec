"""Reads of Neutron, and a cache of networks and their subnets for each connection.

Ports change every second, networks do not.
"""

from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from openstack.connection import Connection
from openstack.network.v2._proxy import Proxy
from openstack.network.v2.network import Network as NeutronNetwork
from openstack.network.v2.port import Port as NeutronPort
from openstack.network.v2.router import Router
from openstack.network.v2.subnet import Subnet

from fabric_direct.drivers.openstack.client.base import CloudDriver
from fabric_direct.drivers.openstack.client.stamp import (
    age,
    component_of,
    described_sliver,
    network_description,
)
from fabric_direct.errors import InvalidSite, InvalidSliver
from fabric_direct.state.site_store import store_of
from fabric_direct.state.store import StateStore

T = TypeVar("T")
# Neutron's own ports; it deletes a network in spite of them.
_NEUTRONS = ("network:dhcp", "network:distributed", "network:floatingip_agent_gateway")
_LEAVING = ".leaving."


@dataclass(frozen=True, slots=True)
class KnownNetwork:
    """A network and its subnets."""

    network: NeutronNetwork
    subnets: tuple[Subnet, ...]

    def subnet(self, version: int) -> Subnet | None:
        """Return the first subnet of this version of IP."""
        return next((s for s in self.subnets if s.ip_version == version), None)


@dataclass(slots=True)
class NetworkCache:
    """The networks of a cloud that were read or created."""

    by_id: dict[str, KnownNetwork] = field(default_factory=dict)
    by_stamp: dict[str, KnownNetwork] = field(default_factory=dict)
    """Networks that we created, and that are complete."""

    def forget(self, network_id: str) -> None:
        """Remove a network, so that it is read again next time."""
        self.by_id.pop(network_id, None)
        for stamp, known in tuple(self.by_stamp.items()):
            if known.network.id == network_id:
                self.by_stamp.pop(stamp, None)


_caches: "WeakKeyDictionary[Connection, NetworkCache]" = WeakKeyDictionary()


def own(cloud: Connection, found: Iterable[Any]) -> list[Any]:
    """Return the project's own resources, the oldest first.

    An administrator sees those of all projects, and anybody can set a description.
    """
    return sorted((thing for thing in found if _is_own(cloud, thing)), key=age)


def _is_own(cloud: Connection, thing: Any) -> bool:
    """Return whether a resource is the project's; a cloud without logins has no projects."""
    return cloud.current_project_id in {None, thing.project_id}


class Neutron(CloudDriver):
    """Reads of one cloud's Neutron.

    The methods also raise openstacksdk's errors: call them within :meth:`translated`.
    """

    @property
    def api(self) -> Proxy:
        """Neutron."""
        return self.connection().network

    @property
    def memory(self) -> NetworkCache:
        """The connection's cache of networks."""
        return _caches.setdefault(self.connection(), NetworkCache())

    def mine(self, found: Iterable[Any]) -> list[Any]:
        """Return the project's own resources, the oldest first."""
        return own(self.connection(), found)

    def name_of_ours(self, network: NeutronNetwork) -> str | None:
        """Return the name of a network that was created for site.yaml; None for any other."""
        prefix = network_description(self.site.site, "")
        mine = _is_own(self.connection(), network)
        named = mine and str(network.description).startswith(prefix)
        return network.description.removeprefix(prefix) if named else None

    def with_external(self, use: Callable[[str], T]) -> T:
        """Call ``use`` with the id of the cloud's external network.

        :raises InvalidSite: if the site names none, or the cloud has none of that name.
        """
        name = self.settings.external_network or ""
        try:
            return self.names.resolved("network", name, use)
        except InvalidSliver as error:
            field = "openstack.external_network"
            raise InvalidSite(error.what, remedy=error.remedy, field=field) from error

    # --- locks

    def alone(self, name: str, *, timeout: float | None = None) -> AbstractContextManager[None]:
        """Hold the lock for creating and deleting the network.

        :param timeout: seconds to wait for the lock; ``limits.call`` if absent.
        """
        limit = self.site.limits.call if timeout is None else timeout
        return self._store.exclusive(self._lock(name), f"network {name}", timeout=limit)

    def leaving(self, name: str, port: str) -> AbstractContextManager[None]:
        """Show others that a port is being deleted, and perhaps the network with it."""
        lock = self._lock(f"{name}{_LEAVING}{port}")
        return self._store.exclusive(lock, f"port {port}", timeout=self.site.limits.call)

    def is_being_left(self, name: str) -> bool:
        """Return whether a process of the site is deleting a port of the network."""
        return bool(self._store.held(self._lock(f"{name}{_LEAVING}")))

    @property
    def _store(self) -> StateStore:
        return store_of(self.site)

    def _lock(self, name: str) -> str:
        return f"network-{self.settings.cloud}-{name}"

    # --- looking

    def find(self, stamp: str) -> NeutronNetwork | None:
        """Return the network with this stamp, complete or not, or None."""
        return next(iter(self.stamped(stamp)), None)

    def known(self, network_id: str, subnet_ids: Collection[str] = ()) -> KnownNetwork:
        """Return a network from the cache; read it again if it lacks one of these subnets."""
        found = self.memory.by_id.get(network_id)
        if found and set(subnet_ids) <= {subnet.id for subnet in found.subnets}:
            return found
        return self.recall(self.api.get_network(network_id))

    def recall(self, network: NeutronNetwork) -> KnownNetwork:
        """Read the subnets of a network, and add it to the cache."""
        known = KnownNetwork(network, tuple(self.subnets(network.id)))
        self.memory.by_id[network.id] = known
        return known

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
        """Name the owner of a port: ``<sliver>/<component>``, or its id and its device."""
        sliver = described_sliver(self.site.site, port)
        if sliver is not None:
            return f"{sliver}/{component_of(port, sliver)}"
        user = f"{port.device_owner} {port.device_id}".strip()
        return f"port {port.id}" + (f" ({user})" if user else "")

    def users(self, ports: Iterable[NeutronPort], routers: Iterable[Router]) -> list[NeutronPort]:
        """Return the ports of others: neither Neutron's own nor those of these routers."""
        ours = {router.id for router in routers}
        return [p for p in ports if p.device_owner not in _NEUTRONS and p.device_id not in ours]

    def left(self, stamp: str) -> tuple[str, ...]:
        """Name every network and router with this stamp."""
        networks = [f"network {n.name} ({n.id})" for n in self.stamped(stamp)]
        return (*networks, *(f"router {r.name} ({r.id})" for r in self.routers(stamp)))

    def stamped(self, stamp: str) -> list[NeutronNetwork]:
        """Read the networks with this stamp: one at most, unless somebody copied the description."""
        return self.mine(self.api.networks(description=stamp))
