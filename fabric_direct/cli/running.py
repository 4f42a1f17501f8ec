"""Run operations from the command line: start them, wait, print the outcomes, set the exit code."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

import click

from fabric_direct.cli import inputs, interrupts, lost_output, show
from fabric_direct.cli.options import (
    BAD_INPUT,
    FAILED,
    INTERRUPTED,
    PARTLY_DONE,
    Settings,
    explained_by,
    log_to_stderr,
    print_json,
    printable,
)
from fabric_direct.errors import Conflict, Refused

if TYPE_CHECKING:
    from rich.console import Console

    from fabric_direct.cli.progress import View
    from fabric_direct.model import Outcome
    from fabric_direct.operations.progress import Progress
    from fabric_direct.processor import HandlerProcessor
    from fabric_direct.site.config import Site

Ask = Callable[["HandlerProcessor"], "Sequence[Future[Outcome]]"]
Done = Callable[["Outcome", "Console"], None]
"""Prints a successful outcome as text."""
_LOOKS = frozenset({"probe", "plan"})
"""Operations that change nothing."""
_LOOK_AGAIN = 1.0
"""Seconds after which what is under way is looked at, if nothing happens."""


@dataclass
class Detached:
    """An operation that a conductor carries out, whatever becomes of this process."""

    sliver: str
    id: str


@dataclass
class Results:
    """The results of the requested operations."""

    outcomes: "list[Outcome]" = field(default_factory=list)
    """Of the operations that were started, in the order of the requests."""
    interrupted: str = ""
    """What an interrupt left; empty if there was none."""
    incomplete: bool = False
    """Whether there may be more to do, on hosts that do not answer."""
    told: bool = False
    """Whether the outcomes were printed as they came."""
    detached: "list[Detached]" = field(default_factory=list)
    """The operations that were left to conductors."""

    @property
    def posted(self) -> list[dict[str, str]]:
        """The operations that were left to conductors, as programs get them."""
        return [asdict(each) for each in self.detached]


@contextmanager
def site_processor(
    settings: Settings, on_progress: "Callable[[Progress], None] | None" = None
) -> "Iterator[HandlerProcessor]":
    """Log to stderr and provide a processor of the site, which is shut down afterwards."""
    from fabric_direct.processor import HandlerProcessor  # noqa: PLC0415 - see the package

    log_to_stderr(settings)
    site = settings.site()
    with kept_login(site), HandlerProcessor(site, on_progress=on_progress) as processor:
        yield processor


def kept_login(site: "Site") -> AbstractContextManager[None]:
    """Let the commands of a site on a cloud share a login, for as long as it is valid."""
    if "openstack" not in site.drivers.values():
        return nullcontext()
    from fabric_direct.drivers.openstack.client.kept_session import keeping  # noqa: PLC0415 - see the package

    return keeping(site.state_dir / "cloud")


def run(settings: Settings, ask: Ask, done: Done | None = None) -> Results:
    """Start operations on a processor of the site, show their progress, and wait for them.

    :param done: prints a successful outcome, of commands that change slivers: where progress is shown
        live, each outcome is printed as soon as it is there.
    :raises Refused: if the operations are to be left to conductors and the site has none.
    """
    if settings.detach and not settings.site().conductors:
        raise Refused(
            "--detach: nobody would go on with the operations",
            why="the site has no conductors",
            remedy="leave the option out, or add conductors to site.yaml",
        )
    from fabric_direct.cli import progress, trace_file  # noqa: PLC0415 - see the package

    report = partial(_report, done) if done and not settings.as_json else None
    told = show.console(stderr=settings.as_json)
    view = progress.view(told, quiet=settings.as_json, watch=settings.watch, report=report)
    traced = trace_file.traced(settings.trace)
    with view, traced, site_processor(settings, view.note) as processor:
        answers = _Running(processor, view, settings).answers(ask)
    lost_output.note(map(_line, _changed(answers.outcomes)), exit_code(answers))
    return answers


def _line(outcome: "Outcome") -> str:
    """Return an outcome in a line."""
    error = f": {outcome.error.kind}: {outcome.error.message}" if outcome.error else ""
    left = f"; left: {', '.join(outcome.left)}" if outcome.left else ""
    ended = f"{outcome.operation.value} {outcome.status.value}"
    return printable(f"{outcome.sliver.id}: {ended}{error}{left}")


def _changed(outcomes: "Iterable[Outcome]") -> "list[Outcome]":
    """Return the outcomes of operations that may have changed something."""
    return [outcome for outcome in outcomes if outcome.operation.value not in _LOOKS]


class _Running:
    """Operations that run; what happens to them is shown by the main thread."""

    def __init__(self, processor: "HandlerProcessor", view: "View", settings: Settings) -> None:
        self._processor, self._view = processor, view
        self._detach, self._site_file = settings.detach, settings.found_site()
        self._news: SimpleQueue[Future[Outcome] | interrupts.Interrupts] = SimpleQueue()
        self._outcomes: dict[Future[Outcome], Outcome] = {}
        self._answers = Results()

    def answers(self, ask: Ask) -> Results:
        signals = interrupts.Interrupts(self._processor, self._news.put, self._view.close)
        with signals:
            futures = self._asked(ask, signals)
            self._wait(self._leave(futures) if self._detach else futures)
            self._answers.interrupted = signals.left() if signals.any else ""
        self._answers.outcomes = [self._outcomes[f] for f in futures if f in self._outcomes]
        return self._answers

    def _asked(self, ask: Ask, signals: interrupts.Interrupts) -> "Sequence[Future[Outcome]]":
        """Begin the operations.

        :raises KeyboardInterrupt: if an interrupt came before all of them were asked for.
        """
        try:
            futures = ask(self._processor)
        except (Conflict, CancelledError):
            if not signals.any:
                raise
            self._processor.shutdown()
            self._view.say(signals.left())
            raise KeyboardInterrupt from None
        self._view.begun(len(futures))
        return futures

    def _leave(self, futures: "Sequence[Future[Outcome]]") -> "Sequence[Future[Outcome]]":
        """Leave operations to conductors; return the others, which have ended."""
        from fabric_direct.operations.operation_future import OperationFuture  # noqa: PLC0415

        self._processor.leave()
        ended = []
        for future in futures:
            if isinstance(future, OperationFuture) and not future.done():
                self._answers.detached.append(Detached(future.sliver, future.id))
            else:
                ended.append(future)
        return ended

    def _wait(self, futures: "Sequence[Future[Outcome]]") -> None:
        for future in futures:
            future.add_done_callback(self._news.put)
        running = set(futures)
        while running:
            try:
                news = self._news.get(timeout=_LOOK_AGAIN)
            except Empty:
                self._view.look()
                continue
            if isinstance(news, Future):
                running.discard(news)
                self._ended(news)
            else:
                self._interrupted(news)

    def _ended(self, future: "Future[Outcome]") -> None:
        if future.cancelled():
            self._view.ended(None)
            return
        outcome = inputs.with_line(future.result(), self._site_file)
        self._outcomes[future] = outcome
        self._answers.told = self._view.ended(outcome)

    def _interrupted(self, signals: interrupts.Interrupts) -> None:
        running = interrupts.listed(signals.under_way) or "none"
        self._view.say(
            f"Interrupted: nothing more is begun; {len(signals.cancelled)} cancelled.\n"
            f"Waiting for the calls under way: {running}. Interrupt again to end at once."
        )


def tell(answers: Results, settings: Settings, *, done: Done = show.done, success: int = 0) -> None:
    """Print the outcomes and exit with the matching code.

    :param done: prints a successful outcome as text.
    :param success: the exit code if all went well.
    """
    if settings.as_json:
        print_json(answers.posted or None, outcomes=answers.outcomes)
        _tell_interrupt(answers)
    else:
        tell_people(answers, done)
    click.get_current_context().exit(exit_code(answers) or success)


def tell_people(answers: Results, done: Done) -> None:
    """Print the outcomes as text, unless that was done as they came."""
    out, err = show.console(), show.console(stderr=True)
    for outcome in () if answers.told else answers.outcomes:
        _report(done, outcome, out, err)
    for each in answers.detached:
        show.say(
            out, f"{each.sliver}: left to a conductor; fabric-direct operations show {each.id}"
        )
    _tell_interrupt(answers)
    if hint := explained_by(outcome.error.kind for outcome in answers.outcomes if outcome.error):
        click.echo(hint, err=True)


def _report(done: Done, outcome: "Outcome", out: "Console", err: "Console") -> None:
    if outcome.ok:
        done(outcome, out)
    else:
        show.failure(outcome, err)
    show.warnings(outcome, err)


def _tell_interrupt(answers: Results) -> None:
    if answers.interrupted:
        click.echo(f"Interrupted.\n{answers.interrupted}", err=True)


def exit_code(answers: Results) -> int:
    """Return the exit code for all outcomes together."""
    statuses = {outcome.status.value for outcome in answers.outcomes}
    if answers.interrupted:
        return INTERRUPTED
    if statuses <= {"done"}:
        differ = any(map(_differs, answers.outcomes))
        return FAILED if differ else PARTLY_DONE if answers.incomplete else 0
    if statuses == {"refused"}:
        return BAD_INPUT
    some = statuses & {"done", "partial"} or any(outcome.left for outcome in answers.outcomes)
    return PARTLY_DONE if some else FAILED


def _differs(outcome: "Outcome") -> bool:
    """Return whether a probe, or the plan of a repair, found the sliver absent or different."""
    looks = outcome.operation.value in _LOOKS
    return bool(looks and outcome.observed and outcome.observed.differences)
