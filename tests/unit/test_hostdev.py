"""Passing PCI functions through: what libvirt is asked, in which order, and what is refused."""

from pathlib import Path
from unittest.mock import Mock, call
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import libvirt
import pytest
from pytest_mock import MockerFixture

from fabric_direct.config import AllowedDevice, Host, Site
from fabric_direct.drivers.base import HostDevice, PluggedDevice
from fabric_direct.drivers.libvirt import hostdev as module
from fabric_direct.drivers.libvirt.claims import Claim, locked
from fabric_direct.drivers.libvirt.domain import domain_uuid
from fabric_direct.drivers.libvirt.hostdev import HostdevDevice
from fabric_direct.drivers.libvirt.xml import STAMP_NAMESPACE
from fabric_direct.drivers.pools import derived_mac
from fabric_direct.errors import (
    DeviceClaimed,
    DriverError,
    InvalidSliver,
    NotFound,
    NotOurs,
    NotVerified,
    SliverBusy,
    TimedOut,
)
from fabric_direct.model import (
    Capacities,
    Gpu,
    Interface,
    NodeSliver,
    Nvme,
    PciAddress,
    PciComponent,
    SharedNic,
    SmartNic,
)

URI, HOST, SLIVER = "qemu+ssh://root@w1/system", "w1", "sliver"
LIVE, CONFIG = libvirt.VIR_DOMAIN_AFFECT_LIVE, libvirt.VIR_DOMAIN_AFFECT_CONFIG
INACTIVE = libvirt.VIR_DOMAIN_XML_INACTIVE
GPU, AUDIO, NVME, PF, VF = map(
    PciAddress.parse, ("25:00.0", "25:00.1", "26:00.0", "27:00.0", "0001:27:10.1")
)
MAC = "52:54:00:0f:d0:03"
ALIASES = ("ua-sliver-gpu-0", "ua-sliver-gpu-1")


def error(code: int, message: str) -> libvirt.libvirtError:
    made = libvirt.libvirtError(message)
    made.err = (code, libvirt.VIR_FROM_QEMU, message, 2, None, None, None, -1, -1)
    return made


NO_DOMAIN = error(libvirt.VIR_ERR_NO_DOMAIN, "Domain not found")


def hexadecimal(address: PciAddress) -> str:
    parts = (f"{n}='{getattr(address, n):#x}'" for n in ("domain", "bus", "slot", "function"))
    return " ".join(parts)


class FakeDomain:
    """A domain that keeps the devices which it is given, live and as defined."""

    def __init__(self, calls: Mock, name: str, uuid: str, *, live: bool = False) -> None:
        self.calls = calls
        self.uuid, self._name, self.live = uuid, name, live
        self.devices: dict[int, list[str]] = {LIVE: [], CONFIG: []}
        self.failures: dict[str, libvirt.libvirtError] = {}
        self.stamp = True

    def name(self) -> str:
        return self._name

    def UUID(self) -> bytes:  # noqa: N802 - libvirt's name
        return bytes.fromhex(self.uuid.replace("-", ""))

    def UUIDString(self) -> str:  # noqa: N802 - libvirt's name
        return self.uuid

    def isActive(self) -> int:  # noqa: N802 - libvirt's name
        return int(self.live)

    def XMLDesc(self, flags: int) -> str:  # noqa: N802 - libvirt's name
        self.calls.read(self._name, flags)
        live = self.live and flags != INACTIVE
        head = "<domain type='kvm' id='3'>" if live else "<domain type='kvm'>"
        devices = "".join(self.devices[LIVE if live else CONFIG])
        return f"{head}{self.metadata()}<devices>{devices}</devices></domain>"

    def metadata(self) -> str:
        if not self.stamp:
            return ""
        size = Capacities(core=1, ram=1, disk=1)
        node = NodeSliver(id=SLIVER, name="node", image="none", capacities=size)
        stamp = escape(node.stamp().model_dump_json())
        return f"<metadata><s xmlns='{STAMP_NAMESPACE}'>{stamp}</s></metadata>"

    def attachDeviceFlags(self, xml: str, flags: int) -> None:  # noqa: N802 - libvirt's name
        element = ElementTree.fromstring(xml).find("alias")
        assert element is not None
        alias = element.get("name", "")
        self.calls.attach(alias, flags)
        if alias in self.failures:
            raise self.failures[alias]
        for scope in (LIVE, CONFIG):
            if flags & scope:
                self.devices[scope].append(xml)


class FakeHost:
    """A connection to a host with some PCI functions and domains."""

    def __init__(self) -> None:
        self.calls = Mock()
        self.domains: list[FakeDomain] = []
        self.node_devices: dict[str, str] = {}
        for address in (GPU, AUDIO, NVME):
            self.add_function(address)
        self.add_function(VF, pf=PF)
        self.add_function(PF, vfs=(VF,))
        self.node_devices["net_ens6f1_52_54_00_00_00_09"] = nic("ens6f1", node_name(PF))
        self.node_devices["net_ens6f1_1_52_54_00_00_00_08"] = nic("ens6f1.1", "computer")

    def add_function(
        self, address: PciAddress, vfs: tuple[PciAddress, ...] = (), pf: PciAddress | None = None
    ) -> None:
        virtual = "".join(f"<address {hexadecimal(vf)}/>" for vf in vfs)
        functions = f"<capability type='virt_functions'>{virtual}</capability>" if vfs else ""
        if pf is not None:
            physical = f"<address {hexadecimal(pf)}/>"
            functions = f"<capability type='phys_function'>{physical}</capability>"
        self.node_devices[node_name(address)] = (
            f"<device><name>{node_name(address)}</name><driver><name>vfio-pci</name></driver>"
            "<capability type='pci'>"
            f"<domain>{address.domain}</domain><bus>{address.bus}</bus><slot>{address.slot}</slot>"
            f"<function>{address.function}</function><product id='0x1c03'>GP106</product>"
            f"<vendor id='0x10de'>NVIDIA</vendor>{functions}"
            "<iommuGroup number='14'/><numa node='1'/></capability></device>"
        )

    def add_domain(self, name: str, uuid: str, *, live: bool = False) -> FakeDomain:
        self.domains.append(FakeDomain(self.calls, name, uuid, live=live))
        return self.domains[-1]

    def listAllDomains(self) -> list[FakeDomain]:  # noqa: N802 - libvirt's name
        return list(self.domains)

    def lookupByUUID(self, uuid: bytes) -> FakeDomain:  # noqa: N802 - libvirt's name
        for domain in self.domains:
            if domain.UUID() == uuid:
                return domain
        raise NO_DOMAIN

    def listAllDevices(self, flags: int) -> list[Mock]:  # noqa: N802 - libvirt's name
        nics = flags == libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_NET
        prefix = "net_" if nics else "pci_"
        names = [name for name in self.node_devices if name.startswith(prefix)]
        return [self.nodeDeviceLookupByName(name) for name in names]

    def nodeDeviceLookupByName(self, name: str) -> Mock:  # noqa: N802 - libvirt's name
        if name not in self.node_devices:
            raise error(libvirt.VIR_ERR_NO_NODE_DEVICE, f"no node device {name}")
        device = Mock()
        device.name.return_value = name
        device.XMLDesc.return_value = self.node_devices[name]
        return device


def node_name(address: PciAddress) -> str:
    return "pci_" + str(address).replace(":", "_").replace(".", "_")


def nic(link: str, parent: str) -> str:
    return (
        f"<device><parent>{parent}</parent><capability type='net'><interface>{link}</interface>"
        "</capability></device>"
    )


def hostdev(address: PciAddress, alias: str = "hostdev0") -> str:
    return (
        "<hostdev mode='subsystem' type='pci' managed='yes'>"
        f"<source><address {hexadecimal(address)}/></source><alias name='{alias}'/>"
        "<address type='pci' domain='0x0000' bus='0x06' slot='0x00' function='0x0'/></hostdev>"
    )


@pytest.fixture
def host(mocker: MockerFixture) -> FakeHost:
    made = FakeHost()
    mocker.patch.object(module, "connect", return_value=made)
    return made


@pytest.fixture
def domain(host: FakeHost) -> FakeDomain:
    return host.add_domain("sliver-node", str(domain_uuid(SLIVER)))


@pytest.fixture
def detach(host: FakeHost, mocker: MockerFixture) -> Mock:
    """The confirmed detach, which has tests of its own."""
    made = mocker.patch.object(module, "detach")

    def take(_connection: FakeHost, domain: FakeDomain, alias: str, **_: object) -> None:
        host.calls.detach(alias)
        for scope, devices in domain.devices.items():
            domain.devices[scope] = [xml for xml in devices if f"'{alias}'" not in xml]

    made.side_effect = take
    return made


@pytest.fixture
def site(tmp_path: Path) -> Site:
    allowed = (
        AllowedDevice(type="GPU", model="Tesla-T4", bdf=GPU),
        AllowedDevice(type="GPU", bdf=AUDIO),
        AllowedDevice(type="SmartNIC", bdf=PF),
        AllowedDevice(type="SharedNIC", uplink="ens6f1"),
    )
    return Site(site="TEST", state_dir=tmp_path, hosts={HOST: Host(libvirt=URI, devices=allowed)})


@pytest.fixture
def devices(site: Site, host: FakeHost) -> HostdevDevice:
    return HostdevDevice(site, HOST)


@pytest.fixture
def gpu() -> Gpu:
    return Gpu(id="gpu", bdf=(GPU, AUDIO))


def test_every_domain_is_read_before_the_attach_and_ours_again_after_it(
    devices: HostdevDevice, host: FakeHost, domain: FakeDomain, gpu: Gpu
) -> None:
    host.add_domain("foreign-stopped", "11111111-1111-1111-1111-111111111111")
    host.add_domain("foreign-running", "22222222-2222-2222-2222-222222222222", live=True)

    devices.attach(SLIVER, gpu)

    assert host.calls.mock_calls == [
        call.read("sliver-node", 0),
        call.read("foreign-stopped", 0),
        call.read("foreign-running", 0),
        call.read("foreign-running", INACTIVE),
        call.attach(ALIASES[0], CONFIG),
        call.attach(ALIASES[1], CONFIG),
        call.read("sliver-node", 0),
    ]


def test_a_running_domain_gets_the_device_now_and_for_later_starts(
    devices: HostdevDevice, host: FakeHost, domain: FakeDomain, gpu: Gpu
) -> None:
    domain.live = True

    devices.attach(SLIVER, gpu)

    assert host.calls.attach.mock_calls == [call(alias, LIVE | CONFIG) for alias in ALIASES]
    assert call.read("sliver-node", INACTIVE) in host.calls.mock_calls[-2:]


def test_what_is_there_already_is_not_attached_again(
    devices: HostdevDevice, host: FakeHost, domain: FakeDomain, gpu: Gpu
) -> None:
    domain.live = True
    first = devices.attach(SLIVER, gpu)
    host.calls.reset_mock()

    assert devices.attach(SLIVER, gpu) == first

    host.calls.attach.assert_not_called()


@pytest.mark.parametrize(("there", "missing"), [(LIVE, CONFIG), (CONFIG, LIVE)])
def test_what_is_there_in_part_is_completed(
    devices: HostdevDevice,
    host: FakeHost,
    domain: FakeDomain,
    gpu: Gpu,
    there: int,
    missing: int,
) -> None:
    domain.live = True
    domain.devices[there] = [hostdev(GPU, ALIASES[0])]

    devices.attach(SLIVER, gpu)

    assert host.calls.attach.mock_calls == [
        call(ALIASES[0], missing),
        call(ALIASES[1], LIVE | CONFIG),
    ]


@pytest.mark.parametrize("scope", [LIVE, CONFIG])
def test_a_device_that_another_domain_has_is_refused_before_anything_is_attached(
    devices: HostdevDevice, host: FakeHost, domain: FakeDomain, gpu: Gpu, scope: int
) -> None:
    other = host.add_domain("foreign", "11111111-1111-1111-1111-111111111111", live=True)
    other.devices[scope] = [hostdev(AUDIO)]

    with pytest.raises(DeviceClaimed, match=r"domain foreign has 0000:25:00.1") as refusal:
        devices.attach(SLIVER, gpu)

    assert refusal.value.field == "bdf[1]"
    host.calls.attach.assert_not_called()


def test_a_device_of_another_component_of_the_sliver_is_refused(
    devices: HostdevDevice, domain: FakeDomain, gpu: Gpu
) -> None:
    domain.devices[CONFIG] = [hostdev(GPU, "ua-sliver-other-0")]

    with pytest.raises(DeviceClaimed, match="sliver/other"):
        devices.attach(SLIVER, gpu)


def test_a_nic_one_of_whose_vfs_is_in_a_domain_is_refused(
    devices: HostdevDevice, host: FakeHost, domain: FakeDomain
) -> None:
    other = host.add_domain("foreign", "11111111-1111-1111-1111-111111111111")
    other.devices[CONFIG] = [hostdev(VF)]

    with pytest.raises(DeviceClaimed, match=r"domain foreign has 0001:27:10.1"):
        devices.attach(SLIVER, SmartNic(id="nic", bdf=(PF,)))


def test_a_vf_whose_nic_is_in_a_domain_is_refused(
    devices: HostdevDevice, host: FakeHost, domain: FakeDomain
) -> None:
    other = host.add_domain("foreign", "11111111-1111-1111-1111-111111111111")
    other.devices[CONFIG] = [hostdev(PF)]

    with pytest.raises(DeviceClaimed, match=r"domain foreign has 0000:27:00.0"):
        devices.attach(SLIVER, SharedNic(id="nic", bdf=(VF,)))


def test_a_nic_waits_for_the_attach_of_one_of_its_vfs(
    site: Site, host: FakeHost, domain: FakeDomain
) -> None:
    limits = site.limits.model_copy(update={"busy": 0.05})
    devices = HostdevDevice(site.model_copy(update={"limits": limits}), HOST)

    with (
        locked(site.state_dir / "locks", HOST, (VF,), timeout=1),
        pytest.raises(SliverBusy, match=r"0001:27:10.1"),
    ):
        devices.attach(SLIVER, SmartNic(id="nic", bdf=(PF,)))


def test_the_vfs_of_a_nic_do_not_wait_for_each_other(
    site: Site, host: FakeHost, domain: FakeDomain
) -> None:
    limits = site.limits.model_copy(update={"busy": 0.05})
    devices = HostdevDevice(site.model_copy(update={"limits": limits}), HOST)
    second = PciAddress.parse("0001:27:10.3")
    host.add_function(PF, vfs=(VF, second))
    host.add_function(second, pf=PF)

    with locked(site.state_dir / "locks", HOST, (second,), timeout=1):
        assert devices.attach(SLIVER, SharedNic(id="nic", bdf=(VF,)))


def test_a_nic_on_usb_in_another_domain_claims_no_pci_function(
    devices: HostdevDevice, host: FakeHost, domain: FakeDomain
) -> None:
    host.add_function(PciAddress.parse("01:00.0"))
    other = host.add_domain("foreign", "11111111-1111-1111-1111-111111111111")
    source = "<source><address type='usb' bus='1' device='2'/></source>"
    other.devices[CONFIG] = [f"<interface type='hostdev'>{source}</interface>"]

    devices.attach(SLIVER, Gpu(id="gpu", bdf=(PciAddress.parse("01:00.0"),)))

    assert len(devices.plugged(SLIVER)) == 1


def test_a_domain_that_goes_while_it_is_read_claims_nothing(
    devices: HostdevDevice, host: FakeHost, domain: FakeDomain, gpu: Gpu, mocker: MockerFixture
) -> None:
    gone = host.add_domain("gone", "11111111-1111-1111-1111-111111111111")
    mocker.patch.object(gone, "XMLDesc", side_effect=NO_DOMAIN)

    devices.attach(SLIVER, gpu)

    assert len(devices.plugged(SLIVER)) == 2


def test_if_one_function_fails_those_of_this_call_are_taken_back(
    devices: HostdevDevice, host: FakeHost, domain: FakeDomain, gpu: Gpu, detach: Mock
) -> None:
    domain.live = True
    failure = error(libvirt.VIR_ERR_INTERNAL_ERROR, "group 14 is not viable")
    domain.failures = {ALIASES[1]: failure}

    with pytest.raises(DriverError, match=r"cannot attach gpu.*group 14 is not viable"):
        devices.attach(SLIVER, gpu)

    assert host.calls.detach.mock_calls == [call(alias) for alias in ALIASES]
    assert domain.devices == {LIVE: [], CONFIG: []}


def test_what_was_there_before_a_failed_call_is_not_taken_back(
    devices: HostdevDevice, host: FakeHost, domain: FakeDomain, gpu: Gpu, detach: Mock
) -> None:
    domain.devices[CONFIG] = [hostdev(GPU, ALIASES[0])]
    domain.failures = {ALIASES[1]: error(libvirt.VIR_ERR_INTERNAL_ERROR, "no")}

    with pytest.raises(DriverError):
        devices.attach(SLIVER, gpu)

    assert host.calls.detach.mock_calls == [call(ALIASES[1])]


def test_what_cannot_be_taken_back_is_named(
    devices: HostdevDevice, domain: FakeDomain, gpu: Gpu, detach: Mock
) -> None:
    domain.failures = {ALIASES[1]: error(libvirt.VIR_ERR_INTERNAL_ERROR, "not viable")}
    detach.side_effect = [TimedOut("the guest still holds it"), None]

    with pytest.raises(DriverError, match=r"not viable.*still attached.*: ua-sliver-gpu-0\.") as e:
        devices.attach(SLIVER, gpu)

    assert isinstance(e.value.__cause__, libvirt.libvirtError)


def test_an_attach_that_libvirt_dropped_is_no_success_and_is_taken_back(
    devices: HostdevDevice,
    host: FakeHost,
    domain: FakeDomain,
    gpu: Gpu,
    detach: Mock,
    mocker: MockerFixture,
) -> None:
    mocker.patch.object(domain, "attachDeviceFlags")

    with pytest.raises(NotVerified, match=r"wanted 0000:25:00.0 .*found nothing"):
        devices.attach(SLIVER, gpu)

    assert host.calls.detach.mock_calls == [call(alias) for alias in ALIASES]


def test_a_shared_nic_is_an_interface_with_mac_and_vlan(
    devices: HostdevDevice, domain: FakeDomain
) -> None:
    nic = SharedNic(id="nic", bdf=(VF,), interface=Interface(mac=MAC, vlan=304))

    found = devices.attach(SLIVER, nic)

    assert found == (PluggedDevice("nic", "ua-sliver-nic-0", VF, mac=MAC, vlan=304),)
    (xml,) = domain.devices[CONFIG]
    assert xml.startswith("<interface type='hostdev' managed='yes'>")


def test_a_shared_nic_without_mac_gets_the_one_that_follows_from_its_ids(
    devices: HostdevDevice, domain: FakeDomain
) -> None:
    (found,) = devices.attach(SLIVER, SharedNic(id="nic", bdf=(VF,)))

    assert found.mac == derived_mac(SLIVER, "nic")


def test_the_address_in_the_guest_is_that_of_the_live_xml(
    devices: HostdevDevice, domain: FakeDomain
) -> None:
    domain.live = True
    domain.devices[LIVE] = [hostdev(GPU, ALIASES[0]), hostdev(NVME, "hostdev1")]

    (found,) = devices.plugged(SLIVER)

    assert found.guest_address == PciAddress.parse("06:00.0")


def test_a_stopped_domain_has_no_addresses_in_the_guest(
    devices: HostdevDevice, domain: FakeDomain
) -> None:
    domain.devices[CONFIG] = [hostdev(GPU, ALIASES[0])]

    (found,) = devices.plugged(SLIVER)

    assert found.guest_address is None


def test_a_sliver_without_a_domain_has_nothing_and_can_get_nothing(
    devices: HostdevDevice, gpu: Gpu, detach: Mock
) -> None:
    assert devices.plugged(SLIVER) == ()
    devices.detach(SLIVER, "gpu", timeout=1)
    with pytest.raises(NotFound, match="sliver sliver has no domain"):
        devices.attach(SLIVER, gpu)
    detach.assert_not_called()


def test_a_domain_without_our_stamp_is_not_touched(
    devices: HostdevDevice, host: FakeHost, domain: FakeDomain, gpu: Gpu, detach: Mock
) -> None:
    domain.stamp = False

    with pytest.raises(NotOurs):
        devices.attach(SLIVER, gpu)
    with pytest.raises(NotOurs):
        devices.detach(SLIVER, "gpu", timeout=1)

    host.calls.attach.assert_not_called()
    detach.assert_not_called()


def test_detach_takes_each_function_of_the_component_live_or_defined(
    devices: HostdevDevice, host: FakeHost, domain: FakeDomain, detach: Mock
) -> None:
    domain.live = True
    domain.devices[LIVE] = [hostdev(GPU, ALIASES[0]), hostdev(NVME, "ua-sliver-nvme-0")]
    domain.devices[CONFIG] = [hostdev(AUDIO, ALIASES[1]), hostdev(NVME, "ua-sliver-nvme-0")]

    devices.detach(SLIVER, "gpu", timeout=60)

    assert host.calls.detach.mock_calls == [call(alias) for alias in ALIASES]


def test_the_functions_share_the_time_for_a_detach(
    devices: HostdevDevice, domain: FakeDomain, detach: Mock
) -> None:
    domain.devices[CONFIG] = [hostdev(GPU, ALIASES[0]), hostdev(AUDIO, ALIASES[1])]

    devices.detach(SLIVER, "gpu", timeout=60)

    first, second = (c.kwargs["timeout"] for c in detach.call_args_list)
    assert 60 >= first > second


def test_a_function_that_the_guest_holds_ends_the_detach(
    devices: HostdevDevice, domain: FakeDomain, detach: Mock
) -> None:
    domain.devices[CONFIG] = [hostdev(GPU, ALIASES[0]), hostdev(AUDIO, ALIASES[1])]
    detach.side_effect = TimedOut("the guest still holds it")

    with pytest.raises(TimedOut):
        devices.detach(SLIVER, "gpu", timeout=60)

    assert detach.call_count == 1


@pytest.mark.parametrize(
    "component",
    [
        Gpu(id="c", model="Tesla-T4", bdf=(GPU,)),
        Gpu(id="c", bdf=(GPU, AUDIO)),
        Gpu(id="c", model="RTX6000", bdf=(AUDIO,)),
        SmartNic(id="c", bdf=(PF,)),
        SharedNic(id="c", bdf=(VF,)),
    ],
    ids=["same model", "no model", "entry without model", "pf", "vf of an uplink"],
)
def test_what_the_allow_list_names_passes(devices: HostdevDevice, component: PciComponent) -> None:
    devices.check(component, SLIVER)


@pytest.mark.parametrize(
    ("component", "field"),
    [
        (Nvme(id="c", bdf=(NVME,)), "bdf[0]"),
        (Gpu(id="c", bdf=(GPU, NVME)), "bdf[1]"),
        (Nvme(id="c", bdf=(GPU,)), "bdf[0]"),
        (Gpu(id="c", model="RTX6000", bdf=(GPU,)), "bdf[0]"),
        (SharedNic(id="c", bdf=(PF,)), "bdf[0]"),
        (SmartNic(id="c", bdf=(VF,)), "bdf[0]"),
    ],
    ids=["not named", "second not named", "other type", "other model", "pf as vf", "vf as pf"],
)
def test_what_the_allow_list_does_not_name_is_refused(
    devices: HostdevDevice, component: PciComponent, field: str
) -> None:
    with pytest.raises(InvalidSliver, match="is not allowed as") as refusal:
        devices.check(component, SLIVER)

    assert refusal.value.field == field


@pytest.mark.parametrize("uplink", ["ens6f1", "absent"])
def test_an_uplink_without_vfs_allows_none(
    devices: HostdevDevice, host: FakeHost, uplink: str
) -> None:
    host.add_function(PF)
    if uplink == "absent":
        del host.node_devices["net_ens6f1_52_54_00_00_00_09"]

    with pytest.raises(InvalidSliver, match="is not allowed as SharedNIC"):
        devices.check(SharedNic(id="c", bdf=(VF,)), SLIVER)


def test_an_allowed_device_that_is_not_on_the_host_is_refused(
    devices: HostdevDevice, host: FakeHost, gpu: Gpu
) -> None:
    del host.node_devices[node_name(AUDIO)]

    with pytest.raises(InvalidSliver, match=r"there is no PCI function 0000:25:00.1") as refusal:
        devices.check(gpu, SLIVER)

    assert refusal.value.field == "bdf[1]"


def test_a_device_that_another_domain_has_does_not_pass_the_check(
    devices: HostdevDevice, host: FakeHost, gpu: Gpu
) -> None:
    other = host.add_domain("foreign", "11111111-1111-1111-1111-111111111111")
    other.devices[CONFIG] = [hostdev(AUDIO)]

    with pytest.raises(DeviceClaimed, match="domain foreign") as refusal:
        devices.check(gpu, SLIVER)

    assert refusal.value.field == "bdf[1]"


def test_a_device_that_the_sliver_has_already_passes_the_check(
    devices: HostdevDevice, domain: FakeDomain, gpu: Gpu
) -> None:
    devices.attach(SLIVER, gpu)

    devices.check(gpu, SLIVER)


def test_the_inventory_says_what_a_function_is_and_whose(
    devices: HostdevDevice, host: FakeHost, domain: FakeDomain
) -> None:
    devices.attach(SLIVER, Gpu(id="gpu", bdf=(GPU,)))
    foreign = host.add_domain("foreign", "11111111-1111-1111-1111-111111111111")
    foreign.devices[CONFIG] = [hostdev(NVME)]

    inventory = {device.address: device for device in devices.inventory()}

    assert list(inventory) == [GPU, AUDIO, NVME, PF, VF]
    assert inventory[GPU] == HostDevice(
        GPU, "10de", "1c03", "NVIDIA GP106", "vfio-pci", 14, 1, True, "GPU", "sliver/gpu"
    )
    assert (inventory[NVME].allowed, inventory[NVME].owner) == (False, "foreign")
    assert (inventory[VF].type, inventory[VF].owner) == ("SharedNIC", None)


def test_a_function_that_another_attach_works_on_is_waited_for(
    site: Site, host: FakeHost, domain: FakeDomain, gpu: Gpu
) -> None:
    limits = site.limits.model_copy(update={"busy": 0.05})
    devices = HostdevDevice(site.model_copy(update={"limits": limits}), HOST)

    with (
        locked(site.state_dir / "locks", HOST, (AUDIO,), timeout=1),
        pytest.raises(SliverBusy, match=r"0000:25:00.1"),
    ):
        devices.attach(SLIVER, gpu)

    assert len(devices.attach(SLIVER, gpu)) == 2


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
    assert Claim(GPU, "its-name", str(domain_uuid(sliver)), alias, CONFIG).owner == owner
