"""Locate a sliver that leaves its host or the functions of its devices open.

::

    its server is there               as the server's stamp says
    its creation was begun            as the journal says
    a host has something else of it   that host
    a build plan has a claim for it   as the plan says
    otherwise                         placement chooses

Who names its host is looked for there, and where it was last: no other host is waited for.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from enum import Enum
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread

from fabric_direct.calls.deadline import Deadline
from fabric_direct.drivers.contract import Server
from fabric_direct.engine.run import attempt
from fabric_direct.errors import Conflict, InvalidSliver, Unreachable
from fabric_direct.handlers.handler import Handler
from fabric_direct.handlers.site_drivers import SiteDrivers
from fabric_direct.model import AUTO, NodeSliver, SliverRef
from fabric_direct.placement.claims import Claims
from fabric_direct.placement.placer import Placement, Placer
from fabric_direct.placement.sliver_requests import as_known
from fabric_direct.site.config import Site
from fabric_direct.state.journal import Journal
from fabric_direct.state.pending_looks import PendingLook

_AT_ONCE = 32
"""Number of hosts that are asked in parallel."""
_HEAD_START = 1.0
"""Seconds that the host where a sliver was last has to answer before the others are asked, too."""


class SliverPresence(Enum):
    """The share of a sliver that a host has."""

    NOTHING = "nothing"
    PARTS = "parts of it"
    WHOLE = "the sliver itself"


_SOME = {SliverPresence.PARTS, SliverPresence.WHOLE}
Answer = SliverPresence | Exception
"""What a host has of a sliver, or why it did not answer."""
Answers = SimpleQueue[tuple[str, Answer]]


@dataclass(frozen=True, slots=True)
class Holders:
    """The hosts that have anything of a sliver, of those that were asked."""

    having: tuple[str, ...]
    """The one that has the sliver itself first."""
    silent: Mapping[str, Exception]
    """Hosts that did not answer, and why."""


@dataclass(frozen=True, slots=True)
class Known:
    """The earlier decisions about a sliver."""

    sliver: NodeSliver
    """With the host and functions that were chosen for it before."""
    server: Server | None = None
    having: tuple[str, ...] = ()
    """Hosts that have something of it."""


class SliverLocator:
    """The placement of one operation's sliver."""

    def __init__(
        self, drivers: SiteDrivers, journal: Journal, claims: Claims, deadline: Deadline
    ) -> None:
        """Read nothing yet.

        :param deadline: the operation's.
        """
        self._site, self._drivers, self._deadline = drivers.site, drivers, deadline
        self._journal, self._claims = journal, claims
        self._placer = Placer(self._site, claims, partial(drivers.within, deadline=deadline))

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
        if sliver.host is None and planned is None and not self._drivers.one_place:
            raise none_named(self._site)
        return self._placer.choose(known.sliver, among=known.having, without=without, claim=claim)

    def _stands(self, planned: Placement, known: Known, without: Collection[str]) -> bool:
        host = str(planned.sliver.host)
        free = host not in without and (not known.having or host in known.having)
        return free and self._claims.renew(planned.sliver.id, host)

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
        :raises Conflict: if another one has it than it names.
        :raises Unreachable: if the host that was last chosen for it does not answer.
        """
        cloud = self._drivers.cloud
        if not cloud:
            refuse_unknown(self._site, sliver)
        holders = self.holders(sliver)
        if not cloud:
            refuse_elsewhere(sliver, holders.having)
        server = self._server(sliver.id, holders.having)
        begun = self._begun(sliver.id)
        if not (server or begun or holders.having):
            self._refuse_silent(sliver.id, holders)
        for former in (server.stamp.sliver if server else None, begun):
            sliver = as_known(sliver, former) if former else sliver
        return Known(sliver, server, () if cloud else holders.having)

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
        every = (self._drivers.within(host, self._deadline) for host in having)
        found = (drivers.compute.find(sliver_id) for drivers in every)
        return next((server for server in found if server), None)

    def holders(self, sliver: SliverRef) -> Holders:
        """Return the hosts that have anything of the sliver; a cloud is one host.

        One that names its host is looked for there and where it was last. Any other is looked for where
        it was last, then everywhere. Once the sliver itself is found, no other host is asked or waited
        for.
        """
        if self._drivers.cloud:
            return Holders((self._drivers.some_host,), {})
        answers: dict[str, Answer] = {}
        named = named_host(sliver)
        home = None if named else self._claims.home(sliver.id)
        for host, answer in self._search(sliver, self.candidates(sliver), home):
            answers[host] = answer
            if answer is SliverPresence.WHOLE and named in {None, host}:
                break
        having = [host for host in self._site.hosts if answers.get(host) in _SOME]
        having.sort(key=lambda host: answers[host] is not SliverPresence.WHOLE)
        silent = {h: a for h, a in answers.items() if isinstance(a, Exception)}
        return Holders(tuple(having), silent)

    def candidates(self, sliver: SliverRef) -> tuple[str, ...]:
        """Return the hosts that may have the sliver: what it names and its last one, or else all."""
        hosts, named = tuple(self._site.hosts), named_host(sliver)
        likely = {named, self._claims.home(sliver.id)} if named else ()
        return tuple(host for host in hosts if host in likely) or hosts

    def everywhere(
        self, sliver: SliverRef, may_have: Collection[str]
    ) -> Iterator[tuple[str, Answer]]:
        """Ask all hosts what they have of the sliver; yield the answers as they come.

        An only host, or a cloud, is not asked: the sliver is nowhere else. Nor is any for what is on no
        host.

        :param may_have: the hosts that are waited for; the others are up to ``limits.search``.
        """
        if self._drivers.has_one_place_for(sliver):
            some = self._drivers.some_host
            self._drivers.handler(some, sliver, self._deadline)  # refuses a type that is not served
            return iter([(some, SliverPresence.WHOLE)])
        answers: Answers = SimpleQueue()
        self._ask(sliver, self._site.hosts, answers)
        return _in_time(answers, self._site.hosts, may_have, self._site.limits.of_search)

    def may_have(self, sliver: SliverRef, pending: Iterable[PendingLook]) -> frozenset[str]:
        """Return the hosts that may have something of a sliver, as far as the books say.

        All, if they do not tell where it was: they may have been lost.

        :param pending: where it is still to be looked for since a former deletion. After the latest
            one, with nothing made since, the other hosts have nothing.
        """
        open_, known = tuple(pending), self._claims.home(sliver.id)
        if known is None and not (open_ and all(look.latest for look in open_)):
            return frozenset(self._site.hosts)
        named = {known, named_host(sliver)} if known else set()
        return frozenset(h for h in self._site.hosts if h in named) | {
            look.host for look in open_ if look.found
        }

    def _search(
        self, sliver: SliverRef, hosts: Collection[str], home: str | None
    ) -> Iterator[tuple[str, Answer]]:
        """Yield what each host has of the sliver.

        :param home: the host to ask first; the others are asked when the next answer is wanted, or when
            this one is late.
        """
        first = [host for host in hosts if host == home]
        answers: Answers = SimpleQueue()
        waiting = set(hosts)
        if first:
            self._ask(sliver, first, answers)
            with suppress(Empty):
                host, answer = answers.get(timeout=_HEAD_START)
                waiting.remove(host)
                yield host, answer
        self._ask(sliver, [host for host in hosts if host != home], answers)
        while waiting:
            host, answer = answers.get()
            waiting.remove(host)
            yield host, answer

    def _ask(self, sliver: SliverRef, hosts: Collection[str], answers: Answers) -> None:
        """Ask hosts in threads of their own, which nobody has to wait for."""
        handlers = {h: self._drivers.handler(h, sliver, self._deadline) for h in hosts}
        _begin(lambda host: _presence(handlers[host], sliver), hosts, answers)

    def presence(self, sliver: SliverRef, host: str) -> SliverPresence:
        """Return what a host has of a sliver.

        :raises FabricDirectError: if it does not answer.
        """
        return _presence(self._drivers.handler(host, sliver, self._deadline), sliver)


def _presence(handler: Handler, sliver: SliverRef) -> SliverPresence:
    if handler.exists(sliver):
        return SliverPresence.WHOLE
    return SliverPresence.PARTS if handler.leftovers(sliver) else SliverPresence.NOTHING


def _begin(look: Callable[[str], SliverPresence], hosts: Collection[str], answers: Answers) -> None:
    todo: SimpleQueue[str] = SimpleQueue()

    def work() -> None:
        with suppress(Empty):
            while True:
                host = todo.get_nowait()
                answers.put((host, attempt(look, host)))

    for host in hosts:
        todo.put(host)
    for _ in range(min(_AT_ONCE, len(hosts))):
        Thread(
            target=copy_context().run, args=(work,), name="fabric-direct-search", daemon=True
        ).start()


def _in_time(
    answers: Answers, hosts: Collection[str], needed: Collection[str], patience: float
) -> Iterator[tuple[str, Answer]]:
    """Yield each answer as it comes: those that are needed, and the others that come in time."""
    waiting, limit = dict.fromkeys(hosts), Deadline.within(patience)
    with suppress(Empty):
        while waiting:
            wanted = not waiting.keys().isdisjoint(needed)
            host, answer = answers.get(timeout=None if wanted else limit.remaining())
            del waiting[host]
            yield host, answer
    for host in waiting:
        yield host, Unreachable(f"{host} did not answer", why=f"waited {patience:g} s")


def refuse_unknown(site: Site, sliver: SliverRef) -> None:
    """Raise InvalidSliver if a sliver names a host that the site, which is no cloud, does not have."""
    wanted = named_host(sliver)
    if wanted is not None and wanted not in site.hosts:
        raise InvalidSliver(f"no host {wanted!r}", field="host", why=_hosts_of(site))


def refuse_elsewhere(sliver: SliverRef, having: Sequence[str]) -> None:
    """Raise Conflict if other hosts have a sliver than the one that it names."""
    wanted = named_host(sliver)
    if having and wanted not in {None, *having}:
        raise Conflict(f"sliver {sliver.id} is on {having[0]}, not on {wanted}")


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
