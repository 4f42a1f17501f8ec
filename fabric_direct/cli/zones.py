"""The commands for zones: to serve one, and to look at one."""

import asyncio
import importlib.util
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fabric_direct.cli import show
from fabric_direct.cli.options import (
    INTERRUPTED,
    Settings,
    log_to_stderr,
    pass_settings,
    print_json,
    shared_options,
)
from fabric_direct.errors import Refused

if TYPE_CHECKING:
    from fabric_direct.config import ChildZone, Site
    from fabric_direct.zones.client import ZoneClient
    from fabric_direct.zones.wire import Capabilities, ChildView, ZoneView

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

_FILE = click.Path(path_type=Path, dir_okay=False)
_LIBRARIES = ("cryptography", "fastapi", "httpx", "uvicorn")
_LOOK = 10.0
"""Seconds for a look at a zone."""


def require_libraries() -> None:
    """Return if the libraries that zones need are installed.

    :raises Refused: if one is not.
    """
    missing = [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        raise Refused(
            f"zones need what is not installed: {', '.join(missing)}",
            remedy="install fabric-direct[zones]",
        )


def zone_options(*, required: bool = False) -> Callable[[F], F]:
    """Return what adds the options that say which zone is asked, and how."""

    def add(command: F) -> F:
        for option in (
            click.option("--ca-file", type=_FILE, help="PEM: who may have signed its certificate."),
            click.option(
                "--token-file", type=_FILE, help="The token to show it, on the first line."
            ),
            click.option(
                "--zone", metavar="URL", required=required, help="The running zone that is asked."
            ),
        ):
            command = option(command)
        return command

    return add


def access(url: str, token_file: Path | None, ca_file: Path | None) -> "ChildZone":
    """Return how a zone is reached.

    :raises Refused: if the address is none, or a library is missing.
    """
    require_libraries()
    from pydantic import ValidationError  # noqa: PLC0415 - see the package

    from fabric_direct.config import ChildZone  # noqa: PLC0415

    try:
        return ChildZone(url=url, token_file=token_file, ca_file=ca_file)
    except ValidationError as error:
        raise Refused(
            f"{url!r} is no zone's address", remedy="give it as https://host:port", field="zone"
        ) from error


def with_zone(at: "ChildZone", ask: "Callable[[ZoneClient], Coroutine[Any, Any, T]]") -> T:
    """Return what a zone answers."""
    from fabric_direct.zones.client import ZoneClient  # noqa: PLC0415 - see the package

    async def run() -> T:
        client = ZoneClient(at.url, at)
        try:
            return await ask(client)
        finally:
            await client.close()

    return asyncio.run(run())


# --- serving


@click.group(short_help="Serve the site as a zone.")
def zone() -> None:
    """Serve the site as a zone: others may ask what it could have, and have it made."""


@zone.command(short_help="Serve the site as a zone.")
@shared_options
@pass_settings
def serve(settings: Settings) -> None:
    """Serve the site as a zone, until SIGTERM or SIGINT.

    Then nothing new is taken on, and what is being made is finished; a second signal leaves it to the
    next server. The address, who may ask, and the zones below are in site.yaml: zone. The OpenAPI
    document is at /openapi.json.
    """
    require_libraries()
    from fabric_direct.zones.server import serve as serve_zone  # noqa: PLC0415 - see the package

    log_to_stderr(settings)
    site = settings.site()
    if not serve_zone(site, lambda url: _tell_started(settings, site, url)):
        click.echo("Left; the next server finishes what is unfinished.", err=True)
        os._exit(INTERRUPTED)


def _tell_started(settings: Settings, site: "Site", url: str) -> None:
    children = list(site.zone.children)
    if settings.as_json:
        print_json({"zone": site.zone_name, "url": url, "children": children})
        return
    hosts = "its own hosts" if site.zone.own_hosts else "no hosts of its own"
    below = f"and the zones {', '.join(children)}" if children else "and no zone below"
    show.say(show.console(), f"zone {site.zone_name} listens on {url}, offers {hosts}, {below}.")


# --- looking


@click.command(short_help="Show what a zone and those below have.")
@zone_options()
@shared_options
@pass_settings
def zones(
    settings: Settings, zone: str | None, token_file: Path | None, ca_file: Path | None
) -> None:
    """Show what the site's zone has in all, and which zones are below it.

    The site's hosts and its children are asked now. With --zone, a running zone says what it last heard.
    """
    log_to_stderr(settings)
    view = _asked(access(zone, token_file, ca_file)) if zone else _looked(settings.site())
    if settings.as_json:
        print_json(view.model_dump(mode="json"))
        return
    rows = [_row(f"{view.zone} (in all)", "answers", view.capabilities)]
    rows += [_child_row(child) for child in view.children]
    show.table(show.console(), _HEADERS, rows)


def _asked(at: "ChildZone") -> "ZoneView":
    from fabric_direct.zones.wire import ZoneView  # noqa: PLC0415 - see the package

    return with_zone(at, lambda asked: asked.ask("GET", "/zones", ZoneView, deadline=_LOOK))


def _looked(site: "Site") -> "ZoneView":
    """Return the site's zone as it would look if it had just been started."""
    require_libraries()
    from fabric_direct.zones.merging import total  # noqa: PLC0415 - see the package
    from fabric_direct.zones.wire import ZoneView  # noqa: PLC0415

    own = [_own(site)] if site.zone.own_hosts else []
    children = asyncio.run(_children(site))
    below = [child.capabilities for child in children if child.capabilities]
    return ZoneView(zone=site.zone_name, capabilities=total([*own, *below]), children=children)


def _own(site: "Site") -> "Capabilities":
    from fabric_direct.processor import HandlerProcessor  # noqa: PLC0415 - see the package
    from fabric_direct.zones.local_source import OwnHosts  # noqa: PLC0415

    with HandlerProcessor(site) as processor:
        return asyncio.run(OwnHosts(site, processor).capabilities(deadline=_LOOK))


async def _children(site: "Site") -> "tuple[ChildView, ...]":
    from fabric_direct.zones.child import ChildSource  # noqa: PLC0415 - see the package
    from fabric_direct.zones.source_health import Watched  # noqa: PLC0415

    children = [ChildSource(name, child) for name, child in site.zone.children.items()]
    watched = [Watched(child, _LOOK) for child in children]
    await asyncio.gather(*(each.look(_LOOK) for each in watched))
    await asyncio.gather(*(child.close() for child in children))
    return tuple(each.view() for each in watched)


_HEADERS = (
    *("ZONE", "STATE", "HOSTS", "CORES", "RAM GiB", "DISK GiB", "DEVICES", "ARCHITECTURES"),
    *("IMAGES", "WHY"),
)


def _child_row(child: "ChildView") -> list[str]:
    return _row(child.zone, "answers" if child.heard else "silent", child.capabilities, child.why)


def _row(name: str, state: str, has: "Capabilities | None", why: str = "") -> list[str]:
    if has is None:
        return [name, state, *[""] * 7, why]
    devices = ", ".join(f"{d.free} {d.type} {d.model or ''}".rstrip() for d in has.devices)
    sizes = (has.hosts, has.cores, has.ram, has.disk)
    amounts = (f"{size:.1f}".removesuffix(".0") for size in sizes)
    return [
        *(name, state, *amounts, devices),
        *(", ".join(has.architectures), ", ".join(has.images), why),
    ]


COMMANDS: tuple[click.Command, ...] = (zone, zones)
