"""Layout of a service on one switch: links, with names derived from site and sliver.

Each port in use has its own bridge, and each service has one on each of its devices. A veth pair joins
the two bridges: on the port's side it is an access port of the VLAN. A VLAN is therefore local to its
port, and two ports of one service may have different VLANs. Both bridges filter VLANs, and are members
of none themselves: no frame reaches the host.

The gateway of a service is the second end of another pair, whose first end is in the service's bridge.
Both ends are made together, and the second one is moved into the service's namespace.
"""

import json
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv6Address
from typing import Any

from pyroute2.netlink.rtnl.tcmsg.common import calc_xmittime, tick_in_usec

from fabric_direct.drivers.contract.link_names import port_bridge, service_bridge, short
from fabric_direct.drivers.gateways.gateway import FABNETS, gateway_port
from fabric_direct.model.services import SERVICES, NetworkService, PortMirror, ServiceInterface
from fabric_direct.site.config import Site

UNTAGGED = 4094
"""The VLAN of frames without a tag in the bridge of a port."""
TAGGED, ACCESS = 0, 6  # linux/if_bridge.h: BRIDGE_VLAN_INFO_PVID and _UNTAGGED make an access port
_SEGMENT = 1
"""The VLAN of all ports of a service's bridge."""
OURS, _PORT = "fabric-direct", "fabric-direct-port"
_GATEWAY, _ROUTED = "gateway", {"gateway", "public"}
"""What the stamp of a gateway's pair begins with; the fields that it says."""
_BURST = 50
"""Default burst, in kbit for each Mbit/s: what passes in 50 ms."""


@dataclass(frozen=True, slots=True)
class HtbClass:
    """A class of HTB as the kernel has it."""

    rate: int
    """Bytes per second."""
    buffer: int
    """The burst, as the time that it takes: ticks of 64 ns."""

    @classmethod
    def of(cls, bandwidth: int, burst: int) -> "HtbClass":
        """Return the limit of Mbit/s with a burst of kbit."""
        rate = bandwidth * 125_000
        return cls(rate, calc_xmittime(rate, burst * 125))

    @property
    def burst(self) -> float:
        """Bytes, in the midst of those that take this time: pyroute2 counts whole microseconds."""
        return (self.buffer / float(tick_in_usec) + 0.5) * self.rate / 1e6

    @property
    def bandwidth(self) -> int:
        """Mbit/s."""
        return self.rate // 125_000


@dataclass(frozen=True, slots=True)
class Tunnel:
    """The far end of a VXLAN."""

    vni: int
    local: IPv4Address | IPv6Address
    remote: IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class BridgeLink:
    """A link as it should be, or is."""

    name: str
    kind: str
    """``bridge``, ``veth``, ``vxlan``; something else for a port of the switch."""
    alias: str = ""
    bridge: str | None = ""
    """Of which it is a port; None if that does not matter."""
    vlans: Mapping[int, int] = field(default_factory=dict)
    """With flags."""
    filters: bool = False
    """Of a bridge: whether it filters VLANs."""
    tunnel: Tunnel | None = None
    peer: str = ""
    """The other end of a pair, which goes elsewhere."""
    shaped: bool = False
    """Whether what it sends goes through HTB, which a limit can be added to without losing a frame."""
    limit: HtbClass | None = None
    mirrors: frozenset[tuple[str, str]] = frozenset()
    """Of which frames (``rx``, ``tx``) another link sends a copy, and which link that is."""
    hooked: bool = False
    """Whether it has what filters are attached to."""
    up: bool = True
    index: int = field(default=0, compare=False)
    """Of one that is there."""


@dataclass(frozen=True, slots=True)
class BridgeLayout:
    """All of a service that is on one switch: what others are ports of, and pairs' first ends, first."""

    links: tuple[BridgeLink, ...] = ()
    stamps: Mapping[str, str] = field(default_factory=dict)
    """The aliases that links get when all is done, the service's bridge last."""


def owner(site: Site, sliver_id: str) -> str:
    """Return what the aliases of a service's links begin with."""
    return f"{OURS} {site.site} {sliver_id}"


def port_owner(site: Site, port: str) -> str:
    """Return the alias of a port's bridge."""
    return f"{_PORT} {site.site} {port}"


def belongs(link: BridgeLink, alias: str) -> bool:
    """Return whether a link's alias is this one, or begins with it; none is asked of a port."""
    return not alias or f"{link.alias} ".startswith(f"{alias} ")


def ports_of(bridge: str | None, links: Iterable[BridgeLink]) -> list[BridgeLink]:
    """Return the ports of the switch that are in a bridge of ours: all that has no stamp."""
    inside = (link for link in links if bridge and link.bridge == bridge)
    return [link for link in inside if not link.alias.startswith(f"{OURS} ")]


def newborn(site: Site, sliver_id: str) -> tuple[str, str]:
    """Return the names that links of a service have until they have an alias."""
    return short("n", site.site, sliver_id), short("m", site.site, sliver_id)


def unstamped(site: Site, sliver_id: str) -> set[str]:
    """Return the names of links of a service that may be there without an alias."""
    gateways = {gateway_port(site, sliver_id, device) for device in site.switches}
    return {service_bridge(site, sliver_id), *newborn(site, sliver_id), *gateways}


def layout(site: Site, sliver: NetworkService, device: str, vni: int) -> BridgeLayout:
    """Return all of a service that is on a device.

    :param vni: of its tunnel to its other device, if it has one.
    """
    if isinstance(sliver, PortMirror):
        return _mirror(site, sliver, device)
    here = [(n, i) for n, i in enumerate(sliver.interfaces) if i.device == device]
    bridge = _bridge(site, sliver)
    ports = dict.fromkeys(str(interface.port) for _, interface in here)
    links = (
        bridge,
        *(link for port in ports for link in _port(site, port, [i for _, i in here])),
        *(link for n, interface in here for link in _pair(site, sliver, n, interface)),
        *_tunnels(site, sliver, device, vni),
        *_gateway(site, sliver, device),
    )
    rest = _document(sliver, {"id", "type", "interfaces", *_ROUTED})
    return BridgeLayout(links, {**_routed(site, sliver), bridge.name: f"{bridge.alias} {rest}"})


def _bridge(site: Site, sliver: NetworkService) -> BridgeLink:
    alias = f"{owner(site, sliver.id)} {getattr(sliver, 'type', '')}"
    return BridgeLink(service_bridge(site, sliver.id), "bridge", alias, filters=True)


def _mirror(site: Site, sliver: PortMirror, device: str) -> BridgeLayout:
    """Return all of a mirror: its receiver is alone in a bridge, which lets nothing in from there."""
    (receiver,) = sliver.interfaces
    if receiver.device != device:
        return BridgeLayout()
    bridge, wanted = _bridge(site, sliver), sliver.mirror
    ways = ("rx", "tx") if wanted.direction == "both" else (wanted.direction,)
    copies = frozenset((way, str(receiver.port)) for way in ways)
    port = BridgeLink(str(receiver.port), "", bridge=bridge.name)
    links = (bridge, port, BridgeLink(wanted.port, "", bridge=None, mirrors=copies))
    return BridgeLayout(links, {bridge.name: f"{bridge.alias} {_document(sliver, {'id', 'type'})}"})


def _document(model: Any, without: set[str]) -> str:
    text: str = model.model_dump_json(exclude_defaults=True, exclude=without)
    return text


def _port(site: Site, port: str, here: list[ServiceInterface]) -> Iterator[BridgeLink]:
    bridge = port_bridge(site, port)
    yield BridgeLink(bridge, "bridge", port_owner(site, port), filters=True)
    vlans = dict(_on_port(vid(i)) for i in here if i.port == port)
    yield BridgeLink(port, "", bridge=bridge, vlans=vlans)


def vid(interface: ServiceInterface) -> int:
    """Return the VLAN of an interface in the bridge of its port."""
    return interface.tag or UNTAGGED


def _on_port(number: int) -> tuple[int, int]:
    return number, ACCESS if number == UNTAGGED else TAGGED


def port_vlans(pairs: list[BridgeLink]) -> dict[int, int]:
    """Return all VLANs of a port, by the ends that are in its bridge."""
    return dict(_on_port(number) for link in pairs for number in link.vlans)


def _pair(
    site: Site, sliver: NetworkService, number: int, interface: ServiceInterface
) -> Iterator[BridgeLink]:
    alias, limit = owner(site, sliver.id), _limit(interface)
    outer, inner = ends(site, sliver.id, interface.id)
    first = BridgeLink(outer, "veth", f"{alias} {interface.id}", shaped=True, limit=limit)
    bridge = port_bridge(site, str(interface.port))
    yield replace(first, bridge=bridge, vlans={vid(interface): ACCESS})
    stamp = f"{alias} {number}/{len(sliver.interfaces)} {_document(interface, set())}"
    yield replace(
        first,
        name=inner,
        alias=stamp,
        bridge=service_bridge(site, sliver.id),
        vlans={_SEGMENT: ACCESS},
    )


def ends(site: Site, sliver_id: str, interface: str) -> tuple[str, str]:
    """Return the names of an interface's pair: at the port's bridge, and at the service's."""
    return short("a", site.site, sliver_id, interface), short("b", site.site, sliver_id, interface)


def burst(interface: ServiceInterface) -> int:
    """Return the burst of an interface with a bandwidth, in kbit."""
    return interface.burst or max(16, (interface.bandwidth or 0) * _BURST)


def _limit(interface: ServiceInterface) -> HtbClass | None:
    if interface.bandwidth is None:
        return None
    return HtbClass.of(interface.bandwidth, burst(interface))


def _tunnels(site: Site, sliver: NetworkService, device: str, vni: int) -> Iterator[BridgeLink]:
    here = site.switches[device].tunnel
    for other in sliver.devices():
        there = site.switches[other].tunnel
        if other != device and here and there:
            name, alias = short("x", site.site, sliver.id), f"{owner(site, sliver.id)} vxlan"
            bridge, vlans = service_bridge(site, sliver.id), {_SEGMENT: ACCESS}
            far = Tunnel(vni, here, there)
            yield BridgeLink(name, "vxlan", alias, bridge=bridge, vlans=vlans, tunnel=far)


def gateway_end(site: Site, sliver_id: str) -> str:
    """Return the name of the end of a gateway's pair that is in the service's bridge."""
    return short("h", site.site, sliver_id)


def _gateway(site: Site, sliver: NetworkService, device: str) -> Iterator[BridgeLink]:
    if isinstance(sliver, FABNETS):
        name, alias = gateway_end(site, sliver.id), f"{owner(site, sliver.id)} {_GATEWAY}"
        bridge, peer = service_bridge(site, sliver.id), gateway_port(site, sliver.id, device)
        yield BridgeLink(name, "veth", alias, bridge=bridge, vlans={_SEGMENT: ACCESS}, peer=peer)


def _routed(site: Site, sliver: NetworkService) -> dict[str, str]:
    """Return the stamp of what is routed, which is apart: public addresses take room."""
    if not isinstance(sliver, FABNETS):
        return {}
    text = sliver.model_dump_json(exclude_defaults=True, include=_ROUTED)
    return {gateway_end(site, sliver.id): f"{owner(site, sliver.id)} {_GATEWAY} {text}"}


def stamped(bridges: set[str], interfaces: list[str]) -> NetworkService | None:
    """Return the service that the aliases of its links describe; None if they do not say all of it.

    :param bridges: the aliases of its bridges, which are the same on all devices when all is done.
    :param interfaces: those of the ends at its bridges: of interfaces, and of a gateway.
    """
    heads = [alias.split(" ", 4)[2:] for alias in bridges]
    said = [alias.split(" ", 4)[3:] for alias in interfaces]
    routed = [part for part in said if part[:1] == [_GATEWAY]]
    parts = sorted((part for part in said if part[:1] != [_GATEWAY]), key=_number)
    whole = [f"{number}/{len(parts)}" for number in range(len(parts))]
    if len(heads) != 1 or len(heads[0]) < 3 or [part[0] for part in parts] != whole:
        return None
    return _described(heads[0], [part[1] for part in parts], [part[1] for part in routed])


def _described(head: list[str], interfaces: list[str], routed: list[str]) -> NetworkService | None:
    sliver, kind, rest = head
    try:
        if issubclass(SERVICES[kind], FABNETS) != len(routed):
            return None
        more = ChainMap(*map(json.loads, (rest, *routed)))
        ends_ = [*map(json.loads, interfaces)]
        document = {"id": sliver, "type": kind, "interfaces": ends_, **more}
        return SERVICES[kind].model_validate_json(json.dumps(document))
    except (LookupError, ValueError):
        return None


def _number(part: list[str]) -> int:
    number = part[0].partition("/")[0] if part else ""
    return int(number) if number.isdecimal() else -1
