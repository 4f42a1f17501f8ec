"""Which L3 connections belong to which interfaces, and the order in which they change.

No two connections have one VLAN of a port. So what is not asked for goes first, and a connection takes
the place of another one only after that has gone, or moved. Where connections wait for each other in a
circle, as if two swap their VLANs, one of them is deleted, and made anew when all others have moved.
"""

from dataclasses import dataclass, replace

from fabric_direct.drivers.al2s.connections import FAILED, L3Connection
from fabric_direct.drivers.http_api import Json
from fabric_direct.model.services import ServiceInterface

Place = tuple[str, int]
"""The id of a port, and a VLAN."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """An interface with its document."""

    interface: ServiceInterface
    document: Json

    @property
    def where(self) -> Place:
        """Its place."""
        return str(self.document["interfaceId"]), int(self.document["vlanOuterId"])

    def differs(self, connection: L3Connection) -> tuple[str, ...]:
        """Name in what a connection is not the interface's."""
        peer, notes = self.interface.peer, connection.notes
        secrets = not (peer and peer.secret)
        said = connection.differences(self.document, secrets=secrets)
        if notes and notes.interface != self.interface.id:
            return (*said, f"it is interface {notes.interface} at AL2S")
        return said


Pair = tuple[Wanted, L3Connection | None]


def matched(
    wanted: list[Wanted], there: list[L3Connection]
) -> tuple[list[Pair], list[L3Connection]]:
    """Return each interface with its connection, and the connections that are of none.

    They are known by the interface in their notes, without this site's stamp by port and VLAN. An
    interface of a new id has the connection that is in its place, if no other interface has that.
    """
    named = {c.notes.interface: c for c in there if c.notes}
    placed = {c.where: c for c in there if not c.notes}
    pairs = [(w, named.get(w.interface.id) or placed.get(w.where)) for w in wanted]
    used = {c.id for _, c in pairs if c}
    left = {c.where: c for c in there if c.id not in used}
    pairs = [(w, c or left.pop(w.where, None)) for w, c in pairs]
    used = {c.id for _, c in pairs if c}
    return pairs, [c for c in there if c.id not in used]


@dataclass(frozen=True, slots=True)
class ConnectionChange:
    """What is done to one connection."""

    wanted: Wanted
    there: L3Connection | None = None
    """The connection as it is; None if it is made."""
    mark: bool = False
    """Whether it marks the service as whole."""

    @property
    def anew(self) -> bool:
        """Return whether it is made anew: a connection keeps its port."""
        return self.there is not None and self.there.where[0] != self.wanted.where[0]

    @property
    def needed(self) -> bool:
        """Return whether anything has to be done, but for the mark."""
        there = self.there
        return there is None or bool(self.wanted.differs(there)) or there.state == FAILED

    @property
    def marked(self) -> bool:
        """Return whether it has the mark already, and keeps it."""
        there = self.there
        return bool(there and there.notes and there.notes.last) and not self.anew


def changes(
    pairs: list[Pair], *, marking: bool
) -> tuple[list[L3Connection], list[ConnectionChange]]:
    """Return which connections are deleted at first, and the changes in an order that can be made.

    :param marking: whether one must mark the service as whole: the last that changes does, if none is
        left that has the mark.
    """
    gone: list[L3Connection] = []
    waiting = [ConnectionChange(wanted, there) for wanted, there in pairs]
    order: list[ConnectionChange] = []
    while waiting:
        holders = {change.there.where: change for change in waiting if change.there}
        free = [c for c in waiting if holders.get(c.wanted.where, c) is c]
        waiting = [c for c in waiting if holders.get(c.wanted.where, c) is not c]
        order += free
        if waiting and not free:  # all that wait do so in circles: no two want one place
            broken = max(waiting, key=_breaks_well)
            gone += [broken.there] if broken.there else []
            waiting = [ConnectionChange(c.wanted) if c is broken else c for c in waiting]
    if marking and not any(change.marked for change in order):
        last = max(range(len(order)), key=lambda n: (order[n].needed, n))
        order[last] = replace(order[last], mark=True)
    return gone, order


def _breaks_well(change: ConnectionChange) -> tuple[bool, bool]:
    """Prefer what is made anew anyway, then what has the mark: without it the service is not whole."""
    notes = change.there.notes if change.there else None
    return change.anew, bool(notes and notes.last)
