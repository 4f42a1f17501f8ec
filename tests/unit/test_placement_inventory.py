"""The hosts of a site as placement sees them, from what the drivers say."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fabric_direct.calls.deadline import Deadline
from fabric_direct.drivers.contract import HostDevice, HostInventory, PciFunction
from fabric_direct.drivers.fake import FakeCompute, Substrate, substrate
from fabric_direct.errors import Denied
from fabric_direct.handlers.registry import host_drivers
from fabric_direct.model import DeviceState, NodeSliver, PciAddress, Status
from fabric_direct.placement.inventory import DriversOf, Inventory, host_states
from fabric_direct.placement.state import FreeDevice, HostState, NumaNode
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.conftest import FAKE_DRIVERS

A30 = {"type": "GPU", "model": "A30"}
MakeSite = Callable[..., Site]


def address(text: str) -> PciAddress:
    return PciAddress.parse(text)


def bounded(site: Site, limit: float = 5.0) -> DriversOf:
    """The site's drivers, bounded as they are in an operation."""
    return lambda host: host_drivers(site, host).within(Deadline.within(30), limit)


def read(site: Site) -> Inventory:
    return host_states(site, bounded(site))


def the_host(site: Site) -> HostState:
    (host,) = read(site).hosts
    return host


@pytest.fixture
def make_site(tmp_path: Path) -> MakeSite:
    """Make a site of hosts in memory, one unless more are given."""

    def make(**values: Any) -> Site:
        usual = {"site": "TEST", "state_dir": tmp_path, "drivers": FAKE_DRIVERS, "guest": "fake"}
        usual["images"] = {"tiny": {}}
        return Site.model_validate({**usual, "hosts": {"w1": {}}, **values})

    return make


@pytest.fixture
def things(make_site: MakeSite) -> Substrate:
    """The one host of a site, in memory."""
    return substrate(make_site(), "w1")


def vm(**values: Any) -> NodeSliver:
    given = {
        "id": "vm-1",
        "name": "node1",
        "image": "tiny",
        "capacities": {"core": 4, "ram": 8, "disk": 10},
    }
    return NodeSliver.model_validate(given | values)


# --- sizes


def test_a_host_in_memory_is_as_the_site_says(make_site: MakeSite) -> None:
    host = {"cores": 5, "ram": 10, "disk": 100, "traits": ["CUSTOM_FAST"]}

    found = the_host(make_site(fake={"hosts": {"w1": host}}))

    assert found == HostState(
        name="w1",
        cores=5,
        ram=10,
        disk=100,
        numa_nodes=(NumaNode(0, 3, 5.0, {0: 10, 1: 20}), NumaNode(1, 2, 5.0, {0: 20, 1: 10})),
        architectures=frozenset({"x86_64"}),
        traits=frozenset({"CUSTOM_FAST"}),
    )


def test_what_servers_and_volumes_take_is_used_and_their_slivers_are_told(
    make_site: MakeSite,
) -> None:
    site = make_site()
    sliver = vm(owner="physics", components=[{"id": "data", "type": "Storage", "size": 7}])

    with HandlerProcessor(site) as processor:
        assert processor.create(sliver).result().status is Status.DONE

    found = the_host(site)
    assert (found.cores_used, found.ram_used, found.disk_used) == (4, 8, 17)
    assert found.slivers == {"vm-1": "physics"}


def test_images_are_those_that_the_host_has(make_site: MakeSite, things: Substrate) -> None:
    assert the_host(make_site()).images is None

    things.images = {"tiny"}

    assert the_host(make_site()).images == {"tiny"}


def test_mib_become_gib(make_site: MakeSite, told: Callable[..., None]) -> None:
    told(HostInventory("w1", 8, 2048 + 512, 100, ram_used=256))

    found = the_host(make_site())

    assert (found.ram, found.ram_used) == (2.5, 0.25)


def test_the_sites_ratios_count_where_the_api_has_none(
    make_site: MakeSite, told: Callable[..., None]
) -> None:
    told(HostInventory("w1", 8, 2048, 100, cpu_ratio=16.0))

    found = the_host(make_site(placement={"allocation": {"cpu": 4, "ram": 1.5, "disk": 2}}))

    assert (found.cpu_ratio, found.ram_ratio, found.disk_ratio) == (16.0, 1.5, 2.0)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Say what the compute driver tells; that of a cloud tells of all hosts."""

    def tell(*inventories: HostInventory, cloud: bool = False) -> None:
        monkeypatch.setattr(FakeCompute, "inventory", lambda _: inventories)
        monkeypatch.setattr(FakeCompute, "cloud", cloud)

    return tell


# --- what the site adds


def test_a_host_has_the_sites_traits_beside_its_own(make_site: MakeSite) -> None:
    hosts = {"w1": {"traits": ["CUSTOM_RACK_7"]}}

    found = the_host(make_site(hosts=hosts, fake={"hosts": {"w1": {"traits": ["CUSTOM_X"]}}}))

    assert found.traits == {"CUSTOM_RACK_7", "CUSTOM_X"}


def test_a_host_in_maintenance_is_not_enabled_and_says_why(make_site: MakeSite) -> None:
    found = the_host(make_site(hosts={"w1": {"maintenance": "new fans"}}))

    assert (found.enabled, found.why_disabled) == (False, "new fans")


def test_what_the_api_has_disabled_stays_so(make_site: MakeSite, told: Callable[..., None]) -> None:
    told(HostInventory("w1", 8, 2048, 100, enabled=False, why_disabled="it burns"))

    found = the_host(make_site())

    assert (found.enabled, found.why_disabled) == (False, "it burns")


# --- devices


def test_gpus_and_vfs_of_a_host_in_memory_are_free(make_site: MakeSite) -> None:
    found = the_host(make_site(fake={"hosts": {"w1": {"gpus": 2, "vfs": 2}}}))

    assert found.devices == (
        FreeDevice("GPU", (address("40:00.0"),), "A30", numa_node=0),
        FreeDevice("GPU", (address("41:00.0"),), "A30", numa_node=1),
        FreeDevice("SharedNIC", (address("a1:00.0"),), None, 0, "ens1", vepa=True),
        FreeDevice("SharedNIC", (address("a1:00.1"),), None, 0, "ens1", vepa=True),
    )


def test_a_device_that_a_sliver_has_is_not_free_until_it_is_clean(make_site: MakeSite) -> None:
    site = make_site(fake={"hosts": {"w1": {"gpus": 2}}})
    gpu = {**A30, "id": "gpu", "bdf": ["40:00.0"]}

    with HandlerProcessor(site) as processor:
        assert processor.create(vm(components=[gpu])).result().status is Status.DONE
        assert functions(the_host(site)) == [("0000:41:00.0",)]

        substrate(site, "w1").dirty.add(address("40:00.0"))
        processor.delete(vm().ref()).result()
        assert functions(the_host(site)) == [("0000:41:00.0",)]

        processor.release("w1", address("40:00.0"), force=True)
        assert functions(the_host(site)) == [("0000:40:00.0",), ("0000:41:00.0",)]


def functions(host: HostState) -> list[tuple[str, ...]]:
    return [tuple(map(str, device.functions)) for device in host.devices]


def device(text: str, state: DeviceState = DeviceState.FREE, **values: Any) -> HostDevice:
    """A function of a GPU of one model, unless something else is said."""
    about = {key: values.pop(key) for key in ("physical", "numa_node") if key in values}
    given = {"peers": tuple(map(address, values.pop("peers", ())))}
    function = PciFunction(address(text), "10de", "20b7", **about)
    return HostDevice(function, state, **{**A30, **given, **values})


LISTED = {
    "w1": {
        "devices": [
            *({**A30, "bdf": f"{at}.0"} for at in ("40:00", "40:01", "41:00", "42:00", "43:00")),
            {**A30, "bdf": "40:00.1"},
            {"type": "SmartNIC", "bdf": "44:00.0"},
            {"type": "SmartNIC", "bdf": "44:00.1"},
            {"type": "SharedNIC", "uplink": "ens1"},
        ]
    }
}
"""The allow-list of what tests put into the host."""


def has(things: Substrate, *devices: HostDevice) -> None:
    things.devices = {each.address: each for each in devices}


def test_all_functions_of_a_type_and_model_in_one_slot_are_one_device(
    make_site: MakeSite, things: Substrate
) -> None:
    has(
        things,
        device("40:00.1"),
        device("40:00.0"),
        device("40:01.0"),
        device("44:00.0", type="SmartNIC", model=None),
        device("44:00.1", type="SmartNIC", model=None),
    )

    assert functions(the_host(make_site(hosts=LISTED))) == [
        ("0000:40:00.0", "0000:40:00.1"),
        ("0000:40:01.0",),
        ("0000:44:00.0", "0000:44:00.1"),
    ]


def test_vfs_of_one_slot_are_devices_each_of_its_own(
    make_site: MakeSite, things: Substrate
) -> None:
    vf = {"type": "SharedNIC", "model": None, "physical": address("a0:00.0"), "uplink": "ens1"}
    has(things, device("a1:00.0", **vf), device("a1:00.1", DeviceState.USED, **vf))

    assert functions(the_host(make_site(hosts=LISTED))) == [("0000:a1:00.0",)]


def test_vfs_that_the_allow_list_names_one_by_one_are_devices_each_of_its_own(
    make_site: MakeSite,
) -> None:
    """A host in memory has them as they are listed, and knows no PF."""
    vfs = [{"type": "SharedNIC", "bdf": f"a1:00.{n}"} for n in (2, 3)]

    host = the_host(make_site(hosts={"w1": {"devices": vfs}}))

    assert functions(host) == [("0000:a1:00.2",), ("0000:a1:00.3",)]


@pytest.mark.parametrize("state", [state for state in DeviceState if state != DeviceState.FREE])
def test_a_device_one_of_whose_functions_is_not_free_is_not_offered(
    make_site: MakeSite, things: Substrate, state: DeviceState
) -> None:
    has(things, device("40:00.0"), device("40:00.1", state), device("41:00.0"))

    assert functions(the_host(make_site(hosts=LISTED))) == [("0000:41:00.0",)]


def test_a_device_whose_iommu_group_is_in_use_is_not_offered(
    make_site: MakeSite, things: Substrate
) -> None:
    has(
        things,
        device("40:00.0", peers=["41:00.0"]),
        device("41:00.0", DeviceState.USED, peers=["40:00.0"]),
        device("42:00.0", peers=["43:00.0"]),
        device("43:00.0", peers=["42:00.0"]),
    )

    assert functions(the_host(make_site(hosts=LISTED))) == [("0000:42:00.0",), ("0000:43:00.0",)]


def test_what_the_allow_list_does_not_name_is_no_device(
    make_site: MakeSite, things: Substrate
) -> None:
    has(things, device("40:00.0", type=None, model=None))

    assert the_host(make_site()).devices == ()


@pytest.mark.parametrize(
    ("mode", "wanted", "vepa"),
    [("vepa", False, True), ("veb", True, True), ("veb", False, False), (None, False, False)],
)
def test_an_uplink_is_in_vepa_if_it_says_so_or_the_site_wants_it(
    make_site: MakeSite, things: Substrate, mode: str | None, wanted: bool, vepa: bool
) -> None:
    vf = {"type": "SharedNIC", "model": None, "physical": address("a0:00.0"), "uplink": "ens1"}
    has(things, device("a1:00.0", **vf, bridge_mode=mode))
    entry = {"type": "SharedNIC", "uplink": "ens1", "vepa": wanted}

    (found,) = the_host(make_site(hosts={"w1": {"devices": [entry]}})).devices

    assert (found.uplink, found.vepa) == ("ens1", vepa)


# --- several hosts


def test_hosts_come_by_name(make_site: MakeSite) -> None:
    found = read(make_site(hosts={"w2": {}, "w10": {}, "w1": {}}))

    assert [host.name for host in found.hosts] == ["w1", "w10", "w2"]


def test_all_hosts_are_read_at_once(make_site: MakeSite, monkeypatch: Any) -> None:
    site, together = make_site(hosts={"w1": {}, "w2": {}, "w3": {}}), threading.Barrier(3)
    tell = FakeCompute.inventory

    def wait_for_the_others(compute: FakeCompute) -> tuple[HostInventory, ...]:
        together.wait(60)
        return tell(compute)

    monkeypatch.setattr(FakeCompute, "inventory", wait_for_the_others)

    assert len(read(site).hosts) == 3


@pytest.mark.parametrize("method", ["compute.inventory", "device.inventory"])
@pytest.mark.parametrize(("kind", "why"), [("fail", "told to"), ("hang", "did not answer")])
def test_a_host_that_does_not_answer_is_left_out_and_named(
    make_site: MakeSite, method: str, kind: Any, why: str
) -> None:
    site = make_site(hosts={"w1": {}, "w2": {}})
    substrate(site, "w1").fault(method, at=0, kind=kind)
    limits = Deadline.within(2)

    found = host_states(site, lambda host: host_drivers(site, host).within(limits, 1.0))

    substrate(site, "w1").mend()
    assert [host.name for host in found.hosts] == ["w2"]
    assert list(found.silent) == ["w1"]
    assert why in found.silent["w1"]


# --- a cloud


def test_of_a_cloud_all_hosts_are_told_by_one_question(
    make_site: MakeSite, monkeypatch: Any
) -> None:
    asked: list[str] = []

    def inventory(compute: FakeCompute) -> tuple[HostInventory, ...]:
        asked.append(compute.host)
        return HostInventory("w2", 8, 1024, 10), HostInventory("w1", 4, 1024, 10)

    monkeypatch.setattr(FakeCompute, "inventory", inventory)
    monkeypatch.setattr(FakeCompute, "cloud", True)

    found = read(make_site(hosts={"w1": {}, "w2": {}}))

    assert [(host.name, host.cores) for host in found.hosts] == [("w1", 4), ("w2", 8)]
    assert len(asked) == 1


def test_of_a_cloud_whose_hosts_the_site_does_not_name_there_are_all_without_devices(
    make_site: MakeSite, told: Callable[..., None]
) -> None:
    told(HostInventory("w7", 8, 1024, 10), cloud=True)
    fake = {"hosts": {"w7": {"gpus": 1}}}
    site = make_site(hosts={"w7": {}}, fake=fake).model_copy(update={"hosts": {}})

    found = the_host(site)

    assert (found.name, found.devices) == ("w7", ())


def test_devices_are_told_of_a_clouds_hosts_that_the_site_knows(
    make_site: MakeSite, told: Callable[..., None]
) -> None:
    told(HostInventory("w1", 8, 1024, 10), cloud=True)

    found = the_host(make_site(fake={"hosts": {"w1": {"gpus": 1}}}))

    assert functions(found) == [("0000:40:00.0",)]


def test_a_host_that_the_cloud_does_not_know_is_left_out_and_named(
    make_site: MakeSite, told: Callable[..., None]
) -> None:
    told(HostInventory("w1", 8, 1024, 10), cloud=True)

    found = read(make_site(hosts={"w1": {}, "w2": {}}))

    assert [host.name for host in found.hosts] == ["w1"]
    assert "the cloud has no host 'w2'" in found.silent["w2"]


def test_a_cloud_that_does_not_let_us_know_says_so(
    make_site: MakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(compute: FakeCompute) -> tuple[HostInventory, ...]:
        raise Denied("this user may not know")

    monkeypatch.setattr(FakeCompute, "inventory", refuse)
    monkeypatch.setattr(FakeCompute, "cloud", True)

    with pytest.raises(Denied, match="may not know"):
        read(make_site())


# --- hosts in memory refuse what they have no room for


@pytest.mark.parametrize(
    ("size", "what"), [({"core": 3}, "cores"), ({"ram": 3}, "RAM"), ({"disk": 3}, "disk")]
)
def test_a_host_in_memory_refuses_what_the_others_leave_no_room_for(
    make_site: MakeSite, size: dict[str, int], what: str
) -> None:
    site = make_site(fake={"hosts": {"w1": {"cores": 4, "ram": 4, "disk": 4}}})
    half = {"core": 2, "ram": 2, "disk": 2}

    with HandlerProcessor(site) as processor:
        first = processor.create(vm(capacities=half)).result()
        second = processor.create(vm(id="vm-2", name="node2", capacities=half | size)).result()

    assert first.status is Status.DONE
    assert second.status is Status.FAILED
    assert second.error
    assert second.error.kind == "Conflict"
    assert what in second.error.message
    assert list(substrate(site, "w1").servers) == ["vm-1"]


@pytest.mark.parametrize("flavor", [None, "large"])
def test_a_resize_that_a_host_in_memory_has_no_room_for_is_refused_and_leaves_nothing(
    make_site: MakeSite, flavor: str | None
) -> None:
    site = make_site(fake={"hosts": {"w1": {"cores": 4, "ram": 8, "disk": 10}}})
    larger = {"capacities": {"core": 5, "ram": 2, "disk": 2}}

    with HandlerProcessor(site) as processor:
        assert processor.create(vm(flavor=flavor)).result().status is Status.DONE
        (before,) = substrate(site, "w1").servers.values()
        refused = processor.poa(vm(), "resize", larger | {"flavor": flavor}).result()

    assert refused.status is Status.REFUSED
    assert refused.error
    assert refused.error.kind == "InvalidSliver"
    assert refused.error.field == ("flavor" if flavor else "capacities")
    assert "no room for 5 cores: 4 are left" in refused.error.message
    assert refused.left == ()
    assert list(substrate(site, "w1").servers.values()) == [before]


def test_a_host_in_memory_promises_as_much_as_the_sites_ratios_say(make_site: MakeSite) -> None:
    host = {"cores": 4, "ram": 4, "disk": 4}
    site = make_site(
        fake={"hosts": {"w1": host}}, placement={"allocation": {"cpu": 2, "ram": 2, "disk": 2}}
    )
    half = {"core": 4, "ram": 4, "disk": 4}

    with HandlerProcessor(site) as processor:
        slivers = [vm(id=f"vm-{n}", name=f"node{n}", capacities=half) for n in (1, 2, 3)]
        found = [processor.create(sliver).result().status for sliver in slivers]

    assert found == [Status.DONE, Status.DONE, Status.FAILED]


def test_a_server_is_created_again_on_a_host_that_it_fills(make_site: MakeSite) -> None:
    site = make_site(fake={"hosts": {"w1": {"cores": 4, "ram": 8, "disk": 10}}})

    with HandlerProcessor(site) as processor:
        found = [processor.create(vm()).result().status for _ in range(2)]

    assert found == [Status.DONE, Status.DONE]
