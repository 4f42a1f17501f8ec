"""One worker as its device drivers share it: libvirt, PCI topology, records, uplinks and locks."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial

import libvirt

from fabric_direct.calls.deadline import Deadline
from fabric_direct.calls.read_cache import current, read
from fabric_direct.drivers.contract import DeviceDomain, DeviceRecord, HostDriver, UplinkDriver
from fabric_direct.drivers.hosts.choice import host_driver
from fabric_direct.drivers.libvirt.connection.connections import connect, translated
from fabric_direct.drivers.libvirt.domains import lookup
from fabric_direct.drivers.libvirt.domains.claims import (
    DomainReading,
    claims,
    read_domains,
    uuid_of,
    with_adopted,
)
from fabric_direct.drivers.libvirt.domains.unplug import detach
from fabric_direct.drivers.libvirt.passthrough.pci_survey import survey
from fabric_direct.drivers.libvirt.passthrough.records import (
    DeviceRecords,
    Records,
    same_component,
)
from fabric_direct.drivers.libvirt.passthrough.topology import Topology, with_uses_by_programs
from fabric_direct.drivers.netlink.uplink import NetlinkUplink
from fabric_direct.errors import NotFound, Unsupported
from fabric_direct.model import PciAddress
from fabric_direct.site.config import Site
from fabric_direct.state.site_store import store_of


class DeviceHost:
    """One worker of the site.

    :param site: the site; its allow-list for the worker, and the directory of its locks and records.
    :param name: name of the worker.
    :raises NotFound: if the site has no such worker.
    """

    def __init__(self, site: Site, name: str) -> None:
        self.site, self.name = site, name
        self.uri = site.host(name).libvirt
        self.uplinks: UplinkDriver = NetlinkUplink(site, name)
        self.records = DeviceRecords(site, name)
        self._last: Topology | None = None

    @property
    def agent(self) -> HostDriver:
        """The driver that runs functions on the worker."""
        return host_driver(self.site, self.name)

    @property
    def connection(self) -> libvirt.virConnect:
        """The connection to its libvirt."""
        return connect(self.uri)

    def translated(self, what: str) -> AbstractContextManager[None]:
        """Turn libvirt's errors into ours within the block."""
        return translated(what, self.uri)

    # --- topology

    @read
    def topology(self, named: tuple[PciAddress, ...] | None = None) -> Topology:
        """Survey functions, domains and records, at the same time.

        :param named: the functions whose uses by the host are wanted, with those bound to them; all of
            them if absent.
        """
        with ThreadPoolExecutor(2) as pool:
            limit = self.site.limits.call
            functions = pool.submit(survey, self.agent, timeout=limit, named=named)
            records = pool.submit(self.records.read)
            held = claims(_readings(self.uri).values())
            self._last = Topology(
                host=self.name,
                functions=with_uses_by_programs(functions.result(), held),
                claims=with_adopted(held, records.result()),
                records=records.result(),
                entries=self.site.host(self.name).devices,
            )
        return self._last

    def known_topology(self, addresses: tuple[PciAddress, ...]) -> Topology:
        """Return a topology that has these functions and may be old in all that changes at run time."""
        last = self._last
        return last if last and last.functions.keys() >= set(addresses) else self.topology()

    def bridge_modes(self) -> dict[str, str]:
        """Return the bridge modes of the allow-list's uplinks, as far as they have one."""
        links = {e.uplink for e in self.site.host(self.name).devices if e.uplink}
        return {link: mode for link in links if (mode := self.bridge_mode(link))}

    def bridge_mode(self, uplink: str) -> str | None:
        """Return the bridge mode of an uplink; None if it has no such mode."""
        with suppress(Unsupported, NotFound):
            return self.uplinks.bridge_mode(uplink)
        return None

    # --- domains

    def domain(self, tenant: DeviceDomain) -> DomainReading | None:
        """Read the tenant's domain; return None if there is none.

        A cloud's domain has no stamp of ours; its server at the cloud does.

        :raises NotOurs: if a domain has its UUID without this site's stamp.
        """
        own = self._read(uuid_of(tenant))
        if own is not None and tenant.domain is None:
            lookup.check_stamp(own.stamp, own.domain.name(), tenant.sliver)
        adopted = partial(self._adopted, uuid_of(tenant), tenant.sliver)
        return own and own.knowing(adopted)

    def _read(self, uuid: str) -> DomainReading | None:
        """Read a domain; what changes nothing reads all domains once, and then none again."""
        reads = current()
        if reads is not None and reads.read_only:
            return _readings(self.uri).get(uuid)
        with lookup.absent_domain_is_fine():
            return DomainReading(self.connection.lookupByUUIDString(uuid))
        return None

    @read
    def _written(self) -> Records:
        """Return the records; what changes nothing reads them once."""
        return self.records.read()

    def _adopted(self, domain: str, sliver: str) -> dict[PciAddress, str]:
        """Return the functions of a domain that the sliver has adopted, with their aliases."""
        return {
            record.address: record.adopted.alias
            for record in self._written().values()
            if record.adopted and record.adopted.domain == domain and record.sliver == sliver
        }

    def the_domain(self, tenant: DeviceDomain) -> DomainReading:
        """Read the tenant's domain.

        :raises NotFound: if there is none.
        """
        own = self.domain(tenant)
        if own is None:
            raise NotFound(f"sliver {tenant.sliver} has no domain", where=self.uri)
        return own

    def unplug(self, domain: libvirt.virDomain, alias: str | PciAddress, *, timeout: float) -> None:
        """Detach a device, live and from the definition; on return the guest has released it.

        :param alias: the alias of the device; the address of one that has none of ours.
        """
        detach(self.connection, domain, alias, timeout=timeout, where=self.uri)

    # --- locks

    def lock(self, name: str, what: str, *, timeout: float) -> AbstractContextManager[None]:
        """Lock ``what`` against other threads and processes within the block.

        :param timeout: seconds to wait for them.
        :raises SliverBusy: if they still hold the lock then.
        """
        return store_of(self.site).exclusive(f"{self.name}-{name}.lock", what, timeout=timeout)

    def lock_domain(self, tenant: DeviceDomain) -> AbstractContextManager[None]:
        """Lock the choice of a domain's slots; libvirt plugs one device at a time anyway."""
        what = f"the domain of {tenant.sliver}"
        return self.lock(uuid_of(tenant), what, timeout=self.site.limits.create)

    @contextmanager
    def lock_functions(
        self, addresses: tuple[PciAddress, ...], timeout: float | None = None
    ) -> Iterator[None]:
        """Lock the functions, and the functions that are bound to them.

        :param timeout: seconds to wait for all of them; the site's ``limits.busy`` if absent.
        :raises SliverBusy: if one of the locks is not released in time.
        """
        topology = self.known_topology(addresses)
        deadline = Deadline.within(self.site.limits.busy if timeout is None else timeout)
        with ExitStack() as stack:
            # Always in the same order, so that no two callers wait for each other.
            for address in sorted({e for a in addresses for e in (a, *topology.bound_to(a))}):
                what = f"device {address} of {self.name}"
                stack.enter_context(self.lock(str(address), what, timeout=deadline.remaining()))
            yield

    def lock_to_clean(self, record: DeviceRecord) -> AbstractContextManager[None]:
        """Lock all functions that are reset with a function, for as long as erasing a drive may take."""
        own = same_component(record, self.records.read().values())
        mates = self.known_topology((record.address,)).slot_mates(record.address)
        return self.lock_functions((record.address, *own, *mates), self.site.limits.clean)


@read
def _readings(uri: str) -> dict[str, DomainReading]:
    """Read all domains of a host, by UUID."""
    return {each.domain.UUIDString(): each for each in read_domains(connect(uri))}
