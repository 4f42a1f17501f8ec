"""What pictures show: hosts, slivers and sites as values, read by a processor."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from fabric_direct.drivers.contract import HostDevice, PciFunction
from fabric_direct.drivers.fake import Substrate
from fabric_direct.errors import NotFound
from fabric_direct.model import DeviceState, NodeSliver, PciAddress, SliverRef
from fabric_direct.model.networks import NetworkSliver
from fabric_direct.model.services import SERVICES, AnyService, NetworkService
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from fabric_direct.topology import (
    HostTopology,
    SiteTopology,
    SliverTopology,
    host_topology,
    site_topology,
    sliver_topology,
)
from fabric_direct.topology.values import Function, Join, Network, Nic, ServiceConnection, Vm
from tests.outcomes import done
from tests.trust.clock import skipping_faults
from tests.unit.several_hosts import processor, w1, w2

__all__ = ["processor", "w1", "w2"]

GPU, AUDIO, DRIVE, CARD = map(PciAddress.parse, ("25:00.0", "25:00.1", "c1:00.0", "41:00.0"))
DEVICES = [
    {"type": "GPU", "model": "A30", "bdf": str(GPU)},
    {"type": "GPU", "model": "A30", "bdf": str(AUDIO)},
    {"type": "NVME", "bdf": str(DRIVE)},
    {"type": "SharedNIC", "model": "CX6", "uplink": "ens1", "vepa": True},
]
SWITCHES = {
    "sw1": {"ports": {"t1": {"tap": True}, "t2": {"tap": True}, "p4": {}}, "host": "w1"},
    "sw2": {"ports": {"nic": {"host": "w2", "bdf": str(CARD)}}},
}
EACH = ("vNIC", "Storage", "GPU", "SmartNIC", "SharedNIC", "FPGA", "NVME", *SERVICES)


def equipped(fake_site: Site) -> Site:
    values = fake_site.model_dump() | {
        "drivers": {"VM": "fake"} | dict.fromkeys(EACH, "fake"),
        "hosts": {
            "w1": {"devices": DEVICES},
            "w2": {"devices": [{"type": "SmartNIC", "bdf": str(CARD)}], "maintenance": "new disks"},
        },
        "switches": SWITCHES,
        "services": {"subnets": {"FABNetv4": {"block": "10.128.0.0/16", "prefix": 24}}},
        "fake": {"hosts": {"w1": {"vfs": 4}}},
    }
    return Site.model_validate(values)


@pytest.fixture
def site(fake_site: Site) -> Site:
    return equipped(fake_site)


def node(sliver: str, host: str, *components: dict[str, Any]) -> NodeSliver:
    size = {"core": 2, "ram": 4, "disk": 1}
    values = {"id": sliver, "name": f"node-{sliver}", "host": host, "image": "tiny"}
    return NodeSliver.model_validate({**values, "capacities": size, "components": components})


def vnic(name: str, network: str, **interface: Any) -> dict[str, Any]:
    return {"type": "vNIC", "id": name, "network": network, "interface": interface}


def to(service: str, interface: str) -> dict[str, Any]:
    return {"service": {"id": service, "interface": interface}}


def service(kind: str, name: str, *interfaces: dict[str, Any], **more: Any) -> NetworkService:
    values = {"type": kind, "id": name, "name": name, "interfaces": interfaces, **more}
    return AnyService.model_validate(values).root


VF = {"type": "SharedNIC", "id": "vf", "bdf": ["a1:00.1"], "interface": {"vlan": 304}}
GPUS = {"type": "GPU", "id": "gpu", "model": "A30", "bdf": [str(GPU), str(AUDIO)]}
LEFT = node(
    "left",
    "w1",
    vnic("data", "sw1", mac="52:54:00:77:00:01"),
    vnic("routed", "sw1", **to("west", "left")),
    vnic("mgmt", "red"),
    VF,
    GPUS,
    {"type": "Storage", "id": "disk", "size": 5},
)
SMART = {"type": "SmartNIC", "id": "card", "bdf": [str(CARD)], "interfaces": [to("seg", "right")]}
RIGHT = node("right", "w2", SMART, vnic("mgmt", "red"))
SEGMENT = service(
    "L2STS",
    "seg",
    {"id": "left", "attach": {"sliver": "left", "component": "data"}},
    {"id": "right", "device": "sw2", "port": "nic", "vlan": 102, "bandwidth": 16},
    {"id": "cable", "device": "sw1", "port": "p4"},
)
WEST = service(
    "FABNetv4",
    "west",
    {"id": "left", "device": "sw1", "port": "t2", "address": "10.128.1.2/24"},
    gateway={"address": "10.128.1.1/24"},
)


def inhabited(processor: HandlerProcessor) -> None:
    """Make two VMs on two hosts, with a segment between them and a routed network."""
    for future in processor.create_all([LEFT, RIGHT, SEGMENT, WEST]):
        done(future.result())


@pytest.fixture
def living(processor: HandlerProcessor) -> HandlerProcessor:
    """The site with its slivers, to be changed."""
    inhabited(processor)
    return processor


class Shown(NamedTuple):
    """What is shown of the site with its slivers."""

    host: HostTopology
    left: SliverTopology
    both: SliverTopology
    segment: SliverTopology
    west: SliverTopology
    site: SiteTopology


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """Read once: what is shown are values."""
    network = {"strategy": "flat_dhcp", "subnet": "10.20.1.0/24"}
    state = tmp_path_factory.mktemp("site")
    plain = Site(
        site="TEST",
        state_dir=state,
        guest="fake",
        images={"tiny": {}},
        networks={"red": network},
    )
    with HandlerProcessor(equipped(plain)) as processor:
        inhabited(processor)
        asked = (["left"], ["left", "right"], ["seg"], ["west"])
        slivers = [sliver_topology(processor, each) for each in asked]
        return Shown(host_topology(processor, "w1"), *slivers, site_topology(processor))


def functions(of: HostTopology) -> Iterator[Function]:
    yield from (f for n in of.nodes for b in n.buses for s in b.slots for f in s.functions)


class TestAHost:
    def test_has_its_functions_by_numa_node_bus_and_slot(self, shown: Shown) -> None:
        found = shown.host

        buses = {n.number: [(b.name, str(b.bridge)) for b in n.buses] for n in found.nodes}
        assert buses == {
            0: [("0000:25", "0000:00:04.5"), ("0000:a0", "0000:00:14.0")],
            1: [("0000:c1", "0000:00:18.1")],
        }
        (gpu, _), _ = (node.buses for node in found.nodes)
        assert [f.device.address for f in gpu.slots[0].functions] == [GPU, AUDIO]

    def test_has_vfs_below_their_pf(self, shown: Shown) -> None:
        (nic,) = [f for f in functions(shown.host) if f.vfs]

        assert nic.device.function.links == ("ens1",)
        assert [vf.function.vf for vf in nic.vfs] == [0, 1, 2, 3]
        assert [vf.owner for vf in nic.vfs] == [None, "left/vf", None, None]

    def test_says_who_has_what(self, shown: Shown) -> None:
        found = shown.host

        assert [(b.owner, b.component, [*map(str, b.addresses)]) for b in found.belongings] == [
            ("left", "gpu", [str(GPU), str(AUDIO)]),
            ("left", "vf", ["0000:a1:00.1"]),
        ]
        assert found.states == {"free": 4, "used": 3, "not allowed": 1}

    def test_leaves_bridges_and_the_like_out_and_counts_them(
        self, processor: HandlerProcessor, w1: Substrate
    ) -> None:
        port = PciFunction(PciAddress.parse("00:01.0"), "8086", "a2b0", kind="060400")
        w1.devices[port.address] = HostDevice(port, DeviceState.NOT_ALLOWED)

        found = host_topology(processor, "w1")

        assert found.others == 1
        assert port.address not in {f.device.address for f in functions(found)}

    def test_has_devices_on_no_numa_node_last(
        self, processor: HandlerProcessor, w1: Substrate
    ) -> None:
        there = w1.devices[GPU]
        w1.devices[GPU] = replace(there, function=replace(there.function, numa_node=None))

        assert [node.number for node in host_topology(processor, "w1").nodes] == [0, 1, None]

    def test_that_does_not_answer_is_said_to_be_silent(
        self, processor: HandlerProcessor, w1: Substrate
    ) -> None:
        w1.hang()
        with skipping_faults():
            found = host_topology(processor, "w1")

        assert "did not answer" in found.silent
        assert found.nodes == ()

    def test_that_is_unknown_is_not_found(self, processor: HandlerProcessor) -> None:
        with pytest.raises(NotFound, match="known: w1, w2"):
            host_topology(processor, "w9")


def vm_of(found: SliverTopology, sliver: str) -> Vm:
    return next(vm for vm in found.vms if vm.id == sliver)


def nic_of(found: SliverTopology, sliver: str, component: str) -> Nic:
    return next(nic for nic in vm_of(found, sliver).nics if nic.component == component)


def network_of(found: SliverTopology | SiteTopology, key: str) -> Network:
    return next(network for network in found.networks if network.key == key)


class TestAVm:
    def test_has_its_parts(self, shown: Shown) -> None:
        vm = vm_of(shown.left, "left")

        assert (vm.name, vm.state, vm.host, vm.cores, vm.ram) == (
            "node-left",
            "running",
            "w1",
            2,
            4096,
        )
        assert [nic.component for nic in vm.nics] == ["data", "routed", "mgmt", "vf"]
        assert [(d.component, d.pci) for d in vm.devices] == [("gpu", (GPU, AUDIO))]
        assert [(v.component, v.size, v.target) for v in vm.volumes] == [("disk", 5, "vdb")]
        assert vm.notes == ()

    def test_has_addresses_as_observed(self, shown: Shown) -> None:
        found = shown.left

        assert nic_of(found, "left", "mgmt").addresses == ("10.20.1.2/24",)
        assert nic_of(found, "left", "routed").addresses == ("10.128.1.2/24",)

    def test_has_vfs_with_vlan_uplink_and_its_mode(self, shown: Shown) -> None:
        vf = nic_of(shown.left, "left", "vf")

        assert (vf.vlan, vf.uplink, vf.bridge_mode, vf.joins) == (304, "ens1", "vepa", ())

    def test_meets_services_whichever_end_names_the_other(self, shown: Shown) -> None:
        found = shown.both

        assert nic_of(found, "left", "data").joins == (Join(network="seg", interface="left"),)
        assert nic_of(found, "left", "routed").joins == (Join(network="west", interface="left"),)
        assert nic_of(found, "right", "card").joins == (Join(network="seg", interface="right"),)
        assert nic_of(found, "right", "mgmt").joins == (Join(network="network red"),)

    def test_is_shown_with_the_other_ends_of_its_services(self, shown: Shown) -> None:
        found = shown.left

        other = vm_of(found, "right")
        assert not other.asked
        assert [nic.component for nic in other.nics] == ["card"]
        assert [(n.key, n.type) for n in found.networks] == [
            ("seg", "L2STS"),
            ("west", "FABNetv4"),
            ("network red", "network"),
        ]

    def test_that_differs_from_its_stamp_says_so(self, living: HandlerProcessor) -> None:
        done(living.poa(SliverRef(id="right"), "stop").result())

        vm = vm_of(sliver_topology(living, ["right"]), "right")

        assert (vm.state, vm.notes) == ("stopped", ("the server is stopped, not running",))

    def test_that_a_service_names_and_is_gone_is_said_to_be_absent(
        self, living: HandlerProcessor, w1: Substrate
    ) -> None:
        del w1.servers["left"]

        gone = vm_of(sliver_topology(living, ["seg"]), "left")

        assert (gone.state, gone.notes) == ("absent", ("a service names it, and it is not there",))

    def test_that_is_unknown_is_not_found(self, living: HandlerProcessor) -> None:
        known = "hosts: w1, w2; slivers: left, right, seg, west"
        with pytest.raises(NotFound, match=f"no host or sliver 'nobody'.*{known}"):
            sliver_topology(living, ["left", "nobody"])

    def test_that_may_be_on_a_host_that_hangs_is_said_to_be_unknown(
        self, living: HandlerProcessor, w2: Substrate
    ) -> None:
        w2.hang()
        with skipping_faults():
            found = sliver_topology(living, ["left", "right"])

        assert [*found.silent] == ["w2"]
        assert vm_of(found, "left").state == "running"
        assert vm_of(found, "right").notes == ("not found; no answer from w2",)


class TestAService:
    def test_has_its_interfaces_with_their_ends(self, shown: Shown) -> None:
        segment = network_of(shown.segment, "seg")

        at_left = {"device": "sw1", "port": "t1", "mac": "52:54:00:77:00:01"}
        assert segment.asked
        assert segment.interfaces == (
            ServiceConnection(id="left", **at_left, sliver="left", component="data"),
            ServiceConnection(
                id="right", device="sw2", port="nic", vlan=102, bandwidth=16
            ).model_copy(update={"sliver": "right", "component": "card"}),
            ServiceConnection(id="cable", device="sw1", port="p4"),
        )

    def test_that_routes_has_its_gateway(self, shown: Shown) -> None:
        west = network_of(shown.west, "west")

        assert west.gateway == "10.128.1.1/24"
        assert [interface.address for interface in west.interfaces] == ["10.128.1.2/24"]

    def test_that_a_vm_names_and_is_gone_is_said_to_be_so(
        self, living: HandlerProcessor, w1: Substrate
    ) -> None:
        del w1.services["west"]

        assert network_of(sliver_topology(living, ["left"]), "west").notes == ("it is not there",)

    def test_that_a_vm_names_and_could_not_be_looked_for_is_said_to_be_so(
        self, living: HandlerProcessor, w1: Substrate
    ) -> None:
        w1.fault("service.stamped", at=0, kind="fail")

        west = network_of(sliver_topology(living, ["left"]), "west")

        assert west.notes == ("not found; not all services could be listed",)


class TestANetworkThatIsASliver:
    def test_is_met_by_the_nics_that_name_it(self, processor: HandlerProcessor) -> None:
        private = {"strategy": "flat_dhcp", "subnet": "10.30.0.0/24", "physical_network": "phys"}
        values = {"id": "net", "name": "private", "network": private}
        vm = node("vm", "w1", vnic("nic", "private"))
        for future in processor.create_all([NetworkSliver.model_validate(values), vm]):
            done(future.result())

        found = sliver_topology(processor, ["vm"])

        assert nic_of(found, "vm", "nic").joins == (Join(network="net"),)
        (network,) = found.networks
        assert (network.type, network.name, network.subnets) == (
            "L2Bridge",
            "private",
            ("10.30.0.0/24",),
        )


class TestASite:
    def test_has_its_hosts_with_slivers_and_devices(self, shown: Shown) -> None:
        first, second = shown.site.hosts

        assert [(s.id, s.state, s.nics, s.devices) for s in first.slivers] == [
            ("left", "running", 3, 2)
        ]
        assert [(d.type, d.free, d.used, d.unfit) for d in first.devices] == [
            ("GPU", 0, 2, 0),
            ("NVME", 1, 0, 0),
            ("SharedNIC", 3, 1, 0),
        ]
        assert (second.name, second.maintenance) == ("w2", "new disks")

    def test_has_the_networks_between_slivers(self, shown: Shown) -> None:
        found = shown.site

        assert [network.key for network in found.networks] == ["seg", "west", "network red"]
        met = {s.id: sorted(s.networks) for host in found.hosts for s in host.slivers}
        assert met == {"left": ["network red", "seg", "west"], "right": ["network red", "seg"]}

    def test_counts_what_differs(self, living: HandlerProcessor, w1: Substrate) -> None:
        w1.servers["left"] = replace(w1.servers["left"], ports=w1.servers["left"].ports[:2])

        (left,) = site_topology(living).hosts[0].slivers

        assert left.differences == 1

    def test_has_a_host_that_hangs_as_silent_and_the_others_whole(
        self, living: HandlerProcessor, w2: Substrate
    ) -> None:
        w2.hang()
        with skipping_faults():
            first, second = site_topology(living).hosts

        assert "did not answer" in second.silent
        assert second.slivers == ()
        assert [sliver.id for sliver in first.slivers] == ["left"]

    def test_names_the_services_whose_driver_does_not_answer(
        self, living: HandlerProcessor, w1: Substrate
    ) -> None:
        w1.fault("service.stamped", at=0, kind="fail")

        (kinds,) = site_topology(living).silent

        assert kinds.split(", ") == [*SERVICES]
