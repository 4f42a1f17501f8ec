"""The records of slivers on this machine, and which slivers are being worked on."""

import time
from collections.abc import Iterable, Iterator
from urllib.parse import urlsplit

from fabric_direct.engine.run import attempt
from fabric_direct.placement.claims import Claims
from fabric_direct.site.config import Site
from fabric_direct.state.journal import Journal
from fabric_direct.state.site_store import store_of
from fabric_direct.state.sliver_types import SliverTypes
from fabric_direct.state.store import sliver_lock
from fabric_direct.upkeep.sweep.findings import FoundResource, LeftAlone


class LocalRecords:
    """Journal, claims and locks of a site."""

    def __init__(self, site: Site, journal: Journal, claims: Claims) -> None:
        self._site, self._journal, self._claims = site, journal, claims
        self._store = store_of(site)
        self._types = SliverTypes(self._store, timeout=site.limits.call)

    def things(self) -> Iterator[FoundResource]:
        """Yield the entries of the journal and the claims, of all slivers.

        :raises DriverError: if they cannot be read.
        """
        for entry in self._journal.unfinished():
            name = f"{entry.operation} begun at {entry.since}"
            yield FoundResource(sliver=entry.sliver["id"], kind="journal entry", name=name)
        for sliver, host in self._claims.homes().items():
            yield FoundResource(sliver=sliver, kind="claim", name=f"on host {host}")

    def types(self) -> dict[str, str]:
        """Return the resource types of the slivers that have an entry in the journal."""
        return {e.sliver["id"]: e.sliver["type"] for e in self._journal.unfinished()}

    def noted_type(self, sliver: str) -> str:
        """Return the resource type that was noted when a sliver was made; empty if that is not known."""
        noted = attempt(self._types.of, sliver)
        return "" if isinstance(noted, Exception) else noted

    def foreign(self) -> Iterator[LeftAlone]:
        """Yield the files of the journal that are no entries."""
        why = "it is not a valid entry of the journal: look at it, and remove it yourself"
        yield from (LeftAlone(what=f"file {path}", why=why) for path in self._journal.foreign())

    def stale_locks(self) -> Iterator[FoundResource]:
        """Yield the locks that nobody holds: what processes left that were killed."""
        yield from (FoundResource(kind="lock", name=name) for name in self._store.stale_locks())

    def remove_lock(self, name: str) -> None:
        """Remove what is left of a lock, unless somebody holds it by now."""
        self._store.remove_stale_lock(name)

    def busy(self, slivers: Iterable[str]) -> dict[str, str]:
        """Return those of the slivers that are being worked on, each with the reason."""
        now = time.time()
        claimed = {claim.sliver for claim in self._claims.since(now)}
        claimed.update(self._claims.nodes_since(now))
        until = {e.sliver["id"]: e.until for e in self._journal.unfinished()}
        held = set(self._store.held(sliver_lock("")))
        reasons = {
            s: self._reason(s, held, claimed, unanswered=until.get(s, 0.0) > now) for s in slivers
        }
        return {sliver: reason for sliver, reason in reasons.items() if reason}

    @staticmethod
    def _reason(sliver: str, held: set[str], claimed: set[str], *, unanswered: bool) -> str:
        if sliver_lock(sliver) in held:
            return "an operation on it is under way"
        if unanswered:
            return "a request for it got no answer and may still take effect"
        return "a host or node is claimed for it: it is being created" if sliver in claimed else ""

    def workers(self) -> set[str | None]:
        """Return where workers are logged in to: their keys may be pinned with those of guests."""
        return {urlsplit(host.ssh).hostname for host in self._site.hosts.values() if host.ssh}
