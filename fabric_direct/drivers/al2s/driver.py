"""The driver of network services that AL2S makes: L3VPN."""

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NoReturn

from pydantic import ValidationError
from tenacity import Retrying, retry_if_exception_type, stop_before_delay
from tenacity import wait_exponential as exponential

from fabric_direct.calls import forks
from fabric_direct.calls.deadline import time_left, trying_again, wait_until
from fabric_direct.drivers.al2s.changes import ConnectionChange, Wanted, changes, matched
from fabric_direct.drivers.al2s.connections import (
    FAILED,
    PROVISIONED,
    L3Connection,
    Notes,
    document,
    interface_values,
    names,
    refuse,
)
from fabric_direct.drivers.al2s.footprint import Footprint
from fabric_direct.drivers.al2s.session import Session, quoted
from fabric_direct.drivers.contract import Service, Stamped
from fabric_direct.drivers.contract.service_names import (
    is_name_of,
    namesake,
    service_name,
    sliver_of,
)
from fabric_direct.drivers.http_api import Json, await_end, change_once
from fabric_direct.errors import (
    Conflict,
    DriverError,
    InvalidSite,
    InvalidSliver,
    NotFound,
    NotOurs,
    NotVerified,
)
from fabric_direct.model import ObservedInterface, SliverRef
from fabric_direct.model.services import L3VPN, NetworkService
from fabric_direct.site.config import Site

_ROOT = "virtualnetworks"
_SPACES, _ROUTERS, _CONNECTIONS = (
    f"{_ROOT}/{kind}" for kind in ("spaces", "routers", "l3connections")
)

# Share of a deletion's time that is waited for AL2S: the rest is for naming what is left.
_WAITING = 0.8


@dataclass(frozen=True, slots=True)
class _Space:
    """A space as it is: what one service consists of."""

    id: str
    title: str
    routers: tuple[str, ...]
    notes: Notes | None
    """Our stamp; None if it has none, as those of fabric_am."""


class Al2sService:
    """A :class:`~fabric_direct.drivers.contract.ServiceDriver` by Internet2's Virtual Networks.

    A service is a space with one router, and an L3 connection for each interface. Spaces of fabric_am
    have the same titles, and are found by them.
    """

    def __init__(self, site: Site, host: str) -> None:  # noqa: ARG002 - one API for all hosts
        """Connect to nothing yet."""
        self._site = site

    @forks.cached_property
    def _api(self) -> Session:
        settings = self._site.services.al2s
        if settings is None:
            raise InvalidSite("must be given for the driver al2s", field="services.al2s")
        return Session(settings, self._site.limits.call)

    @forks.cached_property
    def _footprint(self) -> Footprint:
        return Footprint(self._api)

    @property
    def _owner(self) -> str:
        settings = self._site.services.al2s
        return settings.owner if settings else ""

    def examine(self) -> tuple[str, ...]:
        """Return how many spaces and ports AL2S shows for the access key."""
        spaces, ports = len(self._titles()), self._footprint.count()
        return (f"session at {self._api.where}", f"{spaces} spaces", f"{ports} ports")

    def refuse_namesake(self, sliver: SliverRef, name: str) -> None:
        """Raise NotOurs if AL2S has a space of exactly this title."""
        if sliver_of(name) != sliver.id and any(title == name for _, title in self._titles()):
            raise namesake(f"AL2S has space {name}", self._api.where)

    # --- looking

    def check(self, sliver: NetworkService) -> None:
        """Raise an error unless AL2S has the ports, and the service keeps its name and asn.

        AL2S has no dry run: what else it refuses is told when the service is made.
        """
        refuse(self._site, sliver)
        self._wanted(sliver)
        self._refuse_foreign(sliver.id)
        for space in self._spaces(sliver.id):
            _refuse_change(sliver, space)

    def find(self, sliver_id: str) -> Service | None:
        """Return the service whose space has the sliver's id in its title, if it is whole."""
        spaces = self._spaces(sliver_id)
        if len(spaces) != 1 or len(spaces[0].routers) != 1:
            return None
        connections = self._connections(spaces[0])
        if not _complete(spaces[0], connections):
            return None
        return self._read(sliver_id, spaces[0], connections)

    def _read(self, sliver_id: str, space: _Space, connections: list[L3Connection]) -> Service:
        with self._api.reading(space.title):
            interfaces = [
                interface_values(c, name, self._footprint.port(c.where[0]))
                for name, c in names(connections)
            ]
            return Service(
                sliver=sliver_id,
                source=f"space {space.id}",
                name=space.title,
                interfaces=tuple(map(_observed, interfaces)),
                stamp=_as_sliver(sliver_id, space, interfaces),
            )

    def differences(self, sliver: NetworkService) -> tuple[str, ...]:
        """Name what differs at AL2S, also an interface that is not provisioned."""
        spaces = self._spaces(sliver.id)
        if not spaces:
            return ("there is no such service",)
        if several := _several(spaces):
            return (several,)
        return tuple(self._differing(sliver, self._connections(spaces[0])))

    def _differing(self, sliver: NetworkService, there: list[L3Connection]) -> Iterator[str]:
        pairs, surplus = matched(self._wanted(sliver), there)
        for wanted, connection in pairs:
            name = wanted.interface.id
            if connection is None:
                yield f"interface {name} is missing"
                continue
            yield from (f"interface {name}: {said}" for said in wanted.differs(connection))
            if connection.state != PROVISIONED:
                yield f"interface {name} is {connection.state}, not {PROVISIONED}"
        for connection in surplus:
            yield f"l3connection {connection.id} is there and not asked for"

    def leftovers(self, sliver_id: str) -> tuple[str, ...]:
        """Name the spaces of the service, which are removed after all that is in them."""
        return tuple(f"space {space.title}" for space in self._spaces(sliver_id))

    def stamped(self) -> tuple[Stamped, ...]:
        """Return the spaces with this site's stamp."""
        found = filter(None, (self._space(*each) for each in self._titles() if sliver_of(each[1])))
        ours = (space for space in found if space.notes and space.notes.site == self._site.site)
        return tuple(
            Stamped(space.notes.sliver, "L3VPN", space.title) for space in ours if space.notes
        )

    # --- changing

    def apply(self, sliver: NetworkService) -> Service:
        """Make the service what the sliver describes, and wait until AL2S has provisioned it.

        A connection is changed in place by its id; one whose port is another is made anew. What is not
        asked for goes first, so its VLAN is free for others.

        :raises DriverError: if AL2S could not provision a connection.
        :raises TimedOut: if one is still not provisioned at the operation's end.
        """
        refuse(self._site, sliver)
        wanted = self._wanted(sliver)
        space = self._made_space(sliver)
        router = self._made_router(sliver, space)
        there = self._connections(self._known(space.id))
        pairs, surplus = matched(wanted, there)
        gone, order = changes(pairs, marking=space.notes is not None)
        self._delete_connections([*surplus, *gone])
        known = frozenset(connection.id for connection in there)
        for change in order:
            self._make(router, sliver.id, change, known)
        self._await_provisioned(space)
        return self._found(sliver.id)

    def _found(self, sliver_id: str) -> Service:
        return self.find(sliver_id) or self._missing(f"service of {sliver_id}")

    def _made_space(self, sliver: NetworkService) -> _Space:
        self._refuse_foreign(sliver.id)
        spaces = self._spaces(sliver.id)
        if several := _several(spaces):
            remedy = "delete the service: that removes all of them"
            raise Conflict(several, where=self._api.where, remedy=remedy)
        if spaces:
            return spaces[0]
        notes = str(Notes(self._site.site, sliver.id, asn=getattr(sliver, "asn", None)))
        body = {"title": service_name(sliver), "notes": notes, "ownerPath": self._owner}
        made = self._change("POST", _SPACES, body, lambda: bool(self._spaces(sliver.id)))
        found = [self._known(made)] if made else self._spaces(sliver.id)
        return found[0] if found else self._missing(f"space {service_name(sliver)}")

    def _made_router(self, sliver: NetworkService, space: _Space) -> str:
        if space.routers:
            return space.routers[0]
        body = {"virtualSpaceId": space.id, "notes": str(Notes(self._site.site, sliver.id))}
        self._change("POST", _ROUTERS, body, lambda: bool(self._known(space.id).routers))
        routers = self._known(space.id).routers
        return routers[0] if routers else self._missing(f"router of {space.title}")

    def _make(
        self, router: str, sliver_id: str, change: ConnectionChange, known: Collection[str]
    ) -> None:
        """Make a connection as its document says, unless it is so.

        :param known: the connections that there were before.
        """
        wanted, there = change.wanted, change.there
        last = change.mark or change.marked
        notes = Notes(self._site.site, sliver_id, wanted.interface.id, last=last)
        body = {"virtualRouterId": router, "notes": str(notes)} | wanted.document
        if there and change.anew:
            self._delete_connections([there])
        if there is None or change.anew:
            self._change("POST", _CONNECTIONS, body, lambda: self._has(router, notes, known))
        elif change.needed or change.mark:
            path = f"{_CONNECTIONS}/{quoted(there.id)}"
            self._change("PUT", path, body, lambda: self._is(there.id, wanted, notes))

    def _has(self, router: str, notes: Notes, known: Collection[str]) -> bool:
        """Return whether a router has the connection with these notes, beside those that are known."""
        return any(c.notes == notes and c.id not in known for c in self._of_router(router))

    def _is(self, connection_id: str, wanted: Wanted, notes: Notes) -> bool:
        there = self._connection(connection_id)
        return there is not None and there.notes == notes and not wanted.differs(there)

    def _await_provisioned(self, space: _Space) -> None:
        what = f"AL2S to provision {space.title}"
        await_end(what, partial(self._provisioned, space.id), self._site.limits.create)

    def _provisioned(self, space_id: str) -> bool:
        there = self._connections(self._known(space_id))
        failed = [name for name, c in names(there) if c.state == FAILED]
        if failed:
            what = f"AL2S could not provision interface {', '.join(failed)}"
            raise DriverError(what, where=self._api.where, why=f"its state is {FAILED}")
        return all(connection.state == PROVISIONED for connection in there)

    def remove(self, sliver_id: str) -> None:
        """Delete connections, routers and spaces of the service, each seen to be absent.

        :raises NotVerified: if any of it is still there.
        """
        for space in self._spaces(sliver_id):
            self._empty(space)
            self._delete(_SPACES, space.id)
        if left := self.leftovers(sliver_id):
            raise NotVerified(f"still there: {', '.join(left)}", where=self._api.where)

    def _empty(self, space: _Space) -> None:
        connections = self._connections(space)
        for connection in connections:
            self._delete(_CONNECTIONS, connection.id)
        for router in space.routers:
            self._delete(_ROUTERS, router)
        what, limit = f"AL2S to empty {space.title}", time_left(self._site.limits.delete) * _WAITING
        wait_until(what, partial(self._is_empty, space.id, connections), timeout=limit)

    def _delete_connections(self, connections: list[L3Connection]) -> None:
        """Delete connections, and wait until none is in use: others take their places."""
        for connection in connections:
            self._delete(_CONNECTIONS, connection.id)
        if connections:
            limit = time_left(self._site.limits.delete) * _WAITING
            unused = partial(self._unused, connections)
            wait_until("AL2S to delete connections", unused, timeout=limit)

    def _unused(self, connections: list[L3Connection]) -> bool:
        now = (self._connection(connection.id) for connection in connections)
        return all(found is None or found.state != PROVISIONED for found in now)

    def _is_empty(self, space_id: str, had: list[L3Connection]) -> bool:
        """Return whether a space has no routers, and no connection that it had is in use."""
        space = self._space(space_id, "")
        return not (space and space.routers) and self._unused(had)

    def _delete(self, kind: str, resource_id: str) -> None:
        """Delete something; again, while what depends on it is still being deleted."""
        path = f"{kind}/{quoted(resource_id)}"
        limit = time_left(self._site.limits.delete) * _WAITING
        retrying = Retrying(
            retry=retry_if_exception_type(Conflict),
            wait=exponential(multiplier=0.1, max=2.0),
            before_sleep=trying_again,
            stop=stop_before_delay(limit),
            reraise=True,
        )
        with suppress(NotFound):
            retrying(self._change, "DELETE", path, None, lambda: self._api.read(path) is None)

    def _change(self, method: str, path: str, body: Json | None, so: Callable[[], bool]) -> str:
        """Change something once; return the id of what was made, empty if the answer has none.

        :param so: returns whether it is done.
        """
        change = partial(self._api.change, method, path, body)
        return change_once(change, so, self._site.limits.call) or ""

    def _missing(self, what: str) -> NoReturn:
        raise NotVerified(f"the {what} is not there", where=self._api.where)

    def _refuse_foreign(self, sliver_id: str) -> None:
        """Raise NotOurs if a space of the service's title says that it is another's."""
        for space in self._titled(sliver_id):
            if not self._ours(space, sliver_id):
                what = f"space {space.title} is not ours"
                raise NotOurs(what, where=self._api.where, why=f"its notes say {space.notes}")

    # --- what is there

    def _wanted(self, sliver: NetworkService) -> list[Wanted]:
        return [
            Wanted(i, document(i, self._footprint.place(i, f"interfaces[{n}]"), n + 1))
            for n, i in enumerate(sliver.interfaces)
        ]

    def _spaces(self, sliver_id: str) -> list[_Space]:
        """Return the spaces of a service, without those of other sites; there should be one."""
        return [space for space in self._titled(sliver_id) if self._ours(space, sliver_id)]

    def _ours(self, space: _Space, sliver_id: str) -> bool:
        notes = space.notes
        return notes is None or (notes.site, notes.sliver) == (self._site.site, sliver_id)

    def _titled(self, sliver_id: str) -> list[_Space]:
        found = (self._space(*each) for each in self._titles() if sliver_of(each[1]) == sliver_id)
        return [space for space in found if space]

    def _titles(self) -> list[tuple[str, str]]:
        """Return the id and the title of each space."""
        answer = self._api.listed(_SPACES)
        with self._api.reading("the spaces"):
            return [(str(s["virtualSpaceId"]), str(s["title"])) for s in answer["spaces"]]

    def _space(self, space_id: str, title: str) -> _Space | None:
        answer = self._api.read(f"{_SPACES}/{quoted(space_id)}?consolidated=false")
        if answer is None:
            return None
        with self._api.reading(f"space {space_id}"):
            routers = tuple(map(str, answer["virtualRouterIds"] or ()))
            notes = Notes.of(answer.get("notes"))
            return _Space(space_id, str(answer.get("title") or title), routers, notes)

    def _known(self, space_id: str) -> _Space:
        return self._space(space_id, "") or self._missing(f"space {space_id}")

    def _connections(self, space: _Space) -> list[L3Connection]:
        return [c for router in space.routers for c in self._of_router(router)]

    def _of_router(self, router_id: str) -> list[L3Connection]:
        answer = self._api.read(f"{_ROUTERS}/{quoted(router_id)}")
        with self._api.reading(f"router {router_id}"):
            found = map(str, answer["virtualL3ConnectionIds"] or ()) if answer else ()
            return [c for c in map(self._connection, found) if c]

    def _connection(self, connection_id: str) -> L3Connection | None:
        answer = self._api.read(f"{_CONNECTIONS}/{quoted(connection_id)}")
        return L3Connection(connection_id, answer) if answer else None


def _refuse_change(sliver: NetworkService, space: _Space) -> None:
    asn = space.notes.asn if space.notes else None
    if not is_name_of(space.title, sliver):
        why = f"it is {space.title} at AL2S"
        raise InvalidSliver("cannot be changed", field="name", why=why)
    if isinstance(sliver, L3VPN) and asn not in {None, sliver.asn}:
        raise InvalidSliver("cannot be changed", field="asn", why=f"it is {asn}")


def _several(spaces: list[_Space]) -> str:
    """Return what is wrong if there is more than one space, or router; empty if there is not."""
    if len(spaces) > 1:
        return f"there are {len(spaces)} spaces {spaces[0].title}"
    routers = [router for space in spaces for router in space.routers]
    return f"space {spaces[0].title} has {len(routers)} routers" if len(routers) > 1 else ""


def _complete(space: _Space, connections: list[L3Connection]) -> bool:
    """Return whether a creation came to its end; what is not ours is taken as it is."""
    marked = any(c.notes and c.notes.last for c in connections)
    return marked if space.notes else bool(connections)


def _observed(values: Json) -> ObservedInterface:
    seen = {key: values[key] for key in ("device", "port", "vlan", "bandwidth")}
    return ObservedInterface(component=values["id"], **seen)


def _as_sliver(sliver_id: str, space: _Space, interfaces: list[Json]) -> NetworkService | None:
    """Return what the service should be, as far as it says so; None if it does not."""
    values = {"id": sliver_id, "name": space.title[:-37], "interfaces": interfaces}
    try:
        return L3VPN.model_validate(values | {"asn": space.notes and space.notes.asn})
    except ValidationError:
        return None
