"""The command that finds, and deletes, what nobody expects."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fabric_direct.cli import running, show
from fabric_direct.cli.options import (
    BAD_INPUT,
    PARTLY_DONE,
    Settings,
    pass_settings,
    print_json,
    shared_options,
    tell_error,
)
from fabric_direct.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Collection

    from fabric_direct.operations.operation_future import OperationFuture
    from fabric_direct.processor import HandlerProcessor, Sweep
    from fabric_direct.upkeep.sweep.findings import Findings, FoundResource

_PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]+)?)%")
_FORMAT = """\b
FILE lists the slivers that shall exist, of every resource type, in YAML or JSON:
  count: 2           # how many: a list that was cut off does not have it
  slivers:
    - vm-1
    - {id: vm-2, type: VM, name: node1, ...}   # or a sliver's whole document
`fabric-direct schema expected` prints its schema.
"""


def _percent(_context: click.Context, _parameter: click.Parameter, text: str) -> float:
    """Read a share, for example ``10%``."""
    found = _PERCENT.fullmatch(text)
    if found is None or float(found[1]) > 100:
        example = f": write {text}%" if _PERCENT.fullmatch(f"{text}%") else ""
        raise click.BadParameter(f"{text!r} is not a share from 0% to 100%{example}")
    return float(found[1])


@click.command("sweep", epilog=_FORMAT)
@click.option(
    "--expected",
    "source",
    required=True,
    metavar="FILE",
    help="Slivers that are expected to exist; - is stdin.",
)
@click.option(
    "--at-most",
    callback=_percent,
    metavar="SHARE",
    default="10%",
    show_default=True,
    help="Stop if a larger share of the existing slivers would go.",
)
@click.option("--token", help="Delete what the last dry run found: its token.")
@shared_options
@pass_settings
def sweep(settings: Settings, source: str, at_most: float, token: str | None) -> None:
    """Find what carries the site's stamp and belongs to no sliver of FILE; delete it with --token.

    Without --token nothing is deleted: what would go is shown, with its token. With it, exactly that is
    deleted, as `delete` does; if anything else is found by now, nothing is.

    It stops, and deletes nothing, if the list is empty or not whole, if a host or the cloud does not
    answer, or if more than a share of the slivers would go.
    """
    expected = _read(source)
    if token is None:
        _dry_run(settings, expected, source, at_most)
    else:
        _delete(settings, expected, token, at_most)


def _read(source: str) -> "frozenset[str]":
    """Return the ids in a file, or in stdin."""
    from fabric_direct.documents import read_stdin, read_text  # noqa: PLC0415 - see the package
    from fabric_direct.upkeep.sweep.expected import parse_expected  # noqa: PLC0415

    if source == "-":
        return parse_expected(read_stdin(Refused), "stdin").ids()
    return parse_expected(read_text(Path(source), Refused), source).ids()


# --- dry run


def _dry_run(settings: Settings, expected: "Collection[str]", source: str, at_most: float) -> None:
    from fabric_direct.upkeep.sweep.sweeper import AT_MOST  # noqa: PLC0415 - see the package

    with running.site_processor(settings) as processor:
        found = processor.find_unexpected(expected)
    try:
        found.refuse_share(at_most)
    except Refused as refused:
        _tell_refused(settings, found, refused)
    if settings.as_json:
        print_json(_document(found) | {"token": found.token})
        return
    _show(found)
    if found.token:
        out, share = show.console(), "" if at_most == AT_MOST else f" --at-most {at_most:g}%"
        show.say(out, f"Nothing was deleted. The token of this is {found.token}:")
        show.say(out, f"  fabric-direct sweep --expected {source}{share} --token {found.token}")


def _tell_refused(settings: Settings, found: "Findings", refused: Refused) -> None:
    """Show what would go and why it does not, without a token, and exit."""
    if settings.as_json:
        report = {"kind": type(refused).__name__, "message": str(refused), "field": ""}
        print_json(_document(found) | {"token": ""}, error=report)
    else:
        _show(found)
        tell_error(refused, settings)
    click.get_current_context().exit(BAD_INPUT)


# --- deletion


def _delete(settings: Settings, expected: "Collection[str]", token: str, at_most: float) -> None:
    begun: list[Sweep] = []

    def ask(processor: "HandlerProcessor") -> "list[OperationFuture]":
        begun.append(processor.sweep(expected, token, at_most=at_most))
        return begun[0].deletions

    answers = running.run(settings, ask)
    _tell(settings, begun[0], answers)
    code = running.exit_code(answers)
    click.get_current_context().exit(code or (PARTLY_DONE if begun[0].kept else 0))


def _tell(settings: Settings, begun: "Sweep", answers: running.Results) -> None:
    if settings.as_json:
        kept = [each.model_dump() for each in begun.kept]
        print_json(_document(begun.findings) | {"kept": kept}, outcomes=answers.outcomes)
        return
    running.tell_people(answers, show.done)
    err = show.console(stderr=True)
    for each in begun.kept:
        show.say(err, f"{each.what} is not gone: {each.why}", "red")
    gone = [
        str(t) for t in begun.findings.of_nobody() if str(t) not in {k.what for k in begun.kept}
    ]
    for name in gone:
        show.say(show.console(), f"{name}: removed")


# --- what was found


def _document(found: "Findings") -> dict[str, Any]:
    slivers = [
        {
            "id": sliver,
            "type": kind,
            "things": [_as_data(t) for t in found.things if t.sliver == sliver],
        }
        for sliver, kind in found.types.items()
    ]
    return {
        "slivers": slivers,
        "of_nobody": [_as_data(thing) for thing in found.of_nobody()],
        "left_alone": [each.model_dump() for each in found.left_alone],
        "exist": found.exist,
        "missing": list(found.missing),
    }


def _as_data(thing: "FoundResource") -> dict[str, str]:
    return thing.model_dump(exclude={"sliver"})


def _show(found: "Findings") -> None:
    out = show.console()
    if found.things:
        headers = ("SLIVER", "TYPE", "KIND", "NAME", "HOST")
        show.table(out, headers, (_row(thing, found) for thing in found.things))
    for each in found.left_alone:
        show.say(out, f"left alone: {each.what}: {each.why}", "yellow")
    if found.missing:
        show.say(out, f"expected, but not there: {', '.join(found.missing)}")
    going = len(found.types)
    show.say(out, f"{going or 'None'} of the {found.exist} slivers that exist would go.")


def _row(thing: "FoundResource", found: "Findings") -> list[str]:
    return [thing.sliver, found.types.get(thing.sliver, ""), thing.kind, thing.name, thing.host]


COMMANDS: tuple[click.Command, ...] = (sweep,)
