"""A child zone, queried over HTTP; its answers are checked as far as they can be."""

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
"""The largest cost that fits a 64-bit integer."""


class ChildSource:
    """A :class:`~fabric_direct.zones.source.Source` that is another zone.

    No error contains its address. In addition to the errors of :class:`Source`, every method raises
    :class:`Denied` if the zone rejects our token, and :class:`Refused` if it rejects the request.
    """

    def __init__(self, name: str, settings: ChildZone) -> None:
        """Send nothing yet.

        :param name: this zone's name for the child.
        :raises InvalidSite: as :class:`~fabric_direct.zones.client.ZoneClient`.
        """
        self.name = name
        self._zone = ZoneClient(name, settings)

    async def close(self) -> None:
        """Close the connections to it."""
        await self._zone.close()

    async def capabilities(self, *, deadline: float) -> Capabilities:
        """Return the total capacity of the child and the zones below it."""
        view = await self._zone.ask("GET", "/zones", ZoneView, deadline=deadline)
        return view.capabilities

    async def select(self, request: SelectRequest, *, deadline: float) -> Selection:
        """Return the child's offers, at most as many as were asked for."""
        selection = await self._zone.ask(
            "POST", "/zones/select", Selection, deadline=deadline, body=request
        )
        self._check(request, selection)
        return selection

    def _check(self, request: SelectRequest, selection: Selection) -> None:
        requested = {kind.kind: kind.num_instances for kind in request.kinds}
        offered = Counter(offer.kind for offer in selection.offers)
        missing = {shortage.kind: shortage.missing for shortage in selection.shortages}
        if any(number > requested.get(kind, 0) for kind, number in (offered | missing).items()):
            raise self._zone.invalid("it has more instances than were asked for")
        if len({offer.blob for offer in selection.offers}) < len(selection.offers):
            raise self._zone.invalid("it has the same offer twice")
        if any(offer.cost > _MOST_COST for offer in selection.offers):
            raise self._zone.invalid("a cost is out of range")

    async def boot(self, request: BootRequest, *, deadline: float) -> str:
        """Accept offers of the child; return its reservation id."""
        booted = await self._zone.ask(
            "POST", "/zones/boot", Booted, deadline=deadline, body=request
        )
        if booted.reservation_id != reservation_of(request.request_id):
            raise self._zone.invalid("it is about another reservation")
        return booted.reservation_id

    async def instances(self, reservation: str, *, deadline: float) -> tuple[Instance, ...]:
        """Return the instances of one of the child's reservations, with their status."""
        path = f"/reservations/{reservation}"
        answer = await self._zone.ask("GET", path, Reservation, deadline=deadline)
        if answer.reservation_id != reservation or len(answer.instances) > MOST_INSTANCES:
            raise self._zone.invalid("it is about another reservation")
        return answer.instances

    async def delete(self, reservation: str, *, deadline: float) -> None:
        """Start to delete all instances of one of the child's reservations."""
        await self._zone.send("DELETE", f"/reservations/{reservation}", deadline=deadline)
