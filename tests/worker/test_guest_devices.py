"""A Linux guest of the worker, asked by its console where it sees devices that were hot-plugged."""

import re
import shlex
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any
from xml.etree import ElementTree

import libvirt
import pytest

from fabric_direct.calls.deadline import wait_until
from fabric_direct.drivers.contract import CommandResult, GuestAddress, PluggedDevice
from fabric_direct.drivers.guests.guest import Guest
from fabric_direct.errors import TimedOut
from fabric_direct.model import PciAddress
from tests.worker.conftest import L2

VF, DRIVE = PciAddress.parse("0000:01:10.0"), PciAddress.parse("0000:04:00.0")
MAC = "52:54:00:0f:d4:01"
# Seconds for what an emulated guest on an emulated worker does.
PATIENCE = 120.0


class ConsoleGuest:
    """A guest with a shell on its serial console, and nothing else to ask it by."""

    def __init__(self, domain: libvirt.virDomain) -> None:
        self._domain = domain
        self._numbers = count(1)
        self._kept: dict[str, str] = {}

    def run(
        self, guest: GuestAddress, argv: tuple[str, ...], stdin: bytes = b"", *, timeout: float
    ) -> CommandResult:
        words = " ".join(self._word(argument) for argument in argv)
        output = self._type(words)
        before, _, code = output.rpartition(b" ")
        return CommandResult(int(code), before)

    def _word(self, argument: str) -> str:
        """Return what stands for an argument: an emulated line is slow, so a script is typed once."""
        if len(argument) < 100:
            return shlex.quote(argument)
        if argument not in self._kept:
            name = f"kept{len(self._kept)}"
            self._type(f"{name}={shlex.quote(argument)}")
            self._kept[argument] = f'"${name}"'
        return self._kept[argument]

    def _type(self, words: str) -> bytes:
        """Type a command and return what the terminal showed of it, ending in its code."""
        number = next(self._numbers)
        stream = self._domain.connect().newStream()
        self._domain.openConsole(None, stream, libvirt.VIR_DOMAIN_CONSOLE_FORCE)
        # The terminal shows what is typed, too, and that must not look like the end.
        stream.send(f"\n{words}; echo ENDED-$(({number})) $? .\n".encode())
        shown = b""
        with given_up(stream):
            while not (ended := re.search(rb"ENDED-%d( \d+) \." % number, shown)):
                shown += stream.recv(4096)
        stream.abort()
        return shown[: ended.start()] + ended[1]


@contextmanager
def given_up(stream: libvirt.virStream) -> Iterator[None]:
    """Abort a stream that the block reads for too long: no signal interrupts libvirt."""
    timer = threading.Timer(PATIENCE, stream.abort)
    timer.start()
    yield
    timer.cancel()


@pytest.fixture(scope="module")
def domain(booted_l2: L2) -> Iterator[libvirt.virDomain]:
    """The domain ``l2``, made ready once: its shell keeps what was typed."""
    with booted_l2.awake():
        yield booted_l2.domain


@pytest.fixture(scope="module")
def guest(domain: libvirt.virDomain) -> Guest:
    driver: Any = ConsoleGuest(domain)
    return Guest(driver, GuestAddress("l2", "l2", "root"))


@pytest.fixture
def vf(domain: libvirt.virDomain, unchanged: None) -> Iterator[PluggedDevice]:
    """A VF of the worker's first NIC, with a MAC of its own."""
    yield from passed_through(
        domain,
        "vf",
        VF,
        "<interface type='hostdev' managed='yes'>"
        f"<source>{source(VF)}</source><mac address='{MAC}'/><alias name='ua-l2-vf-0'/></interface>",
        MAC,
    )


@pytest.fixture
def drive(domain: libvirt.virDomain, unchanged: None) -> Iterator[PluggedDevice]:
    """An NVMe drive of the worker."""
    yield from passed_through(
        domain,
        "drive",
        DRIVE,
        "<hostdev mode='subsystem' type='pci' managed='yes'>"
        f"<source>{source(DRIVE)}</source><alias name='ua-l2-drive-0'/></hostdev>",
    )


def source(address: PciAddress) -> str:
    return (
        f"<address type='pci' domain='{address.domain}' bus='{address.bus}' "
        f"slot='{address.slot}' function='{address.function}'/>"
    )


def passed_through(
    domain: libvirt.virDomain, name: str, host: PciAddress, xml: str, mac: str | None = None
) -> Iterator[PluggedDevice]:
    alias = f"ua-l2-{name}-0"
    domain.attachDeviceFlags(xml, libvirt.VIR_DOMAIN_AFFECT_LIVE)
    where, port = addresses(domain, alias)
    yield PluggedDevice(name, alias, host, where, port, mac)
    domain.detachDeviceAlias(alias, libvirt.VIR_DOMAIN_AFFECT_LIVE)
    wait_until(f"l2 to let go of {name}", lambda: alias not in domain.XMLDesc(), timeout=PATIENCE)


def addresses(domain: libvirt.virDomain, alias: str) -> tuple[PciAddress, PciAddress]:
    """Where libvirt put the device, and the root port that it hangs on, by the live XML."""
    devices = ElementTree.fromstring(domain.XMLDesc()).find("devices")
    assert devices is not None
    [device] = devices.findall(f"*/alias[@name='{alias}']/..")
    where = pci_address(device)
    [port] = devices.findall(f"controller[@type='pci'][@index='{where.bus}']")
    return where, pci_address(port)


def pci_address(device: ElementTree.Element) -> PciAddress:
    address = device.find("address")
    assert address is not None
    return PciAddress(*(int(address.get(k, ""), 16) for k in ("domain", "bus", "slot", "function")))


def test_a_guest_sees_what_is_plugged_in_with_its_interface_and_its_disk(
    guest: Guest, vf: PluggedDevice, drive: PluggedDevice
) -> None:
    guest.wait_devices([vf, drive], timeout=PATIENCE)

    found = guest.devices([vf, drive])

    assert found[vf.alias].kind == "0x020000"
    assert len(found[vf.alias].interfaces) == 1
    assert found[drive.alias].kind == "0x010802"
    assert len(found[drive.alias].disks) == 1
    assert found[vf.alias].name != found[drive.alias].name


def test_a_guest_that_lost_a_device_finds_it_again_when_told_to_look(
    guest: Guest, vf: PluggedDevice
) -> None:
    guest.wait_devices([vf], timeout=PATIENCE)
    before = guest.devices([vf])
    remove = f"echo 1 >/sys/bus/pci/devices/{before[vf.alias].name}/remove"
    assert guest.driver.run(guest.address, ("sh", "-c", remove), timeout=PATIENCE).code == 0
    assert guest.devices([vf]) == {}

    guest.wait_devices([vf], timeout=PATIENCE)

    found = guest.devices([vf])
    assert found[vf.alias].name == before[vf.alias].name
    assert len(found[vf.alias].interfaces) == 1


def test_what_is_not_plugged_in_is_named_when_the_time_is_over(
    guest: Guest, domain: libvirt.virDomain
) -> None:
    [*_, last] = ElementTree.fromstring(domain.XMLDesc()).findall(
        "devices/controller[@model='pcie-root-port']"
    )
    where = PciAddress(0, int(last.get("index", "")), 0, 0)
    absent = PluggedDevice("gpu", "ua-l2-gpu-0", DRIVE, where, pci_address(last))

    with pytest.raises(TimedOut, match=r"does not see 0000:04:00\.0 \(gpu\)"):
        guest.wait_devices([absent], timeout=1)
