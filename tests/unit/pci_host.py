"""A worker in memory, for the drivers of PCI devices: its functions, its domains, what is written down.

libvirt is a fake here; the survey of the host and the records are put in by their seams in
``passthrough/device_host.py``. What libvirt and a kernel do is shown on the worker lab.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import Mock
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import libvirt
from pytest_mock import MockerFixture

from fabric_direct.drivers.contract import DeviceRecord, PciFunction
from fabric_direct.drivers.fake import FakeHost
from fabric_direct.drivers.libvirt.passthrough import device_host
from fabric_direct.drivers.libvirt.passthrough.pcie_ports import free_ports
from fabric_direct.drivers.libvirt.xml import STAMP_NAMESPACE
from fabric_direct.errors import TimedOut
from fabric_direct.model import Capacities, NodeSliver, PciAddress
from fabric_direct.site.config import Site

LIVE, CONFIG = libvirt.VIR_DOMAIN_AFFECT_LIVE, libvirt.VIR_DOMAIN_AFFECT_CONFIG
INACTIVE = libvirt.VIR_DOMAIN_XML_INACTIVE
VFIO = "vfio-pci"
GUEST = "type='pci' "
"""What marks an address in a domain."""


def error(code: int, message: str, domain: int = libvirt.VIR_FROM_QEMU) -> libvirt.libvirtError:
    """Return an error as libvirt raises it."""
    made = libvirt.libvirtError(message)
    made.err = (code, domain, message, 2, None, None, None, -1, -1)
    return made


NO_NODE_DEVICE = error(libvirt.VIR_ERR_NO_NODE_DEVICE, "Node device not found")
NO_DOMAIN = error(libvirt.VIR_ERR_NO_DOMAIN, "Domain not found")
CONNECTION_LOST = error(libvirt.VIR_ERR_INTERNAL_ERROR, "end of file", libvirt.VIR_FROM_RPC)


def pci(address: PciAddress, kind: str = "") -> str:
    """Return a PCI address as an element."""
    parts = (f"{n}='{getattr(address, n):#x}'" for n in ("domain", "bus", "slot", "function"))
    return f"<address {kind}{' '.join(parts)}/>"


def plugged(address: PciAddress, alias: str = "hostdev0", bus: int = 1) -> str:
    """Return a function passed through, plugged into the root port of that index."""
    return (
        "<hostdev mode='subsystem' type='pci' managed='yes'>"
        f"<source>{pci(address)}</source><alias name='{alias}'/>"
        f"{pci(PciAddress(0, bus, 0, 0), GUEST)}</hostdev>"
    )


class FakeDomain:
    """A domain that keeps the devices which it is given, live and as defined."""

    def __init__(self, calls: Mock, name: str, uuid: str, sliver: str | None) -> None:
        self.calls, self.uuid, self._name = calls, uuid, name
        self.sliver = sliver
        """Whose stamp it carries, if any."""
        self.live = False
        self.deaf = False
        """Whether its guest does not hear the power button."""
        self.ports = 6
        self.devices: dict[int, list[str]] = {LIVE: [], CONFIG: []}
        self.failures: dict[str, libvirt.libvirtError] = {}
        """What libvirt says to the attach of a device, by its alias."""

    def name(self) -> str:
        return self._name

    def UUIDString(self) -> str:  # noqa: N802 - libvirt's name
        return self.uuid

    def isActive(self) -> int:  # noqa: N802 - libvirt's name
        return int(self.live)

    def XMLDesc(self, flags: int) -> str:  # noqa: N802 - libvirt's name
        self.calls.read(self._name, flags)
        return self.xml(LIVE if self.live and flags != INACTIVE else CONFIG)

    def xml(self, scope: int) -> str:
        head = "<domain type='kvm' id='3'>" if scope == LIVE else "<domain type='kvm'>"
        devices = "".join((*self._root_ports(), *self.devices[scope]))
        return f"{head}{self._metadata()}<devices>{devices}</devices></domain>"

    def _root_ports(self) -> Iterator[str]:
        for index in range(1, self.ports + 1):
            where = pci(PciAddress(0, 0, 2, index - 1), GUEST)
            yield f"<controller type='pci' index='{index}' model='pcie-root-port'>{where}</controller>"

    def _metadata(self) -> str:
        if self.sliver is None:
            return ""
        size = Capacities(core=1, ram=1, disk=1)
        node = NodeSliver(id=self.sliver, name="node", image="none", capacities=size)
        stamp = escape(node.stamp().model_dump_json())
        return f"<metadata><stamp xmlns='{STAMP_NAMESPACE}'>{stamp}</stamp></metadata>"

    def attachDeviceFlags(self, xml: str, flags: int) -> None:  # noqa: N802 - libvirt's name
        device = ElementTree.fromstring(xml)
        label = self._alias(device)
        self.calls.attach(label, flags)
        if label in self.failures:
            raise self.failures[label]
        for scope in (LIVE, CONFIG):
            if flags & scope:
                self.devices[scope].append(self._placed(xml, scope))

    def updateDeviceFlags(self, xml: str, flags: int) -> None:  # noqa: N802 - libvirt's name
        """Define a device otherwise; libvirt refuses to change one of a running domain."""
        label = self._alias(ElementTree.fromstring(xml))
        self.calls.update(label, flags)
        if flags != CONFIG:
            raise error(libvirt.VIR_ERR_OPERATION_UNSUPPORTED, "cannot change config of 'hostdev'")
        aliases = [self._alias(ElementTree.fromstring(each)) for each in self.devices[CONFIG]]
        self.devices[CONFIG][aliases.index(label)] = xml

    def _placed(self, xml: str, scope: int) -> str:
        """Give a device the first free root port, as libvirt does with one that names none."""
        device = ElementTree.fromstring(xml)
        if device.find("address[@type='pci']") is None:
            (port, *_) = free_ports(ElementTree.fromstring(self.xml(scope)))
            device.append(ElementTree.fromstring(pci(PciAddress(0, port, 0, 0), GUEST)))
        return ElementTree.tostring(device, encoding="unicode")

    @staticmethod
    def _alias(device: ElementTree.Element) -> str:
        element = device.find("alias")
        return element.get("name", "") if element is not None else ""

    def take(self, label: str | PciAddress) -> None:
        """Take a device out, live and as defined."""
        self.calls.detach(label)
        mark = f'"{label}"' if isinstance(label, str) else _quoted(f"<source>{pci(label)}")
        for scope, devices in self.devices.items():
            self.devices[scope] = [xml for xml in devices if mark not in _quoted(xml)]

    def slots(self, scope: int) -> dict[str, PciAddress]:
        """Return where the devices are in the guest, by alias."""
        found = {}
        for device in ElementTree.fromstring(self.xml(scope)).iterfind("devices/*"):
            where = device.find("address[@type='pci']")
            if device.tag != "controller" and where is not None:
                numbers = [int(where.get(n, "0"), 0) for n in ("domain", "bus", "slot", "function")]
                found[self._alias(device)] = PciAddress(*numbers)
        return found

    def shutdownFlags(self, _: int) -> None:  # noqa: N802 - libvirt's name
        self.calls.power_button()
        self.live = self.deaf

    def destroy(self) -> None:
        self.calls.power_off()
        self.live = False

    def create(self) -> None:
        self.calls.power_on()
        self.live = True


def _quoted(xml: str) -> str:
    return xml.replace("'", '"')


class FakeRecords:
    """What is written down of a worker's devices."""

    def __init__(self, calls: Mock) -> None:
        self.calls = calls
        self.known: dict[PciAddress, DeviceRecord] = {}

    def read(self) -> dict[PciAddress, DeviceRecord]:
        return dict(self.known)

    def write(self, record: DeviceRecord) -> None:
        self.calls.write(record.address)
        self.known[record.address] = record

    def remove(self, address: PciAddress) -> None:
        self.calls.strike(address)
        self.known.pop(address, None)


class Worker:
    """A host with some PCI functions and domains, as a connection to its libvirt, and its records."""

    def __init__(self, functions: tuple[PciFunction, ...]) -> None:
        self.calls = Mock()
        self.functions = {function.address: function for function in functions}
        self.records = FakeRecords(self.calls)
        self.domains: list[FakeDomain] = []
        self.held: set[str] = set()
        """Aliases of the devices that their guests do not let go of."""
        self.off_bus: set[PciAddress] = set()
        self.unheard: dict[PciAddress, int] = {}
        """For how many lookups libvirt does not know yet what came to the bus or left it."""
        self.lost: libvirt.libvirtError | None = None
        """What libvirt answers when it is asked for its domains, if it does not give them."""

    def put_in(self, site: Site, mocker: MockerFixture) -> FakeHost:
        """Have the drivers work on this worker; return what stands for the programs on it."""
        programs = FakeHost(site, "w1")
        mocker.patch.object(device_host, "connect", return_value=self)
        mocker.patch.object(device_host, "host_driver", return_value=programs)
        mocker.patch.object(device_host, "survey", side_effect=self._survey)
        mocker.patch.object(device_host, "DeviceRecords", return_value=self.records)
        mocker.patch.object(device_host, "detach", side_effect=self._detach)
        return programs

    def change(self, address: PciAddress, **values: Any) -> None:
        """Give a function other properties."""
        self.functions[address] = replace(self.functions[address], **values)

    def add_domain(self, name: str, uuid: str, sliver: str | None = None) -> FakeDomain:
        self.domains.append(FakeDomain(self.calls, name, uuid, sliver))
        return self.domains[-1]

    def _detach(
        self, _: "Worker", domain: FakeDomain, label: str | PciAddress, **limits: Any
    ) -> None:
        """Stand for the confirmed detach, which has tests of its own."""
        self.calls.ask(label, **limits)
        if label in self.held:
            raise TimedOut(f"the guest still holds {label}")
        domain.take(label)

    def _survey(
        self, _: FakeHost, *, timeout: float, named: Collection[PciAddress] | None = None
    ) -> dict[PciAddress, PciFunction]:
        """As a worker does: without the uses of functions that are not asked about."""
        near = self.functions.keys() if named is None else self._near(named)
        return {
            address: function if address in near else replace(function, uses=(), held=())
            for address, function in self.functions.items()
        }

    def _near(self, named: Collection[PciAddress]) -> set[PciAddress]:
        own = [self.functions[address] for address in named if address in self.functions]
        groups = {function.iommu_group for function in own} - {None}
        mates = {a for a, function in self.functions.items() if function.iommu_group in groups}
        return mates.union(named, *(function.virtual for function in own))

    def listAllDomains(self) -> list[FakeDomain]:  # noqa: N802 - libvirt's name
        if self.lost is not None:
            raise self.lost
        return list(self.domains)

    def lookupByUUIDString(self, uuid: str) -> FakeDomain:  # noqa: N802 - libvirt's name
        for domain in self.domains:
            if domain.uuid == uuid:
                return domain
        raise NO_DOMAIN

    def nodeDeviceLookupByName(self, name: str) -> Mock:  # noqa: N802 - libvirt's name
        _, *parts = name.split("_")
        address = PciAddress.parse("{}:{}:{}.{}".format(*parts))
        if not self._lists(address):
            raise NO_NODE_DEVICE
        device = Mock()
        device.detachFlags.side_effect = lambda driver, _: self._bind(address, driver)
        device.reAttach.side_effect = lambda: self._bind(address, None)
        return device

    def _lists(self, address: PciAddress) -> bool:
        """Whether libvirt has heard by now of what came to the bus or left it."""
        if self.unheard.get(address):
            self.unheard[address] -= 1
            return address in self.off_bus
        return address not in self.off_bus

    def _bind(self, address: PciAddress, driver: str | None) -> None:
        self.calls.unbind(address) if driver else self.calls.bind(address)
        self.change(address, driver=VFIO if driver else "its-own")
