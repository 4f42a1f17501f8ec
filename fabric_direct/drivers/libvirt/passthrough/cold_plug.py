"""Devices that a guest gets and releases only with a power cycle: FPGAs with their JTAG.

All functions of the device are in one slot, with a USB controller of their own that has the USB devices
which the allow-list names. Only the definition of the domain is changed; a power cycle applies it.

The number of a USB device that is named by its port changes when it is unplugged or the host reboots.
Then :meth:`ColdDevice.differences` reports it; :meth:`ColdDevice.attach`, and each
:meth:`ColdDevice.restart` before the power cycle, write the new number.
"""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import ClassVar

from fabric_direct.drivers.contract import DeviceDomain, PluggedDevice
from fabric_direct.drivers.libvirt.domains.claims import DomainReading, read_domains
from fabric_direct.drivers.libvirt.domains.lookup import component_of
from fabric_direct.drivers.libvirt.passthrough import usb
from fabric_direct.drivers.libvirt.passthrough.attach import detaching_on_error, not_attached
from fabric_direct.drivers.libvirt.passthrough.attached import CONFIG, LIVE, plugged_in
from fabric_direct.drivers.libvirt.passthrough.hostdev import WHEN, HostdevDevice
from fabric_direct.drivers.libvirt.xml import render
from fabric_direct.errors import Conflict, NotVerified, Unsupported
from fabric_direct.model import PciAddress, PciComponent
from fabric_direct.site.config import UsbId, UsbPort

NO_USB = "<controller type='usb' index='0' model='none'/>"


class ColdDevice(HostdevDevice):
    """Passes PCI functions and USB devices of one host through, from the domain's next start on."""

    cold: ClassVar[bool] = True
    usual_usb: ClassVar[tuple[UsbId | UsbPort, ...]] = ()
    """The USB devices of a device whose entries in the allow-list name none."""

    # --- looking

    def check(self, component: PciComponent, tenant: DeviceDomain) -> None:
        """Raise unless the sliver may have the device, and the USB devices that go with it.

        :raises InvalidSliver: also if there is no such USB device, or several.
        :raises DeviceClaimed: also if another domain, live or defined, has a USB device of it.
        :raises DeviceInUse: also if the host has mounted one.
        """
        super().check(component, tenant)
        with self._host.translated(f"check {component.id}"):
            own = self._host.domain(tenant)
            if own is None or not _is_adopted(own, tenant, component.id):
                self._usb_parts(tenant, component.id, self._usb_of(component))

    def keeps(self, tenant: DeviceDomain, component: str) -> bool:
        """Return whether the domain has anything of the component, also if others defined it."""
        with self._domain(tenant) as own:
            adopted = own is not None and _is_adopted(own, tenant, component)
        return adopted or super().keeps(tenant, component)

    def plugged(self, tenant: DeviceDomain) -> tuple[PluggedDevice, ...]:
        """Return the functions that the sliver's domain has by this site's stamp, live or as defined.

        A function that is only defined has no address in the guest yet.
        """
        with self._domain(tenant) as own:
            there = plugged_in(own, tenant.sliver) if own else {}
        found = {d.alias: d for scope in (CONFIG, LIVE) for d in there.get(scope, ())}
        return tuple(found.values())

    def differences(self, component: PciComponent, tenant: DeviceDomain) -> tuple[str, ...]:
        """Return the differences in the definition and, unless a power cycle is pending, live."""
        with self._domain(tenant) as own:
            if own is None:
                return ()
            settled = own.as_defined() if self._is_pending(own, tenant.sliver) else own
            adopted = _is_adopted(own, tenant, component.id)
            usb_of = () if adopted else self._usb_of(component)
            missing_usb = self._missing_usb(settled, tenant.sliver, component, usb_of)
            what = f"{component.type} {component.id}"
            return (
                *self._differing(settled, component, tenant),
                *(f"{what} {text}" for text in missing_usb),
            )

    def _missing_usb(
        self,
        own: DomainReading,
        sliver_id: str,
        component: PciComponent,
        names: tuple[UsbId | UsbPort, ...],
    ) -> Iterator[str]:
        devices, there = self._usb_devices() if names else (), list(usb.hostdevs(own))
        for number, name in enumerate(names):
            found = [device for device in devices if device.carries(name)]
            if len(found) != 1:
                yield f"needs {usb.described(name)}, and the host has {len(found)}"
                continue
            part = usb.UsbPart.of(sliver_id, component.id, number, name, found[0])
            for scope in own.scopes:
                if not any(h.scope == scope and part.is_had_by(h) for h in there):
                    yield f"does not have {part.device} {WHEN[scope]}"

    def _labels(self, own: DomainReading, tenant: DeviceDomain, component: str) -> list[str]:
        """Return the aliases of all parts in the definition in the order in which they can be taken out.

        A USB controller can go when nothing is on it; the functions go last, the first of them at the
        end: by them the component is found.
        """
        aliases = (alias.get("name", "") for alias in own.roots[CONFIG].iterfind("devices/*/alias"))
        return sorted(
            (a for a in aliases if component_of(a, tenant.sliver) == component), reverse=True
        )

    def pending(self, tenant: DeviceDomain) -> bool:
        """Return whether the domain runs, and gets or loses a device of ours with its next start.

        It also gets a USB device again that was unplugged and is back.
        """
        with self._domain(tenant) as own:
            return own is not None and self._is_pending(own, tenant.sliver)

    def _is_pending(self, own: DomainReading, sliver_id: str) -> bool:
        if LIVE not in own.scopes:
            return False
        found: dict[int, set[tuple[str, object]]] = {LIVE: set(), CONFIG: set()}
        for taker in own.takers():
            found[taker.scope].add((taker.alias, taker.address))
        hostdevs = list(usb.hostdevs(own))
        devices = self._usb_devices() if hostdevs else ()
        for hostdev in hostdevs:
            found[hostdev.scope].add((hostdev.alias, hostdev.source.chosen(devices)))
        live, defined = ({p for p in found[s] if component_of(p[0], sliver_id)} for s in found)
        return live != defined

    # --- changing

    def attach(self, tenant: DeviceDomain, component: PciComponent) -> tuple[PluggedDevice, ...]:
        """Add the device to the domain's definition: functions, USB controller and USB devices.

        If one fails, what this call added is removed again.

        :raises Conflict: as :meth:`check` does.
        :raises NotFound: if the sliver has no domain.
        :raises NotVerified: if the definition, read back, lacks something.
        :raises SliverBusy: if others did not release a lock on one of them in time.
        """
        with self._host.translated(f"attach {component.id}"), self._usb_locked():
            parts = self._usb_parts(tenant, component.id, self._usb_of(component))
            with self._all_or_nothing(tenant, component.id):
                plugged = super().attach(tenant, component)
                self._attach_usb(tenant, component.id, parts)
                return plugged

    @contextmanager
    def _all_or_nothing(self, tenant: DeviceDomain, component: str) -> Iterator[None]:
        """On an error, remove from the definition what was not there before."""
        own = self._defined(tenant)
        before = self._labels(own, tenant, component)

        def added() -> list[str]:
            now = self._labels(self._defined(tenant), tenant, component)
            return [label for label in now if label not in before]

        with detaching_on_error(self._plug, own.domain, added, "still defined"):
            yield

    def detach(self, tenant: DeviceDomain, component: str, *, timeout: float) -> None:  # noqa: ARG002
        """Remove the component from the domain's definition; a running guest keeps it until its end.

        :raises NotVerified: if the definition, read back, still has a part of it.
        :raises Conflict: if others plugged it in: which USB devices are its own is not known.
        """
        with self._host.translated(f"detach {component}"):
            own = self._host.domain(tenant)
            if own is None:
                return
            self._refuse_adopted(own, tenant, component)
            for label in self._labels(own, tenant, component):
                own.domain.detachDeviceAlias(label, CONFIG)
            left = self._labels(own.again(), tenant, component)
            if left:
                raise NotVerified(
                    f"domain {own.domain.name()} is still defined with {', '.join(left)}",
                    where=self._host.uri,
                    remedy="detach the component again",
                )

    def _refuse_adopted(self, own: DomainReading, tenant: DeviceDomain, component: str) -> None:
        if _is_adopted(own, tenant, component):
            raise Conflict(
                f"{component} was plugged in by others and cannot be taken out",
                where=self._host.uri,
                why="which USB devices of the domain belong to it is not known",
                remedy="delete the sliver: its devices are cleaned then",
            )

    def restart(self, tenant: DeviceDomain, *, timeout: float) -> None:
        """Power-cycle the domain from its definition; it runs on return.

        :raises InvalidSliver: if a USB device of it is not there; the domain still runs then.
        """
        what = f"restart the domain of {tenant.sliver}"
        with self._host.translated(what), self._usb_locked():
            self._renumber(tenant)
        super().restart(tenant, timeout=timeout)

    def _renumber(self, tenant: DeviceDomain) -> None:
        """Write the present numbers of the USB devices into the definition."""
        takers: dict[str, list[PciAddress]] = {}
        for taker in (t for t in self._defined(tenant).takers() if not t.adopted):
            component = component_of(taker.alias, tenant.sliver)
            takers.setdefault(component or "", []).append(taker.address)
        for component, addresses in takers.items():
            names = self._named_usb(addresses)
            if component and names:
                self._attach_usb(tenant, component, self._usb_parts(tenant, component, names))

    def rescan(self, tenant: DeviceDomain, component: PciComponent, *, timeout: float) -> None:
        """Remove the device from the host's bus, rescan the bus, and attach it again.

        :raises Unsupported: if the domain runs with it: a running guest does not release it.
        :raises NotVerified: if it does not come back on the bus with the same ids.
        """
        if any(d.component == component.id and d.guest_address for d in self.plugged(tenant)):
            raise Unsupported(
                f"{component.id} cannot be taken from a running guest",
                where=self._host.uri,
                remedy="stop the node, and rescan",
            )
        super().rescan(tenant, component, timeout=timeout)

    def _defined(self, tenant: DeviceDomain) -> DomainReading:
        return self._host.the_domain(tenant).as_defined()

    # --- the USB devices of a component

    def _usb_of(self, component: PciComponent) -> tuple[UsbId | UsbPort, ...]:
        return self._named_usb(component.bdf) or self.usual_usb

    def _named_usb(self, addresses: Iterable[PciAddress]) -> tuple[UsbId | UsbPort, ...]:
        """Return the USB devices that the allow-list names with these functions, each once."""
        wanted = set(addresses)
        entries = (e for e in self._host.site.host(self._host.name).devices if e.bdf in wanted)
        return tuple(dict.fromkeys(name for entry in entries for name in entry.usb))

    def _usb_devices(self) -> tuple[usb.UsbDevice, ...]:
        return usb.devices(self._host.agent, timeout=self._host.site.limits.call)

    def _usb_parts(
        self, tenant: DeviceDomain, component: str, names: tuple[UsbId | UsbPort, ...]
    ) -> tuple[usb.UsbPart, ...]:
        """Find the USB devices of these names, and refuse those that the sliver may not have."""
        if not names:
            return ()
        devices = self._usb_devices()
        found = [usb.the_one(name, devices, self._host.name) for name in names]
        readings = read_domains(self._host.connection)
        usb.refuse(found, usb.claims(readings, devices, tenant, component), self._host.name)
        return tuple(
            usb.UsbPart.of(tenant.sliver, component, number, name, device)
            for number, (name, device) in enumerate(zip(names, found, strict=True))
        )

    def _attach_usb(
        self, tenant: DeviceDomain, component: str, parts: tuple[usb.UsbPart, ...]
    ) -> None:
        """Define exactly these USB devices for the component, on a controller of its own."""
        own = self._defined(tenant)
        there = [h for h in usb.hostdevs(own) if component_of(h.alias, tenant.sliver) == component]
        kept = [h.alias for h in there if any(part.is_named_by(h) for part in parts)]
        for hostdev in there:
            if hostdev.alias not in kept:
                own.domain.detachDeviceAlias(hostdev.alias, CONFIG)
        index = self._usb_controller(own, usb.alias(tenant.sliver, component)) if parts else 0
        for port, part in enumerate(parts, 1):
            if part.alias not in kept:
                own.domain.attachDeviceFlags(part.xml(index, port), CONFIG)
        self._verify_usb(own.again().as_defined(), parts)

    def _usb_controller(self, own: DomainReading, label: str) -> int:
        """Return the index of the controller with this alias, made if it is not there."""
        root = own.roots[CONFIG]
        if not usb.has_usb(root):
            # A controller beside this one is accepted, and the definition can then not be changed any
            # more. libvirt puts its usual one in its place.
            own.domain.detachDeviceFlags(NO_USB, CONFIG)
        index = usb.controller(root, label)
        if index is None:
            own.domain.attachDeviceFlags(render("usb-controller.xml.j2", alias=label), CONFIG)
            index = usb.controller(own.again().roots[CONFIG], label)
        if index is None:
            raise self._lost(own, label)
        return index

    def _verify_usb(self, own: DomainReading, parts: tuple[usb.UsbPart, ...]) -> None:
        there = list(usb.hostdevs(own))
        for part in parts:
            if not any(part.is_named_by(hostdev) for hostdev in there):
                raise self._lost(own, f"{part.alias}, {part.device}")

    def _lost(self, own: DomainReading, what: str) -> NotVerified:
        return not_attached(own.domain, self._host.uri, f"{what} is not in its definition")

    def _usb_locked(self) -> AbstractContextManager[None]:
        """Lock the USB devices of the host, and the USB controllers of its domains."""
        what = f"USB of {self._host.name}"
        return self._host.lock("usb", what, timeout=self._host.site.limits.busy)


def _is_adopted(own: DomainReading, tenant: DeviceDomain, component: str) -> bool:
    """Return whether others plugged the component into the domain."""
    adopted = (taker.alias for taker in own.takers() if taker.adopted)
    return any(component_of(alias, tenant.sliver) == component for alias in adopted)


class FpgaDevice(ColdDevice):
    """An FPGA; its JTAG is a four-port FTDI adapter (FT4232H) unless the allow-list names another."""

    usual_usb: ClassVar[tuple[UsbId | UsbPort, ...]] = (UsbId(vendor="0403", product="6011"),)


class Sn1022Device(ColdDevice):
    """A Xilinx SN1022: with the two JTAG devices that the allow-list names by bus and port, or none."""
