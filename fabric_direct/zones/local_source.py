"""The site's own hosts as a source of offers."""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from typing import Any, TypeVar

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from pydantic import ValidationError

from fabric_direct.config import Site
from fabric_direct.errors import (
    Conflict,
    FabricDirectError,
    InvalidSliver,
    NotFound,
    Refused,
    Unreachable,
)
from fabric_direct.model import AUTO, NodeSliver, Outcome, SliverRef, Status
from fabric_direct.placement.plan import Assignment, BuildPlan, Choice
from fabric_direct.placement.request import DeviceNeed
from fabric_direct.placement.state import HostState
from fabric_direct.processor import HandlerProcessor
from fabric_direct.registry import handler_for
from fabric_direct.zones.instances import Instances
from fabric_direct.zones.merging import total
from fabric_direct.zones.sealing import seal_of
from fabric_direct.zones.wire import (
    BootRequest,
    Capabilities,
    DeviceCount,
    Instance,
    InstanceStatus,
    KindNeeds,
    KindSliver,
    Offer,
    Selection,
    SelectRequest,
    Shortage,
    reservation_of,
)

T = TypeVar("T")
log = logging.getLogger(__name__)

_PLACE = "place"
_AT_ONCE = 16
"""Threads that may wait for the hosts at once."""
_STATUS = {
    Status.DONE: InstanceStatus.DONE,
    Status.FAILED: InstanceStatus.FAILED,
    Status.REFUSED: InstanceStatus.FAILED,
    Status.PARTIAL: InstanceStatus.PARTIAL,
}


class OwnHosts:
    """A :class:`~fabric_direct.zones.source.Source` that is the site's own hosts.

    What its errors say names no host; the log does.
    """

    def __init__(self, site: Site, processor: HandlerProcessor) -> None:
        """Ask no host yet.

        :param processor: of that site; to be shut down by who made it.
        :raises InvalidSite: if the zone's key cannot be read.
        """
        self.name = site.zone_name
        self._site, self._processor = site, processor
        self._seal = seal_of(site.state_dir)
        self._instances = Instances(site.state_dir)
        self._limiter = CapacityLimiter(_AT_ONCE)
        self._booting: dict[str, asyncio.Task[None]] = {}

    async def resume(self) -> None:
        """Go on with what a process that is gone was making or deleting."""
        await self._in_thread(self._resume)

    def _resume(self) -> None:
        for sliver in self._instances.pending():
            self._when_made(sliver.id, self._processor.create(sliver))
        for ref in self._instances.deleting():
            self._delete(ref)

    async def capabilities(self, *, deadline: float) -> Capabilities:  # noqa: ARG002
        """Return what the hosts that are in service may still promise."""
        return await self._in_thread(self._capabilities)

    def _capabilities(self) -> Capabilities:
        with _translated():
            hosts = self._processor.hosts()
        return total(_of_host(host) for host in hosts if host.enabled)

    # --- selecting

    async def select(self, request: SelectRequest, *, deadline: float) -> Selection:  # noqa: ARG002
        """Return a place for each instance, as far as there are any, by placement as a whole."""
        return await self._in_thread(self._select, request)

    def _select(self, request: SelectRequest) -> Selection:
        begin = f"s{reservation_of(request.request_id)[1:]}"
        with _translated():
            wanted = {k.kind: _wanted(k, begin, self._unlike(k)) for k in request.kinds}
            plan = self._plan(wanted)
        chosen = {assignment.request: assignment.chosen for assignment in plan.assignments}
        refused = {unplaced.request: unplaced.refused for unplaced in plan.unplaced}
        offers = [
            self._offer(kind, chosen[sliver.id])
            for kind in request.kinds
            for sliver in wanted[kind.kind]
            if sliver.id in chosen
        ]
        shortages = [_shortage(kind, wanted[kind.kind], chosen, refused) for kind in request.kinds]
        offers.sort(key=lambda offer: offer.cost)
        return Selection(offers=tuple(offers), shortages=tuple(filter(None, shortages)))

    def _unlike(self, kind: KindNeeds) -> tuple[str, ...]:
        """Return the hosts that have not the architecture asked for, which slivers cannot name."""
        if kind.needs.architecture is None:
            return ()
        hosts = self._processor.hosts()
        asked = kind.needs.architecture
        return tuple(h.name for h in hosts if asked not in (h.architectures or {asked}))

    def _plan(self, wanted: dict[str, tuple[NodeSliver, ...]]) -> BuildPlan:
        """Place what can be; kinds that the site cannot serve at all are left out if there are any."""
        try:
            return self._place([sliver for several in wanted.values() for sliver in several])
        except InvalidSliver:
            served = [several for several in wanted.values() if self._serves(several[:1])]
            return self._place([sliver for several in served for sliver in several])

    def _serves(self, slivers: Sequence[NodeSliver]) -> bool:
        try:
            self._place(slivers)
        except InvalidSliver as error:
            log.info("a kind that a zone asks for cannot be served: %s", error)
            return False
        return True

    def _place(self, slivers: Sequence[NodeSliver]) -> BuildPlan:
        plan = self._processor.place(slivers, partial=True) if slivers else BuildPlan()
        for warning in plan.warnings:
            log.warning("%s", warning)
        return plan

    def _offer(self, kind: KindNeeds, choice: Choice) -> Offer:
        digest = _digest(kind)
        lifetime = self._site.zone.offer_lifetime
        blob = self._seal.seal([digest, choice.model_dump(mode="json")], _PLACE, lifetime)
        return Offer(kind=kind.kind, cost=choice.cost, zone=self.name, blob=blob, expires=lifetime)

    # --- booting

    async def boot(self, request: BootRequest, *, deadline: float) -> str:  # noqa: ARG002
        """Claim the places of the offers, all or none, and begin to make the instances."""
        reservation = reservation_of(request.request_id)
        if reservation not in self._booting:
            task = asyncio.create_task(self._in_thread(self._boot, reservation, request))
            self._booting[reservation] = task
            task.add_done_callback(partial(self._booted, reservation))
        await asyncio.shield(self._booting[reservation])
        return reservation

    def _booted(self, reservation: str, task: "asyncio.Task[None]") -> None:
        del self._booting[reservation]
        _ = task.cancelled() or task.exception()

    def _boot(self, reservation: str, request: BootRequest) -> None:
        if self._instances.of(reservation, self.name):
            return
        with _translated():
            _refuse_other_types(request)
        slivers = {kind.kind: _slivers(kind, reservation) for kind in request.kinds}
        plan = BuildPlan(assignments=tuple(self._assignments(request, slivers)))
        self._instances.add(reservation, slivers)
        every = [sliver for several in slivers.values() for sliver in several]
        try:
            with _translated():
                futures = self._processor.build(plan, every)
        except FabricDirectError:
            self._instances.discard(reservation)
            raise
        for sliver, future in zip(every, futures, strict=True):
            self._when_made(sliver.id, future)

    def _assignments(
        self, request: BootRequest, slivers: dict[str, list[NodeSliver]]
    ) -> Iterator[Assignment]:
        for kind in request.kinds:
            offers = [offer for offer in request.offers if offer.kind == kind.kind]
            if len(offers) != kind.num_instances:
                raise Conflict("there is not one offer for each instance", remedy="select again")
            for sliver, offer in zip(slivers[kind.kind], offers, strict=True):
                yield Assignment(request=sliver.id, chosen=self._chosen(kind, offer))

    def _chosen(self, kind: KindSliver, offer: Offer) -> Choice:
        digest, choice = self._seal.open(offer.blob, _PLACE)
        if digest != _digest(kind.needed()):
            raise Conflict("the offer is for something else", remedy="select again")
        return Choice.model_validate(choice)

    def _when_made(self, sliver: str, future: "Future[Outcome]") -> None:
        future.add_done_callback(partial(_tell, self._instances.made, sliver, _STATUS))

    # --- reservations

    async def instances(self, reservation: str, *, deadline: float) -> tuple[Instance, ...]:  # noqa: ARG002
        """Return how far the instances are."""
        found = await run_sync(self._instances.of, reservation, self.name)
        if not found:
            raise NotFound("there is no such reservation")
        return found

    async def delete(self, reservation: str, *, deadline: float) -> None:  # noqa: ARG002
        """Have the instances deleted, also those that are just being begun."""
        if reservation in self._booting:
            await asyncio.wait([self._booting[reservation]])
        for ref in await run_sync(self._instances.delete, reservation):
            await self._in_thread(self._delete, ref)

    def _delete(self, ref: SliverRef) -> None:
        statuses = _STATUS | {Status.DONE: InstanceStatus.DELETED}
        future = self._processor.delete(ref)
        future.add_done_callback(partial(_tell, self._instances.removed, ref.id, statuses))

    async def _in_thread(self, work: Callable[..., T], *args: Any) -> T:
        """Return what ``work`` does, in a thread; if nobody waits any more, it goes on all the same."""
        return await run_sync(work, *args, limiter=self._limiter, abandon_on_cancel=True)


def _tell(
    record: Callable[[str, InstanceStatus, str], None],
    sliver: str,
    statuses: dict[Status, InstanceStatus],
    future: "Future[Outcome]",
) -> None:
    """Record an outcome; what was not begun is left to the next process."""
    if not future.cancelled():
        outcome = future.result()
        record(sliver, statuses[outcome.status], outcome.error.kind if outcome.error else "")


@contextmanager
def _translated() -> Iterator[None]:
    """Turn errors of the hosts into those that name none."""
    try:
        yield
    except FabricDirectError as error:
        log.warning("own hosts: %s", error)
        raise _without_names(error) from error


def _without_names(error: FabricDirectError) -> FabricDirectError:
    if isinstance(error, Conflict):
        return Conflict("what was offered is gone", remedy="select again")
    if isinstance(error, Refused):
        return Refused("the site cannot serve this", why=type(error).__name__, field=error.field)
    return Unreachable("its hosts cannot be used", why=type(error).__name__)


def _digest(kind: KindNeeds) -> str:
    """Return the digest of what an offer is for.

    The order of rules says nothing; an architecture only narrows the choice, and slivers name none.
    """
    asked = kind.needs.model_dump(mode="json", exclude={"architecture"})
    asked["rules"] = {
        name: sorted(value) if isinstance(value, list) else value
        for name, value in asked["rules"].items()
    }
    told = json.dumps([asked, kind.together, kind.apart], sort_keys=True)
    return sha256(told.encode()).hexdigest()


# --- slivers


def _refuse_other_types(request: BootRequest) -> None:
    """Refuse resource types that there are not, or that are no nodes."""
    for kind in request.kinds:
        model: type[SliverRef] = handler_for(kind.sliver.type).sliver_model
        if not issubclass(model, NodeSliver):
            raise InvalidSliver(f"{kind.sliver.type} is no type of nodes", field="type")


def _slivers(kind: KindSliver, reservation: str) -> list[NodeSliver]:
    """Return the instances of a kind."""
    digits = reservation.removeprefix("r-")
    slivers = [
        kind.sliver.model_copy(
            update={
                "id": f"{kind.sliver.id}-{digits}-{number}",
                "name": kind.name_of(number),
                "host": AUTO,
            }
        )
        for number in kind.numbered()
    ]
    return list(_related(slivers, together=kind.together, apart=kind.apart))


def _wanted(kind: KindNeeds, begin: str, unlike: tuple[str, ...]) -> tuple[NodeSliver, ...]:
    """Return slivers that need what a kind needs; none if no sliver can.

    :param unlike: hosts that will not do.
    """
    try:
        return tuple(_examples(kind, begin, unlike))
    except ValidationError as error:
        log.info("a kind that a zone asks for cannot be served: %s", error)
        return ()


def _examples(kind: KindNeeds, begin: str, unlike: tuple[str, ...]) -> Iterator[NodeSliver]:
    needs = kind.needs
    example = NodeSliver.model_validate(
        {
            "id": f"{begin}-{kind.kind}",
            "name": kind.kind,
            "host": AUTO,
            "owner": needs.owner,
            "placement": needs.rules.model_copy(update={"exclude_hosts": unlike}),
            "image": needs.image,
            "capacities": needs.capacities,
            "components": [_component(need) for need in needs.devices],
        }
    )
    slivers = [
        example.model_copy(update={"id": f"{example.id}-{number}"})
        for number in range(kind.num_instances)
    ]
    return _related(slivers, together=kind.together, apart=kind.apart)


def _component(need: DeviceNeed) -> dict[str, Any]:
    named = need.model_dump(exclude={"component"}, exclude_defaults=True)
    return {"id": need.component, **named}


def _related(slivers: Sequence[NodeSliver], *, together: bool, apart: bool) -> Iterator[NodeSliver]:
    """Return slivers that must share a host, or must not."""
    for number, sliver in enumerate(slivers):
        rules = sliver.placement
        mate = slivers[0 if number else 1 : 1 if number else 2] if together else ()
        others = [other for other in slivers if other is not sliver] if apart else ()
        related = rules.model_copy(
            update={
                "affinity": rules.affinity + tuple(other.id for other in mate),
                "anti_affinity": rules.anti_affinity + tuple(other.id for other in others),
            }
        )
        yield sliver.model_copy(update={"placement": related})


# --- answers


def _shortage(
    kind: KindNeeds,
    slivers: Sequence[NodeSliver],
    chosen: dict[str, Choice],
    refused: dict[str, dict[str, int]],
) -> Shortage | None:
    found = sum(sliver.id in chosen for sliver in slivers)
    if found == kind.num_instances:
        return None
    why = next((refused[sliver.id] for sliver in slivers if sliver.id in refused), {})
    return Shortage(kind=kind.kind, missing=kind.num_instances - found, refused=why)


def _of_host(host: HostState) -> Capabilities:
    devices = Counter((device.type, device.model) for device in host.devices)
    return Capabilities(
        hosts=1,
        cores=max(0.0, host.cores * host.cpu_ratio - host.cores_used),
        ram=max(0.0, host.ram * host.ram_ratio - host.ram_used),
        disk=max(0.0, host.disk * host.disk_ratio - host.disk_used),
        devices=tuple(
            DeviceCount(type=kind, model=model, free=free)
            for (kind, model), free in devices.items()
        ),
        traits=tuple(host.traits),
        architectures=tuple(host.architectures),
        images=tuple(host.images or ()),
    )
