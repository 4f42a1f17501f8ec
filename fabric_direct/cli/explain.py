"""The command that explains classes of errors, by the pages of docs/errors."""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path

import click

from fabric_direct import errors
from fabric_direct.cli import show
from fabric_direct.cli.options import Settings, pass_settings
from fabric_direct.cli.tables import print_table, table_options
from fabric_direct.errors import FabricDirectError

_LINK = re.compile(r"\[([^]]+)\]\([^)]*\)")
_PAGE_LINK = re.compile(r"\[(\w+)\]\(\w+\.md\)")
_COLUMNS = ("CLASS", "MEANING")
_DOCUMENT_LINK = re.compile(r"\[([^]]+)\]\(\.\./([\w-]+\.md)[^)]*\)")

Kind = type[FabricDirectError]


def tree(kind: Kind = FabricDirectError, depth: int = 0) -> Iterator[tuple[Kind, int]]:
    """Yield the public classes of errors, each after its parent, with its depth."""
    yield kind, depth
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from tree(child, depth + 1)


_NAMES = {kind.__name__.casefold(): kind.__name__ for kind, _ in tree()}


def page(name: str) -> str:
    """Return the page of a class, in Markdown."""
    installed = files("fabric_direct") / "error_pages"
    # In a source tree they are where people read them; pyproject.toml puts them into the wheel.
    folder = installed if installed.is_dir() else Path(__file__).parents[2] / "docs" / "errors"
    return (folder / f"{name}.md").read_text(encoding="utf-8")


def summary(name: str) -> str:
    """Return the first paragraph of a page, as text: no list has room for where it leads."""
    return _LINK.sub(r"\1", page(name).split("\n\n")[1])


def _class_name(text: str) -> str:
    """Return the name of a class, given in upper or lower case.

    :raises click.BadParameter: if there is no such class.
    """
    asked = text.casefold()
    if asked not in _NAMES:
        close = [_NAMES[each] for each in get_close_matches(asked, _NAMES)]
        known = f"did you mean {' or '.join(close)}?" if close else "`explain` lists all"
        raise click.BadParameter(f"there is no class of errors {text!r}; {known}")
    return _NAMES[asked]


def _completed(_context: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the classes whose names begin so."""
    return [name for key, name in _NAMES.items() if key.startswith(incomplete.casefold())]


@click.command()
@click.argument(
    "names", metavar="[CLASS]...", nargs=-1, type=_class_name, shell_complete=_completed
)
@table_options(_COLUMNS)
@pass_settings
def explain(settings: Settings, names: tuple[str, ...]) -> None:
    """Explain classes of errors: what is true of the sliver then, usual causes, what to do.

    An error names its class: "explain: fabric-direct explain Conflict". Without a CLASS, all are listed.
    """
    for_people = settings.format == "table" and not settings.columns
    if names and for_people:
        _print_pages(names)
        return
    chosen = [(k, depth) for k, depth in tree() if not names or k.__name__ in names]
    rows = [_row(kind, depth if for_people else 0) for kind, depth in chosen]
    data = [_data(kind) for kind, _ in chosen] if settings.as_json else []
    print_table(settings, _COLUMNS, rows, data=data, nothing="")


def _row(kind: Kind, depth: int) -> tuple[str, str]:
    return f"{'  ' * depth}{kind.__name__}", summary(kind.__name__)


def _data(kind: Kind) -> dict[str, str | None]:
    name, parent = kind.__name__, kind.__base__
    above = parent.__name__ if parent and issubclass(parent, FabricDirectError) else None
    return {"kind": name, "parent": above, "summary": summary(name), "page": page(name)}


def _print_pages(names: tuple[str, ...]) -> None:
    """Print pages: laid out on a terminal, as Markdown elsewhere."""
    out = show.console()
    text = "\n".join(_without_links(page(name)) for name in dict.fromkeys(names))
    if not out.is_terminal:
        click.echo(text, nl=False)
        return
    from rich.markdown import Markdown  # noqa: PLC0415 - a pipe has no use for it

    out.print(Markdown(text))


def _without_links(text: str) -> str:
    """Name what a page leads to: a terminal cannot follow it."""
    return _DOCUMENT_LINK.sub(r"*\1* in docs/\2", _PAGE_LINK.sub(r"\1", text))


COMMANDS: tuple[click.Command, ...] = (explain,)
