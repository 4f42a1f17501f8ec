"""The commands for the state that machines share: ``fabric-direct state …``."""

from typing import TYPE_CHECKING

import click

from fabric_direct.cli import lost_output, show
from fabric_direct.cli.options import Settings, pass_settings, print_json, shared_options
from fabric_direct.errors import Conflict, InvalidSite

if TYPE_CHECKING:
    from fabric_direct.site.config import Site


@click.group()
def state() -> None:
    """Make the tables of a state that machines share (state_database of site.yaml), or move the state.

    Without state_database, a site's state is in files below its state_dir, and there is nothing to do.
    """


@state.command(short_help="Make the tables, or bring them up to date.")
@shared_options
@pass_settings
def migrate(settings: Settings) -> None:
    """Make the tables of the site in its database, or bring them up to date.

    Other sites of the database are not touched. What is there is kept. End the site's processes of the
    former version before, as they refuse tables of a later one.
    """
    site = _with_database(settings)
    from fabric_direct.state.postgresql.schema import migrate as migrate_  # noqa: PLC0415 - an extra

    before, now = migrate_(site)
    if before == now:
        told = f"The tables of site {site.site} are of version {now} already."
    elif before:
        told = f"The tables of site {site.site} are of version {now} now; they were of {before}."
    else:
        told = f"The tables of site {site.site} are made, of version {now}."
    _tell(settings, told, {"before": before or None, "now": now})


@state.command(short_help="Move the state between files and the database.")
@click.option(
    "--to",
    "where",
    type=click.Choice(["database", "files"]),
    required=True,
    help="Where the state is copied to.",
)
@click.option("--replace", is_flag=True, help="Remove what is there before.")
@shared_options
@pass_settings
def copy(settings: Settings, where: str, *, replace: bool) -> None:
    """Copy the state of the site from its files into its database, or back, and read it back.

    End all processes of the site before; its files are those of this machine. What is copied stays where
    it was, too. Records of devices on workers, logins of clouds, zones and the page are of one machine,
    and stay in its files; operations that ended stay in the queue of the conductors.
    """
    site = _with_database(settings)
    from fabric_direct.drivers.ssh.known_hosts import copy_pins  # noqa: PLC0415 - see the package
    from fabric_direct.state.copying import copy as copy_  # noqa: PLC0415
    from fabric_direct.state.file_store import FileStore  # noqa: PLC0415
    from fabric_direct.state.site_store import store_of  # noqa: PLC0415

    local = site.model_copy(update={"state_database": None})
    stores = (FileStore(site.state_dir), store_of(site))
    _refuse_queued(site)
    source, target = stores if where == "database" else reversed(stores)
    copied = copy_(source, target, replace=replace)
    pins = copy_pins(*((local, site) if where == "database" else (site, local)))
    copied["pinned host keys"] = pins
    parts = ", ".join(f"{what}: {number}" for what, number in copied.items() if number)
    _tell(settings, f"Copied to the {where}: {parts or 'nothing, there is none'}.", copied)


def _refuse_queued(site: "Site") -> None:
    from fabric_direct.state.postgresql.queue import queue_of  # noqa: PLC0415 - an extra

    if going := site.state_database and queue_of(site.site, site.state_database).listed():
        raise Conflict(
            "operations wait for a conductor, or are under way",
            why=", ".join(f"{each.operation} of {each.sliver}" for each in going[:10]),
            remedy="let them end, or: fabric-direct operations cancel",
        )


def _with_database(settings: Settings) -> "Site":
    site = settings.site()
    if site.state_database is None:
        raise InvalidSite(
            "is missing: the site's state is in files",
            field="state_database",
            remedy="name a database of PostgreSQL: `state_database: {url: postgresql://…}`",
        )
    return site


def _tell(settings: Settings, told: str, data: object) -> None:
    lost_output.note([told])
    if settings.as_json:
        print_json(data)
    else:
        show.say(show.console(), told)


COMMANDS: tuple[click.Command, ...] = (state,)
