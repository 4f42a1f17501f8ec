"""How a reservation gets its places: offers are taken up, and what is refused is selected again."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from anyio.to_thread import run_sync

from fabric_direct.deadline import Deadline
from fabric_direct.errors import Conflict
from fabric_direct.zones.fan_out import ask, left_out
from fabric_direct.zones.source import Source
from fabric_direct.zones.store import Part, PartState, Store
from fabric_direct.zones.wire import (
    BootRequest,
    KindNeeds,
    KindSliver,
    LeftOut,
    Offer,
    Selection,
    SelectRequest,
    Shortage,
    reservation_of,
)

Select = Callable[[SelectRequest, float, Collection[str]], Awaitable[Selection]]
"""Returns the offers of all sources but some, with the sources' own blobs, within so many seconds."""
_LEAST = 0.05
"""Seconds without which nothing is selected any more."""
_SELECTING, _TAKING = 1 / 2, 3 / 4
"""Shares of the time that is left, so that there is always some left for another choice."""


class NotPlaced(Conflict):
    """A request cannot be had, now or at all."""

    def __init__(
        self,
        what: str,
        *,
        shortages: tuple[Shortage, ...] = (),
        left_out: tuple[LeftOut, ...] = (),
        **words: str,
    ) -> None:
        """Say what is missing.

        :param left_out: sources that were not asked, or did not answer.
        """
        super().__init__(what, **words)
        self.shortages, self.left_out = shortages, left_out


@dataclass
class _Kind:
    """One kind of a request, and how far it is."""

    wanted: KindSliver
    missing: list[int]
    """Numbers of the instances that have no place yet."""
    offers: list[Offer] = field(default_factory=list)
    """For the first of these."""

    @property
    def bound(self) -> bool:
        """Whether it counts which hosts the others have."""
        return self.wanted.together or self.wanted.apart

    @property
    def closed(self) -> bool:
        """Whether nothing is selected for it any more: no source could be told where the others are."""
        begun = self.offers or len(self.missing) < self.wanted.num_instances
        return self.bound and bool(begun)

    def short(self) -> int:
        """Return how many instances have no offer yet."""
        return len(self.missing) - len(self.offers)

    def needs(self) -> KindNeeds:
        """Return what is to be selected for it."""
        return self.wanted.needed(self.short())

    def by_source(self) -> Iterator[tuple[str, list[int], list[Offer]]]:
        """Take the offers, and return what each source is asked for: numbers and their offers."""
        found: dict[str, tuple[list[int], list[Offer]]] = defaultdict(lambda: ([], []))
        for number, offer in zip(self.missing, self.offers, strict=False):
            found[offer.zone][0].append(number)
            found[offer.zone][1].append(offer)
        self.offers = []
        return ((source, numbers, offers) for source, (numbers, offers) in found.items())


@dataclass(frozen=True, slots=True)
class _Asked:
    """A part, and what its source is asked for."""

    part: Part
    kind: _Kind
    numbers: list[int]
    request: BootRequest


class Booting:
    """One reservation that is being placed."""

    def __init__(
        self,
        request: BootRequest,
        offers: Iterable[Offer],
        select: Select,
        sources: Mapping[str, Source],
        store: Store,
    ) -> None:
        """Ask for nothing yet.

        :param offers: those that are taken up, opened: with the sources' own blobs.
        """
        self._request, self._select, self._sources, self._store = request, select, sources, store
        self._reservation = reservation_of(request.request_id)
        self._kinds = [_Kind(kind, list(kind.numbered())) for kind in request.kinds]
        self._placed: dict[str, _Asked] = {}
        self._left_out: dict[str, LeftOut] = {}
        self._tries = 0
        self._refusing: set[str] = set()
        """Sources that refused offers of theirs once; after the second time they are not asked."""
        self._avoided: set[str] = set()
        self._shortages: tuple[Shortage, ...] = ()
        self._give(offers)

    async def run(self, retries: int, deadline: Deadline) -> None:
        """Find a place for all, or for as many as can be if the request says so.

        Its parts are in the store before they are asked for. If it raises, they are to be dropped.

        :param retries: how often what a source refused is selected again.
        :raises NotPlaced: if there are not enough places.
        """
        for _ in range(retries + 1):
            await self._fill(deadline)
            if not await self._take(deadline):
                break
        if any(kind.missing for kind in self._kinds) and not self._partly:
            raise self._refusal()

    @property
    def _partly(self) -> bool:
        return self._request.partial and bool(self._placed)

    async def _fill(self, deadline: Deadline) -> None:
        """Select what has no offer."""
        short = [kind for kind in self._kinds if kind.short() and not kind.closed]
        seconds = deadline.remaining() * _SELECTING
        if short and seconds > _LEAST:
            kinds = tuple(kind.needs() for kind in short)
            request = SelectRequest(request_id=self._request.request_id, kinds=kinds)
            selection = await self._select(request, seconds, self._avoided)
            self._shortages = selection.shortages
            self._left_out |= {each.zone: each for each in selection.left_out}
            self._give(selection.offers)
        if not self._request.partial and any(kind.short() for kind in self._kinds):
            raise self._refusal()

    def _give(self, offers: Iterable[Offer]) -> None:
        kinds = {kind.wanted.kind: kind for kind in self._kinds}
        for offer in offers:
            kinds[offer.kind].offers.append(offer)

    async def _take(self, deadline: Deadline) -> bool:
        """Take the offers up; return whether one was refused."""
        seconds = max(deadline.remaining() * _TAKING, 0.001)
        asked = [each for kind in self._kinds for each in self._asked(kind, seconds)]
        self._tries += 1
        await run_sync(self._store.ask, [each.part for each in asked])
        calls = {
            each.part.id: self._sources[each.part.source].boot(each.request, deadline=seconds)
            for each in asked
        }
        answers = await ask(calls, seconds)
        refused = [each for each in asked if not await self._heard(each, answers[each.part.id])]
        self._refusing |= {each.part.source for each in refused}
        for kind in self._kinds:
            if kind.bound and any(each.kind is kind for each in refused):
                await self._give_up(kind)
        return bool(refused)

    def _asked(self, kind: _Kind, seconds: float) -> Iterator[_Asked]:
        for source, numbers, offers in kind.by_source():
            wanted = kind.wanted.model_copy(
                update={"num_instances": len(numbers), "numbers": tuple(numbers)}
            )
            request = BootRequest(
                request_id=self._part_id(source, wanted),
                kinds=(wanted,),
                offers=tuple(offers),
                deadline=seconds,
            )
            names = tuple(wanted.name_of(number) for number in numbers)
            part = Part(
                id=request.request_id,
                reservation=self._reservation,
                source=source,
                kind=wanted.kind,
                names=names,
                state=PartState.ASKED,
                theirs=reservation_of(request.request_id),
            )
            yield _Asked(part, kind, numbers, request)

    def _part_id(self, source: str, kind: KindSliver) -> str:
        """Return the request id of a part: nothing else is ever asked for by the same."""
        told = [self._request.request_id, source, kind.kind, str(self._tries)]
        return sha256("\n".join(told).encode()).hexdigest()

    async def _heard(self, asked: _Asked, answer: str | Exception) -> bool:
        """Note what a source answered; return whether it has taken its part on."""
        part = asked.part
        if isinstance(answer, str):
            await run_sync(self._store.answered, part.id, answer)
            self._placed[part.id] = asked
            asked.kind.missing = [n for n in asked.kind.missing if n not in asked.numbers]
            return True
        await run_sync(self._store.drop, [part.id])
        if not isinstance(answer, Conflict) or part.source in self._refusing:
            self._left_out[part.source] = left_out(part.source, answer)
            self._avoided.add(part.source)
        return False

    async def _give_up(self, kind: _Kind) -> None:
        """Drop what a kind has, to select all of it again."""
        parts = [part for part, asked in self._placed.items() if asked.kind is kind]
        await run_sync(self._store.drop, parts)
        for part in parts:
            del self._placed[part]
        kind.missing = list(kind.wanted.numbered())

    def _refusal(self) -> NotPlaced:
        return NotPlaced(
            "there are not enough places" if self._shortages else "what was offered is gone",
            shortages=self._shortages,
            left_out=tuple(self._left_out.values()),
            remedy="ask for less, or again later",
        )
