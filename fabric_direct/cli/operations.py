"""The commands that make, change, remove and look at slivers."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabric_direct.cli import inputs, running, show, sliver_report
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
    help="Resource type of a sliver that is named by its id.",
)


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=_FILE)
@shared_options
@pass_settings
def create(settings: Settings, files: tuple[Path, ...]) -> None:
    """Make the slivers that the FILEs describe, several at once in parallel.

    A sliver that is there already is left as it is. What fails is taken back.
    """
    slivers = inputs.slivers(files)
    answers = running.run(settings, lambda processor: [processor.create(s) for s in slivers])
    running.tell(answers, settings, done=_observed(slivers), many=len(files) > 1)


@click.command()
@click.argument("file", type=_FILE)
@shared_options
@pass_settings
def modify(settings: Settings, file: Path) -> None:
    """Turn a sliver that is there into the one that FILE describes.

    Components are told apart by their ids: new ones are added, missing ones removed, and networks,
    addresses and bandwidths changed. Core, RAM, image and keys are fixed once a sliver is made.
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
    """Remove slivers, with all that was made for them, and see that nothing is left.

    A word with a "/", or that ends in .yaml, .yml or .json, is a file; anything else is a sliver's id.
    To remove what is not there succeeds.
    """
    refs = inputs.references(words, resource_type)
    answers = running.run(settings, lambda processor: [processor.delete(ref) for ref in refs])
    running.tell(answers, settings, many=len(refs) > 1)


@click.command()
@click.argument("file", type=_FILE)
@click.option("--delete", is_flag=True, help="Plan its removal.")
@shared_options
@pass_settings
def plan(settings: Settings, file: Path, *, delete: bool) -> None:
    """Say what each step would do, to create or modify the sliver, whichever it is. Changes nothing.

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
    """Look at a sliver: its state, NICs, volumes and devices, and whether its guest answers.

    It is compared with FILE, or by its id with what it was made from. Exit code 0 says that it is
    there and as wanted, 1 that it is absent or differs.
    """
    ref = inputs.reference(word, resource_type)
    answers = running.run(settings, lambda processor: [processor.probe(ref)])
    running.tell(answers, settings, done=_observed([ref]))


_ACTIONS = """\b
Actions of a VM, and their DATA:
  start, stop
  reboot             {"hard": true} is a power cycle; else the guest is asked
  console            {"lines": 50}: the last lines of its serial console
  cpuinfo, numainfo  where its CPUs run and its memory is
  cpupin             {"vcpu_cpu_map": [{"vcpu": 0, "cpu": 3}]}
  numatune           {"node_set": [0]}
  resize             {"flavor": "m1.large"} or {"capacities": {"core": 2, "ram": 4, "disk": 20}}
  addkey, removekey  {"keys": [{"key": "ssh-ed25519 AAAA...", "comment": "me"}]}
  rescan             {"bdf": ["0000:25:00.0"]}: remove PCI devices and find them again
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
@click.option("--undo", is_flag=True, help="Take back what was begun instead of finishing it.")
@shared_options
@pass_settings
def recover(settings: Settings, *, undo: bool) -> None:
    """Finish what a process began that was killed, or take it back.

    With --undo a sliver that was being created is deleted, and one that was being modified becomes
    again what it was. A deletion is always finished. What another process is working on is left alone.
    """
    answers = running.run(settings, lambda processor: processor.recover(undo=undo))
    if not answers.outcomes and not settings.as_json:
        show.say(show.console(), "Nothing is unfinished.")
    running.tell(answers, settings, many=True)


def _observed(slivers: "Sequence[SliverRef]") -> "Callable[[Outcome, Console], None]":
    """Return what prints what an operation on one of the slivers sliver_report."""
    by_id = {sliver.id: sliver for sliver in slivers}

    def show_both(outcome: "Outcome", out: "Console") -> None:
        if outcome.steps:
            show.done(outcome, out)
        if outcome.observed:
            sliver_report.show(outcome.observed, by_id[outcome.sliver.id], out)

    return show_both


COMMANDS: tuple[click.Command, ...] = (plan, create, modify, delete, probe, poa, recover)
