"""Operations from the command line: asked for, waited for, told, and turned into an exit code."""

import os
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from fabric_direct.cli import show
from fabric_direct.cli.options import (
    BAD_INPUT,
    FAILED,
    INTERRUPTED,
    PARTLY_DONE,
    Settings,
    log_to_stderr,
    print_json,
)

if TYPE_CHECKING:
    from rich.console import Console

    from fabric_direct.model import Outcome
    from fabric_direct.processor import HandlerProcessor

Ask = Callable[["HandlerProcessor"], "list[Future[Outcome]]"]


@dataclass
class Answers:
    """What became of the operations that were asked for."""

    outcomes: "list[Outcome]" = field(default_factory=list)
    """Of those that were begun, in the order they were asked for."""
    cancelled: int = 0
    """How many were not begun, because of an interrupt."""
    interrupted: bool = False


def run(settings: Settings, ask: Ask) -> Answers:
    """Ask a processor of the site for operations and wait for them, with their progress shown."""
    from fabric_direct.cli import progress  # noqa: PLC0415 - see the package
    from fabric_direct.processor import HandlerProcessor  # noqa: PLC0415

    log_to_stderr(settings)
    site = settings.site()
    told = show.console(stderr=settings.as_json)
    with (
        progress.shown(told, quiet=settings.as_json) as on_progress,
        HandlerProcessor(site, on_progress=on_progress) as processor,
    ):
        return _gather(ask(processor))


def _gather(futures: "list[Future[Outcome]]") -> Answers:
    interrupted = False
    while not _waited(futures):
        if interrupted:
            _leave()
        interrupted = True
        _cancel(futures)
    begun = [future for future in futures if not future.cancelled()]
    return Answers([f.result() for f in begun], len(futures) - len(begun), interrupted)


def _waited(futures: "list[Future[Outcome]]") -> bool:
    try:
        wait(futures)
    except KeyboardInterrupt:
        return False
    return True


def _cancel(futures: "list[Future[Outcome]]") -> None:
    cancelled = sum(future.cancel() for future in futures)
    begun = sum(not future.done() for future in futures)
    click.echo(
        f"\nInterrupted: {cancelled} not begun and cancelled; {begun} under way, waiting for the end.\n"
        "Interrupt again to leave at once; `fabric-direct recover` then finishes or undoes it.",
        err=True,
    )


def _leave() -> None:
    """End the process with its threads in the middle of their work: the journal knows of it."""
    click.echo("Left. See `fabric-direct recover`.", err=True)
    os._exit(INTERRUPTED)


def tell(
    answers: Answers,
    settings: Settings,
    *,
    done: "Callable[[Outcome, Console], None]" = show.done,
    many: bool = False,
) -> None:
    """Print the outcomes and leave with the exit code that fits.

    :param done: prints an outcome that is done, for people.
    :param many: whether several operations were asked for: the JSON document is a list then.
    """
    if settings.as_json:
        values = [outcome.model_dump(mode="json") for outcome in answers.outcomes]
        print_json(values if many or not values else values[0])
    else:
        tell_people(answers.outcomes, done)
    click.get_current_context().exit(exit_code(answers))


def tell_people(outcomes: "list[Outcome]", done: "Callable[[Outcome, Console], None]") -> None:
    """Print the outcomes."""
    out, err = show.console(), show.console(stderr=True)
    for outcome in outcomes:
        if outcome.ok:
            done(outcome, out)
        else:
            show.failure(outcome, err)
        show.warnings(outcome, err)


def exit_code(answers: Answers) -> int:
    """Return the exit code for all outcomes together."""
    statuses = {outcome.status.value for outcome in answers.outcomes}
    if answers.interrupted:
        return INTERRUPTED
    if statuses <= {"done"}:
        return FAILED if any(map(_differs, answers.outcomes)) else 0
    if statuses == {"refused"}:
        return BAD_INPUT
    return PARTLY_DONE if statuses & {"done", "partial"} else FAILED


def _differs(outcome: "Outcome") -> bool:
    """Tell whether a probe found the sliver absent or other than wanted."""
    return bool(
        outcome.operation.value == "probe" and outcome.observed and outcome.observed.differences
    )
