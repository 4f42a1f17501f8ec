"""NSO's service instances, as read: what they differ in, and what they say of a service."""

from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from fabric_direct.drivers.nso.documents import MODULES, Document
from fabric_direct.model import ObservedGateway, ObservedInterface
from fabric_direct.model.services import SERVICES, NetworkService

_OURS = frozenset(
    {
        *("device", "interface", "outervlan", "innervlan", "bandwidth", "burst-size", "type", "id"),
        *("stp-a", "stp-z", "site-a", "site-z", "ero-a2z", "ero-z2a", "hop", "index", "address"),
        *("gateway-ipv4", "gateway-ipv6", "gateway-mac-address", "netmask", "external-access"),
        *("ip-type", "border-router", "permit-ipv4", "permit-ipv6", "site", "direct", "bgp"),
        *("remote-asn", "local-ipv4", "local-ipv6", "remote-ipv4", "remote-ipv6", "auth-key"),
        *("direction", "from-interface", "from-interface-vlan", "to-interface", "name"),
    }
)
"""The fields that a document may have; others of an instance are NSO's, or the site's own."""
_KEYS = ("type", "id", "outervlan", "innervlan", "index", "device", "address")
_HOLDING_PORTS = (
    *("interface", "to-interface", "stp-a", "stp-z", "site-a", "site-z", "site", "direct", "bgp"),
)
_ENCRYPTED = "$"
_PLAIN = {m: kind for kind, m in MODULES.items() if m not in {"l3rt", "l3vpn"}}
"""The types of which each has a module of its own, and all of it in its document."""
_DIRECTIONS = {"rx_only": "rx", "tx_only": "tx", "both": "both"}


def differences(wanted: Any, found: Any, field: str = "") -> Iterator[str]:
    """Yield a sentence for each value in which an instance differs from its document."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        yield from _differing_fields(wanted, found, field)
    elif isinstance(wanted, list) and isinstance(found, list):
        yield from _differing_fields(_by_key(wanted), _by_key(found), field, every=True)
    elif field.endswith("auth-key"):
        if str(found) != wanted and not str(found).startswith(_ENCRYPTED):
            yield f"{field} is another one"
    elif str(wanted).lower() != str(found).lower():
        yield f"{field} is {found}, not {wanted}"


def _differing_fields(
    wanted: Document, found: Document, field: str, *, every: bool = False
) -> Iterator[str]:
    for key, value in wanted.items():
        name = f"{field} {key}".strip()
        if key in found:
            yield from differences(value, found[key], name)
        else:
            yield f"{name} is missing"
    surplus = (key for key in found if key not in wanted and (every or key in _OURS))
    yield from (
        f"{field} {key} is there and not asked for".strip() for key in surplus if _says(found, key)
    )


def _says(found: Document, key: str) -> bool:
    """Return whether a field says more than its absence does."""
    return found[key] not in (None, "", [], {}) and (key, str(found[key])) != ("outervlan", "0")


def _by_key(entries: list[Any]) -> Document:
    return {_key(entry): entry for entry in entries}


def _key(entry: Any) -> str:
    """Return what an entry of a list is known by."""
    if not isinstance(entry, dict):
        return str(entry)
    if isinstance(entry.get("interface"), dict) and "device" not in entry:
        return _key(entry["interface"])
    known = [str(entry[key]) for key in _KEYS if key in entry]
    return f"[{' '.join(known)}]"


def observed_interfaces(instance: Document) -> tuple[ObservedInterface, ...]:
    """Return the interfaces of an instance, numbered from 1: NSO does not know their ids."""
    return tuple(_observed(number, device, port) for number, (device, port) in _ports_of(instance))


def _ports_of(instance: Document) -> Iterator[tuple[int, tuple[str, Document]]]:
    return enumerate(_ports(instance, ""), 1)


def _ports(value: Any, device: str) -> Iterator[tuple[str, Document]]:
    if isinstance(value, list):
        for each in value:
            yield from _ports(each, device)
        return
    device = str(value.get("device", device))
    if "type" in value and "id" in value:
        yield device, value
    for key in _HOLDING_PORTS:
        if key in value:
            yield from _ports(value[key], device)


def _port_name(port: Document) -> str:
    kind = str(port["type"])
    return f"{'' if kind == 'Generic' else kind}{port['id']}"


def _observed(number: int, device: str, port: Document) -> ObservedInterface:
    return ObservedInterface(
        component=str(number),
        device=device,
        port=_port_name(port),
        vlan=int(port.get("outervlan", 0)) or None,
        inner_vlan=_number(port, "innervlan"),
        bandwidth=_number(port, "bandwidth", 1_000),
    )


def _number(values: Document, key: str, unit: int = 1) -> int | None:
    return int(values[key]) * unit if key in values else None


def observed_gateway(instance: Document) -> ObservedGateway | None:
    """Return the gateway of an instance; None if it has none, or one for each site."""
    address = _gateway_address(instance)
    mac = instance.get("gateway-mac-address")
    return ObservedGateway(address=address, mac=mac) if address else None


def _gateway_address(values: Document) -> str | None:
    found = (values[key] for key in ("gateway-ipv4", "gateway-ipv6") if key in values)
    return next((_address(each) for each in found), None)


def _address(values: Document) -> str:
    return f"{values['address']}/{values['netmask']}"


def as_sliver(module: str, instance: Document, sliver: str, burst: int) -> NetworkService | None:
    """Return the sliver that makes the same document; None if none does.

    Of an L3VPN its document does not say the autonomous system.

    :param burst: kbit of one ``burst-size``.
    """
    kind = _kind(module, instance)
    if kind is None:
        return None
    interfaces = [_interface(n, device, port, burst) for n, (device, port) in _ports_of(instance)]
    name = str(instance["name"])[:-37]
    values = {"id": sliver, "name": name, "interfaces": interfaces} | _rest(module, instance)
    try:
        return SERVICES[kind].model_validate(values)
    except ValidationError:
        return None


def _kind(module: str, instance: Document) -> str | None:
    if module == "l3rt":
        access = instance.get("external-access")
        version = str(access["ip-type"]) if access else "v6" if "gateway-ipv6" in instance else "v4"
        return f"FABNet{version}{'Ext' if access else ''}"
    return _PLAIN.get(module)


def _interface(number: int, device: str, port: Document, burst: int) -> Document:
    seen = _observed(number, device, port)
    values = seen.model_dump(include={"device", "port", "inner_vlan", "bandwidth"})
    excess = _number(port, "burst-size", burst)
    return values | {"id": str(number), "vlan": seen.vlan or "untagged", "burst": excess}


def _rest(module: str, instance: Document) -> Document:
    """Return the fields of a sliver beside its interfaces."""
    if module == "l3rt":
        return _routing(instance)
    if module == "l2ptp" and "ero-a2z" in instance:
        return {"ero": {key: _hops(instance[f"ero-{key}"]) for key in ("a2z", "z2a")}}
    if module == "port-mirror":
        return {"mirror": _mirror(instance)}
    return {}


def _routing(instance: Document) -> Document:
    address, access = _gateway_address(instance), instance.get("external-access", {})
    mac = instance.get("gateway-mac-address")
    gateway = {"gateway": {"address": address, "mac": mac}} if address else {}
    permits = access.get("permit-ipv4", access.get("permit-ipv6", []))
    public = {"public": [each["address"] for each in permits]} if access else {}
    return gateway | public


def _hops(route: Document) -> list[str]:
    return [hop["address"] for hop in sorted(route["hop"], key=lambda hop: int(hop["index"]))]


def _mirror(instance: Document) -> Document:
    sources = instance.get("from-interface-vlan") or instance["from-interface"]
    (source,) = sources
    vlan = _number(source, "outervlan")
    return {
        "port": _port_name(source),
        "vlan": vlan,
        "direction": _DIRECTIONS[instance["direction"]],
    }
