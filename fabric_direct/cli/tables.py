"""Tables of commands: as text, CSV, JSON or YAML, with the columns that are asked for."""

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click

from fabric_direct.cli import show
from fabric_direct.cli.options import FORMATS, Settings, keep, print_json, printable, shared_options

F = TypeVar("F", bound=Callable[..., Any])
Cell = str | int | None
Row = Sequence[Cell]


def table_options(columns: Sequence[str]) -> Callable[[F], F]:
    """Return a decorator that adds the options of all commands, ``-c`` and the format CSV.

    :param columns: those that the command's table has.
    """
    column = click.option(
        "-c",
        "--column",
        "columns",
        multiple=True,
        metavar="COLUMN",
        type=click.Choice(columns, case_sensitive=False),
        expose_value=False,
        callback=keep,
        help=f"Show this column only; may be repeated: {', '.join(columns)}.",
    )
    return lambda command: column(shared_options(command, formats=(*FORMATS, "csv")))


def print_table(
    settings: Settings, columns: Sequence[str], rows: Iterable[Row], *, data: Any, nothing: str
) -> None:
    """Print a table in the format, and with the columns, that are asked for.

    :param data: what programs get if they ask for no columns.
    :param nothing: the sentence for people if there are no rows.
    """
    chosen = settings.columns or columns
    found = [_chosen(columns, row, chosen) for row in rows]
    if settings.as_json:
        names = [name.lower() for name in chosen]
        print_json([dict(zip(names, r, strict=True)) for r in found] if settings.columns else data)
    elif settings.format == "csv":
        _print_csv(chosen, found)
    elif found:
        texts = (map(_text, row) for row in found)
        show.table(show.console(), chosen, texts, every=bool(settings.columns))
    else:
        show.say(show.console(), nothing)


def _chosen(columns: Sequence[str], row: Row, chosen: Sequence[str]) -> list[Cell]:
    cells = dict(zip(columns, row, strict=True))
    return [cells[name] for name in chosen]


def _text(cell: Cell) -> str:
    return "" if cell is None else str(cell)


def _print_csv(columns: Sequence[str], rows: Iterable[Row]) -> None:
    """Print rows as RFC 4180 has them, under the names of the columns."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([printable(_text(cell)) for cell in row] for row in rows)
    click.echo(text.getvalue(), nl=False)


def as_data(value: Any) -> Any:
    """Return a value of this package as JSON has it."""
    from pydantic import TypeAdapter  # noqa: PLC0415 - see the package

    return TypeAdapter(type(value)).dump_python(value, mode="json")
