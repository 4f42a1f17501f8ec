"""Filter packets between a service and the outside: nftables in its namespace, as JSON.

All rules of the namespace are replaced in one transaction. The namespace's own packets are not filtered.
"""

import json
from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Any

from fabric_direct.drivers.gateways.gateway import UPLINK
from fabric_direct.drivers.gateways.namespaces import Namespaces
from fabric_direct.errors import DriverError
from fabric_direct.model.services import Address

_TABLE = {"family": "inet", "name": "fabric-direct"}
_IN_TABLE = {"family": "inet", "table": "fabric-direct"}
_IP = {4: "ip", 6: "ip6"}
Objects = list[Mapping[str, Any]]


def enforce(host: Namespaces, netns: str, version: int, public: frozenset[Address]) -> None:
    """Let packets pass to and from public addresses alone."""
    added = ({"add": thing} for thing in _wanted(version, public))
    commands = [{"flush": {"ruleset": None}}, *added]
    host.run(netns, "nft", "-j", "-f", "-", stdin=json.dumps({"nftables": commands}))


def enforced(host: Namespaces, netns: str, version: int, public: frozenset[Address]) -> bool:
    """Return whether these addresses, and no others, may pass."""
    try:
        found = json.loads(host.run(netns, "nft", "-j", "list", "ruleset"))["nftables"]
        there = _plain(thing for thing in found if "metainfo" not in thing)
    except (ValueError, LookupError, TypeError) as error:
        raise DriverError("nft gave an invalid answer", where=netns) from error
    return there == _plain(_wanted(version, public))


def _wanted(version: int, public: frozenset[Address]) -> Objects:
    members = {"elem": sorted(map(str, public))} if public else {}
    kind = f"ipv{version}_addr"
    hook = {"type": "filter", "hook": "forward", "prio": 0, "policy": "drop"}
    return [
        {"table": _TABLE},
        {"set": {**_IN_TABLE, "name": "public", "type": kind, **members}},
        {"chain": {**_IN_TABLE, "name": "forward", **hook}},
        _rule(version, "iifname", "daddr"),
        _rule(version, "oifname", "saddr"),
    ]


def _rule(version: int, link: str, address: str) -> Mapping[str, Any]:
    matches = (
        ({"meta": {"key": link}}, UPLINK),
        ({"payload": {"protocol": _IP[version], "field": address}}, "@public"),
    )
    expr = [{"match": {"op": "==", "left": left, "right": right}} for left, right in matches]
    return {"rule": {**_IN_TABLE, "chain": "forward", "expr": [*expr, {"accept": None}]}}


def _plain(things: Iterable[Mapping[str, Any]]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return objects without handles, by kind, their elements in order; rules stay in theirs."""
    pairs = ((kind, values) for thing in things for kind, values in thing.items())
    return sorted(((kind, _values(values)) for kind, values in pairs), key=itemgetter(0))


def _values(values: Mapping[str, Any]) -> Mapping[str, Any]:
    plain = {key: value for key, value in values.items() if key != "handle"}
    return plain | {"elem": sorted(plain["elem"])} if "elem" in plain else plain
