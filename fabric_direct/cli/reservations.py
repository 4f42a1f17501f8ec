"""Ask a running zone for offers and instances, and wait for instances to be made or deleted.

This module imports the zones' libraries; the commands import it when they run.
"""

import asyncio
import secrets
import time
from collections.abc import Collection, Sequence

import click
from pydantic import TypeAdapter, ValidationError

from fabric_direct.cli import lost_output, show
from fabric_direct.cli.options import FAILED, PARTLY_DONE, Settings, named_by_arguments, print_json
from fabric_direct.cli.tables import print_table
from fabric_direct.cli.zone_client import with_zone
from fabric_direct.errors import InvalidSliver, NotFound
from fabric_direct.placement.batch_request import BatchRequest
from fabric_direct.placement.refusals import refusals, refusals_of_nodes
from fabric_direct.site.config import ChildZone
from fabric_direct.zones.client import ZoneClient
from fabric_direct.zones.wire import (
    BootRequest,
    Instance,
    KindSliver,
    Reservation,
    ReservationId,
    Selection,
    SelectRequest,
    Shortage,
)

_CHOICE = 620.0
"""Seconds to wait for a selection or a boot; the zone's own limit is at most 600."""
_ANSWER = 60.0
"""Seconds to wait for any other answer."""
_PAUSE = 1.0
"""Seconds between two requests for the state of a reservation."""
_LONGEST = 1800.0
"""Seconds to wait for the instances of a reservation."""
_MOVING = frozenset({"pending", "deleting", "unknown"})


# --- placing


def place(
    settings: Settings, wanted: BatchRequest, at: ChildZone, *, boot: bool, partial: bool
) -> None:
    """Show what a zone offers for a request, create the instances if ``boot``, and exit."""
    kinds = _kinds(wanted)
    needs = tuple(kind.needs_of() for kind in kinds)
    request = SelectRequest(request_id=secrets.token_hex(16), kinds=needs)
    selection = with_zone(at, lambda zone: zone.select(request, deadline=_CHOICE))
    enough = not selection.shortages or (partial and bool(selection.offers))
    if not settings.as_json:
        metal = {kind.kind for kind in needs if kind.node_needs is not None}
        _show_selection(selection, metal)
    if not boot or not enough:
        if settings.as_json:
            print_json(selection.model_dump(mode="json"))
        click.get_current_context().exit(0 if enough else FAILED)
    _boot(settings, at, kinds, selection, partial=partial)


def _kinds(wanted: BatchRequest) -> tuple[KindSliver, ...]:
    """Return the request in the form that zones take; a kind has the name of its sliver.

    :raises InvalidSliver: if zones do not take it.
    """
    try:
        return tuple(
            KindSliver(
                kind=several.sliver.id,
                num_instances=several.count or 1,
                sliver=several.sliver,
                together=several.together,
                apart=several.apart,
            )
            for several in wanted.slivers
        )
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise InvalidSliver(
            "a zone cannot be asked for this sliver",
            why=f"{'.'.join(map(str, first['loc']))}: {first['msg']}",
            remedy="leave its host or node open; its id is the name of its kind: "
            "16 letters, digits and '-'",
            field="slivers",
        ) from error


def _boot(
    settings: Settings,
    at: ChildZone,
    kinds: tuple[KindSliver, ...],
    selection: Selection,
    *,
    partial: bool,
) -> None:
    """Accept the offers, and wait until the instances are created."""
    request = BootRequest(
        request_id=secrets.token_hex(16), kinds=kinds, offers=selection.offers, partial=partial
    )
    booted = with_zone(at, lambda zone: zone.boot(request, deadline=_CHOICE))
    lost_output.note([f"reservation {booted}"])
    if not settings.as_json:
        show.say(show.console(), f"\nreservation {booted}")
    reservation = with_zone(at, lambda zone: _waited(zone, booted, settings))
    _tell(settings, reservation, wanted="done")


# --- reservations


def show_one(
    settings: Settings, reservation_id: str, at: ChildZone, columns: Sequence[str]
) -> None:
    """Print a reservation with the status of each instance.

    :param columns: those of the instances' table.
    """
    with named_by_arguments():
        known = _checked(reservation_id)
        found = with_zone(at, lambda zone: zone.reservation(known, deadline=_ANSWER))
    rows = [[i.name, i.kind, i.zone, i.status.value, i.error] for i in found.instances]
    data = found.model_dump(mode="json")
    print_table(settings, columns, rows, data=data, nothing="No instances.")
    for left_out in found.left_out:
        said = f"{left_out.zone} does not answer: {left_out.why}"
        show.say(show.console(stderr=True), said, "yellow")


def delete(settings: Settings, reservation_id: str, at: ChildZone) -> None:
    """Delete a reservation, wait until nothing of it is left, and exit."""
    with named_by_arguments():
        known = _checked(reservation_id)
        with_zone(at, lambda zone: zone.delete(known, deadline=_ANSWER))
    lost_output.note([f"reservation {known}: its deletion has begun"])
    left = with_zone(at, lambda zone: _waited(zone, known, settings))
    _tell(settings, left, wanted="deleted")


def _checked(reservation_id: str) -> str:
    """Return an id; raise NotFound if no reservation can have it."""
    try:
        return TypeAdapter[str](ReservationId).validate_python(reservation_id)
    except ValidationError as error:
        raise NotFound(f"no reservation {reservation_id!r}", why="ids are like r-01ab…") from error


async def _waited(zone: ZoneClient, reservation_id: str, settings: Settings) -> Reservation:
    """Poll a reservation until all instances are settled or time is up; print changes."""
    told: set[Instance] = set()
    end = time.monotonic() + _LONGEST
    while True:
        found = await zone.reservation(reservation_id, deadline=_ANSWER)
        if not settings.as_json:
            _tell_new(found.instances, told)
        moving = any(each.status.value in _MOVING for each in found.instances)
        if not moving or time.monotonic() > end:
            return found
        await asyncio.sleep(_PAUSE)


def _tell_new(instances: Collection[Instance], told: set[Instance]) -> None:
    """Print a line for each instance whose status has changed."""
    for each in instances:
        if each not in told:
            line = f"  {each.name:<16} {each.status.value:<9} {each.zone} {each.error}".rstrip()
            show.say(show.console(), line, show.style_of(each.status.value))
    told.update(instances)


def _tell(settings: Settings, found: Reservation, *, wanted: str) -> None:
    """Print a reservation, and exit with 0 if all instances have the wanted status."""
    right = sum(each.status.value == wanted for each in found.instances)
    every = len(found.instances)
    code = 0 if right == every else PARTLY_DONE if right else FAILED
    told = f"{right} of {every} are {wanted}."
    lost_output.note([f"reservation {found.reservation_id}: {told}"], code)
    if settings.as_json:
        print_json(found.model_dump(mode="json"))
    else:
        show.say(show.console(), told)
    click.get_current_context().exit(code)


# --- for people


def _show_selection(selection: Selection, metal: Collection[str]) -> None:
    """Print offers and shortages.

    :param metal: the kinds that are bare metal.
    """
    out, err = show.console(), show.console(stderr=True)
    if selection.offers:
        rows = [[o.kind, str(o.cost), o.zone, f"{o.expires:.0f}"] for o in selection.offers]
        show.table(out, ("KIND", "COST", "ZONE", "EXPIRES s"), rows)
    for shortage in selection.shortages:
        show.say(err, _short(shortage, of_nodes=shortage.kind in metal), "red")
    for left_out in selection.left_out:
        show.say(err, f"{left_out.zone} is left out: {left_out.why}", "yellow")


def _short(shortage: Shortage, *, of_nodes: bool) -> str:
    said = refusals_of_nodes(shortage.refused) if of_nodes else refusals(shortage.refused)
    none = f"there is no {'node' if of_nodes else 'host'}"
    return f"{shortage.kind}: {shortage.missing} too few: {'; '.join(said) or none}"
