"""The commands that look after slivers while they live: reconcile, watch."""

from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from fabric_direct.cli import completion, inputs, running, show
from fabric_direct.cli.metrics_endpoint import Address, metrics_option, served
from fabric_direct.cli.options import (
    Settings,
    operation_options,
    pass_settings,
    print_json,
    shared_options,
)

if TYPE_CHECKING:
    from concurrent.futures import Future

    from rich.console import Console

    from fabric_direct.model import Outcome, SliverRef
    from fabric_direct.processor import HandlerProcessor
    from fabric_direct.state.repair_history import Note
    from fabric_direct.upkeep.drift import SiteDrift


@click.command()
@click.argument("ids", metavar="[ID]...", nargs=-1, shell_complete=completion.ids)
@click.option("--all", "every", is_flag=True, help="All slivers of the site that differ.")
@click.option(
    "--dry-run", is_flag=True, help="Show what differs and would be done; change nothing."
)
@operation_options
@shared_options
@pass_settings
def reconcile(settings: Settings, ids: tuple[str, ...], *, every: bool, dry_run: bool) -> None:
    """Make slivers again what they were created or last modified as.

    Nova's hard reboot, or a person, may have removed devices, NICs or volumes, or changed them. What was
    taken away is put back, live where it can be; a server that somebody stopped stays so. What cannot be
    repaired is named: another host or flavor, devices of others, a volume that is gone. No volume is
    removed or made, and no device is cleaned.

    --all looks at the whole site by listings first, which do not look into guests, and at each network
    service; it names those that nothing says of what they should be. The exit code of --dry-run is 1 if
    anything differs.
    """
    if bool(ids) == every:
        raise click.UsageError("name slivers by their ids, or all of them by --all")
    refs = inputs.references(ids, "")
    seen: list[SiteDrift] = []

    def ask(processor: "HandlerProcessor") -> "list[Future[Outcome]]":
        seen.extend([processor.drift()] if every else [])
        chosen = [drift.sliver for look in seen for drift in look.drifts] if every else refs
        return [_begin(processor, ref, dry_run=dry_run) for ref in chosen]

    done = _planned if dry_run else _repaired
    answers = running.run(settings, ask, None if dry_run else done)
    for look in seen:
        _tell_look(look, settings)
    if any(look.silent for look in seen):
        answers.incomplete = True
    running.tell(answers, settings, done=done)


def _begin(processor: "HandlerProcessor", ref: "SliverRef", *, dry_run: bool) -> "Future[Outcome]":
    from fabric_direct.model import Operation  # noqa: PLC0415 - see the package

    return processor.plan(ref, Operation.RECONCILE) if dry_run else processor.reconcile(ref)


def _tell_look(look: "SiteDrift", settings: Settings) -> None:
    err = show.console(stderr=True)
    for name, error in look.silent.items():
        show.say(err, f"{name} could not be looked at: {error}", "red")
    if look.unknown:
        names = ", ".join(f"{ref.type} {ref.id}" for ref in look.unknown)
        show.say(err, f"Not compared, for nothing says what they should be: {names}.")
    if not settings.as_json:
        looked_at = len(look.servers) + len(look.services)
        differ = f"Slivers that differ: {len(look.drifts)}, of {looked_at} looked at."
        show.say(show.console(), differ)


def _planned(outcome: "Outcome", out: "Console") -> None:
    """Print what differs, and what each step of the repair would do."""
    found = outcome.observed.differences if outcome.observed else ()
    _lines(out, outcome, "differs", found)
    _lines(out, outcome, "cannot be repaired", outcome.data.get("beyond", ()))
    if outcome.steps:
        show.plan(outcome, out, "reconcile")
    elif not found:
        show.say(out, f"{outcome.sliver.id}: nothing differs.")


def _repaired(outcome: "Outcome", out: "Console") -> None:
    """Print what was repaired."""
    repaired = outcome.data["repaired"]
    _lines(out, outcome, "repaired", repaired)
    said = f"is as it should be, in {outcome.seconds:.1f} s" if repaired else "nothing differs"
    show.say(out, f"{outcome.sliver.id}: {said}.", "bold green")


def _lines(out: "Console", outcome: "Outcome", what: str, texts: Collection[str]) -> None:
    for text in texts:
        show.say(out, f"{outcome.sliver.id}: {what}: {text}")


@click.command()
@click.option("--history", is_flag=True, help="Print what watchers did, and end.")
@metrics_option
@shared_options
@pass_settings
def watch(settings: Settings, *, history: bool, metrics_at: "Address | None") -> None:
    """Repair slivers and uplinks when others change them, until it is interrupted.

    It listens to libvirt, to Nova and to the kernels of workers, if site.yaml has "watch: {enabled:
    true}", and repairs as reconcile does. Each repair is a line on stdout and of the history below
    state_dir. Above the limits of site.yaml it only reports. It may be killed, and run more than once.
    """
    if history:
        _print_history(settings)
        return
    context = click.get_current_context()

    def tell(note: "Note") -> None:
        with context.scope(cleanup=False):  # the watcher has a thread of its own
            _tell_note(note, settings)

    with served(metrics_at, settings), running.site_processor(settings) as processor:
        watcher = processor.watch(tell)
        click.echo("Watching; interrupt to end.", err=True)
        with suppress(KeyboardInterrupt):
            watcher.wait()
        watcher.stop()


def _tell_note(note: "Note", settings: Settings) -> None:
    if settings.as_json:
        print_json(note.model_dump(mode="json", exclude_defaults=True), stream=True)
    else:
        click.echo(_described(note))


def _print_history(settings: Settings) -> None:
    from fabric_direct.state.repair_history import History  # noqa: PLC0415 - see the package
    from fabric_direct.state.site_store import store_of  # noqa: PLC0415

    site = settings.site()
    notes = list(History(store_of(site), site.watch.history * 1024).notes())
    if settings.as_json:
        print_json([note.model_dump(mode="json") for note in notes])
        return
    for note in notes:
        show.say(show.console(), _described(note))
    if not notes:
        show.say(show.console(), "No watcher has done anything yet.")


def _described(note: "Note") -> str:
    took = f" ({note.seconds:.1f} s)" if note.seconds else ""
    differs = "; ".join(note.differences)
    parts = (f"{note.subject}{took}", differs if differs not in note.why else "", note.why)
    after = f" (after: {note.cause})" if note.cause else ""
    return f"{note.at}  {note.did.value:<8}  {': '.join(filter(None, parts))}{after}"


COMMANDS: tuple[click.Command, ...] = (reconcile, watch)
