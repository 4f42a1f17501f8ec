"""Servers that Nova's lists leave out.

Those of a cell that does not answer: Nova tells of one by its id, and in a list without any parameter,
from microversion 2.69 on: ``{"id": …, "status": "UNKNOWN"}``, without a name. A list with a filter is a
success and leaves it out. From 2.98 on (Nova 34) the question by id is answered by 500: Nova looks into
the silent cell for the properties of the image.

Those that are only marked as deleted, as ``reclaim_instance_interval`` has it: Nova tells of one by its
id. Until it is reclaimed, it keeps its ports and volumes.
"""

from collections.abc import Collection, Iterable

from openstack.compute.v2.server import Server as NovaServer
from openstack.connection import Connection
from openstack.exceptions import raise_from_response
from openstack.utils import maximum_supported_microversion

from fabric_direct.drivers.openstack.client.answers import (
    ListedServer,
    ServerNames,
    ShownServer,
    read,
)
from fabric_direct.drivers.openstack.client.errors import if_there
from fabric_direct.errors import DriverError, Unreachable

_SHOWN = 3


def every_server(cloud: Connection) -> list[ListedServer]:
    """Return all servers of the project, by id and name: any parameter would be a filter.

    They are read without openstacksdk's resources: one takes 0.7 ms to make, and a project has
    thousands.

    :raises DriverError: if an answer has another form, or its pages do not end: nothing is concluded
        from a part.
    """
    newest = maximum_supported_microversion(cloud.compute, ShownServer._max_microversion)
    found: dict[str, ListedServer] = {}
    path = "/servers"
    while path:
        response = cloud.compute.get(path, microversion=newest)
        raise_from_response(response)
        page = read(ServerNames, response.json(), "list of servers")
        new = {server.id: server for server in page.servers if server.id not in found}
        found |= new
        path = page.following()
        if path and not new:
            said = "the cloud's answer is invalid: list of servers"
            raise DriverError(
                said, why="servers_links: there is a next page after one with nothing new"
            )
    return list(found.values())


def server_by_id(cloud: Connection, server_id: str) -> NovaServer | None:
    """Return a server, also one that Nova has only marked as deleted; None if there is none.

    :raises Unreachable: if its cell does not answer.
    """
    found = if_there(lambda id_: cloud.compute.get_server(ShownServer.new(id=id_)), server_id)
    if unknown := unknown_servers([found] if found else []):
        raise no_answer(unknown)
    return found


def is_marked_deleted(found: NovaServer) -> bool:
    """Return whether Nova has only marked a server as deleted (``reclaim_instance_interval``)."""
    return bool(found.status == "SOFT_DELETED")


def unknown_servers(servers: Iterable[NovaServer | ListedServer]) -> set[str]:
    """Return the ids of those whose cell does not answer."""
    return {server.id for server in servers if server.status == "UNKNOWN" and not server.name}


def no_answer(ids: Collection[str]) -> Unreachable:
    """Return the error of servers of which Nova tells no more than that they exist."""
    told = ", ".join(sorted(ids)[:_SHOWN])
    more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
    return Unreachable(
        "Nova does not know which servers there are",
        why=f"a cell does not answer, which has {told}{more}",
        remedy="see to it that all cells of Nova answer, and try again",
    )
