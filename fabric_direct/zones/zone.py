"""The zone itself: selects, boots, keeps reservations."""

import asyncio
import secrets
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import sha256

from anyio.to_thread import run_sync

from fabric_direct.config import Site
from fabric_direct.deadline import Deadline
from fabric_direct.errors import Conflict, FabricDirectError, InvalidSite, NotFound, Unreachable
from fabric_direct.zones.booting import Booting
from fabric_direct.zones.deletion_retry import Clearing
from fabric_direct.zones.fan_out import ask, left_out, share
from fabric_direct.zones.merging import merge, total
from fabric_direct.zones.sealing import seal_of
from fabric_direct.zones.source import Source
from fabric_direct.zones.source_health import Watched
from fabric_direct.zones.store import Part, PartState, ReservationState, Store
from fabric_direct.zones.wire import (
    BootRequest,
    Capabilities,
    Instance,
    InstanceStatus,
    LeftOut,
    Offer,
    Reservation,
    Selection,
    SelectRequest,
    ZoneView,
    reservation_of,
)

_OFFER = "offer"


class Zone:
    """Offers what its sources have, and has them make what is taken up.

    To be used in one event loop, between :meth:`start` and :meth:`close`.
    """

    def __init__(self, site: Site, sources: Sequence[Source]) -> None:
        """Make the zone; its key is made if there is none.

        :param sources: the site's own hosts, under the zone's own name, and its children.
        :raises InvalidSite: if two have one name, or the key cannot be read.
        """
        self.name = site.zone_name
        _refuse_twice([source.name for source in sources])
        self._settings, self._retries = site.zone, site.placement.retries
        self._sources = {source.name: source for source in sources}
        self._watched = [Watched(source, site.zone.refresh) for source in sources]
        self._seal = seal_of(site.state_dir)
        self._store = Store(site.state_dir)
        self._clearing = Clearing(self._sources, self._store, site.zone.deadline)
        self._handling: set[str] = set()
        self._booting: dict[str, tuple[str, asyncio.Task[None]]] = {}
        self._watching: list[asyncio.Task[None]] = []
        self._id = ""

    async def start(self) -> None:
        """Begin to look at the sources, and take back what a process that is gone was placing."""
        self._id = await run_sync(self._store.zone_id)
        await run_sync(self._store.interrupt)
        await self._clearing.begin()
        self._watching = [asyncio.create_task(each.watch()) for each in self._watched]

    async def close(self) -> None:
        """Let what is being placed come to its end, and stop looking at the sources."""
        placing = [task for _, task in self._booting.values()]
        await asyncio.gather(*placing, return_exceptions=True)
        for task in self._watching:
            task.cancel()
        self._clearing.close()

    # --- selecting

    async def select(self, request: SelectRequest) -> Selection:
        """Return the cheapest offers of all sources; nothing is made.

        One that comes around to the zone while it is handling it is answered with nothing.
        """
        if request.request_id in self._handling:
            return Selection(left_out=(LeftOut(zone=self.name, why="the request came around"),))
        with self._handled(request.request_id):
            selection = await self._selected(request, request.deadline or self._settings.deadline)
        return selection.model_copy(update={"offers": tuple(map(self._sealed, selection.offers))})

    @contextmanager
    def _handled(self, request_id: str) -> Iterator[None]:
        self._handling.add(request_id)
        try:
            yield
        finally:
            self._handling.discard(request_id)

    async def _selected(
        self, request: SelectRequest, seconds: float, without: Collection[str] = ()
    ) -> Selection:
        """Return the offers with the sources' own blobs."""
        asked = [w for w in self._watched if w.asked and w.source.name not in without]
        silent = [LeftOut(zone=w.source.name, why=w.why) for w in self._watched if not w.asked]
        given = share(seconds)
        passed = request.model_copy(update={"deadline": given})
        calls = {w.source.name: w.source.select(passed, deadline=given) for w in asked}
        answers = await ask(calls, given)
        heard = {name: each for name, each in answers.items() if isinstance(each, Selection)}
        failed = [left_out(name, e) for name, e in answers.items() if isinstance(e, Exception)]
        below = [_below(name, each) for name in heard for each in heard[name].left_out]
        selection = merge(request.kinds, heard)
        return selection.model_copy(update={"left_out": (*silent, *failed, *below)})

    def _sealed(self, offer: Offer) -> Offer:
        lifetime = min(offer.expires, self._settings.offer_lifetime)
        value = [offer.zone, offer.kind, offer.blob, secrets.token_hex(8)]
        blob = self._seal.seal(value, _OFFER, lifetime)
        return offer.model_copy(update={"blob": blob, "expires": lifetime})

    # --- booting

    async def boot(self, request: BootRequest) -> str:
        """Take offers up and select what they leave open; return the id of the reservation.

        All have a place then, or as many as can be if that will do; they are made in the background.

        :raises Conflict: if an offer is altered, expired, another zone's, or was taken up before; if
            another request had this request id, or this one was refused before.
        :raises NotPlaced: if there are not enough places; nothing is left then of those there were.
        """
        reservation, digest = reservation_of(request.request_id), _digest(request)
        if reservation not in self._booting:
            task = asyncio.create_task(self._boot(request, digest))
            self._booting[reservation] = digest, task
            task.add_done_callback(partial(self._booted, reservation))
        known, task = self._booting[reservation]
        if known != digest:
            raise Conflict(
                "another request had this request id", remedy="make one for each request"
            )
        await asyncio.shield(task)
        return reservation

    def _booted(self, reservation: str, task: "asyncio.Task[None]") -> None:
        """Forget a task; who asked for it may be gone, and no one else look at what it raised."""
        del self._booting[reservation]
        _ = task.cancelled() or task.exception()

    async def _boot(self, request: BootRequest, digest: str) -> None:
        reservation = reservation_of(request.request_id)
        if await run_sync(self._store.known, reservation, digest):
            return
        opened = [self._opened(offer) for offer in request.offers]
        until = time.time() + self._settings.offer_lifetime
        nonces = [nonce for nonce, _ in opened]
        await run_sync(self._store.begin, reservation, digest, nonces, until)
        offers = [offer for _, offer in opened]
        booting = Booting(request, offers, self._selected, self._sources, self._store)
        with self._handled(request.request_id):
            await self._place(reservation, booting, request.deadline or self._settings.deadline)

    async def _place(self, reservation: str, booting: Booting, seconds: float) -> None:
        """Find the places; if that fails, have everything deleted that was asked for."""
        why = "it failed"
        try:
            await booting.run(self._retries, Deadline.within(seconds))
            await run_sync(self._store.made, reservation)
            why = ""
        except FabricDirectError as error:
            why = error.what
            raise
        finally:
            if why:
                await run_sync(self._store.refused, reservation, why)
            await self._clearing.begin()

    def _opened(self, offer: Offer) -> tuple[str, Offer]:
        """Return an offer's nonce, and the offer as its source made it."""
        source, kind, blob, nonce = self._seal.open(offer.blob, _OFFER)
        if source not in self._sources or kind != offer.kind:
            raise Conflict("the offer is for something else", remedy="select again")
        return nonce, offer.model_copy(update={"zone": source, "blob": blob})

    # --- reservations

    async def reservation(self, reservation: str) -> Reservation:
        """Say how far the instances of a reservation are.

        :raises NotFound: if there is none of this id.
        """
        states = {ReservationState.MADE, ReservationState.DELETED}
        if await run_sync(self._store.state, reservation) not in states:
            raise _no_reservation()
        parts = {part.id: part for part in await run_sync(self._store.parts, reservation)}
        seconds = share(self._settings.deadline)
        here = [part for part in parts.values() if part.source in self._sources]
        calls = {p.id: self._sources[p.source].instances(p.theirs, deadline=seconds) for p in here}
        told = await ask(calls, seconds)
        gone = NotFound("it is none of the zone's children any more")
        answers = {part: told.get(part, gone) for part in parts}
        silent = {
            parts[part].source: left_out(parts[part].source, answer)
            for part, answer in answers.items()
            if isinstance(answer, Exception)
        }
        return Reservation(
            reservation_id=reservation,
            instances=tuple(i for part in parts.values() for i in _told(part, answers[part.id])),
            left_out=tuple(silent.values()),
        )

    async def delete(self, reservation: str) -> Reservation:
        """Have all instances of a reservation deleted; say how far they are.

        A child that does not answer is told when it does. If the reservation is being placed, or its
        request is still to come, it will be refused.

        :raises NotFound: if there is none of this id.
        """
        if not await run_sync(self._store.delete, reservation):
            raise _no_reservation()
        told = await self._clearing.begin()
        if told:
            await asyncio.wait(told, timeout=share(self._settings.deadline) / 2)
        return await self.reservation(reservation)

    # --- what there is

    async def view(self) -> ZoneView:
        """Return what the zone has, with its children as they were last heard of."""
        own = [w for w in self._watched if w.source.name == self.name]
        children = [w for w in self._watched if w.source.name != self.name]
        await asyncio.gather(*(each.look(share(self._settings.refresh)) for each in own))
        counted = [each.counted(self._id) for each in self._watched]
        parts = [Capabilities(zones=(self._id,)), *filter(None, counted)]
        views = tuple(child.view() for child in children)
        return ZoneView(zone=self.name, capabilities=total(parts), children=views)


def _refuse_twice(names: list[str]) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidSite(f"a child is called {twice!r} like the zone", field="zone.children")


def _below(name: str, below: LeftOut) -> LeftOut:
    return left_out(name, Unreachable(f"{below.zone} below it is left out", why=below.why))


def _digest(request: BootRequest) -> str:
    """Return the digest of what is asked for; how long it may take is no part of that."""
    asked = request.model_copy(update={"deadline": None})
    return sha256(asked.model_dump_json().encode()).hexdigest()


def _no_reservation() -> NotFound:
    return NotFound("there is no such reservation")


def _told(part: Part, answer: tuple[Instance, ...] | Exception) -> Iterator[Instance]:
    """Return the instances of a part, as its source tells of them; those it does not are unknown."""
    by_name = {} if isinstance(answer, Exception) else {each.name: each for each in answer}
    unknown = InstanceStatus.DELETED if _surely_gone(part, answer) else InstanceStatus.UNKNOWN
    for name in part.names:
        there = by_name.get(name)
        status = there.status if there else unknown
        if part.state is PartState.DELETING and there:
            status = InstanceStatus.DELETING
        yield Instance(
            name=name,
            kind=part.kind,
            zone=part.source,
            status=status,
            error=there.error if there else "",
        )


def _surely_gone(part: Part, answer: tuple[Instance, ...] | Exception) -> bool:
    return part.state is PartState.DELETED and isinstance(answer, NotFound)
