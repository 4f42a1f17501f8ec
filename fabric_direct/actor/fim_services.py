"""Translate FIM's network services to our model, as CF has decided them: nothing is left open here.

Of an interface the allocations count, and what they lack is read from its labels. Bandwidth comes as
Gbit/s, bursts in the unit of ``actor.burst_unit``.
"""

import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from ipaddress import ip_address, ip_network
from typing import Any, cast

from fabric_direct.actor.fim import named_interfaces
from fabric_direct.actor.fim_fields import (
    below,
    label,
    made,
    number,
    prefix_of,
    refuse_other_type,
    text,
)
from fabric_direct.actor.names import component_id, host_name
from fabric_direct.actor.sliver import (
    FimCapacities,
    FimLabels,
    FimNetworkService,
    FimServicePort,
    Unit,
)
from fabric_direct.errors import InvalidSliver
from fabric_direct.model.services import SERVICES, Ero, Gateway, Mirror, Peer, ServiceInterface
from fabric_direct.model.services import NetworkService as Wanted
from fabric_direct.site.config import Site
from fabric_direct.site.services import KBIT

_FIELDS = {
    "id": "reservation_id",
    "name": "labels.local_name",
    "interfaces": "interface_info.interfaces",
    "gateway": "gateway.lab",
    "asn": "labels.asn",
    "mirror": "mirror_port",
}
_PLACE = re.compile(r"(\w+)(?:\[(\d+)\])?(?:\.(\w+))?: (.+)", re.DOTALL)
_FAMILY = {"FABNetv4": "ipv4", "FABNetv6": "ipv6", "FABNetv4Ext": "ipv4", "FABNetv6Ext": "ipv6"}
_LIMITED = ("L2Bridge", "L2PTP", "L2STS")
"""The types whose interfaces have a bandwidth that is asked for; AL2S has one on all."""
_AL2S = "AL2S"
_CLOUDS = {"AWS": "AWS", "Google Cloud Platform": "GCP"}
_MIRRORED = dict.fromkeys(("mirror_port", "mirror_vlan", "mirror_direction"), ("PortMirror",))
_RESTRICTED: Mapping[str, Collection[str]] = _MIRRORED | {
    "ero": SERVICES.keys() - {"L2STS"},
    "controller_url": (),
}
"""Fields that FIM allows of some types alone (``ServiceConstraints`` of fabric_fim)."""
_DIRECTIONS = {"Both": "both", "RX_Only": "rx", "TX_Only": "tx"}


def service_of(sliver: object) -> FimNetworkService:
    """Return a unit's sliver as a network service.

    :raises InvalidSliver: if there is none, or it has a type that is not served.
    """
    refuse_other_type(sliver, SERVICES, "interface_info")
    service = cast(FimNetworkService, sliver)
    if (str(service.get_type()), service.technology) == ("L2PTP", _AL2S):
        raise InvalidSliver("circuits of AL2S are not served", field="technology")
    return service


def network_service(site: Site, unit: Unit, service: FimNetworkService) -> Wanted:
    """Return a unit's network service.

    :raises InvalidSliver: with FIM's field, if one is missing or invalid.
    """
    kind, ports = str(service.get_type()), ports_of(service)
    for field, kinds in _RESTRICTED.items():
        if kind not in kinds and getattr(service, field, None):
            raise InvalidSliver(f"cannot be given for a service of type {kind}", field=field)
    values = {
        "id": str(unit.get_reservation_id()),
        "name": service_name(service),
        "interfaces": tuple(_interface(site, service, *item) for item in ports.items()),
        **_OWN.get(kind, _nothing)(service),
    }
    try:
        return made(SERVICES[kind], _fields(kind), **values)
    except InvalidSliver as error:
        raise _located(error, service) from error


def ports_of(service: FimNetworkService) -> dict[str, FimServicePort]:
    """Return a service's interfaces by name."""
    return {name: cast(FimServicePort, port) for name, port in named_interfaces(service)}


def service_name(service: FimNetworkService) -> str:
    """Return the name of a service: the one that its labels give it, or else the sliver's own."""
    given = label(service.labels, "local_name") or text(service.get_name(), "resource_name")
    return host_name(text(given, "labels.local_name"))


def _fields(kind: str) -> dict[str, str]:
    """Return FIM's field for each of ours."""
    public = {"public": f"labels.{_FAMILY[kind]}"} if kind in _FAMILY else {}
    return _FIELDS | public


def _located(error: InvalidSliver, service: FimNetworkService) -> InvalidSliver:
    """Return the error with FIM's field, if its sentence begins with one of ours."""
    found = _PLACE.fullmatch(error.what)
    if error.field or not found:
        return error
    own, number, field, what = found.groups()
    if own != "interfaces":
        return InvalidSliver(what, field=_fields(str(service.get_type())).get(own, own))
    where = _port_field(list(ports_of(service))[int(number)])
    return InvalidSliver(what, field=_port_fields(service, where).get(field, where))


# --- interfaces


def _interface(site: Site, service: FimNetworkService, name: str, port: FimServicePort) -> Any:
    where = _port_field(name)
    return made(
        ServiceInterface,
        _port_fields(service, where),
        id=component_id(name),
        device=text(_decided(port, "device_name"), f"{where}.labels.device_name"),
        port=text(_decided(port, "local_name"), f"{where}.labels.local_name"),
        vlan=_vlan(port, f"{where}.labels.vlan"),
        inner_vlan=number(_decided(port, "inner_vlan")) or None,
        mac=_decided(port, "mac"),
        mtu=number(getattr(port.capacities, "mtu", 0)) or None,
        **_limits(site, service, port.capacities, f"{where}.capacities"),
        **_at_layer_3(service, port, where),
    )


def _port_field(name: str) -> str:
    return f"interface_info.interfaces[{name}]"


def _port_fields(service: FimNetworkService, where: str) -> dict[str, str]:
    """Return FIM's field for each of ours."""
    family = _FAMILY.get(str(service.get_type()), "ipv4_subnet")
    return below(f"{where}.labels", "vlan", "inner_vlan", "mac") | {
        "address": f"{where}.labels.{family}",
        "device": f"{where}.labels.device_name",
        "port": f"{where}.labels.local_name",
        "bandwidth": f"{where}.capacities.bw",
        "burst": f"{where}.capacities.burst_size",
        "mtu": f"{where}.capacities.mtu",
        "peer": f"{where}.peer_labels",
    }


def _decided(port: FimServicePort, name: str) -> object:
    """Return the allocation, or else the label."""
    return label(port.label_allocations, name) or label(port.labels, name)


def _vlan(port: FimServicePort, field: str) -> object:
    """Return the VLAN that CF has chosen; none, or 0, is no tag."""
    vlan = number(_decided(port, "vlan"))
    if isinstance(vlan, str):
        why = f"{vlan!r} leaves it open" if vlan == "auto" else f"it is {vlan!r}"
        raise InvalidSliver("must be the number of a VLAN, or none", field=field, why=why)
    return vlan or "untagged"


def _limits(
    site: Site, service: FimNetworkService, asked: FimCapacities | None, field: str
) -> dict[str, object]:
    """Return bandwidth and burst; a burst without a bandwidth means nothing."""
    limited = str(service.get_type()) in _LIMITED or service.technology == _AL2S
    if not (limited and asked and asked.bw):
        return {}
    bandwidth = _amount(asked.bw, f"{field}.bw")
    burst = _amount(asked.burst_size or 0, f"{field}.burst_size")
    return {"bandwidth": bandwidth * 1000, "burst": burst * KBIT[site.actor.burst_unit] or None}


def _amount(value: object, field: str) -> int:
    found = number(value)
    if not isinstance(found, int) or isinstance(found, bool):
        raise InvalidSliver("must be a whole number", field=field)
    return found


def _at_layer_3(service: FimNetworkService, port: FimServicePort, where: str) -> dict[str, object]:
    kind = str(service.get_type())
    if kind in _FAMILY:
        return _address(service, port, _FAMILY[kind], where)
    if kind != "L3VPN":
        return {}
    local = _subnet(partial(_decided, port), f"{where}.labels")
    if _has_peer(port.peer_labels):
        return {"peer": _peer(local, port.peer_labels, f"{where}.peer_labels")}
    field = {"address": f"{where}.labels.ipv4_subnet"}
    return {"gateway": made(Gateway, field, address=local)}


def _address(
    service: FimNetworkService, port: FimServicePort, family: str, where: str
) -> dict[str, object]:
    """Return the address that CF has chosen, with the prefix length of the service's subnet."""
    address = _decided(port, family)
    if not address:
        return {}
    subnet = _decided(port, f"{family}_subnet") or label(
        _gateway_labels(service), f"{family}_subnet"
    )
    return {"address": _in_subnet(address, subnet, family, f"{where}.labels")}


def _in_subnet(address: object, subnet: object, family: str, field: str) -> str:
    """Return an address with the prefix length of its subnet, or the usual one if there is none.

    :param field: below which both are.
    :raises InvalidSliver: if it is not in its subnet.
    """
    prefix = prefix_of(subnet, family, field)
    try:
        network = ip_network(str(subnet or f"{address}/{prefix}"), strict=False)
    except ValueError as error:
        wrong = f"{field}.{family}_subnet" if subnet else f"{field}.{family}"
        raise InvalidSliver("is wrong", field=wrong, why=str(error)) from error
    with suppress(ValueError):  # what is no address is refused as such
        if ip_address(str(address)) not in network:
            raise InvalidSliver(f"{address} is not in {network}", field=f"{field}.{family}")
    return f"{address}/{prefix}"


def _subnet(value: Callable[[str], object], field: str) -> str:
    """Return an address with its prefix length, of either version."""
    found = value("ipv4_subnet") or value("ipv6_subnet")
    return text(found, f"{field}.ipv4_subnet")


def _has_peer(labels: FimLabels | None) -> bool:
    names = ("asn", "ipv4_subnet", "ipv6_subnet", "bgp_key", "account_id")
    return any(label(labels, name) for name in names)


def _peer(local: str, labels: FimLabels | None, field: str) -> Peer:
    remote = _subnet(partial(label, labels), field)
    account = label(labels, "account_id")
    cloud = _CLOUDS.get(str(label(labels, "local_name")))
    if account and not cloud:
        known = ", ".join(_CLOUDS)
        raise InvalidSliver(
            "is not a cloud with accounts",
            field=f"{field}.local_name",
            why=f"known: {known}",
        )
    return made(
        Peer,
        {
            "local": field.replace("peer_labels", "labels.ipv4_subnet"),
            "address": f"{field}.ipv4_subnet",
            "key": f"{field}.bgp_key",
            "account": f"{field}.account_id",
            "asn": f"{field}.asn",
        },
        local=local,
        address=remote.partition("/")[0],
        asn=_asn(labels, f"{field}.asn"),
        key=label(labels, "bgp_key"),
        name=label(labels, "local_name"),
        cloud=cloud,
        account=account,
    )


def _asn(labels: FimLabels | None, field: str) -> object:
    return number(text(label(labels, "asn"), field))


# --- what only some types have


def _nothing(_: FimNetworkService) -> dict[str, object]:
    return {}


def _fabnet(family: str, service: FimNetworkService) -> dict[str, object]:
    labels, field = _gateway_labels(service), "gateway.lab"
    address = text(label(labels, family), f"{field}.{family}")
    subnet = text(label(labels, f"{family}_subnet"), f"{field}.{family}_subnet")
    values = {
        "address": _in_subnet(address, subnet, family, field),
        "mac": label(labels, "mac"),
    }
    fields = {"address": f"{field}.{family}", "mac": f"{field}.mac"}
    return {"gateway": made(Gateway, fields, **values)}


def _gateway_labels(service: FimNetworkService) -> FimLabels | None:
    return service.gateway.lab if service.gateway else None


def _external(family: str, service: FimNetworkService) -> dict[str, object]:
    """Return the gateway, and the addresses that are reachable from outside: none at first."""
    found = getattr(service.labels, family, None)
    public = tuple(found) if isinstance(found, list | tuple) else (found,) if found else ()
    return _fabnet(family, service) | {"public": public}


def _vpn(service: FimNetworkService) -> dict[str, object]:
    return {"asn": _asn(service.labels, "labels.asn")}


def _mirror(service: FimNetworkService) -> dict[str, object]:
    direction = str(service.mirror_direction)
    if direction not in _DIRECTIONS:
        known = ", ".join(_DIRECTIONS)
        raise InvalidSliver(f"must be one of {known}", field="mirror_direction")
    mirror = made(
        Mirror,
        {"port": "mirror_port", "vlan": "mirror_vlan"},
        port=text(service.mirror_port, "mirror_port"),
        vlan=number(service.mirror_vlan) or None,
        direction=_DIRECTIONS[direction],
    )
    return {"mirror": mirror}


def _circuit(service: FimNetworkService) -> dict[str, object]:
    """Return the route; links on it are for accounting, and no hops."""
    a2z, z2a = _route(service)
    hops = {"a2z": _hops(a2z), "z2a": _hops(z2a)}
    return {"ero": made(Ero, below("ero", *hops), **hops)} if any(hops.values()) else {}


def _route(service: FimNetworkService) -> tuple[Any, Any]:
    if service.ero is None:
        return (), ()
    kind, path = service.ero.get()
    if str(kind) != "Path" or path is None:
        raise InvalidSliver("must be a path", field="ero", why=f"it is of type {kind}")
    return cast("tuple[Any, Any]", path.get())


def _hops(hops: Any) -> tuple[Any, ...]:
    return tuple(hop for hop in hops or () if not str(hop).startswith("link:"))


_OWN: Mapping[str, Callable[[FimNetworkService], dict[str, object]]] = {
    "L2PTP": _circuit,
    "FABNetv4": partial(_fabnet, "ipv4"),
    "FABNetv6": partial(_fabnet, "ipv6"),
    "FABNetv4Ext": partial(_external, "ipv4"),
    "FABNetv6Ext": partial(_external, "ipv6"),
    "L3VPN": _vpn,
    "PortMirror": _mirror,
}
