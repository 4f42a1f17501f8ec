"""The command that adopts what others made."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabric_direct.cli import running, show
from fabric_direct.cli.options import (
    PARTLY_DONE,
    Settings,
    pass_settings,
    print_json,
    shared_options,
)
from fabric_direct.errors import Refused

if TYPE_CHECKING:
    from concurrent.futures import Future

    from rich.console import Console

    from fabric_direct.handlers.vm.adoption_draft import Draft
    from fabric_direct.model import Outcome
    from fabric_direct.model.adoption import Adoption, ServiceAdoption
    from fabric_direct.processor import HandlerProcessor

_STDIN = Path("-")
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("file", type=_FILE, required=False)
@click.option("--am", type=click.Choice(["fabric_am"]), help="Adopt all servers with its names.")
@click.option(
    "--output", type=_FILE, help="With --am: write what was found as a document for FILE, and end."
)
@click.option("--yes", is_flag=True, help="Stamp; otherwise only show what would be stamped.")
@shared_options
@pass_settings
def adopt(
    settings: Settings, file: Path | None, am: str | None, output: Path | None, *, yes: bool
) -> None:
    """Stamp slivers that others made in the cloud, so that they are found, changed and deleted here.

    FILE is a document of them (`fabric-direct schema adoption`), or - for stdin; or they are found by
    the names that --am gives. Nothing but stamps is written: no reboot, no detach. Without --yes,
    nothing at all.

    The exit code is 3 if a server with these names cannot be adopted as it is, or something failed.
    """
    _refuse_unclear(file, am, output, yes=yes)
    asked = _document(file) if file else ()
    if am and output:
        _write(settings, output)
        return
    drafts: list[Draft] = []

    def ask(processor: "HandlerProcessor") -> "list[Future[Outcome]]":
        drafts.extend(processor.drafts() if am else ())
        found = [each.adoption for each in drafts if each.adoption]
        return [processor.adopt(each, plan=not yes) for each in (*asked, *found)]

    _tell(running.run(settings, ask), drafts, settings, yes=yes)


def _refuse_unclear(file: Path | None, am: str | None, output: Path | None, *, yes: bool) -> None:
    if (file is None) is (am is None):
        raise click.UsageError("name either a FILE or --am")
    if output and (file or yes):
        raise click.UsageError("--output goes with --am, and without --yes")


def _document(file: Path) -> "tuple[Adoption | ServiceAdoption, ...]":
    from fabric_direct.documents import load, parse, read_stdin  # noqa: PLC0415
    from fabric_direct.errors import InvalidSliver  # noqa: PLC0415
    from fabric_direct.model.adoption import Adoptions  # noqa: PLC0415 - see the package

    if file == _STDIN:
        text = read_stdin(InvalidSliver)
        return parse(text, "stdin", Adoptions, InvalidSliver).all()
    return load(file, Adoptions, InvalidSliver).all()


def _write(settings: Settings, output: Path) -> None:
    """Write the adoptions that were found; one that is there already is not overwritten."""
    import yaml  # noqa: PLC0415 - see the package

    with running.site_processor(settings) as processor:
        drafts = processor.drafts()
    found = [
        each.adoption.model_dump(mode="json", exclude_unset=True, exclude_none=True)
        for each in drafts
        if each.adoption
    ]
    try:
        with output.open("x", encoding="utf-8") as document:
            yaml.safe_dump({"slivers": found}, document, sort_keys=False)
    except OSError as error:
        raise Refused(f"cannot write {output}", why=error.strerror or "") from error
    misfits = _misfits(drafts)
    if settings.as_json:
        print_json({"written": str(output), "slivers": len(found), "misfits": misfits})
    else:
        show.say(show.console(), f"wrote {output}: {len(found)} slivers")
        _tell_misfits(misfits)
    _exit(misfits, 0)


def _tell(
    answers: running.Results, drafts: "list[Draft]", settings: Settings, *, yes: bool
) -> None:
    misfits = _misfits(drafts)
    if settings.as_json:
        print_json({"misfits": misfits}, outcomes=answers.outcomes)
    else:
        running.tell_people(answers, _adopted if yes else partial(show.plan, operation="adopt"))
        _tell_misfits(misfits)
        if not answers.outcomes:
            show.say(show.console(), "Nothing to adopt.")
        elif not yes and any(outcome.ok for outcome in answers.outcomes):
            show.say(show.console(), "Run it again with --yes to stamp them.")
    _exit(misfits, running.exit_code(answers))


def _adopted(of: "Outcome", out: "Console") -> None:
    show.done(of, out)
    for difference in of.observed.differences if of.observed else ():
        show.say(out, f"  is not as its sliver says: {difference}", "yellow")


def _misfits(drafts: "list[Draft] | tuple[Draft, ...]") -> list[dict[str, str]]:
    return [
        {"server": each.server.name, "id": each.server.id, "error": each.error.message}
        for each in drafts
        if each.error
    ]


def _tell_misfits(misfits: list[dict[str, str]]) -> None:
    for misfit in misfits:
        said = f"{misfit['server']}: cannot be adopted as it is: {misfit['error']}"
        show.say(show.console(stderr=True), said, "red")


def _exit(misfits: list[dict[str, str]], code: int) -> None:
    click.get_current_context().exit(code or (PARTLY_DONE if misfits else 0))


COMMANDS: tuple[click.Command, ...] = (adopt,)
