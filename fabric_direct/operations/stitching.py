"""Stitches of nodes and network services, both ways: what one end has, the other takes.

::

    components[].interface.service    a node's interface takes VLAN and address of a service's interface,
                                      and is at its port: a tap, a VF of the uplink, or the whole NIC
    interfaces[].attach               a service's interface takes MAC, port and VLAN of a component

What an end has is read: from the stamp of the service or server, from held ports and plugged devices.
What both say must agree. The slivers that come out name their ends, and say all that they took from
them, so that their stamps do.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from pydantic import ValidationError

from fabric_direct.drivers.contract import HostDrivers, Server, Service
from fabric_direct.engine.run import attempt
from fabric_direct.errors import InvalidSliver, NotFound
from fabric_direct.handlers.handler import field_below
from fabric_direct.handlers.vm.observe import tenant_of
from fabric_direct.model import (
    AUTO,
    Component,
    Interface,
    NodeSliver,
    PciAddress,
    PciComponent,
    Route,
    ServiceEnd,
    SharedNic,
    SliverRef,
    SmartNic,
    Storage,
    VNic,
    VNicInterface,
)
from fabric_direct.model.networks import VlanNetwork
from fabric_direct.model.references import interfaces_of, named_by
from fabric_direct.model.services import Attachment, NetworkService, ServiceInterface
from fabric_direct.site.config import Site
from fabric_direct.site.services import SwitchPort
from fabric_direct.state.stitches import Stitch

T = TypeVar("T")
_TOLD = (InvalidSliver, NotFound)
"""The errors by which an end is not there, or not as it should be; of others it is not known."""


@dataclass(frozen=True, slots=True)
class StitchedNode:
    """A node that is there."""

    server: Server
    drivers: HostDrivers
    """Of its host."""

    @property
    def host(self) -> str:
        """Its worker."""
        return self.server.host or self.drivers.host


@dataclass(frozen=True, slots=True)
class Stitched:
    """A sliver with what it takes from the ends that it names."""

    sliver: Any
    stitches: tuple[Stitch, ...] = ()


@dataclass(frozen=True, slots=True)
class EndsNow:
    """What the ends that a sliver names are now, as far as they answer."""

    sliver: Any
    """With what it takes from the ends, and from its stamp where one does not answer; by its id alone if
    nothing says where it is connected."""
    differences: tuple[str, ...] = ()
    """Where an end is not there, or not what the sliver says, a sentence each."""
    unknown: tuple[str, ...] = ()
    """Which ends could not be read, and why, a sentence each."""

    @property
    def agree(self) -> bool:
        """Whether all ends were read, and are what the sliver says."""
        return not (self.differences or self.unknown)


@dataclass(frozen=True, slots=True)
class _Place:
    """A node's interface that names its end."""

    number: int
    """Of the component."""
    field: str
    """Within the component."""
    index: int
    """Of the interface."""
    end: ServiceEnd


@dataclass(frozen=True, slots=True)
class _NodeEnd:
    """The node's end of a stitch: the values that a service's interface takes."""

    device: str
    port: str
    mac: str | None
    vlan: int | None
    """0 for frames without a VLAN; None if the guest may send any."""
    users: frozenset[str] = frozenset()
    """The slivers that its node names."""

    def __str__(self) -> str:
        vlan = "" if self.vlan is None else f"{_vlan(self.vlan)}, "
        return f"{vlan}{self.mac or 'no MAC'} on {self.port} of {self.device}"


@dataclass(frozen=True, slots=True)
class _ServiceEnd:
    """The service's end of a stitch: the values that a node's interface takes."""

    interface: ServiceInterface
    users: frozenset[str] = frozenset()
    """The slivers that its service names."""
    routes: tuple[Route, ...] = ()

    def __str__(self) -> str:
        address = f", {self.interface.address}" if self.interface.address else ""
        return f"{_vlan(self.interface.tag)} on {self.interface.where}{address}"


class Stitching:
    """The stitches of an operation's slivers."""

    def __init__(
        self,
        site: Site,
        node: Callable[[str], StitchedNode | None],
        service: Callable[[str], Service | None],
        drivers_of: Callable[[str], HostDrivers],
    ) -> None:
        """Read nothing yet.

        :param node: finds a node that is there, by its sliver's id; so does ``service``.
        """
        self._site, self._node, self._service, self._drivers_of = site, node, service, drivers_of

    def stitched(self, sliver: SliverRef) -> Stitched:
        """Return the sliver with what it takes from the ends that it names.

        :raises InvalidSliver: with the field, if an end is not there, or has something else than the
            sliver says.
        """
        done = Stitched(sliver)
        for _, take in self._takes(sliver):
            done = take(done)
        return replace(done, sliver=_validated(done.sliver)) if done.stitches else done

    def ends_now(self, sliver: SliverRef, stamp: SliverRef | None) -> EndsNow:
        """Return what the ends are that a sliver names: one that does not answer is no difference.

        :param stamp: the sliver as its stamp says, if that is known.
        """
        done, unlike, unknown = Stitched(sliver), list[str](), list[str]()
        for other, take in self._takes(sliver):
            found = attempt(take, done)
            if isinstance(found, Stitched):
                done = found
            elif isinstance(found, _TOLD):
                unlike.append(str(found))
            else:
                unknown.append(f"it is not known what {other} has: {found}")
                done = replace(done, sliver=_as_stamped(done.sliver, stamp, other))
        known = done.sliver if _is_placed(done.sliver) else sliver.ref()
        return EndsNow(known, tuple(unlike), tuple(unknown))

    def now(self, stitch: Stitch, *, service: bool) -> str:
        """Return what the end of a stitch has now, in words.

        :param service: whether it is a service's interface.
        :raises Exception: if that cannot be read.
        """
        part, _, number = stitch.end.partition(".")
        attach = Attachment(sliver=stitch.other, component=part, interface=int(number or 0))
        end = ServiceEnd(id=stitch.other, interface=stitch.end)
        try:
            return str(self._service_end(end) if service else self._node_end(attach))
        except _TOLD as absent:
            return f"none: {absent}"

    def _takes(self, sliver: SliverRef) -> Iterator[tuple[str, Callable[[Stitched], Stitched]]]:
        """Yield the sliver that has each end that the sliver names, and what takes the end over."""
        if isinstance(sliver, NodeSliver):
            for place in _places(sliver):
                yield place.end.id, partial(self._take_service, place)
        elif isinstance(sliver, NetworkService):
            for number, interface in enumerate(sliver.interfaces):
                if interface.attach:
                    yield interface.attach.sliver, partial(self._take_node, number)

    # --- a node's interface takes what a service's has

    def _take_service(self, place: _Place, done: Stitched) -> Stitched:
        node: NodeSliver = done.sliver
        component = node.components[place.number]
        with field_below(f"components[{place.number}]"):
            with field_below(f"{place.field}.service"):
                end = self._service_end(place.end)
                _refuse_circle(node.id, end.users, f"service {place.end.id}")
                port = self._port_of(end.interface, component)
            component = _at(component, place, port, end)
            self._refuse_other_nic(component, place.index, port)
        host = port.host or self._site.switches[str(end.interface.device)].host
        values: dict[str, Any] = {"components": _with(node.components, place.number, component)}
        if host:
            values["host"] = _agreed(None if node.host == AUTO else node.host, host, "host", end)
        part, address = _part(component, place.index), end.interface.address
        taken = (str(end), str(address) if address else None)
        stitch = Stitch(node.id, part, place.end.id, place.end.interface, *taken)
        return Stitched(node.model_copy(update=values), (*done.stitches, stitch))

    def _service_end(self, end: ServiceEnd) -> _ServiceEnd:
        """Return a service's interface as it is.

        :raises InvalidSliver: if it is not there.
        """
        service = self._service(end.id)
        if service is None:
            raise _absent(f"network service {end.id}", "id")
        there = {interface.id: interface for interface in _interfaces(service)}
        if end.interface not in there:
            why = f"it has {', '.join(there) or 'none'}"
            raise InvalidSliver(
                f"service {end.id} has no such interface", field="interface", why=why
            )
        users = named_by(service.stamp) if service.stamp else frozenset()
        own = there.pop(end.interface)
        routes = (*self._routes(service), *_routes_to(there.values(), own))
        return _ServiceEnd(own, users, routes)

    def _routes(self, service: Service) -> Iterator[Route]:
        """Yield the routes to other services of the kind, by the service's gateway."""
        gateway, kind = getattr(service.stamp, "gateway", None), getattr(service.stamp, "type", "")
        for name, pool in self._site.services.subnets.items():
            if gateway and name == kind:
                yield Route(to=pool.block, via=gateway.address.ip)

    def _port_of(self, end: ServiceInterface, component: Component) -> SwitchPort:
        """Return the switch's port of a service's interface, if such a component can be there."""
        port = self._site.switch_port(end.device, end.port) or SwitchPort()
        plugged = {VNic: port.tap, SharedNic: port.uplink, SmartNic: port.bdf}
        if not plugged.get(type(component)):
            raise InvalidSliver(
                f"no {component.type} can be at {end.where}",
                why="site.yaml says of the port neither 'tap' nor the NIC that is plugged into it",
            )
        if isinstance(component, VNic) and end.tag:
            raise InvalidSliver(f"interface {end.id} has VLAN {end.tag}; a vNIC has none")
        return port

    def _refuse_other_nic(self, component: Component, index: int, port: SwitchPort) -> None:
        """Raise InvalidSliver if the component's functions are of another NIC than the port's."""
        if isinstance(component, VNic | Storage):
            return
        address = component.bdf[index] if index < len(component.bdf) else None
        if isinstance(component, SharedNic) and address is None:
            return  # placement chooses one of the uplink
        own = _uplink(self._drivers_of(str(port.host)), address) if port.uplink else address
        nic = port.uplink or port.bdf
        if own != nic:
            raise InvalidSliver(f"is not of {nic} of {port.host}", field=f"bdf[{index}]")

    # --- a service's interface takes what a node's component has

    def _take_node(self, number: int, done: Stitched) -> Stitched:
        service: NetworkService = done.sliver
        interface = service.interfaces[number]
        attach = interface.attach
        assert attach is not None  # noqa: S101 - see _takes
        with field_below(f"interfaces[{number}]"):
            with field_below("attach"):
                end = self._node_end(attach)
                _refuse_circle(service.id, end.users, f"sliver {attach.sliver}")
            taken = _as_node(interface, end)
        interfaces = _with(service.interfaces, number, taken)
        part = f"{attach.component}.{attach.interface}" if attach.interface else attach.component
        stitch = Stitch(service.id, interface.id, attach.sliver, part, str(end))
        made = service.model_copy(update={"interfaces": interfaces})
        return Stitched(made, (*done.stitches, stitch))

    def _node_end(self, attach: Attachment) -> _NodeEnd:
        """Return what the interface of a node's component is.

        :raises InvalidSliver: if it is not there, or at no port of a switch.
        """
        node = self._node(attach.sliver)
        if node is None:
            raise _absent(f"server of sliver {attach.sliver}", "sliver")
        there = {c.id: c for c in node.server.stamp.sliver.components}
        found = there.get(attach.component)
        interfaces = [interface for _, interface in interfaces_of(found)] if found else []
        if attach.interface >= len(interfaces):
            why = f"its NICs are {', '.join(c for c in there if [*interfaces_of(there[c])]) or 'none'}"
            raise InvalidSliver("there is no such interface", field="component", why=why)
        if isinstance(found, VNic):
            end = self._vnic_end(node, found)
        else:
            end = self._device_end(node, found, attach.interface, interfaces[attach.interface])
        return replace(end, users=named_by(node.server.stamp.sliver))

    def _vnic_end(self, node: StitchedNode, vnic: VNic) -> _NodeEnd:
        ports = {port.component: port for port in node.drivers.network.ports(node.server.sliver)}
        if vnic.id not in ports:
            raise _absent(f"port of {vnic.id}", "component")
        port, network = ports[vnic.id], self._site.networks.get(ports[vnic.id].network)
        if port.network in self._site.switches:
            return _NodeEnd(port.network, port.source, port.mac, None)
        if isinstance(network, VlanNetwork) and network.uplink:
            device, name = self._plugged(node.host, uplink=network.uplink)
            return _NodeEnd(device, name, port.mac, network.vlan)
        why = f"network {port.network} is neither a switch nor a VLAN of an uplink"
        raise InvalidSliver("is at no port of a switch", field="component", why=why)

    def _device_end(
        self, node: StitchedNode, component: Any, index: int, interface: Interface
    ) -> _NodeEnd:
        if index >= len(component.bdf):
            raise InvalidSliver("has no function of its own", field="interface")
        address = component.bdf[index]
        mac = interface.mac or _mac(node, component, address)
        if isinstance(component, SmartNic):
            return _NodeEnd(*self._plugged(node.host, bdf=address), mac, interface.vlan)
        uplink = _uplink(node.drivers, address)
        return _NodeEnd(*self._plugged(node.host, uplink=uplink), mac, interface.vlan or 0)

    def _plugged(self, host: str, **nic: object) -> tuple[str, str]:
        """Return the switch and port that a NIC of a host is plugged into."""
        wanted = {"host": host, **nic}
        for device, switch in self._site.switches.items():
            for name, port in switch.ports.items():
                if {field: getattr(port, field) for field in wanted} == wanted:
                    return device, name
        ((field, value),) = nic.items()
        raise InvalidSliver(
            "is at no port of a switch",
            field="component",
            why=f"site.yaml: switches has no port with host {host} and {field} {value}",
        )


def ends_of(sliver: SliverRef) -> Iterator[tuple[str, str]]:
    """Yield the parts of a sliver that name their ends, each with the sliver that has the end."""
    if isinstance(sliver, NodeSliver):
        for place in _places(sliver):
            yield _part(sliver.components[place.number], place.index), place.end.id
    elif isinstance(sliver, NetworkService):
        for interface in sliver.interfaces:
            if interface.attach:
                yield interface.id, interface.attach.sliver


def unanswered(stitch: Stitch, error: Exception) -> str:
    """Return the sentence that the end of a stitch could not be read."""
    what = f"{stitch.other} has now, nor whether {stitch.sliver} must be modified"
    return f"it is not known what {what}: {error}"


def _refuse_circle(sliver_id: str, named: frozenset[str], by: str) -> None:
    if sliver_id in named:
        why = f"{by} names {sliver_id}: each would need the other first"
        raise InvalidSliver("goes in a circle", why=why)


def _places(node: NodeSliver) -> Iterator[_Place]:
    for number, component in enumerate(node.components):
        for index, (field, interface) in enumerate(interfaces_of(component)):
            if interface.service:
                yield _Place(number, field, index, interface.service)


def _part(component: Component, index: int) -> str:
    return f"{component.id}.{index}" if index else component.id


def _interfaces(service: Service) -> Iterator[ServiceInterface]:
    """Yield the interfaces of a service, as its stamp says, or else as they are."""
    if isinstance(service.stamp, NetworkService):
        yield from service.stamp.interfaces
        return
    for seen in service.interfaces:
        if seen.device and seen.port:
            vlan = seen.vlan or "untagged"
            yield ServiceInterface(id=seen.component, device=seen.device, port=seen.port, vlan=vlan)


def _routes_to(others: Iterable[ServiceInterface], own: ServiceInterface) -> Iterator[Route]:
    """Yield the routes to the subnets of an L3VPN's other interfaces, by an interface's gateway."""
    for other in others:
        if own.gateway and other.gateway:
            to, via = other.gateway.address.network, own.gateway.address.ip
            if to.version == via.version:
                yield Route(to=to, via=via)


def _at(component: Any, place: _Place, port: SwitchPort, end: _ServiceEnd) -> Any:
    """Return a component with an interface as a service's has it, at that port."""
    with field_below(place.field):
        interface = _as_service(_interface(component, place), end)
    values: dict[str, Any] = {}
    if isinstance(component, VNic):
        device = str(end.interface.device)
        values["network"] = _agreed(component.network, device, "network", end)
    elif isinstance(component, SharedNic) and not component.bdf:
        values["uplink"] = _agreed(component.uplink, port.uplink, "uplink", end)
    return _with_interface(component, place, interface, values)


def _interface(component: Any, place: _Place) -> Interface:
    return [interface for _, interface in interfaces_of(component)][place.index]


def _with_interface(
    component: Any, place: _Place, interface: Interface, values: Mapping[str, Any]
) -> Any:
    """Return a component with another interface at a place, and these values."""
    if isinstance(component, SmartNic):
        own = {"interfaces": _with(component.interfaces, place.index, interface)}
        return component.model_copy(update={**values, **own})
    return component.model_copy(update={**values, "interface": interface})


def _as_service(interface: Interface, end: _ServiceEnd) -> Interface:
    """Return a node's interface with what a service's interface has."""
    has = end.interface
    values: dict[str, Any] = {"vlan": _agreed(interface.vlan, has.tag or None, "vlan", end)}
    if has.address:
        field = f"ipv{has.address.version}"
        values[field] = _agreed(getattr(interface, field), has.address, field, end)
    if isinstance(interface, VNicInterface):
        values["port"] = _agreed(interface.port, has.port, "port", end)
        values["mtu"] = _agreed(interface.mtu, has.mtu, "mtu", end) if has.mtu else interface.mtu
        values["routes"] = interface.routes or end.routes
    return interface.model_copy(update=values)


def _as_node(interface: ServiceInterface, end: _NodeEnd) -> ServiceInterface:
    """Return a service's interface with what a node's component has."""
    values: dict[str, Any] = {
        "device": _agreed(interface.device, end.device, "device", end),
        "port": _agreed(interface.port, end.port, "port", end),
        "mac": _agreed(interface.mac, end.mac, "mac", end),
    }
    if end.vlan is not None:
        said = interface.vlan if "vlan" in interface.model_fields_set else "auto"
        vlan = end.vlan or "untagged"
        values["vlan"] = _agreed(None if said == "auto" else said, vlan, "vlan", end)
    return interface.model_copy(update=values)


def _as_stamped(sliver: Any, stamp: SliverRef | None, other: str) -> Any:
    """Return a sliver with what its stamp took from another one, where it says nothing itself."""
    if isinstance(sliver, NodeSliver) and isinstance(stamp, NodeSliver):
        there = {(_part(stamp.components[p.number], p.index), p.end): p for p in _places(stamp)}
        for place in _places(sliver):
            component = sliver.components[place.number]
            was = there.get((_part(component, place.index), place.end))
            if place.end.id == other and was:
                made = _component_as(component, place, stamp.components[was.number], was)
                components = _with(sliver.components, place.number, made)
                sliver = sliver.model_copy(update={"components": components})
    elif isinstance(sliver, NetworkService) and isinstance(stamp, NetworkService):
        for number, interface in enumerate(sliver.interfaces):
            named = stamp.interface(interface.id)
            if interface.attach and interface.attach.sliver == other and named:
                made = _interface_as(interface, named)
                interfaces = _with(sliver.interfaces, number, made)
                sliver = sliver.model_copy(update={"interfaces": interfaces})
    return sliver


def _component_as(component: Any, place: _Place, stamped: Any, was: _Place) -> Any:
    if type(component) is not type(stamped):
        return component
    interface, former = _interface(component, place), _interface(stamped, was)
    fields = ("vlan", "ipv4", "ipv6", "port", "mtu", "routes")
    uplink = isinstance(component, SharedNic) and not component.bdf
    values = _open_in(component, stamped, ("uplink",)) if uplink else {}
    made = interface.model_copy(update=_open_in(interface, former, fields))
    return _with_interface(component, place, made, values)


def _interface_as(interface: ServiceInterface, former: ServiceInterface) -> ServiceInterface:
    if interface.attach != former.attach:
        return interface
    values = _open_in(interface, former, ("device", "port", "mac"))
    if interface.vlan == "auto" or "vlan" not in interface.model_fields_set:
        values["vlan"] = former.vlan
    return interface.model_copy(update=values)


def _open_in(value: object, former: object, fields: Iterable[str]) -> dict[str, Any]:
    """Return those of a former value's fields that the value has, and leaves open."""
    return {f: getattr(former, f) for f in fields if getattr(value, f, "no field") in {None, ()}}


def _is_placed(sliver: SliverRef) -> bool:
    """Return whether it is known where a service is connected; of others it always is."""
    return not isinstance(sliver, NetworkService) or all(i.device for i in sliver.interfaces)


def _agreed(given: T | None, found: T, field: str, end: object) -> T:
    """Return what the end has.

    :raises InvalidSliver: with the field, if something else is given.
    """
    if given not in {None, found}:
        says = "nothing" if found is None else found
        raise InvalidSliver(f"is {given}; the other end has {says}", field=field, why=str(end))
    return found


def _vlan(vlan: int) -> str:
    return f"VLAN {vlan}" if vlan else "no VLAN"


def _uplink(drivers: HostDrivers, address: PciAddress | None) -> str | None:
    """Return the uplink that a VF of a host belongs to."""
    return next((d.uplink for d in drivers.functions() if d.address == address), None)


def _mac(node: StitchedNode, component: PciComponent, address: PciAddress) -> str | None:
    plugged = node.drivers.device(component).plugged(tenant_of(node.drivers, node.server))
    return next((device.mac for device in plugged if device.host_address == address), None)


def _absent(what: str, field: str) -> InvalidSliver:
    return InvalidSliver(
        f"there is no {what}", field=field, remedy="create it first, or with the same command"
    )


def _with(values: tuple[T, ...], number: int, value: T) -> tuple[T, ...]:
    return (*values[:number], value, *values[number + 1 :])


def _validated(sliver: SliverRef) -> SliverRef:
    """Return the sliver, with all that it took.

    :raises InvalidSliver: if it cannot be so: two interfaces are one.
    """
    try:
        return type(sliver).model_validate(sliver.model_dump())
    except ValidationError as error:
        raise InvalidSliver(
            f"sliver {sliver.id} cannot be stitched so", why=error.errors()[0]["msg"]
        ) from error
