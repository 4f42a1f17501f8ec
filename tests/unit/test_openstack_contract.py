"""The contract of drivers, on what of OpenStack can be scripted: Neutron."""

import threading
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from requests import PreparedRequest

from fabric_direct.drivers.openstack.networks.bridge import OpenStackBridge
from fabric_direct.drivers.openstack.networks.driver import OpenStackNetwork
from fabric_direct.model.networks import NetworkSliver
from fabric_direct.site.config import Site
from fabric_direct.testing import CloudNetworkContract, FloatingIpContract, NetworkContract
from tests.unit.neutron import Answer, Neutron
from tests.unit.openstack_api import OpenStackApi, body

RED = {
    "strategy": "vlan",
    "vlan": 101,
    "physical_network": "physnet1",
    "subnet": "10.20.1.0/24",
    "gateway": "10.20.1.254",
    "subnet6": "fd20::/64",
}


class StrictNeutron(Neutron):
    """One that gives no address, floating IP or MAC twice, whoever asks for it at once."""

    _one_by_one = threading.Lock()

    def add(self, kind: str, **values: Any) -> dict[str, Any]:
        own = {
            "ports": {"mac_address": f"fa:16:3e:01:00:{self.made:02x}"},
            "floatingips": {"floating_ip_address": f"192.0.2.{self.made}"},
        }
        return super().add(kind, **own.get(kind, {}) | values)

    def _addresses(self, port: dict[str, Any]) -> list[dict[str, str]]:
        asked = {ip.get("ip_address") for ip in port.get("fixed_ips", ())}
        found = super()._addresses(port)
        own = [str(ip_address(ip["ip_address"]) + self.made) for ip in found]
        return [
            ip if ip["ip_address"] in asked else ip | {"ip_address": other}
            for ip, other in zip(found, own, strict=True)
        ]

    def _post(self, kind: str, request: PreparedRequest) -> Answer:
        with self._one_by_one:
            return self._made(kind, request)

    def _made(self, kind: str, request: PreparedRequest) -> Answer:
        (values,) = body(request).values()
        asked = {ip.get("ip_address") for ip in values.get("fixed_ips", ())} - {None}
        held = {
            ip["ip_address"] for port in self.things["ports"].values() for ip in port["fixed_ips"]
        }
        if kind == "ports" and asked & held:
            return 409, {"NeutronError": {"message": "IP address is in use"}}
        return super()._post(kind, request)


@pytest.fixture
def clouds_folder(kept_connection: Path) -> Path:
    return kept_connection


@pytest.fixture
def neutron(api: OpenStackApi) -> Neutron:
    return StrictNeutron(api)


@pytest.fixture
def site(api: OpenStackApi, tmp_path: Path) -> Site:
    return api.site(state_dir=tmp_path / "state", networks={"red": RED})


class TestNetworks(NetworkContract):
    network = "red"

    @pytest.fixture
    def driver(self, site: Site, neutron: Neutron) -> OpenStackNetwork:
        return OpenStackNetwork(site, "worker1")

    @pytest.fixture
    def foreign(self, neutron: Neutron) -> None:
        neutron.network("red", "10.20.1.0/24")


class TestFloatingIps(FloatingIpContract):
    network = "lan"

    @pytest.fixture
    def driver(self, api: OpenStackApi, neutron: Neutron) -> OpenStackNetwork:
        neutron.network("public", "172.24.4.0/24", project_id="other", **{"router:external": True})
        neutron.network("lan", "10.10.0.0/24", project_id="other", shared=True)
        return OpenStackNetwork(api.site(openstack={"external_network": "public"}), "worker1")


class TestBridges(CloudNetworkContract):
    @pytest.fixture
    def driver(self, site: Site, neutron: Neutron) -> OpenStackBridge:
        return OpenStackBridge(site, "")

    @pytest.fixture
    def lan(self, sliver: str) -> NetworkSliver:
        network: dict[str, Any] = {**RED, "vlan": 102, "gateway": None, "subnet": "10.30.0.0/24"}
        return NetworkSliver.model_validate({"id": sliver, "name": sliver, "network": network})
