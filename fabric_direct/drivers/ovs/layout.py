"""Layout of a service on one switch: bridges and ports, with names derived from site and sliver.

Each physical port in use has its own bridge, in which it is a trunk, and each service has one on each of
its devices. A patch pair joins the two bridges: on the port's side it is an access port of the VLAN. A
VLAN is therefore local to its port, and two ports of one service may have different VLANs.

A second tag (Q-in-Q) needs a bridge in between: the port's side removes the outer tag (``dot1q-tunnel``
of one inner VLAN), the service's side removes the inner tag.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from fabric_direct.drivers.contract.link_names import port_bridge, service_bridge, short
from fabric_direct.drivers.gateways.gateway import ROUTED, TRANSIT, gateway_port, segment
from fabric_direct.model.services import NetworkService, ServiceInterface
from fabric_direct.site.config import Site

SITE, SLIVER, INTERFACE, STAMP, MADE = (
    f"fabric-direct-{what}" for what in ("site", "sliver", "interface", "stamp", "made")
)
PHYSICAL = 65_000
"""The OpenFlow number that a physical port is to have: a tap is not there when its limit is made."""
_BURST = 200
"""Default burst, in kbit for each Mbit/s: what passes in 200 ms. With 50 ms one TCP connection gets a
quarter of its rate."""


@dataclass(frozen=True, slots=True)
class BridgeRow:
    """A bridge with its stamp."""

    name: str
    ids: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PortRow:
    """A port with its one interface."""

    bridge: str
    name: str
    ids: Mapping[str, str]
    kind: str = ""
    """The interface's type: empty for one of the system."""
    options: Mapping[str, str] = field(default_factory=dict)
    tag: int | None = None
    """Of an access port; 0 for frames without a VLAN. A trunk of all VLANs if absent."""
    inner: int | None = None
    """The inner VLAN of the frames whose outer tag it takes off (``dot1q-tunnel``)."""


@dataclass(frozen=True, slots=True)
class InterfaceLimit:
    """The bandwidth of an interface, in each direction."""

    bridge: str
    port: str
    patch: str
    tag: int
    rate: int
    """Mbit/s."""
    burst: int
    """kbit."""


@dataclass(frozen=True, slots=True)
class MirrorRow:
    """A mirror in a port's bridge, by the names of ports."""

    bridge: str
    name: str
    ids: Mapping[str, str]
    received: str
    """The port whose received frames are copied; empty if none."""
    sent: str
    """The port whose sent frames are copied; empty if none."""
    vlan: int | None
    """All VLANs if absent."""
    output: str
    """Where the copies go."""


@dataclass(frozen=True, slots=True)
class OvsLayout:
    """All of a service that is on one switch."""

    bridges: tuple[BridgeRow, ...] = ()
    ports: tuple[PortRow, ...] = ()
    limits: tuple[InterfaceLimit, ...] = ()
    mirrors: tuple[MirrorRow, ...] = ()


def segment_bridge(site: Site, sliver_id: str, key: str) -> str:
    """Return the name of a segment's bridge; the only one of a service has the service's."""
    return short("t", site.site, sliver_id, key) if key else service_bridge(site, sliver_id)


def tunnel(vni: int) -> str:
    """Return the name of a VNI's port. Names are unique on a switch: no two services share a VNI."""
    return f"fdx-{vni}"


def layout(site: Site, sliver: NetworkService, device: str, vni: int) -> OvsLayout:
    """Return all of a service that is on a device.

    :param vni: of its tunnels to its other devices, if it has any.
    """
    here = [interface for interface in sliver.interfaces if interface.device == device]
    return OvsLayout(
        tuple(_bridges(site, sliver, here)),
        (*_ports(site, sliver, here), *_tunnels(site, sliver, device, vni)),
        tuple(_limits(site, sliver, here)),
    )


def begun(wanted: OvsLayout) -> OvsLayout:
    """Return a layout without the mark that all is made which the rows do not say: limits, gateways."""
    ids = ({k: v for k, v in row.ids.items() if k != MADE} for row in wanted.bridges)
    bridges = (replace(row, ids=kept) for row, kept in zip(wanted.bridges, ids, strict=True))
    return replace(wanted, bridges=tuple(bridges))


def without(wanted: OvsLayout, ports: Collection[str]) -> OvsLayout:
    """Return a layout without ports of these names."""
    return replace(wanted, ports=tuple(row for row in wanted.ports if row.name not in ports))


def made(found: OvsLayout) -> bool:
    """Return whether what was found carries the mark."""
    return any(MADE in row.ids for row in found.bridges)


def _ids(site: Site, sliver: NetworkService, interface: str = "") -> dict[str, str]:
    ids = {SITE: site.site, SLIVER: sliver.id}
    return {**ids, INTERFACE: interface} if interface else ids


def service_bridge_row(site: Site, sliver: NetworkService) -> BridgeRow:
    """Return a service's bridge, which carries its stamp."""
    stamp = sliver.without_secrets().model_dump_json(exclude_defaults=True)
    kind = {STAMP: stamp, f"{STAMP}-type": sliver.type}
    limited = any(interface.bandwidth for interface in sliver.interfaces)
    if limited or isinstance(sliver, ROUTED):
        kind[MADE] = "yes"
    return BridgeRow(service_bridge(site, sliver.id), {**_ids(site, sliver), **kind})


def _bridges(
    site: Site, sliver: NetworkService, here: list[ServiceInterface]
) -> Iterator[BridgeRow]:
    yield service_bridge_row(site, sliver)
    for key in dict.fromkeys(filter(None, map(segment, here))):
        yield BridgeRow(segment_bridge(site, sliver.id, key), _ids(site, sliver))
    for port in dict.fromkeys(str(interface.port) for interface in here):
        yield BridgeRow(port_bridge(site, port), {SITE: site.site})
    for interface in here:
        if interface.inner_vlan:
            yield BridgeRow(_middle(site, sliver, interface).bridge, _ids(site, sliver))


def _ports(site: Site, sliver: NetworkService, here: list[ServiceInterface]) -> Iterator[PortRow]:
    for port in dict.fromkeys(str(interface.port) for interface in here):
        yield PortRow(port_bridge(site, port), port, {SITE: site.site})
    for interface in here:
        yield from _patch(site, sliver, interface)
    for key in _keys(sliver, here):
        port = gateway_port(site, sliver.id, str(here[0].device), key)
        bridge = segment_bridge(site, sliver.id, "" if key == TRANSIT else key)
        yield PortRow(bridge, port, _ids(site, sliver), "internal")


def _keys(sliver: NetworkService, here: list[ServiceInterface]) -> list[str]:
    """Return the segments in which a service has an address of its own."""
    if not here or not isinstance(sliver, ROUTED):
        return []
    transit = [TRANSIT] if len(sliver.devices()) > 1 else []
    return [*transit, *dict.fromkeys(map(segment, here))]


def _patch(site: Site, sliver: NetworkService, interface: ServiceInterface) -> Iterator[PortRow]:
    outer, inner = _ends(site, sliver, interface)
    ids, of_port = _ids(site, sliver, interface.id), port_bridge(site, str(interface.port))
    second = interface.inner_vlan
    of_service = segment_bridge(site, sliver.id, segment(interface))
    before, after = outer, inner
    if second:
        middle, own = _middle(site, sliver, interface), _ids(site, sliver)
        before, after = middle.to_service, middle.to_port
        yield PortRow(middle.bridge, after, own, "patch", {"peer": outer})
        yield PortRow(middle.bridge, before, own, "patch", {"peer": inner}, second)
    yield PortRow(of_port, outer, ids, "patch", {"peer": after}, interface.tag, second)
    yield PortRow(of_service, inner, ids, "patch", {"peer": before})


def to_service(ports: Mapping[str, PortRow], to_port: str) -> PortRow | None:
    """Return the port to the service, beside the one to the port, of the bridge of two tags."""
    bridge = ports[to_port].bridge if to_port in ports else None
    there = (p for p in ports.values() if p.bridge == bridge and p.tag is not None)
    return next(there, None)


@dataclass(frozen=True, slots=True)
class _Middle:
    """The names of the bridge of an interface with two tags, and of its ports."""

    bridge: str
    to_port: str
    to_service: str


def _middle(site: Site, sliver: NetworkService, interface: ServiceInterface) -> _Middle:
    parts = (site.site, sliver.id, interface.id, str(interface.port))
    return _Middle(*(short(kind, *parts) for kind in "qcd"))


def _ends(site: Site, sliver: NetworkService, interface: ServiceInterface) -> tuple[str, str]:
    """Return the names of a patch pair: they change with its bridges."""
    parts = (site.site, sliver.id, interface.id, str(interface.port), segment(interface))
    return short("a", *filter(None, parts)), short("b", *filter(None, parts))


def _tunnels(site: Site, sliver: NetworkService, device: str, vni: int) -> Iterator[PortRow]:
    for other in sliver.devices():
        if other != device:
            options = {"remote_ip": str(site.switches[other].tunnel), "key": str(vni)}
            bridge = service_bridge(site, sliver.id)
            yield PortRow(bridge, tunnel(vni), _ids(site, sliver), "vxlan", options)


def _limits(
    site: Site, sliver: NetworkService, here: list[ServiceInterface]
) -> Iterator[InterfaceLimit]:
    for interface in here:
        if interface.bandwidth is not None:
            bridge, port, patch = _limited(site, sliver, interface)
            tag = interface.inner_vlan or interface.tag
            burst = interface.burst or interface.bandwidth * _BURST
            yield InterfaceLimit(bridge, port, patch, tag, interface.bandwidth, burst)


def _limited(
    site: Site, sliver: NetworkService, interface: ServiceInterface
) -> tuple[str, str, str]:
    """Return the bridge of an interface's limit, and its ports to the outside and to the service."""
    if interface.inner_vlan:
        middle = _middle(site, sliver, interface)
        return middle.bridge, middle.to_port, middle.to_service
    port = str(interface.port)
    return port_bridge(site, port), port, _ends(site, sliver, interface)[0]
