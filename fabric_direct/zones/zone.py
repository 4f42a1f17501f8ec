"""The zone itself: selects, boots, keeps reservations."""

import asyncio
import secrets
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from itertools import chain, starmap

from anyio.to_thread import run_sync

from fabric_direct.calls.deadline import Deadline
from fabric_direct.errors import Conflict, FabricDirectError, InvalidSite, NotFound, Unreachable
from fabric_direct.site.config import Site
from fabric_direct.zones.booting import Booting
from fabric_direct.zones.deletion_retry import DeletionRetry
from fabric_direct.zones.fan_out import ask_all, left_out, share
from fabric_direct.zones.merging import merge, total
from fabric_direct.zones.sealing import seal_of
from fabric_direct.zones.source import Source
from fabric_direct.zones.source_health import SourceHealth
from fabric_direct.zones.store import PartState, ReservationState, ReservationStore, SourceInstances
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
    """Offers the hosts of its sources, and boots instances on them.

    Use it in one event loop, between :meth:`start` and :meth:`close`.
    """

    def __init__(self, site: Site, sources: Sequence[Source]) -> None:
        """Create the zone, and its key if there is none.

        :param sources: the site's own hosts, named like the zone, and its children.
        :raises InvalidSite: if two sources have the same name, or the key cannot be read.
        """
        self.name = site.zone_name
        _refuse_twice([source.name for source in sources])
        self._settings, self._retries = site.zone, site.placement.retries
        self._sources = {source.name: source for source in sources}
        self._health = [SourceHealth(source, site.zone.refresh) for source in sources]
        self._seal = seal_of(site.state_dir)
        self._store = ReservationStore(site.state_dir)
        self._deletions = DeletionRetry(self._sources, self._store, site.zone.deadline)
        self._handling: set[str] = set()
        self._booting: dict[str, tuple[str, asyncio.Task[None]]] = {}
        self._watching: list[asyncio.Task[None]] = []
        self._id = ""

    async def start(self) -> None:
        """Start to poll the sources, and drop what a former process was placing."""
        self._id = await run_sync(self._store.zone_id)
        await run_sync(self._store.interrupt)
        await self._deletions.start()
        self._watching = [asyncio.create_task(each.watch()) for each in self._health]

    async def close(self) -> None:
        """Wait for the reservations that are being placed, and stop polling the sources."""
        placing = [task for _, task in self._booting.values()]
        await asyncio.gather(*placing, return_exceptions=True)
        for task in self._watching:
            task.cancel()
        self._deletions.close()

    # --- selecting

    async def select(self, request: SelectRequest) -> Selection:
        """Return the cheapest offers of all sources. Nothing is created.

        A request that comes back to this zone through a loop of zones gets no offers.
        """
        if request.request_id in self._handling:
            return Selection(left_out=(LeftOut(zone=self.name, why="the zones form a loop"),))
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
        """Return the offers with the sources' own blobs.

        :param without: names of sources to exclude.
        """
        asked = [h.source for h in self._health if h.healthy and h.source.name not in without]
        silent = [LeftOut(zone=h.source.name, why=h.why) for h in self._health if not h.healthy]
        given = share(seconds)
        passed = request.model_copy(update={"deadline": given})
        calls = {source.name: source.select(passed, deadline=given) for source in asked}
        answers = await ask_all(calls, given)
        selections = {name: each for name, each in answers.items() if isinstance(each, Selection)}
        failed = [left_out(name, e) for name, e in answers.items() if isinstance(e, Exception)]
        below = [
            left_out(name, Unreachable(f"{each.zone} below it is left out", why=each.why))
            for name, selection in selections.items()
            for each in selection.left_out
        ]
        merged = merge(request.kinds, selections)
        return merged.model_copy(update={"left_out": (*silent, *failed, *below)})

    def _sealed(self, offer: Offer) -> Offer:
        lifetime = min(offer.expires, self._settings.offer_lifetime)
        value = [offer.zone, offer.kind, offer.blob, secrets.token_hex(8)]
        blob = self._seal.seal(value, _OFFER, lifetime)
        return offer.model_copy(update={"blob": blob, "expires": lifetime})

    # --- booting

    async def boot(self, request: BootRequest) -> str:
        """Accept offers, select what they leave open, and return the id of the reservation.

        When this returns, every instance has a host, or as many as fit if the request is ``partial``.
        They are created in the background.

        :raises Conflict: if an offer was altered, is expired, is another zone's, or was accepted before;
            if another request has the same id, or this one was refused before.
        :raises NotPlaced: if there are not enough hosts; nothing is reserved then.
        """
        reservation, digest = reservation_of(request.request_id), _digest(request)
        if reservation not in self._booting:
            task = asyncio.create_task(self._boot(request, digest))
            self._booting[reservation] = digest, task
            task.add_done_callback(partial(self._booted, reservation))
        known, task = self._booting[reservation]
        if known != digest:
            raise Conflict(
                "another request has the same request id", remedy="use a new id for each request"
            )
        await asyncio.shield(task)
        return reservation

    def _booted(self, reservation: str, task: "asyncio.Task[None]") -> None:
        """Remove a task, and retrieve its exception, which nobody else may do."""
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
        """Place a reservation; if that fails, drop all of its parts."""
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
            await self._deletions.start()

    def _opened(self, offer: Offer) -> tuple[str, Offer]:
        """Return the nonce of an offer, and the offer as its source made it."""
        source, kind, blob, nonce = self._seal.open(offer.blob, _OFFER)
        if source not in self._sources or kind != offer.kind:
            raise Conflict("the offer is for something else", remedy="select again")
        return nonce, offer.model_copy(update={"zone": source, "blob": blob})

    # --- reservations

    async def reservation(self, reservation: str) -> Reservation:
        """Return a reservation with the status of each instance.

        :raises NotFound: if there is no such reservation.
        """
        states = {ReservationState.MADE, ReservationState.DELETED}
        if await run_sync(self._store.state, reservation) not in states:
            raise _no_reservation()
        parts = await run_sync(self._store.parts, reservation)
        seconds = share(self._settings.deadline)
        here = [part for part in parts if part.source in self._sources]
        calls = {p.id: self._sources[p.source].instances(p.theirs, deadline=seconds) for p in here}
        answered = await ask_all(calls, seconds)
        gone = NotFound("it is not a child of the zone any more")
        answers = [(part, answered.get(part.id, gone)) for part in parts]
        silent = {p.source: left_out(p.source, e) for p, e in answers if isinstance(e, Exception)}
        return Reservation(
            reservation_id=reservation,
            instances=tuple(chain.from_iterable(starmap(_instances, answers))),
            left_out=tuple(silent.values()),
        )

    async def delete(self, reservation: str) -> Reservation:
        """Start to delete all instances of a reservation; return it with their status.

        A child that does not answer is asked again until it does. A request for this reservation that is
        being placed, or arrives later, is refused.

        :raises NotFound: if there is no such reservation.
        """
        if not await run_sync(self._store.delete, reservation):
            raise _no_reservation()
        deletions = await self._deletions.start()
        if deletions:
            await asyncio.wait(deletions, timeout=share(self._settings.deadline) / 2)
        return await self.reservation(reservation)

    # --- what there is

    async def view(self) -> ZoneView:
        """Return the zone's capacity, with its children as they last answered."""
        own = [h for h in self._health if h.source.name == self.name]
        children = [h for h in self._health if h.source.name != self.name]
        await asyncio.gather(*(each.refresh(share(self._settings.refresh)) for each in own))
        counted = [each.capabilities(self._id) for each in self._health]
        parts = [Capabilities(zones=(self._id,)), *filter(None, counted)]
        views = tuple(child.view() for child in children)
        return ZoneView(zone=self.name, capabilities=total(parts), children=views)


def _refuse_twice(names: list[str]) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidSite(
            f"a child zone has the same name as the zone: {twice!r}", field="zone.children"
        )


def _digest(request: BootRequest) -> str:
    """Return the digest of a request, which does not depend on its deadline."""
    asked = request.model_copy(update={"deadline": None})
    return sha256(asked.model_dump_json().encode()).hexdigest()


def _no_reservation() -> NotFound:
    return NotFound("there is no such reservation")


def _instances(
    part: SourceInstances, answer: tuple[Instance, ...] | Exception
) -> Iterator[Instance]:
    """Yield the instances of a part as its source reports them; others are unknown."""
    answered = () if isinstance(answer, Exception) else answer
    reported = {each.name: (each.status, each.error) for each in answered}
    if part.state is PartState.DELETING:
        reported = {each.name: (InstanceStatus.DELETING, each.error) for each in answered}
    gone = part.state is PartState.DELETED and isinstance(answer, NotFound)
    unknown = InstanceStatus.DELETED if gone else InstanceStatus.UNKNOWN
    for name in part.names:
        status, error = reported.get(name, (unknown, ""))
        yield Instance(name=name, kind=part.kind, zone=part.source, status=status, error=error)
