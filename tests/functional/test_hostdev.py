"""PCI functions of the machine in the definition of a domain that is never started.

The machine's own libvirt, survey and records are asked. Two things differ from a worker: without VFIO
nothing can be taken from the host's drivers, so that this one step is left out; and the machine's own
records are kept in a directory of the test's. What runs is on the worker lab.
"""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import libvirt
import pytest
from pytest_mock import MockerFixture

from fabric_direct.drivers.contract import DeviceDomain, DeviceRecord, PciFunction, PluggedDevice
from fabric_direct.drivers.hosts.local import LocalHost
from fabric_direct.drivers.libvirt.domains.claims import DomainReading, address_in
from fabric_direct.drivers.libvirt.domains.lookup import alias, domain_name, domain_uuid
from fabric_direct.drivers.libvirt.passthrough import attached, device_host, node_devices, records
from fabric_direct.drivers.libvirt.passthrough.attached import CONFIG
from fabric_direct.drivers.libvirt.passthrough.hostdev import HostdevDevice
from fabric_direct.drivers.libvirt.passthrough.pci_survey import survey
from fabric_direct.drivers.libvirt.passthrough.records import DeviceRecords
from fabric_direct.drivers.libvirt.xml import STAMP_NAMESPACE, attribute, render
from fabric_direct.errors import (
    DeviceClaimed,
    DeviceInUse,
    DeviceLost,
    DeviceUnclean,
    InvalidSliver,
    NotFound,
    NotOurs,
)
from fabric_direct.model import Capacities, DeviceState, Gpu, NodeSliver, PciAddress
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import AllowedDevice, Host, Site
from tests.functional.apart import TAG
from tests.functional.conftest import URI
from tests.limits import PATIENT

HOST = "localhost"
SLIVER = f"{TAG}-hostdev"
TENANT, OTHER = DeviceDomain(SLIVER), DeviceDomain(f"{TAG}-other")
FOREIGN = "5b35e8ac-8a04-49ea-9ef8-d99e1a9ab5ab"
ABSENT = PciAddress.parse("ffff:ff:1f.7")
ROOT_PORTS = "<controller type='pci' index='0' model='pcie-root'/>" + "".join(
    f"<controller type='pci' index='{index}' model='pcie-root-port'/>" for index in range(1, 5)
)

# Domains that have the machine's own PCI functions stand in each other's way.
pytestmark = pytest.mark.xdist_group("pci")


@pytest.fixture
def functions(connection: libvirt.virConnect) -> dict[PciAddress, PciFunction]:
    """What the kernel of this machine shows."""
    return survey(LocalHost(), timeout=60)


@pytest.fixture
def idle(functions: dict[PciAddress, PciFunction]) -> tuple[PciAddress, ...]:
    """Two functions that nothing uses, and that are alone in their IOMMU groups, if there are any."""
    groups = [f.iommu_group for f in functions.values()]
    found = [
        f.address
        for f in functions.values()
        if not (f.uses or f.kind.startswith("06"))
        and (f.iommu_group is None or groups.count(f.iommu_group) == 1)
    ]
    if len(found) < 2:
        pytest.skip("there are no two idle PCI functions on this machine")
    return tuple(found[:2])


@pytest.fixture
def define(connection: libvirt.virConnect) -> Iterator[Callable[..., libvirt.virDomain]]:
    """Define domains that are never started, and undefine them at the end."""
    made: list[libvirt.virDomain] = []

    def define_one(
        name: str, uuid: object, metadata: str = "", devices: str = ROOT_PORTS
    ) -> libvirt.virDomain:
        made.append(
            connection.defineXML(
                f"<domain type='qemu'><name>{name}</name><uuid>{uuid}</uuid>"
                f"<metadata>{metadata}</metadata><memory unit='MiB'>64</memory>"
                "<os><type arch='x86_64' machine='q35'>hvm</type></os><features><acpi/></features>"
                f"<devices>{devices}</devices></domain>"
            )
        )
        return made[-1]

    yield define_one
    for domain in made:
        domain.undefine()


def node(sliver: str = SLIVER) -> NodeSliver:
    size = Capacities(core=1, ram=1, disk=1)
    return NodeSliver(id=sliver, name="node", image="none", capacities=size)


@pytest.fixture
def define_sliver(define: Callable[..., libvirt.virDomain]) -> Callable[[str], libvirt.virDomain]:
    def define_one(sliver: str) -> libvirt.virDomain:
        stamp = escape(node(sliver).stamp().model_dump_json())
        metadata = f"<fd:stamp xmlns:fd='{STAMP_NAMESPACE}'>{stamp}</fd:stamp>"
        return define(domain_name(node(sliver)), domain_uuid(sliver), metadata)

    return define_one


@pytest.fixture
def domain(define_sliver: Callable[[str], libvirt.virDomain]) -> libvirt.virDomain:
    return define_sliver(SLIVER)


def site_that_allows(directory: Path, *addresses: PciAddress) -> Site:
    allowed = tuple(AllowedDevice(type="GPU", bdf=address) for address in addresses)
    host = Host(libvirt=URI, devices=allowed)
    return Site(site="TEST", state_dir=directory / "state", hosts={HOST: host}, limits=PATIENT)


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, mocker: MockerFixture) -> None:
    """Leave the machine's drivers and its own records as they are."""
    mocker.patch.object(records, "ON_HOST", str(tmp_path / "on-host"))
    mocker.patch.object(node_devices, "unbind")


@pytest.fixture
def site(tmp_path: Path, idle: tuple[PciAddress, ...]) -> Site:
    return site_that_allows(tmp_path, *idle)


@pytest.fixture
def devices(site: Site) -> HostdevDevice:
    return HostdevDevice(site, HOST)


@pytest.fixture
def gpu(idle: tuple[PciAddress, ...]) -> Gpu:
    return Gpu(id="gpu", bdf=idle)


def plugged(gpu: Gpu) -> tuple[PluggedDevice, ...]:
    return tuple(
        PluggedDevice(gpu.id, alias(SLIVER, gpu.id, number), address)
        for number, address in enumerate(gpu.bdf)
    )


def test_all_functions_of_a_device_are_in_the_definition_after_attach(
    devices: HostdevDevice, domain: libvirt.virDomain, gpu: Gpu
) -> None:
    assert devices.attach(TENANT, gpu) == plugged(gpu)

    assert devices.plugged(TENANT) == plugged(gpu)
    assert devices.differences(gpu, TENANT) == ()


def test_what_is_attached_is_written_down_in_both_places(
    devices: HostdevDevice,
    site: Site,
    domain: libvirt.virDomain,
    functions: dict[PciAddress, PciFunction],
    gpu: Gpu,
    tmp_path: Path,
) -> None:
    devices.attach(TENANT, gpu)

    ids = {a: (functions[a].vendor, functions[a].product) for a in gpu.bdf}
    assert DeviceRecords(site, HOST).read() == {
        a: DeviceRecord(a, "GPU", None, SLIVER, "gpu", *ids[a]) for a in gpu.bdf
    }
    assert len(list((tmp_path / "on-host").iterdir())) == 2
    assert len(list((tmp_path / "state/devices" / HOST).iterdir())) == 2


def test_attaching_twice_is_the_same_as_once(
    devices: HostdevDevice, domain: libvirt.virDomain, gpu: Gpu
) -> None:
    devices.attach(TENANT, gpu)

    assert devices.attach(TENANT, gpu) == plugged(gpu)

    assert domain.XMLDesc(0).count("<hostdev") == 2


def test_attach_completes_what_an_interrupted_attach_began(
    devices: HostdevDevice, domain: libvirt.virDomain, gpu: Gpu
) -> None:
    devices.attach(TENANT, Gpu(id=gpu.id, bdf=gpu.bdf[:1]))
    assert devices.differences(gpu, TENANT) == (
        f"GPU gpu does not have {gpu.bdf[1]} at its next start",
    )

    devices.attach(TENANT, gpu)

    assert devices.plugged(TENANT) == plugged(gpu)


def test_detach_takes_all_functions_of_the_component_and_no_other(
    devices: HostdevDevice, domain: libvirt.virDomain, gpu: Gpu
) -> None:
    one, other = (Gpu(id=f"gpu{n}", bdf=(address,)) for n, address in enumerate(gpu.bdf))
    devices.attach(TENANT, one)
    devices.attach(TENANT, other)

    devices.detach(TENANT, one.id, timeout=60)

    assert [device.component for device in devices.plugged(TENANT)] == [other.id]


def test_detaching_what_is_not_attached_succeeds(
    devices: HostdevDevice, domain: libvirt.virDomain, gpu: Gpu
) -> None:
    devices.attach(TENANT, gpu)
    devices.detach(TENANT, gpu.id, timeout=60)

    devices.detach(TENANT, gpu.id, timeout=60)

    assert devices.plugged(TENANT) == ()


def test_a_sliver_without_a_domain_has_no_devices(devices: HostdevDevice, gpu: Gpu) -> None:
    devices.detach(TENANT, gpu.id, timeout=60)

    assert devices.plugged(TENANT) == ()
    assert devices.free_ports(TENANT) is None
    with pytest.raises(NotFound, match=SLIVER):
        devices.attach(TENANT, gpu)


def test_the_domain_of_a_cloud_gets_devices_without_our_stamp(
    devices: HostdevDevice, define: Callable[..., libvirt.virDomain], gpu: Gpu
) -> None:
    define(f"{TAG}-instance", FOREIGN)
    tenant = DeviceDomain(SLIVER, FOREIGN)

    assert devices.attach(tenant, gpu) == devices.plugged(tenant) == plugged(gpu)

    devices.detach(tenant, gpu.id, timeout=60)
    assert devices.plugged(tenant) == ()


def test_a_device_of_another_sliver_is_refused(
    devices: HostdevDevice, define_sliver: Callable[[str], libvirt.virDomain], gpu: Gpu
) -> None:
    define_sliver(SLIVER)
    define_sliver(OTHER.sliver)
    devices.attach(OTHER, Gpu(id="gpu", bdf=gpu.bdf[1:]))

    with pytest.raises(DeviceClaimed, match=rf"domain {TAG}-other-node has .*{TAG}-other/gpu"):
        devices.attach(TENANT, gpu)

    assert devices.plugged(TENANT) == ()


def test_a_device_that_another_sliver_had_is_refused_until_it_is_clean(
    devices: HostdevDevice, define_sliver: Callable[[str], libvirt.virDomain], gpu: Gpu
) -> None:
    define_sliver(SLIVER)
    define_sliver(OTHER.sliver)
    devices.attach(OTHER, gpu)
    devices.detach(OTHER, gpu.id, timeout=60)

    with pytest.raises(DeviceUnclean, match=rf"{TAG}-other/gpu had it last"):
        devices.attach(TENANT, gpu)
    for address in gpu.bdf:
        devices.release(address, force=True)

    assert devices.attach(TENANT, gpu) == plugged(gpu)


def defined_anew(connection: libvirt.virConnect, domain: libvirt.virDomain) -> None:
    """Define a domain anew without its hostdevs, as Nova's hard reboot does."""
    root = ElementTree.fromstring(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    (devices,) = root.iterfind("devices")
    for hostdev in devices.findall("hostdev"):
        devices.remove(hostdev)
    connection.defineXML(ElementTree.tostring(root, encoding="unicode"))


def lacking(processor: HandlerProcessor) -> set[PciAddress]:
    """Return what the sliver's server lacks."""
    return {lack.address for lack in processor.lacking().found if lack.sliver == SLIVER}


def test_a_device_that_a_domain_lost_is_still_its_slivers(
    devices: HostdevDevice,
    site: Site,
    connection: libvirt.virConnect,
    define: Callable[..., libvirt.virDomain],
    gpu: Gpu,
) -> None:
    sliver = node().model_copy(update={"components": (gpu,)})
    stamp = escape(sliver.stamp().model_dump_json())
    metadata = f"<fd:stamp xmlns:fd='{STAMP_NAMESPACE}' site='TEST'>{stamp}</fd:stamp>"
    domain = define(domain_name(sliver), domain_uuid(SLIVER), metadata)
    devices.attach(TENANT, gpu)

    with HandlerProcessor(site) as processor:
        had = lacking(processor)
        defined_anew(connection, domain)

        states = {d.address: (d.state, d.owner) for d in processor.devices(HOST)}
        for address, force in itertools.product(gpu.bdf, (False, True)):
            with pytest.raises(DeviceLost, match=f"the stamp of server {domain.name()} names it"):
                processor.release(HOST, address, force=force)

        assert (had, lacking(processor)) == (set(), set(gpu.bdf))
        assert {states[a] for a in gpu.bdf} == {(DeviceState.LOST, f"{SLIVER}/gpu")}
        assert DeviceRecords(site, HOST).read().keys() == set(gpu.bdf)
        assert devices.attach(TENANT, gpu) == plugged(gpu)
        assert lacking(processor) == set()


@pytest.mark.parametrize(
    "foreign",
    [
        "<hostdev mode='subsystem' type='pci'><source>{}</source></hostdev>",
        "<interface type='hostdev'><source>{}</source></interface>",
        "<disk type='nvme'><source type='pci' namespace='1'>{}</source><target dev='vda'/></disk>",
    ],
    ids=["hostdev", "interface", "nvme disk"],
)
def test_a_device_in_the_definition_of_a_foreign_domain_is_refused(
    foreign: str,
    devices: HostdevDevice,
    domain: libvirt.virDomain,
    define: Callable[..., libvirt.virDomain],
    gpu: Gpu,
) -> None:
    a = gpu.bdf[0]
    address = (
        f"<address type='pci' domain='{a.domain:#x}' bus='{a.bus:#x}' "
        f"slot='{a.slot:#x}' function='{a.function:#x}'/>"
    )
    if "nvme" in foreign:
        address = address.replace("type='pci' ", "")
    define(f"{TAG}-foreign", FOREIGN, devices=foreign.format(address))

    with pytest.raises(DeviceClaimed, match=f"domain {TAG}-foreign has"):
        devices.attach(TENANT, gpu)
    with pytest.raises(DeviceClaimed) as refusal:
        devices.check(gpu, TENANT)

    assert refusal.value.field == "bdf[0]"


def test_a_domain_with_our_uuid_but_no_stamp_is_not_touched(
    devices: HostdevDevice, define: Callable[..., libvirt.virDomain], gpu: Gpu
) -> None:
    define(f"{TAG}-unstamped", domain_uuid(SLIVER))

    with pytest.raises(NotOurs):
        devices.attach(TENANT, gpu)
    with pytest.raises(NotOurs):
        devices.detach(TENANT, gpu.id, timeout=60)


def test_the_functions_of_a_free_and_allowed_device_pass_the_check(
    devices: HostdevDevice, domain: libvirt.virDomain, gpu: Gpu
) -> None:
    devices.check(gpu, TENANT)
    devices.attach(TENANT, gpu)

    devices.check(gpu, TENANT)


def test_a_device_that_the_host_does_not_have_is_refused(
    tmp_path: Path, connection: libvirt.virConnect
) -> None:
    devices = HostdevDevice(site_that_allows(tmp_path, ABSENT), HOST)

    with pytest.raises(InvalidSliver, match=r"^bdf\[0\]: there is no PCI function ffff:ff:1f.7"):
        devices.check(Gpu(id="gpu", bdf=(ABSENT,)), TENANT)


def test_a_device_that_the_machine_itself_uses_is_refused_with_the_use(
    tmp_path: Path, functions: dict[PciAddress, PciFunction]
) -> None:
    used = [f for f in functions.values() if f.uses]
    if not used:
        pytest.skip("the disks and NICs of this machine are on no PCI bus")
    group = {f.address for f in functions.values() if f.iommu_group == used[0].iommu_group}
    devices = HostdevDevice(site_that_allows(tmp_path, *{used[0].address, *group}), HOST)

    with pytest.raises(DeviceInUse, match=f"the host uses {used[0].address}") as refusal:
        devices.check(Gpu(id="gpu", bdf=(used[0].address,)), TENANT)

    assert refusal.value.why == "; ".join(used[0].uses)


def test_the_inventory_has_every_function_with_its_state_owner_and_type(
    devices: HostdevDevice,
    domain: libvirt.virDomain,
    functions: dict[PciAddress, PciFunction],
    gpu: Gpu,
) -> None:
    devices.attach(TENANT, gpu)

    inventory = {device.address: device for device in devices.inventory()}

    assert {a: d.function for a, d in inventory.items()} == functions
    had = {a for a, d in inventory.items() if d.owner == f"{SLIVER}/gpu" and d.type == "GPU"}
    assert had == set(gpu.bdf)
    assert {inventory[a].state for a in gpu.bdf} == {DeviceState.USED}
    assert {d.state for a, d in inventory.items() if a not in gpu.bdf} <= {DeviceState.NOT_ALLOWED}


def test_the_functions_of_one_device_share_a_slot_that_libvirt_accepts(
    tmp_path: Path, domain: libvirt.virDomain, mocker: MockerFixture
) -> None:
    """The device is made up: libvirt does not look for what is only defined."""
    both = tuple(PciAddress.parse(f"fffe:01:00.{number}") for number in (0, 1))
    made_up = {address: PciFunction(address, "10de", "1eb8") for address in both}
    mocker.patch.object(device_host, "survey", return_value=made_up)
    devices = HostdevDevice(site_that_allows(tmp_path, *both), HOST)

    devices.attach(TENANT, Gpu(id="gpu", bdf=both))

    root = ElementTree.fromstring(domain.XMLDesc(0))
    found = [address.attrib for address in root.iterfind("devices/hostdev/address")]
    assert len({(address["bus"], address["slot"]) for address in found}) == 1
    assert [address["function"] for address in found] == ["0x0", "0x1"]
    assert [address.get("multifunction") for address in found] == ["on", None]


def test_a_vf_is_defined_with_another_vlan_in_the_slot_that_it_has(
    define: Callable[..., libvirt.virDomain],
) -> None:
    vf = PluggedDevice("vf", alias(SLIVER, "vf"), ABSENT, mac="52:54:00:0f:d0:77", vlan=304)
    interface = render("interface-hostdev.xml.j2", device=vf, slot=None)
    domain = define(f"{TAG}-vlan", uuid4(), devices=ROOT_PORTS + interface)
    (former,) = DomainReading(domain).takers()

    for vlan in (305, None, 7):
        (there,) = DomainReading(domain).takers()
        domain.updateDeviceFlags(attached.with_vlan(there.element, vlan), CONFIG)
        (now,) = DomainReading(domain).takers()

        assert attribute(now.element, "vlan/tag", "id") == (str(vlan) if vlan else None)
        assert attribute(now.element, "mac", "address") == vf.mac
        assert (now.alias, now.address) == (vf.alias, ABSENT)
        assert address_in(now.element) == address_in(former.element)
