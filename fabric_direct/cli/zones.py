"""The ``zone`` commands: serve the site as a zone, look at zones, manage reservations."""

import asyncio
import os
from typing import TYPE_CHECKING

import click

from fabric_direct.cli import show
from fabric_direct.cli.metrics_endpoint import Address, metrics_option, served
from fabric_direct.cli.options import (
    INTERRUPTED,
    Settings,
    log_to_stderr,
    pass_settings,
    print_json,
    shared_options,
)
from fabric_direct.cli.running import site_processor
from fabric_direct.cli.tables import print_table, table_options
from fabric_direct.cli.zone_client import with_zone, zone_options
from fabric_direct.site.extras import require

if TYPE_CHECKING:
    from fabric_direct.site.config import ChildZone, Site
    from fabric_direct.zones.wire import Capabilities, ChildView, ZoneView

_LOOK = 10.0
"""Seconds to wait for a zone or a host when its capabilities are read."""


# --- serving


@click.group()
def zone() -> None:
    """Offer the hosts of sites to others: serve a zone, list zones, manage reservations."""


@zone.command(short_help="Serve the site as a zone.")
@metrics_option
@shared_options
@pass_settings
def serve(settings: Settings, metrics_at: "Address | None") -> None:
    """Serve the site as a zone, until SIGTERM or SIGINT.

    After the signal the server accepts no new requests and finishes what it has begun; a second signal
    leaves that to the next server. Address, tokens and child zones are configured in site.yaml: zone.
    The OpenAPI document is at /openapi.json.
    """
    require("zones")
    from fabric_direct.zones.server import ZoneServer  # noqa: PLC0415 - see the package

    log_to_stderr(settings)
    site = settings.site()
    with served(metrics_at, settings):
        ended = ZoneServer(site).run(lambda url: _tell_started(settings, site, url))
    if not ended:
        click.echo("Stopped; the next server finishes what is unfinished.", err=True)
        os._exit(INTERRUPTED)


def _tell_started(settings: Settings, site: "Site", url: str) -> None:
    children = list(site.zone.children)
    if settings.as_json:
        print_json({"zone": site.zone_name, "url": url, "children": children})
        return
    hosts = "its own hosts" if site.zone.own_hosts else "no hosts of its own"
    below = f"and the zones {', '.join(children)}" if children else "and no child zones"
    show.say(show.console(), f"zone {site.zone_name} listens on {url}, offers {hosts}, {below}.")


# --- looking


_HEADERS = (
    *("ZONE", "STATE", "HOSTS", "CORES", "RAM GiB", "DISK GiB", "DEVICES", "NODES"),
    *("ARCHITECTURES", "IMAGES", "WHY"),
)


@zone.command("list", short_help="List the capacity of a zone and of its children.")
@zone_options()
@table_options(_HEADERS)
@pass_settings
def list_(settings: Settings, at: "ChildZone | None") -> None:
    """List the capacity of the site's zone in total and of each of its children.

    The site's hosts and its children are asked now. With --zone, a running zone reports the last answers
    of its children.
    """
    log_to_stderr(settings)
    view = with_zone(at, lambda a: a.view(deadline=_LOOK)) if at else _looked(settings)
    rows = [_row(f"{view.zone} (total)", "answers", view.capabilities)]
    rows += [
        _row(child.zone, "answers" if child.heard else "silent", child.capabilities, child.why)
        for child in view.children
    ]
    print_table(settings, _HEADERS, rows, data=view.model_dump(mode="json"), nothing="")


def _looked(settings: Settings) -> "ZoneView":
    """Return the site's zone as it would be right after its start."""
    require("zones")
    from fabric_direct.zones.merging import total  # noqa: PLC0415 - see the package
    from fabric_direct.zones.wire import ZoneView  # noqa: PLC0415

    site = settings.site()
    own = [_own(settings)] if site.zone.own_hosts else []
    children = asyncio.run(_children(site))
    below = [child.capabilities for child in children if child.capabilities]
    return ZoneView(zone=site.zone_name, capabilities=total([*own, *below]), children=children)


def _own(settings: Settings) -> "Capabilities":
    from fabric_direct.zones.local_source import LocalSource  # noqa: PLC0415 - see the package

    with site_processor(settings) as processor:
        return asyncio.run(LocalSource(processor.site, processor).capabilities(deadline=_LOOK))


async def _children(site: "Site") -> "tuple[ChildView, ...]":
    from fabric_direct.zones.child import ChildSource  # noqa: PLC0415 - see the package
    from fabric_direct.zones.source_health import SourceHealth  # noqa: PLC0415

    children = [ChildSource(name, child) for name, child in site.zone.children.items()]
    watched = [SourceHealth(child, _LOOK) for child in children]
    await asyncio.gather(*(each.refresh(_LOOK) for each in watched))
    await asyncio.gather(*(child.close() for child in children))
    return tuple(each.view() for each in watched)


def _row(name: str, state: str, has: "Capabilities | None", why: str = "") -> list[str]:
    if has is None:
        return [name, state, *[""] * 8, why]
    devices = ", ".join(f"{d.free} {d.type} {d.model or ''}".rstrip() for d in has.devices)
    nodes = ", ".join(f"{n.free} {n.resource_class or ''}".rstrip() for n in has.nodes)
    sizes = (has.hosts, has.cores, has.ram, has.disk)
    amounts = (f"{size:.1f}".removesuffix(".0") for size in sizes)
    return [
        *(name, state, *amounts, devices, nodes),
        *(", ".join(has.architectures), ", ".join(has.images), why),
    ]


# --- reservations


@zone.group(short_help="Show or delete a reservation.")
def reservation() -> None:
    """Show or delete a reservation: instances that a zone creates for one request."""


_INSTANCE = ("INSTANCE", "KIND", "ZONE", "STATUS", "ERROR")


@reservation.command("show", short_help="Show the status of the instances.")
@click.argument("reservation_id", metavar="ID")
@zone_options(required=True)
@table_options(_INSTANCE)
@pass_settings
def show_(settings: Settings, reservation_id: str, at: "ChildZone") -> None:
    """Show the status of each instance of a reservation, and which zone makes it."""
    from fabric_direct.cli import reservations  # noqa: PLC0415 - see the package

    log_to_stderr(settings)
    reservations.show_one(settings, reservation_id, at, _INSTANCE)


@reservation.command(short_help="Delete the instances.")
@click.argument("reservation_id", metavar="ID")
@zone_options(required=True)
@shared_options
@pass_settings
def delete(settings: Settings, reservation_id: str, at: "ChildZone") -> None:
    """Delete all instances of a reservation, and wait until nothing of them is left."""
    from fabric_direct.cli import reservations  # noqa: PLC0415 - see the package

    log_to_stderr(settings)
    reservations.delete(settings, reservation_id, at)


COMMANDS: tuple[click.Command, ...] = (zone,)
