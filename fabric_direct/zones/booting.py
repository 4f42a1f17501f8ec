"""Place a reservation: accept offers, and select again what a source refuses."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from anyio.to_thread import run_sync

from fabric_direct.calls.deadline import Deadline
from fabric_direct.errors import Conflict
from fabric_direct.zones.fan_out import ask_all, left_out
from fabric_direct.zones.source import Source
from fabric_direct.zones.store import PartState, ReservationStore, SourceInstances
from fabric_direct.zones.wire import (
    BootRequest,
    KindSliver,
    LeftOut,
    Offer,
    Selection,
    SelectRequest,
    Shortage,
    reservation_of,
)

Select = Callable[[SelectRequest, float, Collection[str]], Awaitable[Selection]]
"""``(request, seconds, excluded sources)`` -> offers with the sources' own blobs."""
_LEAST = 0.05
"""Seconds; with less time than this left, nothing more is selected."""
_SELECTING, _BOOTING = 1 / 2, 3 / 4
"""Shares of the remaining time, so that some is left to select again."""


class NotPlaced(Conflict):
    """A request cannot be placed, now or at all."""

    def __init__(
        self,
        what: str,
        *,
        shortages: tuple[Shortage, ...] = (),
        left_out: tuple[LeftOut, ...] = (),
        **words: str,
    ) -> None:
        """Take the instances that fit nowhere, and the sources that did not answer or were skipped."""
        super().__init__(what, **words)
        self.shortages, self.left_out = shortages, left_out


@dataclass
class _Kind:
    """The progress of one kind of a request."""

    requested: KindSliver
    missing: list[int]
    """Numbers of the instances that are not placed yet."""
    offers: list[Offer] = field(default_factory=list)
    """For the first of these instances."""

    @property
    def bound(self) -> bool:
        """Return whether its instances must share a host, or must not."""
        return self.requested.together or self.requested.apart

    @property
    def closed(self) -> bool:
        """Return whether no more offers can be selected: a source does not know where the others are."""
        begun = self.offers or len(self.missing) < self.requested.num_instances
        return self.bound and bool(begun)

    def short(self) -> int:
        """Return how many instances have no offer yet."""
        return len(self.missing) - len(self.offers)

    def by_source(self) -> dict[str, dict[int, Offer]]:
        """Consume the offers; return those of each source by the number of the instance."""
        found: dict[str, dict[int, Offer]] = defaultdict(dict)
        for number, offer in zip(self.missing, self.offers, strict=False):
            found[offer.zone][number] = offer
        self.offers = []
        return found


@dataclass(frozen=True, slots=True)
class _PartRequest:
    """A part, and the request for it to its source."""

    part: SourceInstances
    kind: _Kind
    numbers: Collection[int]
    request: BootRequest


class Booting:
    """The placing of one reservation."""

    def __init__(
        self,
        request: BootRequest,
        offers: Iterable[Offer],
        select: Select,
        sources: Mapping[str, Source],
        store: ReservationStore,
    ) -> None:
        """Send nothing yet.

        :param offers: the accepted offers, opened: with the sources' own blobs.
        """
        self._request, self._select, self._sources, self._store = request, select, sources, store
        self._reservation = reservation_of(request.request_id)
        self._kinds = [_Kind(kind, list(kind.numbered())) for kind in request.kinds]
        self._placed: dict[str, _PartRequest] = {}
        self._left_out: dict[str, LeftOut] = {}
        self._tries = 0
        self._refusing: set[str] = set()
        """Sources that refused their own offers once; after the second time they are excluded."""
        self._excluded: set[str] = set()
        self._shortages: tuple[Shortage, ...] = ()
        self._add_offers(offers)

    async def run(self, retries: int, deadline: Deadline) -> None:
        """Place all instances, or as many as fit if the request is ``partial``.

        Parts are stored before they are requested. If this raises, the caller must drop them.

        :param retries: how often to select again what a source refused.
        :raises NotPlaced: if too few instances could be placed.
        """
        for _ in range(retries + 1):
            await self._select_missing(deadline)
            if not await self._boot_offers(deadline):
                break
        placed_enough = self._request.partial and self._placed
        if any(kind.missing for kind in self._kinds) and not placed_enough:
            raise self._refusal()

    async def _select_missing(self, deadline: Deadline) -> None:
        """Select offers for the instances that have none."""
        short = [kind for kind in self._kinds if kind.short() and not kind.closed]
        seconds = deadline.remaining() * _SELECTING
        if short and seconds > _LEAST:
            kinds = tuple(kind.requested.needs_of(kind.short()) for kind in short)
            request = SelectRequest(request_id=self._request.request_id, kinds=kinds)
            selection = await self._select(request, seconds, self._excluded)
            self._shortages = selection.shortages
            self._left_out |= {each.zone: each for each in selection.left_out}
            self._add_offers(selection.offers)
        if not self._request.partial and any(kind.short() for kind in self._kinds):
            raise self._refusal()

    def _add_offers(self, offers: Iterable[Offer]) -> None:
        kinds = {kind.requested.kind: kind for kind in self._kinds}
        for offer in offers:
            kinds[offer.kind].offers.append(offer)

    async def _boot_offers(self, deadline: Deadline) -> bool:
        """Accept the offers; return whether a source refused one."""
        seconds = max(deadline.remaining() * _BOOTING, 0.001)
        asked = [each for kind in self._kinds for each in self._part_requests(kind, seconds)]
        self._tries += 1
        await run_sync(self._store.add_parts, [each.part for each in asked])
        calls = {
            each.part.id: self._sources[each.part.source].boot(each.request, deadline=seconds)
            for each in asked
        }
        answers = await ask_all(calls, seconds)
        refused = [each for each in asked if not await self._accepted(each, answers[each.part.id])]
        self._refusing |= {each.part.source for each in refused}
        for kind in self._kinds:
            if kind.bound and any(each.kind is kind for each in refused):
                await self._start_over(kind)
        return bool(refused)

    def _part_requests(self, kind: _Kind, seconds: float) -> Iterator[_PartRequest]:
        for source, offers in kind.by_source().items():
            numbers = {"num_instances": len(offers), "numbers": tuple(offers)}
            slivers = kind.requested.model_copy(update=numbers)
            request = BootRequest(
                request_id=self._part_id(source, slivers),
                kinds=(slivers,),
                offers=tuple(offers.values()),
                deadline=seconds,
            )
            part = SourceInstances(
                id=request.request_id,
                reservation=self._reservation,
                source=source,
                kind=slivers.kind,
                names=tuple(map(slivers.name_of, offers)),
                state=PartState.ASKED,
                theirs=reservation_of(request.request_id),
            )
            yield _PartRequest(part, kind, offers.keys(), request)

    def _part_id(self, source: str, kind: KindSliver) -> str:
        """Return the request id of a part, which no other request ever has."""
        identity = [self._request.request_id, source, kind.kind, str(self._tries)]
        return sha256("\n".join(identity).encode()).hexdigest()

    async def _accepted(self, asked: _PartRequest, answer: str | Exception) -> bool:
        """Record the answer of a source; return whether it accepted its part."""
        part = asked.part
        if isinstance(answer, str):
            await run_sync(self._store.answered, part.id, answer)
            self._placed[part.id] = asked
            asked.kind.missing = [n for n in asked.kind.missing if n not in asked.numbers]
            return True
        await run_sync(self._store.drop, [part.id])
        if not isinstance(answer, Conflict) or part.source in self._refusing:
            self._left_out[part.source] = left_out(part.source, answer)
            self._excluded.add(part.source)
        return False

    async def _start_over(self, kind: _Kind) -> None:
        """Drop the parts of a kind, so that all of it is selected again."""
        parts = [part for part, asked in self._placed.items() if asked.kind is kind]
        await run_sync(self._store.drop, parts)
        for part in parts:
            del self._placed[part]
        kind.missing = list(kind.requested.numbered())

    def _refusal(self) -> NotPlaced:
        return NotPlaced(
            "not enough hosts" if self._shortages else "the offers are not valid any more",
            shortages=self._shortages,
            left_out=tuple(self._left_out.values()),
            remedy="ask for less, or try again later",
        )
