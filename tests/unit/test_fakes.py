"""What every real driver refuses by the site alone, the fakes refuse by the same field."""

import copy
import re
from pathlib import Path
from typing import Any

import pytest

from fabric_direct.drivers.contract import (
    DeviceDomain,
    HostDevice,
    HostDrivers,
    Image,
    PciFunction,
    ServerSpec,
)
from fabric_direct.drivers.fake import FakeService, Substrate, substrate
from fabric_direct.errors import Conflict, InvalidSliver, NotOurs, NotVerified, PoolExhausted
from fabric_direct.handlers import registry
from fabric_direct.model import (
    DeviceState,
    Gpu,
    NodeSliver,
    PciAddress,
    SharedNic,
    VNicInterface,
)
from fabric_direct.model.networks import NetworkSliver
from fabric_direct.site.config import Site
from tests.conftest import FAKE_DRIVERS

GPU, OTHER, VF = map(PciAddress.parse, ("25:00.0", "26:00.0", "a1:00.0"))
ALLOWED = [
    {"type": "GPU", "model": "A30", "bdf": str(GPU)},
    {"type": "SharedNIC", "uplink": "ens1"},
]

CLOUD = {"cloud": "lab", "external_network": "public"}
ROUTED = {
    "strategy": "flat_dhcp",
    "subnet": "10.20.1.0/24",
    "physical_network": "physnet1",
    "router": True,
}


@pytest.fixture
def make_site(tmp_path: Path) -> Any:
    def make(**values: Any) -> Site:
        defaults = {
            "site": "TEST",
            "state_dir": str(tmp_path),
            "drivers": FAKE_DRIVERS,
            "guest": "fake",
            "hosts": {"localhost": {}},
            "images": {"tiny": {}},
            "networks": {
                "red": {
                    "strategy": "flat_dhcp",
                    "subnet": "10.20.1.0/24",
                    "gateway": "10.20.1.254",
                    "dns": ["10.20.1.253"],
                    "subnet6": "fd20:1::/64",
                },
                "small": {
                    "strategy": "flat",
                    "bridge": "br0",
                    "subnet": "10.20.2.0/24",
                    "pool": ["10.20.2.10", "10.20.2.11"],
                },
            },
        }
        return Site.model_validate(defaults | values)

    return make


def drivers(site: Site) -> HostDrivers:
    return registry.host_drivers(site, "localhost")


def interface(**values: Any) -> VNicInterface:
    return VNicInterface.model_validate(values)


class TestANetwork:
    @pytest.mark.parametrize(
        ("asked", "field"),
        [
            ({"ipv4": "10.20.1.1/24"}, "ipv4"),
            ({"ipv4": "10.20.1.254/24"}, "ipv4"),
            ({"ipv4": "10.20.1.253/24"}, "ipv4"),
            ({"ipv4": "10.20.1.5/16"}, "ipv4"),
            ({"ipv4": "10.20.9.5/24"}, "ipv4"),
            ({"ipv6": "fd20:1::1/64"}, "ipv6"),
            ({"ipv6": "fd20:1::5/48"}, "ipv6"),
            ({"floating_ip": True}, "floating_ip"),
        ],
        ids=[
            "the host's own",
            "the gateway's",
            "the DNS server's",
            "a wrong prefix",
            "outside",
            "the host's own in IPv6",
            "a wrong prefix in IPv6",
            "a floating IP without an external network",
        ],
    )
    def test_refuses(self, make_site: Any, asked: dict[str, Any], field: str) -> None:
        with pytest.raises(InvalidSliver) as refused:
            drivers(make_site()).network.check("red", interface(**asked))

        assert refused.value.field == f"interface.{field}"

    def test_without_ipv6_has_no_address_of_it(self, make_site: Any) -> None:
        with pytest.raises(InvalidSliver, match="has no IPv6"):
            drivers(make_site()).network.check("small", interface(ipv6="fd20:2::5/64"))

    def test_that_a_router_connects_has_floating_ips(self, make_site: Any) -> None:
        site = make_site(openstack=CLOUD, networks={"red": ROUTED})

        drivers(site).network.check("red", interface(floating_ip=True))
        port = drivers(site).network.create_port("s1", "nic", "red", interface(floating_ip=True))

        assert port.floating_ip

    @pytest.mark.parametrize("absent", ["physical_network", "router"])
    def test_that_no_router_connects_has_none(self, make_site: Any, absent: str) -> None:
        red = {name: value for name, value in ROUTED.items() if name != absent}
        site = make_site(openstack=CLOUD, networks={"red": red})

        with pytest.raises(InvalidSliver, match="no router") as refused:
            drivers(site).network.check("red", interface(floating_ip=True))

        assert refused.value.field == "interface.floating_ip"

    def test_that_the_site_does_not_have_has_no_port(self, make_site: Any) -> None:
        with pytest.raises(InvalidSliver) as refused:
            drivers(make_site()).network.create_port("s1", "nic", "green", interface())

        assert refused.value.field == "network"

    def test_makes_no_port_that_it_refuses(self, make_site: Any) -> None:
        network = drivers(make_site()).network

        with pytest.raises(InvalidSliver, match="reserved"):
            network.create_port("s1", "nic", "red", interface(ipv4="10.20.1.1/24"))

        assert network.ports("s1") == ()

    def test_refuses_to_others_what_is_held(self, make_site: Any) -> None:
        network, asked = drivers(make_site()).network, interface(ipv4="10.20.1.9/24")
        network.create_port("s1", "nic", "red", asked)

        network.check("red", asked, "s1")
        network.check("red", asked)
        with pytest.raises(InvalidSliver, match="it is held for s1/nic on red") as refused:
            network.check("red", asked, "s2")

        assert refused.value.field == "interface.ipv4"

    def test_holds_one_port_for_a_nic(self, make_site: Any) -> None:
        network = drivers(make_site()).network
        network.create_port("s1", "nic", "red", interface())

        with pytest.raises(Conflict, match="another port"):
            network.create_port("s1", "nic", "small", interface())
        with pytest.raises(Conflict, match="another port"):
            network.create_port("s1", "nic", "red", interface(ipv4="10.20.1.77/24"))

    def test_gives_an_address_of_each_family(self, make_site: Any) -> None:
        port = drivers(make_site()).network.create_port(
            "s1", "nic", "red", interface(mac="52:54:00:00:00:07")
        )

        assert (str(port.ipv4), str(port.ipv6)) == ("10.20.1.2/24", "fd20:1::5054:ff:fe00:7/64")

    def test_gives_the_addresses_of_its_pool_alone(self, make_site: Any) -> None:
        network = drivers(make_site()).network
        made = [network.create_port("s1", f"nic{n}", "small", interface()) for n in range(2)]

        with pytest.raises(PoolExhausted):
            network.create_port("s1", "nic2", "small", interface())

        assert [str(port.ipv4) for port in made] == ["10.20.2.10/24", "10.20.2.11/24"]

    def test_whose_name_something_else_has_is_left_alone(self, make_site: Any) -> None:
        site = make_site()
        substrate(site, "localhost").foreign.add("red")

        with pytest.raises(NotOurs, match="red"):
            drivers(site).network.check("red", interface())
        with pytest.raises(NotOurs, match="red"):
            drivers(site).network.create_port("s1", "nic", "red", interface())


class TestANetworkSliver:
    ON = {"strategy": "vlan", "vlan": 101, "physical_network": "physnet1", "subnet": "10.30.0.0/24"}

    @pytest.mark.parametrize(
        ("settings", "field"),
        [
            ({"physical_network": None, "uplink": "eth0"}, "physical_network"),
            ({"router": True}, "router"),
            ({"pool": ["10.30.0.5", "10.30.0.5"], "dns": ["10.30.0.5"]}, "pool"),
        ],
        ids=["no physical network", "a router to nowhere", "no address to give out"],
    )
    def test_that_no_cloud_can_make_is_refused(
        self, make_site: Any, settings: dict[str, Any], field: str
    ) -> None:
        network = {"id": "net-1", "name": "lan", "network": self.ON | settings}

        with pytest.raises(InvalidSliver) as refused:
            FakeService(make_site(), "").check(NetworkSliver.model_validate(network))

        assert refused.value.field == f"network.{field}"


def node(**values: Any) -> NodeSliver:
    defaults = {"id": "s1", "name": "node", "image": "tiny"}
    size = {"core": 1, "ram": 1, "disk": 1}
    return NodeSliver.model_validate(defaults | {"capacities": size} | values)


class TestAServer:
    def test_has_an_image_of_the_site(self, make_site: Any) -> None:
        compute, image = drivers(make_site()).compute, Image("other", "root")

        for call in (
            lambda: compute.check(node(image="other"), image),
            lambda: compute.image_needs(image),
            lambda: compute.create(ServerSpec(node(image="other"), image)),
        ):
            with pytest.raises(InvalidSliver, match="no image 'other'") as refused:
                call()
            assert refused.value.field == "image"

        assert compute.servers() == ()

    def test_whose_name_something_else_has_is_left_alone(self, make_site: Any) -> None:
        site = make_site()
        substrate(site, "localhost").foreign.add("s1-node")

        with pytest.raises(NotOurs, match="s1-node"):
            drivers(site).compute.create(ServerSpec(node(), Image("tiny", "root")))

    def test_that_is_not_there_has_nothing_to_unplug(self, make_site: Any) -> None:
        compute = drivers(make_site()).compute

        compute.detach_volume("s1", "data", timeout=1)
        compute.detach_port("s1", "nic", timeout=1)


def test_a_volume_of_another_size_is_not_taken_for_it(make_site: Any) -> None:
    volume = drivers(make_site()).volume
    volume.create("s1", "data", 1)

    with pytest.raises(NotVerified, match="has 1 GiB, not 2"):
        volume.create("s1", "data", 2)


class TestTheAllowList:
    """``hosts.….devices``: nothing else is allowed, and what it names is there."""

    @pytest.fixture
    def site(self, make_site: Any) -> Site:
        return make_site(
            hosts={"localhost": {"devices": ALLOWED}},
            fake={"hosts": {"localhost": {"gpus": 1, "vfs": 2}}},
        )

    def test_what_it_names_is_there_and_free(self, site: Site) -> None:
        states = {d.address: (d.state, d.type, d.model) for d in drivers(site).functions()}

        assert states[GPU] == (DeviceState.FREE, "GPU", "A30")
        assert states[VF] == (DeviceState.FREE, "SharedNIC", None)
        drivers(site).devices["GPU"].check(Gpu(id="gpu", bdf=(GPU,)), DeviceDomain("s1"))
        drivers(site).devices["SharedNIC"].check(SharedNic(id="vf", bdf=(VF,)), DeviceDomain("s1"))

    def test_nothing_else_is_allowed(self, site: Site) -> None:
        unlisted = PciAddress.parse("40:00.0")  # the substrate's own GPU
        states = {d.address: d.state for d in drivers(site).functions()}

        assert states[unlisted] is DeviceState.NOT_ALLOWED
        with pytest.raises(InvalidSliver, match=r"40:00\.0 is not allowed as GPU") as refused:
            drivers(site).devices["GPU"].check(Gpu(id="gpu", bdf=(unlisted,)), DeviceDomain("s1"))
        assert refused.value.field == "bdf[0]"
        assert refused.value.where == "site.yaml: hosts.localhost.devices"

    @pytest.mark.parametrize(
        "component",
        [Gpu(id="gpu", model="Tesla-T4", bdf=(GPU,)), SharedNic(id="vf", bdf=(GPU,))],
        ids=["model", "type"],
    )
    def test_a_device_is_allowed_as_what_it_says(self, site: Site, component: Any) -> None:
        with pytest.raises(InvalidSliver, match="it allows it as GPU A30"):
            drivers(site).devices[component.type].check(component, DeviceDomain("s1"))

    def test_without_one_what_the_site_gives_a_host_in_memory_is_allowed(
        self, make_site: Any
    ) -> None:
        site = make_site(fake={"hosts": {"localhost": {"gpus": 1, "vfs": 1}}})
        gpu = Gpu(id="gpu", bdf=(PciAddress.parse("40:00.0"),))

        drivers(site).devices["GPU"].check(gpu, DeviceDomain("s1"))
        drivers(site).devices["SharedNIC"].check(SharedNic(id="vf", bdf=(VF,)), DeviceDomain("s1"))

    def test_without_one_nothing_else_is_allowed(self, make_site: Any) -> None:
        site = make_site()
        function = PciFunction(GPU, "10de", "20b7")
        substrate(site, "localhost").devices[GPU] = HostDevice(function, DeviceState.FREE)

        with pytest.raises(InvalidSliver, match=r"25:00\.0 is not allowed as GPU"):
            drivers(site).devices["GPU"].check(Gpu(id="gpu", bdf=(GPU,)), DeviceDomain("s1"))
        assert [d.state for d in drivers(site).functions()] == [DeviceState.NOT_ALLOWED]

    def test_what_is_not_there_is_refused(self, site: Site) -> None:
        with pytest.raises(InvalidSliver, match="there is no PCI function") as refused:
            drivers(site).devices["GPU"].check(Gpu(id="gpu", bdf=(OTHER,)), DeviceDomain("s1"))

        assert refused.value.field == "bdf[0]"


def test_substrates_of_tests_keep_their_own_images(fakes: Substrate, fake_site: Site) -> None:
    fakes.images = {"mine"}

    with pytest.raises(InvalidSliver):
        drivers(fake_site).compute.check(node(), Image("tiny", "root"))


def test_who_listens_to_a_host_stays_behind_when_it_goes_to_another_process(
    fakes: Substrate,
) -> None:
    fakes.listeners.tries = 3

    carried = copy.copy(fakes.listeners)  # by what pickle asks for, too

    assert carried.tries == 0


class TestAFaultThatIsMisspelled:
    """A test that asks for it is told at once, not when it ends."""

    @pytest.mark.parametrize(
        ("method", "meant"),
        [
            ("compute.creat", ", did you mean 'compute.create'?"),
            ("uplink.make", ": uplink has bridge_mode, set_bridge_mode, set_vf, vfs"),
            (
                "nothing.*",
                ": drivers are compute, device, guest, host, network, service, tuning, uplink, volume",
            ),
        ],
    )
    def test_by_its_method(self, fakes: Substrate, method: str, meant: str) -> None:
        said = re.escape(f"no fake driver has the method {method!r}{meant}")
        with pytest.raises(ValueError, match=f"^{said}$"):
            fakes.fault(method, kind="fail")

    def test_by_its_kind(self, fakes: Substrate) -> None:
        wrong: Any = "failed"
        with pytest.raises(ValueError, match=r"there is no fault 'failed', did you mean 'fail'\?"):
            fakes.fault("compute.create", kind=wrong)

    def test_by_its_number(self, fakes: Substrate) -> None:
        with pytest.raises(
            ValueError, match="there is no call -1: 1 is the first, 0 is every call"
        ):
            fakes.fault("compute.create", at=-1, kind="fail")


def test_only_a_server_loses_devices(fakes: Substrate) -> None:
    with pytest.raises(ValueError, match="no server of 'sliver-1'"):
        fakes.lose_devices("sliver-1")


def test_what_a_server_was_pinned_to_is_free_when_it_is_gone(
    fakes: Substrate, fake_site: Site
) -> None:
    driver = drivers(fake_site)
    assert driver.tuning
    gone, other = ServerSpec(node(id="gone"), Image("tiny", "root")), node(id="other")
    driver.compute.create(gone)
    instance = fakes.servers["gone"].instance
    driver.tuning.pin_cpus(instance, {0: 1})
    driver.tuning.set_numa_nodes(instance, frozenset({1}))

    driver.compute.delete("gone")

    driver.compute.create(ServerSpec(other, Image("tiny", "root")))
    assert driver.tuning.cpu_info(fakes.servers["other"].instance)["pinned"] == []
    driver.compute.create(gone)
    assert driver.tuning.numa_info(instance)["node_set"] == ""
