"""The driver of PCI functions that are passed through to domains, each as a ``<hostdev>``.

``attach`` has the sequence of an attach, ``release`` that of cleaning; a detach is one function after
the other, confirmed by the guest. A function has a record from before it is attached until it is clean
again, so whatever happens in between, also to this process or to the domain, it is not free.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import ClassVar

from fabric_direct.calls.deadline import Deadline, wait_until
from fabric_direct.calls.read_cache import reading_once
from fabric_direct.drivers.contract import (
    QUARANTINED,
    Belongings,
    DeviceDomain,
    DeviceRecord,
    HostDevice,
    PluggedDevice,
    Stamped,
)
from fabric_direct.drivers.contract.changes import Hearing, Tell
from fabric_direct.drivers.contract.devices import (
    domain_gone,
    domain_renamed,
    foreign_function,
)
from fabric_direct.drivers.contract.fields import refuse_nic_fields
from fabric_direct.drivers.libvirt.connection import domain_events
from fabric_direct.drivers.libvirt.domains.claims import DomainReading, uuid_of
from fabric_direct.drivers.libvirt.domains.lookup import component_of
from fabric_direct.drivers.libvirt.domains.power import power_off, power_on, shut_down
from fabric_direct.drivers.libvirt.passthrough import attached, node_devices
from fabric_direct.drivers.libvirt.passthrough.attach import (
    DeviceAttachment,
    PlainFunctions,
    Plugging,
)
from fabric_direct.drivers.libvirt.passthrough.attached import CONFIG, LIVE
from fabric_direct.drivers.libvirt.passthrough.device_host import DeviceHost
from fabric_direct.drivers.libvirt.passthrough.pcie_ports import free_ports
from fabric_direct.drivers.libvirt.passthrough.release import Release
from fabric_direct.drivers.libvirt.passthrough.takeover import Takeover
from fabric_direct.drivers.libvirt.passthrough.topology import Topology
from fabric_direct.errors import NotVerified, TimedOut
from fabric_direct.model import PciAddress, PciComponent
from fabric_direct.site.config import Site

WHEN = {LIVE: "now", CONFIG: "at its next start"}


class HostdevDevice:
    """Passes PCI functions of one host through to its domains.

    :param site: the site; its allow-list for the host, and the directory of its locks and records.
    :param host: name of the worker.
    :raises NotFound: if the site has no such worker.
    """

    cold: ClassVar[bool] = False
    unserved: ClassVar[tuple[str, ...]] = ("bandwidth",)
    functions: ClassVar[type[PlainFunctions]] = PlainFunctions
    """The settings that the functions have, beside their place in the domain."""

    def __init__(self, site: Site, host: str) -> None:
        self._host = DeviceHost(site, host)
        self._functions = self.functions(self._host)
        self._plug = Plugging(self._host, self.cold)
        self._release = Release(self._functions)

    # --- looking

    def listen(self, tell: Tell, hearing: Hearing) -> None:
        """Tell of libvirt's events of all domains, until the hearing ends."""
        domain_events.listen(self._host.uri, tell, hearing)

    def inventory(self) -> tuple[HostDevice, ...]:
        """Return the PCI functions of the host, by address, with their states and owners."""
        with self._host.translated("list the PCI functions"):
            return tuple(self._host.topology().devices(self._host.bridge_modes()))

    def check(self, component: PciComponent, tenant: DeviceDomain) -> None:
        """Raise InvalidSliver or Conflict unless the sliver may have the device.

        :meth:`Topology.refuse` lists what is refused.
        """
        refuse_nic_fields(component, self.unserved)
        with self._host.translated(f"check {component.id}"):
            topology = self._host.topology()
            topology.refuse(component, tenant.sliver, uuid_of(tenant))
            self._functions.check(topology, component, tenant.sliver)

    def keeps(self, tenant: DeviceDomain, component: str) -> bool:
        """Return whether the domain has anything of the component, live or defined."""
        with self._domain(tenant) as own:
            return own is not None and bool(self._labels(own, tenant, component))

    def _labels(self, own: DomainReading, tenant: DeviceDomain, component: str) -> list[str]:
        """Return the aliases of the component's functions, live and as defined."""
        takers = {taker.alias for taker in own.takers()}
        return sorted(a for a in takers if component_of(a, tenant.sliver) == component)

    def free_ports(self, tenant: DeviceDomain) -> int | None:
        """Return how many more devices fit into the running domain; None if it does not run."""
        with self._domain(tenant) as own:
            return len(free_ports(own.roots[LIVE])) if own and LIVE in own.scopes else None

    def plugged(self, tenant: DeviceDomain) -> tuple[PluggedDevice, ...]:
        """Return the functions that the sliver's domain has by this site's stamp, with their settings.

        Of a running domain those of its live XML, with the address that libvirt gave them there.
        """
        with self._domain(tenant) as own:
            there = attached.current(attached.plugged_in(own, tenant.sliver)) if own else ()
            return self._functions.with_settings(there)

    def differences(self, component: PciComponent, tenant: DeviceDomain) -> tuple[str, ...]:
        """Return the differences between the device and its component, live and as defined."""
        with self._domain(tenant) as own:
            return tuple(self._differing(own, component, tenant)) if own else ()

    def _differing(
        self, own: DomainReading, component: PciComponent, tenant: DeviceDomain
    ) -> Iterator[str]:
        """Yield the differences in a domain, and those in settings if it runs and has no others."""
        wanted, missing = self._functions.wanted(component, tenant.sliver), False
        plugged = attached.plugged_in(own, tenant.sliver)
        for scope, there in plugged.items():
            for device in wanted:
                if not any(attached.is_as(found, device) for found in there):
                    missing = True
                    what = f"{device.host_address} {WHEN[scope]}"
                    yield f"{component.type} {component.id} does not have {what}"
        for found, device in attached.defined_otherwise(plugged, wanted):
            at = f"at its next start, not {device.vlan or 0}"
            yield f"{component.type} {component.id} has VLAN {found.vlan or 0} {at}"
        if LIVE in own.scopes and not missing:
            own_devices = (d for d in plugged[LIVE] if d.component == component.id)
            adopted = any(device.adopted for device in own_devices)
            yield from self._functions.differences(component, tenant.sliver, adopted=adopted)

    def domain_differences(self, tenant: DeviceDomain, name: str | None = None) -> tuple[str, ...]:
        """Return how others have changed the domain: gone, renamed, with functions that are not ours."""
        with self._domain(tenant) as own:
            if own is None:
                return (domain_gone(name or uuid_of(tenant), self._host.name),)
            has, wanted = own.domain.name(), name or own.named()
            renamed = (domain_renamed(has, wanted),) if wanted not in {None, has} else ()
            foreign = {t.address for t in own.takers() if not component_of(t.alias, tenant.sliver)}
            return (*renamed, *map(foreign_function, sorted(foreign)))

    def survey(self, belongings: Collection[Belongings]) -> dict[str, tuple[str, ...]]:
        """Return the differences of many slivers; domains and uplinks are read once for all of them."""
        with reading_once():
            return {each.tenant.sliver: tuple(self._surveyed(each)) for each in belongings}

    def _surveyed(self, has: Belongings) -> Iterator[str]:
        yield from self.domain_differences(has.tenant, has.domain)
        for component in has.components:
            yield from self.differences(component, has.tenant)

    @contextmanager
    def _domain(self, tenant: DeviceDomain) -> Iterator[DomainReading | None]:
        """Read the tenant's domain, for one block."""
        with self._host.translated(f"read the devices of {tenant.sliver}"):
            yield self._host.domain(tenant)

    def pending(self, tenant: DeviceDomain) -> bool:  # noqa: ARG002 - as for all device drivers
        """Return False: what is attached or detached here takes effect at once."""
        return False

    def records(self, sliver_id: str) -> tuple[DeviceRecord, ...]:
        """Return the records of the sliver's devices."""
        return tuple(r for r in self._host.records.read().values() if r.sliver == sliver_id)

    def stamped(self) -> tuple[Stamped, ...]:
        """Return the devices that are recorded as in use or not clean, by this site's own records."""
        return tuple(map(_stamped, self._host.records.own()))

    # --- changing

    def attach(self, tenant: DeviceDomain, component: PciComponent) -> tuple[PluggedDevice, ...]:
        """Pass all functions of the component through; see :meth:`Attachment.run`."""
        return DeviceAttachment(self._functions, self._plug, tenant, component).run()

    def detach(self, tenant: DeviceDomain, component: str, *, timeout: float) -> None:
        """Detach the component's functions; on return the guest has released them.

        :param timeout: seconds that the guest may take for all of them.
        :raises TimedOut: if the guest still holds one; that one is still the sliver's then.
        """
        deadline = Deadline.within(timeout)
        with self._host.translated(f"detach {component}"):
            own = self._host.domain(tenant)
            if own is None:
                return
            for name in self._names(own, tenant, component):
                self._host.unplug(own.domain, name, timeout=deadline.remaining())

    def _names(
        self, own: DomainReading, tenant: DeviceDomain, component: str
    ) -> list[str | PciAddress]:
        """Return what libvirt knows the component's functions by: addresses of those without alias."""
        labels = self._labels(own, tenant, component)
        strange = {t.alias: t.address for t in own.takers() if t.adopted and t.alias in labels}
        return [strange.get(label, label) for label in labels]

    def restart(self, tenant: DeviceDomain, *, timeout: float) -> None:
        """Power-cycle the domain from its definition; it runs on return."""
        with self._host.translated(f"restart the domain of {tenant.sliver}"):
            domain = self._host.the_domain(tenant).domain
            if not shut_down(domain, timeout):
                power_off(domain)
            power_on(domain)

    def write_record(self, record: DeviceRecord) -> None:
        """Record a function that a domain has; a record that is there stays as it is."""
        host = self._host
        with host.translated(f"record {record.address}"), host.lock_functions((record.address,)):
            if record.address not in host.records.read():
                host.records.write(record)

    # --- adopting

    def strange(self, tenant: DeviceDomain) -> tuple[PciAddress, ...]:
        """Return the functions of the tenant's domain without this site's stamp and record."""
        with self._domain(tenant) as own:
            takers = own.takers() if own else ()
            return tuple(
                sorted({t.address for t in takers if not component_of(t.alias, tenant.sliver)})
            )

    def refuse_adoption(self, component: PciComponent, tenant: DeviceDomain) -> bool:
        """Raise unless the sliver may adopt the device; see :meth:`Takeover.refuse`."""
        with self._host.translated(f"look at {component.id}"):
            return Takeover(self._functions, tenant, component).refuse(self._host.topology())

    def is_adopted(self, component: PciComponent, tenant: DeviceDomain) -> bool:
        """Return whether each function of the device has the record of this component."""
        with self._host.translated(f"look for the records of {component.id}"):
            return Takeover(self._functions, tenant, component).is_recorded()

    def adopt(self, component: PciComponent, tenant: DeviceDomain) -> None:
        """Record the functions of a device as the sliver's; the domain is not touched."""
        host = self._host
        with host.translated(f"adopt {component.id}"), host.lock_functions(component.bdf):
            Takeover(self._functions, tenant, component).record()

    def disown(self, component: PciComponent, tenant: DeviceDomain) -> None:
        """Remove the records that :meth:`adopt` wrote; the devices are as they were found."""
        host = self._host
        with host.translated(f"disown {component.id}"), host.lock_functions(component.bdf):
            Takeover(self._functions, tenant, component).strike()

    # --- cleaning

    def clean(self, record: DeviceRecord) -> None:
        """Clean a function that no domain has any more; see :meth:`Release.clean`."""
        self._release.clean(record)

    def release(self, address: PciAddress, *, force: bool) -> None:
        """Clean a function again, also a quarantined one; see :meth:`Release.release`."""
        self._release.release(address, force=force)

    def rescan(self, tenant: DeviceDomain, component: PciComponent, *, timeout: float) -> None:
        """Detach the device, remove it from the host's bus, rescan the bus, and attach it again.

        Only the component's own functions leave the bus.

        :param timeout: seconds that the guest gets to release it.
        :raises DeviceInUse: if a program still has it then.
        :raises NotVerified: if it does not come back on the bus with the same ids.
        """
        self.detach(tenant, component.id, timeout=timeout)
        host = self._host
        with host.translated(f"rescan {component.id}"), host.lock_functions(component.bdf):
            topology = self._release.await_programs(host.topology(), component.bdf)
            for address in component.bdf:
                self._release.give_back(topology, address)
            self._find_again(topology, component)
        self.attach(tenant, component)

    def _find_again(self, topology: Topology, component: PciComponent) -> None:
        """Remove the functions from the bus, and wait until a rescan finds them with the same ids."""
        host, limit = self._host, self._host.site.limits.call
        functions = [str(address) for address in component.bdf]
        ids = host.agent.call("pci.remove", timeout=limit, addresses=functions)
        # A rescan that was killed midway has left them off the bus.
        had = (topology.records[a] for a in component.bdf if a in topology.records)
        ids |= {str(record.address): f"{record.vendor}:{record.product}" for record in had}
        try:
            self._await_libvirt(component, known=False)
            host.agent.call("pci.rescan", timeout=2 * limit, expected=ids, limit=limit)
            self._await_libvirt(component, known=True)
        except TimedOut as error:
            raise NotVerified(
                f"{component.id} was not found again",
                where=host.name,
                why=str(error),
                remedy="rescan again; else power the device, or the worker, off and on",
            ) from error

    def _await_libvirt(self, component: PciComponent, *, known: bool) -> None:
        """Block until libvirt lists all functions, or none: an attach that comes sooner is refused."""
        host = self._host
        wait_until(
            f"libvirt to {'list' if known else 'forget'} {component.id}",
            lambda: all(node_devices.is_known(host.connection, a) is known for a in component.bdf),
            timeout=host.site.limits.call,
            where=host.uri,
        )


def _stamped(record: DeviceRecord) -> Stamped:
    kind = QUARANTINED if record.quarantined else "device"
    return Stamped(record.sliver, kind, f"{record.address} of {record.component or 'nobody'}")
