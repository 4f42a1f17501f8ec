"""The command that shows who asked for what, and what came of it."""

from datetime import datetime
from typing import TYPE_CHECKING

import click

from fabric_direct.cli import completion
from fabric_direct.cli.options import Settings, pass_settings
from fabric_direct.cli.running import site_processor
from fabric_direct.cli.tables import print_table, table_options

if TYPE_CHECKING:
    from fabric_direct.state.audit_trail import Record

_COLUMNS = ("WHEN", "OPERATION", "SLIVER", "OUTCOME", "SECONDS", "WHO", "ERROR", "LEFT")


@click.command()
@click.argument("sliver", required=False, shell_complete=completion.ids)
@click.option("--last", type=click.IntRange(min=1), help="Only the last so many.")
@table_options(_COLUMNS)
@pass_settings
def history(settings: Settings, sliver: str | None, last: int | None) -> None:
    """Show who asked for what, and what came of it: all operations, or those on one SLIVER.

    What was asked for by commands, the library, the actor, a zone or `watch` is there, the oldest
    first; plans and probes are not. "begun" is under way, or its process was killed: see `recover`.
    SLIVER may also be a device, HOST/ADDRESS, or an uplink, HOST/LINK.
    """
    with site_processor(settings) as processor:
        found, state_dir = processor.history(sliver), processor.site.state_dir
    records = found[-last:] if last else found
    nothing = f"Nothing was asked for{f' of {sliver}' if sliver else ''}."
    if not state_dir.exists():
        nothing += f" The site's state_dir, {state_dir}, does not exist."
    data = [record.model_dump(mode="json") for record in records]
    print_table(settings, _COLUMNS, map(_row, records), data=data, nothing=nothing)


def _row(record: "Record") -> list[str]:
    when = datetime.fromisoformat(record.at).astimezone().isoformat(" ", "seconds")
    outcome = record.status.value if record.status else "begun"
    seconds = f"{record.seconds:.1f}" if record.status else ""
    error, left = record.error.kind if record.error else "", "; ".join(record.left)
    what = f"{record.operation} {record.action}".rstrip()
    return [when, what, record.subject, outcome, seconds, record.who, error, left]


COMMANDS: tuple[click.Command, ...] = (history,)
