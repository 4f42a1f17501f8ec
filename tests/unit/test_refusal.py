"""What a host cannot serve, and what a modification may not change."""

from dataclasses import replace
from typing import Any

import pytest

from fabric_direct.drivers.contract import (
    DeviceDomain,
    HostDevice,
    HostDrivers,
    PciFunction,
    PluggedDevice,
    Server,
)
from fabric_direct.drivers.fake import Substrate
from fabric_direct.errors import InvalidSliver
from fabric_direct.handlers import registry
from fabric_direct.handlers.vm.refusal import (
    refuse_adopted_vlans,
    refuse_components,
    refuse_crowd,
    refuse_fixed,
)
from fabric_direct.model import (
    Capacities,
    DeviceState,
    Gpu,
    Interface,
    NodeSliver,
    PciAddress,
    SharedNic,
    SmartNic,
    State,
    Storage,
    VNic,
)
from fabric_direct.site.config import AllowedDevice, Host, Site

VF, GPU, AUDIO = map(PciAddress.parse, ("27:10.1", "25:00.0", "25:00.1"))
TENANT = DeviceDomain("s")
MAC = "52:54:00:00:00:07"


def nic(**values: Any) -> SharedNic:
    return SharedNic(id="nic", bdf=(VF,), interface=Interface(**values))


def node(*components: Any) -> NodeSliver:
    size = Capacities(core=1, ram=1, disk=1)
    return NodeSliver(id="s", name="n", image="tiny", capacities=size, components=components)


def server(was: NodeSliver) -> Server:
    return Server(
        sliver=was.id,
        instance="s-n",
        state=State.RUNNING,
        cores=1,
        ram=1024,
        stamp=was.stamp(),
        host="w1",
        ports=(),
        volumes=(),
    )


class TestASharedNic:
    @pytest.mark.parametrize("was", [None, MAC])
    def test_keeps_its_mac(self, was: str | None) -> None:
        changed = nic(vlan=304, mac="52:54:00:00:00:08")

        with pytest.raises(
            InvalidSliver, match="the MAC of SharedNIC nic cannot be changed"
        ) as refusal:
            refuse_fixed(server(node(nic(vlan=304, mac=was))), node(changed))

        assert refusal.value.field == "components[0].interface.mac"

    @pytest.mark.parametrize(
        "changed",
        [{"bandwidth": 100}, {"bandwidth": None}, {"vlan": 305}, {"vlan": None}],
        ids=["bandwidth", "no bandwidth", "vlan", "no vlan"],
    )
    def test_may_get_another_vlan_and_bandwidth(self, changed: dict[str, Any]) -> None:
        was = {"vlan": 304, "bandwidth": 50, "mac": MAC}

        refuse_fixed(server(node(nic(**was))), node(nic(**(was | changed))))

    def test_that_others_plugged_in_keeps_its_vlan(self) -> None:
        was, wanted = node(nic(vlan=304)), node(nic(vlan=305))
        theirs = PluggedDevice("nic", "ua-s-nic-0", VF, adopted=True)

        with pytest.raises(InvalidSliver, match="others plugged it in") as refusal:
            refuse_adopted_vlans(was, wanted, lambda: (theirs,))

        assert refusal.value.field == "components[0].interface.vlan"
        refuse_adopted_vlans(was, was, lambda: (theirs,))
        refuse_adopted_vlans(was, wanted, lambda: (replace(theirs, adopted=False),))

    def test_that_stays_as_it_is_passes(self) -> None:
        refuse_fixed(server(node(nic(vlan=304))), node(nic(vlan=304)))

    def test_may_get_other_addresses_in_the_guest(self) -> None:
        was = node(nic(vlan=304, ipv4="10.0.0.5/24", auto_config=True))

        refuse_fixed(server(was), node(nic(vlan=304)))
        refuse_fixed(server(was), node(nic(vlan=304, ipv6="fd00::5/64", auto_config=True)))


def card(*interfaces: dict[str, Any]) -> NodeSliver:
    return node(SmartNic.model_validate({"id": "nic", "bdf": [GPU], "interfaces": interfaces}))


class TestASmartNic:
    SET = {"vlan": 100, "ipv4": "10.0.0.5/24", "auto_config": True}

    @pytest.mark.parametrize(
        ("was", "wanted"),
        [({}, SET), (SET, {}), (SET, SET | {"ipv4": "10.0.0.6/24"})],
        ids=["now", "no longer", "other addresses"],
    )
    def test_may_be_configured_otherwise(self, was: dict[str, Any], wanted: dict[str, Any]) -> None:
        refuse_fixed(server(card(was)), card(wanted))

    @pytest.mark.parametrize(
        "wanted",
        [(SET | {"vlan": 200},), (SET | {"mac": "52:54:00:00:00:07"},), (SET, {})],
        ids=["another VLAN", "another MAC", "more interfaces"],
    )
    def test_is_not_changed_in_place(self, wanted: tuple[dict[str, Any], ...]) -> None:
        with pytest.raises(InvalidSliver, match="cannot be replaced by another one"):
            refuse_fixed(server(card(self.SET)), card(*wanted))


class TestAVolume:
    @pytest.mark.parametrize(("was", "wanted"), [(None, "/data"), ("/data", None)])
    def test_may_be_mounted_or_not(self, was: str | None, wanted: str | None) -> None:
        stored = node(Storage(id="data", size=1, mount=was))
        refuse_fixed(server(stored), node(Storage(id="data", size=1, mount=wanted)))

    @pytest.mark.parametrize("changed", [{"mount": "/other"}, {"size": 2}])
    def test_is_not_changed_in_place(self, changed: dict[str, Any]) -> None:
        was = {"id": "data", "size": 1, "mount": "/data"}
        with pytest.raises(InvalidSliver, match="cannot be replaced by another one"):
            refuse_fixed(server(node(Storage(**was))), node(Storage(**(was | changed))))


@pytest.mark.parametrize(
    "changed",
    [
        Gpu(id="gpu", bdf=(GPU, AUDIO)),
        Gpu(id="gpu", bdf=(AUDIO,)),
        Gpu(id="gpu", model="Tesla-T4", bdf=(GPU,)),
        SharedNic(id="gpu", bdf=(GPU,)),
    ],
    ids=["more functions", "another function", "another model", "another type"],
)
def test_a_device_is_not_changed_in_place(changed: Gpu | SharedNic) -> None:
    with pytest.raises(InvalidSliver, match="cannot be replaced by another one") as refusal:
        refuse_fixed(
            server(node(Gpu(id="gpu", bdf=(GPU,)))), node(VNic(id="n", network="red"), changed)
        )

    assert refusal.value.field == "components[1]"


@pytest.fixture
def drivers(fake_site: Site, fakes: Substrate) -> HostDrivers:
    hosts = {"localhost": Host(devices=(AllowedDevice(type="GPU", bdf=GPU),))}
    return registry.host_drivers(fake_site.model_copy(update={"hosts": hosts}), "localhost")


def test_a_device_that_is_not_allowed_is_named_by_its_component(
    drivers: HostDrivers, fakes: Substrate
) -> None:
    for address in (GPU, AUDIO):
        function = PciFunction(address, "10de", "1eb8")
        fakes.devices[address] = HostDevice(function, DeviceState.FREE)

    with pytest.raises(InvalidSliver, match=r"25:00\.1 is not allowed") as refusal:
        refuse_components(
            drivers, node(VNic(id="n", network="red"), Gpu(id="gpu", bdf=(GPU, AUDIO))), TENANT
        )

    assert refusal.value.field == "components[1].bdf[1]"


def test_a_device_without_functions_is_none_for_a_handler(drivers: HostDrivers) -> None:
    """Placement names them before."""
    with pytest.raises(InvalidSliver, match="names no function") as refusal:
        refuse_components(drivers, node(VNic(id="n", network="red"), Gpu(id="gpu")), TENANT)

    assert refusal.value.field == "components[1].bdf"


def test_a_modification_need_not_name_the_host_that_placement_chose() -> None:
    was = node().model_copy(update={"host": "w1"})
    refuse_fixed(server(was), node())
    with pytest.raises(InvalidSliver) as refusal:
        refuse_fixed(server(was), was.model_copy(update={"host": "w2"}))
    assert refusal.value.field == "host"


@pytest.mark.parametrize(
    ("field", "value"),
    [("capacities", Capacities(core=2, ram=1, disk=1)), ("flavor", "large")],
)
def test_the_size_may_be_written_as_it_is_or_the_server_resized(field: str, value: object) -> None:
    with pytest.raises(InvalidSliver) as refusal:
        refuse_fixed(server(node()), node().model_copy(update={field: value}))

    assert refusal.value.field == field
    assert refusal.value.remedy == (
        "write what the server has into the file, resize it (poa resize), "
        "or delete the sliver and create it again"
    )


def test_what_no_action_changes_either_needs_a_new_sliver() -> None:
    with pytest.raises(InvalidSliver) as refusal:
        refuse_fixed(server(node()), node().model_copy(update={"name": "other"}))

    assert refusal.value.field == "name"
    assert refusal.value.remedy == "delete the sliver and create it again"


class TestTheRootPortsOfARunningServer:
    WAS = node(VNic(id="n1", network="red"), SharedNic(id="vf", bdf=(VF,)))

    @pytest.fixture(autouse=True)
    def plugged(self, fakes: Substrate) -> None:
        """Three ports, one of which has a device."""
        fakes.root_ports = 3
        fakes.plugged["s"] = (PluggedDevice("vf", "ua-s-vf-0", VF),)

    def grown(self, *more: Any) -> NodeSliver:
        return node(*self.WAS.components, *more)

    @pytest.mark.parametrize(
        ("more", "needed"),
        [
            ((Gpu(id="gpu", bdf=(GPU, AUDIO)), VNic(id="n2", network="red")), 3),
            ((Gpu(id="gpu", bdf=(GPU,)), *(VNic(id=f"v{n}", network="red") for n in (1, 2, 3))), 4),
        ],
        ids=["each function needs one", "and each NIC"],
    )
    def test_must_be_enough_for_all_that_is_plugged_in_anew(
        self, drivers: HostDrivers, more: tuple[Any, ...], needed: int
    ) -> None:
        words = f"too few free PCIe root ports: {needed} needed, 2 free"

        with pytest.raises(InvalidSliver, match=words) as refusal:
            refuse_crowd(drivers, self.WAS, self.grown(*more), TENANT)

        assert (refusal.value.field, refusal.value.where) == ("components", "localhost")

    def test_are_not_needed_for_what_an_unfinished_modification_left(
        self, drivers: HostDrivers, fakes: Substrate
    ) -> None:
        fakes.plugged["s"] += (PluggedDevice("gpu", "ua-s-gpu-0", GPU),)
        nics = [VNic(id=name, network="red") for name in ("left", "new")]
        wanted = self.grown(Gpu(id="gpu", bdf=(GPU,)), *nics)

        refuse_crowd(drivers, self.WAS, wanted, TENANT, {"left"})

    def test_may_be_used_up(self, drivers: HostDrivers) -> None:
        refuse_crowd(drivers, self.WAS, self.grown(Gpu(id="gpu", bdf=(GPU, AUDIO))), TENANT)

    def test_are_not_counted_for_what_is_there(
        self, drivers: HostDrivers, fakes: Substrate
    ) -> None:
        fakes.root_ports = 0

        refuse_crowd(drivers, self.WAS, self.WAS, TENANT)

    def test_do_not_matter_while_it_is_off(
        self, drivers: HostDrivers, fakes: Substrate, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fakes.root_ports = 0
        monkeypatch.setattr(drivers.devices["GPU"], "free_ports", lambda _: None)

        refuse_crowd(drivers, self.WAS, self.grown(Gpu(id="gpu", bdf=(GPU,))), TENANT)
