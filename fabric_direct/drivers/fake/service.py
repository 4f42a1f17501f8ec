"""Network services in memory."""

from collections.abc import Iterator

from fabric_direct.drivers.contract import BareMetalNode, Service, Stamped
from fabric_direct.drivers.contract.bare_metal import NodeAccess, Power, PowerChange
from fabric_direct.drivers.contract.provider_networks import impossibility
from fabric_direct.drivers.contract.service_comparison import (
    gateway_differences,
    interface_differences,
)
from fabric_direct.drivers.contract.site_checks import refuse_unknown_ports
from fabric_direct.drivers.fake.network import FakeNetwork
from fabric_direct.drivers.fake.nodes import FakeNodes
from fabric_direct.drivers.fake.substrate import Fake
from fabric_direct.drivers.fake.switch import FakeSwitches
from fabric_direct.errors import Conflict, InvalidSliver, NotOurs
from fabric_direct.model import ObservedGateway, ObservedInterface
from fabric_direct.model.bare_metal import BareMetalSliver, BareMetalStamp
from fabric_direct.model.networks import NetworkSliver, VlanNetwork
from fabric_direct.model.p4_switches import Switch
from fabric_direct.model.services import NetworkService, ServiceInterface
from fabric_direct.site.config import Site

_Sliver = NetworkSliver | NetworkService | Switch | BareMetalSliver

_CHANGEABLE = {"dns", "gateway", "pool", "router"}


class FakeService(Fake):
    """A :class:`~fabric_direct.drivers.contract.ServiceDriver` in memory: it carries no packets."""

    kind = "service"

    def __init__(self, site: Site, host: str) -> None:
        """Make a driver on the host's substrate."""
        super().__init__(site, host)
        self._switches = FakeSwitches(site, self.substrate)
        self._nodes = FakeNodes(site, self.substrate, FakeNetwork(site, host))

    def check(self, sliver: _Sliver) -> None:
        """Refuse what no cloud can make, to change what is fixed, and what the site lacks."""
        if isinstance(sliver, NetworkService):
            refuse_unknown_ports(self.site, sliver)
        elif isinstance(sliver, Switch):
            self._switches.check(sliver)
        elif isinstance(sliver, BareMetalSliver):
            self._nodes.check(sliver)
        else:
            self._check_network(sliver)

    def _check_network(self, sliver: NetworkSliver) -> None:
        if sliver.name in self.site.networks:
            raise InvalidSliver(f"{sliver.name} is a network of the site", field="name")
        cloud = self.site.openstack
        found = impossibility(sliver.network, cloud.external_network if cloud else None)
        if found:
            field, why, remedy = f"network.{found.field}", found.why, found.remedy
            raise InvalidSliver(found.what, field=field, why=why, remedy=remedy)
        for field in self._fixed(sliver):
            raise InvalidSliver("cannot be changed", field=field)

    def find(self, sliver_id: str) -> Service | None:
        """Return the service."""
        there = self.substrate
        if sliver_id in there.services:
            return self._service(there.services[sliver_id])
        sliver = there.networks.get(sliver_id)
        if sliver:
            return self._network(sliver)
        return self._switches.find(sliver_id) or self._nodes.find(sliver_id)

    def differences(self, sliver: _Sliver) -> tuple[str, ...]:
        """Name what differs."""
        if isinstance(sliver, Switch):
            return self._switches.differences(sliver)
        if isinstance(sliver, BareMetalSliver):
            return self._nodes.differences(sliver)
        if isinstance(sliver, NetworkSliver):
            return tuple(f"{field} differs" for field in self._differing(sliver))
        found = self.substrate.services.get(sliver.id)
        return tuple(self._differences(sliver, found)) if found else ("there is no such service",)

    def apply(self, sliver: _Sliver, access: NodeAccess = NodeAccess()) -> Service:  # noqa: B008 - it is frozen
        """Make the service, or change what can be changed of it."""
        if isinstance(sliver, Switch):
            return self._switches.apply(sliver)
        if isinstance(sliver, BareMetalSliver):
            return self._nodes.apply(sliver, access)
        if isinstance(sliver, NetworkService):
            self.substrate.services[sliver.id] = sliver
            self.substrate.service_stamps[sliver.id] = sliver.without_secrets()
            return self._service(sliver)
        return self._apply_network(sliver)

    def _apply_network(self, sliver: NetworkSliver) -> Service:
        for field in self._fixed(sliver):
            raise Conflict(f"network {sliver.name} is there, with another {field}")
        others = (s for s in self.substrate.networks.values() if s.id != sliver.id)
        if any(other.name == sliver.name for other in others):
            raise NotOurs(f"network {sliver.name} is there without the stamp")
        self.substrate.networks[sliver.id] = sliver
        return self._network(sliver)

    def remove(self, sliver_id: str) -> None:
        """Forget the service, unless ports are on it."""
        sliver = self.substrate.networks.get(sliver_id)
        if sliver and self._users(sliver):
            raise Conflict(f"on {sliver.name} are {', '.join(self._users(sliver))}")
        self.substrate.networks.pop(sliver_id, None)
        self.substrate.services.pop(sliver_id, None)
        self.substrate.service_stamps.pop(sliver_id, None)
        self._switches.remove(sliver_id)
        self._nodes.remove(sliver_id)

    def leftovers(self, sliver_id: str) -> tuple[str, ...]:
        """Name the service, if it is there."""
        networks = [n.name for n in self.substrate.networks.values() if n.id == sliver_id]
        services = [s.name for s in self.substrate.services.values() if s.id == sliver_id]
        machines = (*self._switches.leftovers(sliver_id), *self._nodes.leftovers(sliver_id))
        return (*networks, *services, *machines)

    def stamped(self) -> tuple[Stamped, ...]:
        """Return all services."""
        networks = self.substrate.networks.values()
        services = self.substrate.services.values()
        return (
            *(Stamped(network.id, "network", network.name) for network in networks),
            *(Stamped(service.id, service.type, service.name) for service in services),
            *self._switches.stamped(),
            *self._nodes.stamped(),
        )

    def nodes(self) -> tuple[BareMetalNode, ...]:
        """Return all bare-metal nodes, by name."""
        return self._nodes.all()

    def examine(self) -> tuple[str, ...]:
        """Return how many bare-metal nodes there are."""
        return (f"{len(self.substrate.bare_metal)} nodes in memory",)

    def stamp(self, sliver_id: str) -> BareMetalStamp | None:
        """Return the stamp on the sliver's node."""
        return self._nodes.stamp(sliver_id)

    def power(self, sliver_id: str) -> Power | None:
        """Return whether the sliver's node is on."""
        return self._nodes.power(sliver_id)

    def rebuild(self, sliver: BareMetalSliver, access: NodeAccess = NodeAccess()) -> Service:  # noqa: B008 - it is frozen
        """Deploy the sliver's node anew."""
        return self._nodes.rebuild(sliver, access)

    def set_power(self, sliver_id: str, power: PowerChange, *, hard: bool = False) -> None:  # noqa: ARG002
        """Switch the sliver's node."""
        self._nodes.set_power(sliver_id, power)

    def _network(self, sliver: NetworkSliver) -> Service:
        settings = sliver.network
        return Service(
            sliver=sliver.id,
            source=f"fake-{sliver.name}",
            name=sliver.name,
            subnets=tuple(map(str, settings.blocks())),
            vlan=settings.vlan if isinstance(settings, VlanNetwork) else None,
            users=self._users(sliver),
            type="L2Bridge",
        )

    def _users(self, sliver: NetworkSliver) -> tuple[str, ...]:
        ports = self.substrate.ports.values()
        return tuple(f"{p.sliver}/{p.component}" for p in ports if p.network == sliver.name)

    def _differing(self, sliver: NetworkSliver) -> Iterator[str]:
        """Yield the fields in which the network that is there differs."""
        there = self.substrate.networks.get(sliver.id, sliver)
        was, now = there.network.model_dump(), sliver.network.model_dump()
        if there.name != sliver.name:
            yield "name"
        yield from (f"network.{f}" for f in {**was, **now} if was.get(f) != now.get(f))

    def _fixed(self, sliver: NetworkSliver) -> Iterator[str]:
        changeable = {f"network.{field}" for field in _CHANGEABLE}
        return (field for field in self._differing(sliver) if field not in changeable)

    def _service(self, sliver: NetworkService) -> Service:
        gateway = getattr(sliver, "gateway", None)
        address = gateway and ObservedGateway(address=str(gateway.address), mac=gateway.mac)
        return Service(
            sliver=sliver.id,
            source=f"fake-{sliver.id}",
            name=sliver.name,
            interfaces=tuple(map(_observed, sliver.interfaces)),
            gateway=address,
            stamp=self.substrate.service_stamps.get(sliver.id),
            type=sliver.type,
        )

    def _differences(self, wanted: NetworkService, found: NetworkService) -> Iterator[str]:
        """Yield what differs: interfaces and gateway as for all drivers, the rest by its field."""
        if found.type != wanted.type:
            yield f"it is a {found.type}, not a {wanted.type}"
            return
        there = self._service(found)
        named = (*interface_differences(wanted, there), *gateway_differences(wanted, there))
        yield from named
        was, now = found.without_secrets().model_dump(), wanted.without_secrets().model_dump()
        told = {"interfaces", "gateway"} if named else set()
        yield from (
            f"{field} differs" for field in now if was[field] != now[field] and field not in told
        )


def _observed(interface: ServiceInterface) -> ObservedInterface:
    return ObservedInterface(
        component=interface.id,
        mac=interface.mac or "",
        device=interface.device,
        port=interface.port,
        vlan=interface.tag or None,
        inner_vlan=interface.inner_vlan,
        bandwidth=interface.bandwidth,
    )
