"""What zones say to each other.

No host is named in any of it: an offer says what an instance costs, and its sealed blob where it would
go, to the zone that made it alone.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from fabric_direct.model import AUTO, Frozen, Name, NodeSliver, refuse_twice
from fabric_direct.placement.plan import Cost
from fabric_direct.placement.request import Needs
from fabric_direct.placement.sliver_requests import request_of

MOST_INSTANCES = 1000
"""In one request, all kinds together."""
MOST_BYTES = 4 * 1024 * 1024
"""Of a request or an answer. A thousand offers, each with a blob of 2 KiB, are half of it."""

RequestId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9-]{8,64}$")]
"""Made by who asks first, and passed on: by it a zone knows a request that comes around to it again."""
ReservationId = Annotated[str, StringConstraints(pattern=r"^r-[0-9a-f]{16}$")]
Kind = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9-]{0,15}$")]
Blob = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_=-]+$", max_length=16_384)]
"""Sealed by the zone that made it, with its own key, and of use to it alone."""
ZoneId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]
"""Made by a zone for itself, at random; its name is what its parents call it."""
Count = Annotated[int, Field(ge=1, le=MOST_INSTANCES, strict=True)]
Number = Annotated[int, Field(ge=1, le=MOST_INSTANCES, strict=True)]
Seconds = Annotated[float, Field(gt=0, le=600, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
# What an instance's id and name have more than those of their kind's sliver: -<16 digits>-<number>.
_LONGEST_ID, _LONGEST_NAME = 63 - 22, 63 - 5


def reservation_of(request_id: str) -> str:
    """Return the id of the reservation that any zone makes for a boot request with this id.

    So that who gets no answer can still have it deleted.
    """
    return f"r-{hashlib.sha256(request_id.encode()).hexdigest()[:16]}"


def _without_host(needs: Needs) -> Needs:
    if needs.host is not None or needs.rules.exclude_hosts:
        raise ValueError("names a host; hosts have no names outside their zone")
    return needs


class _Instances(Frozen):
    """Instances of one kind."""

    kind: Kind
    num_instances: Count = 1
    together: bool = False
    """Whether all of the kind must share a host."""
    apart: bool = False
    """Whether no two of the kind may share a host."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if self.together and self.apart:
            raise ValueError("apart: they cannot be together and apart")
        return self


class KindNeeds(_Instances):
    """Instances of one kind, and what each needs."""

    needs: Needs

    _no_host = field_validator("needs")(_without_host)


def _refuse_unsound(kinds: Sequence[_Instances]) -> None:
    refuse_twice("kinds: kind", [kind.kind for kind in kinds])
    instances = sum(kind.num_instances for kind in kinds)
    if instances > MOST_INSTANCES:
        raise ValueError(f"kinds: {instances} instances are more than {MOST_INSTANCES}")


class SelectRequest(Frozen):
    """What could be had, and at what cost? Nothing is made."""

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
    """Lower is better. Comparable between zones that weigh alike."""
    zone: Name
    """Which of the sources of the answering zone it is from: its own name, or a child's."""
    blob: Blob
    expires: Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
    """Seconds from now."""


class Shortage(Frozen):
    """Instances of a kind that fit nowhere in a zone."""

    kind: Kind
    missing: Count
    refused: dict[str, int] = {}
    """By filter: how many hosts it was the first to refuse, for one of them."""


class LeftOut(Frozen):
    """A zone that was not asked, or whose answer does not count."""

    zone: Name
    why: str


class Selection(Frozen):
    """The answer: offers, the cheapest first."""

    offers: tuple[Offer, ...] = ()
    """At most as many of each kind as were asked for; all of them can be taken up together."""
    shortages: tuple[Shortage, ...] = ()
    left_out: tuple[LeftOut, ...] = ()


class KindSliver(_Instances):
    """Instances of one kind, and what each shall be."""

    sliver: NodeSliver
    """Its ``id`` and ``name`` are the beginnings of those of the instances; its host is left open."""
    numbers: Annotated[tuple[Number, ...], Field(max_length=MOST_INSTANCES)] = ()
    """Those that the instances' ids and names end with; counted from 1 if absent."""

    @field_validator("sliver")
    @classmethod
    def _can_be_many(cls, sliver: NodeSliver) -> NodeSliver:
        if sliver.host not in {None, AUTO} or sliver.placement.exclude_hosts:
            raise ValueError("names a host; hosts have no names outside their zone")
        if len(sliver.id) > _LONGEST_ID or len(sliver.name) > _LONGEST_NAME:
            raise ValueError(f"id or name is longer than {_LONGEST_ID} or {_LONGEST_NAME}")
        return sliver

    @model_validator(mode="after")
    def _numbered(self) -> Self:
        if self.numbers and len(self.numbers) != self.num_instances:
            raise ValueError("numbers: must be one for each instance")
        if len(set(self.numbers)) != len(self.numbers):
            raise ValueError("numbers: has one twice")
        return self

    def numbered(self) -> tuple[int, ...]:
        """Return the numbers of the instances."""
        return self.numbers or tuple(range(1, self.num_instances + 1))

    def name_of(self, number: int) -> str:
        """Return the name of an instance."""
        return f"{self.sliver.name}-{number}"

    def needed(self, num_instances: int | None = None) -> KindNeeds:
        """Return what is to be selected for them, or for some of them."""
        return KindNeeds(
            kind=self.kind,
            num_instances=self.num_instances if num_instances is None else num_instances,
            needs=request_of(self.sliver, volumes=True).needs,
            together=self.together,
            apart=self.apart,
        )


class BootRequest(Frozen):
    """Make them."""

    request_id: RequestId
    """Asked twice with the same one, a zone answers with the same reservation."""
    kinds: Annotated[tuple[KindSliver, ...], Field(min_length=1, max_length=100)]
    offers: Annotated[tuple[Offer, ...], Field(max_length=MOST_INSTANCES)] = ()
    """Those that are taken up. The zone selects by itself what they leave open; not of a kind that must
    share a host, or must not, if they have any of it."""
    partial: bool = False
    """Whether as many as fit will do; all or nothing if not."""
    deadline: Seconds | None = None
    """Seconds for the answer, which comes when all have a place and before they are made."""

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
    """They are being made."""

    reservation_id: ReservationId


class InstanceStatus(StrEnum):
    """How far an instance is."""

    PENDING = "pending"
    DONE = "done"
    FAILED = "failed"
    """Nothing of it is left."""
    PARTIAL = "partial"
    """Something of it is left; the zone's operator is told what."""
    DELETING = "deleting"
    DELETED = "deleted"
    UNKNOWN = "unknown"
    """The child that makes it does not answer."""


class Instance(Frozen):
    """One instance of a reservation."""

    name: Name
    kind: Kind
    zone: Name
    """Which of the sources of the answering zone makes it."""
    status: InstanceStatus
    error: str = ""
    """The class of the error, for example ``QuotaExceeded``: its words may name hosts."""


class Reservation(Frozen):
    """What was booted together."""

    reservation_id: ReservationId
    instances: tuple[Instance, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    """Children that do not answer now."""


class DeviceCount(Frozen):
    """Devices of one type and model that a zone has free."""

    type: Name
    model: Name | None = None
    free: Annotated[int, Field(ge=0)]


class Capabilities(Frozen):
    """What a zone has in all, with its children: not which host has it."""

    zones: tuple[ZoneId, ...] = ()
    """The zones that are counted. One that finds itself among those of a child does not count it."""
    hosts: Annotated[int, Field(ge=0)] = 0
    cores: Amount = 0
    """That may still be promised, as ``ram`` and ``disk``."""
    ram: Amount = 0
    """GiB."""
    disk: Amount = 0
    """GiB."""
    devices: tuple[DeviceCount, ...] = ()
    traits: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    images: tuple[str, ...] = ()


class ChildView(Frozen):
    """A child, as its parent last heard of it."""

    zone: Name
    heard: bool
    """Whether it is asked: it answered not long ago."""
    age: Annotated[float, Field(ge=0)] | None = None
    """Seconds since it answered; None: never."""
    why: str = ""
    """Why it is not asked."""
    capabilities: Capabilities | None = None


class ZoneView(Frozen):
    """A zone: what it has, and the children that it knows."""

    zone: Name
    capabilities: Capabilities
    children: tuple[ChildView, ...] = ()


class Problem(Frozen):
    """Why something was refused."""

    error: str
    """Class of the error."""
    message: str
    field: str = ""
    shortages: tuple[Shortage, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
