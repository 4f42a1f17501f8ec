"""The contract of drivers, on the fakes, and as far as a driver needs no daemon for it."""

import pytest

from fabric_direct.drivers.contract import (
    ComputeDriver,
    DeviceDomain,
    DeviceDriver,
    Image,
    NetworkDriver,
    ServerSpec,
    ServiceDriver,
    Volume,
    VolumeDriver,
)
from fabric_direct.drivers.fake import (
    FakeColdDevice,
    FakeCompute,
    FakeDevice,
    FakeNetwork,
    FakeService,
    FakeVolume,
)
from fabric_direct.drivers.libvirt.networks.driver import LibvirtNetwork
from fabric_direct.model import Gpu, NodeSliver, PciAddress
from fabric_direct.model.networks import NetworkSliver
from fabric_direct.model.services import L3VPN, NetworkService
from fabric_direct.site.config import FakeHostSettings, FakeSettings, Host, Site
from fabric_direct.testing import (
    CloudNetworkContract,
    DeviceContract,
    NetworkContract,
    NetworkRefusals,
    ServerContract,
    ServiceContract,
    VolumeContract,
)

HOST = "localhost"
GPU, UNLISTED = PciAddress.parse("25:00.0"), PciAddress.parse("40:00.0")


@pytest.fixture
def site(fake_site: Site) -> Site:
    """A site with one GPU that is allowed, one that is not, and a network with IPv6."""
    red = {
        "strategy": "flat_dhcp",
        "subnet": "10.20.1.0/24",
        "gateway": "10.20.1.254",
        "subnet6": "fd20:1::/64",
    }
    return Site.model_validate(
        {
            **fake_site.model_dump(),
            "networks": {"red": red},
            "hosts": {HOST: Host(devices=({"type": "GPU", "bdf": GPU},))},
            "fake": FakeSettings(hosts={HOST: FakeHostSettings(gpus=1)}),
        }
    )


class TestNetworks(NetworkContract):
    network = "red"

    @pytest.fixture
    def driver(self, site: Site) -> NetworkDriver:
        return FakeNetwork(site, HOST)

    @pytest.fixture
    def foreign(self, driver: FakeNetwork) -> None:
        driver.substrate.foreign.add(self.network)


class TestWhatLibvirtRefuses(NetworkRefusals):
    """By the site alone: no daemon is asked."""

    network = "red"

    @pytest.fixture
    def driver(self, site: Site) -> NetworkDriver:
        return LibvirtNetwork(site, HOST)


class TestVolumes(VolumeContract):
    @pytest.fixture
    def driver(self, site: Site) -> VolumeDriver:
        return FakeVolume(site, HOST)

    @pytest.fixture
    def foreign(self, driver: FakeVolume) -> str:
        driver.substrate.existing["archive"] = Volume("", "", "/fake/archive", 1)
        return "archive"


class TestServers(ServerContract):
    image = "tiny"

    @pytest.fixture
    def driver(self, site: Site) -> ComputeDriver:
        return FakeCompute(site, HOST)

    @pytest.fixture
    def foreign(self, driver: FakeCompute, sliver: str) -> None:
        driver.substrate.foreign.add(f"{sliver}-node")

    def test_a_driver_need_not_resize(
        self, driver: FakeCompute, spec: ServerSpec, sliver: str
    ) -> None:
        driver.substrate.fault("compute.resize", kind="unsupported")

        self.test_a_server_is_resized_or_stays_as_it_is(driver, spec, sliver)


class TestServices(ServiceContract):
    @pytest.fixture
    def site(self, site: Site) -> Site:
        ports: dict[str, dict[str, object]] = {"p1": {}, "p2": {}}
        values = site.model_dump() | {"switches": {"sw1": {"ports": ports}}}
        return Site.model_validate(values)

    @pytest.fixture
    def driver(self, site: Site) -> ServiceDriver:
        return FakeService(site, HOST)

    @pytest.fixture
    def service(self, sliver: str) -> NetworkService:
        return self._vpn(sliver, vlan=100)

    @pytest.fixture
    def changed(self, sliver: str) -> NetworkService:
        return self._vpn(sliver, vlan=101, bandwidth=50)

    def _vpn(self, sliver: str, **values: object) -> NetworkService:
        peer = {"local": "10.0.0.1/30", "address": "10.0.0.2", "asn": 65001, "key": "sesame"}
        interface = {"id": "i1", "device": "sw1", "port": "p1", "peer": peer, **values}
        document = {"id": sliver, "name": sliver, "asn": 65000, "interfaces": [interface]}
        return L3VPN.model_validate(document)


class TestCloudNetworks(CloudNetworkContract):
    @pytest.fixture
    def driver(self, site: Site) -> ServiceDriver:
        return FakeService(site, HOST)

    @pytest.fixture
    def lan(self, sliver: str) -> NetworkSliver:
        network = {
            "strategy": "vlan",
            "vlan": 101,
            "physical_network": "physnet1",
            "subnet": "10.30.0.0/24",
        }
        return NetworkSliver.model_validate({"id": sliver, "name": sliver, "network": network})


class TestDevices(DeviceContract):
    @pytest.fixture
    def driver(self, site: Site) -> DeviceDriver:
        return FakeDevice(site, HOST)

    @pytest.fixture
    def tenant(self, site: Site, sliver: str) -> DeviceDomain:
        size = {"core": 1, "ram": 1, "disk": 1}
        node = NodeSliver.model_validate(
            {"id": sliver, "name": "node", "image": "tiny", "capacities": size}
        )
        FakeCompute(site, HOST).create(ServerSpec(node, Image.of(site, "tiny")))
        return DeviceDomain(sliver)

    @pytest.fixture
    def component(self) -> Gpu:
        return Gpu(id="gpu", bdf=(GPU,))

    @pytest.fixture
    def unlisted(self) -> Gpu:
        return Gpu(id="gpu", bdf=(UNLISTED,))


class TestColdDevices(TestDevices):
    @pytest.fixture
    def driver(self, site: Site) -> DeviceDriver:
        return FakeColdDevice(site, HOST)


class TestADriverThatLies:
    """The suites find out."""

    def test_of_deleting_a_volume(self, site: Site) -> None:
        driver = FakeVolume(site, HOST)
        driver.substrate.fault("volume.delete", at=0, kind="lie")

        with pytest.raises(AssertionError):
            VolumeContract().test_deleting_what_is_not_there_is_no_error(driver, "s1")

    def test_of_deleting_a_port(self, site: Site) -> None:
        driver, suite = FakeNetwork(site, HOST), TestNetworks()
        driver.substrate.fault("network.delete_port", at=0, kind="lie")

        with pytest.raises(AssertionError):
            suite.test_deleting_what_is_not_there_is_no_error(driver, "s1")

    def test_of_checking(self, site: Site) -> None:
        driver, suite = FakeNetwork(site, HOST), TestNetworks()
        driver.substrate.fault("network.check", at=0, kind="lie")

        with pytest.raises(pytest.fail.Exception):
            suite.test_a_network_that_is_not_there_is_refused(driver)
