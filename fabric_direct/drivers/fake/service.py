"""Networks of their own in memory."""

from collections.abc import Iterator

from fabric_direct.drivers.contract import Service, Stamped
from fabric_direct.drivers.contract.provider_networks import impossibility
from fabric_direct.drivers.fake.substrate import Fake
from fabric_direct.errors import Conflict, InvalidSliver, NotOurs
from fabric_direct.networks import NetworkSliver, VlanNetwork

_CHANGEABLE = {"dns", "gateway", "pool", "router"}


class FakeService(Fake):
    """A :class:`~fabric_direct.drivers.contract.ServiceDriver` in memory."""

    kind = "service"

    def check(self, sliver: NetworkSliver) -> None:
        """Refuse a name that the site has, what no cloud can make, and to change what is fixed."""
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
        """Return the network."""
        sliver = self.substrate.networks.get(sliver_id)
        return self._network(sliver) if sliver else None

    def differences(self, sliver: NetworkSliver) -> tuple[str, ...]:
        """Name the fields that differ."""
        return tuple(f"{field} differs" for field in self._differing(sliver))

    def apply(self, sliver: NetworkSliver) -> Service:
        """Make the network, or change what can be changed of it."""
        for field in self._fixed(sliver):
            raise Conflict(f"network {sliver.name} is there, with another {field}")
        others = (s for s in self.substrate.networks.values() if s.id != sliver.id)
        if any(other.name == sliver.name for other in others):
            raise NotOurs(f"network {sliver.name} is there without the stamp")
        self.substrate.networks[sliver.id] = sliver
        return self._network(sliver)

    def remove(self, sliver_id: str) -> None:
        """Forget the network, unless ports are on it."""
        sliver = self.substrate.networks.get(sliver_id)
        if sliver and self._users(sliver):
            raise Conflict(f"on {sliver.name} are {', '.join(self._users(sliver))}")
        self.substrate.networks.pop(sliver_id, None)

    def leftovers(self, sliver_id: str) -> tuple[str, ...]:
        """Name the network, if it is there."""
        networks = self.substrate.networks
        return tuple(n.name for n in networks.values() if n.id == sliver_id)

    def stamped(self) -> tuple[Stamped, ...]:
        """Return all networks that are slivers."""
        networks = self.substrate.networks.values()
        return tuple(Stamped(network.id, "network", network.name) for network in networks)

    def _network(self, sliver: NetworkSliver) -> Service:
        settings = sliver.network
        return Service(
            sliver=sliver.id,
            source=f"fake-{sliver.name}",
            name=sliver.name,
            subnets=tuple(map(str, settings.blocks())),
            vlan=settings.vlan if isinstance(settings, VlanNetwork) else None,
            users=self._users(sliver),
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
