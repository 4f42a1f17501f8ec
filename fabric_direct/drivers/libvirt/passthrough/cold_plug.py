"""Devices that a guest gets, and gives back, only with a power cycle: FPGAs with their JTAG.

All functions of the device in one slot, a USB controller of its own, and on it the USB devices that the
allow-list names. Only the definition of the domain is changed; the power cycle makes it so.

A USB device that is named by its port has another number after it was unplugged, or the host was
started anew. Then :meth:`ColdDevice.differences` says so; :meth:`ColdDevice.attach`, and each
:meth:`ColdDevice.restart` before it, put the number right.
"""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import ClassVar

import libvirt

from fabric_direct.config import UsbId, UsbPort
from fabric_direct.drivers.contract import PluggedDevice, Tenant
from fabric_direct.drivers.libvirt.connection.connections import connect
from fabric_direct.drivers.libvirt.passthrough.attached import CONFIG, LIVE, is_as, plugged_in
from fabric_direct.drivers.libvirt.passthrough.domain_claims import (
    Reading,
    read_domains,
    read_tenant,
)
from fabric_direct.drivers.libvirt.passthrough.hostdev import WHEN, HostdevDevice
from fabric_direct.drivers.libvirt.passthrough.usb import (
    UsbDevice,
    UsbPart,
    controller,
    described,
    has_usb,
    refuse,
    the_one,
    usb_alias,
    usb_claims,
    usb_devices,
    usb_hostdevs,
)
from fabric_direct.drivers.libvirt.servers.lookup import component_of
from fabric_direct.drivers.libvirt.xml import render
from fabric_direct.errors import (
    FabricDirectError,
    NotVerified,
    Unsupported,
)
from fabric_direct.locks import exclusive
from fabric_direct.model import PciAddress, PciComponent

NO_USB = "<controller type='usb' index='0' model='none'/>"


class Definition(Reading):
    """A domain as it is defined, whether it runs or not."""

    def __init__(self, domain: libvirt.virDomain) -> None:
        self.domain = domain
        self._texts = {CONFIG: domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)}


class ColdDevice(HostdevDevice):
    """Passes PCI functions and USB devices of one host through, from the domain's next start on."""

    cold: ClassVar[bool] = True
    usual_usb: ClassVar[tuple[UsbId | UsbPort, ...]] = ()
    """The USB devices of one whose entries in the allow-list name none."""

    # --- looking

    def check(self, component: PciComponent, tenant: Tenant) -> None:
        """Return if the sliver may have the device, and the USB devices that go with it.

        :raises InvalidSliver: also if there is no such USB device, or several.
        :raises DeviceClaimed: also if another domain, live or defined, has a USB device of it.
        :raises DeviceInUse: also if the host has mounted one.
        """
        super().check(component, tenant)
        with self._translated(f"check {component.id}"):
            self._usb_parts(tenant, component.id, self._usb_of(component))

    def plugged(self, tenant: Tenant) -> tuple[PluggedDevice, ...]:
        """Return the functions that the sliver's domain has by our stamp, live or as defined.

        One that is defined only has no address in the guest yet.
        """
        with self._translated(f"read the devices of {tenant.sliver}"):
            own = read_tenant(connect(self._uri), tenant)
            there = plugged_in(own, tenant.sliver) if own else {}
        found = {d.alias: d for scope in (CONFIG, LIVE) for d in there.get(scope, ())}
        return tuple(found.values())

    def _differing(self, own: Reading, component: PciComponent, tenant: Tenant) -> Iterator[str]:
        """Yield where the device is not as wanted: as defined and, unless that is pending, live."""
        settled = Definition(own.domain) if self._is_pending(own, tenant.sliver) else own
        yield from super()._differing(settled, component, tenant)
        for text in self._missing_usb(settled, tenant.sliver, component):
            yield f"{component.type} {component.id} {text}"

    def _missing_usb(self, own: Reading, sliver_id: str, component: PciComponent) -> Iterator[str]:
        devices, there = self._usb_devices(), list(usb_hostdevs(own))
        for number, name in enumerate(self._usb_of(component)):
            found = [device for device in devices if device.bears(name)]
            if len(found) != 1:
                yield f"needs {described(name)}, and the host has {len(found)}"
                continue
            part = UsbPart.of(sliver_id, component.id, number, name, found[0])
            for scope in own.scopes:
                if not any(h.scope == scope and part.is_had_by(h) for h in there):
                    yield f"has not {part.device} {WHEN[scope]}"

    def keeps(self, tenant: Tenant, component: str) -> bool:
        """Return whether the domain's definition has anything of the component."""
        with self._translated(f"read the devices of {tenant.sliver}"):
            own = read_tenant(connect(self._uri), tenant)
            return own is not None and bool(
                _labels(Definition(own.domain), tenant.sliver, component)
            )

    def pending(self, tenant: Tenant) -> bool:
        """Return whether the domain runs, and gets or loses a device of ours with its next start.

        It gets a USB device anew that was unplugged and is there again.
        """
        with self._translated(f"read the devices of {tenant.sliver}"):
            own = read_tenant(connect(self._uri), tenant)
            return own is not None and self._is_pending(own, tenant.sliver)

    def _is_pending(self, own: Reading, sliver_id: str) -> bool:
        if LIVE not in own.scopes:
            return False
        found: dict[int, set[tuple[str, object]]] = {LIVE: set(), CONFIG: set()}
        for taker in own.takers():
            found[taker.scope].add((taker.alias, taker.address))
        hostdevs = list(usb_hostdevs(own))
        devices = self._usb_devices() if hostdevs else ()
        for usb in hostdevs:
            found[usb.scope].add((usb.alias, usb.source.chosen(devices)))
        live, defined = ({p for p in found[s] if component_of(p[0], sliver_id)} for s in found)
        return live != defined

    # --- attaching

    def attach(self, tenant: Tenant, component: PciComponent) -> tuple[PluggedDevice, ...]:
        """Add the device to the domain's definition: functions, USB controller and USB devices.

        If one fails, what this call added is taken out again.

        :raises Conflict: as :meth:`check` does.
        :raises NotFound: if the sliver has no domain.
        :raises NotVerified: if the definition, read back, has it not.
        :raises SliverBusy: if others were at work on one of them for too long.
        """
        with self._translated(f"attach {component.id}"), self._usb_locked():
            parts = self._usb_parts(tenant, component.id, self._usb_of(component))
            with self._all_or_nothing(tenant, component.id):
                plugged = super().attach(tenant, component)
                self._attach_usb(tenant, component.id, parts)
                return plugged

    def restart(self, tenant: Tenant, *, timeout: float) -> None:
        """Power-cycle the domain, as it is defined; it runs on return.

        :raises InvalidSliver: if a USB device of it is not there; the domain still runs then.
        """
        with self._translated(f"restart the domain of {tenant.sliver}"), self._usb_locked():
            self._renumber(tenant)
        super().restart(tenant, timeout=timeout)

    def _renumber(self, tenant: Tenant) -> None:
        """Have the definition name the USB devices by the numbers that they have now."""
        takers: dict[str, list[PciAddress]] = {}
        for taker in self._own(tenant).takers():
            component = component_of(taker.alias, tenant.sliver)
            takers.setdefault(component or "", []).append(taker.address)
        for component, addresses in takers.items():
            names = self._named_usb(addresses)
            if component and names:
                self._attach_usb(tenant, component, self._usb_parts(tenant, component, names))

    def rescan(self, tenant: Tenant, component: PciComponent, *, timeout: float) -> None:
        """Take the device from the host's bus, find it again, and give it back.

        :raises Unsupported: if the domain runs with it: a running guest does not let go of it.
        :raises NotVerified: if the bus does not have it again, with the same ids.
        """
        if any(d.component == component.id and d.guest_address for d in self.plugged(tenant)):
            raise Unsupported(
                f"{component.id} cannot be taken from a running guest",
                where=self._uri,
                remedy="stop the node, and scan again",
            )
        super().rescan(tenant, component, timeout=timeout)

    def _own(self, tenant: Tenant) -> Reading:
        return Definition(super()._own(tenant).domain)

    def _read_back(
        self, domain: libvirt.virDomain, sliver_id: str, wanted: tuple[PluggedDevice, ...]
    ) -> tuple[PluggedDevice, ...]:
        """Return the wanted functions as the definition has them."""
        there = plugged_in(Definition(domain), sliver_id)[CONFIG]
        if not all(any(is_as(found, device) for found in there) for device in wanted):
            raise self._not_verified(domain, wanted, there)
        labels = {device.alias for device in wanted}
        return tuple(found for found in there if found.alias in labels)

    @contextmanager
    def _all_or_nothing(self, tenant: Tenant, component: str) -> Iterator[None]:
        """On an error, take out of the definition what was not there before."""
        before = _labels(self._own(tenant), tenant.sliver, component)
        try:
            yield
        except (libvirt.libvirtError, FabricDirectError) as error:
            own = self._own(tenant)
            made = [n for n in _labels(own, tenant.sliver, component) if n not in before]
            left = [label for label in made if not self._take_back(own.domain, label)]
            if left:
                raise self._in_part(error, "still defined", left) from error
            raise

    def _take_back(self, domain: libvirt.virDomain, label: str) -> bool:
        try:
            domain.detachDeviceAlias(label, CONFIG)
        except libvirt.libvirtError as error:
            return bool(error.get_error_code() == libvirt.VIR_ERR_DEVICE_MISSING)
        return True

    # --- the USB devices of a component

    def _usb_of(self, component: PciComponent) -> tuple[UsbId | UsbPort, ...]:
        return self._named_usb(component.bdf) or self.usual_usb

    def _named_usb(self, addresses: Iterable[PciAddress]) -> tuple[UsbId | UsbPort, ...]:
        """Return the USB devices that the allow-list names with these functions, each once."""
        wanted = set(addresses)
        entries = (e for e in self._site.host(self._host).devices if e.bdf in wanted)
        return tuple(dict.fromkeys(name for entry in entries for name in entry.usb))

    def _usb_devices(self) -> tuple[UsbDevice, ...]:
        return usb_devices(self._worker, timeout=self._site.limits.call)

    def _usb_parts(
        self, tenant: Tenant, component: str, names: tuple[UsbId | UsbPort, ...]
    ) -> tuple[UsbPart, ...]:
        """Find the USB devices of these names, and refuse those that the sliver may not have."""
        if not names:
            return ()
        devices = self._usb_devices()
        found = [the_one(name, devices, self._host) for name in names]
        readings = read_domains(connect(self._uri))
        refuse(found, usb_claims(readings, devices, tenant, component), self._host)
        return tuple(
            UsbPart.of(tenant.sliver, component, number, name, device)
            for number, (name, device) in enumerate(zip(names, found, strict=True))
        )

    def _attach_usb(self, tenant: Tenant, component: str, parts: tuple[UsbPart, ...]) -> None:
        """Have the definition name just these USB devices, on a controller of their own."""
        own = self._own(tenant)
        there = [h for h in usb_hostdevs(own) if component_of(h.alias, tenant.sliver) == component]
        kept = [h.alias for h in there if any(part.is_named_by(h) for part in parts)]
        for hostdev in there:
            if hostdev.alias not in kept:
                own.domain.detachDeviceAlias(hostdev.alias, CONFIG)
        index = self._usb_controller(own, usb_alias(tenant.sliver, component)) if parts else 0
        for port, part in enumerate(parts, 1):
            if part.alias not in kept:
                own.domain.attachDeviceFlags(part.xml(index, port), CONFIG)
        self._verify_usb(Definition(own.domain), parts)

    def _usb_controller(self, own: Reading, label: str) -> int:
        """Return the index of the controller with this alias, made if it is not there."""
        root = own.roots[CONFIG]
        if not has_usb(root):
            # A controller beside this one is accepted, and the definition can then not be changed any
            # more. libvirt puts its usual one in its place.
            own.domain.detachDeviceFlags(NO_USB, CONFIG)
        index = controller(root, label)
        if index is None:
            own.domain.attachDeviceFlags(render("usb-controller.xml.j2", alias=label), CONFIG)
            index = controller(Definition(own.domain).roots[CONFIG], label)
        if index is None:
            raise self._lost(own, label)
        return index

    def _verify_usb(self, own: Reading, parts: tuple[UsbPart, ...]) -> None:
        there = list(usb_hostdevs(own))
        for part in parts:
            if not any(part.is_named_by(hostdev) for hostdev in there):
                raise self._lost(own, f"{part.alias}, {part.device}")

    def _lost(self, own: Reading, what: str) -> NotVerified:
        return NotVerified(
            f"domain {own.domain.name()} has not what was attached",
            where=self._uri,
            why=f"{what} is not in its definition",
            remedy="detach the component and attach it again",
        )

    def _usb_locked(self) -> AbstractContextManager[None]:
        """Keep others off the USB devices of the host, and off the USB controllers of its domains."""
        path = self._lock_directory / f"{self._host}-usb.lock"
        what = f"USB of {self._host}"
        return exclusive(path, what, timeout=self._site.limits.busy)

    # --- taking back

    def detach(self, tenant: Tenant, component: str, *, timeout: float) -> None:  # noqa: ARG002
        """Take the component out of the domain's definition; a running guest keeps it until its end.

        :raises NotVerified: if the definition, read back, still has a part of it.
        """
        with self._translated(f"detach {component}"):
            own = read_tenant(connect(self._uri), tenant)
            if own is None:
                return
            for label in _labels(Definition(own.domain), tenant.sliver, component):
                own.domain.detachDeviceAlias(label, CONFIG)
            left = _labels(Definition(own.domain), tenant.sliver, component)
            if left:
                raise NotVerified(
                    f"domain {own.domain.name()} is still defined with {', '.join(left)}",
                    where=self._uri,
                    remedy="detach the component again",
                )


class FpgaDevice(ColdDevice):
    """An FPGA; its JTAG is a four-port FTDI adapter (FT4232H) unless the allow-list names another."""

    usual_usb: ClassVar[tuple[UsbId | UsbPort, ...]] = (UsbId(vendor="0403", product="6011"),)


class Sn1022Device(ColdDevice):
    """A Xilinx SN1022: with the two JTAG devices that the allow-list names by bus and port, or none."""


def _labels(own: Reading, sliver_id: str, component: str) -> list[str]:
    """Return the aliases of all parts of a component in the order in which they can be taken out.

    A USB controller can go when nothing is on it; the functions go last, the first of them at the end:
    by them the component is found.
    """
    aliases = (alias.get("name", "") for alias in own.roots[CONFIG].iterfind("devices/*/alias"))
    return sorted((a for a in aliases if component_of(a, sliver_id) == component), reverse=True)
