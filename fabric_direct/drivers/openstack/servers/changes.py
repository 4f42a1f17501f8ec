"""Which servers Nova has changed: asked every few seconds for what is newer than what was seen."""

from collections.abc import Iterable
from typing import Any

from openstack.connection import Connection

from fabric_direct.drivers.contract.changes import Change, Hearing, Tell
from fabric_direct.drivers.openstack.client.stamp import site_tag
from fabric_direct.drivers.openstack.servers.request import is_settled

# Seconds between two requests: an answer is empty while nothing changes.
PAUSE = 5.0


def tell_of_servers(cloud: Connection, site: str, tell: Tell, hearing: Hearing) -> None:
    """Tell of the site's servers that have changed and that Nova has no task for.

    Nova's own clock counts, as it is in what was seen last.
    """
    seen = _times(cloud.compute.servers(details=True, tags=site_tag(site)))
    tell(Change("unknown"))
    while not hearing.wait(PAUSE):
        since = max(seen.values(), default=None)
        query: dict[str, Any] = {"changes_since": since} if since else {}
        found = list(cloud.compute.servers(details=True, tags=site_tag(site), **query))
        for server in found:
            if seen.get(server.id) != server.updated_at and is_settled(server):
                tell(Change("server", (server.id,), f"Nova says {server.status}"))
        seen |= _times(server for server in found if is_settled(server))


def _times(servers: Iterable[Any]) -> dict[str, str]:
    """Return when each server was changed last, by id."""
    return {server.id: str(server.updated_at) for server in servers}
