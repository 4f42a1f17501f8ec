"""Slivers that AL2S makes, and a site with a stand-in for it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fabric_direct.model.services import L3VPN, SERVICES
from fabric_direct.site.config import Site
from labs.network import al2s_standin
from labs.network.al2s_standin import ACCESS_KEY, OWNER, Al2s
from tests.limits import PATIENT
from tests.trust.clock import skipping_pauses

ID = "0f8d2c7e-1b5a-4e0e-9f5e-2f6a1f0c9d11"
OTHER = "7a1f0c9d-1b5a-4e0e-9f5e-2f6a1f0c9d11"
TITLE = f"a-name-longer-th-{ID}"
BGP_KEY, ACCOUNT = "s3cr3t-of-bgp", "296256999979"
PORT = "HundredGigE0/0/0/5"


def peer(number: int, **more: Any) -> dict[str, Any]:
    """Return a neighbor in 10.9.<number>.0/30."""
    ends = {"local": f"10.9.{number}.1/30", "address": f"10.9.{number}.2"}
    return ends | {"asn": 64500 + number} | more


def at(name: str, device: str, number: int, **more: Any) -> dict[str, Any]:
    """Return an interface with a neighbor."""
    fields = {"id": name, "device": device, "port": PORT, "vlan": 100, "peer": peer(number)}
    return fields | more


def vpn(*interfaces: dict[str, Any], **values: Any) -> L3VPN:
    """Return an L3VPN."""
    fields = {"id": ID, "name": "a-name-longer-than-that", "asn": 398900}
    return L3VPN.model_validate(fields | {"interfaces": interfaces} | values)


STAR = at("star", "core1.star", 1, bandwidth=1_000, peer=peer(1, key=BGP_KEY, name="FABRIC"))
WASH = at("wash", "core2.wash", 2, mtu=9000)
CLOUD = at(
    "aws",
    "core2.ashb",
    3,
    port="HundredGigE0/0/0/9",
    peer=peer(3, cloud="AWS", account=ACCOUNT, key=BGP_KEY),
)
SERVICE = vpn(STAR, WASH)
FASTER = vpn(STAR | {"bandwidth": 2_000}, WASH)
"""The same with another bandwidth at one end."""
CHANGED = vpn(WASH | {"vlan": 200}, CLOUD)
"""One end is changed, one is gone, one is new."""


@pytest.fixture
def al2s() -> Al2s:
    return Al2s()


@pytest.fixture
def site(al2s: Al2s, fake_site: Site, tmp_path: Path) -> Iterator[Site]:
    url, end = al2s_standin.serve(al2s)
    key = tmp_path / "al2s-key"
    key.write_text(f"{ACCESS_KEY}\n")
    controller = {"url": url, "key_file": key, "owner": OWNER}
    values = fake_site.model_dump() | {
        "drivers": fake_site.drivers | dict.fromkeys(SERVICES, "al2s"),
        "services": {"al2s": controller},
        "limits": {"call": PATIENT["call"], "unanswered": 0.0, "busy": 0.1},
    }
    with skipping_pauses():
        yield Site.model_validate(values)
    end()
