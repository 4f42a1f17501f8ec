"""Attaches PCI functions to a domain, in one sequence for every kind of device.

::

    lock the functions and those bound to them → survey host, domains and records → refuse
    → record as in use → unbind from the host's drivers → apply settings (VFs)
    → attach what is missing → define other VLANs → read back → set what the PF enforces otherwise (VFs)

If a step after the records fails, the functions that this attach added are detached again.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import groupby
from typing import ClassVar

import libvirt

from fabric_direct.drivers.contract import DeviceDomain, DeviceRecord, PluggedDevice, VfSettings
from fabric_direct.drivers.libvirt.connection.connections import Ignoring
from fabric_direct.drivers.libvirt.domains.claims import DomainReading, Taker, address_in, uuid_of
from fabric_direct.drivers.libvirt.domains.lookup import alias
from fabric_direct.drivers.libvirt.passthrough import attached, node_devices
from fabric_direct.drivers.libvirt.passthrough.attached import CONFIG, LIVE
from fabric_direct.drivers.libvirt.passthrough.device_host import DeviceHost
from fabric_direct.drivers.libvirt.passthrough.pcie_ports import one_slot
from fabric_direct.drivers.libvirt.passthrough.topology import Topology
from fabric_direct.drivers.libvirt.xml import render
from fabric_direct.errors import DriverError, FabricDirectError, NotVerified
from fabric_direct.model import PciAddress, PciComponent

# Seconds for each function that a failed attach detaches again: the guest is asked once.
TAKE_BACK = 20.0


class PlainFunctions:
    """Functions without settings of their own; kinds of devices that have some override the methods."""

    template: ClassVar[str] = "hostdev.xml.j2"

    def __init__(self, host: DeviceHost) -> None:
        self.host = host

    def wanted(self, component: PciComponent, sliver_id: str) -> tuple[PluggedDevice, ...]:
        """Return the component's functions as a domain should have them."""
        return tuple(
            PluggedDevice(component.id, alias(sliver_id, component.id, number), address)
            for number, address in enumerate(component.bdf)
        )

    def guard(self, component: PciComponent, sliver_id: str) -> AbstractContextManager[None]:  # noqa: ARG002
        """Lock what an attach needs beside the functions."""
        return nullcontext()

    def check(self, topology: Topology, component: PciComponent, sliver_id: str) -> None:
        """Raise InvalidSliver unless the settings are possible."""

    def baseline(self, topology: Topology, address: PciAddress) -> VfSettings | None:  # noqa: ARG002
        """Return the settings before the attach, for the record."""
        return None

    safe_baseline: ClassVar[VfSettings | None] = None
    """The settings to restore where those before the attach are not known."""

    def apply(self, topology: Topology, component: PciComponent) -> None:
        """Apply the settings before the attach."""

    def confirm(
        self, topology: Topology, component: PciComponent, plugged: tuple[PluggedDevice, ...]
    ) -> None:
        """Set what differs once the running domain has the functions."""

    def restore(self, topology: Topology, record: DeviceRecord) -> None:
        """Restore the settings of the record."""

    def differences(
        self,
        component: PciComponent,  # noqa: ARG002
        sliver_id: str,  # noqa: ARG002
        *,
        adopted: bool,  # noqa: ARG002
    ) -> Iterator[str]:
        """Yield the differences in settings while the domain runs, a sentence each.

        :param adopted: whether others plugged it in, and chose its MAC and VLAN.
        """
        yield from ()

    def with_settings(self, devices: tuple[PluggedDevice, ...]) -> tuple[PluggedDevice, ...]:
        """Return the devices with their settings."""
        return devices


@dataclass(frozen=True)
class Plugging:
    """Changes a domain live (if it runs) and its definition; with ``cold`` its definition alone."""

    host: DeviceHost
    cold: bool

    def of(self, domain: DomainReading) -> DomainReading:
        """Return the part of a domain that is changed."""
        return domain.as_defined() if self.cold else domain

    def take_back(self, domain: libvirt.virDomain, label: str) -> bool:
        """Detach what a failed attach has added; return whether that succeeded."""
        try:
            if not self.cold:
                self.host.unplug(domain, label, timeout=TAKE_BACK)
                return True
            with Ignoring(libvirt.VIR_ERR_DEVICE_MISSING):
                domain.detachDeviceAlias(label, CONFIG)
        except (libvirt.libvirtError, FabricDirectError):
            return False
        return True


@dataclass(frozen=True)
class DeviceAttachment:
    """Attaches the functions of one component to one domain."""

    functions: PlainFunctions
    plug: Plugging
    tenant: DeviceDomain
    component: PciComponent

    def run(self) -> tuple[PluggedDevice, ...]:
        """Attach what is missing and return the component's functions as read back.

        :raises Conflict: if the sliver may not have one of them.
        :raises NotFound: if the sliver has no domain.
        :raises NotVerified: if the component, read back, has other functions or settings.
        :raises SliverBusy: if others did not release a lock on one of them in time.
        :raises Unsupported: if the domain has no free root port.
        """
        host, tenant, component = self.functions.host, self.tenant, self.component
        with (
            host.translated(f"attach {component.id}"),
            self.functions.guard(component, tenant.sliver),
            host.lock_functions(component.bdf),
        ):
            topology = host.topology(component.bdf)
            topology.refuse(component, tenant.sliver, uuid_of(tenant))
            own = self.plug.of(host.the_domain(tenant))
            before = {taker.alias for taker in own.takers()}
            self._prepare(topology)
            with detaching_on_error(self.plug, own.domain, lambda: self._added(before)):
                with host.lock_domain(tenant):
                    there = self.plug.of(host.the_domain(tenant))
                    self._attach_missing(there)
                    self._define_vlans(there)
                found = self._read_back(now := self.plug.of(own.again()))
                if LIVE in now.scopes:
                    self.functions.confirm(topology, component, found)
            return self.functions.with_settings(found)

    @property
    def wanted(self) -> tuple[PluggedDevice, ...]:
        """The component's functions as the domain should have them."""
        return self.functions.wanted(self.component, self.tenant.sliver)

    def _added(self, before: set[str]) -> list[str]:
        return [device.alias for device in self.wanted if device.alias not in before]

    def _prepare(self, topology: Topology) -> None:
        """Record the functions as in use, take them and their peers from the host, apply settings."""
        self.functions.check(topology, self.component, self.tenant.sliver)
        for address in self.component.bdf:
            if address not in topology.records:
                self.functions.host.records.write(self._record(topology, address))
        together = {e for a in self.component.bdf for e in (a, *topology.peers(a))}
        unbound = {a for a in together if topology.functions[a].driver != node_devices.VFIO}
        connection = self.functions.host.connection
        with ThreadPoolExecutor(max(1, len(unbound))) as pool:
            list(pool.map(lambda a: node_devices.unbind(connection, a), unbound))
        self.functions.apply(topology, self.component)

    def _record(self, topology: Topology, address: PciAddress) -> DeviceRecord:
        record = topology.record_of(address, self.component, self.tenant.sliver)
        return replace(record, baseline=self.functions.baseline(topology, address))

    def _attach_missing(self, own: DomainReading) -> None:
        there = {(taker.alias, taker.scope): taker for taker in own.takers()}
        by_address = sorted(self.wanted, key=lambda device: device.host_address)
        for _, slot in groupby(by_address, key=lambda d: d.host_address.slot_address):
            functions = list(slot)
            if len(functions) == 1:
                missing = sum(s for s in own.scopes if (functions[0].alias, s) not in there)
                self._plug(own, functions[0], missing)
            else:
                self._attach_slot(own, functions, there)

    def _attach_slot(
        self,
        own: DomainReading,
        functions: list[PluggedDevice],
        there: Mapping[tuple[str, int], Taker],
    ) -> None:
        """Attach the functions of one device: each to a root port of its own now, in one slot later."""
        present = [t for d in functions if (t := there.get((d.alias, CONFIG))) is not None]
        taken = [address for t in present if (address := address_in(t.element)) is not None]
        addresses = [device.host_address for device in functions]
        slots = one_slot(own.roots[CONFIG], addresses, taken, self.functions.host.uri)
        for device, slot in zip(functions, slots, strict=True):
            if LIVE in own.scopes and (device.alias, LIVE) not in there:
                self._plug(own, device, LIVE)
            if (device.alias, CONFIG) not in there:
                self._plug(own, device, CONFIG, slot)

    def _plug(
        self, own: DomainReading, device: PluggedDevice, scopes: int, slot: PciAddress | None = None
    ) -> None:
        if scopes:
            xml = render(self.functions.template, device=device, slot=slot)
            own.domain.attachDeviceFlags(xml, scopes)

    def _define_vlans(self, own: DomainReading) -> None:
        """Define the VLANs of functions that are there; libvirt changes none of a running domain's."""
        plugged = attached.plugged_in(own, self.tenant.sliver)
        vlans = {d.alias: d.vlan for _, d in attached.defined_otherwise(plugged, self.wanted)}
        for taker in own.takers():
            if taker.scope == CONFIG and taker.alias in vlans:
                xml = attached.with_vlan(taker.element, vlans[taker.alias])
                own.domain.updateDeviceFlags(xml, CONFIG)

    def _read_back(self, own: DomainReading) -> tuple[PluggedDevice, ...]:
        """Return the functions as found: live if the domain runs, else as defined."""
        wanted, labels = self.wanted, {device.alias for device in self.wanted}
        plugged = {
            scope: tuple(device for device in there if device.alias in labels)
            for scope, there in attached.plugged_in(own, self.tenant.sliver).items()
        }
        for there in plugged.values():
            if not all(any(attached.is_as(found, device) for found in there) for device in wanted):
                raise self._unlike(own.domain, there)
        for found, _ in attached.defined_otherwise(plugged, wanted):
            raise self._unlike(own.domain, [found])
        return attached.current(plugged)

    def _unlike(self, domain: libvirt.virDomain, there: Iterable[PluggedDevice]) -> NotVerified:
        has = ", ".join(map(attached.described, there)) or "nothing"
        why = f"wanted {', '.join(map(attached.described, self.wanted))}; found {has}"
        return not_attached(domain, self.functions.host.uri, why)


def not_attached(domain: libvirt.virDomain, where: str, why: str) -> NotVerified:
    """Return the error of a domain that, read back, lacks what was attached."""
    return NotVerified(
        f"domain {domain.name()} does not have what was attached",
        where=where,
        why=why,
        remedy="detach the component and attach it again",
    )


@contextmanager
def detaching_on_error(
    plug: Plugging,
    domain: libvirt.virDomain,
    added: Callable[[], list[str]],
    still: str = "still attached",
) -> Iterator[None]:
    """On an error within the block, detach the devices with the ``added`` aliases again.

    :raises DriverError: if one of them cannot be detached.
    """
    try:
        yield
    except (libvirt.libvirtError, FabricDirectError) as error:
        left = [label for label in added() if not plug.take_back(domain, label)]
        if left:
            raise DriverError(
                "a device was attached only in part",
                where=plug.host.uri,
                why=str(error),
                remedy=f"{still}, and to be detached: {', '.join(left)}",
            ) from error
        raise
