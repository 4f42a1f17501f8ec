"""Devices that need a power cycle, on a worker.

Two functions (e1000e) stand in for an FPGA and for an SN1022, a serial adapter 0403:6001 for the JTAG
of the one, two storage devices that only their ports tell apart for those of the other. The domain has
no operating system: it hears no power button.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import libvirt
import pytest

from fabric_direct.drivers.contract import DeviceDomain, PluggedDevice
from fabric_direct.drivers.hosts.choice import host_driver
from fabric_direct.drivers.libvirt.domains.lookup import domain_name, domain_uuid
from fabric_direct.drivers.libvirt.passthrough.cold_plug import ColdDevice, FpgaDevice, Sn1022Device
from fabric_direct.drivers.libvirt.passthrough.usb import UsbDevice
from fabric_direct.drivers.libvirt.passthrough.usb import devices as usb_devices
from fabric_direct.drivers.libvirt.xml import STAMP_NAMESPACE
from fabric_direct.errors import (
    DeviceClaimed,
    DeviceInUse,
    DriverError,
    InvalidSliver,
    NotFound,
    Unsupported,
)
from fabric_direct.handlers.vm.steps.devices import (
    AttachDevice,
    CleanDevice,
    DetachDevice,
    PowerCycle,
)
from fabric_direct.model import Capacities, Finding, Fpga, NodeSliver, PciAddress
from fabric_direct.site.config import Site

SLIVER = "fdtest-cold"
TENANT = DeviceDomain(SLIVER)
FUNCTIONS = tuple(PciAddress.parse(f"0000:07:00.{number}") for number in (0, 1))
FPGA = Fpga(id="fpga", bdf=FUNCTIONS)
SN1022 = Fpga(id="sn", model="Xilinx-SN1022", bdf=FUNCTIONS)
JTAG_ID = {"vendor": "0403", "product": "6001"}
TWIN_ID = {"vendor": "46f4", "product": "0001"}
TWINS = ({"bus": 2, "port": "2"}, {"bus": 2, "port": "3"})
ALIASES = ("ua-fdtest-cold-fpga-0", "ua-fdtest-cold-fpga-1")
LIVE, CONFIG = libvirt.VIR_DOMAIN_AFFECT_LIVE, libvirt.VIR_DOMAIN_AFFECT_CONFIG
INACTIVE = libvirt.VIR_DOMAIN_XML_INACTIVE
USB_IDS = "<vendor id='0x{vendor}'/><product id='0x{product}'/>"


def blank(
    name: str, uuid: str = "", metadata: str = "", devices: str = "", *, ports: int = 6
) -> str:
    """A domain that is started in no time, and does nothing."""
    root_ports = "<controller type='pci' model='pcie-root-port'/>" * ports
    identity = f"<uuid>{uuid}</uuid>" if uuid else ""
    return (
        f"<domain type='kvm'><name>{name}</name>{identity}<metadata>{metadata}</metadata>"
        "<memory unit='MiB'>64</memory><os><type arch='x86_64' machine='q35'>hvm</type></os>"
        "<features><acpi/></features><devices><controller type='pci' model='pcie-root'/>"
        f"{root_ports}<memballoon model='none'/>{devices}</devices></domain>"
    )


def usb_hostdev(source: str, alias: str = "ua-other") -> str:
    return (
        "<hostdev mode='subsystem' type='usb' managed='yes'>"
        f"<source>{source}</source><alias name='{alias}'/></hostdev>"
    )


def stamp() -> str:
    size = Capacities(core=1, ram=1, disk=1)
    node = NodeSliver(id=SLIVER, name="node", image="none", capacities=size)
    assert domain_name(node) == f"{SLIVER}-node"
    text = escape(node.stamp().model_dump_json())
    return f"<fd:stamp xmlns:fd='{STAMP_NAMESPACE}'>{text}</fd:stamp>"


@pytest.fixture
def define(worker: Any, unchanged: None) -> Iterator[Callable[[str], libvirt.virDomain]]:
    made: list[libvirt.virDomain] = []

    def define_one(xml: str) -> libvirt.virDomain:
        made.append(worker.connection.defineXML(xml))
        return made[-1]

    yield define_one
    for domain in made:
        if domain.isActive():
            domain.destroy()
        domain.undefine()


@pytest.fixture
def domain(define: Callable[[str], libvirt.virDomain]) -> libvirt.virDomain:
    """The sliver's, not running."""
    return define(blank(f"{SLIVER}-node", str(domain_uuid(SLIVER)), stamp()))


@pytest.fixture
def running(domain: libvirt.virDomain) -> libvirt.virDomain:
    domain.create()
    return domain


Drivers = Callable[..., ColdDevice]


@pytest.fixture
def drivers(make_site: Callable[..., Site], unchanged: None) -> Iterator[Drivers]:
    """Make a driver whose allow-list names these USB devices; what it has is cleaned in the end."""
    made: list[ColdDevice] = []

    def make(kind: type[ColdDevice], *usb: dict[str, Any]) -> ColdDevice:
        first, second = ({"type": "FPGA", "bdf": str(address)} for address in FUNCTIONS)
        site = make_site(host={"devices": [first | {"usb": usb}, second]})
        made.append(kind(site, "worker1"))
        return made[-1]

    yield make
    for driver in made:
        for record in driver.records(SLIVER):
            driver.release(record.address, force=True)
    if made:
        give_back(make_site())


def give_back(site: Site) -> None:
    for address in FUNCTIONS:
        host_driver(site, "worker1").call("pci.bind", timeout=300, address=str(address))


@pytest.fixture
def fpga(drivers: Drivers) -> FpgaDevice:
    driver = drivers(FpgaDevice, JTAG_ID)
    assert isinstance(driver, FpgaDevice)
    return driver


@pytest.fixture
def sn1022(drivers: Drivers) -> Sn1022Device:
    driver = drivers(Sn1022Device, *TWINS)
    assert isinstance(driver, Sn1022Device)
    return driver


def devices(domain: libvirt.virDomain, flags: int = INACTIVE) -> ElementTree.Element:
    found = ElementTree.fromstring(domain.XMLDesc(flags)).find("devices")
    assert found is not None
    return found


def by_alias(
    domain: libvirt.virDomain, component: str, flags: int = INACTIVE
) -> dict[str, ElementTree.Element]:
    """The parts of a component in the definition, or live (flags 0), by the end of their aliases."""
    prefix = f"ua-{SLIVER}-{component}-"
    labels = ((element.find("alias"), element) for element in devices(domain, flags))
    found = {alias.get("name", ""): element for alias, element in labels if alias is not None}
    return {a.removeprefix(prefix): e for a, e in found.items() if a.startswith(prefix)}


def at(element: ElementTree.Element, *names: str) -> list[str]:
    address = element.find("address")
    assert address is not None
    return [address.get(name, "") for name in names]


def seen_by_qemu(worker: Any) -> str:
    """What is plugged into the domain's USB controllers, as QEMU says."""
    return worker.run("virsh", "qemu-monitor-command", f"{SLIVER}-node", "--hmp", "info usb")


def usb(worker: Any, make_site: Callable[..., Site], bus: int, port: str) -> UsbDevice:
    there = usb_devices(host_driver(make_site(), "worker1"), timeout=300)
    (found,) = (d for d in there if (d.bus, d.port) == (bus, port))
    return found


@contextmanager
def unplugged(worker: Any) -> Iterator[None]:
    """Have the worker find the two at ports 2 and 3 of bus 2 anew: they get other numbers."""
    hub = "/sys/bus/usb/drivers/hub"
    worker.run("python3", "-c", f"open('{hub}/unbind', 'w').write('2-0:1.0')")
    try:
        yield
    finally:
        worker.run("python3", "-c", f"open('{hub}/bind', 'w').write('2-0:1.0')")
        worker.run("python3", "-c", AWAIT)


AWAIT = """
import pathlib, time
paths = [pathlib.Path(f"/sys/bus/usb/devices/2-{port}/2-{port}:1.0/driver") for port in (2, 3)]
while not all(path.exists() for path in paths):
    time.sleep(0.1)
"""


def drivers_of(worker: Any) -> list[str]:
    paths = [f"/sys/bus/pci/devices/{address}/driver" for address in FUNCTIONS]
    return [path.rpartition("/")[2] for path in worker.run("readlink", *paths).split()]


# -- what goes with a device


def test_a_device_is_in_the_definition_only_until_the_power_cycle(
    fpga: FpgaDevice, running: libvirt.virDomain
) -> None:
    plugged = fpga.attach(TENANT, FPGA)
    assert plugged == tuple(
        PluggedDevice("fpga", *pair) for pair in zip(ALIASES, FUNCTIONS, strict=True)
    )
    assert list(by_alias(running, "fpga")) == ["usb", "0", "1", "usb0"]
    assert by_alias(running, "fpga", 0) == {}
    assert fpga.pending(TENANT)
    assert fpga.plugged(TENANT) == plugged
    assert fpga.differences(FPGA, TENANT) == ()


def test_all_functions_are_in_one_slot_and_the_usb_on_a_controller_of_its_own(
    fpga: FpgaDevice, domain: libvirt.virDomain
) -> None:
    fpga.attach(TENANT, FPGA)
    parts = by_alias(domain, "fpga")
    first, second = (at(parts[n], "bus", "slot", "function", "multifunction") for n in "01")
    assert first[:2] == second[:2]
    assert (first[2:], second[2:]) == (["0x0", "on"], ["0x1", ""])
    assert parts["usb"].get("model") == "nec-xhci"
    assert at(parts["usb0"], "bus", "port") == [parts["usb"].get("index"), "1"]
    assert parts["usb0"].find("source/address") is None


def test_after_the_power_cycle_the_guest_has_it(
    fpga: FpgaDevice, running: libvirt.virDomain, worker: Any
) -> None:
    fpga.attach(TENANT, FPGA)
    fpga.restart(TENANT, timeout=0)
    assert not fpga.pending(TENANT)
    assert fpga.differences(FPGA, TENANT) == ()
    first, second = (device.guest_address for device in fpga.plugged(TENANT))
    assert first
    assert second == replace(first, function=1)
    assert "QEMU USB SERIAL, ID: ua-fdtest-cold-fpga-usb0" in seen_by_qemu(worker)


def test_attaching_twice_is_the_same_as_once(fpga: FpgaDevice, domain: libvirt.virDomain) -> None:
    fpga.attach(TENANT, FPGA)
    once = domain.XMLDesc(INACTIVE)
    fpga.attach(TENANT, FPGA)
    assert domain.XMLDesc(INACTIVE) == once


def test_an_attach_that_was_cut_short_is_completed(
    fpga: FpgaDevice, domain: libvirt.virDomain
) -> None:
    fpga.attach(TENANT, FPGA)
    whole = sorted(by_alias(domain, "fpga"))
    for alias in ("usb0", "usb", "1"):
        domain.detachDeviceAlias(f"ua-{SLIVER}-fpga-{alias}", CONFIG)
        assert fpga.differences(FPGA, TENANT)
    fpga.attach(TENANT, FPGA)
    assert sorted(by_alias(domain, "fpga")) == whole
    assert fpga.differences(FPGA, TENANT) == ()


def test_an_attach_that_fails_leaves_the_definition_as_it_was(
    fpga: FpgaDevice, define: Callable[[str], libvirt.virDomain]
) -> None:
    taken = f"<input type='tablet' bus='usb'><alias name='ua-{SLIVER}-fpga-usb0'/></input>"
    domain = define(blank(f"{SLIVER}-node", str(domain_uuid(SLIVER)), stamp(), taken))
    before = domain.XMLDesc(INACTIVE)
    with pytest.raises(DriverError, match="non unique alias"):
        fpga.attach(TENANT, FPGA)
    assert domain.XMLDesc(INACTIVE) == before


def test_a_domain_that_is_defined_without_usb_gets_it(
    fpga: FpgaDevice, define: Callable[[str], libvirt.virDomain], worker: Any
) -> None:
    none = "<controller type='usb' model='none'/>"
    domain = define(blank(f"{SLIVER}-node", str(domain_uuid(SLIVER)), stamp(), none))
    fpga.attach(TENANT, FPGA)
    domain.create()
    assert "ID: ua-fdtest-cold-fpga-usb0" in seen_by_qemu(worker)
    fpga.detach(TENANT, "fpga", timeout=0)
    assert by_alias(domain, "fpga") == {}


def test_libvirt_adds_the_root_port_of_the_controller(
    fpga: FpgaDevice, define: Callable[[str], libvirt.virDomain]
) -> None:
    xml = blank(f"{SLIVER}-node", str(domain_uuid(SLIVER)), stamp(), ports=2)
    define(xml)
    assert len(fpga.attach(TENANT, FPGA)) == 2


def test_an_sn1022_has_the_two_devices_at_its_ports(
    sn1022: Sn1022Device, domain: libvirt.virDomain, worker: Any, make_site: Callable[..., Site]
) -> None:
    sn1022.attach(TENANT, SN1022)
    parts = by_alias(domain, "sn")
    for number, port in enumerate(("2", "3")):
        source = parts[f"usb{number}"].find("source/address")
        assert source is not None
        assert source.get("device") == str(usb(worker, make_site, 2, port).device)
    domain.create()
    assert sn1022.differences(SN1022, TENANT) == ()
    assert seen_by_qemu(worker).count("QEMU USB HARDDRIVE, ID: ua-fdtest-cold-sn-usb") == 2


def test_an_sn1022_may_have_none_and_needs_no_controller_then(
    drivers: Drivers, domain: libvirt.virDomain
) -> None:
    sn1022 = drivers(Sn1022Device)
    sn1022.attach(TENANT, SN1022)
    assert list(by_alias(domain, "sn")) == ["0", "1"]
    assert sn1022.differences(SN1022, TENANT) == ()


# -- a USB device that is plugged in again


def test_the_definition_is_put_right_when_a_port_has_another_number(
    sn1022: Sn1022Device, domain: libvirt.virDomain, worker: Any, make_site: Callable[..., Site]
) -> None:
    sn1022.attach(TENANT, SN1022)
    with unplugged(worker):
        missing = sn1022.differences(SN1022, TENANT)
    assert missing[0] == "FPGA sn needs USB device at bus 2, port 2, and the host has 0"
    assert "port 2 at its next start" in sn1022.differences(SN1022, TENANT)[0]
    sn1022.attach(TENANT, SN1022)
    source = by_alias(domain, "sn")["usb0"].find("source/address")
    assert source is not None
    assert source.get("device") == str(usb(worker, make_site, 2, "2").device)
    assert sn1022.differences(SN1022, TENANT) == ()


def test_libvirt_starts_no_domain_with_the_number_of_the_past(
    sn1022: Sn1022Device, domain: libvirt.virDomain, worker: Any
) -> None:
    sn1022.attach(TENANT, SN1022)
    with unplugged(worker):
        pass
    with pytest.raises(libvirt.libvirtError, match="Did not find USB device"):
        domain.create()


def test_a_restart_gives_back_what_the_guest_lost(
    sn1022: Sn1022Device, domain: libvirt.virDomain, worker: Any
) -> None:
    sn1022.attach(TENANT, SN1022)
    domain.create()
    with unplugged(worker):
        assert sn1022.differences(SN1022, TENANT)
    sn1022.attach(TENANT, SN1022)
    assert sn1022.pending(TENANT)
    sn1022.restart(TENANT, timeout=0)
    assert not sn1022.pending(TENANT)
    assert sn1022.differences(SN1022, TENANT) == ()
    assert seen_by_qemu(worker).count("QEMU USB HARDDRIVE") == 2


def test_no_power_cycle_while_a_device_is_missing(
    sn1022: Sn1022Device, domain: libvirt.virDomain, worker: Any
) -> None:
    sn1022.attach(TENANT, SN1022)
    domain.create()
    number = domain.ID()
    with (
        unplugged(worker),
        pytest.raises(InvalidSliver, match="no USB device at bus 2, port 2"),
    ):
        sn1022.restart(TENANT, timeout=0)
    assert domain.ID() == number


# -- taking back


def test_a_device_is_the_guests_until_the_power_cycle_and_clean_only_then(
    fpga: FpgaDevice, running: libvirt.virDomain, worker: Any
) -> None:
    fpga.attach(TENANT, FPGA)
    fpga.restart(TENANT, timeout=0)
    had = fpga.plugged(TENANT)
    fpga.detach(TENANT, "fpga", timeout=0)
    assert by_alias(running, "fpga") == {}
    assert fpga.plugged(TENANT) == had
    assert fpga.pending(TENANT)
    with pytest.raises(DeviceClaimed, match=f"domain {SLIVER}-node still has"):
        fpga.clean(fpga.records(SLIVER)[0])
    fpga.restart(TENANT, timeout=0)
    assert fpga.plugged(TENANT) == ()
    assert seen_by_qemu(worker).count("Product") == 0
    for record in fpga.records(SLIVER):
        fpga.clean(record)
    assert drivers_of(worker) == ["e1000e", "e1000e"]


def test_a_device_that_was_to_go_can_stay(fpga: FpgaDevice, running: libvirt.virDomain) -> None:
    fpga.attach(TENANT, FPGA)
    fpga.restart(TENANT, timeout=0)
    fpga.detach(TENANT, "fpga", timeout=0)
    assert fpga.differences(FPGA, TENANT)
    fpga.attach(TENANT, FPGA)
    assert not fpga.pending(TENANT)


def test_detaching_what_is_not_there_succeeds(fpga: FpgaDevice, domain: libvirt.virDomain) -> None:
    fpga.detach(TENANT, "fpga", timeout=0)
    fpga.detach(DeviceDomain("fdtest-nobody"), "fpga", timeout=0)


def test_a_running_guest_does_not_give_it_to_a_rescan(
    fpga: FpgaDevice, domain: libvirt.virDomain
) -> None:
    fpga.attach(TENANT, FPGA)
    domain.create()
    with pytest.raises(Unsupported, match="running guest"):
        fpga.rescan(TENANT, FPGA, timeout=0)
    domain.destroy()
    fpga.rescan(TENANT, FPGA, timeout=0)
    assert fpga.differences(FPGA, TENANT) == ()


def test_a_sliver_without_a_domain_gets_nothing(fpga: FpgaDevice) -> None:
    with pytest.raises(NotFound, match=SLIVER):
        fpga.attach(TENANT, FPGA)
    assert fpga.plugged(TENANT) == ()
    assert not fpga.pending(TENANT)


# -- what is refused


def test_an_fpga_has_the_usual_jtag_unless_the_allow_list_names_one(drivers: Drivers) -> None:
    with pytest.raises(InvalidSliver, match="no USB device 0403:6011"):
        drivers(FpgaDevice).check(FPGA, TENANT)


def test_one_of_several_with_the_same_ids_is_not_chosen(drivers: Drivers) -> None:
    with pytest.raises(InvalidSliver, match="2 USB device 46f4:0001"):
        drivers(FpgaDevice, TWIN_ID).check(FPGA, TENANT)


@pytest.mark.parametrize(
    "source", ["{ids}", "{number}", "{ids}{number}"], ids=["by ids", "by number", "by both"]
)
def test_a_usb_device_of_another_domain_is_refused(
    source: str,
    fpga: FpgaDevice,
    domain: libvirt.virDomain,
    define: Callable[[str], libvirt.virDomain],
    worker: Any,
    make_site: Callable[..., Site],
) -> None:
    there = usb(worker, make_site, 1, "1")
    number = f"<address bus='{there.bus}' device='{there.device}'/>"
    named = source.format(ids=USB_IDS.format(**JTAG_ID), number=number)
    define(blank("fdtest-other", devices=usb_hostdev(named)))
    with pytest.raises(DeviceClaimed, match="domain fdtest-other has USB device 0403:6001"):
        fpga.check(FPGA, TENANT)
    with pytest.raises(DeviceClaimed, match="fdtest-other"):
        fpga.attach(TENANT, FPGA)
    assert by_alias(domain, "fpga") == {}
    assert fpga.records(SLIVER) == ()


def test_a_disk_that_the_host_uses_is_refused(
    sn1022: Sn1022Device, domain: libvirt.virDomain, worker: Any
) -> None:
    (disk,) = worker.run("python3", "-c", DISK).split()
    worker.run("dmsetup", "create", "fdtest", "--table", f"0 2048 linear /dev/{disk} 0")
    try:
        with pytest.raises(DeviceInUse, match=f"{disk} is part of dm-"):
            sn1022.attach(TENANT, SN1022)
    finally:
        worker.run("dmsetup", "remove", "--retry", "fdtest")


# The host finds the disk anew some time after a guest gave it back.
DISK = """
import glob, time
disks, end = "/sys/bus/usb/devices/2-3/2-3:1.0/host*/*/*/block/*", time.monotonic() + 60
while not glob.glob(disks) and time.monotonic() < end:
    time.sleep(0.1)
[path] = glob.glob(disks)
print(path.rpartition("/")[2])
"""


# -- the steps of an operation


def steps(driver: ColdDevice) -> tuple[AttachDevice, DetachDevice, PowerCycle]:
    def tenant() -> DeviceDomain:
        return TENANT

    return (
        AttachDevice(driver, tenant, FPGA, 0),
        DetachDevice(driver, tenant, FPGA, 0),
        PowerCycle(driver, tenant, 0),
    )


def test_an_operation_that_was_killed_before_the_power_cycle_goes_on_with_it(
    fpga: FpgaDevice, running: libvirt.virDomain
) -> None:
    attach, _, cycle = steps(fpga)
    assert attach.check() is Finding.WILL_CREATE
    assert cycle.check() is Finding.ALREADY_SO
    attach.make()
    assert attach.check() is Finding.ALREADY_SO
    assert cycle.check() is Finding.WILL_CHANGE
    cycle.make()
    assert attach.check() is Finding.ALREADY_SO
    assert cycle.check() is Finding.ALREADY_SO


def test_a_device_is_detached_power_cycled_and_cleaned(
    fpga: FpgaDevice, domain: libvirt.virDomain
) -> None:
    attach, detach, cycle = steps(fpga)
    attach.make()
    domain.create()
    assert detach.check() is Finding.WILL_DELETE
    detach.make()
    assert attach.check() is Finding.WILL_CHANGE
    assert cycle.check() is Finding.WILL_CHANGE
    cycle.make()
    assert detach.check() is Finding.ALREADY_SO
    for record in fpga.records(SLIVER):
        clean = CleanDevice(fpga, record)
        clean.make()
        assert clean.check() is Finding.ALREADY_SO


def test_a_device_that_was_attached_and_never_started_with_is_detached(
    fpga: FpgaDevice, running: libvirt.virDomain
) -> None:
    attach, detach, cycle = steps(fpga)
    attach.make()
    assert detach.check() is Finding.WILL_DELETE
    detach.make()
    assert detach.check() is Finding.ALREADY_SO
    assert cycle.check() is Finding.ALREADY_SO


def test_what_is_taken_back_after_its_power_cycle_is_clean(
    fpga: FpgaDevice, running: libvirt.virDomain, worker: Any
) -> None:
    attach, _, cycle = steps(fpga)
    attach.make()
    cycle.make()
    attach.undo()
    assert fpga.plugged(TENANT) == ()
    assert fpga.records(SLIVER) == ()
    assert drivers_of(worker) == ["e1000e", "e1000e"]
