"""PCI functions of the machine in the definition of a domain that is never started."""

from collections.abc import Callable, Iterator
from pathlib import Path
from xml.sax.saxutils import escape

import libvirt
import pytest

from fabric_direct.config import AllowedDevice, Host, Site
from fabric_direct.drivers.base import PluggedDevice
from fabric_direct.drivers.libvirt.domain import alias, domain_name, domain_uuid
from fabric_direct.drivers.libvirt.hostdev import HostdevDevice
from fabric_direct.drivers.libvirt.xml import STAMP_NAMESPACE
from fabric_direct.errors import (
    DeviceClaimed,
    InvalidSliver,
    NotFound,
    NotOurs,
    NotVerified,
)
from fabric_direct.model import Capacities, Gpu, Interface, NodeSliver, PciAddress, SharedNic
from tests.functional.conftest import URI

HOST = "localhost"
SLIVER = "fdtest-hostdev"
PCI = libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_PCI_DEV
ABSENT = PciAddress.parse("ffff:ff:1f.7")
VF_MAC = "52:54:00:0f:d0:01"


@pytest.fixture
def functions(connection: libvirt.virConnect) -> tuple[PciAddress, ...]:
    names = [device.name() for device in connection.listAllDevices(PCI)]
    if len(names) < 2:
        pytest.skip("libvirt lists no two PCI functions on this machine")
    parts = [name.removeprefix("pci_").split("_") for name in sorted(names)]
    return tuple(PciAddress.parse(f"{d}:{b}:{s}.{f}") for d, b, s, f in parts)


@pytest.fixture
def define(connection: libvirt.virConnect) -> Iterator[Callable[..., libvirt.virDomain]]:
    """Define domains that are never started, and undefine them at the end."""
    made: list[libvirt.virDomain] = []

    def define_one(
        name: str, uuid: str, metadata: str = "", devices: str = ""
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
        metadata = f"<fd:sliver xmlns:fd='{STAMP_NAMESPACE}'>{stamp}</fd:sliver>"
        return define(domain_name(node(sliver)), domain_uuid(sliver), metadata)

    return define_one


@pytest.fixture
def domain(define_sliver: Callable[[str], libvirt.virDomain]) -> libvirt.virDomain:
    return define_sliver(SLIVER)


@pytest.fixture
def devices(tmp_path: Path, functions: tuple[PciAddress, ...]) -> HostdevDevice:
    allowed = tuple(AllowedDevice(type="GPU", bdf=address) for address in functions[:2])
    host = Host(libvirt=URI, devices=allowed)
    return HostdevDevice(Site(site="TEST", state_dir=tmp_path, hosts={HOST: host}), HOST)


@pytest.fixture
def gpu(functions: tuple[PciAddress, ...]) -> Gpu:
    return Gpu(id="gpu", bdf=functions[:2])


def plugged(gpu: Gpu) -> tuple[PluggedDevice, ...]:
    return tuple(
        PluggedDevice(gpu.id, alias(SLIVER, gpu.id, number), address)
        for number, address in enumerate(gpu.bdf)
    )


def test_all_functions_of_a_device_are_in_the_definition_after_attach(
    devices: HostdevDevice, domain: libvirt.virDomain, gpu: Gpu
) -> None:
    assert devices.attach(SLIVER, gpu) == plugged(gpu)

    assert devices.plugged(SLIVER) == plugged(gpu)


def test_attaching_twice_is_the_same_as_once(
    devices: HostdevDevice, domain: libvirt.virDomain, gpu: Gpu
) -> None:
    devices.attach(SLIVER, gpu)

    assert devices.attach(SLIVER, gpu) == plugged(gpu)

    assert domain.XMLDesc(0).count("<hostdev") == 2


def test_attach_completes_what_an_interrupted_attach_began(
    devices: HostdevDevice, domain: libvirt.virDomain, gpu: Gpu
) -> None:
    devices.attach(SLIVER, Gpu(id=gpu.id, bdf=gpu.bdf[:1]))

    devices.attach(SLIVER, gpu)

    assert devices.plugged(SLIVER) == plugged(gpu)


def test_detach_takes_all_functions_of_the_component_and_no_other(
    devices: HostdevDevice, domain: libvirt.virDomain, gpu: Gpu
) -> None:
    one, other = (Gpu(id=f"gpu{n}", bdf=(address,)) for n, address in enumerate(gpu.bdf))
    devices.attach(SLIVER, one)
    devices.attach(SLIVER, other)

    devices.detach(SLIVER, one.id, timeout=10)

    assert [device.component for device in devices.plugged(SLIVER)] == [other.id]


def test_detaching_what_is_not_attached_succeeds(
    devices: HostdevDevice, domain: libvirt.virDomain, gpu: Gpu
) -> None:
    devices.attach(SLIVER, gpu)
    devices.detach(SLIVER, gpu.id, timeout=10)

    devices.detach(SLIVER, gpu.id, timeout=10)

    assert devices.plugged(SLIVER) == ()


def test_a_sliver_without_a_domain_has_no_devices(devices: HostdevDevice, gpu: Gpu) -> None:
    devices.detach(SLIVER, gpu.id, timeout=10)

    assert devices.plugged(SLIVER) == ()
    with pytest.raises(NotFound, match=SLIVER):
        devices.attach(SLIVER, gpu)


def test_a_device_of_another_sliver_is_refused(
    devices: HostdevDevice, define_sliver: Callable[[str], libvirt.virDomain], gpu: Gpu
) -> None:
    define_sliver(SLIVER)
    define_sliver("fdtest-other")
    devices.attach("fdtest-other", Gpu(id="gpu", bdf=gpu.bdf[1:]))

    with pytest.raises(DeviceClaimed, match=r"domain fdtest-other-node has .*fdtest-other/gpu"):
        devices.attach(SLIVER, gpu)

    assert devices.plugged(SLIVER) == ()


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
    define("fdtest-foreign", "5b35e8ac-8a04-49ea-9ef8-d99e1a9ab5ab", "", foreign.format(address))

    with pytest.raises(DeviceClaimed, match="domain fdtest-foreign has"):
        devices.attach(SLIVER, gpu)
    with pytest.raises(DeviceClaimed) as refusal:
        devices.check(gpu, SLIVER)

    assert refusal.value.field == "bdf[0]"


def test_a_domain_with_our_uuid_but_no_stamp_is_not_touched(
    devices: HostdevDevice, define: Callable[..., libvirt.virDomain], gpu: Gpu
) -> None:
    define("fdtest-unstamped", domain_uuid(SLIVER))

    with pytest.raises(NotOurs):
        devices.attach(SLIVER, gpu)
    with pytest.raises(NotOurs):
        devices.detach(SLIVER, gpu.id, timeout=10)


def test_a_shared_nic_has_its_mac_and_vlan_in_the_definition(
    devices: HostdevDevice, domain: libvirt.virDomain, gpu: Gpu
) -> None:
    interface = Interface(mac=VF_MAC, vlan=304)
    nic = SharedNic(id="nic", bdf=gpu.bdf[:1], interface=interface)

    (found,) = devices.attach(SLIVER, nic)

    assert (found.mac, found.vlan, found.host_address) == (VF_MAC, 304, gpu.bdf[0])


def test_a_shared_nic_that_is_attached_with_another_vlan_is_no_success(
    devices: HostdevDevice, domain: libvirt.virDomain, gpu: Gpu
) -> None:
    def nic(vlan: int) -> SharedNic:
        return SharedNic(id="nic", bdf=gpu.bdf[:1], interface=Interface(mac=VF_MAC, vlan=vlan))

    devices.attach(SLIVER, nic(304))

    with pytest.raises(NotVerified, match=r"wanted .*vlan 305.*found .*vlan 304"):
        devices.attach(SLIVER, nic(305))

    assert [device.vlan for device in devices.plugged(SLIVER)] == [304]


def test_the_functions_of_a_free_and_allowed_device_pass_the_check(
    devices: HostdevDevice, domain: libvirt.virDomain, gpu: Gpu
) -> None:
    devices.check(gpu, SLIVER)
    devices.attach(SLIVER, gpu)

    devices.check(gpu, SLIVER)


def test_a_device_that_the_host_does_not_have_is_refused(
    tmp_path: Path, connection: libvirt.virConnect, domain: libvirt.virDomain
) -> None:
    host = Host(libvirt=URI, devices=(AllowedDevice(type="GPU", bdf=ABSENT),))
    devices = HostdevDevice(Site(site="TEST", state_dir=tmp_path, hosts={HOST: host}), HOST)
    gpu = Gpu(id="gpu", bdf=(ABSENT,))

    with pytest.raises(InvalidSliver, match=r"^bdf\[0\]: there is no PCI function ffff:ff:1f.7"):
        devices.check(gpu, SLIVER)


def test_the_inventory_has_every_function_with_its_owner_and_type(
    devices: HostdevDevice,
    domain: libvirt.virDomain,
    functions: tuple[PciAddress, ...],
    gpu: Gpu,
) -> None:
    devices.attach(SLIVER, gpu)

    inventory = devices.inventory()

    assert tuple(device.address for device in inventory) == functions
    assert {d.address for d in inventory if d.owner == f"{SLIVER}/gpu"} == set(gpu.bdf)
    assert {d.address for d in inventory if d.allowed and d.type == "GPU"} == set(gpu.bdf)
    assert all(len(device.vendor) == len(device.product) == 4 for device in inventory)
