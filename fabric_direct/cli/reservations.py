"""What is asked of a running zone: offers, instances, how far they are, and their end."""

import asyncio
import secrets
import time
from collections.abc import Collection
from typing import TYPE_CHECKING

import click

from fabric_direct.cli import show
from fabric_direct.cli.options import (
    FAILED,
    PARTLY_DONE,
    Settings,
    log_to_stderr,
    pass_settings,
    print_json,
    shared_options,
)
from fabric_direct.cli.zone_client import with_zone, zone_options
from fabric_direct.errors import InvalidSliver, NotFound

if TYPE_CHECKING:
    from fabric_direct.config import ChildZone
    from fabric_direct.placement.batch_request import BatchRequest
    from fabric_direct.zones.client import ZoneClient
    from fabric_direct.zones.wire import (
        BootRequest,
        Instance,
        KindSliver,
        Reservation,
        Selection,
        SelectRequest,
        Shortage,
    )

_CHOICE = 620.0
"""Seconds that are waited for a selection or a boot. How long it may take the zone itself says; none may
take longer than 600."""
_ANSWER = 60.0
"""Seconds that are waited for any other answer."""
_PAUSE = 1.0
"""Seconds between two looks at a reservation."""
_LONGEST = 1800.0
"""Seconds after which a reservation is not waited for any more."""
_MOVING = frozenset({"pending", "deleting", "unknown"})


# --- placing


def place(
    settings: Settings, wanted: "BatchRequest", at: "ChildZone", *, boot: bool, partial: bool
) -> None:
    """Show what a zone offers for a request, and have it made if asked for.

    Leaves with the exit code that fits.
    """
    kinds = _kinds(wanted)
    selection = with_zone(at, lambda zone: _select(zone, kinds))
    enough = not selection.shortages or (partial and bool(selection.offers))
    if not settings.as_json:
        _show_selection(selection)
    if not boot or not enough:
        if settings.as_json:
            print_json(selection.model_dump(mode="json"))
        click.get_current_context().exit(0 if enough else FAILED)
    _boot(settings, at, _boot_request(kinds, selection, partial=partial))


def _kinds(wanted: "BatchRequest") -> "tuple[KindSliver, ...]":
    """Return what is wanted as a zone is asked for it; a kind is called like its sliver.

    :raises InvalidSliver: if a zone could not be asked for it.
    """
    from pydantic import ValidationError  # noqa: PLC0415 - see the package

    from fabric_direct.zones.wire import KindSliver  # noqa: PLC0415

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
            remedy="leave its host open; its id is the name of its kind: 16 letters, digits and '-'",
            field="slivers",
        ) from error


async def _select(zone: "ZoneClient", kinds: "tuple[KindSliver, ...]") -> "Selection":
    from fabric_direct.zones.wire import Selection  # noqa: PLC0415 - see the package

    request = _select_request(kinds)
    return await zone.ask("POST", "/zones/select", Selection, deadline=_CHOICE, body=request)


def _select_request(kinds: "tuple[KindSliver, ...]") -> "SelectRequest":
    from fabric_direct.zones.wire import SelectRequest  # noqa: PLC0415 - see the package

    needs = tuple(kind.needs_of() for kind in kinds)
    return SelectRequest(request_id=secrets.token_hex(16), kinds=needs)


def _boot_request(
    kinds: "tuple[KindSliver, ...]", selection: "Selection", *, partial: bool
) -> "BootRequest":
    from fabric_direct.zones.wire import BootRequest  # noqa: PLC0415 - see the package

    return BootRequest(
        request_id=secrets.token_hex(16),
        kinds=kinds,
        offers=selection.offers,
        partial=partial,
    )


def _boot(settings: Settings, at: "ChildZone", request: "BootRequest") -> None:
    """Have the offers made, and wait until all are."""
    booted = with_zone(at, lambda zone: _booted(zone, request))
    if not settings.as_json:
        show.say(show.console(), f"\nreservation {booted}")
    reservation = with_zone(at, lambda zone: _waited(zone, booted, settings))
    _tell(settings, reservation, wanted="done")


async def _booted(zone: "ZoneClient", request: "BootRequest") -> str:
    from fabric_direct.zones.wire import Booted  # noqa: PLC0415 - see the package

    booted = await zone.ask("POST", "/zones/boot", Booted, deadline=_CHOICE, body=request)
    return booted.reservation_id


# --- reservations


@click.group(short_help="Show or delete what a zone has made.")
def reservation() -> None:
    """Show or delete what a zone was asked to make."""


@reservation.command("show", short_help="Say how far the instances are.")
@click.argument("reservation_id", metavar="ID")
@zone_options(required=True)
@shared_options
@pass_settings
def show_(settings: Settings, reservation_id: str, at: "ChildZone") -> None:
    """Say how far the instances of a reservation are, and which zone makes each."""
    log_to_stderr(settings)
    _show(settings, with_zone(at, lambda asked: _read(asked, reservation_id)))


@reservation.command(short_help="Delete the instances.")
@click.argument("reservation_id", metavar="ID")
@zone_options(required=True)
@shared_options
@pass_settings
def delete(settings: Settings, reservation_id: str, at: "ChildZone") -> None:
    """Delete all instances of a reservation, and wait until nothing of them is left."""
    log_to_stderr(settings)

    async def deleted(asked: "ZoneClient") -> "Reservation":
        await asked.send("DELETE", _path(reservation_id), deadline=_ANSWER)
        return await _waited(asked, reservation_id, settings)

    found = with_zone(at, deleted)
    _tell(settings, found, wanted="deleted")


async def _read(zone: "ZoneClient", reservation_id: str) -> "Reservation":
    from fabric_direct.zones.wire import Reservation  # noqa: PLC0415 - see the package

    return await zone.ask("GET", _path(reservation_id), Reservation, deadline=_ANSWER)


def _path(reservation_id: str) -> str:
    """Return where a reservation is.

    :raises NotFound: if none can be called so.
    """
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415 - see the package

    from fabric_direct.zones.wire import ReservationId  # noqa: PLC0415

    try:
        return f"/reservations/{TypeAdapter(ReservationId).validate_python(reservation_id)}"
    except ValidationError as error:
        raise NotFound(f"no reservation {reservation_id!r}", why="ids are like r-01ab…") from error


async def _waited(zone: "ZoneClient", reservation_id: str, settings: Settings) -> "Reservation":
    """Return a reservation when nothing of it moves any more, or after a long time; tell of changes."""
    told: set[Instance] = set()
    end = time.monotonic() + _LONGEST
    while True:
        found = await _read(zone, reservation_id)
        if not settings.as_json:
            _tell_new(found.instances, told)
        moving = any(each.status.value in _MOVING for each in found.instances)
        if not moving or time.monotonic() > end:
            return found
        await asyncio.sleep(_PAUSE)


def _tell_new(instances: "Collection[Instance]", told: "set[Instance]") -> None:
    """Print a line for each instance whose status is another than when it was last told."""
    for each in instances:
        if each not in told:
            line = f"  {each.name:<16} {each.status.value:<9} {each.zone} {each.error}".rstrip()
            show.say(show.console(), line, show.style_of(each.status.value))
    told.update(instances)


def _tell(settings: Settings, found: "Reservation", *, wanted: str) -> None:
    """Print a reservation that has come to its end, and leave with the exit code that fits."""
    if settings.as_json:
        print_json(found.model_dump(mode="json"))
    right = sum(each.status.value == wanted for each in found.instances)
    every = len(found.instances)
    if not settings.as_json:
        show.say(show.console(), f"{right} of {every} are {wanted}.")
    click.get_current_context().exit(0 if right == every else PARTLY_DONE if right else FAILED)


# --- for people


def _show_selection(selection: "Selection") -> None:
    out, err = show.console(), show.console(stderr=True)
    if selection.offers:
        rows = [[o.kind, str(o.cost), o.zone, f"{o.expires:.0f}"] for o in selection.offers]
        show.table(out, ("KIND", "COST", "ZONE", "EXPIRES s"), rows)
    for shortage in selection.shortages:
        show.say(err, _short(shortage), "red")
    for left_out in selection.left_out:
        show.say(err, f"{left_out.zone} is left out: {left_out.why}", "yellow")


def _short(shortage: "Shortage") -> str:
    counts = ", ".join(f"{name} refuses {hosts} hosts" for name, hosts in shortage.refused.items())
    return f"{shortage.kind}: {shortage.missing} too few: {counts or 'there is no host'}"


def _show(settings: Settings, found: "Reservation") -> None:
    if settings.as_json:
        print_json(found.model_dump(mode="json"))
        return
    out = show.console()
    rows = [[i.name, i.kind, i.zone, i.status.value, i.error] for i in found.instances]
    show.table(out, ("INSTANCE", "KIND", "ZONE", "STATUS", "ERROR"), rows)
    for left_out in found.left_out:
        show.say(out, f"{left_out.zone} does not answer: {left_out.why}", "yellow")
