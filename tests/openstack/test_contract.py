"""The contract of drivers, on a real OpenStack; no server is made."""

import secrets
from collections.abc import Callable, Iterator

import pytest
from openstack.connection import Connection

from fabric_direct.drivers.cloudinit import user_data
from fabric_direct.drivers.contract import Image, ServerSpec
from fabric_direct.drivers.openstack.networks.bridge import OpenStackBridge
from fabric_direct.drivers.openstack.networks.driver import OpenStackNetwork
from fabric_direct.drivers.openstack.servers.driver import OpenStackCompute
from fabric_direct.drivers.openstack.volumes.driver import OpenStackVolume
from fabric_direct.model import VNicInterface
from fabric_direct.model.networks import NetworkSliver, SiteNetwork
from fabric_direct.site.config import Site
from fabric_direct.testing import (
    CloudNetworkContract,
    ComputeContract,
    FloatingIpContract,
    NetworkContract,
    VolumeContract,
)
from fabric_direct.testing.networks import MAC
from tests.openstack.conftest import RED, WORKER, Things, ours, site_networks
from tests.openstack.conftest import sliver as node
from tests.openstack.target import TARGET


@pytest.fixture(scope="module")
def site(make_site: Callable[..., Site]) -> Site:
    """A site whose network gives out a part of its addresses: Neutron chooses among them at random."""
    pool = ["10.221.1.100", "10.221.1.200"]
    return make_site(guest="none", networks={RED: site_networks()[RED] | {"pool": pool}})


@pytest.fixture(scope="module", autouse=True)
def nothing_left_at_all(things: Things) -> Iterator[None]:
    yield
    assert things() == set()


def new_id() -> str:
    return ours(f"contract-{secrets.token_hex(3)}")


@pytest.fixture(scope="module")
def network_driver(site: Site) -> OpenStackNetwork:
    return OpenStackNetwork(site, WORKER)


@pytest.fixture(scope="module")
def kept(network_driver: OpenStackNetwork) -> Iterator[None]:
    """Another port on the network, so that not each test makes and deletes it."""
    keeper = new_id()
    network_driver.create_port(keeper, "nic", RED, VNicInterface())
    yield
    network_driver.delete_port(keeper, "nic")


class Named:
    """Slivers whose ids say that they are these tests' own."""

    @pytest.fixture
    def sliver(self) -> str:
        return new_id()


@pytest.mark.usefixtures("kept")
class TestNetworks(Named, NetworkContract):
    network = RED

    @pytest.fixture
    def driver(self, network_driver: OpenStackNetwork) -> OpenStackNetwork:
        return network_driver

    @pytest.fixture
    def asked(self, settings: SiteNetwork) -> VNicInterface:
        """A MAC and an address that Neutron gives to nobody."""
        address = f"{settings.subnet[50]}/{settings.subnet.prefixlen}"
        return VNicInterface.model_validate({"mac": MAC, "ipv4": address})


class TestFloatingIps(Named, FloatingIpContract):
    network = TARGET.network

    @pytest.fixture
    def driver(self, network_driver: OpenStackNetwork) -> OpenStackNetwork:
        return network_driver


class TestVolumes(Named, VolumeContract):
    @pytest.fixture
    def driver(self, site: Site) -> OpenStackVolume:
        return OpenStackVolume(site, WORKER)

    @pytest.fixture
    def foreign(self, cloud: Connection) -> Iterator[str]:
        volume = cloud.create_volume(1, name=ours("archive"), wait=True)
        yield volume.name
        cloud.delete_volume(volume.id, wait=True)


class TestServers(Named, ComputeContract):
    image = TARGET.image

    @pytest.fixture
    def driver(self, site: Site) -> OpenStackCompute:
        return OpenStackCompute(site, WORKER)

    @pytest.fixture
    def spec(self, site: Site, sliver: str) -> ServerSpec:
        wanted = node("contract", id=sliver, components=[])
        return ServerSpec(wanted, Image.of(site, self.image), user_data=user_data(wanted))


class TestBridges(Named, CloudNetworkContract):
    @pytest.fixture
    def driver(self, site: Site) -> OpenStackBridge:
        return OpenStackBridge(site, WORKER)

    @pytest.fixture
    def lan(self, sliver: str) -> NetworkSliver:
        network = TARGET.vlan_network(TARGET.own_vlans[1], "10.223.1.0/24")
        return NetworkSliver.model_validate({"id": sliver, "name": sliver, "network": network})
