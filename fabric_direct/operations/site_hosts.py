"""Where a sliver is: on which host of a site, or in its cloud; and by which drivers."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from fabric_direct.calls.deadline import Deadline
from fabric_direct.calls.read_cache import ReadCache
from fabric_direct.drivers.contract import Server
from fabric_direct.drivers.contract.node_choice import choose
from fabric_direct.errors import Conflict
from fabric_direct.handlers import registry
from fabric_direct.handlers.handler import Handler
from fabric_direct.handlers.site_drivers import SiteDrivers
from fabric_direct.model import NodeSliver, SliverRef
from fabric_direct.model.bare_metal import BareMetalSliver
from fabric_direct.operations.locate import (
    SliverLocator,
    named_host,
    none_named,
    refuse_elsewhere,
    refuse_unknown,
)
from fabric_direct.operations.outcomes import warned
from fabric_direct.placement.claims import Claims
from fabric_direct.placement.site_nodes import site_nodes
from fabric_direct.site.config import Site
from fabric_direct.state.journal import Journal
from fabric_direct.state.pending_looks import PendingLooks
from fabric_direct.state.site_store import store_of
from fabric_direct.upkeep.devices import SiteDevices


class SiteHosts:
    """The hosts of a site, or its cloud. Each method ends by the deadline that it is given."""

    def __init__(self, site: Site, journal: Journal) -> None:
        """Connect to nothing yet."""
        self.site, self.journal = site, journal
        self.drivers = SiteDrivers(site)
        self.devices = SiteDevices(self.drivers)
        lifetime, store = site.limits.create + site.limits.undo, store_of(site)
        self.claims = Claims(store, lifetime=lifetime, timeout=site.limits.call)
        self.looks = PendingLooks(store, timeout=site.limits.call)

    def locator(self, deadline: Deadline) -> SliverLocator:
        """Return what places the slivers of one operation."""
        return SliverLocator(self.drivers, self.journal, self.claims, deadline)

    @contextmanager
    def settling(self, sliver: SliverRef, deadline: Deadline) -> Iterator[list[str]]:
        """Settle the claims of a sliver when the block ends, whatever its result; give the warnings.

        What a late call may still make is not visible on its host: its claim stays until it expires.
        """
        warnings: list[str] = []
        try:
            yield warnings
        finally:
            if not deadline.late():
                warnings += warned(self.claims.settle, sliver.id)

    def unpromised(self, sliver: SliverRef, deadline: Deadline) -> SliverRef:
        """Return a sliver; a new bare-metal one that leaves its node open with one that is not promised.

        As long as no node is promised to others, its driver chooses.

        :raises NoHost: if all nodes that it could have are in use or promised to others.
        """
        if not isinstance(sliver, BareMetalSliver) or sliver.node is not None:
            return sliver
        claims = self.claims.nodes_since(time.time())
        if not claims.keys() - {sliver.id}:
            return sliver
        nodes = site_nodes(self.site, partial(self.drivers.within, deadline=deadline))
        if sliver.id in nodes.where():
            return sliver
        first = choose(nodes.without(claims, [sliver]), sliver)[0]
        return sliver.model_copy(update={"node": first.name})

    def handler(self, sliver: SliverRef, deadline: Deadline, reads: ReadCache) -> Handler:
        """Return the handler of a sliver, with the drivers of the host that :meth:`host_of` returns."""
        host = self.host_of(sliver, deadline, reads)
        return self.drivers.handler(host, sliver, deadline, reads)

    def host_of(self, sliver: SliverRef, deadline: Deadline, reads: ReadCache | None = None) -> str:
        """Return the only host, the one that has the sliver, or the one that it names.

        What is on no host is reached from any. In a cloud, it is the worker of the sliver's server;
        empty if there is none, and it names none.

        :raises InvalidSliver: if it names an unknown one, or none where there are several.
        :raises Conflict: if another one has it than it names.
        :raises Unreachable: if none has it, and one that it does not name may have, but does not answer.
        """
        if self.drivers.cloud:
            return self._worker_of(sliver, deadline, reads)
        refuse_unknown(self.site, sliver)
        if self.drivers.has_one_place_for(sliver):
            return self.drivers.some_host
        locator, wanted = self.locator(deadline), named_host(sliver)
        if locator.candidates(sliver) == (wanted,):
            return str(wanted)
        holders = locator.holders(sliver)
        silent = [error for host, error in holders.silent.items() if host != wanted]
        if silent and not holders.having:
            raise silent[0]
        refuse_elsewhere(sliver, holders.having)
        if not holders.having and isinstance(sliver, NodeSliver) and sliver.host is None:
            raise none_named(self.site)
        return str(wanted or next(iter(holders.having), self.drivers.some_host))

    def _worker_of(self, sliver: SliverRef, deadline: Deadline, reads: ReadCache | None) -> str:
        wanted, server = named_host(sliver) or "", self._server_in_cloud(sliver, deadline, reads)
        has = server.host if server else ""
        if has and wanted and has != wanted:
            raise Conflict(f"sliver {sliver.id} is on {has}, not on {wanted}")
        return has or wanted

    def hosts_to_clear(
        self, host: str, ref: SliverRef, deadline: Deadline, reads: ReadCache
    ) -> tuple[str, ...]:
        """Return the hosts to delete a sliver from, for one that has anything of it.

        In a cloud that is the worker of its server, or the one that keeps records of its devices; of a
        server that its cloud has moved, the former worker follows.
        """
        if not self.drivers.cloud:
            return (host,)
        server = self._server_in_cloud(ref, deadline, reads)
        if server is None or not server.host:
            return (self._host_of_devices(ref),)
        stamped = server.stamp.sliver
        moved = stamped.devices() and stamped.host not in {None, "", server.host}
        return (server.host, str(stamped.host)) if moved else (server.host,)

    def searched(self, ref: SliverRef, deadline: Deadline) -> tuple[str, ...]:
        """Return the hosts to ask what there is of a sliver: any for what is on none."""
        if self.drivers.cloud:
            return (self._host_of_devices(ref),)
        if self.drivers.has_one_place_for(ref):
            return (self.drivers.some_host,)
        return self.locator(deadline).holders(ref).having

    def _server_in_cloud(
        self, sliver: SliverRef, deadline: Deadline, reads: ReadCache | None
    ) -> Server | None:
        """Return the sliver's server; None if there is none, as of what is no node."""
        if not _is_node(sliver):
            return None
        drivers = self.drivers.within(named_host(sliver) or "", deadline, reads)
        return drivers.compute.find(sliver.id)

    def _host_of_devices(self, ref: SliverRef) -> str:
        """Return the worker that keeps records of a node whose server is gone; empty if none does.

        Each has ``limits.search`` to answer.
        """
        if not _is_node(ref):
            return ""
        return self.devices.recorded_on(ref.id, Deadline.within(self.site.limits.of_search))


def _is_node(sliver: SliverRef) -> bool:
    return issubclass(registry.handler_for(sliver.type).sliver_model, NodeSliver)
