"""The USB devices of a host, and how domains name them.

libvirt identifies a USB device by its ids or by the number that the host's kernel gave it when it was
plugged in, not by its port. So the number of a port is read when it is needed, and the ids are named as
well: libvirt does not start a domain whose number has become another device's, unless the ids are equal.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from xml.etree import ElementTree

import libvirt
from pydantic import TypeAdapter

from fabric_direct.drivers.contract import DeviceDomain, HostDriver
from fabric_direct.drivers.libvirt.domains.claims import DomainReading, uuid_of
from fabric_direct.drivers.libvirt.domains.lookup import component_of
from fabric_direct.drivers.libvirt.passthrough.topology import claimed, in_use
from fabric_direct.drivers.libvirt.xml import attribute, render
from fabric_direct.errors import InvalidSliver
from fabric_direct.site.config import UsbId, UsbPort


@dataclass(frozen=True, slots=True)
class UsbDevice:
    """A USB device as the host's kernel shows it."""

    bus: int
    port: str
    """Port, and those of the hubs before it: ``1.4``."""
    device: int
    """Its number on the bus until it is unplugged."""
    vendor: str
    """Four hexadecimal digits, as is ``product``."""
    product: str
    uses: tuple[str, ...] = ()
    """The host's own uses of it, a sentence each."""

    def __str__(self) -> str:
        return f"USB device {self.vendor}:{self.product} at bus {self.bus}, port {self.port}"

    def carries(self, name: UsbId | UsbPort) -> bool:
        """Return whether the allow-list's name matches this device."""
        if isinstance(name, UsbId):
            return (self.vendor, self.product) == (name.vendor, name.product)
        return (self.bus, self.port) == (name.bus, name.port)


_FORM = TypeAdapter(tuple[UsbDevice, ...])


def devices(host: HostDriver, *, timeout: float) -> tuple[UsbDevice, ...]:
    """Return the USB devices of a host, hubs left out.

    :param timeout: seconds until an answer.
    :raises Unreachable: if the host does not answer.
    """
    return _FORM.validate_python(host.call("usb.survey", timeout=timeout))


@dataclass(frozen=True, slots=True)
class UsbSource:
    """The source of a USB hostdev in a domain: the ids of the host's device, its number, or both."""

    vendor: str | None = None
    product: str | None = None
    bus: int | None = None
    device: int | None = None

    @classmethod
    def of(cls, name: UsbId | UsbPort, device: UsbDevice) -> "UsbSource":
        """Return the source for a device that the allow-list names so."""
        ids = (device.vendor, device.product)
        return cls(*ids) if isinstance(name, UsbId) else cls(*ids, device.bus, device.device)

    def candidates(self, devices: Iterable[UsbDevice]) -> list[UsbDevice]:
        """Return the devices that match: the one with the number and the ids, or all with the ids."""
        if self.device is None:
            return [d for d in devices if self._is_alike(d)]
        at = (d for d in devices if (d.bus, d.device) == (self.bus, self.device))
        return [d for d in at if self.vendor is None or self._is_alike(d)]

    def chosen(self, devices: Iterable[UsbDevice]) -> UsbDevice | None:
        """Return the device that a domain has, or gets at its start; None if several match."""
        found = self.candidates(devices)
        return found[0] if len(found) == 1 else None

    def _is_alike(self, device: UsbDevice) -> bool:
        return (self.vendor, self.product) == (device.vendor, device.product)


@dataclass(frozen=True, slots=True)
class Hostdev:
    """A USB device that a domain has of its host."""

    alias: str
    scope: int
    """``VIR_DOMAIN_AFFECT_LIVE`` or ``VIR_DOMAIN_AFFECT_CONFIG``: where it was read."""
    source: UsbSource


@dataclass(frozen=True, slots=True)
class UsbPart:
    """A USB device that goes with a component of a sliver."""

    alias: str
    device: UsbDevice
    source: UsbSource
    """How the domain should name it."""

    @classmethod
    def of(
        cls,
        sliver_id: str,
        component: str,
        number: int,
        name: UsbId | UsbPort,
        device: UsbDevice,
    ) -> "UsbPart":
        """Return the part for a device that the allow-list names so, the component's ``number``-th."""
        label = f"{alias(sliver_id, component)}{number}"
        return cls(label, device, UsbSource.of(name, device))

    def is_named_by(self, hostdev: Hostdev) -> bool:
        """Return whether a domain has it under its alias, named as it should be."""
        return (hostdev.alias, hostdev.source) == (self.alias, self.source)

    def is_had_by(self, hostdev: Hostdev) -> bool:
        """Return whether a domain has it: as defined by its proper name, live the device itself."""
        if hostdev.scope == libvirt.VIR_DOMAIN_AFFECT_CONFIG:
            return self.is_named_by(hostdev)
        return hostdev.alias == self.alias and bool(hostdev.source.candidates([self.device]))

    def xml(self, index: int, port: int) -> str:
        """Return its ``<hostdev>`` at a port of the domain's USB controller with this index."""
        return render(
            "usb-hostdev.xml.j2",
            **asdict(self.source),
            alias=self.alias,
            controller=index,
            port=port,
        )


def alias(sliver_id: str, component: str) -> str:
    """Return the alias of a component's USB controller; those of its USB devices begin with it."""
    return f"ua-{sliver_id}-{component}-usb"


def described(name: UsbId | UsbPort) -> str:
    """Return the allow-list's name in words."""
    if isinstance(name, UsbId):
        return f"USB device {name.vendor}:{name.product}"
    return f"USB device at bus {name.bus}, port {name.port}"


def the_one(name: UsbId | UsbPort, there: Iterable[UsbDevice], host: str) -> UsbDevice:
    """Return the device that the allow-list names.

    :param there: the USB devices of the host.
    :raises InvalidSliver: if no device matches, or several do.
    """
    found = [device for device in there if device.carries(name)]
    if len(found) == 1:
        return found[0]
    raise InvalidSliver(
        f"the host has {len(found) or 'no'} {described(name)}",
        field="bdf[0]",
        where=f"site.yaml: hosts.{host}.devices",
        why="; ".join(map(str, found)) or "it goes with the device, and is not plugged in",
        remedy="name it by bus and port" if found else "plug it in, or name another one",
    )


def claims(
    readings: Iterable[DomainReading],
    there: Iterable[UsbDevice],
    tenant: DeviceDomain,
    component: str,
) -> dict[UsbDevice, str]:
    """Return which domain has each USB device, or may get it at its start.

    :param readings: all domains of the host.
    :param there: the USB devices of the host.
    :param component: the devices of the tenant's domain for this component are left out.
    """
    found: dict[UsbDevice, str] = {}
    for reading in readings:
        own = reading.domain.UUIDString() == uuid_of(tenant)
        for usb in hostdevs(reading):
            if not (own and component_of(usb.alias, tenant.sliver) == component):
                found |= dict.fromkeys(usb.source.candidates(there), reading.domain.name())
    return found


def refuse(wanted: Iterable[UsbDevice], holders: Mapping[UsbDevice, str], host: str) -> None:
    """Raise DeviceClaimed or DeviceInUse if another domain or the host uses one of the devices."""
    for device in wanted:
        if device in holders:
            raise claimed(holders[device], device, "bdf[0]", host)
        if device.uses:
            raise in_use(device, device.uses, "bdf[0]", host)


def hostdevs(reading: DomainReading) -> Iterator[Hostdev]:
    """Yield the USB devices that a domain has of its host, live and as defined."""
    for scope, root in reading.roots.items():
        for element in root.iterfind("devices/hostdev[@type='usb']"):
            label = attribute(element, "alias", "name") or ""
            yield Hostdev(label, scope, _source(element))


def _source(hostdev: ElementTree.Element) -> UsbSource:
    return UsbSource(
        _id(attribute(hostdev, "source/vendor", "id")),
        _id(attribute(hostdev, "source/product", "id")),
        _number(attribute(hostdev, "source/address", "bus")),
        _number(attribute(hostdev, "source/address", "device")),
    )


def _id(text: str | None) -> str | None:
    return None if text is None else f"{int(text, 16):04x}"


def _number(text: str | None) -> int | None:
    return None if text is None else int(text, 0)


def controller(root: ElementTree.Element, label: str) -> int | None:
    """Return the number of the USB controller with this alias; None if the domain has none.

    :param root: a ``<domain>``.
    """
    for element in root.iterfind("devices/controller[@type='usb']"):
        if element.find(f"alias[@name='{label}']") is not None:
            return int(element.get("index", "0"))
    return None


def has_usb(root: ElementTree.Element) -> bool:
    """Return whether a domain may have USB controllers: some are defined with model ``none``."""
    return root.find("devices/controller[@type='usb'][@model='none']") is None
