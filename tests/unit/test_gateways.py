"""Gateways on a host: what its programs say, and what that means."""

import json
from ipaddress import ip_address
from typing import Any

import pytest

from fabric_direct.drivers.contract import CommandResult
from fabric_direct.drivers.gateways.firewall import enforced
from fabric_direct.drivers.gateways.namespaces import Namespaces
from fabric_direct.drivers.hosts.local import LocalHost

PUBLIC = frozenset({ip_address("203.0.113.10"), ip_address("203.0.113.11")})
OURS = {"family": "inet", "table": "fabric-direct"}
TABLE: dict[str, Any] = {"table": {"family": "inet", "name": "fabric-direct", "handle": 1}}
SET: dict[str, Any] = {
    "set": {**OURS, "name": "public", "type": "ipv4_addr", "elem": ["203.0.113.11", "203.0.113.10"]}
}
CHAIN: dict[str, Any] = {
    "chain": {
        **OURS,
        "name": "forward",
        "type": "filter",
        "hook": "forward",
        "prio": 0,
        "policy": "drop",
    }
}


def rule(way: str, address: str) -> dict[str, Any]:
    link = {"op": "==", "left": {"meta": {"key": way}}, "right": "uplink"}
    payload = {"payload": {"protocol": "ip", "field": address}}
    public = {"op": "==", "left": payload, "right": "@public"}
    expr = [{"match": link}, {"match": public}, {"accept": None}]
    return {"rule": {**OURS, "chain": "forward", "handle": 9, "expr": expr}}


RULES = rule("iifname", "daddr"), rule("oifname", "saddr")
ACCEPTED: dict[str, Any] = {
    "rule": {**OURS, "chain": "forward", "handle": 9, "expr": [{"accept": None}]}
}


class Nft(LocalHost):
    """A host whose nft says these objects."""

    def __init__(self, *objects: dict[str, Any]) -> None:
        super().__init__("w1")
        self._said = json.dumps({"nftables": [{"metainfo": {"version": "1"}}, *objects]})

    def run(self, argv: tuple[str, ...], stdin: bytes = b"", *, timeout: float) -> CommandResult:
        return CommandResult(0, self._said.encode())


@pytest.mark.parametrize(
    ("said", "so"),
    [
        ((TABLE, SET, CHAIN, *RULES), True),
        ((TABLE, CHAIN, SET, *RULES), True),  # as nft 1.1 lists it
        ((TABLE, CHAIN, SET, *RULES, ACCEPTED), False),
        ((TABLE, CHAIN, SET, RULES[0]), False),
        ((), False),
    ],
)
def test_a_filter_is_in_force_in_whatever_order_it_is_listed(
    said: tuple[dict[str, Any], ...], so: bool
) -> None:
    host = Namespaces(Nft(*said), "w1", 1)

    assert enforced(host, "space", 4, PUBLIC) is so
