"""Passing PCI functions through: what libvirt is asked, in which order, and what is refused."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from unittest.mock import Mock, call

import libvirt
import pytest
from pytest_mock import MockerFixture

from fabric_direct.drivers.contract import (
    Belongings,
    DeviceDomain,
    DeviceRecord,
    Holder,
    PciFunction,
    PluggedDevice,
)
from fabric_direct.drivers.fake import FakeHost
from fabric_direct.drivers.libvirt.domains.claims import FunctionClaim
from fabric_direct.drivers.libvirt.domains.lookup import domain_uuid
from fabric_direct.drivers.libvirt.passthrough import release as module
from fabric_direct.drivers.libvirt.passthrough.hostdev import HostdevDevice
from fabric_direct.errors import (
    Denied,
    DeviceClaimed,
    DeviceUnclean,
    DriverError,
    FabricDirectError,
    NotFound,
    NotOurs,
    NotVerified,
    SliverBusy,
    TimedOut,
    Unreachable,
    Unsupported,
)
from fabric_direct.model import DeviceState, Gpu, Nvme, PciAddress, SharedNic, SmartNic
from fabric_direct.site.config import AllowedDevice, Host, Site
from fabric_direct.state.locks import exclusive
from tests.unit.pci_host import (
    CONFIG,
    CONNECTION_LOST,
    INACTIVE,
    LIVE,
    NO_DOMAIN,
    VFIO,
    FakeDomain,
    Worker,
    error,
    plugged,
)

URI, HOST, SLIVER = "qemu+ssh://root@w1/system", "w1", "sliver"
TENANT = DeviceDomain(SLIVER)
FOREIGN = "11111111-1111-1111-1111-111111111111"
GPU, AUDIO, DRIVE, TWIN, PF, VF, VF2 = map(
    PciAddress.parse,
    ("25:00.0", "25:00.1", "26:00.0", "26:01.0", "27:00.0", "0001:27:10.1", "0001:27:10.3"),
)
ALIASES = ("ua-sliver-gpu-0", "ua-sliver-gpu-1")
BROKEN = error(libvirt.VIR_ERR_INTERNAL_ERROR, "group 14 is not viable")


@pytest.fixture
def host() -> Worker:
    """A GPU with audio, two drives in one IOMMU group, and a NIC with two VFs."""
    return Worker(
        (
            PciFunction(GPU, "10de", "1eb8", driver="nouveau"),
            PciFunction(AUDIO, "10de", "10f8", driver="snd_hda_intel"),
            PciFunction(DRIVE, "144d", "a80a", driver="nvme", iommu_group=15),
            PciFunction(TWIN, "144d", "a80b", driver="nvme", iommu_group=15),
            PciFunction(PF, "8086", "10c9", virtual=(VF, VF2), links=("ens6f1",)),
            PciFunction(VF, "8086", "10ca", physical=PF, vf=0),
            PciFunction(VF2, "8086", "10ca", physical=PF, vf=1),
        )
    )


@pytest.fixture
def site(tmp_path: Path) -> Site:
    allowed = (
        AllowedDevice(type="GPU", model="Tesla-T4", bdf=GPU),
        AllowedDevice(type="GPU", bdf=AUDIO),
        AllowedDevice(type="NVME", bdf=DRIVE),
        AllowedDevice(type="NVME", bdf=TWIN),
        AllowedDevice(type="SmartNIC", bdf=PF),
        AllowedDevice(type="SharedNIC", uplink="ens6f1"),
    )
    return Site(
        site="TEST",
        state_dir=tmp_path,
        hosts={HOST: Host(libvirt=URI, devices=allowed)},
        limits={"busy": 0.05, "clean": 0.05},
    )


def locked(site: Site, address: PciAddress) -> AbstractContextManager[None]:
    """Hold the lock of a function, as others do."""
    path = site.state_dir / "locks" / f"{HOST}-{address}.lock"
    return exclusive(path, f"device {address}", timeout=1)


@pytest.fixture
def programs(site: Site, host: Worker, mocker: MockerFixture) -> FakeHost:
    """What can be run on the worker."""
    return host.put_in(site, mocker)


@pytest.fixture
def devices(site: Site, programs: FakeHost) -> HostdevDevice:
    return HostdevDevice(site, HOST)


@pytest.fixture
def domain(host: Worker) -> FakeDomain:
    return host.add_domain("sliver-node", str(domain_uuid(SLIVER)), SLIVER)


@pytest.fixture
def gpu() -> Gpu:
    return Gpu(id="gpu", bdf=(GPU, AUDIO))


@pytest.fixture
def one() -> Gpu:
    return Gpu(id="gpu", bdf=(GPU,))


def record(
    address: PciAddress = GPU, component: str = "gpu", quarantined: str = ""
) -> DeviceRecord:
    return DeviceRecord(address, "GPU", None, SLIVER, component, "10de", "1eb8", quarantined)


def names(calls: Mock) -> Iterator[str]:
    """Yield what was done, in order, without what was only read."""
    return (name for name, *_ in calls.mock_calls if name != "read")


class TestAttach:
    def test_looks_at_every_domain_writes_down_unbinds_plugs_and_reads_back(
        self, devices: HostdevDevice, host: Worker, domain: FakeDomain, one: Gpu
    ) -> None:
        host.add_domain("foreign-stopped", FOREIGN)
        host.add_domain("foreign-running", "22222222-2222-2222-2222-222222222222").live = True
        devices.check(one, TENANT)
        host.calls.reset_mock()

        devices.attach(TENANT, one)

        assert host.calls.mock_calls == [
            call.read("sliver-node", 0),
            call.read("foreign-stopped", 0),
            call.read("foreign-running", 0),
            call.read("foreign-running", INACTIVE),
            call.read("sliver-node", 0),
            call.write(GPU),
            call.unbind(GPU),
            call.read("sliver-node", 0),
            call.attach(ALIASES[0], CONFIG),
            call.read("sliver-node", 0),
        ]

    def test_of_two_devices_at_once_puts_each_into_a_slot_of_its_own(
        self, devices: HostdevDevice, host: Worker, domain: FakeDomain, site: Site
    ) -> None:
        """Whoever plugs has read the domain after the one before has plugged."""
        held = site.state_dir / "locks" / f"w1-{domain_uuid(SLIVER)}.lock"
        plugging = domain.attachDeviceFlags
        locked = []

        def plug(xml: str, flags: int) -> None:
            locked.append(held.exists())
            plugging(xml, flags)

        domain.attachDeviceFlags = plug  # type: ignore[method-assign]

        devices.attach(TENANT, Gpu(id="gpu", bdf=(GPU, AUDIO)))

        assert locked == [True, True]

    def test_gives_a_running_domain_the_device_now_and_for_later_starts(
        self, devices: HostdevDevice, host: Worker, domain: FakeDomain, one: Gpu
    ) -> None:
        domain.live = True

        devices.attach(TENANT, one)

        assert host.calls.attach.mock_calls == [call(ALIASES[0], LIVE | CONFIG)]
        assert call.read("sliver-node", INACTIVE) in host.calls.mock_calls[-2:]

    def test_twice_is_the_same_as_once(
        self, devices: HostdevDevice, host: Worker, domain: FakeDomain, gpu: Gpu
    ) -> None:
        domain.live = True
        first, known = devices.attach(TENANT, gpu), host.records.read()
        host.calls.reset_mock()

        assert devices.attach(TENANT, gpu) == first

        assert list(names(host.calls)) == []
        assert host.records.read() == known

    @pytest.mark.parametrize(("there", "missing"), [(LIVE, CONFIG), (CONFIG, LIVE)])
    def test_completes_what_is_there_in_part(
        self,
        devices: HostdevDevice,
        host: Worker,
        domain: FakeDomain,
        one: Gpu,
        there: int,
        missing: int,
    ) -> None:
        domain.live = True
        domain.devices[there] = [plugged(GPU, ALIASES[0])]

        devices.attach(TENANT, one)

        assert host.calls.attach.mock_calls == [call(ALIASES[0], missing)]

    @pytest.mark.parametrize("scope", [LIVE, CONFIG], ids=["live", "defined"])
    def test_refuses_what_another_domain_has_before_anything_is_touched(
        self, devices: HostdevDevice, host: Worker, domain: FakeDomain, gpu: Gpu, scope: int
    ) -> None:
        other = host.add_domain("foreign", FOREIGN)
        other.live, other.devices[scope] = scope == LIVE, [plugged(AUDIO)]

        with pytest.raises(DeviceClaimed, match=r"domain foreign has 0000:25:00.1") as refusal:
            devices.attach(TENANT, gpu)

        assert refusal.value.field == "bdf[1]"
        assert list(names(host.calls)) == []

    def test_finds_no_pci_function_in_a_nic_on_usb_of_another_domain(
        self, devices: HostdevDevice, host: Worker, domain: FakeDomain
    ) -> None:
        there = PciAddress.parse("01:00.0")
        host.functions[there] = PciFunction(there, "10de", "1eb8")
        other = host.add_domain("foreign", FOREIGN)
        source = "<source><address type='usb' bus='1' device='2'/></source>"
        other.devices[CONFIG] = [f"<interface type='hostdev'>{source}</interface>"]

        states = {device.address: device.state for device in devices.inventory()}

        assert states[there] is DeviceState.NOT_ALLOWED

    def test_overlooks_a_domain_that_goes_while_it_is_read(
        self,
        devices: HostdevDevice,
        host: Worker,
        domain: FakeDomain,
        gpu: Gpu,
        mocker: MockerFixture,
    ) -> None:
        gone = host.add_domain("gone", FOREIGN)
        mocker.patch.object(gone, "XMLDesc", side_effect=NO_DOMAIN)

        devices.attach(TENANT, gpu)

        assert len(devices.plugged(TENANT)) == 2

    def test_of_a_sliver_without_a_domain_fails_and_writes_nothing(
        self, devices: HostdevDevice, host: Worker, gpu: Gpu
    ) -> None:
        with pytest.raises(NotFound, match="sliver sliver has no domain"):
            devices.attach(TENANT, gpu)

        assert host.records.read() == {}

    def test_does_not_touch_a_domain_without_our_stamp(
        self, devices: HostdevDevice, host: Worker, domain: FakeDomain, gpu: Gpu
    ) -> None:
        domain.sliver = None

        with pytest.raises(NotOurs):
            devices.attach(TENANT, gpu)

        assert list(names(host.calls)) == []

    def test_does_not_touch_a_domain_that_has_taken_the_place_of_ours_meanwhile(
        self, devices: HostdevDevice, host: Worker, domain: FakeDomain, one: Gpu
    ) -> None:
        host.calls.unbind.side_effect = lambda _: setattr(domain, "sliver", None)

        with pytest.raises(NotOurs):
            devices.attach(TENANT, one)

        host.calls.attach.assert_not_called()

    def test_serves_the_domain_that_a_cloud_made_which_has_no_stamp_of_ours(
        self, devices: HostdevDevice, host: Worker, one: Gpu
    ) -> None:
        nova = host.add_domain("instance-00000007", FOREIGN)

        (found,) = devices.attach(DeviceDomain(SLIVER, FOREIGN), one)

        assert list(nova.slots(CONFIG)) == [found.alias] == [ALIASES[0]]

    def test_that_libvirt_dropped_is_no_success_and_is_taken_back(
        self,
        devices: HostdevDevice,
        host: Worker,
        domain: FakeDomain,
        gpu: Gpu,
        mocker: MockerFixture,
    ) -> None:
        mocker.patch.object(domain, "attachDeviceFlags")

        with pytest.raises(NotVerified, match=r"wanted 0000:25:00.0, .*; found nothing"):
            devices.attach(TENANT, gpu)

        assert host.calls.detach.mock_calls == [call(alias) for alias in ALIASES]


class TestAttachThatFails:
    def test_takes_back_the_functions_of_this_call(
        self, devices: HostdevDevice, host: Worker, domain: FakeDomain, gpu: Gpu
    ) -> None:
        domain.live = True
        domain.failures = {ALIASES[1]: BROKEN}

        with pytest.raises(DriverError, match=r"cannot attach gpu.*group 14 is not viable"):
            devices.attach(TENANT, gpu)

        assert host.calls.detach.mock_calls == [call(alias) for alias in ALIASES]
        assert domain.slots(LIVE) == domain.slots(CONFIG) == {}

    def test_leaves_what_was_there_before(
        self, devices: HostdevDevice, host: Worker, domain: FakeDomain, gpu: Gpu
    ) -> None:
        domain.devices[CONFIG] = [plugged(GPU, ALIASES[0])]
        domain.failures = {ALIASES[1]: BROKEN}

        with pytest.raises(DriverError):
            devices.attach(TENANT, gpu)

        assert host.calls.detach.mock_calls == [call(ALIASES[1])]

    def test_names_what_cannot_be_taken_back(
        self, devices: HostdevDevice, host: Worker, domain: FakeDomain, gpu: Gpu
    ) -> None:
        domain.failures = {ALIASES[1]: BROKEN}
        host.held = {ALIASES[0]}

        with pytest.raises(DriverError, match=r"viable.*still attached.*: ua-sliver-gpu-0\.") as e:
            devices.attach(TENANT, gpu)

        assert isinstance(e.value.__cause__, libvirt.libvirtError)

    def test_leaves_the_record_so_that_nobody_else_gets_the_device(
        self, devices: HostdevDevice, host: Worker, domain: FakeDomain, one: Gpu
    ) -> None:
        domain.failures = {ALIASES[0]: BROKEN}

        with pytest.raises(DriverError):
            devices.attach(TENANT, one)

        with pytest.raises(DeviceUnclean, match="sliver/gpu had it last"):
            devices.check(one, DeviceDomain("other"))

    def test_to_unbind_plugs_nothing_in(
        self,
        devices: HostdevDevice,
        host: Worker,
        domain: FakeDomain,
        one: Gpu,
        mocker: MockerFixture,
    ) -> None:
        busy = error(libvirt.VIR_ERR_OPERATION_FAILED, "device is busy")
        mocker.patch.object(host, "_bind", side_effect=busy)

        with pytest.raises(DriverError, match=r"cannot attach gpu.*device is busy"):
            devices.attach(TENANT, one)

        assert list(host.records.read()) == [GPU]
        host.calls.attach.assert_not_called()


class TestWhatIsWrittenDown:
    def test_is_whose_the_function_is_and_what_it_was(
        self, devices: HostdevDevice, host: Worker, domain: FakeDomain
    ) -> None:
        devices.attach(TENANT, Gpu(id="gpu", model="Tesla-T4", bdf=(GPU, AUDIO)))

        assert host.records.read() == {
            GPU: DeviceRecord(GPU, "GPU", "Tesla-T4", SLIVER, "gpu", "10de", "1eb8"),
            AUDIO: DeviceRecord(AUDIO, "GPU", "Tesla-T4", SLIVER, "gpu", "10de", "10f8"),
        }

    def test_is_not_written_anew(
        self, devices: HostdevDevice, host: Worker, domain: FakeDomain, one: Gpu
    ) -> None:
        host.records.known = {GPU: record()}

        devices.attach(TENANT, one)

        host.calls.write.assert_not_called()

    @pytest.mark.parametrize("known", [{}, {GPU: record(quarantined="it was not reset")}])
    def test_is_written_of_what_has_none_alone(
        self, devices: HostdevDevice, host: Worker, known: dict[PciAddress, DeviceRecord]
    ) -> None:
        host.records.known = dict(known)

        devices.write_record(record())

        assert host.records.read() == (known or {GPU: record()})

    def test_is_told_for_each_sliver(self, devices: HostdevDevice, host: Worker) -> None:
        host.records.known = {GPU: record(), AUDIO: record(AUDIO), DRIVE: record(DRIVE, "drive")}

        assert [r.address for r in devices.records(SLIVER)] == [GPU, AUDIO, DRIVE]
        assert devices.records("other") == ()


class TestTheHostsDrivers:
    def test_lose_the_whole_iommu_group_of_which_only_the_wanted_is_written_down(
        self, devices: HostdevDevice, host: Worker, domain: FakeDomain
    ) -> None:
        devices.attach(TENANT, Nvme(id="drive", bdf=(DRIVE,)))

        assert {a for a, f in host.functions.items() if f.driver == VFIO} == {DRIVE, TWIN}
        assert list(host.records.read()) == [DRIVE]

    @pytest.mark.parametrize(("driver", "unbound"), [(VFIO, []), (None, [GPU])])
    def test_are_asked_for_what_vfio_has_not(
        self,
        devices: HostdevDevice,
        host: Worker,
        domain: FakeDomain,
        one: Gpu,
        driver: str | None,
        unbound: list[PciAddress],
    ) -> None:
        host.change(GPU, driver=driver)

        devices.attach(TENANT, one)

        assert host.calls.unbind.mock_calls == [call(address) for address in unbound]


class TestSeveralFunctions:
    def test_have_a_port_each_now_and_share_a_slot_later(
        self, devices: HostdevDevice, host: Worker, domain: FakeDomain, gpu: Gpu
    ) -> None:
        domain.live = True

        devices.attach(TENANT, gpu)

        one, other = (PciAddress(0, bus, 0, 0) for bus in (1, 2))
        assert domain.slots(LIVE) == dict(zip(ALIASES, (one, other), strict=True))
        assert domain.slots(CONFIG) == dict(
            zip(ALIASES, (one, PciAddress(0, 1, 0, 1)), strict=True)
        )
        assert host.calls.attach.mock_calls == [
            call(alias, scope) for alias in ALIASES for scope in (LIVE, CONFIG)
        ]

    def test_are_one_device_with_several_functions_in_the_definition(
        self, devices: HostdevDevice, domain: FakeDomain, gpu: Gpu
    ) -> None:
        devices.attach(TENANT, gpu)

        first, second = domain.devices[CONFIG]
        assert "multifunction" in first
        assert "multifunction" not in second

    def test_join_those_that_an_interrupted_call_plugged_in(
        self, devices: HostdevDevice, host: Worker, domain: FakeDomain, gpu: Gpu
    ) -> None:
        domain.devices[CONFIG] = [plugged(GPU, ALIASES[0], bus=3)]

        devices.attach(TENANT, gpu)

        assert domain.slots(CONFIG)[ALIASES[1]] == PciAddress(0, 3, 0, 1)
        assert host.calls.attach.mock_calls == [call(ALIASES[1], CONFIG)]

    def test_of_different_devices_are_plugged_in_one_by_one(
        self, devices: HostdevDevice, host: Worker, domain: FakeDomain
    ) -> None:
        domain.live = True

        devices.attach(TENANT, Nvme(id="raid", bdf=(TWIN, DRIVE)))

        labels = ["ua-sliver-raid-1", "ua-sliver-raid-0"]
        assert host.calls.attach.mock_calls == [call(label, LIVE | CONFIG) for label in labels]
        ports = {label: PciAddress(0, bus, 0, 0) for bus, label in enumerate(labels, 1)}
        assert domain.slots(LIVE) == domain.slots(CONFIG) == ports

    def test_need_a_free_root_port(
        self, devices: HostdevDevice, host: Worker, domain: FakeDomain, gpu: Gpu
    ) -> None:
        domain.ports = 0

        with pytest.raises(Unsupported, match="no free PCIe root port"):
            devices.attach(TENANT, gpu)


class TestTheLocks:
    def test_keep_others_off_a_function_while_it_is_worked_on(
        self, devices: HostdevDevice, site: Site, domain: FakeDomain, gpu: Gpu
    ) -> None:
        with (
            locked(site, AUDIO),
            pytest.raises(SliverBusy, match=r"0000:25:00.1"),
        ):
            devices.attach(TENANT, gpu)

        assert len(devices.attach(TENANT, gpu)) == 2

    @pytest.mark.parametrize(
        ("busy", "component"),
        [
            (VF, SmartNic(id="nic", bdf=(PF,))),
            (TWIN, Nvme(id="drive", bdf=(DRIVE,))),
        ],
        ids=["a VF of a NIC", "another function of an IOMMU group"],
    )
    def test_are_those_of_all_that_goes_with_a_function(
        self,
        devices: HostdevDevice,
        site: Site,
        domain: FakeDomain,
        busy: PciAddress,
        component: SmartNic | Nvme,
    ) -> None:
        with (
            locked(site, busy),
            pytest.raises(SliverBusy, match=str(busy)),
        ):
            devices.attach(TENANT, component)

    def test_let_the_vfs_of_a_nic_be_worked_on_at_once(
        self, devices: HostdevDevice, site: Site, domain: FakeDomain
    ) -> None:
        with locked(site, VF2):
            assert devices.attach(TENANT, SharedNic(id="nic", bdf=(VF,)))


class TestCheck:
    def test_names_the_function_that_another_domain_has(
        self, devices: HostdevDevice, host: Worker, gpu: Gpu
    ) -> None:
        host.add_domain("foreign", FOREIGN).devices[CONFIG] = [plugged(AUDIO)]

        with pytest.raises(DeviceClaimed, match="domain foreign") as refusal:
            devices.check(gpu, TENANT)

        assert refusal.value.field == "bdf[1]"

    @pytest.mark.parametrize("uuid", [None, FOREIGN], ids=["ours", "a cloud's"])
    def test_passes_what_the_sliver_has_already(
        self, devices: HostdevDevice, host: Worker, gpu: Gpu, uuid: str | None
    ) -> None:
        tenant = DeviceDomain(SLIVER, uuid)
        host.add_domain("its", uuid or str(domain_uuid(SLIVER)), None if uuid else SLIVER)
        devices.attach(tenant, gpu)

        devices.check(gpu, tenant)

    def test_says_in_our_words_that_libvirt_does_not_answer(
        self, devices: HostdevDevice, host: Worker, gpu: Gpu
    ) -> None:
        host.lost = CONNECTION_LOST

        with pytest.raises(Unreachable, match="cannot check gpu"):
            devices.check(gpu, TENANT)


class TestPlugged:
    def test_of_a_running_domain_says_where_in_the_guest_and_on_which_port(
        self, devices: HostdevDevice, domain: FakeDomain
    ) -> None:
        domain.live = True
        domain.devices[LIVE] = [plugged(GPU, ALIASES[0], bus=3), plugged(DRIVE, "hostdev1", bus=4)]

        found = devices.plugged(TENANT)

        where, port = PciAddress.parse("03:00.0"), PciAddress.parse("00:02.2")
        assert found == (PluggedDevice("gpu", ALIASES[0], GPU, where, port),)

    def test_of_a_stopped_domain_says_what_is_defined(
        self, devices: HostdevDevice, domain: FakeDomain
    ) -> None:
        domain.devices[CONFIG] = [plugged(GPU, ALIASES[0])]

        assert devices.plugged(TENANT) == (PluggedDevice("gpu", ALIASES[0], GPU),)

    def test_of_a_sliver_without_a_domain_is_nothing(self, devices: HostdevDevice) -> None:
        assert devices.plugged(TENANT) == ()

    @pytest.mark.parametrize(
        ("there", "lacking"),
        [
            ((LIVE, CONFIG), []),
            ((CONFIG,), ["now"]),
            ((LIVE,), ["at its next start"]),
            ((), ["at its next start", "now"]),
        ],
    )
    def test_differs_where_a_function_is_missing_now_or_at_the_next_start(
        self,
        devices: HostdevDevice,
        domain: FakeDomain,
        one: Gpu,
        there: tuple[int, ...],
        lacking: list[str],
    ) -> None:
        domain.live = True
        for scope in there:
            domain.devices[scope] = [plugged(GPU, ALIASES[0])]

        found = devices.differences(one, TENANT)

        assert found == tuple(f"GPU gpu does not have 0000:25:00.0 {when}" for when in lacking)

    def test_differs_if_another_function_has_its_place(
        self, devices: HostdevDevice, domain: FakeDomain, one: Gpu
    ) -> None:
        domain.devices[CONFIG] = [plugged(DRIVE, ALIASES[0])]

        assert devices.differences(one, TENANT)


class TestTheDomain:
    """What others did to it."""

    def test_that_nobody_touched_does_not_differ(
        self, devices: HostdevDevice, domain: FakeDomain
    ) -> None:
        domain.devices[CONFIG] = [plugged(GPU, ALIASES[0])]

        assert devices.domain_differences(TENANT) == ()

    def test_of_a_cloud_bears_the_name_that_the_cloud_says(
        self, devices: HostdevDevice, host: Worker
    ) -> None:
        host.add_domain("instance-0001", FOREIGN, None)
        tenant = DeviceDomain(SLIVER, FOREIGN)

        assert devices.domain_differences(tenant) == ()
        assert devices.domain_differences(tenant, "instance-0001") == ()
        assert devices.domain_differences(tenant, "instance-0002") == (
            "its domain is named instance-0001, not instance-0002",
        )

    def test_that_was_renamed_bears_another_name_than_its_stamp_says(
        self, devices: HostdevDevice, host: Worker
    ) -> None:
        host.add_domain("mine", str(domain_uuid(SLIVER)), SLIVER)

        assert devices.domain_differences(TENANT) == ("its domain is named mine, not sliver-node",)

    def test_that_is_gone_is_named(self, devices: HostdevDevice) -> None:
        said = devices.domain_differences(DeviceDomain(SLIVER, FOREIGN), "instance-0001")

        assert said == (f"there is no domain instance-0001 on {HOST}",)

    def test_has_a_function_of_others_that_bears_no_alias_of_the_sliver(
        self, devices: HostdevDevice, domain: FakeDomain
    ) -> None:
        domain.live = True
        domain.devices[LIVE] = [plugged(GPU, ALIASES[0]), plugged(DRIVE, "hostdev1", bus=2)]
        domain.devices[CONFIG] = [plugged(GPU, ALIASES[0]), plugged(DRIVE, "ua-other-gpu-0", bus=2)]

        assert devices.domain_differences(TENANT) == (
            f"its domain has {DRIVE}, which others passed through",
        )


class TestASurvey:
    def test_reads_each_domain_once_however_much_is_asked(
        self, devices: HostdevDevice, host: Worker
    ) -> None:
        slivers = [f"s{number}" for number in range(5)]
        for sliver in slivers:
            host.add_domain(f"{sliver}-node", str(domain_uuid(sliver)), sliver)
        lost = Gpu(id="gpu", bdf=(GPU,))
        asked = [Belongings(DeviceDomain(s), None, (lost,) if s == "s0" else ()) for s in slivers]
        host.calls.reset_mock()

        found = devices.survey(asked)

        missing = "GPU gpu does not have 0000:25:00.0 at its next start"
        assert found == dict.fromkeys(slivers, ()) | {"s0": (missing,)}
        read = [call.args[0] for call in host.calls.read.call_args_list]
        assert sorted(read) == [f"{sliver}-node" for sliver in slivers]

    def test_reads_what_was_adopted_once_however_many_have_devices_of_others(
        self, devices: HostdevDevice, host: Worker, mocker: MockerFixture
    ) -> None:
        slivers = [f"s{number}" for number in range(5)]
        for sliver in slivers:
            domain = host.add_domain(f"{sliver}-node", str(domain_uuid(sliver)), sliver)
            domain.devices[CONFIG] = [plugged(GPU)]
        read = mocker.spy(devices._host.records, "read")

        found = devices.survey([Belongings(DeviceDomain(sliver), None, ()) for sliver in slivers])

        foreign = (f"its domain has {GPU}, which others passed through",)
        assert found == dict.fromkeys(slivers, foreign)
        assert read.call_count == 1


class TestThePortsOfARunningDomain:
    def test_are_counted(self, devices: HostdevDevice, domain: FakeDomain) -> None:
        domain.live, domain.ports = True, 4
        domain.devices[LIVE] = [plugged(GPU, ALIASES[0], bus=2)]

        assert devices.free_ports(TENANT) == 3

    def test_are_of_no_interest_while_it_does_not_run(
        self, devices: HostdevDevice, domain: FakeDomain
    ) -> None:
        assert devices.free_ports(TENANT) is None
        assert devices.free_ports(DeviceDomain("other")) is None


class TestRestart:
    @pytest.mark.parametrize("deaf", [False, True])
    def test_asks_the_guest_and_then_cuts_the_power(
        self, devices: HostdevDevice, host: Worker, domain: FakeDomain, *, deaf: bool
    ) -> None:
        domain.live, domain.deaf = True, deaf

        devices.restart(TENANT, timeout=0)

        forced = ["power_off"] if deaf else []
        assert list(names(host.calls)) == ["power_button", *forced, "power_on"]

    def test_starts_a_domain_that_is_off(
        self, devices: HostdevDevice, host: Worker, domain: FakeDomain
    ) -> None:
        devices.restart(TENANT, timeout=0)

        assert list(names(host.calls)) == ["power_on"]

    def test_waits_for_nothing(self, devices: HostdevDevice, domain: FakeDomain) -> None:
        assert not devices.cold
        assert not devices.pending(TENANT)


class TestDetach:
    def test_takes_each_function_of_the_component_live_or_defined(
        self, devices: HostdevDevice, host: Worker, domain: FakeDomain
    ) -> None:
        domain.live = True
        domain.devices[LIVE] = [plugged(GPU, ALIASES[0]), plugged(DRIVE, "ua-sliver-nvme-0")]
        domain.devices[CONFIG] = [plugged(AUDIO, ALIASES[1]), plugged(DRIVE, "ua-sliver-nvme-0")]

        devices.detach(TENANT, "gpu", timeout=60)

        assert host.calls.detach.mock_calls == [call(alias) for alias in ALIASES]

    def test_leaves_the_function_written_down_and_unbound(
        self, devices: HostdevDevice, host: Worker, domain: FakeDomain, one: Gpu
    ) -> None:
        devices.attach(TENANT, one)

        devices.detach(TENANT, "gpu", timeout=60)

        assert list(host.records.read()) == [GPU]
        assert host.functions[GPU].driver == VFIO

    def test_gives_the_functions_its_time_together(
        self, devices: HostdevDevice, host: Worker, domain: FakeDomain
    ) -> None:
        domain.devices[CONFIG] = [plugged(GPU, ALIASES[0]), plugged(AUDIO, ALIASES[1])]

        devices.detach(TENANT, "gpu", timeout=60)

        first, second = (c.kwargs["timeout"] for c in host.calls.ask.call_args_list)
        assert 60 >= first > second

    def test_ends_with_a_function_that_the_guest_holds(
        self, devices: HostdevDevice, host: Worker, domain: FakeDomain
    ) -> None:
        domain.devices[CONFIG] = [plugged(GPU, ALIASES[0]), plugged(AUDIO, ALIASES[1])]
        host.held = {ALIASES[0]}

        with pytest.raises(TimedOut):
            devices.detach(TENANT, "gpu", timeout=60)

        assert host.calls.ask.call_count == 1

    def test_of_what_is_not_there_succeeds(
        self, devices: HostdevDevice, host: Worker, domain: FakeDomain
    ) -> None:
        devices.detach(TENANT, "gpu", timeout=1)
        devices.detach(DeviceDomain("other"), "gpu", timeout=1)

        host.calls.detach.assert_not_called()

    def test_does_not_touch_a_domain_without_our_stamp(
        self, devices: HostdevDevice, host: Worker, domain: FakeDomain
    ) -> None:
        domain.sliver = None

        with pytest.raises(NotOurs):
            devices.detach(TENANT, "gpu", timeout=1)

        host.calls.ask.assert_not_called()


@pytest.fixture
def clean(host: Worker, mocker: MockerFixture) -> Mock:
    """The cleaning itself, which has tests of its own."""

    def cleaned(
        _: FakeHost, record: DeviceRecord, functions: list[PciAddress], **_kw: float
    ) -> str:
        host.calls.clean(record.address, list(functions))
        return "it was reset"

    return mocker.patch.object(module, "clean", side_effect=cleaned)


class TestClean:
    def test_gives_the_function_back_cleans_it_and_strikes_its_record(
        self, devices: HostdevDevice, host: Worker, clean: Mock
    ) -> None:
        host.records.known = {GPU: record()}
        host.change(GPU, driver=VFIO)

        devices.clean(record())

        assert host.calls.mock_calls == [
            call.bind(GPU),
            call.clean(GPU, [GPU, AUDIO]),
            call.strike(GPU),
        ]
        assert host.records.read() == {}

    def test_gives_the_whole_iommu_group_back(
        self, devices: HostdevDevice, host: Worker, clean: Mock
    ) -> None:
        host.records.known = {DRIVE: record(DRIVE)}
        host.change(DRIVE, driver=VFIO)
        host.change(TWIN, driver=VFIO)

        devices.clean(record(DRIVE))

        assert host.calls.bind.mock_calls == [call(DRIVE), call(TWIN)]

    def test_leaves_the_host_without_what_another_domain_has_of_the_group(
        self, devices: HostdevDevice, host: Worker, clean: Mock
    ) -> None:
        host.records.known = {DRIVE: record(DRIVE)}
        host.change(DRIVE, driver=VFIO)
        host.add_domain("foreign", FOREIGN).devices[CONFIG] = [plugged(TWIN)]

        devices.clean(record(DRIVE))

        host.calls.bind.assert_not_called()

    @pytest.mark.parametrize("driver", ["nouveau", "its-own"])
    def test_leaves_a_driver_of_the_host_as_it_is(
        self, devices: HostdevDevice, host: Worker, clean: Mock, driver: str
    ) -> None:
        host.records.known = {GPU: record()}
        host.change(GPU, driver=driver)

        devices.clean(record())

        host.calls.bind.assert_not_called()

    def test_resets_with_it_what_is_its_components(
        self, devices: HostdevDevice, host: Worker, clean: Mock
    ) -> None:
        host.records.known = {a: record(a) for a in (GPU, DRIVE)} | {AUDIO: record(AUDIO, "other")}

        devices.clean(record())

        assert host.calls.clean.mock_calls == [call(GPU, [GPU, DRIVE])]

    def test_resets_with_it_a_function_of_its_device_that_is_clean_already(
        self, devices: HostdevDevice, host: Worker, clean: Mock
    ) -> None:
        host.records.known = {GPU: record(), AUDIO: record(AUDIO)}

        devices.clean(record())
        devices.clean(record(AUDIO))

        both = [GPU, AUDIO]
        assert host.calls.clean.mock_calls == [call(GPU, both), call(AUDIO, both)]

    def test_does_not_reset_what_a_domain_has(
        self, devices: HostdevDevice, host: Worker, domain: FakeDomain, clean: Mock
    ) -> None:
        host.records.known = {GPU: record(), AUDIO: record(AUDIO)}
        domain.devices[CONFIG] = [plugged(AUDIO, ALIASES[1])]

        devices.clean(record())

        assert host.calls.clean.mock_calls == [call(GPU, [GPU])]

    @pytest.mark.parametrize("scope", [LIVE, CONFIG])
    def test_refuses_what_a_domain_still_has(
        self, devices: HostdevDevice, host: Worker, domain: FakeDomain, clean: Mock, scope: int
    ) -> None:
        domain.live = True
        domain.devices[scope] = [plugged(GPU, ALIASES[0])]
        host.records.known = {GPU: record()}

        with pytest.raises(DeviceClaimed, match=r"domain sliver-node still has 0000:25:00.0"):
            devices.clean(record())

        assert list(names(host.calls)) == []

    @pytest.mark.parametrize(
        "why",
        [
            NotVerified("block 7 is not zero"),
            TimedOut("no answer came"),
            NotFound("there is no such function"),
            Unsupported("no reset is known for it"),
            Denied("no right to"),
        ],
        ids=lambda why: type(why).__name__,
    )
    def test_quarantines_what_cannot_be_verified(
        self, devices: HostdevDevice, host: Worker, clean: Mock, why: FabricDirectError
    ) -> None:
        host.records.known = {GPU: record()}
        clean.side_effect = why

        with pytest.raises(DeviceUnclean, match=f"0000:25:00.0 is quarantined.*{why}") as caught:
            devices.clean(record())

        assert host.records.read() == {GPU: record(quarantined=str(why))}
        assert "fabric-direct devices release w1 0000:25:00.0 --force" in caught.value.remedy
        assert caught.value.__cause__ is why

    def test_quarantines_what_does_not_go_back_to_its_driver(
        self, devices: HostdevDevice, host: Worker, clean: Mock, mocker: MockerFixture
    ) -> None:
        host.records.known = {GPU: record()}
        host.change(GPU, driver=VFIO)
        mocker.patch.object(host, "_bind", side_effect=BROKEN)

        with pytest.raises(DeviceUnclean, match="group 14 is not viable"):
            devices.clean(record())

        assert host.records.read()[GPU].quarantined

    def test_does_not_try_again_with_what_is_quarantined(
        self, devices: HostdevDevice, host: Worker, clean: Mock
    ) -> None:
        host.records.known = {GPU: record(quarantined="block 7 is not zero")}

        with pytest.raises(DeviceUnclean, match="block 7 is not zero"):
            devices.clean(record())

        assert list(names(host.calls)) == []

    @pytest.mark.parametrize("where", ["the worker", "its libvirt", "libvirt, in between"])
    def test_leaves_it_unclean_but_not_quarantined_if_the_host_does_not_answer(
        self,
        devices: HostdevDevice,
        host: Worker,
        clean: Mock,
        mocker: MockerFixture,
        where: str,
    ) -> None:
        host.records.known = {GPU: record()}
        host.change(GPU, driver=VFIO)
        if where == "the worker":
            clean.side_effect = Unreachable("w1 does not answer")
        elif where == "its libvirt":
            host.lost = CONNECTION_LOST
        else:
            mocker.patch.object(host, "_bind", side_effect=CONNECTION_LOST)

        with pytest.raises(Unreachable):
            devices.clean(record())

        assert host.records.read() == {GPU: record()}

    @pytest.mark.parametrize("now", [None, "other"], ids=["nobody's", "another sliver's"])
    def test_of_what_is_no_longer_the_components_does_nothing(
        self, devices: HostdevDevice, host: Worker, clean: Mock, now: str | None
    ) -> None:
        host.records.known = {GPU: record(component=now)} if now else {}

        devices.clean(record())

        assert list(names(host.calls)) == []

    @pytest.mark.parametrize("busy", [AUDIO, DRIVE], ids=["of its device", "of its component"])
    def test_waits_for_what_is_reset_with_it(
        self, devices: HostdevDevice, site: Site, host: Worker, clean: Mock, busy: PciAddress
    ) -> None:
        host.records.known = {GPU: record(), DRIVE: record(DRIVE)}

        with (
            locked(site, busy),
            pytest.raises(SliverBusy, match=str(busy)),
        ):
            devices.clean(record())


class TestRelease:
    def test_cleans_once_more_what_is_quarantined(
        self, devices: HostdevDevice, host: Worker, clean: Mock
    ) -> None:
        host.records.known = {GPU: record(quarantined="block 7 is not zero")}

        devices.release(GPU, force=False)

        assert list(names(host.calls)) == ["clean", "strike"]
        assert host.records.read() == {}

    def test_keeps_the_quarantine_of_what_still_cannot_be_cleaned(
        self, devices: HostdevDevice, host: Worker, clean: Mock
    ) -> None:
        host.records.known = {GPU: record(quarantined="block 7 is not zero")}
        clean.side_effect = NotVerified("block 8 is not zero")

        with pytest.raises(DeviceUnclean, match="block 8"):
            devices.release(GPU, force=False)

        assert host.records.read()[GPU].quarantined == "block 8 is not zero"

    def test_leaves_alone_what_somebody_else_released_meanwhile(
        self, devices: HostdevDevice, host: Worker, clean: Mock, mocker: MockerFixture
    ) -> None:
        host.records.known = {GPU: record(quarantined="block 7 is not zero")}
        locked = devices._host.lock_to_clean

        def late(of: DeviceRecord) -> AbstractContextManager[None]:
            lock = locked(of)
            host.records.known = {}
            return lock

        mocker.patch.object(devices._host, "lock_to_clean", late)

        devices.release(GPU, force=False)

        assert list(names(host.calls)) == []

    def test_by_force_strikes_the_record_alone(
        self, devices: HostdevDevice, host: Worker, clean: Mock
    ) -> None:
        host.records.known = {GPU: record(quarantined="block 7 is not zero"), AUDIO: record(AUDIO)}

        devices.release(GPU, force=True)

        assert list(names(host.calls)) == ["strike"]
        assert list(host.records.read()) == [AUDIO]

    @pytest.mark.parametrize("force", [False, True])
    def test_refuses_what_a_domain_has(
        self, devices: HostdevDevice, host: Worker, domain: FakeDomain, one: Gpu, *, force: bool
    ) -> None:
        devices.attach(TENANT, one)

        with pytest.raises(DeviceClaimed, match="domain sliver-node still has"):
            devices.release(GPU, force=force)

        assert list(host.records.read()) == [GPU]

    @pytest.mark.parametrize("force", [False, True])
    def test_of_what_is_not_written_down_does_nothing(
        self, devices: HostdevDevice, host: Worker, clean: Mock, *, force: bool
    ) -> None:
        devices.release(GPU, force=force)

        assert list(names(host.calls)) == []

    @pytest.mark.parametrize("force", [False, True])
    def test_of_what_is_not_there_and_not_written_down_is_refused(
        self, devices: HostdevDevice, host: Worker, *, force: bool
    ) -> None:
        del host.functions[GPU]

        with pytest.raises(NotFound, match=r"no PCI function 0000:25:00.0, and no record of one"):
            devices.release(GPU, force=force)

    def test_by_force_strikes_the_record_of_what_was_pulled_out(
        self, devices: HostdevDevice, host: Worker, clean: Mock
    ) -> None:
        host.records.known = {GPU: record()}
        del host.functions[GPU]

        devices.release(GPU, force=True)

        assert host.records.read() == {}

    def test_says_in_our_words_that_libvirt_does_not_answer(
        self, devices: HostdevDevice, host: Worker, clean: Mock
    ) -> None:
        host.records.known = {GPU: record()}
        host.lost = CONNECTION_LOST

        with pytest.raises(Unreachable, match=r"cannot release 0000:25:00.0"):
            devices.release(GPU, force=True)


class TestRescan:
    @pytest.fixture(autouse=True)
    def bus(self, host: Worker, programs: FakeHost) -> None:
        """The worker's PCI bus."""

        def remove(addresses: list[str]) -> dict[str, str]:
            host.calls.remove(addresses)
            host.off_bus |= set(map(PciAddress.parse, addresses))
            there = [f for f in host.functions.values() if str(f.address) in addresses]
            return {str(f.address): f"{f.vendor}:{f.product}" for f in there}

        def rescan(expected: dict[str, str], limit: float) -> None:
            host.calls.rescan(expected)
            host.off_bus.clear()

        programs.functions = {"pci.remove": remove, "pci.rescan": rescan}

    def test_takes_it_from_guest_and_bus_finds_it_again_and_gives_it_back(
        self, devices: HostdevDevice, host: Worker, domain: FakeDomain, one: Gpu
    ) -> None:
        domain.live = True
        devices.attach(TENANT, one)
        host.calls.reset_mock()

        devices.rescan(TENANT, one, timeout=60)

        assert list(names(host.calls)) == [
            "ask",
            "detach",
            "bind",
            "remove",
            "rescan",
            "unbind",
            "attach",
        ]
        assert host.calls.remove.mock_calls == [call([str(GPU)])]
        assert host.calls.rescan.mock_calls == [call({str(GPU): "10de:1eb8"})]
        assert list(domain.slots(LIVE)) == [ALIASES[0]]

    @pytest.mark.parametrize("event", ["remove", "rescan"])
    def test_waits_until_libvirt_has_heard_that_it_left_and_that_it_came_back(
        self, devices: HostdevDevice, host: Worker, domain: FakeDomain, one: Gpu, event: str
    ) -> None:
        devices.attach(TENANT, one)
        getattr(host.calls, event).side_effect = lambda _: host.unheard.update({GPU: 1})

        devices.rescan(TENANT, one, timeout=60)

        assert host.unheard == {GPU: 0}
        assert list(domain.slots(CONFIG)) == [ALIASES[0]]

    def test_looks_for_what_an_interrupted_one_left_off_the_bus(
        self, devices: HostdevDevice, host: Worker, domain: FakeDomain, one: Gpu
    ) -> None:
        host.records.known = {GPU: record()}
        there = host.functions.pop(GPU)
        host.calls.rescan.side_effect = lambda _: host.functions.update({GPU: there})

        devices.rescan(TENANT, one, timeout=60)

        assert host.calls.rescan.mock_calls == [call({str(GPU): "10de:1eb8"})]
        assert list(domain.slots(CONFIG)) == [ALIASES[0]]

    def test_that_does_not_find_it_is_no_success_and_leaves_it_the_slivers(
        self, devices: HostdevDevice, host: Worker, domain: FakeDomain, one: Gpu
    ) -> None:
        devices.attach(TENANT, one)
        host.calls.rescan.side_effect = TimedOut("0000:25:00.0 (10de:1eb8) does not answer")

        with pytest.raises(NotVerified, match=r"gpu was not found again.*does not answer"):
            devices.rescan(TENANT, one, timeout=60)

        assert list(host.records.read()) == [GPU]

    def test_does_not_begin_while_the_guest_holds_it(
        self, devices: HostdevDevice, host: Worker, domain: FakeDomain, one: Gpu
    ) -> None:
        devices.attach(TENANT, one)
        host.held = {ALIASES[0]}

        with pytest.raises(TimedOut):
            devices.rescan(TENANT, one, timeout=60)

        host.calls.remove.assert_not_called()

    def test_says_in_our_words_that_libvirt_refuses(
        self,
        devices: HostdevDevice,
        host: Worker,
        domain: FakeDomain,
        one: Gpu,
        mocker: MockerFixture,
    ) -> None:
        devices.attach(TENANT, one)
        mocker.patch.object(host, "_bind", side_effect=BROKEN)

        with pytest.raises(DriverError, match=r"cannot rescan gpu.*not viable"):
            devices.rescan(TENANT, one, timeout=60)


def test_the_inventory_says_what_a_function_is_and_whose(
    devices: HostdevDevice, host: Worker, domain: FakeDomain, one: Gpu
) -> None:
    devices.attach(TENANT, one)
    foreign = host.add_domain("foreign", FOREIGN)
    foreign.devices[CONFIG] = [plugged(DRIVE)]

    found = {device.address: device for device in devices.inventory()}

    assert [d.function for d in found.values()] == list(host.functions.values())
    assert [(d.uuid, d.live) for d in found[GPU].domains] == [(domain.uuid, None)]
    assert (found[GPU].state, found[GPU].owner) == (DeviceState.USED, "sliver/gpu")
    assert (found[DRIVE].state, found[DRIVE].owner) == (DeviceState.USED, "foreign")
    assert found[DRIVE].domains == (Holder("foreign", FOREIGN),)
    assert (found[VF].state, found[VF].type) == (DeviceState.FREE, "SharedNIC")


@pytest.mark.parametrize(
    ("sliver", "alias", "owner"),
    [
        ("a-b", "ua-a-b-c-0", "a-b/c"),
        ("a", "ua-a-b-c-0", "a/b-c"),
        ("x", "ua-a-b-c-0", "its-name"),
        ("x", "hostdev0", "its-name"),
        ("x", "", "its-name"),
    ],
)
def test_an_owner_is_told_by_the_uuid_that_its_sliver_gives(
    sliver: str, alias: str, owner: str
) -> None:
    assert FunctionClaim(GPU, "its-name", str(domain_uuid(sliver)), alias).owner == owner
