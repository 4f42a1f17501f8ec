"""Run operations from the command line: start them, wait, print the outcomes, set the exit code."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from fabric_direct.cli import inputs, show
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
    from fabric_direct.operations import Progress
    from fabric_direct.processor import HandlerProcessor

Ask = Callable[["HandlerProcessor"], "list[Future[Outcome]]"]


@dataclass
class Answers:
    """The results of the requested operations."""

    outcomes: "list[Outcome]" = field(default_factory=list)
    """Of the operations that were started, in the order of the requests."""
    cancelled: int = 0
    """Number of operations that were not started because of an interrupt."""
    interrupted: bool = False
    incomplete: bool = False
    """Whether there may be more to do, on hosts that do not answer."""


@contextmanager
def site_processor(
    settings: Settings, on_progress: "Callable[[Progress], None] | None" = None
) -> "Iterator[HandlerProcessor]":
    """Log to stderr and provide a processor of the site, which is shut down afterwards."""
    from fabric_direct.processor import HandlerProcessor  # noqa: PLC0415 - see the package

    log_to_stderr(settings)
    with HandlerProcessor(settings.site(), on_progress=on_progress) as processor:
        yield processor


def run(settings: Settings, ask: Ask) -> Answers:
    """Start operations on a processor of the site, show their progress, and wait for them."""
    from fabric_direct.cli import progress  # noqa: PLC0415 - see the package

    told = show.console(stderr=settings.as_json)
    with (
        progress.shown(told, quiet=settings.as_json) as on_progress,
        site_processor(settings, on_progress) as processor,
    ):
        answers = _gather(ask(processor))
    answers.outcomes = [inputs.with_line(outcome) for outcome in answers.outcomes]
    return answers


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
        f"\nInterrupted: {cancelled} cancelled before they began; waiting for {begun} running.\n"
        "Interrupt again to exit at once; `fabric-direct recover` then finishes or undoes them.",
        err=True,
    )


def _leave() -> None:
    """End the process while its threads are running; the journal has their operations."""
    click.echo("Exited with unfinished operations; run `fabric-direct recover`.", err=True)
    os._exit(INTERRUPTED)


def tell(
    answers: Answers,
    settings: Settings,
    *,
    done: "Callable[[Outcome, Console], None]" = show.done,
    many: bool = False,
) -> None:
    """Print the outcomes and exit with the matching code.

    :param done: prints a successful outcome as text.
    :param many: whether several operations were requested; the JSON document is a list then.
    """
    if settings.as_json:
        values = [outcome.model_dump(mode="json") for outcome in answers.outcomes]
        print_json(values if many or not values else values[0])
    else:
        tell_people(answers.outcomes, done)
    click.get_current_context().exit(exit_code(answers))


def tell_people(outcomes: "list[Outcome]", done: "Callable[[Outcome, Console], None]") -> None:
    """Print the outcomes as text."""
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
        differ = any(map(_differs, answers.outcomes))
        return FAILED if differ else PARTLY_DONE if answers.incomplete else 0
    if statuses == {"refused"}:
        return BAD_INPUT
    return PARTLY_DONE if statuses & {"done", "partial"} else FAILED


def _differs(outcome: "Outcome") -> bool:
    """Return whether a probe, or the plan of a repair, found the sliver absent or different."""
    looks = outcome.operation.value in {"probe", "plan"}
    return bool(looks and outcome.observed and outcome.observed.differences)
