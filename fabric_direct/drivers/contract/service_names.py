"""Names of services at controllers: as fabric_am's, they end with the sliver's id."""

import re

from fabric_direct.errors import InvalidSliver, NotOurs
from fabric_direct.model.hashed_names import readable, readable_part
from fabric_direct.model.services import NetworkService

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


def service_name(service: NetworkService) -> str:
    """Return a controller's name of a service: the begin of its name, and the sliver's id."""
    return f"{service.name[:16]}-{service.id}"


def sliver_of(name: str) -> str | None:
    """Return the id of the sliver whose service has this name; None if it is of others."""
    begin, sliver = name[:-37], name[-36:]
    whole = _UUID.fullmatch(sliver) and name[-37:-36] == "-"
    return sliver if whole and 1 <= len(begin) <= 16 else None


def is_name_of(name: str, service: NetworkService) -> bool:
    """Return whether a controller's name, which ends with the sliver's id, is that of a service.

    The actor's name of it may have a hash, and fabric_am's then begins with what was hashed.
    """
    part = readable_part(service.name)
    hashed = part is not None and part.startswith(readable(name[:-37]))
    return hashed or name == service_name(service)


def namesake(what: str, where: str) -> NotOurs:
    """Return the error of a service that has exactly the name that the sliver's labels give."""
    return NotOurs(
        f"{what}, which has the sliver's given name",
        where=where,
        why="labels.local_name says it, and no reservation: nothing tells whose it is",
        remedy="if fabric_am made it for this reservation, delete it by fabric_am",
    )


def refuse_other_ids(service: NetworkService, controller: str) -> None:
    """Raise InvalidSliver unless the sliver's id is a UUID: the end of a name tells only those apart."""
    if not _UUID.fullmatch(service.id):
        why = f"services are found in {controller} by their slivers' ids"
        raise InvalidSliver("must be a UUID", field="id", why=why)
