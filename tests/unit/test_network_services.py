"""Network services as values: what is refused, by its field."""

from typing import Any

import pytest
from pydantic import ValidationError

from fabric_direct.documents import parse
from fabric_direct.errors import InvalidSliver
from fabric_direct.handlers.registry import sliver_model
from fabric_direct.model.services import L3VPN, SERVICES, NetworkService

PEER = {"local": "10.0.0.1/30", "address": "10.0.0.2", "asn": 65001, "key": "sesame"}


def port(name: str = "i1", device: str = "sw1", port: str = "p1", **more: Any) -> dict[str, Any]:
    return {"id": name, "device": device, "port": port, **more}


ONE, TWO = port(vlan=100), port("i2", port="p2", vlan=200)
FAR = port("i2", device="sw2", vlan=100)
NEAR = {"gateway": {"address": "10.2.0.1/24"}}
WHOLE: dict[str, dict[str, Any]] = {
    "L2Bridge": {"interfaces": [ONE, TWO]},
    "L2PTP": {"interfaces": [ONE, FAR]},
    "L2STS": {"interfaces": [ONE, TWO, FAR | {"id": "i3"}]},
    "FABNetv4": {"interfaces": [ONE], "gateway": {"address": "10.1.0.1/24"}},
    "FABNetv6": {"interfaces": [ONE], "gateway": {"address": "fd00::1/64"}},
    "FABNetv4Ext": {
        "interfaces": [ONE],
        "gateway": {"address": "192.0.2.1/28"},
        "public": ["192.0.2.3"],
    },
    "FABNetv6Ext": {"interfaces": [ONE], "gateway": {"address": "2001:db8::1/64"}},
    "L3VPN": {"asn": 65000, "interfaces": [ONE | {"peer": PEER}]},
    "PortMirror": {"interfaces": [ONE], "mirror": {"port": "p2", "direction": "rx"}},
}


def service(kind: str, **values: Any) -> NetworkService:
    document = {"id": "net-1", "type": kind, "name": "net", **WHOLE[kind], **values}
    return SERVICES[kind].model_validate(document)


@pytest.mark.parametrize("kind", WHOLE)
def test_each_kind_is_read_as_it_is_written(kind: str) -> None:
    made = service(kind)

    assert made.type == kind
    assert SERVICES[kind].model_validate_json(made.model_dump_json()) == made


@pytest.mark.parametrize(
    ("kind", "values", "field"),
    [
        ("L2Bridge", {"interfaces": []}, "needs at least 1"),
        ("L2Bridge", {"interfaces": [ONE, FAR]}, "at most 1 devices"),
        ("L2Bridge", {"interfaces": [ONE, ONE | {"id": "i2"}]}, "VLAN 100 on p1 of sw1"),
        ("L2Bridge", {"interfaces": [ONE, ONE | {"id": "i2", "inner_vlan": 5}]}, "VLAN 100 on p1"),
        ("L2Bridge", {"interfaces": [ONE, TWO | {"id": "i1"}]}, "id i1 is given twice"),
        ("L2Bridge", {"interfaces": [ONE | {"vlan": 4095}]}, "vlan"),
        ("L2Bridge", {"interfaces": [port(inner_vlan=5)]}, "inner_vlan: needs a VLAN"),
        ("L2Bridge", {"interfaces": [ONE | {"burst": 5}]}, "burst: needs a bandwidth"),
        ("L2Bridge", {"interfaces": [ONE | {"bandwidth": 0}]}, "bandwidth"),
        ("L2Bridge", {"interfaces": [ONE | {"mtu": 9217}]}, "mtu"),
        ("L2Bridge", {"interfaces": [ONE | {"mac": "01:00:00:00:00:01"}]}, "multicast"),
        ("L2Bridge", {"interfaces": [{"id": "i1", "vlan": 100}]}, "needs 'device' and 'port'"),
        ("L2Bridge", {"interfaces": [ONE | {"port": "a b"}]}, "port"),
        ("L2Bridge", {"interfaces": [ONE | {"peer": PEER}]}, r"interfaces\[0\].peer"),
        ("L2Bridge", {"interfaces": [ONE | {"address": "10.1.0.2/24"}]}, r"\[0\].address"),
        ("L2Bridge", {"ero": {"a2z": ["1.1.1.1"], "z2a": ["2.2.2.2"]}}, "ero"),
        ("L2PTP", {"interfaces": [ONE]}, "needs exactly 2"),
        ("L2PTP", {"interfaces": [ONE, TWO]}, "needs two devices"),
        ("L2PTP", {"interfaces": [ONE, port("i2", device="sw2")]}, r"interfaces\[1\].vlan"),
        ("L2PTP", {"ero": {"a2z": ["1.1.1.1"]}}, "z2a"),
        ("L2STS", {"interfaces": [ONE]}, "needs at least 2"),
        ("L2STS", {"interfaces": [ONE, TWO]}, "needs two devices"),
        ("L2STS", {"interfaces": [ONE, FAR, port("i3", device="sw3")]}, "at most 2"),
        ("L2STS", {"ero": {"a2z": ["1.1.1.1"], "z2a": ["2.2.2.2"]}}, "ero"),
        ("FABNetv4", {"interfaces": [ONE, FAR]}, "at most 1"),
        ("FABNetv4", {"gateway": {"address": "fd00::1/64"}}, "gateway.address"),
        ("FABNetv4", {"gateway": {"address": "10.1.0.1"}}, "prefix length"),
        ("FABNetv4", {"interfaces": [ONE | {"address": "10.2.0.9/24"}]}, "is not in 10.1.0.0/24"),
        ("FABNetv4", {"interfaces": [ONE | {"address": "10.1.0.1/24"}]}, "is the gateway's"),
        ("FABNetv4", {"interfaces": [ONE | {"address": "10.1.0.0/24"}]}, "of its subnet"),
        ("FABNetv4", {"interfaces": [ONE | {"address": "10.1.0.255/24"}]}, "broadcast"),
        ("FABNetv4", {"gateway": {"address": "10.1.0.0/24"}}, "gateway\n.*10.1.0.0 is the address"),
        ("FABNetv4", {"gateway": {"address": "10.1.0.255/24"}}, "broadcast"),
        ("FABNetv4", {"gateway": {"address": "127.0.0.1/8"}}, "no address of a host"),
        ("FABNetv6", {"gateway": {"address": "fd00::/64"}}, "of its subnet"),
        ("FABNetv4", {"public": ["10.1.0.5"]}, "public"),
        ("FABNetv4Ext", {"public": ["192.0.2.99"]}, r"public\[0\]"),
        ("FABNetv4Ext", {"public": ["192.0.2.3", "192.0.2.3"]}, "given twice"),
        ("FABNetv4Ext", {"public": ["192.0.2.1"]}, "is the gateway's"),
        ("FABNetv6Ext", {"public": ["192.0.2.3"]}, "has IPv6"),
        ("L3VPN", {"interfaces": [ONE]}, "exactly one of 'peer' and 'gateway'"),
        ("L3VPN", {"asn": 0}, "asn"),
        ("L3VPN", {"interfaces": [ONE | {"gateway": {"address": "10.2.0.0/24"}}]}, "subnet"),
        ("L3VPN", {"interfaces": [ONE | NEAR, FAR | NEAR]}, r"\[1\].gateway.address: .* overlaps"),
        (
            "L3VPN",
            {"interfaces": [ONE | NEAR, TWO | {"gateway": {"address": "10.2.9.9/16"}}]},
            "10.2.9.9/16 overlaps with 10.2.0.1/24 of i1",
        ),
        ("L3VPN", {"interfaces": [ONE | {"peer": PEER | {"address": "10.0.0.3"}}]}, "broadcast"),
        ("L3VPN", {"interfaces": [ONE | {"peer": PEER | {"local": "10.0.0.0/30"}}]}, "subnet"),
        ("L3VPN", {"interfaces": [ONE | {"peer": PEER | {"address": "10.9.9.9"}}]}, "is not in"),
        ("L3VPN", {"interfaces": [ONE | {"peer": PEER | {"address": "10.0.0.1"}}]}, "own"),
        ("L3VPN", {"interfaces": [ONE | {"peer": PEER | {"key": "two words"}}]}, "key"),
        ("PortMirror", {"interfaces": [ONE, TWO]}, "needs exactly 1"),
        ("PortMirror", {"mirror": {"port": "p1"}}, "is the receiver itself"),
        ("PortMirror", {"mirror": {"port": "p2", "direction": "none"}}, "direction"),
    ],
)
def test_what_cannot_be_is_refused(kind: str, values: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError, match=field):
        service(kind, **values)


def test_interfaces_of_a_device_may_have_one_gateway() -> None:
    assert service("L3VPN", interfaces=[ONE | NEAR, TWO | NEAR]).interfaces


def test_two_inner_vlans_of_one_vlan_are_two() -> None:
    inner = (ONE | {"inner_vlan": 5}, ONE | {"id": "i2", "inner_vlan": 6})

    assert service("L2Bridge", interfaces=inner).interfaces


def test_the_stamp_has_no_secrets_and_says_so() -> None:
    vpn = service("L3VPN")

    stamp = L3VPN.model_validate_json(vpn.without_secrets().model_dump_json())

    assert "sesame" not in stamp.model_dump_json()
    assert "sesame" not in repr(vpn)
    assert stamp.has_secrets


def test_a_refusal_of_a_file_does_not_repeat_the_key() -> None:
    text = (
        "{id: n, type: L3VPN, name: n, asn: 1, interfaces: [{id: i, device: d, port: p, "
        "peer: {local: 10.0.0.1/30, address: 10.0.0.2, asn: 1, key: 'very secret'}}]}"
    )

    with pytest.raises(InvalidSliver) as refused:
        parse(text, "vpn.yaml", SERVICES["L3VPN"], InvalidSliver)

    assert refused.value.field == "interfaces[0].peer.key"
    assert "very secret" not in str(refused.value)


def test_an_address_is_refused_in_one_sentence() -> None:
    text = "{id: n, type: FABNetv4, name: n, interfaces: [], gateway: {address: 10.0.0.300/8}}"

    with pytest.raises(InvalidSliver) as refused:
        parse(text, "net.yaml", SERVICES["FABNetv4"], InvalidSliver)

    assert str(refused.value).count("gateway.address") == 1


@pytest.mark.parametrize(
    ("kind", "values", "said"),
    [
        ("FABNetv4", "gateway: {address: 167772161}", "gateway.address: must be an address with a"),
        ("FABNetv4", "gateway: {address: true}", "gateway.address: must be an address with a"),
        ("FABNetv4", "gateway: {address: [1]}", "gateway.address: must be an address with a"),
        ("FABNetv4Ext", "public: [5]", "public[0]: must be an address, for example"),
        ("FABNetv4Ext", "public: [{a: 1}]", "public[0]: must be an address, for example"),
    ],
)
def test_what_is_no_text_is_no_address(kind: str, values: str, said: str) -> None:
    interface = "{id: i, device: d, port: p, vlan: 5}"
    text = f"{{id: n, type: {kind}, name: n, interfaces: [{interface}], {values}}}"

    with pytest.raises(InvalidSliver) as refused:
        parse(text, "net.yaml", SERVICES[kind], InvalidSliver)

    assert str(refused.value).startswith(f"net.yaml:1: {said}")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("vlan", ["4095", "0", "tagged", "true", "[1]"])
def test_a_vlan_is_refused_in_one_sentence(vlan: str) -> None:
    interface = f"{{id: i, device: d, port: p, vlan: {vlan}}}"
    text = f"{{id: n, type: L2Bridge, name: n, interfaces: [{interface}]}}"

    with pytest.raises(InvalidSliver) as refused:
        parse(text, "net.yaml", SERVICES["L2Bridge"], InvalidSliver)

    assert str(refused.value) == (
        "net.yaml:1: interfaces[0].vlan: must be a VLAN from 1 to 4094, 'untagged' or 'auto'"
    )


def test_a_network_of_a_cloud_is_told_from_a_segment_on_a_switch() -> None:
    assert sliver_model({"type": "L2Bridge", "network": {}}).__name__ == "NetworkSliver"
    assert sliver_model({"type": "L2Bridge", "interfaces": []}) is SERVICES["L2Bridge"]
