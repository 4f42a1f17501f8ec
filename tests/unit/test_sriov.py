"""VFs of a shared NIC: what its PF enforces, VEPA, MACs that are there once, and the way back."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock, call
from xml.etree import ElementTree

import libvirt
import pytest
from pytest_mock import MockerFixture

from fabric_direct.calls.read_cache import ReadCache
from fabric_direct.drivers.contract import (
    DeviceDomain,
    DeviceRecord,
    PciFunction,
    PluggedDevice,
    ProgramHolder,
    VfSettings,
)
from fabric_direct.drivers.fake import FakeHost, FakeUplink, Substrate, substrate
from fabric_direct.drivers.libvirt.domains.lookup import domain_uuid
from fabric_direct.drivers.libvirt.networks.address_pools import derived_mac
from fabric_direct.drivers.libvirt.passthrough import release as module
from fabric_direct.drivers.libvirt.passthrough.sriov import SriovDevice
from fabric_direct.drivers.netlink import uplink as netlink
from fabric_direct.errors import (
    DeviceClaimed,
    DeviceInUse,
    DeviceUnclean,
    DriverError,
    InvalidSliver,
    NotVerified,
    SliverBusy,
    Unsupported,
)
from fabric_direct.model import DeviceState, Gpu, Interface, PciAddress, SharedNic
from fabric_direct.site.config import AllowedDevice, Host, Site
from fabric_direct.state.locks import exclusive
from tests.unit.pci_host import CONFIG, LIVE, FakeDomain, Worker, error, pci, plugged

HOST, SLIVER = "w1", "sliver"
TENANT = DeviceDomain(SLIVER)
FOREIGN = "11111111-1111-1111-1111-111111111111"
GPU, PF, VF0, VF1, OTHER_PF, OTHER_VF = map(
    PciAddress.parse, ("25:00.0", "27:00.0", "27:10.0", "27:10.2", "28:00.0", "28:10.0")
)
MAC, OTHER_MAC, NO_MAC = "52:54:00:0f:d0:03", "52:54:00:0f:d0:04", "00:00:00:00:00:00"
ALIAS = "ua-sliver-nic-0"
IDLE = VfSettings(
    NO_MAC, vlan=0, qos=0, trust=False, spoof_check=True, max_tx_rate=0, min_tx_rate=0, link_state=0
)
MakeNic = Callable[..., SharedNic]
Ask = Callable[[SriovDevice, SharedNic], object]


def check(devices: SriovDevice, nic: SharedNic) -> object:
    return devices.check(nic, TENANT)


def attach(devices: SriovDevice, nic: SharedNic) -> object:
    return devices.attach(TENANT, nic)


asking = pytest.mark.parametrize("ask", [check, attach])
"""A test of what is refused to whoever asks first, and to whoever does not ask."""


class Uplink(FakeUplink):
    """An uplink that tells what is changed in the worker's own order."""

    calls: Mock
    silent_of: frozenset[int] = frozenset()
    """The VFs that the kernel leaves out of its answer."""

    def vfs(self, link: str) -> Mapping[int, VfSettings]:
        return {vf: s for vf, s in super().vfs(link).items() if vf not in self.silent_of}

    def set_bridge_mode(self, link: str, mode: str) -> None:
        self.calls.set_bridge_mode(link, mode)
        super().set_bridge_mode(link, mode)

    def set_vf(self, link: str, vf: int, settings: VfSettings) -> None:
        self.calls.set_vf(link, vf, settings)
        super().set_vf(link, vf, settings)


class NicDomain(FakeDomain):
    """A domain whose libvirt sets MAC and VLAN of a VF that it is given while it runs."""

    nic: Substrate
    resets_uplink = False
    """Whether plugging takes the uplink out of VEPA."""

    def attachDeviceFlags(self, xml: str, flags: int) -> None:  # noqa: N802 - libvirt's name
        super().attachDeviceFlags(xml, flags)
        device = ElementTree.fromstring(xml)
        if flags & LIVE:
            mac, tag = device.find("mac"), device.find("vlan/tag")
            assert mac is not None
            self.libvirt_sets(
                mac.get("address", ""), int(tag.get("id", "0")) if tag is not None else 0
            )
        if self.resets_uplink:
            self.nic.uplinks["ens6f1"] = "veb"

    def libvirt_sets(self, mac: str, vlan: int) -> None:
        was = self.nic.vfs["ens6f1"][0]
        self.nic.vfs["ens6f1"][0] = VfSettings(
            mac, vlan, 0, was.trust, was.spoof_check, was.max_tx_rate, 0, 0
        )


@pytest.fixture
def site(tmp_path: Path) -> Site:
    allowed = (
        AllowedDevice(type="SharedNIC", uplink="ens6f1", vepa=True, trust=True, spoof_check=False),
        AllowedDevice(type="SharedNIC", uplink="ens7f1"),
        AllowedDevice(type="SharedNIC", bdf=PF),
        AllowedDevice(type="GPU", bdf=GPU),
    )
    return Site(
        site="TEST",
        state_dir=tmp_path,
        hosts={HOST: Host(libvirt="qemu+ssh://root@w1/system", devices=allowed)},
        limits={"busy": 0.05},
    )


@pytest.fixture
def host() -> Worker:
    """Two NICs, one with two VFs and one with one, and a GPU."""
    return Worker(
        (
            PciFunction(GPU, "10de", "1eb8"),
            PciFunction(PF, "8086", "10c9", virtual=(VF0, VF1), links=("ens6f1",)),
            PciFunction(VF0, "8086", "10ca", physical=PF, vf=0, driver="igbvf"),
            PciFunction(VF1, "8086", "10ca", physical=PF, vf=1, driver="igbvf"),
            PciFunction(OTHER_PF, "8086", "10c9", virtual=(OTHER_VF,), links=("ens7f1",)),
            PciFunction(OTHER_VF, "8086", "10ca", physical=OTHER_PF, vf=0),
        )
    )


@pytest.fixture
def nics(site: Site) -> Substrate:
    """What the uplinks do."""
    made = substrate(site, HOST)
    made.uplinks = {"ens6f1": "veb"}
    made.vfs = {"ens6f1": [IDLE, IDLE], "ens7f1": [IDLE]}
    return made


@pytest.fixture
def devices(site: Site, host: Worker, nics: Substrate, mocker: MockerFixture) -> SriovDevice:
    host.put_in(site, mocker)
    made, uplink = SriovDevice(site, HOST), Uplink(site, HOST)
    uplink.calls = host.calls
    made._host.uplinks = uplink
    return made


@pytest.fixture
def domain(host: Worker, nics: Substrate) -> NicDomain:
    made = NicDomain(host.calls, "sliver-node", str(domain_uuid(SLIVER)), SLIVER)
    made.live, made.nic = True, nics
    host.domains.append(made)
    return made


@pytest.fixture
def nic() -> MakeNic:
    def make(address: PciAddress = VF0, mac: str | None = MAC, **values: int) -> SharedNic:
        return SharedNic(id="nic", bdf=(address,), interface=Interface(mac=mac, **values))

    return make


def allow(devices: SriovDevice, *entries: AllowedDevice) -> None:
    """Have the site allow these devices of the worker instead."""
    worker = devices._host.site.host(HOST).model_copy(update={"devices": entries})
    devices._host.site = devices._host.site.model_copy(update={"hosts": {HOST: worker}})


def leave_out(devices: SriovDevice, *vfs: int) -> None:
    """Have the kernel tell nothing of these VFs."""
    devices._host.uplinks.silent_of = frozenset(vfs)  # type: ignore[attr-defined]


def changes(host: Worker) -> list[str]:
    return [name for name, *_ in host.calls.mock_calls if name.startswith(("set_", "attach"))]


class TestAttach:
    def test_sets_the_uplink_and_the_vf_before_it_plugs_the_vf_in(
        self, devices: SriovDevice, host: Worker, domain: NicDomain, nic: MakeNic
    ) -> None:
        devices.attach(TENANT, nic(bandwidth=100))

        assert changes(host) == ["set_bridge_mode", "set_vf", "attach"]

    def test_makes_it_an_interface_with_mac_and_vlan(
        self, devices: SriovDevice, domain: NicDomain, nic: MakeNic
    ) -> None:
        (found,) = devices.attach(TENANT, nic(vlan=304))

        assert (found.host_address, found.mac, found.vlan) == (VF0, MAC, 304)
        assert domain.devices[CONFIG][0].startswith('<interface type="hostdev" managed="yes">')

    def test_without_a_mac_gives_it_the_one_that_follows_from_its_ids(
        self, devices: SriovDevice, domain: NicDomain, nic: MakeNic
    ) -> None:
        (found,) = devices.attach(TENANT, nic(mac=None))

        assert found.mac == derived_mac(SLIVER, "nic")

    def test_has_the_pf_enforce_what_sliver_and_allow_list_say(
        self, devices: SriovDevice, nics: Substrate, domain: NicDomain, nic: MakeNic
    ) -> None:
        (found,) = devices.attach(TENANT, nic(vlan=304, bandwidth=100))

        wanted = VfSettings(MAC, 304, 0, True, False, 100, 0, 0)
        assert nics.vfs["ens6f1"] == [wanted, IDLE]
        assert (found.settings, found.bridge_mode) == (wanted, "vepa")

    def test_changes_no_vf_that_is_as_wanted(
        self, devices: SriovDevice, host: Worker, domain: NicDomain, nic: MakeNic
    ) -> None:
        devices.attach(TENANT, nic())
        host.calls.reset_mock()

        devices.attach(TENANT, nic())

        assert changes(host) == []

    @pytest.mark.parametrize("bandwidth", [200, None])
    def test_changes_the_rate_alone_of_a_vf_that_is_there(
        self,
        devices: SriovDevice,
        host: Worker,
        nics: Substrate,
        domain: NicDomain,
        nic: MakeNic,
        bandwidth: int | None,
    ) -> None:
        devices.attach(TENANT, nic(bandwidth=100))
        host.calls.reset_mock()

        devices.attach(TENANT, nic() if bandwidth is None else nic(bandwidth=bandwidth))

        assert changes(host) == ["set_vf"]
        assert nics.vfs["ens6f1"][0].max_tx_rate == (bandwidth or 0)
        assert nics.vfs["ens6f1"][0].mac == MAC

    def test_plugs_a_vf_that_was_pulled_in_again(
        self, devices: SriovDevice, host: Worker, domain: NicDomain, nic: MakeNic
    ) -> None:
        devices.attach(TENANT, nic())
        domain.devices[LIVE] = []
        host.calls.reset_mock()

        assert devices.differences(nic(), TENANT) == (f"SharedNIC nic does not have {VF0} now",)
        devices.attach(TENANT, nic())

        assert host.calls.attach.mock_calls == [call(ALIAS, LIVE)]
        assert devices.differences(nic(), TENANT) == ()

    @pytest.mark.parametrize("method", ["set_vf", "set_bridge_mode"])
    def test_plugs_nothing_in_that_the_pf_does_not_enforce(
        self,
        devices: SriovDevice,
        host: Worker,
        nics: Substrate,
        domain: NicDomain,
        nic: MakeNic,
        method: str,
    ) -> None:
        nics.fault(f"uplink.{method}", kind="fail")

        with pytest.raises(DriverError, match=method):
            devices.attach(TENANT, nic())

        host.calls.attach.assert_not_called()


class TestTheVlanOfAVfThatIsPluggedIn:
    @pytest.mark.parametrize(
        ("before", "after"),
        [({"vlan": 304}, {"vlan": 305}), ({"vlan": 304}, {}), ({}, {"vlan": 7})],
    )
    def test_is_changed_at_the_pf_and_in_the_definition(
        self,
        devices: SriovDevice,
        host: Worker,
        nics: Substrate,
        domain: NicDomain,
        nic: MakeNic,
        before: dict[str, int],
        after: dict[str, int],
    ) -> None:
        devices.attach(TENANT, nic(**before))
        slots = domain.slots(CONFIG)
        host.calls.reset_mock()

        (found,) = devices.attach(TENANT, nic(**after))

        assert host.calls.update.mock_calls == [call(ALIAS, CONFIG)]
        assert changes(host) == ["set_vf"]
        assert (found.vlan, nics.vfs["ens6f1"][0].vlan) == (after.get("vlan"), after.get("vlan", 0))
        assert nics.vfs["ens6f1"][0].mac == MAC
        assert domain.slots(CONFIG) == slots
        assert devices.differences(nic(**after), TENANT) == ()
        assert devices.plugged(TENANT) == (found,)

    def test_is_changed_with_its_rate(
        self, devices: SriovDevice, nics: Substrate, domain: NicDomain, nic: MakeNic
    ) -> None:
        devices.attach(TENANT, nic(vlan=304, bandwidth=100))

        devices.attach(TENANT, nic(vlan=305, bandwidth=200))

        assert nics.vfs["ens6f1"][0] == VfSettings(MAC, 305, 0, True, False, 200, 0, 0)

    def test_differs_now_and_at_the_next_start(
        self, devices: SriovDevice, domain: NicDomain, nic: MakeNic
    ) -> None:
        devices.attach(TENANT, nic(vlan=304))

        assert devices.differences(nic(vlan=305), TENANT) == (
            "SharedNIC nic has VLAN 304 at its next start, not 305",
            "VF of nic has vlan 304, not 305",
        )

    def test_is_changed_in_the_definition_alone_while_the_domain_is_off(
        self, devices: SriovDevice, host: Worker, nics: Substrate, domain: NicDomain, nic: MakeNic
    ) -> None:
        devices.attach(TENANT, nic(vlan=304))
        domain.live, nics.vfs["ens6f1"] = False, [replace(IDLE, trust=True, spoof_check=False)]
        host.calls.reset_mock()

        (found,) = devices.attach(TENANT, nic(vlan=305))

        assert (found.vlan, nics.vfs["ens6f1"][0].vlan) == (305, 0)
        assert changes(host) == []

    @pytest.mark.parametrize("done_by_then", ["nothing", "the definition", "the PF"])
    def test_is_changed_by_the_next_after_a_kill(
        self,
        devices: SriovDevice,
        nics: Substrate,
        domain: NicDomain,
        nic: MakeNic,
        done_by_then: str,
    ) -> None:
        devices.attach(TENANT, nic(vlan=304))
        if done_by_then == "the definition":
            nics.fault("uplink.set_vf", kind="fail")
            with pytest.raises(DriverError, match="set_vf"):
                devices.attach(TENANT, nic(vlan=305))
        if done_by_then == "the PF":
            FakeUplink(devices._host.site, HOST).set_vf("ens6f1", 0, VfSettings(vlan=305))

        devices.attach(TENANT, nic(vlan=305))

        assert devices.differences(nic(vlan=305), TENANT) == ()

    def test_that_the_definition_does_not_take_is_no_success(
        self, devices: SriovDevice, domain: NicDomain, nic: MakeNic, mocker: MockerFixture
    ) -> None:
        devices.attach(TENANT, nic(vlan=304))
        mocker.patch.object(domain, "updateDeviceFlags")

        with pytest.raises(NotVerified, match=r"wanted .*vlan 305.*found .*vlan 304"):
            devices.attach(TENANT, nic(vlan=305))

    @pytest.mark.parametrize("changed", [{"vlan": 7}, {"mac": OTHER_MAC}])
    def test_and_its_mac_are_set_back_where_others_changed_them(
        self,
        devices: SriovDevice,
        nics: Substrate,
        domain: NicDomain,
        nic: MakeNic,
        changed: dict[str, object],
    ) -> None:
        devices.attach(TENANT, nic(vlan=304))
        FakeUplink(devices._host.site, HOST).set_vf("ens6f1", 0, VfSettings(**changed))  # type: ignore[arg-type]

        devices.attach(TENANT, nic(vlan=304))

        assert (nics.vfs["ens6f1"][0].mac, nics.vfs["ens6f1"][0].vlan) == (MAC, 304)
        assert devices.differences(nic(vlan=304), TENANT) == ()


class TestVepa:
    def test_is_set_at_the_first_use_without_a_word(
        self, devices: SriovDevice, nics: Substrate, domain: NicDomain, nic: MakeNic
    ) -> None:
        with (reads := ReadCache()).active():
            devices.attach(TENANT, nic())

        assert nics.uplinks == {"ens6f1": "vepa"}
        assert reads.warnings == []

    def test_that_was_lost_is_set_again_with_a_warning(
        self, devices: SriovDevice, host: Worker, nics: Substrate, domain: NicDomain, nic: MakeNic
    ) -> None:
        host.add_domain("foreign", FOREIGN).devices[CONFIG] = [plugged(VF1)]

        with (reads := ReadCache()).active():
            devices.attach(TENANT, nic())

        assert nics.uplinks == {"ens6f1": "vepa"}
        assert reads.warnings == ["uplink ens6f1 of w1 had left vepa mode and was set to it again"]

    def test_that_plugging_takes_away_is_set_again(
        self, devices: SriovDevice, nics: Substrate, domain: NicDomain, nic: MakeNic
    ) -> None:
        domain.resets_uplink = True

        (found,) = devices.attach(TENANT, nic())

        assert nics.uplinks == {"ens6f1": "vepa"}
        assert found.bridge_mode == "vepa"

    def test_is_not_asked_of_an_uplink_that_needs_none(
        self, devices: SriovDevice, host: Worker, nics: Substrate, domain: NicDomain, nic: MakeNic
    ) -> None:
        (found,) = devices.attach(TENANT, nic(OTHER_VF))

        assert found.bridge_mode is None
        assert nics.calls["uplink.set_bridge_mode"] == 0
        host.calls.set_bridge_mode.assert_not_called()

    def test_that_the_nic_does_not_know_is_refused_and_plugs_nothing_in(
        self,
        devices: SriovDevice,
        host: Worker,
        domain: NicDomain,
        nic: MakeNic,
        mocker: MockerFixture,
    ) -> None:
        unknown = Unsupported("ens6f1 cannot be set to vepa", why="igb does not support it")
        mocker.patch.object(devices._host.uplinks, "set_bridge_mode", side_effect=unknown)

        with pytest.raises(Unsupported, match="igb"):
            devices.attach(TENANT, nic())

        host.calls.attach.assert_not_called()

    def test_stands_in_the_inventory(self, devices: SriovDevice, nics: Substrate) -> None:
        nics.uplinks = {"ens6f1": "vepa"}

        modes = {device.address: device.bridge_mode for device in devices.inventory()}

        assert {address for address, mode in modes.items() if mode} == {PF, VF0, VF1}


class TestAVfThatTheKernelLeavesOut:
    """Its settings are not known: those of the VF after it are not taken for them."""

    @pytest.fixture(autouse=True)
    def left_out(
        self, devices: SriovDevice, nics: Substrate, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(netlink, "IN_RESET", 0.0)
        nics.vfs["ens6f1"] = [IDLE, replace(IDLE, mac=OTHER_MAC, vlan=7)]
        leave_out(devices, 0)

    @asking
    def test_is_refused_before_anything_is_changed(
        self,
        devices: SriovDevice,
        host: Worker,
        domain: NicDomain,
        nic: MakeNic,
        ask: Ask,
    ) -> None:
        with pytest.raises(DriverError, match=r"ens6f1 tells nothing of VF 0 .*leaves it out"):
            ask(devices, nic())

        assert changes(host) == []
        assert host.records.read() == {}

    def test_does_not_shift_the_numbers_of_the_others(
        self, devices: SriovDevice, nic: MakeNic
    ) -> None:
        devices.check(nic(VF1, mac=OTHER_MAC), TENANT)

    def test_of_a_vm_is_told_as_not_known_and_hides_nothing_else(
        self, devices: SriovDevice, nics: Substrate, domain: NicDomain, nic: MakeNic
    ) -> None:
        leave_out(devices)
        devices.attach(TENANT, nic())
        leave_out(devices, 0)

        (plugged,) = devices.plugged(TENANT)
        (difference,) = devices.differences(nic(), TENANT)

        assert (plugged.host_address, plugged.settings) == (VF0, None)
        assert "VF 0 of ens6f1" in difference
        assert "not known" in difference

    def test_is_waited_for_while_it_is_in_reset(
        self,
        devices: SriovDevice,
        domain: NicDomain,
        nic: MakeNic,
        monkeypatch: pytest.MonkeyPatch,
        mocker: MockerFixture,
    ) -> None:
        monkeypatch.setattr(netlink, "IN_RESET", 60.0)
        mocker.patch(
            "fabric_direct.calls.deadline.time.sleep", side_effect=lambda _: leave_out(devices)
        )

        (plugged,) = devices.attach(TENANT, nic())

        assert plugged.settings

    def test_is_not_released_as_clean(
        self, devices: SriovDevice, host: Worker, mocker: MockerFixture
    ) -> None:
        mocker.patch.object(module, "clean", return_value="it was reset")
        host.records.known = {VF0: record(IDLE)}

        with pytest.raises(DeviceUnclean, match="tells nothing of VF 0"):
            devices.clean(record(IDLE))

        assert "tells nothing of VF 0" in host.records.read()[VF0].quarantined


class TestAProgramThatHasAVf:
    """By vfio or uio, or by a vDPA device on it: nothing is done beneath it."""

    DPDK = ProgramHolder("/dev/vfio/12 is held by dpdk-testpmd (pid 7)")

    @pytest.fixture(autouse=True)
    def reset(self, mocker: MockerFixture, monkeypatch: pytest.MonkeyPatch) -> Mock:
        monkeypatch.setattr(module, "LET_GO", 0.0)
        made: Mock = mocker.patch.object(module, "clean", return_value="it was reset")
        return made

    @pytest.mark.parametrize("force", [False, True])
    def test_keeps_it_from_being_released(
        self, devices: SriovDevice, host: Worker, reset: Mock, force: bool
    ) -> None:
        host.records.known = {VF0: record(IDLE)}
        host.change(VF0, driver="vfio-pci", held=(self.DPDK,))

        with pytest.raises(DeviceInUse, match="dpdk-testpmd"):
            devices.release(VF0, force=force)

        assert (reset.mock_calls, host.calls.mock_calls) == ([], [])
        assert host.records.read() == {VF0: record(IDLE)}

    def test_keeps_it_from_being_cleaned_and_is_told(
        self, devices: SriovDevice, host: Worker, reset: Mock
    ) -> None:
        host.records.known = {VF0: record(IDLE)}
        host.change(VF0, held=(ProgramHolder("the vDPA device vdpa0 is on it"),))

        with pytest.raises(DeviceInUse, match="vdpa0"):
            devices.clean(record(IDLE))

        assert (reset.mock_calls, host.records.read()) == ([], {VF0: record(IDLE)})
        (shown,) = (d for d in devices.inventory() if d.address == VF0)
        assert shown.state is DeviceState.UNCLEAN
        assert "vdpa0" in shown.why

    def test_keeps_the_other_functions_of_the_component_from_being_reset(
        self, devices: SriovDevice, host: Worker, reset: Mock
    ) -> None:
        """They are reset together."""
        both = {VF0: record(IDLE), VF1: replace(record(IDLE), address=VF1)}
        host.records.known = dict(both)
        host.change(VF1, driver="vfio-pci", held=(self.DPDK,))

        with pytest.raises(DeviceInUse, match="dpdk-testpmd"):
            devices.clean(record(IDLE))

        assert (reset.mock_calls, host.records.read()) == ([], both)

    def test_is_not_waited_for_where_nothing_is_to_be_cleaned(
        self, devices: SriovDevice, host: Worker
    ) -> None:
        host.change(VF0, driver="vfio-pci", held=(self.DPDK,))

        devices.clean(record(IDLE))
        devices.release(VF0, force=False)

    def test_is_waited_for_when_it_is_about_to_let_go(
        self,
        devices: SriovDevice,
        host: Worker,
        reset: Mock,
        monkeypatch: pytest.MonkeyPatch,
        mocker: MockerFixture,
    ) -> None:
        monkeypatch.setattr(module, "LET_GO", 60.0)
        host.records.known = {VF0: record(IDLE)}
        host.change(VF0, driver="vfio-pci", held=(self.DPDK,))
        mocker.patch(
            "fabric_direct.calls.deadline.time.sleep",
            side_effect=lambda _: host.change(VF0, held=()),
        )

        devices.clean(record(IDLE))

        assert host.records.read() == {}

    @asking
    def test_keeps_it_from_the_vm_that_is_defined_with_it(
        self,
        devices: SriovDevice,
        host: Worker,
        domain: NicDomain,
        nic: MakeNic,
        ask: Ask,
    ) -> None:
        devices.attach(TENANT, nic())
        domain.devices[LIVE] = []
        host.change(VF0, driver="vfio-pci", held=(self.DPDK,))
        with pytest.raises(DeviceInUse, match="dpdk-testpmd"):
            ask(devices, nic())


class TestSwitchdevMode:
    """The host's switch forwards what VFs send, by their representors: the PF tags nothing."""

    @pytest.fixture(autouse=True)
    def switchdev(self, host: Worker) -> None:
        host.change(OTHER_PF, representors=("ens7f1_0",))

    @pytest.mark.parametrize(
        ("allowed", "interface", "field", "words"),
        [
            ({}, {"vlan": 304}, "interface.vlan", "vlan 304"),
            ({"vepa": True}, {}, "bdf[0]", "vepa"),
            ({"trust": True}, {}, "bdf[0]", "trust"),
            ({"spoof_check": False}, {}, "bdf[0]", "spoof_check"),
            ({"vepa": True, "trust": True}, {"vlan": 5}, "interface.vlan", "vlan 5, vepa, trust"),
        ],
    )
    @asking
    def test_what_only_the_legacy_mode_has_is_refused_by_name(
        self,
        devices: SriovDevice,
        host: Worker,
        domain: NicDomain,
        nic: MakeNic,
        ask: Ask,
        allowed: dict[str, bool],
        interface: dict[str, int],
        field: str,
        words: str,
    ) -> None:
        allow(devices, AllowedDevice(type="SharedNIC", uplink="ens7f1", **allowed))  # type: ignore[arg-type]
        with pytest.raises(Unsupported, match=f"{words} .*ens7f1 is in switchdev mode") as refusal:
            ask(devices, nic(OTHER_VF, **interface))

        assert refusal.value.field == field
        assert changes(host) == []

    def test_what_is_so_already_is_not_refused(self, devices: SriovDevice, nic: MakeNic) -> None:
        is_so = AllowedDevice(type="SharedNIC", uplink="ens7f1", trust=False, spoof_check=True)
        allow(devices, is_so)

        devices.check(nic(OTHER_VF), TENANT)

    def test_a_vf_that_asks_for_none_of_it_is_served(
        self, devices: SriovDevice, host: Worker, domain: NicDomain, nic: MakeNic
    ) -> None:
        (found,) = devices.attach(TENANT, nic(OTHER_VF))

        assert found.host_address == OTHER_VF

    def test_a_nic_in_legacy_mode_is_served(self, devices: SriovDevice, nic: MakeNic) -> None:
        devices.check(nic(vlan=304), TENANT)


class TestMacs:
    @asking
    def test_that_another_vf_of_the_pf_has_are_refused(
        self,
        devices: SriovDevice,
        host: Worker,
        nics: Substrate,
        domain: NicDomain,
        nic: MakeNic,
        ask: Ask,
    ) -> None:
        nics.vfs["ens6f1"][1] = VfSettings(MAC)
        with pytest.raises(InvalidSliver, match=f"VF 1 of ens6f1 has the MAC {MAC}") as refusal:
            ask(devices, nic())

        assert refusal.value.field == "interface.mac"
        assert host.records.read() == {}

    def test_that_the_vf_itself_has_pass(
        self, devices: SriovDevice, nics: Substrate, nic: MakeNic
    ) -> None:
        nics.vfs["ens6f1"][0] = VfSettings(MAC)

        devices.check(nic(), TENANT)

    def test_of_another_pf_pass(self, devices: SriovDevice, nics: Substrate, nic: MakeNic) -> None:
        nics.vfs["ens7f1"][0] = VfSettings(MAC)

        devices.check(nic(), TENANT)

    def test_are_given_to_one_vf_at_a_time(
        self, devices: SriovDevice, site: Site, domain: NicDomain, nic: MakeNic
    ) -> None:
        lock = site.state_dir / "locks" / f"w1-mac-{MAC.replace(':', '')}.lock"

        with (
            exclusive(lock, "it", timeout=1),
            pytest.raises(SliverBusy, match=f"MAC {MAC} on w1"),
        ):
            devices.attach(TENANT, nic())


class TestCheck:
    def test_refuses_what_is_no_vf(self, devices: SriovDevice, nic: MakeNic) -> None:
        with pytest.raises(InvalidSliver, match=r"27:00\.0 is not a VF of a NIC") as refusal:
            devices.check(nic(PF), TENANT)

        assert refusal.value.field == "bdf[0]"

    def test_refuses_what_is_no_shared_nic(self, devices: SriovDevice) -> None:
        with pytest.raises(InvalidSliver, match="only a SharedNIC is a VF") as refusal:
            devices.check(Gpu(id="gpu", bdf=(GPU,)), TENANT)

        assert refusal.value.field == "type"

    def test_changes_nothing(
        self, devices: SriovDevice, host: Worker, domain: NicDomain, nic: MakeNic
    ) -> None:
        devices.check(nic(), TENANT)

        assert changes(host) == []
        assert host.records.read() == {}


class TestDifferences:
    def test_of_a_vf_that_was_just_attached_are_none(
        self, devices: SriovDevice, domain: NicDomain, nic: MakeNic
    ) -> None:
        devices.attach(TENANT, nic(vlan=304, bandwidth=100))

        assert devices.differences(nic(vlan=304, bandwidth=100), TENANT) == ()

    @pytest.mark.parametrize(
        ("changed", "words"),
        [
            ({"mac": OTHER_MAC}, f"mac {OTHER_MAC}, not {MAC}"),
            ({"vlan": 305}, "vlan 305, not 304"),
            ({"trust": False}, "trust False, not True"),
            ({"spoof_check": True}, "spoof check True, not False"),
            ({"max_tx_rate": 50}, "max tx rate 50, not 100"),
        ],
    )
    def test_name_what_the_pf_enforces_otherwise(
        self,
        devices: SriovDevice,
        domain: NicDomain,
        nic: MakeNic,
        changed: dict[str, object],
        words: str,
    ) -> None:
        wanted = nic(vlan=304, bandwidth=100)
        devices.attach(TENANT, wanted)
        FakeUplink(devices._host.site, HOST).set_vf("ens6f1", 0, VfSettings(**changed))  # type: ignore[arg-type]

        assert devices.differences(wanted, TENANT) == (f"VF of nic has {words}",)

    def test_name_an_uplink_that_has_left_vepa(
        self, devices: SriovDevice, nics: Substrate, domain: NicDomain, nic: MakeNic
    ) -> None:
        devices.attach(TENANT, nic())
        nics.uplinks["ens6f1"] = "veb"

        assert devices.differences(nic(), TENANT) == ("uplink ens6f1 is in mode veb, not vepa",)

    def test_are_not_looked_for_at_the_pf_while_the_domain_is_off(
        self, devices: SriovDevice, nics: Substrate, domain: NicDomain, nic: MakeNic
    ) -> None:
        devices.attach(TENANT, nic())
        domain.live = False
        nics.vfs["ens6f1"][0] = IDLE

        assert devices.differences(nic(), TENANT) == ()

    def test_are_none_where_the_nic_does_not_report_what_is_off_anyway(
        self, devices: SriovDevice, nics: Substrate, domain: NicDomain, nic: MakeNic
    ) -> None:
        wanted = nic(OTHER_VF)
        interface = (
            f"<interface type='hostdev'><mac address='{MAC}'/><source>{pci(OTHER_VF)}</source>"
            f"<alias name='{ALIAS}'/></interface>"
        )
        domain.devices = {LIVE: [interface], CONFIG: [interface]}
        nics.vfs["ens7f1"] = [VfSettings(MAC, spoof_check=True)]

        assert devices.differences(wanted, TENANT) == ()


class TestPlugged:
    def test_has_the_settings_of_vfs_alone(
        self, devices: SriovDevice, domain: NicDomain, nic: MakeNic
    ) -> None:
        (vf,) = devices.attach(TENANT, nic())
        domain.devices[LIVE].append(plugged(GPU, "ua-sliver-gpu-0", bus=5))

        found = {device.alias: device for device in devices.plugged(TENANT)}

        assert found[ALIAS] == vf
        gpu: PluggedDevice = found["ua-sliver-gpu-0"]
        assert (gpu.settings, gpu.bridge_mode) == (None, None)


@pytest.fixture
def clean(host: Worker, mocker: MockerFixture) -> Mock:
    """The reset, which has tests of its own."""

    def reset(_: FakeHost, record: DeviceRecord, *_args: object, **_kw: float) -> str:
        host.calls.clean(record.address)
        return "it was reset"

    return mocker.patch.object(module, "clean", side_effect=reset)


class TestCleaning:
    def test_gives_the_vf_back_what_the_pf_enforced_before(
        self,
        devices: SriovDevice,
        host: Worker,
        nics: Substrate,
        domain: NicDomain,
        nic: MakeNic,
        clean: Mock,
    ) -> None:
        before = VfSettings(OTHER_MAC, 7, 0, False, True, 10, 0, 2)
        nics.vfs["ens6f1"][0] = before
        devices.attach(TENANT, nic(bandwidth=100))
        devices.attach(TENANT, nic(bandwidth=200))
        devices.detach(TENANT, "nic", timeout=1)
        host.calls.reset_mock()

        (record,) = devices.records(SLIVER)
        devices.clean(record)

        assert record.baseline == before
        assert nics.vfs["ens6f1"][0] == before
        order = [name for name, *_ in host.calls.mock_calls if name != "read"]
        assert order == ["bind", "clean", "set_vf", "strike"]

    def test_changes_no_vf_that_is_as_it_was(
        self, devices: SriovDevice, host: Worker, clean: Mock
    ) -> None:
        host.records.known = {VF0: record(IDLE)}

        devices.clean(record(IDLE))

        host.calls.set_vf.assert_not_called()
        assert host.records.read() == {}

    def test_quarantines_a_vf_that_does_not_get_its_settings_back(
        self, devices: SriovDevice, host: Worker, nics: Substrate, clean: Mock
    ) -> None:
        host.records.known = {VF0: record(VfSettings(max_tx_rate=10))}
        nics.fault("uplink.set_vf", kind="fail")

        with pytest.raises(DeviceUnclean, match=r"set_vf failed"):
            devices.clean(record(VfSettings(max_tx_rate=10)))

        assert "set_vf failed" in host.records.read()[VF0].quarantined

    @pytest.mark.parametrize("gone", ["the VF", "its uplink"])
    def test_quarantines_a_vf_whose_settings_nobody_knows_any_more(
        self, devices: SriovDevice, host: Worker, clean: Mock, gone: str
    ) -> None:
        host.records.known = {VF0: record(IDLE)}
        if gone == "the VF":
            del host.functions[VF0]
        else:
            host.change(PF, links=())

        with pytest.raises(DeviceUnclean, match=r"27:10\.0 is not a VF of a NIC"):
            devices.clean(record(IDLE))

        assert host.records.read()[VF0].quarantined

    def test_of_a_vf_without_a_mac_does_not_mind_the_one_that_its_own_driver_makes_up(
        self,
        devices: SriovDevice,
        host: Worker,
        nics: Substrate,
        clean: Mock,
        mocker: MockerFixture,
    ) -> None:
        host.records.known = {VF0: record(IDLE)}
        nics.vfs["ens6f1"][0] = replace(IDLE, mac=OTHER_MAC)
        refuse = NotVerified("VF 0 did not take mac")
        mocker.patch.object(devices._host.uplinks, "set_vf", side_effect=refuse)

        devices.clean(record(IDLE))

        assert host.records.read() == {}


def record(baseline: VfSettings) -> DeviceRecord:
    return DeviceRecord(VF0, "SharedNIC", None, SLIVER, "nic", "8086", "10ca", baseline=baseline)


def test_a_vf_is_not_looked_for_on_the_bus(
    devices: SriovDevice, host: Worker, domain: NicDomain, nic: MakeNic
) -> None:
    with pytest.raises(Unsupported, match="a VF is made by its PF"):
        devices.rescan(TENANT, nic(), timeout=1)

    host.calls.ask.assert_not_called()


def test_a_vf_that_libvirt_does_not_take_is_taken_back_and_stays_written_down(
    devices: SriovDevice, host: Worker, domain: NicDomain, nic: MakeNic
) -> None:
    domain.failures = {ALIAS: error(libvirt.VIR_ERR_INTERNAL_ERROR, "no VFIO")}

    with pytest.raises(DriverError, match="no VFIO"):
        devices.attach(TENANT, nic())

    assert host.calls.detach.mock_calls == [call(ALIAS)]
    assert list(host.records.read()) == [VF0]


class TestAVfThatOthersPluggedIn:
    """fabric_am passes a VF through as a plain hostdev: its MAC is not in the domain."""

    OWN = DeviceDomain(SLIVER, FOREIGN)
    THEIRS = replace(IDLE, mac=OTHER_MAC, vlan=304)

    @pytest.fixture
    def theirs(self, host: Worker, nics: Substrate) -> FakeDomain:
        made = host.add_domain("instance-1", FOREIGN)
        made.live = True
        made.devices = {LIVE: [plugged(OTHER_VF, "hostdev0")], CONFIG: [plugged(OTHER_VF, "")]}
        nics.vfs["ens7f1"] = [self.THEIRS]
        return made

    def test_is_adopted_as_it_is(
        self, devices: SriovDevice, host: Worker, nics: Substrate, theirs: FakeDomain, nic: MakeNic
    ) -> None:
        assert devices.strange(self.OWN) == (OTHER_VF,)

        devices.adopt(nic(OTHER_VF, vlan=7), self.OWN)

        assert changes(host) == []
        assert nics.vfs["ens7f1"] == [self.THEIRS]
        (found,) = devices.plugged(self.OWN)
        assert (found.component, found.adopted, found.alias) == ("nic", True, ALIAS)
        assert devices.differences(nic(OTHER_VF, vlan=7), self.OWN) == ()
        assert devices.strange(self.OWN) == ()

    def test_is_cleaned_to_a_safe_baseline_when_its_domain_is_gone(
        self,
        devices: SriovDevice,
        host: Worker,
        nics: Substrate,
        theirs: FakeDomain,
        nic: MakeNic,
        mocker: MockerFixture,
    ) -> None:
        mocker.patch.object(module, "clean")
        devices.adopt(nic(OTHER_VF), self.OWN)
        host.domains.remove(theirs)

        (record,) = devices.records(SLIVER)
        devices.clean(record)

        assert nics.vfs["ens7f1"] == [IDLE]
        assert host.records.known == {}

    def test_counts_as_another_domains_once_that_has_it(
        self, devices: SriovDevice, host: Worker, theirs: FakeDomain, nic: MakeNic
    ) -> None:
        devices.adopt(nic(OTHER_VF), self.OWN)
        other = host.add_domain("other", "22222222-2222-2222-2222-222222222222")
        other.devices, theirs.devices = theirs.devices, {LIVE: [], CONFIG: []}

        assert devices.plugged(self.OWN) == ()
        with pytest.raises(DeviceClaimed, match="other"):
            devices.attach(self.OWN, nic(OTHER_VF))

    def test_is_disowned_without_being_touched(
        self, devices: SriovDevice, host: Worker, theirs: FakeDomain, nic: MakeNic
    ) -> None:
        devices.adopt(nic(OTHER_VF), self.OWN)

        devices.disown(nic(OTHER_VF), self.OWN)

        assert (host.records.known, changes(host)) == ({}, [])
