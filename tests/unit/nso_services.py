"""Slivers of each type that NSO makes, and a site with a stand-in for it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fabric_direct.model.services import SERVICES, NetworkService
from fabric_direct.site.config import Site
from labs.network import nso_standin
from labs.network.nso_standin import PASSWORD, USER, Controller
from tests.limits import PATIENT
from tests.trust.clock import skipping_pauses

ID = "0f8d2c7e-1b5a-4e0e-9f5e-2f6a1f0c9d11"
OTHER = "7a1f0c9d-1b5a-4e0e-9f5e-2f6a1f0c9d11"
KEY = "s3cr3t-of-bgp"


def at(name: str, device: str = "renc-sw", vlan: Any = 100, **more: Any) -> dict[str, Any]:
    port = {"device": device, "port": "HundredGigE0/0/0/5"}
    return {"id": name, "vlan": vlan} | port | more


def service(kind: str, *interfaces: dict[str, Any], **values: Any) -> NetworkService:
    document = {"id": ID, "name": "a-name-longer-than-that", "interfaces": interfaces} | values
    return SERVICES[kind].model_validate(document)


PEER = {"local": "10.9.0.1/30", "address": "10.9.0.2", "asn": 64512, "key": KEY}
V4, V6 = {"address": "10.1.0.1/24"}, {"address": "fd00:1::1/64"}
TWO = (at("i1"), at("i2", "uky-sw"))
SAMPLES = {
    "L2Bridge": service("L2Bridge", at("i1", bandwidth=10_000, burst=2_000), at("i2", vlan=101)),
    "L2PTP": service("L2PTP", *TWO, ero={"a2z": ["10.0.0.1", "link:x"], "z2a": ["10.0.0.2"]}),
    "L2STS": service("L2STS", *TWO, at("i3", "uky-sw", 101, inner_vlan=7)),
    "FABNetv4": service("FABNetv4", at("i1"), gateway=V4 | {"mac": "02:00:00:00:00:01"}),
    "FABNetv6": service("FABNetv6", at("i1", vlan="untagged"), gateway=V6),
    "FABNetv4Ext": service("FABNetv4Ext", at("i1"), gateway=V4, public=["10.1.0.9"]),
    "FABNetv6Ext": service("FABNetv6Ext", at("i1"), gateway=V6, public=["fd00:1::9"]),
    "L3VPN": service(
        "L3VPN",
        at("i1", gateway={"address": "10.2.0.1/24"}),
        at("i2", "al2s", peer=PEER),
        asn=398900,
    ),
    "PortMirror": service("PortMirror", at("i1"), mirror={"port": "HundredGigE0/0/0/9"}),
}
CHANGES = {
    "L2Bridge": service("L2Bridge", at("i1", bandwidth=40_000)),
    "L2PTP": service("L2PTP", at("i1", vlan=200), at("i2", "uky-sw")),
    "L2STS": service("L2STS", *TWO),
    "FABNetv4": service("FABNetv4", at("i1", vlan=102), gateway=V4),
    "FABNetv6": service("FABNetv6", at("i1", vlan=102), gateway=V6),
    "FABNetv4Ext": service("FABNetv4Ext", at("i1"), gateway=V4),
    "FABNetv6Ext": service("FABNetv6Ext", at("i1"), gateway=V6, public=["fd00:1::8"]),
    "L3VPN": service(
        "L3VPN",
        at("i1", gateway={"address": "10.2.0.1/24"}),
        at("i2", "al2s", peer=PEER | {"asn": 64513}),
        asn=398900,
    ),
    "PortMirror": service(
        "PortMirror", at("i1"), mirror={"port": "HundredGigE0/0/0/9", "vlan": 5, "direction": "rx"}
    ),
}
BRIDGE, STS = SAMPLES["L2Bridge"], SAMPLES["L2STS"]
NAME = f"a-name-longer-th-{ID}"


@pytest.fixture
def nso() -> Controller:
    return Controller()


@pytest.fixture
def site(nso: Controller, fake_site: Site, tmp_path: Path) -> Iterator[Site]:
    url, end = nso_standin.serve(nso)
    password = tmp_path / "password"
    password.write_text(f"{PASSWORD}\n")
    controller = {
        "url": url,
        "user": USER,
        "password_file": password,
        "border_routers": ["core-1", "core-2"],
    }
    values = fake_site.model_dump() | {
        "drivers": fake_site.drivers | dict.fromkeys(SERVICES, "nso"),
        "services": {"nso": controller},
        "limits": {"call": PATIENT["call"], "unanswered": 0.0, "busy": 0.1},
    }
    with skipping_pauses():
        yield Site.model_validate(values)
    end()
