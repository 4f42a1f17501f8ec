"""The site's own hosts and bare-metal nodes as a source of offers."""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from itertools import chain
from typing import Any, TypeVar

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from pydantic import ValidationError

from fabric_direct.errors import (
    Conflict,
    FabricDirectError,
    InvalidSliver,
    NotFound,
    Refused,
    Unreachable,
)
from fabric_direct.handlers.registry import handler_for
from fabric_direct.model import AUTO, NodeSliver, Outcome, Sliver, SliverRef, Status
from fabric_direct.model.bare_metal import BareMetalSliver, MachineSliver, NodeNeeds
from fabric_direct.placement.plan import Assignment, BuildPlan, Choice, Unplaced
from fabric_direct.placement.request import Needs
from fabric_direct.placement.state import HostState
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from fabric_direct.state.audit_trail import asked_by
from fabric_direct.zones.instances import Instances
from fabric_direct.zones.merging import total
from fabric_direct.zones.sealing import seal_of
from fabric_direct.zones.wire import (
    BootRequest,
    Capabilities,
    FreeDevices,
    FreeNodes,
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
Slivers = dict[str, tuple[MachineSliver, ...]]
"""By kind."""
log = logging.getLogger(__name__)

_PLACE = "place"
_AT_ONCE = 16
"""Threads that may query the hosts at once."""
_STATUS = {
    Status.DONE: InstanceStatus.DONE,
    Status.FAILED: InstanceStatus.FAILED,
    Status.REFUSED: InstanceStatus.FAILED,
    Status.PARTIAL: InstanceStatus.PARTIAL,
}


class LocalSource:
    """A :class:`~fabric_direct.zones.source.Source` that offers the site's own hosts and nodes.

    Its errors name none; the log does.
    """

    def __init__(self, site: Site, processor: HandlerProcessor) -> None:
        """Query no host yet.

        :param processor: of that site; the caller shuts it down.
        :raises InvalidSite: if the zone's key cannot be read.
        """
        self.name, self._who = site.zone_name, f"zone {site.zone_name}"
        self._site, self._processor = site, processor
        self._seal = seal_of(site.state_dir)
        self._instances = Instances(site.state_dir)
        self._limiter = CapacityLimiter(_AT_ONCE)
        self._booting: dict[str, asyncio.Task[None]] = {}

    async def resume(self) -> None:
        """Continue the creations and deletions of a former process."""
        await self._in_thread(self._resume)

    def _resume(self) -> None:
        for sliver in self._instances.pending():
            with asked_by(self._who):
                future = self._processor.create(sliver)
            future.add_done_callback(partial(self._record, sliver.id, InstanceStatus.PENDING))
        for ref in self._instances.deleting():
            self._delete(ref)

    async def capabilities(self, *, deadline: float) -> Capabilities:  # noqa: ARG002
        """Return the free capacity of the hosts that are in service, and the free nodes."""
        return await self._in_thread(self._capabilities)

    def _capabilities(self) -> Capabilities:
        parts, refusal = [], None
        for read in (self._of_hosts, self._of_nodes):
            try:
                with _anonymized():
                    parts += read()
            except FabricDirectError as error:
                refusal = error
        if refusal and not parts:
            raise refusal
        return total(parts)

    def _of_hosts(self) -> list[Capabilities]:
        if not self._site.serves_vms:
            return []
        return [_of_host(host) for host in self._processor.hosts() if host.enabled]

    def _of_nodes(self) -> list[Capabilities]:
        if not self._site.driver_for("BareMetal"):
            return []
        nodes = (
            FreeNodes(resource_class=n.resource_class, free=1) for n in self._processor.free_nodes()
        )
        return [Capabilities(nodes=tuple(nodes))]

    # --- selecting

    async def select(self, request: SelectRequest, *, deadline: float) -> Selection:  # noqa: ARG002
        """Return an offer for each instance that fits; all are placed as one batch."""
        return await self._in_thread(self._select, request)

    def _select(self, request: SelectRequest) -> Selection:
        prefix = f"s{reservation_of(request.request_id)[1:]}"
        with _anonymized():
            samples = {k.kind: self._samples(k, prefix) for k in request.kinds}
            plan = self._plan(samples)
        return self._answer(request, samples, plan)

    def _answer(self, request: SelectRequest, samples: Slivers, plan: BuildPlan) -> Selection:
        chosen = {assignment.request: assignment.chosen for assignment in plan.assignments}
        refused = {unplaced.request: unplaced.refused for unplaced in plan.unplaced}
        offers: list[Offer] = []
        shortages: list[Shortage] = []
        for kind in request.kinds:
            ids = [sliver.id for sliver in samples[kind.kind]]
            found = [self._offer(kind, chosen[id_]) for id_ in ids if id_ in chosen]
            offers += found
            if missing := kind.num_instances - len(found):
                why = next((refused[id_] for id_ in ids if id_ in refused), {})
                shortages.append(Shortage(kind=kind.kind, missing=missing, refused=why))
        offers.sort(key=lambda offer: offer.cost)
        return Selection(offers=tuple(offers), shortages=tuple(shortages))

    def _samples(self, kind: KindNeeds, prefix: str) -> tuple[MachineSliver, ...]:
        """Return slivers with the needs of a kind; none if no sliver can have them."""
        if kind.node_needs is not None:
            return _node_samples(kind, kind.node_needs, prefix)
        assert kind.needs is not None  # noqa: S101 - the model says so
        return _samples(kind, kind.needs, prefix, self._other_hosts(kind.needs))

    def _other_hosts(self, needs: Needs) -> tuple[str, ...]:
        """Return the hosts of another architecture than requested, which slivers cannot name."""
        if needs.architecture is None:
            return ()
        hosts = self._processor.hosts()
        asked = needs.architecture
        return tuple(h.name for h in hosts if asked not in (h.architectures or {asked}))

    def _plan(self, samples: Slivers) -> BuildPlan:
        """Place all slivers that fit, on hosts and on nodes.

        Where one of these does not answer, what goes to the other is placed all the same.
        """
        metal = {k: s for k, s in samples.items() if s and isinstance(s[0], BareMetalSliver)}
        vms = {kind: several for kind, several in samples.items() if kind not in metal}
        plans, refusal = list[BuildPlan](), None
        for group in (vms, metal):
            try:
                plans += [self._plan_group(group)] if any(group.values()) else []
            except FabricDirectError as error:
                log.warning("some of the requested kinds are not offered: %s", error)
                refusal = error
        if refusal and not plans:
            raise refusal
        return BuildPlan(
            assignments=tuple(each for plan in plans for each in plan.assignments),
            unplaced=tuple(each for plan in plans for each in plan.unplaced),
        )

    def _plan_group(self, samples: Slivers) -> BuildPlan:
        """Place all slivers that fit; kinds that the site cannot serve at all are left out."""
        try:
            return self._place(list(chain.from_iterable(samples.values())))
        except InvalidSliver:
            served = [several for several in samples.values() if self._serves(several[:1])]
            plan = self._place(list(chain.from_iterable(served)))
        lost = [several[0] for several in samples.values() if several and several not in served]
        unplaced = tuple(Unplaced(request=s.id, refused=self._refused(s)) for s in lost)
        return plan.model_copy(update={"unplaced": plan.unplaced + unplaced})

    def _refused(self, sliver: MachineSliver) -> dict[str, int]:
        """Return why nodes refuse what none could ever serve; nothing is known of hosts."""
        if not isinstance(sliver, BareMetalSliver):
            return {}
        try:
            told = self._processor.explain(sliver)
        except InvalidSliver:  # its image
            return {}
        return dict(Counter(node.refused_by for node in told.nodes if node.refused_by))

    def _serves(self, slivers: Sequence[MachineSliver]) -> bool:
        try:
            self._place(slivers)
        except InvalidSliver as error:
            log.info("this site cannot serve a requested kind: %s", error)
            return False
        return True

    def _place(self, slivers: Sequence[MachineSliver]) -> BuildPlan:
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
        """Claim the hosts of the offers, all or none, and start to create the instances."""
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
        with _anonymized():
            _refuse_other_types(request)
        slivers = {kind.kind: _slivers(kind, reservation) for kind in request.kinds}
        plan = BuildPlan(assignments=tuple(self._assignments(request, slivers)))
        self._instances.add(reservation, slivers)
        every = list(chain.from_iterable(slivers.values()))
        try:
            with _anonymized(), asked_by(self._who):
                futures = self._processor.build(plan, every)
        except FabricDirectError:
            self._instances.discard(reservation)
            raise
        for sliver, future in zip(every, futures, strict=True):
            future.add_done_callback(partial(self._record, sliver.id, InstanceStatus.PENDING))

    def _assignments(self, request: BootRequest, slivers: Slivers) -> Iterator[Assignment]:
        for kind in request.kinds:
            offers = [offer for offer in request.offers if offer.kind == kind.kind]
            if len(offers) != kind.num_instances:
                raise Conflict("some instances have no offer", remedy="select again")
            for sliver, offer in zip(slivers[kind.kind], offers, strict=True):
                yield Assignment(request=sliver.id, chosen=self._chosen(kind, offer))

    def _chosen(self, kind: KindSliver, offer: Offer) -> Choice:
        digest, choice = self._seal.open(offer.blob, _PLACE)
        if digest != _digest(kind.needs_of()):
            raise Conflict("the offer is for something else", remedy="select again")
        return Choice.model_validate(choice)

    def _record(self, sliver: str, was: InstanceStatus, future: "Future[Outcome]") -> None:
        """Record an outcome; one that was cancelled before it began is left to the next process."""
        if future.cancelled():
            return
        outcome = future.result()
        now = _STATUS[Status.PARTIAL if outcome.left else outcome.status]
        if (was, now) == (InstanceStatus.DELETING, InstanceStatus.DONE):
            now = InstanceStatus.DELETED
        self._instances.record(sliver, was, now, outcome.error.kind if outcome.error else "")

    # --- reservations

    async def instances(self, reservation: str, *, deadline: float) -> tuple[Instance, ...]:  # noqa: ARG002
        """Return the instances with their status."""
        found = await run_sync(self._instances.of, reservation, self.name)
        if not found:
            raise NotFound("there is no such reservation")
        return found

    async def delete(self, reservation: str, *, deadline: float) -> None:  # noqa: ARG002
        """Start to delete the instances, also those whose creation is just starting."""
        if reservation in self._booting:
            await asyncio.wait([self._booting[reservation]])
        for ref in await run_sync(self._instances.delete, reservation):
            await self._in_thread(self._delete, ref)

    def _delete(self, ref: SliverRef) -> None:
        with asked_by(self._who):
            future = self._processor.delete(ref)
        future.add_done_callback(partial(self._record, ref.id, InstanceStatus.DELETING))

    async def _in_thread(self, work: Callable[..., T], *args: Any) -> T:
        """Run ``work`` in a thread and return its result; a cancelled caller does not stop it."""
        return await run_sync(work, *args, limiter=self._limiter, abandon_on_cancel=True)


@contextmanager
def _anonymized() -> Iterator[None]:
    """Replace errors of the hosts by errors that name no host."""
    try:
        yield
    except FabricDirectError as error:
        log.warning("local hosts: %s", error)
        raise _without_names(error) from error


def _without_names(error: FabricDirectError) -> FabricDirectError:
    if isinstance(error, Conflict):
        return Conflict("the offers are not valid any more", remedy="select again")
    if isinstance(error, Refused):
        return Refused("the site cannot serve this", why=type(error).__name__, field=error.field)
    return Unreachable("its hosts cannot be used", why=type(error).__name__)


def _digest(kind: KindNeeds) -> str:
    """Return the digest of the needs that an offer is valid for.

    The order of rules does not matter. The architecture is left out: slivers cannot name one.
    """
    needs = kind.needs or kind.node_needs
    assert needs is not None  # noqa: S101 - the model says so
    asked = needs.model_dump(mode="json", exclude={"architecture"})
    if "rules" in asked:
        asked["rules"] = {
            name: sorted(value) if isinstance(value, list) else value
            for name, value in asked["rules"].items()
        }
    content = json.dumps([asked, kind.together, kind.apart], sort_keys=True)
    return sha256(content.encode()).hexdigest()


# --- slivers


def _refuse_other_types(request: BootRequest) -> None:
    """Raise InvalidSliver unless every kind has a resource type that is a VM or bare metal."""
    for kind in request.kinds:
        model: type[Sliver] = handler_for(kind.sliver.type).sliver_model
        if not issubclass(model, NodeSliver | BareMetalSliver):
            raise InvalidSliver(f"{kind.sliver.type} is not a type of nodes", field="type")


def _slivers(kind: KindSliver, reservation: str) -> tuple[MachineSliver, ...]:
    """Return the instances of a kind."""
    digits = reservation.removeprefix("r-")
    sliver, names = kind.sliver, {number: kind.name_of(number) for number in kind.numbered()}
    updates = [
        {"id": f"{sliver.id}-{digits}-{number}", "name": name} for number, name in names.items()
    ]
    if isinstance(sliver, BareMetalSliver):
        return tuple(sliver.model_copy(update=update) for update in updates)
    vms = [sliver.model_copy(update=update | {"host": AUTO}) for update in updates]
    return tuple(_related(vms, kind))


def _node_samples(kind: KindNeeds, needs: NodeNeeds, prefix: str) -> tuple[BareMetalSliver, ...]:
    """Return bare-metal slivers with the needs of a kind; none if no sliver can have them."""
    macs = (*needs.macs, *[None] * (needs.nics - len(needs.macs)))
    try:
        sample = BareMetalSliver.model_validate(
            {
                "id": f"{prefix}-{kind.kind}",
                "name": kind.kind,
                "nics": [{"id": f"nic{number}", "mac": mac} for number, mac in enumerate(macs)],
                **needs.model_dump(include={"image", "resource_class", "traits", "capacities"}),
            }
        )
    except ValidationError as error:
        log.info("this site cannot serve a requested kind: %s", error)
        return ()
    ids = [f"{sample.id}-{number}" for number in range(kind.num_instances)]
    return tuple(sample.model_copy(update={"id": own}) for own in ids)


def _samples(
    kind: KindNeeds, needs: Needs, prefix: str, exclude: tuple[str, ...]
) -> tuple[NodeSliver, ...]:
    """Return VMs with the needs of a kind; none if no sliver can have them.

    :param exclude: hosts to exclude.
    """
    try:
        sample = _sample(kind.kind, needs, prefix, exclude)
    except ValidationError as error:
        log.info("this site cannot serve a requested kind: %s", error)
        return ()
    slivers = [
        sample.model_copy(update={"id": f"{sample.id}-{number}"})
        for number in range(kind.num_instances)
    ]
    return tuple(_related(slivers, kind))


def _sample(kind: str, needs: Needs, prefix: str, exclude: tuple[str, ...]) -> NodeSliver:
    return NodeSliver.model_validate(
        {
            "id": f"{prefix}-{kind}",
            "name": kind,
            "host": AUTO,
            "owner": needs.owner,
            "placement": needs.rules.model_copy(update={"exclude_hosts": exclude}),
            "image": needs.image,
            "capacities": needs.capacities,
            "components": [
                {"id": need.component}
                | need.model_dump(exclude={"component"}, exclude_defaults=True)
                for need in needs.devices
            ],
        }
    )


def _related(slivers: Sequence[NodeSliver], kind: KindNeeds | KindSliver) -> Iterator[NodeSliver]:
    """Yield the slivers of a kind with affinity or anti-affinity to each other."""
    ids = tuple(sliver.id for sliver in slivers)
    for number, sliver in enumerate(slivers):
        rules = sliver.placement
        if kind.together:  # each with the first, and that with the second
            mate = ids[:1] if number else ids[1:2]
            rules = rules.model_copy(update={"affinity": rules.affinity + mate})
        if kind.apart:
            others = ids[:number] + ids[number + 1 :]
            rules = rules.model_copy(update={"anti_affinity": rules.anti_affinity + others})
        yield sliver.model_copy(update={"placement": rules})


# --- answers


def _of_host(host: HostState) -> Capabilities:
    devices = Counter((device.type, device.model) for device in host.devices)
    return Capabilities(
        hosts=1,
        cores=max(0.0, host.cores * host.cpu_ratio - host.cores_used),
        ram=max(0.0, host.ram * host.ram_ratio - host.ram_used),
        disk=max(0.0, host.disk * host.disk_ratio - host.disk_used),
        devices=tuple(
            FreeDevices(type=kind, model=model, free=free)
            for (kind, model), free in devices.items()
        ),
        traits=tuple(host.traits),
        architectures=tuple(host.architectures),
        images=tuple(host.images or ()),
    )
