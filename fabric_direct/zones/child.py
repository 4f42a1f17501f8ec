"""A child zone: asked over HTTP, and believed as far as it can be checked."""

from collections import Counter

from fabric_direct.config import ChildZone
from fabric_direct.zones.client import ZoneClient
from fabric_direct.zones.wire import (
    MOST_INSTANCES,
    Booted,
    BootRequest,
    Capabilities,
    Instance,
    Reservation,
    Selection,
    SelectRequest,
    ZoneView,
    reservation_of,
)

_MOST_COST = 2**63 - 1
"""What a zone can add up in an array."""


class ChildSource:
    """A :class:`~fabric_direct.zones.source.Source` that is a zone of its own, elsewhere.

    No error names its address. Beside what its methods say, each raises :class:`Denied` if the zone does
    not let us in, and :class:`Refused` if it cannot make sense of what it is asked.
    """

    def __init__(self, name: str, settings: ChildZone) -> None:
        """Make the source; the zone is not asked yet.

        :param name: the child's name here.
        :raises InvalidSite: as :class:`~fabric_direct.zones.client.ZoneClient`.
        """
        self.name = name
        self._zone = ZoneClient(name, settings)

    async def close(self) -> None:
        """Close the connections to it."""
        await self._zone.close()

    async def capabilities(self, *, deadline: float) -> Capabilities:
        """Return what the child and its children have in all."""
        view = await self._zone.ask("GET", "/zones", ZoneView, deadline=deadline)
        return view.capabilities

    async def select(self, request: SelectRequest, *, deadline: float) -> Selection:
        """Return the child's offers, none more than were asked for."""
        selection = await self._zone.ask(
            "POST", "/zones/select", Selection, deadline=deadline, body=request
        )
        self._check(request, selection)
        return selection

    def _check(self, request: SelectRequest, selection: Selection) -> None:
        wanted = {kind.kind: kind.num_instances for kind in request.kinds}
        offered = Counter(offer.kind for offer in selection.offers)
        missing = {shortage.kind: shortage.missing for shortage in selection.shortages}
        if any(number > wanted.get(kind, 0) for kind, number in (offered | missing).items()):
            raise self._zone.unbelievable("it has more instances than were asked for")
        if len({offer.blob for offer in selection.offers}) < len(selection.offers):
            raise self._zone.unbelievable("it offers the same twice")
        if any(offer.cost > _MOST_COST for offer in selection.offers):
            raise self._zone.unbelievable("a cost is out of range")

    async def boot(self, request: BootRequest, *, deadline: float) -> str:
        """Have offers of the child taken up, and return its id of the reservation."""
        booted = await self._zone.ask(
            "POST", "/zones/boot", Booted, deadline=deadline, body=request
        )
        if booted.reservation_id != reservation_of(request.request_id):
            raise self._zone.unbelievable("it is about another reservation")
        return booted.reservation_id

    async def instances(self, reservation: str, *, deadline: float) -> tuple[Instance, ...]:
        """Return how far the instances of one of the child's reservations are."""
        path = f"/reservations/{reservation}"
        answer = await self._zone.ask("GET", path, Reservation, deadline=deadline)
        if answer.reservation_id != reservation or len(answer.instances) > MOST_INSTANCES:
            raise self._zone.unbelievable("it is about another reservation")
        return answer.instances

    async def delete(self, reservation: str, *, deadline: float) -> None:
        """Have all instances of one of the child's reservations deleted."""
        await self._zone.tell("DELETE", f"/reservations/{reservation}", deadline=deadline)
