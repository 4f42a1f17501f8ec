"""What carries the site's stamp in a cloud is listed whole, or not at all."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fabric_direct.drivers.contract import Stamped, StampFinder
from fabric_direct.drivers.openstack.client.stamp import (
    server_metadata,
    site_tag,
    sliver_tag,
    volume_metadata,
)
from fabric_direct.drivers.openstack.networks.bridge import OpenStackBridge
from fabric_direct.drivers.openstack.networks.driver import OpenStackNetwork
from fabric_direct.drivers.openstack.servers.driver import OpenStackCompute
from fabric_direct.drivers.openstack.volumes.driver import OpenStackVolume
from fabric_direct.errors import DriverError
from fabric_direct.model import NodeSliver
from fabric_direct.site.config import Site
from tests.unit.neutron import Neutron
from tests.unit.openstack_api import NOWHERE, PROJECT, OpenStackApi, neutron_port

DRIVERS: dict[str, tuple[Callable[[Site, str], StampFinder], str, str, str]] = {
    "servers": (OpenStackCompute, "compute", "/servers/detail", f"{NOWHERE}/compute/v2.1"),
    "volumes": (OpenStackVolume, "volume", "/volumes/detail", f"{NOWHERE}/volume/v3/{PROJECT}"),
    "ports": (OpenStackNetwork, "network", "/ports", f"{NOWHERE}/networking/v2.0"),
    "networks": (OpenStackBridge, "network", "/networks", f"{NOWHERE}/networking/v2.0"),
}


@pytest.fixture
def clouds_folder(kept_connection: Path) -> Path:
    return kept_connection


def stamp_of(sliver: str, site: str = "TEST") -> dict[str, str]:
    node = NodeSliver.model_validate(
        {
            "id": sliver,
            "name": "node",
            "image": "tiny",
            "capacities": {"core": 1, "ram": 1, "disk": 1},
        }
    )
    return server_metadata(site, node.stamp())


def server(name: str, tagged: str, metadata: dict[str, str]) -> dict[str, Any]:
    tags = [site_tag("TEST"), sliver_tag("TEST", tagged)]
    return {
        "id": f"id-{name}",
        "name": name,
        "created": "2026-11-01T00:00:00Z",
        "tags": tags,
        "metadata": metadata,
        "status": "ACTIVE",
    }


class TestServers:
    def test_each_is_its_slivers_by_tag_and_metadata_together(self, api: OpenStackApi) -> None:
        answered = [
            server("one", "s-1", stamp_of("s-1")),
            server("bare", "s-2", {}),
            server("other", "s-3", stamp_of("s-4")),
        ]
        api.answer("GET", "compute", "/servers/detail", {"servers": answered})

        found = OpenStackCompute(api.site(), "").stamped()

        assert set(found) == {
            Stamped("s-1", "server", "one (id-one)"),
            Stamped("", "server", "bare (id-bare)"),
            Stamped("", "server", "other (id-other)"),
        }
        assert api.calls == [
            ("GET", "compute", "/servers/detail", {"tags": site_tag("TEST")}),
        ]


class TestVolumes:
    def test_those_that_the_filter_lets_through_and_are_another_sites_are_left_out(
        self, api: OpenStackApi
    ) -> None:
        def volume(site: str, sliver: str) -> dict[str, Any]:
            metadata = volume_metadata(site, sliver, "data")
            return {"id": sliver, "name": f"{sliver}-data", "metadata": metadata}

        answered = [volume("TEST", "s-1"), volume("OTHER", "s-2"), {"id": "x", "metadata": {}}]
        api.answer("GET", "volume", "/volumes/detail", {"volumes": answered})

        found = OpenStackVolume(api.site(), "").stamped()

        assert found == (Stamped("s-1", "volume", "s-1-data (s-1)"),)


class TestPorts:
    def test_those_of_other_sites_other_projects_and_networks_of_the_site_are_left_out(
        self, api: OpenStackApi
    ) -> None:
        neutron = Neutron(api)
        ips = [{"subnet_id": "sub", "ip_address": "10.0.0.7"}]
        mine = "fabric-direct TEST/s-1"
        neutron.add(
            "ports", id="p1", network_id="n", name="s-1-nic", description=mine, fixed_ips=ips
        )
        neutron.add("ports", id="p2", network_id="n", description="fabric-direct TESTING/s-2")
        neutron.add("ports", id="p3", network_id="n", description="fabric-direct TEST network red")
        neutron.add("ports", id="p4", network_id="n", description=mine, project_id="another")
        neutron.add("ports", id="p5", network_id="n")
        neutron.add("floatingips", id="f1", description="fabric-direct TEST/s-2")
        neutron.add("floatingips", id="f2", description="of somebody")

        found = OpenStackNetwork(api.site(), "").stamped()

        assert found == (
            Stamped("s-1", "port", "s-1-nic (p1)", ("10.0.0.7",)),
            Stamped("s-2", "floating IP", "192.0.2.7 (f1)", ("192.0.2.7",)),
        )


class TestNetworks:
    def test_networks_and_routers_of_slivers_are_found_and_those_of_the_site_are_not(
        self, api: OpenStackApi
    ) -> None:
        neutron = Neutron(api)
        neutron.network("lan", description="fabric-direct TEST/lan")
        neutron.network("red", description="fabric-direct TEST network red")
        neutron.network("theirs", description="fabric-direct OTHER/lan")
        neutron.add("routers", id="r1", name="lan", description="fabric-direct TEST/lan")

        found = OpenStackBridge(api.site(), "").stamped()

        assert found == (
            Stamped("lan", "network", "lan (net-lan)"),
            Stamped("lan", "router", "lan (r1)"),
        )


@pytest.mark.parametrize("kind", DRIVERS)
@pytest.mark.parametrize("status", [400, 500])
def test_a_list_whose_second_page_fails_is_an_error(
    api: OpenStackApi, kind: str, status: int
) -> None:
    make, service, path, base = DRIVERS[kind]
    things = {
        "servers": server("one", "s-1", stamp_of("s-1")),
        "volumes": {"id": "v1", "metadata": volume_metadata("TEST", "s-1", "data")},
    }
    about = {"description": "fabric-direct TEST/s-1", "project_id": PROJECT, "created_at": "1"}
    first = things.get(kind, {**neutron_port("n1"), "name": "n1", **about})
    following = [{"rel": "next", "href": f"{base}{path}?marker=one"}]
    api.answer("GET", service, path, {kind: [first], f"{kind}_links": following})
    api.answer("GET", service, path, {"error": {"message": "no"}}, status=status)

    with pytest.raises(DriverError):
        make(api.site(), "").stamped()

    assert len(api.calls) >= 2
