"""A child zone, queried over HTTP; its answers are checked as far as they can be."""

from collections import Counter

from fabric_direct.zones.client import ZoneClient
from fabric_direct.zones.wire import (
    MOST_INSTANCES,
    BootRequest,
    Capabilities,
    Instance,
    Selection,
    SelectRequest,
    reservation_of,
)

_MOST_COST = 2**63 - 1
"""The largest cost that fits a 64-bit integer."""


class ChildSource(ZoneClient):
    """A :class:`~fabric_direct.zones.source.Source` that is another zone.

    In addition to the errors of :class:`Source`, every method raises :class:`Denied` if the zone rejects
    our token, and :class:`Refused` if it rejects the request.
    """

    async def capabilities(self, *, deadline: float) -> Capabilities:
        """Return the total capacity of the child and the zones below it."""
        return (await self.view(deadline=deadline)).capabilities

    async def select(self, request: SelectRequest, *, deadline: float) -> Selection:
        """Return the child's offers, at most as many as were asked for."""
        selection = await super().select(request, deadline=deadline)
        self._check(request, selection)
        return selection

    def _check(self, request: SelectRequest, selection: Selection) -> None:
        requested = {kind.kind: kind.num_instances for kind in request.kinds}
        offered = Counter(offer.kind for offer in selection.offers)
        missing = {shortage.kind: shortage.missing for shortage in selection.shortages}
        if any(number > requested.get(kind, 0) for kind, number in (offered | missing).items()):
            raise self.invalid("it has more instances than were asked for")
        if len({offer.blob for offer in selection.offers}) < len(selection.offers):
            raise self.invalid("it has the same offer twice")
        if any(offer.cost > _MOST_COST for offer in selection.offers):
            raise self.invalid("a cost is out of range")

    async def boot(self, request: BootRequest, *, deadline: float) -> str:
        """Accept offers of the child; return its reservation id."""
        reservation = await super().boot(request, deadline=deadline)
        if reservation != reservation_of(request.request_id):
            raise self.invalid("it is about another reservation")
        return reservation

    async def instances(self, reservation: str, *, deadline: float) -> tuple[Instance, ...]:
        """Return the instances of one of the child's reservations, with their status."""
        answer = await self.reservation(reservation, deadline=deadline)
        if answer.reservation_id != reservation or len(answer.instances) > MOST_INSTANCES:
            raise self.invalid("it is about another reservation")
        return answer.instances
