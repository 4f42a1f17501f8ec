"""Records of the servers that slivers have in Nova: a second witness, beside Nova's lists.

They are in ``servers.sqlite`` of ``state_dir``. A record is written when a server was asked
for or is seen, and struck when Nova knows the server no more and its worker has no domain of it. So a
server that a list leaves out is asked for by its id, and a domain that outlives its server stays known.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from openstack.compute.v2.server import Server as NovaServer

from fabric_direct.errors import FabricDirectError
from fabric_direct.site.config import Site
from fabric_direct.state.site_store import store_of

# What is not told this time stays as it was told before.
_WRITE = """
INSERT INTO server VALUES (?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET sliver = excluded.sliver,
    worker = COALESCE(NULLIF(excluded.worker, ''), server.worker),
    domain = COALESCE(NULLIF(excluded.domain, ''), server.domain)
"""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """A server that a sliver has, or had."""

    id: str
    sliver: str
    worker: str = ""
    """The name of its worker; empty if Nova has not told it."""
    domain: str = ""
    """The name of its libvirt domain; empty if Nova has not told it."""


class ServerRecords:
    """The records of the servers of a site."""

    def __init__(self, site: Site) -> None:
        """Create nothing yet."""
        what, limit = "the records of servers", site.limits.call
        self._database = store_of(site).database("servers", what=what, timeout=limit)

    def of(self, sliver_id: str) -> tuple[ServerRecord, ...]:
        """Return the records of a sliver; none if they cannot be read, which is logged."""
        return self._read("SELECT * FROM server WHERE sliver = ? ORDER BY id", sliver_id)

    def all(self) -> tuple[ServerRecord, ...]:
        """Return the records of all slivers; none if they cannot be read, which is logged."""
        return self._read("SELECT * FROM server ORDER BY id")

    def _read(self, query: str, *values: str) -> tuple[ServerRecord, ...]:
        try:
            return tuple(ServerRecord(*row) for row in self._database.rows(query, *values))
        except FabricDirectError as error:
            _log.warning("servers that no list shows are not known: %s", error)
            return ()

    def write(self, sliver_id: str, servers: Iterable[NovaServer]) -> None:
        """Record servers of a sliver, unless that is recorded.

        A failure is logged: it changes nothing about the servers.
        """
        seen = [record_of(sliver_id, server) for server in servers]
        try:
            known = {record.id: record for record in self.of(sliver_id)} if seen else {}
            new = [r for r in seen if r.id not in known or _tells_more(r, known[r.id])]
            if new:
                with self._database.changing() as db:
                    values = [(r.id, r.sliver, r.worker, r.domain) for r in new]
                    db.executemany(_WRITE, values)
        except FabricDirectError as error:
            _log.warning("the servers of %s are not recorded: %s", sliver_id, error)

    def strike(self, server_id: str) -> None:
        """Forget a server that is gone.

        A failure is logged: it is found to be gone once more.
        """
        try:
            self._database.change("DELETE FROM server WHERE id = ?", server_id)
        except FabricDirectError as error:
            _log.warning("server %s stays recorded: %s", server_id, error)


def record_of(sliver_id: str, found: NovaServer) -> ServerRecord:
    """Return the record of a server as Nova tells it."""
    return ServerRecord(found.id, sliver_id, found.compute_host or "", found.instance_name or "")


def _tells_more(seen: ServerRecord, known: ServerRecord) -> bool:
    return seen.worker not in {"", known.worker} or seen.domain not in {"", known.domain}
