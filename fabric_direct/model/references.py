"""Which slivers name which: a sliver is made after those that it names, and removed before them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from fabric_direct.errors import InvalidSliver
from fabric_direct.model.base import refuse_twice
from fabric_direct.model.networks import NetworkSliver, VNicPortsSliver
from fabric_direct.model.services import NetworkService
from fabric_direct.model.vm import (
    Component,
    Interface,
    NodeSliver,
    SharedNic,
    SliverRef,
    SmartNic,
    VNic,
)

Needs = Mapping[str, Sequence[str]]
"""The slivers that each sliver needs, by its id."""


def interfaces_of(component: Component) -> Iterator[tuple[str, Interface]]:
    """Yield each interface of a component, with its field."""
    if isinstance(component, VNic | SharedNic):
        yield "interface", component.interface
    elif isinstance(component, SmartNic):
        for number, interface in enumerate(component.interfaces):
            yield f"interfaces[{number}]", interface


def named_by(sliver: SliverRef) -> frozenset[str]:
    """Return the ids of the slivers that a sliver names."""
    if isinstance(sliver, NodeSliver):
        return frozenset(i.service.id for i in sliver.interfaces() if i.service)
    if isinstance(sliver, NetworkService):
        return frozenset(i.attach.sliver for i in sliver.interfaces if i.attach)
    return frozenset(sliver.servers() if isinstance(sliver, VNicPortsSliver) else ())


def needs(slivers: Iterable[SliverRef], known: Needs | None = None) -> dict[str, tuple[str, ...]]:
    """Return which others of these slivers each of them needs.

    One needs those that it names by id, and networks that are slivers also by name.

    :param known: what slivers need beside what they say.
    :raises InvalidSliver: if one is given twice, or some need each other in a circle; they are named.
    """
    slivers = tuple(slivers)
    try:
        refuse_twice("sliver", [sliver.id for sliver in slivers])
    except ValueError as error:
        raise InvalidSliver(str(error), field="id") from None
    there = {sliver.id: sliver for sliver in slivers}
    networks = {s.name: s.id for s in there.values() if isinstance(s, NetworkSliver)}
    found = {
        sliver.id: tuple(
            sorted(
                (
                    named_by(sliver)
                    | _networks_of(sliver, networks)
                    | {*(known or {}).get(sliver.id, ())}
                )
                & there.keys()
            )
        )
        for sliver in there.values()
    }
    _refuse_circle(found)
    return found


def _networks_of(sliver: SliverRef, networks: Mapping[str, str]) -> frozenset[str]:
    names = [vnic.network for vnic in sliver.vnics()] if isinstance(sliver, NodeSliver) else []
    names += [sliver.network] if isinstance(sliver, VNicPortsSliver) else []
    return frozenset(networks[name] for name in names if name in networks)


def _refuse_circle(found: Needs) -> None:
    try:
        TopologicalSorter(found).prepare()
    except CycleError as error:
        circle = " → ".join(reversed(error.args[1]))
        raise InvalidSliver(
            f"slivers name each other in a circle: {circle}",
            remedy="stitch each pair by one of both: 'service' in the node, or 'attach' in the service",
        ) from error
