"""What there is at a site, beside single slivers."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from fabric_direct.calls.deadline import Deadline
from fabric_direct.calls.read_cache import ReadCache
from fabric_direct.drivers.contract import BareMetalNode, FoundPort, FoundServer, HostDrivers
from fabric_direct.drivers.contract.adoption import AdoptionDriver
from fabric_direct.engine.run import attempt, attempt_each
from fabric_direct.errors import NotFound
from fabric_direct.handlers import registry
from fabric_direct.handlers.handler import Handler
from fabric_direct.handlers.vm.adoption import adoption_driver
from fabric_direct.handlers.vm.adoption_draft import Draft, draft
from fabric_direct.model import SliverRef
from fabric_direct.model.adoption import Adoption
from fabric_direct.model.fabric_am import parts_of
from fabric_direct.model.references import Needs
from fabric_direct.operations.outcomes import report
from fabric_direct.operations.site_hosts import SiteHosts
from fabric_direct.operations.sliver_ids import SliverIds
from fabric_direct.operations.stitches import SiteStitches
from fabric_direct.placement.placer import Placer
from fabric_direct.upkeep.drift import SiteDrift, site_drift
from fabric_direct.upkeep.service_drift import ServiceDrift, service_drift
from fabric_direct.upkeep.services import SitePorts, SiteServices, port_slivers, site_services
from fabric_direct.upkeep.sweep.books import LocalRecords
from fabric_direct.upkeep.sweep.dry_runs import DryRuns
from fabric_direct.upkeep.sweep.sweeper import Sweeper
from fabric_direct.upkeep.watch import WatchedSource


@dataclass(frozen=True, slots=True)
class SiteQueries:
    """Questions about a site. Each ends by the site's limits."""

    hosts: SiteHosts
    ids: SliverIds
    stitches: SiteStitches

    # --- slivers

    def services(self, *kinds: str) -> SiteServices:
        """Return the network services with this site's stamp, all or those of resource types."""
        drivers = self.hosts.drivers
        some = drivers.within(drivers.some_host, self._probe())
        return site_services(some, self.ids.booked, kinds)

    def port_slivers(self) -> tuple[SitePorts, ...]:
        """Return the slivers that have ports and no server, on all hosts; VMs are so by the books.

        :raises FabricDirectError: if the cloud, or any host, does not answer.
        """
        site, drivers, deadline = self.hosts.site, self.hosts.drivers, self._probe()
        if not site.serves_vms:
            return ()
        servers = {server.sliver for server in self.hosts.devices.servers(deadline)}

        def of(host: str) -> list[SitePorts]:
            there = drivers.within(host, deadline, ReadCache(read_only=True))
            make: type[Handler] = registry.handler_for("vNICPorts")
            with there.reads.active():
                refs, handler = port_slivers(there, servers), make(site, there)
                return [SitePorts(self._by_books(ref), handler.observe(ref)) for ref in refs]

        return drivers.list_all(of, in_cloud=drivers.some_host)

    def _by_books(self, ports: SliverRef) -> SliverRef:
        vm = SliverRef(id=ports.id, type="VM")
        return vm if self.ids.booked(ports.id) == vm.type else ports

    def needs(self, refs: Sequence[SliverRef]) -> Needs:
        """Return what slivers that are there are stitched to, as far as that can be read."""
        found = attempt(self.stitches.needs, refs)
        return {} if isinstance(found, Exception) else found

    def drift(self, hosts: Collection[str] | None = None, *, services: bool = True) -> SiteDrift:
        """Return which slivers of the site differ from their stamps.

        :param hosts: look at these; at all by default.
        :param services: look at network services, too, unless hosts are named: they are on none.
        :raises FabricDirectError: if the cloud cannot be read.
        """
        drivers, deadline = self.hosts.drivers, self._whole_site()

        @cache
        def drivers_of(host: str) -> HostDrivers:
            return drivers.within(host, deadline, ReadCache(read_only=True))

        def of_services() -> ServiceDrift:
            return service_drift(drivers_of(drivers.some_host), self.ids.booked)

        asked = of_services if services and hosts is None else None
        return site_drift(self.hosts.site, drivers_of, asked, hosts)

    def sweeper(self, dry_runs: DryRuns) -> Sweeper:
        """Return what finds the slivers that nobody expects."""
        hosts = self.hosts
        books = LocalRecords(hosts.site, hosts.journal, hosts.claims)
        drivers_of = partial(hosts.drivers.within, deadline=self._whole_site())
        return Sweeper(hosts.site, books, dry_runs, drivers_of)

    # --- hosts

    def nodes(self) -> tuple[BareMetalNode, ...]:
        """Return the bare-metal nodes of the site, by name; none if it names no driver for them.

        :raises FabricDirectError: if they cannot be listed.
        """
        drivers = self.hosts.drivers
        some = drivers.within(drivers.some_host, self._probe())
        driver: Any = some.services.get("BareMetal")
        return driver.nodes() if driver else ()

    def placer(self) -> Placer:
        """Return what places many slivers at once."""
        drivers_of = partial(self.hosts.drivers.within, deadline=self._whole_site())
        return Placer(self.hosts.site, self.hosts.claims, drivers_of)

    def bridge_mode(self, host: str, link: str, mode: str | None = None) -> str:
        """Return the bridge mode of a host's uplink, ``veb`` or ``vepa``; set it before, if given.

        :raises NotFound: if the site has no such host, or the host no such link.
        :raises Unsupported: if the link's driver has no such mode, or the site no driver for uplinks.
        """
        self.hosts.site.host(host)
        drivers = self.hosts.drivers.within(host, self._probe())
        uplink = drivers.uplink
        if uplink is None:
            raise drivers.unsupported(f"the bridge mode of {link} is not known", "uplink")
        if mode is not None:
            uplink.set_bridge_mode(link, mode)
        return uplink.bridge_mode(link)

    def sources(self) -> tuple[WatchedSource, ...]:
        """Return what tells of changes: the cloud, each host's libvirt, and uplinks in VEPA mode."""
        site, of, found = self.hosts.site, self.hosts.drivers.of, list[WatchedSource]()
        if not site.serves_vms:
            return ()
        cloud, hosts = self.hosts.drivers.cloud, {host: of(host) for host in site.hosts}
        if cloud:
            found.append(WatchedSource("servers of the cloud", "", of("").compute))
        for host, drivers in hosts.items():
            domains = drivers.compute if not cloud else next(iter(drivers.devices.values()), None)
            if domains and (not cloud or site.passes_devices(host)):
                found.append(WatchedSource(f"domains of {host}", host, domains))
            if drivers.uplink and any(entry.vepa for entry in site.hosts[host].devices):
                found.append(
                    WatchedSource(f"uplinks of {host}", host, drivers.uplink, uplinks=True)
                )
        return tuple(found)

    # --- what others made

    def strangers(self, prefix: str = "") -> tuple[FoundServer, ...]:
        """Return the unstamped servers whose name starts with ``prefix``.

        Also those whose adoption is unfinished. Empty if servers of others cannot be adopted.
        """
        driver = self._adoption()
        return driver.strangers(prefix) if driver else ()

    def ports_named(self, names: Sequence[str]) -> tuple[FoundPort, ...]:
        """Return the project's ports of these ids, names or MAC addresses; none but in a cloud."""
        driver = self._adoption()
        return driver.ports_named(tuple(names)) if driver and names else ()

    def _adoption(self) -> AdoptionDriver | None:
        drivers, deadline = self.hosts.drivers, self._probe()
        return drivers.within("", deadline).adoption if drivers.cloud else None

    def drafts(self, prefix: str = "") -> tuple[Draft, ...]:
        """Return fabric_am's servers whose name starts with ``prefix``, each as it would be adopted.

        :raises Unsupported: if the site's servers cannot be adopted.
        """
        deadline = Deadline.within(self.hosts.site.limits.modify)
        found = adoption_driver(self.hosts.drivers.within("", deadline)).strangers(prefix)
        named = {server.id: server for server in found if parts_of(server.name)}
        drafted = attempt_each(lambda s: self._drafted(named[s], deadline), named)
        return tuple(
            Draft(named[s], None, report(each))
            if isinstance(each, Exception)
            else Draft(named[s], each)
            for s, each in drafted.items()
        )

    def _drafted(self, server: FoundServer, deadline: Deadline) -> Adoption:
        drivers = self.hosts.drivers.within(server.host, deadline)
        whole = adoption_driver(drivers).server(server.id)
        if whole is None:
            raise NotFound(f"{server} is gone")
        return draft(self.hosts.site, drivers, whole)

    # --- limits

    def _probe(self) -> Deadline:
        return Deadline.within(self.hosts.site.limits.probe)

    def _whole_site(self) -> Deadline:
        """Return the deadline of what reads all hosts.

        A host that hangs takes the limit of a call while the others are read, and none of that.
        """
        limits = self.hosts.site.limits
        return Deadline.within(limits.call + limits.probe)
