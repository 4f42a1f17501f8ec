"""The choice of what a network service leaves open, given what all services hold."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_interface, ip_network
from typing import Any

from fabric_direct.errors import Conflict, InvalidSliver, PoolExhausted
from fabric_direct.model.services import FabNet, Gateway, NetworkService, ServiceInterface
from fabric_direct.site.config import Site
from fabric_direct.site.services import vlans_of

Subnet = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class ServiceClaim:
    """One thing that a service holds."""

    kind: str
    """``VLAN``, ``subnet`` or ``address``."""
    key: str
    sliver: str
    part: str
    """The interface's id; empty for what belongs to the whole service."""

    @property
    def place(self) -> str:
        """Return the suffix of the keys that it may clash with, so that few of thousands are parsed."""
        return self.key[self.key.index(" on ") :] if self.kind == "VLAN" else ""

    @property
    def device(self) -> str:
        """The device of a VLAN; empty of what is on none."""
        return self.key.rpartition(" of ")[2] if self.kind == "VLAN" else ""

    def clashes(self, other: "ServiceClaim") -> bool:
        """Return whether both cannot be held at once by different services."""
        if self.kind != other.kind:
            return False
        if self.kind == "VLAN":
            return _clash(self.key, other.key)
        if self.kind == "subnet":
            return _overlap(ip_network(self.key), ip_network(other.key))
        return self.key == other.key

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"


def resolved(site: Site, service: NetworkService, held: Sequence[ServiceClaim]) -> NetworkService:
    """Return the service with what it leaves open: what it holds already, or what is free.

    :param held: what all services hold.
    :raises InvalidSliver: if a VLAN is outside the range of its port, or no pool has a subnet.
    :raises Conflict: if another service holds what it asks for; the holder is named.
    :raises PoolExhausted: if nothing is free.
    """
    return _Choice(site, service, held).made()


def claims_of(service: NetworkService) -> Iterator[ServiceClaim]:
    """Yield what a service needs, as far as it is chosen."""
    if isinstance(service, FabNet) and service.own_subnet and service.gateway:
        yield ServiceClaim("subnet", str(service.gateway.address.network), service.id, "")
    for address in getattr(service, "public", ()):
        yield ServiceClaim("address", str(address), service.id, "")
    for interface in service.interfaces:
        if interface.device and interface.vlan != "auto":
            yield ServiceClaim(
                "VLAN", _vlan_key(interface, interface.tag), service.id, interface.id
            )
        if interface.address and interface.address.ip not in getattr(service, "public", ()):
            yield ServiceClaim("address", str(interface.address.ip), service.id, interface.id)


def _vlan_key(interface: ServiceInterface, vlan: int) -> str:
    inner = f".{interface.inner_vlan}" if interface.inner_vlan else ""
    return f"{vlan or 'untagged'}{inner} on {interface.where}"


class _Choice:
    """The choice of what one service leaves open."""

    def __init__(self, site: Site, service: NetworkService, held: Sequence[ServiceClaim]) -> None:
        self._site, self._service, self._held = site, service, held
        self._own = [c for c in held if c.sliver == service.id]

    def made(self) -> NetworkService:
        service = self._service
        own_subnet = isinstance(service, FabNet) and service.own_subnet
        if own_subnet:
            service = self._with_gateway(service)
        interfaces = list(service.interfaces)
        for number, interface in enumerate(interfaces):
            interfaces[number] = self._with_vlan(interface, f"interfaces[{number}]", interfaces)
        if isinstance(service, FabNet) and own_subnet and service.gateway:
            self._refuse_few(service.gateway, interfaces)
            self._add_addresses(service.gateway, interfaces)
        made: NetworkService = service.model_copy(update={"interfaces": tuple(interfaces)})
        self._refuse_held(made)
        return made

    # --- VLANs

    def _with_vlan(
        self, interface: ServiceInterface, field: str, others: list[ServiceInterface]
    ) -> ServiceInterface:
        if interface.device is None:
            return interface
        if interface.vlan != "auto":
            self._refuse_outside(interface, field)
            return interface
        port = self._site.switch_port(interface.device, interface.port)
        kept = self._kept_vlan(interface)
        if port is None and kept is None:
            why = f"site.yaml has no port {interface.where}"
            raise InvalidSliver("cannot be chosen", field=f"{field}.vlan", why=why)
        ranges = port.vlans if port else ()
        taken = self._taken(interface, others)
        for vlan in (*filter(None, (kept,)), *vlans_of(ranges)):
            if not any(_clash(_vlan_key(interface, vlan), key) for key in taken):
                return interface.model_copy(update={"vlan": vlan})
        raise PoolExhausted(
            f"no VLAN of {interface.where} is free",
            why=f"its range is {', '.join(ranges)}",
            remedy="delete a service, or widen the range in site.yaml",
        )

    def _refuse_outside(self, interface: ServiceInterface, field: str) -> None:
        port = self._site.switch_port(interface.device, interface.port)
        if port is None:
            return
        if not interface.tag and not port.untagged:
            raise InvalidSliver(f"{interface.where} is for VLANs only", field=f"{field}.vlan")
        if interface.tag and interface.tag not in vlans_of(port.vlans):
            raise InvalidSliver(
                f"VLAN {interface.tag} is outside of the range of {interface.where}",
                field=f"{field}.vlan",
                why=f"its range is {', '.join(port.vlans)}",
            )

    def _kept_vlan(self, interface: ServiceInterface) -> int | None:
        """Return the VLAN that the interface holds on its port."""
        end = f" on {interface.where}"
        kept = [c.key for c in self._own if c.kind == "VLAN" and c.part == interface.id]
        numbers = (key.removesuffix(end).partition(".")[0] for key in kept if key.endswith(end))
        return next((int(number) for number in numbers if number.isdigit()), None)

    def _taken(self, interface: ServiceInterface, others: list[ServiceInterface]) -> set[str]:
        """Return the VLANs of the interface's port that other interfaces and services have."""
        keys = {_vlan_key(i, i.tag) for i in others if i.device and i.vlan != "auto"}
        own = {c.key for c in self._own if c.part == interface.id}
        keys |= {c.key for c in self._held if c.kind == "VLAN" and c.key not in own}
        return {key for key in keys if key.endswith(f" on {interface.where}")}

    # --- subnets and addresses

    def _with_gateway(self, service: Any) -> Any:
        if service.gateway:
            return service
        subnet = self._kept_subnet() or self._free_subnet(service)
        address = ip_interface(f"{next(iter(subnet.hosts()))}/{subnet.prefixlen}")
        return service.model_copy(update={"gateway": Gateway(address=address)})

    def _kept_subnet(self) -> Subnet | None:
        kept = (ip_network(c.key) for c in self._own if c.kind == "subnet")
        return next(kept, None)

    def _free_subnet(self, service: Any) -> Subnet:
        pool = self._site.services.subnets.get(service.type)
        if pool is None:
            why = f"site.yaml has no services.subnets.{service.type}"
            raise InvalidSliver("must be given", field="gateway", why=why)
        held = [ip_network(c.key) for c in self._held if c.kind == "subnet"]
        subnets: Iterator[Subnet] = pool.block.subnets(new_prefix=pool.prefix)
        for subnet in subnets:
            if not any(_overlap(subnet, other) for other in held):
                return subnet
        raise PoolExhausted(
            f"no subnet for {service.type} is free",
            why=f"{pool.block} is in use",
            remedy="delete a service, or enlarge the block in site.yaml",
        )

    def _refuse_few(self, gateway: Gateway, interfaces: list[ServiceInterface]) -> None:
        """Refuse a subnet that has no room for the gateway and all interfaces, whoever asks."""
        subnet, needed = gateway.address.network, len(interfaces) + 1
        if (room := _room(subnet)) < needed:
            why = f"it has room for {room} hosts, not for the gateway and {needed - 1} interfaces"
            given = getattr(self._service, "gateway", None)
            field = "gateway.address" if given else "interfaces"
            raise InvalidSliver(f"{subnet} is too small", field=field, why=why)

    def _add_addresses(self, gateway: Gateway, interfaces: list[ServiceInterface]) -> None:
        """Give each interface the address that it holds, or the next free one."""
        subnet = gateway.address.network
        open_ = {interface.id for interface in interfaces if interface.address is None}
        kept = {c.part: c.key for c in self._own if c.kind == "address" and c.part in open_}
        taken = {str(i.address.ip) for i in interfaces if i.address} | {str(gateway.address.ip)}
        for number, interface in enumerate(interfaces):
            if interface.address:
                self._refuse_address(interface.address, gateway, f"interfaces[{number}].address")
            else:
                own = kept.get(interface.id, "")
                fits = bool(own) and ip_interface(own).ip in subnet and own not in taken
                chosen = own if fits else _free_address(subnet, taken | set(kept.values()))
                taken.add(chosen)
                address = ip_interface(f"{chosen}/{subnet.prefixlen}")
                interfaces[number] = interface.model_copy(update={"address": address})

    @staticmethod
    def _refuse_address(address: Any, gateway: Gateway, field: str) -> None:
        """Refuse an address that is not in the subnet that was chosen."""
        subnet = gateway.address.network
        if address.network != subnet:
            raise InvalidSliver(f"{address} is not in {subnet}", field=field, why="it was chosen")
        if address.ip == gateway.address.ip:
            raise InvalidSliver(f"{address.ip} is the gateway's", field=field)

    # --- what others hold

    def _refuse_held(self, made: NetworkService) -> None:
        others = [claim for claim in self._held if claim.sliver != made.id]
        for claim in claims_of(made):
            for held in others:
                if held.key.endswith(claim.place) and held.clashes(claim):
                    field, why = self._field(claim, made), f"it is in use by sliver {held.sliver}"
                    raise Conflict(f"{claim} is taken", field=field, why=why)

    def _field(self, claim: ServiceClaim, made: NetworkService) -> str:
        if not claim.part:
            return "gateway.address" if claim.kind == "subnet" else "public"
        ids = [interface.id for interface in made.interfaces]
        return f"interfaces[{ids.index(claim.part)}].{claim.kind.lower()}"


def _free_address(subnet: Subnet, taken: set[str]) -> str:
    """Return the first address that is not taken; there is one, as there is room for all."""
    return next(address for address in map(str, subnet.hosts()) if address not in taken)


def _room(subnet: Subnet) -> int:
    """Return how many hosts a subnet can have."""
    most: int = subnet.num_addresses
    return most if most <= 2 else most - (2 if subnet.version == 4 else 1)


def _overlap(one: Subnet, other: Subnet) -> bool:
    return one.version == other.version and one.overlaps(other)


def _clash(one: str, other: str) -> bool:
    """Return whether two VLANs of a port are one: a VLAN includes all inner ones."""
    (tags, port), (others, other_port) = (key.split(" on ", 1) for key in (one, other))
    if port != other_port:
        return False
    outer, _, inner = tags.partition(".")
    other_outer, _, other_inner = others.partition(".")
    return outer == other_outer and (not inner or not other_inner or inner == other_inner)
