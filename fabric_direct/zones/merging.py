"""Merge the offers of all sources into one list, independent of the order of the answers."""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain

from fabric_direct.zones.wire import (
    Capabilities,
    FreeDevices,
    FreeNodes,
    KindNeeds,
    Offer,
    Selection,
    Shortage,
)


def merge(kinds: tuple[KindNeeds, ...], answers: Mapping[str, Selection]) -> Selection:
    """Return the cheapest offers of all sources: of each kind at most as many as were asked for.

    Ties are broken by the name of the source, then by its own order. A kind whose instances must share a
    host is taken from a single source: the cheapest of those that offer all instances, else the one that
    offers most. Kinds that were not asked for are ignored.

    :param answers: by the name of the source, which becomes the offers' ``zone``.
    """
    offered = [(kind, _take(kind, answers)) for kind in kinds]
    taken = [offer for _, offers in offered for offer in offers]
    shortages = [_shortage(kind, len(offers), answers) for kind, offers in offered]
    return Selection(
        offers=tuple(sorted(taken, key=_rank)), shortages=tuple(filter(None, shortages))
    )


def _rank(offer: Offer) -> tuple[int, str]:
    return offer.cost, offer.zone


def _take(kind: KindNeeds, answers: Mapping[str, Selection]) -> list[Offer]:
    by_source = [_of_kind(kind, source, answers[source]) for source in sorted(answers)]
    offers = _fullest(by_source) if kind.together else chain.from_iterable(by_source)
    return sorted(offers, key=_rank)[: kind.num_instances]


def _of_kind(kind: KindNeeds, source: str, answer: Selection) -> list[Offer]:
    offers = sorted((o for o in answer.offers if o.kind == kind.kind), key=lambda o: o.cost)
    return [o.model_copy(update={"zone": source}) for o in offers[: kind.num_instances]]


def _fullest(by_source: list[list[Offer]]) -> list[Offer]:
    return min(
        by_source, key=lambda offers: (-len(offers), sum(o.cost for o in offers)), default=[]
    )


def _shortage(kind: KindNeeds, found: int, answers: Mapping[str, Selection]) -> Shortage | None:
    if found >= kind.num_instances:
        return None
    refused: Counter[str] = Counter()
    for shortage in chain.from_iterable(answer.shortages for answer in answers.values()):
        refused.update(shortage.refused if shortage.kind == kind.kind else {})
    missing = kind.num_instances - found
    return Shortage(kind=kind.kind, missing=missing, refused=dict(sorted(refused.items())))


def total(parts: Iterable[Capabilities]) -> Capabilities:
    """Return the sum of capabilities; a zone that is reached by two ways counts twice."""
    parts = tuple(parts)
    devices: Counter[tuple[str, str | None]] = Counter()
    for device in chain.from_iterable(part.devices for part in parts):
        devices[device.type, device.model] += device.free
    nodes: Counter[str | None] = Counter()
    for each in chain.from_iterable(part.nodes for part in parts):
        nodes[each.resource_class] += each.free
    return Capabilities(
        zones=_union(part.zones for part in parts),
        hosts=sum(part.hosts for part in parts),
        cores=sum(part.cores for part in parts),
        ram=sum(part.ram for part in parts),
        disk=sum(part.disk for part in parts),
        devices=tuple(
            FreeDevices(type=kind, model=model, free=free)
            for (kind, model), free in sorted(
                devices.items(), key=lambda d: (d[0][0], d[0][1] or "")
            )
        ),
        nodes=tuple(
            FreeNodes(resource_class=name, free=free)
            for name, free in sorted(nodes.items(), key=lambda n: n[0] or "")
        ),
        traits=_union(part.traits for part in parts),
        architectures=_union(part.architectures for part in parts),
        images=_union(part.images for part in parts),
    )


def _union(parts: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(sorted(set(chain.from_iterable(parts))))
