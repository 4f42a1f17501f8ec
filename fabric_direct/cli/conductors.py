"""The commands for operations that conductors carry out: ``conductor``, ``operations …``."""

import signal
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import click

from fabric_direct.cli import lost_output, show
from fabric_direct.cli.metrics_endpoint import Address, metrics_option, served
from fabric_direct.cli.options import (
    Settings,
    log_to_stderr,
    named_by_arguments,
    pass_settings,
    print_json,
    shared_options,
)
from fabric_direct.cli.running import kept_login
from fabric_direct.cli.tables import print_table, table_options
from fabric_direct.conductors import settings_of
from fabric_direct.errors import InvalidSite, NotFound
from fabric_direct.site.extras import require

if TYPE_CHECKING:
    from fabric_direct.state.postgresql.queue import OperationQueue, QueuedOperation

T = TypeVar("T")
_COLUMNS = (
    *("ID", "OPERATION", "SLIVER", "STATE", "ASKED", "BEGUN", "ENDED", "CONDUCTOR"),
    *("WHO", "ERROR", "LEFT"),
)


def _names(
    _context: click.Context, _parameter: click.Parameter, words: str | None
) -> tuple[str, ...]:
    return tuple(filter(None, (words or "").split(",")))


@click.command()
@click.option(
    "--slots",
    type=click.IntRange(1, 1000),
    default=10,
    show_default=True,
    help="How many operations run at once.",
)
@click.option(
    "--drain",
    type=click.FloatRange(0, 86_400),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="After SIGTERM, how long what is under way goes on before it is handed back.",
)
@click.option(
    "--hosts",
    callback=_names,
    metavar="HOST,...",
    help="Hosts of site.yaml that are this machine: their libvirt and programs are used without SSH, "
    "and the operations of slivers that name them come here.",
)
@metrics_option
@shared_options
@pass_settings
def conductor(
    settings: Settings,
    slots: int,
    drain: float,
    hosts: tuple[str, ...],
    metrics_at: "Address | None",
) -> None:
    """Carry out the operations that are asked for at the site, until SIGTERM or SIGINT.

    Several conductors, on any machines, share the work; if one dies, others go on with what it has
    begun. It needs `conductors` and `state_database` in site.yaml.

    After the signal it takes nothing new. What is under way goes on; what has not ended after --drain,
    or at a second signal, is handed back: another conductor carries it out.
    """
    log_to_stderr(settings)
    site = settings.site()
    settings_of(site)  # what the site lacks is said first
    require("database")
    from fabric_direct.conductors.conductor import Conductor  # noqa: PLC0415 - an extra

    with named_by_arguments():
        it = Conductor(site, slots=slots, hosts=hosts)
    before = {
        number: signal.signal(number, lambda *_: it.stop())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        with served(metrics_at, settings), kept_login(site):
            it.run(drain=drain, on_begin=lambda: _tell_begun(settings, site.site, slots))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell_begun(settings: Settings, site: str, slots: int) -> None:
    if settings.as_json:
        print_json({"site": site, "slots": slots})
    else:
        show.say(show.console(), f"A conductor of site {site} runs, {slots} operations at once.")


@click.group()
def operations() -> None:
    """Show or cancel operations that conductors carry out."""


@operations.command("list", short_help="List the operations that wait or are under way.")
@click.option("--all", "every", is_flag=True, help="Also those that ended within a day.")
@table_options(_COLUMNS)
@pass_settings
def list_(settings: Settings, *, every: bool) -> None:
    """List the operations that wait for a conductor or are under way, the oldest first."""
    found = _queue(settings).listed(ended=every)
    data = [_data(each) for each in found]
    nothing = "No operation waits or is under way."
    print_table(settings, _COLUMNS, map(_row, found), data=data, nothing=nothing)


@operations.command("show", short_help="Show operations.")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@table_options(_COLUMNS)
@pass_settings
def show_(settings: Settings, ids: tuple[str, ...]) -> None:
    """Show operations by their IDs, also if they have ended, with what came of them."""
    with named_by_arguments():
        found = _found(_queue(settings), ids)
    data = [_data(each) for each in found]
    print_table(settings, _COLUMNS, map(_row, found), data=data, nothing="")


@operations.command(short_help="Cancel operations.")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@shared_options
@pass_settings
def cancel(settings: Settings, ids: tuple[str, ...]) -> None:
    """Cancel the operations of these IDs that have not begun; have the others begin nothing more.

    What one has done so far is not undone: the same operation again, or `recover`, finishes it.
    """
    queue = _queue(settings)
    with named_by_arguments():
        going = [each.id for each in _found(queue, ids) if each.ended is None]
    cancelled = queue.cancel(going, interrupt=True)
    told = [f"{id_}: {_became(id_, going, cancelled)}" for id_ in ids]
    lost_output.note(told)
    if settings.as_json:
        print_json({id_: _became(id_, going, cancelled) for id_ in ids})
    else:
        for line in told:
            show.say(show.console(), line)


def _became(id_: str, going: Sequence[str], cancelled: Sequence[str]) -> str:
    if id_ in cancelled:
        return "cancelled"
    return "begins nothing more" if id_ in going else "had ended"


def _queue(settings: Settings) -> "OperationQueue":
    log_to_stderr(settings)
    site = settings.site()
    if site.conductors is None or site.state_database is None:
        raise InvalidSite(
            "is missing: operations are carried out by who asks for them",
            field="conductors",
            remedy="to see what is under way: fabric-direct history",
        )
    require("database")
    from fabric_direct.state.postgresql.queue import queue_of  # noqa: PLC0415 - an extra

    return queue_of(site.site, site.state_database)


def _found(queue: "OperationQueue", ids: Sequence[str]) -> "list[QueuedOperation]":
    found = queue.listed([id_ for id_ in ids if id_.isascii()])
    if missing := set(ids).difference(each.id for each in found):
        raise NotFound(
            f"there is no operation {', '.join(sorted(missing))}",
            why="it was never asked for, or ended more than a day ago",
        )
    return found


def _data(each: "QueuedOperation") -> dict[str, object]:
    import json  # noqa: PLC0415
    from dataclasses import asdict  # noqa: PLC0415

    return asdict(each) | {
        "state": each.state,
        "asker": _read(json.loads, each.asker),
        "outcome": _read(json.loads, each.outcome),
        **{
            name: when and when.isoformat()
            for name in ("posted", "begun", "ended")
            for when in [getattr(each, name)]
        },
    }


def _read(read: Callable[[str], T], text: str | None) -> T | None:
    """Return what a conductor or an asker wrote; None if it is of another version."""
    try:
        return read(text) if text else None
    except ValueError:
        return None


def _row(each: "QueuedOperation") -> list[str]:
    from fabric_direct.model import Outcome  # noqa: PLC0415 - see the package
    from fabric_direct.state.audit_trail import Asker  # noqa: PLC0415

    outcome = _read(Outcome.model_validate_json, each.outcome)
    who = _read(Asker.model_validate_json, each.asker)
    times = [
        when.astimezone().isoformat(" ", "seconds") if when else ""
        for when in (each.posted, each.begun, each.ended)
    ]
    return [
        each.id,
        f"{each.operation} {each.action}".rstrip(),
        each.sliver,
        each.state,
        *times,
        each.conductor,
        who.who if who else "",
        outcome.error.kind if outcome and outcome.error else "",
        "; ".join(outcome.left) if outcome else "",
    ]


COMMANDS: tuple[click.Command, ...] = (conductor, operations)
