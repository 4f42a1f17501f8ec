"""Translate slivers to requests, and choices back to slivers."""

from collections.abc import Iterable
from math import ceil
from typing import Any

from fabric_direct.drivers.contract import ImageNeeds
from fabric_direct.errors import InvalidSliver
from fabric_direct.model import (
    AUTO,
    Capacities,
    Component,
    NodeSliver,
    PciComponent,
    PlacementRules,
    SharedNic,
)
from fabric_direct.placement.plan import Choice
from fabric_direct.placement.request import DeviceNeed, Needs, Request
from fabric_direct.placement.state import FreeDevice

_MOST_DISK = 1_048_576
"""GiB; the largest disk that a request may have."""


def request_of(
    sliver: NodeSliver, image: ImageNeeds | None = None, *, volumes: bool = False
) -> Request:
    """Return the request of a sliver that is not on a host yet.

    :param image: the needs of its image, which are added to the sliver's own.
    :param volumes: whether new volumes use disk of its host, as they do without a cloud.
    :raises InvalidSliver: if it excludes the host that it names.
    """
    image, host = image or ImageNeeds(), None if sliver.host == AUTO else sliver.host
    if host in sliver.placement.exclude_hosts:
        raise InvalidSliver(f"{host} is the requested host", field="placement.exclude_hosts")
    needs = Needs(
        owner=sliver.owner,
        capacities=_size(sliver, image, volumes=volumes),
        image=sliver.image,
        architecture=image.architecture,
        devices=tuple(map(_need, sliver.devices())),
        host=host,
        rules=_rules(sliver.placement, image),
    )
    return Request(id=sliver.id, needs=needs)


def request_there(sliver: NodeSliver, host: str) -> Request:
    """Return the request of a sliver that is on a host, for its devices without functions."""
    needs = Needs(
        owner=sliver.owner,
        capacities=sliver.capacities,
        image=sliver.image,
        devices=tuple(_need(device) for device in sliver.devices() if not device.bdf),
        host=host,
        rules=PlacementRules(same_numa_node=sliver.placement.same_numa_node),
    )
    return Request(id=sliver.id, needs=needs)


def _size(sliver: NodeSliver, image: ImageNeeds, *, volumes: bool) -> Capacities:
    has = sliver.capacities
    data = sum(s.size or 0 for s in sliver.volumes()) if volumes else 0
    return Capacities(
        core=has.core,
        ram=max(has.ram, ceil(image.ram / 1024)),
        disk=min(max(has.disk, image.disk) + data, _MOST_DISK),
    )


def _need(device: PciComponent) -> DeviceNeed:
    vf = device if isinstance(device, SharedNic) and not device.bdf else None
    return DeviceNeed(
        component=device.id,
        type=device.type,
        model=device.model,
        bdf=device.bdf,
        uplink=vf.uplink if vf else None,
        vepa=vf.vepa if vf else False,
    )


def _rules(rules: PlacementRules, image: ImageNeeds) -> PlacementRules:
    required = {*rules.required_traits, *image.required_traits}
    forbidden = {*rules.forbidden_traits, *image.forbidden_traits}
    return rules.model_copy(
        update={
            "required_traits": tuple(sorted(required)),
            "forbidden_traits": tuple(sorted(forbidden)),
        }
    )


def placed(sliver: NodeSliver, choice: Choice, devices: Iterable[FreeDevice] = ()) -> NodeSliver:
    """Return a sliver with the chosen host and the functions of its devices.

    :param devices: the host's devices; a component without a model gets the model of its device, which
        may select another driver.
    :raises InvalidSliver: if the choice has other functions for a component than it names, or none for a
        component that names none.
    """
    models = {device.functions: device.model for device in devices}
    return _remade(
        sliver, choice.host, [_chosen(component, choice, models) for component in sliver.components]
    )


def _chosen(component: Component, choice: Choice, models: dict[Any, str | None]) -> Component:
    functions = choice.devices.get(component.id, ())
    if not isinstance(component, PciComponent) or (component.bdf and not functions):
        return component
    if not functions or component.bdf not in {(), functions}:
        said = f"chose {', '.join(map(str, functions)) or 'no function'} for {component.id}"
        raise InvalidSliver(f"the plan {said}, which does not fit it", field="components")
    model = component.model or models.get(functions)
    return component.model_copy(update={"bdf": functions, "model": model})


def as_known(sliver: NodeSliver, known: NodeSliver) -> NodeSliver:
    """Return a sliver with the host and functions that were chosen before, where it leaves them open.

    :param known: the sliver of the server's stamp or of the journal. Components are matched by id and
        type; one without a model also gets the model. If it is for another host than the sliver names,
        the sliver is returned unchanged.
    """
    if sliver.host not in {AUTO, None, known.host} and known.host is not None:
        return sliver
    former = {c.id: c for c in known.components if isinstance(c, PciComponent)}
    host = known.host if sliver.host in {AUTO, None} else sliver.host
    return _remade(sliver, host, [_known(c, former.get(c.id)) for c in sliver.components])


def _known(component: Component, former: PciComponent | None) -> Component:
    if not isinstance(component, PciComponent) or component.bdf or former is None:
        return component
    if former.type != component.type or component.model not in {None, former.model}:
        return component
    return component.model_copy(update={"bdf": former.bdf, "model": former.model})


def _remade(sliver: NodeSliver, host: str | None, components: list[Component]) -> NodeSliver:
    """Return a sliver with another host and components, validated again."""
    update = {"host": host, "components": tuple(components)}
    return type(sliver).model_validate(sliver.model_copy(update=update).model_dump())
