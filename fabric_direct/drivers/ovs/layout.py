"""What a service is on one switch: bridges and ports, by names that follow from site and sliver.

Each physical port in use has a bridge of its own, in which it is a trunk, and each service one on each
of its devices. A patch pair joins both: an access port of the VLAN on the port's side. So a VLAN means
something on its port alone, and two ports of one service may have different ones.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from fabric_direct.config import Site
from fabric_direct.network_services import NetworkService, ServiceInterface

SITE, SLIVER, INTERFACE, STAMP = (
    f"fabric-direct-{what}" for what in ("site", "sliver", "interface", "stamp")
)
VNIS = 1 << 24
_BURST = 50
"""Default burst, in kbit for each Mbit/s: what passes in 50 ms."""


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


@dataclass(frozen=True, slots=True)
class Limit:
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
class Layout:
    """All of a service that is on one switch."""

    bridges: tuple[BridgeRow, ...] = ()
    ports: tuple[PortRow, ...] = ()
    limits: tuple[Limit, ...] = ()


def short(kind: str, *parts: str) -> str:
    """Return a name of at most 15 characters, which Linux allows, for what the parts name."""
    return f"fd{kind}-{sha256('/'.join(parts).encode()).hexdigest()[:11]}"


def port_bridge(site: Site, port: str) -> str:
    """Return the name of a physical port's bridge."""
    return short("p", site.site, port)


def service_bridge(site: Site, sliver_id: str) -> str:
    """Return the name of a service's bridge."""
    return short("s", site.site, sliver_id)


def first_vni(site: Site, sliver_id: str) -> int:
    """Return the VNI with which the search for a free one begins; 0 is none."""
    return int(sha256(f"{site.site}/{sliver_id}".encode()).hexdigest(), 16) % (VNIS - 1) + 1


def tunnel(vni: int) -> str:
    """Return the name of a VNI's port. Names are unique on a switch: no two services share a VNI."""
    return f"fdx-{vni}"


def layout(site: Site, sliver: NetworkService, device: str, vni: int) -> Layout:
    """Return all of a service that is on a device.

    :param vni: of its tunnels to its other devices, if it has any.
    """
    here = [interface for interface in sliver.interfaces if interface.device == device]
    return Layout(
        tuple(_bridges(site, sliver, here)),
        (*_ports(site, sliver, here), *_tunnels(site, sliver, device, vni)),
        tuple(_limits(site, sliver, here)),
    )


def _ids(site: Site, sliver: NetworkService, interface: str = "") -> dict[str, str]:
    ids = {SITE: site.site, SLIVER: sliver.id}
    return {**ids, INTERFACE: interface} if interface else ids


def _bridges(
    site: Site, sliver: NetworkService, here: list[ServiceInterface]
) -> Iterator[BridgeRow]:
    stamp = sliver.without_secrets().model_dump_json(exclude_defaults=True)
    kind = {STAMP: stamp, f"{STAMP}-type": str(getattr(sliver, "type", ""))}
    yield BridgeRow(service_bridge(site, sliver.id), {**_ids(site, sliver), **kind})
    for port in dict.fromkeys(str(interface.port) for interface in here):
        yield BridgeRow(port_bridge(site, port), {SITE: site.site})


def _ports(site: Site, sliver: NetworkService, here: list[ServiceInterface]) -> Iterator[PortRow]:
    for port in dict.fromkeys(str(interface.port) for interface in here):
        yield PortRow(port_bridge(site, port), port, {SITE: site.site})
    for interface in here:
        yield from _patch(site, sliver, interface)


def _patch(site: Site, sliver: NetworkService, interface: ServiceInterface) -> Iterator[PortRow]:
    outer, inner = _ends(site, sliver, interface)
    ids, of_port = _ids(site, sliver, interface.id), port_bridge(site, str(interface.port))
    yield PortRow(of_port, outer, ids, "patch", {"peer": inner}, interface.tag)
    of_service = service_bridge(site, sliver.id)
    yield PortRow(of_service, inner, ids, "patch", {"peer": outer})


def _ends(site: Site, sliver: NetworkService, interface: ServiceInterface) -> tuple[str, str]:
    """Return the names of a patch pair: they change with the port, which has another bridge."""
    parts = (site.site, sliver.id, interface.id, str(interface.port))
    return short("a", *parts), short("b", *parts)


def _tunnels(site: Site, sliver: NetworkService, device: str, vni: int) -> Iterator[PortRow]:
    for other in sliver.devices():
        if other != device:
            options = {"remote_ip": str(site.switches[other].tunnel), "key": str(vni)}
            bridge = service_bridge(site, sliver.id)
            yield PortRow(bridge, tunnel(vni), _ids(site, sliver), "vxlan", options)


def _limits(site: Site, sliver: NetworkService, here: list[ServiceInterface]) -> Iterator[Limit]:
    for interface in here:
        if interface.bandwidth is not None:
            outer, _ = _ends(site, sliver, interface)
            bridge, port = port_bridge(site, str(interface.port)), str(interface.port)
            burst = interface.burst or interface.bandwidth * _BURST
            yield Limit(bridge, port, outer, interface.tag, interface.bandwidth, burst)
