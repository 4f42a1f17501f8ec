"""What there is in the fake cloud, thing by thing, but for what an equal request gets anew."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from tests.trust.http_cloud import StatefulCloud, Thing, _one

Found = tuple[str, str]
"""What it is, and its name; a second one of the same name is ``twice``."""
Things = Mapping[Found, object]
_KEPT = {
    "networks": ("description", "provider:physical_network", "provider:segmentation_id"),
    "subnets": ("description", "gateway_ip", "dns_nameservers", "allocation_pools", "enable_dhcp"),
    "volumes": ("size", "status", "metadata"),
    "ports": ("description", "port_security_enabled", "security_groups", "status"),
    "floatingips": ("description", "floating_network_id"),
    "routers": ("description",),
    "policies": ("description",),
    "servers": ("metadata", "tags", "status", "flavor", "OS-EXT-STS:task_state"),
}


def things_of(cloud: StatefulCloud) -> Things:
    """Return what there is beside flavors, which are everybody's."""
    seen: Counter[Found] = Counter()
    found: dict[Found, object] = {}
    for kind, name, value in _all(cloud):
        seen[kind, name] += 1
        found[kind, name + " twice" * (seen[kind, name] - 1)] = value
    return found


def _all(cloud: StatefulCloud) -> Iterator[tuple[str, str, object]]:
    for kind, keys in _KEPT.items():
        for thing in cloud.things[kind].values():
            if not str(thing.get("device_owner", "")).startswith("network:"):
                kept = [thing.get(key) for key in keys]
                rates = sorted(
                    (rule["direction"], rule["max_kbps"]) for rule in thing.get("rules", ())
                )
                value = json.dumps([kept, _related(cloud, kind, thing), rates])
                yield _one(kind), _name(cloud, thing), value


def _name(cloud: StatefulCloud, thing: Thing) -> str:
    if "cidr" in thing:
        return f"{_named(cloud, thing['network_id'])} {thing['cidr']}"
    if "floating_network_id" in thing:
        port = _named(cloud, thing["port_id"])
        return f"of {port}" if thing["port_id"] else str(thing["floating_ip_address"])
    return str(thing["name"])


def _named(cloud: StatefulCloud, name: str | None) -> str:
    every = (things[name] for things in cloud.things.values() if name in things)
    return str(next((thing["name"] for thing in every), "nothing"))


def _related(cloud: StatefulCloud, kind: str, thing: Thing) -> Any:
    """Return the names of what it is connected to."""
    if kind == "ports":
        addresses = len(thing["fixed_ips"])
        places = ("network_id", "device_id", "qos_policy_id")
        return [_named(cloud, thing.get(place)) for place in places], addresses
    if kind == "floatingips":
        return _named(cloud, thing["port_id"])
    if kind == "servers":
        return sorted(_named(cloud, v["id"]) for v in thing["os-extended-volumes:volumes_attached"])
    if kind == "volumes":
        return [_named(cloud, attachment["server_id"]) for attachment in thing["attachments"]]
    if kind == "routers":
        ports = [p for p in cloud.things["ports"].values() if p["device_id"] == thing["id"]]
        return sorted(ip["ip_address"] for port in ports for ip in port["fixed_ips"])
    return None


def differing(one: Things, other: Things) -> set[Found]:
    """Return what is not the same in both."""
    absent = object()
    every = one.keys() | other.keys()
    return {thing for thing in every if one.get(thing, absent) != other.get(thing, absent)}
