"""The contract of drivers, on the fakes, and as far as a driver needs no daemon for it."""

from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from fabric_direct.drivers.contract import (
    BareMetalDriver,
    ComputeDriver,
    DeviceDomain,
    DeviceDriver,
    GuestAddress,
    GuestDriver,
    Image,
    NetworkDriver,
    Port,
    ServerSpec,
    ServiceDriver,
    TuningDriver,
    UplinkDriver,
    Volume,
    VolumeDriver,
)
from fabric_direct.drivers.contract.changes import Change
from fabric_direct.drivers.fake import (
    FakeColdDevice,
    FakeCompute,
    FakeDevice,
    FakeGuest,
    FakeNetwork,
    FakeService,
    FakeTuning,
    FakeUplink,
    FakeVolume,
)
from fabric_direct.drivers.libvirt.networks.driver import LibvirtNetwork
from fabric_direct.errors import InvalidSliver
from fabric_direct.model import Gpu, NodeSliver, PciAddress, VNicInterface
from fabric_direct.model.networks import NetworkSliver
from fabric_direct.model.services import L3VPN, NetworkService
from fabric_direct.site.config import (
    FakeHostSettings,
    FakeNodeSettings,
    FakeSettings,
    Host,
    IronicSettings,
    Site,
)
from fabric_direct.testing import (
    BareMetalContract,
    CloudNetworkContract,
    DeviceContract,
    FloatingIpContract,
    GuestContract,
    NetworkContract,
    NetworkRefusals,
    ServerContract,
    ServiceContract,
    SharedServiceContract,
    TuningContract,
    UplinkContract,
    VolumeContract,
)
from fabric_direct.testing.threads import hears

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
            "fake": FakeSettings(
                hosts={HOST: FakeHostSettings(gpus=1, vfs=2)},
                nodes={"n2": FakeNodeSettings(), "n1": FakeNodeSettings(traits=("HW_B", "HW_A"))},
            ),
        }
    )


def server(site: Site, sliver: str, *ports: Port) -> ServerSpec:
    """Return the description of a server of the least size."""
    nics = [{"type": "vNIC", "id": port.component, "network": port.network} for port in ports]
    size = {"core": 1, "ram": 1, "disk": 1}
    values = {"id": sliver, "name": "node", "image": "tiny", "capacities": size}
    node = NodeSliver.model_validate(values | {"components": nics})
    return ServerSpec(node, Image.of(site, "tiny"), ports)


class TestNetworks(NetworkContract):
    network = "red"

    @pytest.fixture
    def driver(self, site: Site) -> NetworkDriver:
        return FakeNetwork(site, HOST)

    @pytest.fixture
    def foreign(self, driver: FakeNetwork) -> None:
        driver.substrate.foreign.add(self.network)


class TestFloatingIps(FloatingIpContract):
    network = "red"

    @pytest.fixture
    def driver(self, site: Site) -> NetworkDriver:
        values = site.model_dump(exclude_unset=True)
        values["networks"]["red"] |= {
            "strategy": "flat",
            "physical_network": "physnet1",
            "router": True,
        }
        cloud = {"cloud": "lab", "external_network": "public"}
        return FakeNetwork(Site.model_validate({**values, "openstack": cloud}), HOST)


class TestWhatLibvirtRefuses(NetworkRefusals):
    """By the site alone: no daemon is asked."""

    network = "red"

    @pytest.fixture
    def driver(self, site: Site) -> NetworkDriver:
        return LibvirtNetwork(site, HOST)

    def test_floating_ips_are_refused(self, driver: NetworkDriver) -> None:
        with pytest.raises(InvalidSliver, match="libvirt has none"):
            driver.create_floating_ip("s1", "nic1")


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

    @pytest.fixture
    def port(self, site: Site, sliver: str) -> Port:
        return FakeNetwork(site, HOST).create_port(sliver, "nic", "red", VNicInterface())

    @pytest.fixture
    def volume(self, site: Site, sliver: str) -> Volume:
        return FakeVolume(site, HOST).create(sliver, "data", 1)

    def test_a_driver_need_not_resize(
        self, driver: FakeCompute, spec: ServerSpec, sliver: str
    ) -> None:
        driver.substrate.fault("compute.resize", kind="unsupported")

        self.test_a_server_is_resized_or_stays_as_it_is(driver, spec, sliver)

    def test_another_server_may_leave_the_host_meanwhile(
        self,
        site: Site,
        driver: FakeCompute,
        spec: ServerSpec,
        sliver: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        others = FakeCompute(site, HOST)
        others.create(server(site, "of-another-test"))

        def create(*args: Any) -> Any:
            others.delete("of-another-test")
            return FakeCompute.create(driver, *args)

        monkeypatch.setattr(driver, "create", create)
        self.test_the_inventory_counts_a_server(driver, spec, sliver)

    def test_a_change_may_be_told_before_what_is_not_known(self, driver: FakeCompute) -> None:
        driver.substrate.listeners.first = Change("server", ("0815", "another"))

        hears(driver)


class _Vpns:
    """An L3VPN of a site in memory with a switch."""

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

    def _vpn(self, sliver: str, **values: object) -> NetworkService:
        peer = {"local": "10.0.0.1/30", "address": "10.0.0.2", "asn": 65001, "key": "sesame"}
        interface = {"id": "i1", "device": "sw1", "port": "p1", "peer": peer, **values}
        document = {"id": sliver, "name": sliver, "asn": 65000, "interfaces": [interface]}
        return L3VPN.model_validate(document)


class TestServices(_Vpns, ServiceContract):
    @pytest.fixture
    def changed(self, sliver: str) -> NetworkService:
        return self._vpn(sliver, vlan=101, bandwidth=50)


class TestSharedServices(_Vpns, SharedServiceContract):
    @pytest.fixture
    def elsewhere(self, site: Site) -> ServiceDriver:
        """Another site in memory is as one of which the API tells nothing."""
        folder = site.state_dir / "elsewhere"
        return FakeService(site.model_copy(update={"site": "ELSEWHERE", "state_dir": folder}), HOST)


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
        FakeCompute(site, HOST).create(server(site, sliver))
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


class TestGuests(GuestContract):
    @pytest.fixture
    def driver(self, site: Site) -> GuestDriver:
        return FakeGuest(site, HOST)

    @pytest.fixture
    def guest(self, site: Site, sliver: str) -> GuestAddress:
        port = FakeNetwork(site, HOST).create_port(sliver, "nic", "red", VNicInterface())
        made = FakeCompute(site, HOST).create(server(site, sliver, port))
        return GuestAddress(sliver, made.instance, "root", ("10.20.1.2",))

    @pytest.fixture
    def absent(self, other: str) -> GuestAddress:
        return GuestAddress(other, "no-such-instance", "root")

    def test_a_guest_may_get_another_address_meanwhile(
        self, driver: FakeGuest, guest: GuestAddress, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        got = count(1)

        def interfaces(*args: Any) -> Any:
            new = (f"fec0::{next(got)}/64",)
            return tuple(replace(i, addresses=new) for i in FakeGuest.interfaces(driver, *args))

        monkeypatch.setattr(driver, "interfaces", interfaces)
        self.test_two_threads_may_ask_at_once(driver, guest)


class TestTuning(TuningContract):
    @pytest.fixture
    def driver(self, site: Site) -> TuningDriver:
        return FakeTuning(site, HOST)

    @pytest.fixture
    def instance(self, site: Site, sliver: str) -> str:
        return FakeCompute(site, HOST).create(server(site, sliver)).instance


class TestUplinks(UplinkContract):
    @pytest.fixture
    def driver(self, site: Site) -> UplinkDriver:
        return FakeUplink(site, HOST)

    @pytest.fixture
    def link(self) -> str:
        return "ens1"


class TestBareMetal(BareMetalContract):
    @pytest.fixture
    def driver(self, site: Site) -> BareMetalDriver:
        booted = {"kernel": "http://192.0.2.1/kernel", "ramdisk": "http://192.0.2.1/initrd"}
        ironic = IronicSettings.model_validate({"images": {"probe": booted}})
        return FakeService(site.model_copy(update={"ironic": ironic}), HOST)

    @pytest.fixture
    def image(self) -> str:
        return "probe"

    @pytest.fixture
    def free(self) -> str:
        return "n1"
