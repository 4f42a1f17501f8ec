"""The commands that plan, create, modify, delete and probe slivers."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fabric_direct.cli import beforehand, completion, inputs, running, show
from fabric_direct.cli.options import Settings, operation_options, pass_settings, shared_options
from fabric_direct.errors import Refused

if TYPE_CHECKING:
    from concurrent.futures import Future

    from rich.console import Console

    from fabric_direct.model import Outcome, Sliver, SliverRef
    from fabric_direct.processor import HandlerProcessor


def _stdin_once(
    _context: click.Context, _parameter: click.Parameter, words: tuple[str, ...]
) -> tuple[str, ...]:
    if words.count("-") > 1:
        raise click.BadParameter("standard input (-) can be read once")
    return words


def _json_file(_context: click.Context, _parameter: click.Parameter, path: Path | None) -> Any:
    if path and path.suffix != ".json":
        raise click.BadParameter(f"{path} does not end in .json")
    return path


_FILES = """\b
A FILE is YAML or JSON, with one sliver or several (documents, separated by ---), a
directory of such files, or - for standard input.
"""
_FILES_OR_IDS = f"""{_FILES}What has no "/" and does not end in .yaml, .yml or .json is an id.
"""
_LOOK_AT_IT = "probe the sliver that it names, and remove it when the sliver is as it should be"
TO_DO = 4
"""Exit code of ``plan --exit-code`` if there is something to do."""
_words = partial(click.argument, nargs=-1, required=True, callback=_stdin_once)
_files = _words("files", metavar="FILE...", shell_complete=completion.files)
_files_or_ids = _words("words", metavar="FILE_OR_ID...", shell_complete=completion.files_or_ids)
_planned_files = click.argument(
    "files", metavar="[FILE]...", nargs=-1, callback=_stdin_once, shell_complete=completion.files
)
_plan = click.option(
    "--plan",
    "saved",
    type=click.Path(path_type=Path),
    help="Carry out a plan that `plan -o` saved, and nothing else; FILEs must describe its slivers.",
)
_type = click.option(
    "--type",
    "resource_type",
    default="",
    callback=inputs.known_type,
    help="Resource type of a sliver that is given by its id; the site is asked if it is not given.",
)


@click.command(epilog=_FILES)
@_planned_files
@_plan
@operation_options
@shared_options
@pass_settings
def create(settings: Settings, files: tuple[str, ...], saved: Path | None) -> None:
    """Create the slivers that the FILEs describe: each after those that it names, others in parallel.

    A sliver that exists already is left as it is. A creation that fails is undone, and what names its
    sliver is not begun. If one names what the site does not have (a network, an image, a host), none is
    begun.
    """
    slivers, carry_out = _asked("create", files, saved)
    done = _observed(slivers)

    from fabric_direct.model import Operation  # noqa: PLC0415 - see the package

    def create_all(having: "HandlerProcessor") -> "Sequence[Future[Outcome]]":
        refused = beforehand.refusals(having, slivers, Operation.CREATE)
        return refused or having.create_all(slivers)

    ask = carry_out or create_all
    running.tell(running.run(settings, ask, done), settings, done=done)


@click.command(epilog=_FILES)
@_planned_files
@_plan
@operation_options
@shared_options
@pass_settings
def modify(settings: Settings, files: tuple[str, ...], saved: Path | None) -> None:
    """Change existing slivers to match the FILEs.

    Components are matched by id: new ones are added, missing ones removed, and networks, addresses and
    bandwidths changed. Cores, RAM, image and keys cannot be changed.
    """
    slivers, carry_out = _asked("modify", files, saved)
    done = _observed(slivers)

    from fabric_direct.model import Operation  # noqa: PLC0415 - see the package

    def modify_all(having: "HandlerProcessor") -> "Sequence[Future[Outcome]]":
        refused = beforehand.refusals(having, slivers, Operation.MODIFY)
        return refused or [*map(having.modify, slivers)]

    ask = carry_out or modify_all
    running.tell(running.run(settings, ask, done), settings, done=done)


@click.command(epilog=_FILES_OR_IDS)
@_files_or_ids
@_type
@operation_options
@shared_options
@pass_settings
def delete(settings: Settings, words: tuple[str, ...], resource_type: str) -> None:
    """Delete slivers with everything that was created for them, and verify that nothing is left.

    Deleting a sliver that does not exist succeeds. Each is deleted after those that are
    stitched to it; a network service that others are stitched to is not deleted.
    """
    refs = inputs.references(words, resource_type)
    untold = {ref.id for ref in refs if not ref.type}

    def done(outcome: "Outcome", out: "Console") -> None:
        show.done(outcome, out, of_any_type=outcome.sliver.id in untold)

    answers = running.run(settings, lambda processor: processor.delete_all(refs), done)
    running.tell(answers, settings, done=done)


@click.command(epilog=_FILES)
@_files
@click.option("--delete", is_flag=True, help="Plan their deletion; a FILE may be an id, then.")
@_type
@click.option(
    "--exit-code",
    "tells",
    is_flag=True,
    help=f"End with {TO_DO} if there is something to do, and with 0 if there is not.",
)
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    callback=_json_file,
    help="Save the plan in this .json file, for create --plan, or modify --plan.",
)
@shared_options
@pass_settings
def plan(
    settings: Settings,
    files: tuple[str, ...],
    resource_type: str,
    *,
    delete: bool,
    tells: bool,
    out: Path | None,
) -> None:
    """Show what each step of create, or modify if a sliver exists, would do. Changes nothing.

    A step is "already so", or says what it will do: "will create", "will change" with the former and the
    new values, "will delete". The last line says whether the sliver would be created, modified or
    deleted.
    """
    if delete and out:
        raise click.UsageError("a plan of deletions cannot be saved: leave out --delete, or -o")
    whole = [] if delete else inputs.slivers(files)
    slivers = inputs.references(files, resource_type) if delete else whole
    from fabric_direct.model import Operation  # noqa: PLC0415 - see the package

    operation = Operation.DELETE if delete else None
    answers = running.run(settings, lambda having: [having.plan(s, operation) for s in slivers])
    if out and not answers.interrupted:
        _save(out, settings, whole, answers.outcomes)
    to_do = any(show.planned_changes(outcome) for outcome in answers.outcomes)
    running.tell(answers, settings, done=show.plan, success=TO_DO if tells and to_do else 0)


def _save(
    out: Path, settings: Settings, slivers: "Sequence[Sliver]", outcomes: "list[Outcome]"
) -> None:
    """Save a plan, or say what the outcomes do not: why not."""
    if not all(outcome.ok for outcome in outcomes):
        click.echo(f"{out} was not written: not every sliver could be planned.", err=True)
        return
    from fabric_direct.operations.saved_plan import SavedPlan  # noqa: PLC0415 - see the package

    made = SavedPlan.of(settings.site(), slivers, outcomes)
    made.save(out)
    said = f"Saved. To do it: fabric-direct {made.operation} --plan {out}"
    click.get_current_context().call_on_close(lambda: click.echo(said, err=True))


def _asked(
    operation: str, files: tuple[str, ...], saved: Path | None
) -> "tuple[Sequence[Sliver], running.Ask | None]":
    """Return the slivers of files or a saved plan, and what carries out the plan, if there is one.

    :raises Refused: if the plan is invalid, for another operation, or for others than the files'.
    """
    if saved is None:
        if not files:
            raise click.UsageError("name a FILE, or a plan: --plan")
        return inputs.slivers(files), None
    from fabric_direct.operations.saved_plan import read_plan  # noqa: PLC0415 - see the package

    made = read_plan(saved)
    if made.operation != operation:
        raise Refused(f"{saved} is a plan to {made.operation}", remedy=f"use {made.operation}")
    if files:
        made.refuse_other_slivers(inputs.slivers(files))
    return made.wanted(), lambda processor: processor.carry_out(made)


@click.command(epilog=_FILES_OR_IDS)
@_files_or_ids
@_type
@shared_options
@pass_settings
def probe(settings: Settings, words: tuple[str, ...], resource_type: str) -> None:
    """Show the state, NICs, volumes and devices of slivers, and whether their guests answer.

    Each is compared with its FILE or, if given by its id, with what it was created from. The exit code
    is 0 if all exist and match, 1 if one is absent or differs.
    """
    refs = inputs.references(words, resource_type)
    answers = running.run(settings, lambda processor: [*map(processor.probe, refs)])
    running.tell(answers, settings, done=_observed(refs))


_ACTIONS = """\b
Actions of a VM, and their DATA:
  start, stop
  reboot             {"hard": true} is a power cycle; otherwise the guest reboots
  console            {"lines": 50}: the last lines of its serial console
  cpuinfo, numainfo  where its CPUs run and its memory is
  cpupin             {"vcpu_cpu_map": [{"vcpu": 0, "cpu": 3}]}
  numatune           {"node_set": [0]}
  resize             {"flavor": "m1.large"} or {"capacities": {"core": 2, "ram": 4, "disk": 20}}
  addkey, removekey  {"keys": [{"key": "ssh-ed25519 AAAA...", "comment": "me"}]}
  rescan             {"bdf": ["0000:25:00.0"]}: remove PCI devices and find them again
  stamp              the sliver as it was created or last modified
"""


@click.command(epilog=_ACTIONS)
@click.argument("word", metavar="FILE_OR_ID", shell_complete=completion.files_or_ids)
@click.argument("action", shell_complete=completion.actions)
@click.argument("data", required=False)
@_type
@shared_options
@pass_settings
def poa(settings: Settings, word: str, action: str, data: str | None, resource_type: str) -> None:
    """Carry out an operational ACTION on a sliver, or on each of a FILE.

    DATA is JSON text, @FILE, or - for stdin.
    """
    if word == data == "-":
        raise click.UsageError("standard input (-) is either the slivers or DATA")
    refs, values = inputs.references((word,), resource_type), inputs.data(data)
    answers = running.run(settings, lambda having: [having.poa(r, action, values) for r in refs])
    running.tell(answers, settings, done=show.answer)


@click.command()
@click.option("--undo", is_flag=True, help="Undo the operations instead of finishing them.")
@operation_options
@shared_options
@pass_settings
def recover(settings: Settings, *, undo: bool) -> None:
    """Finish or undo the operations of a process that was killed.

    With --undo, a sliver that was being created is deleted, unless it was there before, and one that was
    being modified gets its former state back. Deletions are always finished. Slivers that another
    process is working on are left alone. Hosts that did not answer a deletion are looked at again.
    """
    damaged: list[str] = []

    def ask(having: "HandlerProcessor") -> "Sequence[Future[Outcome]]":
        damaged.extend(having.unreadable_entries())
        return having.recover(undo=undo)

    answers = running.run(settings, ask, show.done)
    answers.incomplete = bool(damaged)
    for where in damaged:
        click.echo(f"{where} is no valid entry of the journal: {_LOOK_AT_IT}.", err=True)
    if not (answers.outcomes or damaged or settings.as_json):
        show.say(show.console(), "Nothing is unfinished.")
    running.tell(answers, settings)


def _observed(slivers: "Sequence[SliverRef]") -> "Callable[[Outcome, Console], None]":
    """Return a function that prints an outcome with the observed sliver."""
    from fabric_direct.cli import sliver_report  # noqa: PLC0415 - see the package

    by_id = {sliver.id: sliver for sliver in slivers}

    def show_both(outcome: "Outcome", out: "Console") -> None:
        if outcome.steps:
            show.done(outcome, out)
        if outcome.observed:
            sliver_report.show(outcome.observed, by_id[outcome.sliver.id], out)

    return show_both


COMMANDS: tuple[click.Command, ...] = (plan, create, modify, delete, probe, poa, recover)
