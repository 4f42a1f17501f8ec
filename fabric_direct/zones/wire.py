"""Requests and answers between zones.

None of them names a host or a node: an offer says what an instance costs; only the zone that made the
offer can read from its sealed blob where the instance would run.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from fabric_direct.model import AUTO, Frozen, ModelName, Name, NodeSliver, refuse_twice
from fabric_direct.model.bare_metal import (
    BareMetalSliver,
    MachineSliver,
    NodeNeeds,
    ResourceClass,
)
from fabric_direct.placement.plan import Cost
from fabric_direct.placement.request import Needs
from fabric_direct.placement.sliver_requests import request_of

MOST_INSTANCES = 1000
"""Instances of all kinds in one request."""
MOST_BYTES = 4 * 1024 * 1024
"""Length of a request or an answer. A thousand offers with blobs of 2 KiB take half of it."""

RequestId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9-]{8,64}$")]
"""Chosen by the first client and passed on, so that a zone recognizes a request in a loop of zones."""
ReservationId = Annotated[str, StringConstraints(pattern=r"^r-[0-9a-f]{16}$")]
Kind = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9-]{0,15}$")]
Blob = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_=-]+$", max_length=16_384)]
"""Encrypted by the zone that made it; only that zone can read it."""
ZoneId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]
"""A random id that a zone gives itself; its name is chosen by its parents."""
Count = Annotated[int, Field(ge=1, le=MOST_INSTANCES, strict=True)]
Seconds = Annotated[float, Field(gt=0, le=600, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
# An instance's id and name extend those of its kind's sliver by -<16 digits>-<number> and -<number>.
_LONGEST_ID, _LONGEST_NAME = 63 - 22, 63 - 5


def reservation_of(request_id: str) -> str:
    """Return the id of the reservation that every zone makes for a boot request with this id.

    A client that gets no answer can therefore still delete the reservation.
    """
    return f"r-{hashlib.sha256(request_id.encode()).hexdigest()[:16]}"


_HOST_NAMED = "names a host; hosts are not known outside their zone"
_NODE_NAMED = "names a node; nodes are not known outside their zone"


def _without_host(needs: Needs | None) -> Needs | None:
    if needs is not None and (needs.host is not None or needs.rules.exclude_hosts):
        raise ValueError(_HOST_NAMED)
    return needs


def _without_node(needs: NodeNeeds | None) -> NodeNeeds | None:
    if needs is not None and needs.node is not None:
        raise ValueError(_NODE_NAMED)
    return needs


class _Instances(Frozen):
    """Instances of one kind."""

    kind: Kind
    num_instances: Count = 1
    together: bool = False
    """Whether all instances of the kind must share a host. Bare-metal nodes are not shared."""
    apart: bool = False
    """Whether no two instances of the kind may share a host."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if self.together and self.apart:
            raise ValueError("apart: excludes 'together'")
        return self


class KindNeeds(_Instances):
    """Instances of one kind, and the needs of each: of VMs, or of bare-metal slivers."""

    needs: Needs | None = None
    """Of VMs."""
    node_needs: NodeNeeds | None = None
    """Of bare-metal slivers."""

    _no_host = field_validator("needs")(_without_host)
    _no_node = field_validator("node_needs")(_without_node)

    @model_validator(mode="after")
    def _either(self) -> Self:
        if (self.needs is None) == (self.node_needs is None):
            raise ValueError("needs: either this or node_needs must be there")
        _refuse_together(self, metal=self.node_needs is not None)
        return self


def _refuse_together(kind: _Instances, *, metal: bool) -> None:
    if metal and kind.together:
        raise ValueError("together: each bare-metal sliver has a node of its own")


def _refuse_unsound(kinds: Sequence[_Instances]) -> None:
    refuse_twice("kinds: kind", [kind.kind for kind in kinds])
    instances = sum(kind.num_instances for kind in kinds)
    if instances > MOST_INSTANCES:
        raise ValueError(f"kinds: {instances} instances are more than {MOST_INSTANCES}")


class SelectRequest(Frozen):
    """Ask for offers. Nothing is created."""

    request_id: RequestId
    kinds: Annotated[tuple[KindNeeds, ...], Field(min_length=1, max_length=100)]
    deadline: Seconds | None = None
    """Seconds for the answer; the zone's own limit if absent."""

    @model_validator(mode="after")
    def _sound(self) -> Self:
        _refuse_unsound(self.kinds)
        return self


class Offer(Frozen):
    """One instance could be had."""

    kind: Kind
    cost: Cost
    """Lower is better. Comparable between zones with the same weights."""
    zone: Name
    """The source of the answering zone that made it: the zone itself or a child."""
    blob: Blob
    expires: Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
    """Seconds from now."""


class Shortage(Frozen):
    """Instances of a kind that fit on no host or node of a zone."""

    kind: Kind
    missing: Count
    refused: dict[str, int] = {}
    """By filter: the number of hosts that it was the first to refuse, for one of the instances. Of
    bare-metal nodes by the field that rules them out, or ``condition`` for those that are not free."""


class LeftOut(Frozen):
    """A zone that was skipped, or whose answer was not used."""

    zone: Name
    why: str


class Selection(Frozen):
    """Offers, the cheapest first."""

    offers: tuple[Offer, ...] = ()
    """At most as many of each kind as were asked for; all of them can be accepted together."""
    shortages: tuple[Shortage, ...] = ()
    left_out: tuple[LeftOut, ...] = ()


class KindSliver(_Instances):
    """Instances of one kind, and the sliver of each."""

    sliver: MachineSliver
    """Its ``id`` and ``name`` are the prefixes of those of the instances; it names no host or node."""
    numbers: Annotated[tuple[Count, ...], Field(max_length=MOST_INSTANCES)] = ()
    """Suffixes of the instances' ids and names; 1, 2, … if absent."""

    @field_validator("sliver")
    @classmethod
    def _can_be_many(cls, sliver: NodeSliver | BareMetalSliver) -> NodeSliver | BareMetalSliver:
        if isinstance(sliver, BareMetalSliver):
            if sliver.node is not None:
                raise ValueError(_NODE_NAMED)
        elif sliver.host not in {None, AUTO} or sliver.placement.exclude_hosts:
            raise ValueError(_HOST_NAMED)
        if len(sliver.id) > _LONGEST_ID or len(sliver.name) > _LONGEST_NAME:
            raise ValueError(f"id or name is longer than {_LONGEST_ID} or {_LONGEST_NAME}")
        return sliver

    @model_validator(mode="after")
    def _numbered(self) -> Self:
        if self.numbers and len(self.numbers) != self.num_instances:
            raise ValueError("numbers: must have one number for each instance")
        if len(set(self.numbers)) != len(self.numbers):
            raise ValueError("numbers: has a number twice")
        _refuse_together(self, metal=isinstance(self.sliver, BareMetalSliver))
        return self

    def numbered(self) -> tuple[int, ...]:
        """Return the numbers of the instances."""
        return self.numbers or tuple(range(1, self.num_instances + 1))

    def name_of(self, number: int) -> str:
        """Return the name of an instance."""
        return f"{self.sliver.name}-{number}"

    def needs_of(self, num_instances: int | None = None) -> KindNeeds:
        """Return the needs of all instances, or of ``num_instances`` of them."""
        needs = _needs_of(self.sliver)
        return KindNeeds(
            kind=self.kind,
            num_instances=self.num_instances if num_instances is None else num_instances,
            needs=needs if isinstance(needs, Needs) else None,
            node_needs=needs if isinstance(needs, NodeNeeds) else None,
            together=self.together,
            apart=self.apart,
        )


def _needs_of(sliver: NodeSliver | BareMetalSliver) -> Needs | NodeNeeds:
    if isinstance(sliver, BareMetalSliver):
        return sliver.needs
    return request_of(sliver, volumes=True).needs


class BootRequest(Frozen):
    """Ask for instances to be created."""

    request_id: RequestId
    """A zone answers requests with the same id with the same reservation."""
    kinds: Annotated[tuple[KindSliver, ...], Field(min_length=1, max_length=100)]
    offers: Annotated[tuple[Offer, ...], Field(max_length=MOST_INSTANCES)] = ()
    """The offers to accept. The zone itself selects hosts for instances without an offer, except for
    kinds with ``together`` or ``apart`` that have some offers."""
    partial: bool = False
    """Whether to create as many as fit; all or nothing otherwise."""
    deadline: Seconds | None = None
    """Seconds for the answer, which comes when all instances have a host, before they are created."""

    @model_validator(mode="after")
    def _sound(self) -> Self:
        _refuse_unsound(self.kinds)
        refuse_twice("kinds: sliver.id", [kind.sliver.id for kind in self.kinds])
        refuse_twice("kinds: sliver.name", [kind.sliver.name for kind in self.kinds])
        wanted = {kind.kind: kind.num_instances for kind in self.kinds}
        for kind, number in Counter(offer.kind for offer in self.offers).items():
            if number > wanted.get(kind, 0):
                raise ValueError(f"offers: has more of {kind} than are asked for")
        return self


class Booted(Frozen):
    """The instances are being created."""

    reservation_id: ReservationId


class InstanceStatus(StrEnum):
    """The status of an instance."""

    PENDING = "pending"
    DONE = "done"
    FAILED = "failed"
    """Nothing of it is left."""
    PARTIAL = "partial"
    """Something of it is left; the log of the zone says what."""
    DELETING = "deleting"
    DELETED = "deleted"
    UNKNOWN = "unknown"
    """The child that has it does not answer."""


class Instance(Frozen):
    """One instance of a reservation."""

    name: Name
    kind: Kind
    zone: Name
    """The source of the answering zone that has it."""
    status: InstanceStatus
    error: str = ""
    """Class of the error, for example ``QuotaExceeded``; its message could name hosts."""


class Reservation(Frozen):
    """Instances that were booted by one request."""

    reservation_id: ReservationId
    instances: tuple[Instance, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    """Children that do not answer now."""


class FreeDevices(Frozen):
    """Free devices of one type and model."""

    type: Name
    model: ModelName | None = None
    free: Annotated[int, Field(ge=0)]


class FreeNodes(Frozen):
    """Free bare-metal nodes of one resource class."""

    resource_class: ResourceClass | None = None
    free: Annotated[int, Field(ge=0)]


class Capabilities(Frozen):
    """The free capacity of a zone and the zones below it, in total."""

    zones: tuple[ZoneId, ...] = ()
    """The zones that are included. A zone does not count a child that includes the zone itself."""
    hosts: Annotated[int, Field(ge=0)] = 0
    cores: Amount = 0
    """Free virtual CPUs, with the allocation ratio applied."""
    ram: Amount = 0
    """Free GiB, with the allocation ratio applied."""
    disk: Amount = 0
    """Free GiB, with the allocation ratio applied."""
    devices: tuple[FreeDevices, ...] = ()
    nodes: tuple[FreeNodes, ...] = ()
    """Free bare-metal nodes; they count as no hosts."""
    traits: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    images: tuple[str, ...] = ()


class ChildView(Frozen):
    """A child zone, as it last answered."""

    zone: Name
    heard: bool
    """Whether it answered recently; other children are skipped."""
    age: Annotated[float, Field(ge=0)] | None = None
    """Seconds since its last answer; None if it never answered."""
    why: str = ""
    """Why it is skipped."""
    capabilities: Capabilities | None = None


class ZoneView(Frozen):
    """A zone, its capacity and its children."""

    zone: Name
    capabilities: Capabilities
    children: tuple[ChildView, ...] = ()


class Problem(Frozen):
    """The reason for an error."""

    error: str
    """Class of the error."""
    message: str
    field: str = ""
    shortages: tuple[Shortage, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
