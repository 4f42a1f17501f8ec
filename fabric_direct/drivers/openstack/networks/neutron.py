"""What is known of a cloud's networks, and what is read of them.

What is known of a network is kept for each connection: ports change every second, networks do not.
"""

from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from openstack.connection import Connection
from openstack.network.v2._proxy import Proxy
from openstack.network.v2.network import Network as NeutronNetwork
from openstack.network.v2.port import Port as NeutronPort
from openstack.network.v2.router import Router
from openstack.network.v2.subnet import Subnet

from fabric_direct.config import OpenStackSettings, Site
from fabric_direct.drivers.openstack.client.errors import make_once
from fabric_direct.drivers.openstack.client.name_cache import names
from fabric_direct.drivers.openstack.client.session import cloud
from fabric_direct.drivers.openstack.client.stamp import description, network_description
from fabric_direct.errors import InvalidSite, InvalidSliver, SliverBusy
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


_memories: "WeakKeyDictionary[Connection, Memory]" = WeakKeyDictionary()


def own(cloud: Connection, found: Iterable[Any]) -> list[Any]:
    """Return what is the project's own, the oldest first.

    An administrator sees all projects, and anybody can write a description.
    """
    mine = (thing for thing in found if thing.project_id == cloud.current_project_id)
    return sorted(mine, key=lambda thing: (str(thing.created_at), thing.id))


class Neutron:
    """The networks of one cloud, to be read.

    Its methods raise openstacksdk's errors beside ours: they are called within
    :func:`~fabric_direct.drivers.openstack.client.errors.translated`.
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

    def mine(self, found: Iterable[Any]) -> list[Any]:
        """Return what is the project's own, the oldest first."""
        return own(self.connection(), found)

    def name_of_ours(self, network: NeutronNetwork) -> str | None:
        """Return the name of a network that is one of site.yaml, or was one; None if it is not."""
        prefix = network_description(self.site.site, "")
        mine = network.project_id == self.connection().current_project_id
        named = mine and str(network.description).startswith(prefix)
        return network.description.removeprefix(prefix) if named else None

    def with_external(self, use: Callable[[str], T]) -> T:
        """Call ``use`` with the id of the cloud's external network.

        :raises InvalidSite: if the site names none, or one that the cloud does not have.
        """
        name = self.settings.external_network or ""
        try:
            return names(self.connection()).resolved("network", name, use)
        except InvalidSliver as error:
            raise InvalidSite(
                error.what,
                where=self.where,
                remedy=error.remedy,
                field="openstack.external_network",
            ) from error

    # --- locks

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
        return next(iter(self.stamped(stamp)), None)

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
        networks = [f"network {n.name} ({n.id})" for n in self.stamped(stamp)]
        return (*networks, *(f"router {r.name} ({r.id})" for r in self.routers(stamp)))

    def stamped(self, stamp: str) -> list[NeutronNetwork]:
        """Read the networks with this stamp; there is one at most, unless somebody copied it."""
        return self.mine(self.api.networks(description=stamp))


def _is_held(lock: Path) -> bool:
    try:
        with exclusive(lock, "it", timeout=0):
            return False
    except SliverBusy:
        return True
