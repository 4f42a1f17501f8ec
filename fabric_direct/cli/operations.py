"""The commands that plan, create, modify, delete and probe slivers."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabric_direct.cli import inputs, running, show
from fabric_direct.cli.options import Settings, pass_settings, shared_options

if TYPE_CHECKING:
    from rich.console import Console

    from fabric_direct.model import Outcome, SliverRef

_FILE = click.Path(path_type=Path, dir_okay=False)
_type = click.option(
    "--type",
    "resource_type",
    default="VM",
    show_default=True,
    help="Resource type of a sliver that is given by its id.",
)


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=_FILE)
@shared_options
@pass_settings
def create(settings: Settings, files: tuple[Path, ...]) -> None:
    """Create the slivers that the FILEs describe, in parallel.

    A sliver that exists already is left as it is. A creation that fails is undone.
    """
    slivers = inputs.slivers(files)
    answers = running.run(settings, lambda processor: [processor.create(s) for s in slivers])
    running.tell(answers, settings, done=_observed(slivers), many=len(files) > 1)


@click.command()
@click.argument("file", type=_FILE)
@shared_options
@pass_settings
def modify(settings: Settings, file: Path) -> None:
    """Change an existing sliver to match FILE.

    Components are matched by id: new ones are added, missing ones removed, and networks, addresses and
    bandwidths changed. Cores, RAM, image and keys cannot be changed.
    """
    sliver = inputs.sliver(file)
    answers = running.run(settings, lambda processor: [processor.modify(sliver)])
    running.tell(answers, settings, done=_observed([sliver]))


@click.command()
@click.argument("words", metavar="FILE_OR_ID...", nargs=-1, required=True)
@_type
@shared_options
@pass_settings
def delete(settings: Settings, words: tuple[str, ...], resource_type: str) -> None:
    """Delete slivers with everything that was created for them, and verify that nothing is left.

    An argument that contains "/", or ends in .yaml, .yml or .json, is a file; anything else is the id of
    a sliver. Deleting a sliver that does not exist succeeds.
    """
    refs = inputs.references(words, resource_type)
    answers = running.run(settings, lambda processor: [processor.delete(ref) for ref in refs])
    running.tell(answers, settings, many=len(refs) > 1)


@click.command()
@click.argument("file", type=_FILE)
@click.option("--delete", is_flag=True, help="Plan its deletion.")
@shared_options
@pass_settings
def plan(settings: Settings, file: Path, *, delete: bool) -> None:
    """Show what each step of create, or modify if the sliver exists, would do. Changes nothing.

    A step is "already so", or says what it will do: "will create", "will change", "will delete".
    """
    sliver = inputs.sliver(file)
    from fabric_direct.model import Operation  # noqa: PLC0415 - see the package

    operation = Operation.DELETE if delete else None
    answers = running.run(settings, lambda processor: [processor.plan(sliver, operation)])
    running.tell(answers, settings, done=show.plan)


@click.command()
@click.argument("word", metavar="FILE_OR_ID")
@_type
@shared_options
@pass_settings
def probe(settings: Settings, word: str, resource_type: str) -> None:
    """Show the state, NICs, volumes and devices of a sliver, and whether its guest answers.

    It is compared with FILE or, if given by its id, with what it was created from. The exit code is 0 if
    it exists and matches, 1 if it is absent or differs.
    """
    ref = inputs.reference(word, resource_type)
    answers = running.run(settings, lambda processor: [processor.probe(ref)])
    running.tell(answers, settings, done=_observed([ref]))


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
@click.argument("word", metavar="FILE_OR_ID")
@click.argument("action")
@click.argument("data", required=False)
@_type
@shared_options
@pass_settings
def poa(settings: Settings, word: str, action: str, data: str | None, resource_type: str) -> None:
    """Carry out an operational ACTION on a sliver.

    DATA is JSON text, @FILE, or - for stdin.
    """
    ref, values = inputs.reference(word, resource_type), inputs.data(data)
    answers = running.run(settings, lambda processor: [processor.poa(ref, action, values)])
    running.tell(answers, settings, done=show.answer)


@click.command()
@click.option("--undo", is_flag=True, help="Undo the operations instead of finishing them.")
@shared_options
@pass_settings
def recover(settings: Settings, *, undo: bool) -> None:
    """Finish or undo the operations of a process that was killed.

    With --undo, a sliver that was being created is deleted, unless it was there before, and one that was
    being modified gets its former state back. Deletions are always finished. Slivers that another
    process is working on are left alone.
    """
    answers = running.run(settings, lambda processor: processor.recover(undo=undo))
    if not answers.outcomes and not settings.as_json:
        show.say(show.console(), "Nothing is unfinished.")
    running.tell(answers, settings, many=True)


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
