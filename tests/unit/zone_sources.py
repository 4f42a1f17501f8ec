"""What the tests of zones share: sources in memory that do, or do not do, as they are told."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fabric_direct.errors import Conflict, NotFound
from fabric_direct.site.config import Site
from fabric_direct.zones.wire import (
    BootRequest,
    Capabilities,
    Instance,
    InstanceStatus,
    KindNeeds,
    LeftOut,
    Offer,
    Selection,
    SelectRequest,
    Shortage,
    reservation_of,
)

SIZE = {"core": 1, "ram": 1, "disk": 1}
NEEDS = {"capacities": SIZE, "image": "tiny"}


def site(path: Path, name: str = "PARENT", **zone: Any) -> Site:
    usual = {"deadline": 5.0, "refresh": 60.0}
    return Site(site=name, state_dir=path / name, zone=usual | zone)


def kind(name: str = "small", number: int = 1, **values: Any) -> dict[str, Any]:
    return {"kind": name, "num_instances": number, "needs": NEEDS} | values


def asked(*kinds: dict[str, Any], **values: Any) -> SelectRequest:
    return SelectRequest.model_validate({"request_id": "request-1", "kinds": kinds} | values)


def sliver_kind(name: str = "small", number: int = 1, **values: Any) -> dict[str, Any]:
    sliver = {"id": f"s-{name}", "name": name, **NEEDS}
    return {"kind": name, "num_instances": number, "sliver": sliver} | values


def wanted(*kinds: dict[str, Any], **values: Any) -> BootRequest:
    return BootRequest.model_validate({"request_id": "request-1", "kinds": kinds} | values)


@dataclass
class FakeSource:
    """Free places by kind, in memory."""

    name: str
    places: dict[str, list[int]] = field(default_factory=dict)
    """Kind to the costs of the places that are free."""
    zones: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    hangs: set[str] = field(default_factory=set)
    """Methods that never answer."""
    raises: dict[str, Exception] = field(default_factory=dict)
    """What methods raise."""
    asked: list[str] = field(default_factory=list)
    """Methods that were called."""
    deadlines: list[float] = field(default_factory=list)
    booted: dict[str, tuple[Instance, ...]] = field(default_factory=dict)
    """By reservation; of a deleted one all are."""
    requests: list[BootRequest] = field(default_factory=list)
    on_boot: Callable[[], object] = lambda: None

    async def _called(self, method: str, deadline: float) -> None:
        self.asked.append(method)
        self.deadlines.append(deadline)
        if method in self.hangs:
            await asyncio.sleep(3600)
        if method in self.raises:
            raise self.raises[method]

    async def capabilities(self, *, deadline: float) -> Capabilities:
        await self._called("capabilities", deadline)
        return Capabilities(zones=self.zones, hosts=1, cores=4)

    async def select(self, request: SelectRequest, *, deadline: float) -> Selection:
        await self._called("select", deadline)
        return Selection(
            offers=tuple(o for each in request.kinds for o in self._offers(each)),
            shortages=tuple(s for each in request.kinds if (s := self._shortage(each))),
            left_out=self.left_out,
        )

    def _offers(self, asked: KindNeeds) -> Iterable[Offer]:
        for number, cost in enumerate(self.places.get(asked.kind, [])[: asked.num_instances]):
            blob = f"{self.name}-{asked.kind}-{cost}-{number}"
            yield Offer(kind=asked.kind, cost=cost, zone=self.name, blob=blob, expires=60)

    def _shortage(self, asked: KindNeeds) -> Shortage | None:
        missing = asked.num_instances - len(self.places.get(asked.kind, []))
        if missing <= 0:
            return None
        return Shortage(kind=asked.kind, missing=missing, refused={"capacity": 1})

    async def boot(self, request: BootRequest, *, deadline: float) -> str:
        self.requests.append(request)
        self.on_boot()
        await self._called("boot", deadline)
        taken = [(offer.kind, offer.cost) for offer in request.offers]
        if any(cost not in self.places.get(kind, []) for kind, cost in taken):
            raise Conflict("gone")
        for kind_name, cost in taken:
            self.places[kind_name].remove(cost)
        reservation = reservation_of(request.request_id)
        self.booted[reservation] = tuple(
            Instance(
                name=each.name_of(number),
                kind=each.kind,
                zone=self.name,
                status=InstanceStatus.DONE,
            )
            for each in request.kinds
            for number in each.numbered()
        )
        return reservation

    async def instances(self, reservation: str, *, deadline: float) -> tuple[Instance, ...]:
        await self._called("instances", deadline)
        if reservation not in self.booted:
            raise NotFound("none")
        return self.booted[reservation]

    async def delete(self, reservation: str, *, deadline: float) -> None:
        await self._called("delete", deadline)
        if reservation not in self.booted:
            raise NotFound("none")
        self.booted[reservation] = tuple(
            i.model_copy(update={"status": InstanceStatus.DELETED})
            for i in self.booted[reservation]
        )

    @property
    def alive(self) -> list[str]:
        """Names of the instances that are there."""
        every = (i for several in self.booted.values() for i in several)
        return sorted(i.name for i in every if i.status is InstanceStatus.DONE)
