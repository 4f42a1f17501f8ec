"""PCI functions passed through to domains: found and guarded, attached, taken back, and cleaned.

::

    attach   lock the functions and what is bound up with them → look at host, domains and records
             → refuse → write down → unbind from the host's drivers → attach what is missing → read back
    detach   one function after the other, confirmed by the guest
    clean    back to the host's drivers → erase or reset, verified → strike the record

A function has a record from before it is attached until it is clean again, so whatever happens in
between, also to this process or to the domain, it is not free.
"""

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from itertools import groupby
from typing import ClassVar

import libvirt

from fabric_direct.config import Site
from fabric_direct.deadline import Deadline
from fabric_direct.drivers.contract import (
    DeviceRecord,
    HostDevice,
    HostDriver,
    PluggedDevice,
    Tenant,
    UplinkDriver,
)
from fabric_direct.drivers.hosts.choice import host_driver
from fabric_direct.drivers.libvirt.connection.connections import connect, translated
from fabric_direct.drivers.libvirt.passthrough import node_devices
from fabric_direct.drivers.libvirt.passthrough.attached import (
    CONFIG,
    LIVE,
    aliases,
    current,
    described,
    guest_address,
    is_as,
    plugged_in,
)
from fabric_direct.drivers.libvirt.passthrough.cleaning import clean
from fabric_direct.drivers.libvirt.passthrough.domain_claims import (
    Reading,
    Taker,
    claims,
    locked,
    read_domains,
    read_tenant,
    uuid_of,
)
from fabric_direct.drivers.libvirt.passthrough.pci_survey import survey
from fabric_direct.drivers.libvirt.passthrough.pcie_ports import free_ports, one_slot
from fabric_direct.drivers.libvirt.passthrough.records import Ledger
from fabric_direct.drivers.libvirt.passthrough.topology import View
from fabric_direct.drivers.libvirt.servers.lookup import alias
from fabric_direct.drivers.libvirt.servers.power import power_off, power_on, shut_down
from fabric_direct.drivers.libvirt.servers.unplug import detach
from fabric_direct.drivers.libvirt.xml import render
from fabric_direct.drivers.netlink.uplink import NetlinkUplink
from fabric_direct.drivers.read_cache import read
from fabric_direct.errors import (
    DeviceClaimed,
    DeviceUnclean,
    DriverError,
    FabricDirectError,
    NotFound,
    NotVerified,
    TimedOut,
    Unreachable,
    Unsupported,
)
from fabric_direct.locks import exclusive
from fabric_direct.model import PciAddress, PciComponent

WHEN = {LIVE: "now", CONFIG: "at its next start"}
# Seconds for each function that a failed attach gives back: the guest is asked once.
TAKE_BACK = 20.0


class HostdevDevice:
    """Passes PCI functions of one host through to its domains, each as a ``<hostdev>``.

    :param site: the site; its allow-list for the host, and the directory of its locks and records.
    :param host: name of the worker.
    :raises NotFound: if the site has no such worker.
    """

    cold: ClassVar[bool] = False
    template: ClassVar[str] = "hostdev.xml.j2"

    def __init__(self, site: Site, host: str) -> None:
        self._site, self._host = site, host
        self._uri = site.host(host).libvirt
        self._lock_directory = site.state_dir / "locks"
        self._uplink: UplinkDriver = NetlinkUplink(site, host)
        self._last: View | None = None

    @property
    def _worker(self) -> HostDriver:
        return host_driver(self._site, self._host)

    @property
    def _ledger(self) -> Ledger:
        return Ledger(self._site, self._host)

    # --- looking

    def inventory(self) -> tuple[HostDevice, ...]:
        """Return the PCI functions of the host, by address, with their states and owners."""
        with self._translated("list the PCI functions"):
            return tuple(self._view().devices(self._bridge_modes()))

    def check(self, component: PciComponent, tenant: Tenant) -> None:
        """Return if the sliver may have the device; see :meth:`View.refuse` for what is refused."""
        with self._translated(f"check {component.id}"):
            self._view().refuse(component, tenant.sliver, uuid_of(tenant))

    def keeps(self, tenant: Tenant, component: str) -> bool:
        """Return whether the domain has anything of the component, live or defined."""
        with self._translated(f"read the devices of {tenant.sliver}"):
            own = read_tenant(connect(self._uri), tenant)
            return own is not None and bool(aliases(own, tenant.sliver, component))

    def free_ports(self, tenant: Tenant) -> int | None:
        """Return how many more devices fit into the running domain; None if it does not run."""
        with self._translated(f"read the domain of {tenant.sliver}"):
            own = read_tenant(connect(self._uri), tenant)
            return len(free_ports(own.roots[LIVE])) if own and LIVE in own.scopes else None

    def plugged(self, tenant: Tenant) -> tuple[PluggedDevice, ...]:
        """Return the functions that the sliver's domain has by our stamp.

        Of a running domain those of its live XML, with the address that libvirt gave them there.
        """
        with self._translated(f"read the devices of {tenant.sliver}"):
            own = read_tenant(connect(self._uri), tenant)
            return current(plugged_in(own, tenant.sliver)) if own else ()

    def differences(self, component: PciComponent, tenant: Tenant) -> tuple[str, ...]:
        """Say where the device is not as wanted, in the domain as it runs and as it is defined."""
        with self._translated(f"read the devices of {tenant.sliver}"):
            own = read_tenant(connect(self._uri), tenant)
            return tuple(self._differing(own, component, tenant)) if own else ()

    def _differing(self, own: Reading, component: PciComponent, tenant: Tenant) -> Iterator[str]:
        """Yield where the device is not as wanted in a domain as it was read, a sentence each."""
        wanted = self._wanted(tenant.sliver, component)
        for scope, there in plugged_in(own, tenant.sliver).items():
            for device in wanted:
                if not any(is_as(found, device) for found in there):
                    what = f"{device.host_address} {WHEN[scope]}"
                    yield f"{component.type} {component.id} has not {what}"

    def pending(self, tenant: Tenant) -> bool:  # noqa: ARG002 - as for all device drivers
        """Return False: what is attached or detached here is so at once."""
        return False

    def restart(self, tenant: Tenant, *, timeout: float) -> None:
        """Power-cycle the domain, as it is defined; it runs on return."""
        with self._translated(f"restart the domain of {tenant.sliver}"):
            domain = self._own(tenant).domain
            if not shut_down(domain, timeout):
                power_off(domain)
            power_on(domain)

    def records(self, sliver_id: str) -> tuple[DeviceRecord, ...]:
        """Return what is written down of the sliver's devices."""
        return tuple(r for r in self._ledger.records().values() if r.sliver == sliver_id)

    # --- attaching

    def attach(self, tenant: Tenant, component: PciComponent) -> tuple[PluggedDevice, ...]:
        """Pass all functions of the component through, now (if it runs) and for later starts.

        If one fails, those that this call attached are taken back.

        :raises Conflict: as :meth:`check` does.
        :raises NotFound: if the sliver has no domain.
        :raises NotVerified: if the component, read back, has other functions or settings.
        :raises SliverBusy: if others were at work on one of them for too long.
        :raises Unsupported: if the domain has no free root port.
        """
        with self._translated(f"attach {component.id}"), ExitStack() as stack:
            stack.enter_context(self._locked(component.bdf))
            view = self._view()
            view.refuse(component, tenant.sliver, uuid_of(tenant))
            own = self._own(tenant)
            wanted = self._wanted(tenant.sliver, component)
            before = {taker.alias for taker in own.takers()}
            self._prepare(view, component, tenant.sliver)
            with self._taking_back(own.domain, wanted, before):
                with self._domain_locked(tenant):
                    self._attach_missing(self._own(tenant), wanted)
                return self._read_back(own.domain, tenant.sliver, wanted)

    def _prepare(self, view: View, component: PciComponent, sliver_id: str) -> None:
        """Write the functions down as in use, and take them and their peers from the host's drivers."""
        for address in component.bdf:
            if address not in view.records:
                self._ledger.write(self._record(view, component, address, sliver_id))
        together = {each for a in component.bdf for each in (a, *view.peers(a))}
        unbound = {a for a in together if view.functions[a].driver != node_devices.VFIO}
        with ThreadPoolExecutor(max(1, len(unbound))) as pool:
            list(pool.map(lambda a: node_devices.unbind(connect(self._uri), a), unbound))

    def _record(
        self, view: View, component: PciComponent, address: PciAddress, sliver_id: str
    ) -> DeviceRecord:
        function = view.functions[address]
        return DeviceRecord(
            address,
            component.type,
            component.model,
            sliver_id,
            component.id,
            function.vendor,
            function.product,
        )

    def _attach_missing(self, own: Reading, wanted: tuple[PluggedDevice, ...]) -> None:
        there = {(taker.alias, taker.scope): taker for taker in own.takers()}
        by_address = sorted(wanted, key=lambda device: device.host_address)
        for _, slot in groupby(by_address, key=lambda d: replace(d.host_address, function=0)):
            functions = list(slot)
            if len(functions) == 1:
                missing = sum(s for s in own.scopes if (functions[0].alias, s) not in there)
                self._plug(own, functions[0], missing)
            else:
                self._attach_slot(own, functions, there)

    def _attach_slot(
        self,
        own: Reading,
        functions: list[PluggedDevice],
        there: Mapping[tuple[str, int], Taker],
    ) -> None:
        """Attach the functions of one device: each to a port of its own now, in one slot later."""
        present = [t for d in functions if (t := there.get((d.alias, CONFIG))) is not None]
        taken = [address for t in present if (address := guest_address(t)) is not None]
        addresses = [device.host_address for device in functions]
        slots = one_slot(own.roots[CONFIG], addresses, taken, self._uri)
        for device, slot in zip(functions, slots, strict=True):
            if LIVE in own.scopes and (device.alias, LIVE) not in there:
                self._plug(own, device, LIVE)
            if (device.alias, CONFIG) not in there:
                self._plug(own, device, CONFIG, slot)

    def _plug(
        self, own: Reading, device: PluggedDevice, scopes: int, slot: PciAddress | None = None
    ) -> None:
        if scopes:
            xml = render(
                self.template,
                address=device.host_address,
                alias=device.alias,
                mac=device.mac,
                vlan=device.vlan,
                slot=slot,
            )
            own.domain.attachDeviceFlags(xml, scopes)

    def _wanted(self, sliver_id: str, component: PciComponent) -> tuple[PluggedDevice, ...]:
        return tuple(
            PluggedDevice(component.id, alias(sliver_id, component.id, number), address)
            for number, address in enumerate(component.bdf)
        )

    @contextmanager
    def _taking_back(
        self, domain: libvirt.virDomain, wanted: tuple[PluggedDevice, ...], before: set[str]
    ) -> Iterator[None]:
        """On an error, detach those of the wanted devices that were not there before."""
        try:
            yield
        except (libvirt.libvirtError, FabricDirectError) as error:
            made = [device.alias for device in wanted if device.alias not in before]
            left = [label for label in made if not self._take_back(domain, label)]
            if left:
                raise self._in_part(error, "still attached", left) from error
            raise

    def _in_part(self, error: Exception, still: str, left: list[str]) -> DriverError:
        return DriverError(
            "a device was attached only in part",
            where=self._uri,
            why=str(error),
            remedy=f"{still}, and to be detached: {', '.join(left)}",
        )

    def _take_back(self, domain: libvirt.virDomain, label: str) -> bool:
        try:
            detach(connect(self._uri), domain, label, timeout=TAKE_BACK, where=self._uri)
        except FabricDirectError:
            return False
        return True

    def _read_back(
        self, domain: libvirt.virDomain, sliver_id: str, wanted: tuple[PluggedDevice, ...]
    ) -> tuple[PluggedDevice, ...]:
        """Return the wanted devices as found: live if the domain runs, else as defined."""
        plugged = plugged_in(Reading(domain), sliver_id)
        for there in plugged.values():
            if not all(any(is_as(found, device) for found in there) for device in wanted):
                raise self._not_verified(domain, wanted, there)
        labels = {device.alias for device in wanted}
        return tuple(found for found in current(plugged) if found.alias in labels)

    def _not_verified(
        self,
        domain: libvirt.virDomain,
        wanted: tuple[PluggedDevice, ...],
        plugged: tuple[PluggedDevice, ...],
    ) -> NotVerified:
        labels = {device.alias for device in wanted}
        found = ", ".join(described(d) for d in plugged if d.alias in labels) or "nothing"
        return NotVerified(
            f"domain {domain.name()} has not what was attached",
            where=self._uri,
            why=f"wanted {', '.join(map(described, wanted))}; found {found}",
            remedy="detach the component and attach it again",
        )

    # --- taking back

    def detach(self, tenant: Tenant, component: str, *, timeout: float) -> None:
        """Take the component's functions back; the guest has let go of them on return.

        :param timeout: seconds that the guest may take for all of them.
        :raises TimedOut: if the guest still holds one; that one is still the sliver's then.
        """
        deadline = Deadline.within(timeout)
        with self._translated(f"detach {component}"):
            connection = connect(self._uri)
            own = read_tenant(connection, tenant)
            if own is None:
                return
            for label in aliases(own, tenant.sliver, component):
                remaining = deadline.remaining()
                detach(connection, own.domain, label, timeout=remaining, where=self._uri)

    def clean(self, record: DeviceRecord) -> None:
        """Make a function that no domain has any more fit for the next tenant, and strike its record.

        What is written down for another component now, or not at all any more, is left alone.

        :raises DeviceClaimed: if a domain still has it.
        :raises DeviceUnclean: if it could not be verified to be clean; it is quarantined then. Also if
            it was quarantined before: only a person sets it free.
        :raises Unreachable: if the host does not answer; the function stays unclean.
        """
        with self._translated(f"clean {record.address}"), self._locked_to_clean(record):
            view = self._view()
            there = view.records.get(record.address)
            if there is None or _whose(there) != _whose(record):
                return
            if there.quarantined:
                raise self._quarantined(there)
            self._clean(view, there)

    def _clean(self, view: View, record: DeviceRecord) -> None:
        self._refuse_held(view, record.address)
        try:
            with self._translated(f"clean {record.address}"):
                self._make_clean(view, record)
        except Unreachable:
            raise
        except FabricDirectError as error:
            stained = replace(record, quarantined=str(error))
            self._ledger.write(stained)
            raise self._quarantined(stained) from error
        self._ledger.strike(record.address)

    def _make_clean(self, view: View, record: DeviceRecord) -> None:
        group = (record.address, *view.peers(record.address))
        held = {claim.address for claim in view.claims}
        if not held.intersection(group):
            for address in group:
                self._give_back(view, address)
        own = set(_siblings(record, view.records.values())) - held
        together = own.union(view.spare_mates(record.address))
        clean(self._worker, record, sorted(together), timeout=self._site.limits.clean)

    def _give_back(self, view: View, address: PciAddress) -> None:
        function = view.functions.get(address)
        if function is not None and function.driver in {None, node_devices.VFIO}:
            node_devices.bind(connect(self._uri), address)

    def _refuse_held(self, view: View, address: PciAddress) -> None:
        for claim in view.claims:
            if claim.address == address:
                raise DeviceClaimed(
                    f"domain {claim.domain} still has {address}",
                    where=self._uri,
                    remedy="detach it first",
                )

    def _quarantined(self, record: DeviceRecord) -> DeviceUnclean:
        return DeviceUnclean(
            f"{record.address} is quarantined: it could not be cleaned",
            where=self._host,
            why=record.quarantined,
            remedy="look at it, then: "
            f"fabric-direct devices release {self._host} {record.address} --force",
        )

    def release(self, address: PciAddress, *, force: bool) -> None:
        """Clean a function once more, also one that is quarantined, and strike its record.

        :param force: do not clean it: a person answers for it.
        :raises DeviceClaimed: if a domain still has it.
        :raises DeviceUnclean: if it could not be verified to be clean; it is quarantined then.
        """
        with self._translated(f"release {address}"):
            record = self._ledger.records().get(address)
            if record is None:
                return
            with self._locked_to_clean(record):
                view = self._view()
                there = view.records.get(address)
                if there is None:
                    return
                if not force:
                    self._clean(view, there)
                else:
                    self._refuse_held(view, address)
                    self._ledger.strike(address)

    def rescan(self, tenant: Tenant, component: PciComponent, *, timeout: float) -> None:
        """Take the device from the guest and from the host's bus, find it again, and give it back.

        Only the component's own functions leave the bus.

        :param timeout: seconds that the guest gets to let go of it.
        :raises NotVerified: if the bus does not have it again, with the same ids.
        """
        self.detach(tenant, component.id, timeout=timeout)
        with self._translated(f"rescan {component.id}"), self._locked(component.bdf):
            view = self._view()
            for address in component.bdf:
                self._give_back(view, address)
            self._find_again(view, component)
        self.attach(tenant, component)

    def _find_again(self, view: View, component: PciComponent) -> None:
        """Take the functions off the bus, and wait until they are on it again as what they were."""
        limit, records = self._site.limits.call, view.records
        functions = [str(address) for address in component.bdf]
        ids = self._worker.call("pci.remove", timeout=limit, addresses=functions)
        # A rescan that was killed midway has left them off the bus.
        had = (records[address] for address in component.bdf if address in records)
        ids |= {str(record.address): f"{record.vendor}:{record.product}" for record in had}
        try:
            self._worker.call("pci.rescan", timeout=2 * limit, expected=ids, limit=limit)
        except TimedOut as error:
            raise NotVerified(
                f"{component.id} was not found again",
                where=self._host,
                why=str(error),
                remedy="scan again; else power the device, or the worker, off and on",
            ) from error

    # --- what is shared

    def _translated(self, what: str) -> AbstractContextManager[None]:
        return translated(what, self._uri)

    @read
    def _view(self) -> View:
        """Look at everything anew, all at once: each answer comes from another place."""
        with ThreadPoolExecutor(2) as pool:
            functions = pool.submit(survey, self._worker, timeout=self._site.limits.call)
            records = pool.submit(self._ledger.records)
            held = claims(read_domains(connect(self._uri)))
            view = View(
                host=self._host,
                functions=functions.result(),
                claims=held,
                records=records.result(),
                entries=self._site.host(self._host).devices,
            )
        self._last = view
        return view

    def _topology(self, addresses: tuple[PciAddress, ...]) -> View:
        """Return a view that may be old: what belongs to what does not change while a worker runs."""
        last = self._last
        return last if last and last.functions.keys() >= set(addresses) else self._view()

    def _bridge_modes(self) -> dict[str, str]:
        links = {e.uplink for e in self._site.host(self._host).devices if e.uplink}
        return {link: mode for link in links if (mode := self._mode(link))}

    def _mode(self, uplink: str) -> str | None:
        with suppress(Unsupported, NotFound):
            return self._uplink.bridge_mode(uplink)
        return None

    def _own(self, tenant: Tenant) -> Reading:
        own = read_tenant(connect(self._uri), tenant)
        if own is None:
            raise NotFound(f"sliver {tenant.sliver} has no domain", where=self._uri)
        return own

    def _domain_locked(self, tenant: Tenant) -> AbstractContextManager[None]:
        """Keep others from choosing a slot of the domain; libvirt plugs one device at a time anyway."""
        path = self._lock_directory / f"{self._host}-{uuid_of(tenant)}.lock"
        what = f"the domain of {tenant.sliver}"
        return exclusive(path, what, timeout=self._site.limits.create)

    def _locked(
        self, addresses: tuple[PciAddress, ...], timeout: float | None = None
    ) -> AbstractContextManager[None]:
        """Keep others off the functions, and off what is bound up with them.

        :param timeout: seconds to wait for others; as long as for another process if absent.
        """
        there = self._topology(addresses)
        together = {each for a in addresses for each in (a, *there.bound_up(a))}
        limit = self._site.limits.busy if timeout is None else timeout
        return locked(self._lock_directory, self._host, together, timeout=limit)

    def _locked_to_clean(self, record: DeviceRecord) -> AbstractContextManager[None]:
        """Keep others off all that is reset with a function; one that is being erased takes its time."""
        own = _siblings(record, self._ledger.records().values())
        mates = self._topology((record.address,)).slot_mates(record.address)
        return self._locked((record.address, *own, *mates), self._site.limits.clean)


def _whose(record: DeviceRecord) -> tuple[str, str]:
    return record.sliver, record.component


def _siblings(record: DeviceRecord, records: Iterable[DeviceRecord]) -> tuple[PciAddress, ...]:
    """Return the functions of the record's component; none if nobody knows whose it was."""
    return tuple(r.address for r in records if all(_whose(r)) and _whose(r) == _whose(record))
