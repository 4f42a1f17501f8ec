"""Find the servers of slivers: by Nova's lists, and past what a list leaves out.

A list with a filter is a success although a cell of Nova does not answer: it leaves out the servers of
that cell. So nothing is concluded from an absence in one list. A second witness is asked:

- a server that is recorded (:mod:`.records`), by its id: Nova tells that of a cell that does not answer,
  and of one that it has only marked as deleted (``reclaim_instance_interval``), which no list shows;
- the list without a filter, which names the servers of a cell that does not answer as ``UNKNOWN``, from
  microversion 2.69 on. Older clouds leave them out there, too. So does a list of more servers than fit
  on one page (``max_limit``, 1000 by default).
"""

from collections.abc import Collection, Iterator

from openstack.compute.v2.server import Server as NovaServer

from fabric_direct.drivers.openstack.client.base import CloudDriver
from fabric_direct.drivers.openstack.client.hidden_servers import (
    every_server,
    no_answer,
    server_by_id,
    unknown_servers,
)
from fabric_direct.drivers.openstack.client.stamp import SLIVER, age, site_tag, sliver_tag
from fabric_direct.drivers.openstack.client.transport import learn, shared, uncached
from fabric_direct.drivers.openstack.servers.records import ServerRecord, ServerRecords


class ServerLookup:
    """Finds the servers of a site's slivers.

    The methods also raise openstacksdk's errors: call them within
    :meth:`~fabric_direct.drivers.openstack.client.base.CloudDriver.translated`.
    """

    def __init__(self, driver: CloudDriver) -> None:
        self.cloud, self.site = driver.connection(), driver.site.site
        self.records, self._hosts = ServerRecords(driver.site), driver.site.hosts

    def of(self, sliver_id: str) -> list[NovaServer]:
        """Return the servers that bear the sliver's tag, the oldest first; there should be one at most.

        With a read cache, Nova is asked once.

        :raises Unreachable: if one may be in a cell that does not answer.
        """
        return shared(self._key(sliver_id), lambda: self._look_for(sliver_id), "servers")

    def learn(self, sliver_id: str, found: NovaServer) -> None:
        """Put the sliver's server, as it was read just now, into the read cache as its only one."""
        learn(self._key(sliver_id), [found], "servers")

    def all(self) -> list[NovaServer]:
        """Return the servers that bear the site's tag, the oldest first.

        :raises Unreachable: if the list may lack some, because a cell does not answer.
        """
        found = self._tagged(site_tag(self.site))
        every, listed = every_server(self.cloud), {server.id for server in found}
        if unknown := unknown_servers(every):
            raise no_answer(unknown)
        there = {server.id for server in every}
        left_out = [r for r in self.records.all() if r.id in there and r.id not in listed]
        return sorted(
            [*found, *(s for record in left_out for s in self._of_record(record))], key=age
        )

    def _key(self, sliver_id: str) -> tuple[str, int, str]:
        return ("servers", id(self.cloud), sliver_tag(self.site, sliver_id))

    def _look_for(self, sliver_id: str) -> list[NovaServer]:
        tag = sliver_tag(self.site, sliver_id)
        listed = self._tagged(tag)
        found = sorted([*listed, *self._unlisted(sliver_id, listed)], key=age)
        if not found:
            found = self._look_again(sliver_id, tag)
        self.records.write(sliver_id, found)
        return found

    def _unlisted(self, sliver_id: str, listed: Collection[NovaServer]) -> Iterator[NovaServer]:
        """Yield the servers that are recorded and tagged, and that the list leaves out."""
        ids = {server.id for server in listed}
        for record in (r for r in self.records.of(sliver_id) if r.id not in ids):
            yield from self._of_record(record)

    def _of_record(self, record: ServerRecord) -> Iterator[NovaServer]:
        """Yield a recorded server if it is there and the sliver's; strike what tells of nothing."""
        server = server_by_id(self.cloud, record.id)
        if server is not None and sliver_tag(self.site, record.sliver) in (server.tags or ()):
            yield server
        elif record.worker not in self._hosts if server is None else server.status != "BUILD":
            # Gone where nobody can look for its domain, or not the sliver's any more.
            self.records.strike(record.id)

    def _look_again(self, sliver_id: str, tag: str) -> list[NovaServer]:
        """Return the servers of a sliver, of which neither the list by tag nor the records tell."""
        every = every_server(self.cloud)
        others = {r.id for r in self.records.all() if r.sliver != sliver_id}
        if unknown := unknown_servers(every) - others:
            raise no_answer(unknown)
        named = any(server.name.startswith(f"{sliver_id}-") for server in every if server.name)
        with uncached():
            return self._tagged(tag) if named else []

    def _tagged(self, tag: str) -> list[NovaServer]:
        return sorted(self.cloud.compute.servers(details=True, tags=tag), key=age)


def tagged_sliver(site: str, found: NovaServer) -> str:
    """Return the sliver that a server's metadata name, empty unless it also has the sliver's tag."""
    sliver = (found.metadata or {}).get(SLIVER, "")
    return sliver if sliver_tag(site, sliver) in (found.tags or ()) else ""
