"""Slivers as NSO's service documents: modules, fields and values as fabric_am's NetHandler sends them.

================  =============  ======================================================================
type              module         what it has
================  =============  ======================================================================
``L2Bridge``      l2bridge       ``device``, ``interface[]``
``L2PTP``         l2ptp          ``stp-a``, ``stp-z``: ``device``, ``interface``; ``ero-a2z``,
                                 ``ero-z2a``
``L2STS``         l2sts          ``site-a``, ``site-z``: ``device``, ``interface[]``
``FABNet*``       l3rt           ``device``, ``interface[]``, ``gateway-ipv4`` or ``gateway-ipv6``,
                                 ``gateway-mac-address``; Ext: ``external-access``
``L3VPN``         l3vpn          ``site[]``: ``device``, ``direct`` or ``bgp[]``
``PortMirror``    port-mirror    ``direction``, ``device``, ``from-interface[]`` or
                                 ``from-interface-vlan[]``, ``to-interface``
================  =============  ======================================================================

What a document cannot say is refused, by its field.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from fabric_direct.drivers.contract.fields import refuse_given
from fabric_direct.drivers.contract.service_names import refuse_other_ids, service_name
from fabric_direct.drivers.contract.site_checks import refuse_missing_ports
from fabric_direct.errors import InvalidSite, InvalidSliver
from fabric_direct.model.services import (
    L2PTP,
    L2STS,
    L3VPN,
    FABNetv4Ext,
    FABNetv6Ext,
    Gateway,
    L2Bridge,
    NetworkService,
    Peer,
    PortMirror,
    ServiceInterface,
)
from fabric_direct.site.config import Site
from fabric_direct.site.services import KBIT, NsoSettings

Document = dict[str, Any]
MODULES = {
    "L2Bridge": "l2bridge",
    "L2PTP": "l2ptp",
    "L2STS": "l2sts",
    "FABNetv4": "l3rt",
    "FABNetv6": "l3rt",
    "FABNetv4Ext": "l3rt",
    "FABNetv6Ext": "l3rt",
    "L3VPN": "l3vpn",
    "PortMirror": "port-mirror",
}
"""The module, and the list in it, of each type."""
IDENTIFIERS = "idipa"
"""The module of what gives a service its identifiers and addresses."""
WITH_IDENTIFIERS = frozenset({"l2ptp", "l2sts", "l3rt", "l3vpn"})
_PORT = re.compile(r"(?P<type>[A-Za-z][A-Za-z-]*)(?P<id>\d[\d/.]*)|(?P<number>\d[\d/]*)")
_NO_LETTERS = "Generic"
_LIMITED = frozenset({"L2Bridge", "L2PTP", "L2STS"})
"""The types whose interfaces have a bandwidth."""
_DIRECTIONS = {"both": "both", "rx": "rx_only", "tx": "tx_only"}
_FIRST_PERMIT = 10


def refuse(site: Site, settings: NsoSettings, service: NetworkService) -> None:
    """Raise the error of the first field that NSO cannot serve.

    :raises InvalidSliver: with the field.
    :raises InvalidSite: if a service needs border routers and the site names none.
    """
    refuse_other_ids(service, "NSO")
    refuse_missing_ports(site, service)
    units = {"bandwidth": 1_000, "burst": KBIT[settings.burst_unit]}
    for number, interface in enumerate(service.interfaces):
        _refuse_interface(service, interface, f"interfaces[{number}]", units)
    if isinstance(service, FABNetv4Ext | FABNetv6Ext) and not settings.border_routers:
        field, why = "services.nso.border_routers", f"{service.type} needs them"
        raise InvalidSite("names none", field=field, why=why)
    if isinstance(service, L3VPN):
        _refuse_sites(service)
    if isinstance(service, PortMirror):
        _type_and_id(service.mirror.port, "mirror.port")


def _refuse_interface(
    service: NetworkService, interface: ServiceInterface, field: str, units: Mapping[str, int]
) -> None:
    _type_and_id(interface.port or "", f"{field}.port")
    refuse_given(interface, _unserved(service), f"{service.type} of NSO has none", field)
    for name, unit in units.items():
        value = getattr(interface, name)
        if value is not None and value % unit:
            why = f"NSO takes multiples of {unit} only"
            raise InvalidSliver(f"cannot be {value}", field=f"{field}.{name}", why=why)


def _unserved(service: NetworkService) -> Iterator[str]:
    """Yield the fields of interfaces that the type's document does not have."""
    yield "mtu"
    if service.type not in _LIMITED:
        yield "bandwidth"
    if isinstance(service, PortMirror):
        yield "inner_vlan"


def _type_and_id(port: str, field: str) -> Document:
    found = _PORT.fullmatch(port)
    if found is None:
        why = "NSO's are like HundredGigE0/0/0/5.100 or Bundle-Ether7, or digits and slashes alone"
        raise InvalidSliver(f"{port} is not a port of NSO", field=field, why=why)
    return {"type": found["type"] or _NO_LETTERS, "id": found["id"] or found["number"]}


def _refuse_sites(service: L3VPN) -> None:
    """Refuse what a site of an L3VPN, which is one device, cannot be."""
    if len(service.devices()) < 2:
        (device,) = service.devices()
        raise InvalidSliver(f"L3VPN needs two devices, not {device} alone", field="interfaces")
    first: dict[str | None, Gateway] = {}
    for number, interface in enumerate(service.interfaces):
        field, gateway = f"interfaces[{number}]", interface.gateway
        if interface.peer:
            refuse_given(interface.peer, ("cloud", "account"), "NSO has no clouds", f"{field}.peer")
        elif gateway:
            of_site = first.setdefault(interface.device, gateway)
            _refuse_gateway(gateway, of_site, f"{field}.gateway")


def _refuse_gateway(gateway: Gateway, first: Gateway, field: str) -> None:
    if gateway.mac is not None:
        raise InvalidSliver("L3VPN of NSO has none", field=f"{field}.mac")
    if gateway.address.version != first.address.version:
        why = "the gateway of a site has IPv4 or IPv6, not both"
        raise InvalidSliver("is of another version", field=f"{field}.address", why=why)
    if gateway.address != first.address:
        why = f"its device has {first.address}, and a site has one gateway"
        raise InvalidSliver("is another one", field=f"{field}.address", why=why)


class Documents:
    """Makes the documents of services that are not refused."""

    def __init__(self, settings: NsoSettings) -> None:
        self._settings = settings
        self._burst = KBIT[settings.burst_unit]

    def of(self, service: NetworkService, name: str = "") -> Document:
        """Return the document of a service.

        :param name: NSO's name of it, if it has one already.
        """
        make = next(make for kind, make in _MAKERS.items() if isinstance(service, kind))
        data: Document = make(self, service)
        return {"name": name or service_name(service)} | data

    def bridge(self, service: L2Bridge) -> Document:
        """Return the data of a segment on one device."""
        (device,) = service.devices()
        return {"device": device, "interface": self._limited(service.interfaces)}

    def circuit(self, service: L2PTP) -> Document:
        """Return the data of a circuit, without the hops that are links."""
        ends = {
            key: {"device": interface.device, "interface": self._limited([interface])[0]}
            for key, interface in zip(("stp-a", "stp-z"), service.interfaces, strict=True)
        }
        ero = service.ero
        routes = {"ero-a2z": _hops(ero.a2z), "ero-z2a": _hops(ero.z2a)} if ero else {}
        return ends | {key: {"hop": hops} for key, hops in routes.items() if hops}

    def two_sites(self, service: L2STS) -> Document:
        """Return the data of a segment on two devices."""
        sites = zip(("site-a", "site-z"), service.devices(), strict=True)
        return {
            key: {
                "device": device,
                "interface": self._limited([i for i in service.interfaces if i.device == device]),
            }
            for key, device in sites
        }

    def routed(self, service: Any) -> Document:
        """Return the data of a segment with a gateway."""
        (device,) = service.devices()
        data: Document = {"device": device, "interface": _plain(service.interfaces)}
        if not isinstance(service, FABNetv4Ext):
            data |= _gateway(service.gateway)
            if service.gateway.mac:
                data["gateway-mac-address"] = service.gateway.mac
        if isinstance(service, FABNetv4Ext | FABNetv6Ext):
            data["external-access"] = self._access(service)
        return data

    def _access(self, service: FABNetv4Ext | FABNetv6Ext) -> Document:
        access: Document = {
            "ip-type": f"v{service.version}",
            "border-router": [{"device": name} for name in self._settings.border_routers],
        }
        permitted = enumerate(service.public, _FIRST_PERMIT)
        if service.public:
            key = f"permit-ipv{service.version}"
            access[key] = [{"id": number, "address": str(a)} for number, a in permitted]
        return access

    def vpn(self, service: L3VPN) -> Document:
        """Return the data of a network of several sites; its own asn is in none of them."""
        return {"site": [_site(service, device) for device in service.devices()]}

    def mirror(self, service: PortMirror) -> Document:
        """Return the data of a mirror."""
        (receiver,), mirror = service.interfaces, service.mirror
        source = _type_and_id(mirror.port, "mirror.port")
        sources: Document = {"from-interface": [source]}
        if mirror.vlan:
            sources = {"from-interface-vlan": [source | {"outervlan": mirror.vlan}]}
        to = _interface(receiver)
        if not receiver.tag:
            del to["outervlan"]
        direction = _DIRECTIONS[mirror.direction]
        return {"direction": direction, "device": receiver.device, **sources, "to-interface": to}

    def _limited(self, interfaces: Any) -> list[Document]:
        """Return interfaces with their bandwidths."""
        return [_interface(each) | self._limits(each) for each in interfaces]

    def _limits(self, interface: ServiceInterface) -> Document:
        if interface.bandwidth is None:
            return {}
        limits = {"bandwidth": interface.bandwidth // 1_000}
        if interface.burst is not None:
            limits["burst-size"] = interface.burst // self._burst
        return limits


_MAKERS: dict[type[NetworkService], Any] = {
    L2Bridge: Documents.bridge,
    L2PTP: Documents.circuit,
    L2STS: Documents.two_sites,
    L3VPN: Documents.vpn,
    PortMirror: Documents.mirror,
    NetworkService: Documents.routed,
}


def _plain(interfaces: Any) -> list[Document]:
    """Return interfaces without bandwidths."""
    return [_interface(interface) for interface in interfaces]


def _interface(interface: ServiceInterface) -> Document:
    inner = {"innervlan": interface.inner_vlan} if interface.inner_vlan else {}
    return _type_and_id(interface.port or "", "port") | {"outervlan": interface.tag} | inner


def _hops(hops: tuple[str, ...]) -> list[Document]:
    addresses = [hop for hop in hops if not hop.startswith("link:")]
    return [{"index": str(number), "address": hop} for number, hop in enumerate(addresses, 1)]


def _prefix(address: Any) -> Document:
    return {"address": str(address.ip), "netmask": address.network.prefixlen}


def _gateway(gateway: Gateway) -> Document:
    return {f"gateway-ipv{gateway.address.version}": _prefix(gateway.address)}


def _site(service: L3VPN, device: str) -> Document:
    """Return the site that a device is: its interfaces with neighbors, and those behind its gateway."""
    interfaces = [i for i in service.interfaces if i.device == device]
    neighbors = [_neighbor(i, i.peer) for i in interfaces if i.peer]
    behind = [i for i in interfaces if i.gateway]
    site: Document = {"device": device}
    if behind:
        direct: Document = {"interface": _plain(behind)}
        for gateway in filter(None, (i.gateway for i in behind)):
            direct |= _gateway(gateway)
        site["direct"] = direct
    return site | ({"bgp": neighbors} if neighbors else {})


def _neighbor(interface: ServiceInterface, peer: Peer) -> Document:
    version, length = peer.local.version, peer.local.network.prefixlen
    return {
        "interface": _interface(interface),
        "remote-asn": peer.asn,
        f"local-ipv{version}": _prefix(peer.local),
        f"remote-ipv{version}": {"address": str(peer.address), "netmask": length},
    } | ({"auth-key": peer.key} if peer.key else {})


def devices_of(value: Any) -> Iterator[str]:
    """Yield the names of all devices in a document."""
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in entries:
        if key == "device":
            yield str(each)
        elif isinstance(each, dict | list):
            yield from devices_of(each)
