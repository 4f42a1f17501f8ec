"""Locate a sliver that leaves its host or the functions of its devices open.

::

    its server is there               as the server's stamp says
    its creation was begun            as the journal says
    a host has something else of it   that host
    a build plan has a claim for it   as the plan says
    otherwise                         placement chooses
"""

from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from fabric_direct import registry
from fabric_direct.config import Site
from fabric_direct.drivers.contract import Server
from fabric_direct.engine import attempt
from fabric_direct.errors import InvalidSliver
from fabric_direct.handlers.base import Handler
from fabric_direct.journal import Journal
from fabric_direct.model import AUTO, NodeSliver, SliverRef
from fabric_direct.placement.claims import Claims
from fabric_direct.placement.inventory import DriversOf
from fabric_direct.placement.placer import Placement, Placer
from fabric_direct.placement.sliver_requests import as_known

_AT_ONCE = 32
"""Number of hosts that are asked in parallel."""


@dataclass(frozen=True, slots=True)
class Holders:
    """The hosts that have anything of a sliver."""

    having: tuple[str, ...]
    silent: Mapping[str, Exception]
    """Hosts that did not answer, and why."""


@dataclass(frozen=True, slots=True)
class Known:
    """What was decided about a sliver before."""

    sliver: NodeSliver
    """With the host and functions that were chosen for it before."""
    server: Server | None = None
    having: tuple[str, ...] = ()
    """Hosts that have something of it."""


class Placing:
    """The placement of one operation's sliver."""

    def __init__(self, site: Site, journal: Journal, claims: Claims, drivers_of: DriversOf) -> None:
        """Read nothing yet.

        :param drivers_of: returns the drivers of a host, or of the cloud for an empty name, with the
            limits of the operation.
        """
        self._site, self._journal, self._claims = site, journal, claims
        self._drivers_of = drivers_of
        self._placer = Placer(site, claims, drivers_of)
        self._some = next(iter(site.hosts), "")

    def place(
        self,
        sliver: NodeSliver,
        planned: Placement | None = None,
        *,
        without: Collection[str] = (),
        claim: bool = True,
    ) -> Placement:
        """Return the sliver with the host where it is, or is to be created.

        :param planned: the placement of a build plan.
        :param without: hosts that refused the sliver.
        :param claim: whether to claim the capacity that it needs.
        :raises NoHost: if no other host can take it.
        """
        known = self.known(sliver)
        if known.server is not None:
            return Placement(known.sliver)
        if not known.sliver.open and (planned is None or sliver.open):
            return self._placer.resume(known.sliver) if claim else Placement(known.sliver)
        if planned is not None and self._stands(planned, known, without):
            return planned
        self._refuse_none_named(sliver, planned)
        return self._placer.choose(known.sliver, among=known.having, without=without, claim=claim)

    def _stands(self, planned: Placement, known: Known, without: Collection[str]) -> bool:
        host = str(planned.sliver.host)
        free = host not in without and (not known.having or host in known.having)
        return free and self._claims.renew(planned.sliver.id, host)

    def _refuse_none_named(self, sliver: NodeSliver, planned: Placement | None) -> None:
        several = len(self._site.hosts) > 1 and not self._cloud()
        if sliver.host is None and several and planned is None:
            raise none_named(self._site)

    def change(self, sliver: NodeSliver, *, claim: bool = True) -> NodeSliver:
        """Return the sliver with its present host and functions, and with functions for new devices.

        A sliver without a server keeps what it leaves open, unless it was decided before.

        :raises NoHost: if its host lacks the devices.
        """
        known = self.known(sliver)
        host = known.sliver.host or (known.server.host if known.server else "")
        if known.server is None or not known.sliver.open:
            return known.sliver
        return self._placer.extend(known.sliver, host, claim=claim).sliver

    def known(self, sliver: NodeSliver) -> Known:
        """Return what was decided about the sliver before; the rest stays open.

        :raises InvalidSliver: if it names an unknown host.
        :raises Unreachable: if the host that was last chosen for it does not answer.
        """
        refuse_unknown(self._site, sliver, cloud=self._cloud())
        holders = self.holders(sliver)
        server = self._server(sliver.id, holders.having)
        begun = self._begun(sliver.id)
        if not (server or begun or holders.having):
            self._refuse_silent(sliver.id, holders)
        for former in (server.stamp.sliver if server else None, begun):
            sliver = as_known(sliver, former) if former else sliver
        return Known(sliver, server, () if self._cloud() else holders.having)

    def _refuse_silent(self, sliver_id: str, holders: Holders) -> None:
        """Raise the error of the host that was last chosen, if it is silent: it may have the sliver."""
        home = self._claims.home(sliver_id) if holders.silent else None
        if home is not None and home in holders.silent:
            raise holders.silent[home]

    def _begun(self, sliver_id: str) -> NodeSliver | None:
        """Return the sliver that an unfinished operation was to create or modify."""
        entry = self._journal.of(sliver_id)
        whole = entry is not None and "capacities" in entry.sliver
        return NodeSliver.model_validate(entry.sliver) if entry and whole else None

    def _server(self, sliver_id: str, having: Collection[str]) -> Server | None:
        found = (self._drivers_of(host).compute.find(sliver_id) for host in having)
        return next((server for server in found if server), None)

    def holders(self, sliver: SliverRef) -> Holders:
        """Ask all hosts in parallel whether they have anything of the sliver; a cloud is one host."""
        if self._cloud():
            return Holders((self._some,), {})
        hosts = tuple(self._site.hosts)
        with ThreadPoolExecutor(_AT_ONCE, "fabric-direct-search") as pool:
            answers = dict(zip(hosts, pool.map(partial(self._has, sliver), hosts), strict=True))
        having = tuple(host for host in hosts if answers[host] is True)
        return Holders(having, {h: a for h, a in answers.items() if isinstance(a, Exception)})

    def _has(self, sliver: SliverRef, host: str) -> bool | Exception:
        make: type[Handler] = registry.handler_for(sliver.type)
        handler = make(self._site, self._drivers_of(host))
        found = attempt(handler.leftovers, sliver)
        return found if isinstance(found, Exception) else bool(found)

    def _cloud(self) -> bool:
        return self._drivers_of(self._some).compute.cloud


def refuse_unknown(site: Site, sliver: SliverRef, *, cloud: bool) -> None:
    """Raise InvalidSliver if a sliver names a host that the site does not have.

    :param cloud: whether hosts belong to a cloud, which may have others than the site names.
    """
    wanted = named_host(sliver)
    if wanted is not None and wanted not in site.hosts and not cloud:
        raise InvalidSliver(f"no host {wanted!r}", field="host", why=_hosts_of(site))


def none_named(site: Site) -> InvalidSliver:
    """Return the error for a sliver that names no host at a site with several."""
    return InvalidSliver(
        "must be given, because the site has several hosts",
        field="host",
        why=_hosts_of(site),
        remedy="name one, or 'auto' to have one chosen",
    )


def _hosts_of(site: Site) -> str:
    return f"known: {', '.join(site.hosts)}"


def named_host(sliver: SliverRef) -> str | None:
    """Return the host that a sliver names, if it is a node and names one."""
    host = getattr(sliver, "host", None)
    return None if host == AUTO else host
