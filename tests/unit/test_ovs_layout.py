"""What a network service is on a switch: rows, by names that follow from site and sliver."""

from pathlib import Path
from typing import Any

import pytest

from fabric_direct.drivers.contract.link_names import port_bridge
from fabric_direct.drivers.ovs import layout as names
from fabric_direct.model.services import SERVICES, NetworkService
from fabric_direct.site.config import Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    switches = {f"sw{n}": {"tunnel": f"192.0.2.{n}", "ports": {"p1": {}, "p2": {}}} for n in (1, 2)}
    values: dict[str, Any] = {"site": "TEST", "state_dir": tmp_path, "switches": switches}
    return Site.model_validate(values)


def service(kind: str, *where: tuple[str, str, Any], **more: Any) -> NetworkService:
    ends = [
        {"id": f"i{number}", "device": device, "port": port, "vlan": vlan, **more}
        for number, (device, port, vlan) in enumerate(where)
    ]
    return SERVICES[kind].model_validate({"id": "net-1", "name": "net", "interfaces": ends})


def test_a_vlan_is_translated_between_a_ports_bridge_and_the_services(site: Site) -> None:
    wanted = service("L2Bridge", ("sw1", "p1", 100), ("sw1", "p2", "untagged"))

    ports = names.layout(site, wanted, "sw1", 0).ports
    peers = {port.name: port.options["peer"] for port in ports if port.kind == "patch"}

    assert [p.tag for p in ports if p.bridge == port_bridge(site, "p1")] == [None, 100]
    assert [p.tag for p in ports if p.bridge == port_bridge(site, "p2")] == [None, 0]
    assert all(peers[peers[name]] == name for name in peers)


def test_two_vlans_of_a_port_share_its_bridge(site: Site) -> None:
    wanted = service("L2Bridge", ("sw1", "p1", 100), ("sw1", "p1", 101))

    made = names.layout(site, wanted, "sw1", 0)

    assert len(made.bridges) == 2
    assert [port.name for port in made.ports].count("p1") == 1


def test_each_switch_has_its_own_part_and_a_tunnel_to_the_other(site: Site) -> None:
    wanted = service("L2STS", ("sw1", "p1", 100), ("sw2", "p2", 200))

    parts = [names.layout(site, wanted, device, 77) for device in ("sw1", "sw2")]
    tunnels = [port for part in parts for port in part.ports if port.kind == "vxlan"]

    assert [dict(t.options) for t in tunnels] == [
        {"remote_ip": "192.0.2.2", "key": "77"},
        {"remote_ip": "192.0.2.1", "key": "77"},
    ]


def test_names_fit_into_what_linux_allows(site: Site) -> None:
    made = names.layout(site, service("L2STS", ("sw1", "p1", 1), ("sw2", "p1", 1)), "sw1", 1 << 23)

    assert all(len(row.name) <= 15 for row in (*made.bridges, *made.ports))


def test_a_burst_is_that_asked_for_or_follows_from_the_bandwidth(site: Site) -> None:
    where = ("sw1", "p1", 100)
    given = service("L2Bridge", where, bandwidth=10, burst=64)

    bursts = [
        names.layout(site, wanted, "sw1", 0).limits[0].burst
        for wanted in (given, service("L2Bridge", where, bandwidth=10))
    ]

    assert bursts == [64, 2000]
