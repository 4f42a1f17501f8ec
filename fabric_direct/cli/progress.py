"""Show the progress of operations: live on a terminal, elsewhere plain lines."""

import time
from contextlib import AbstractContextManager, suppress
from threading import RLock
from typing import TYPE_CHECKING, Protocol, Self

import click
from rich.console import Console
from rich.text import Text

from fabric_direct.cli import show
from fabric_direct.cli.under_way import Clock, Report, UnderWay, named

if TYPE_CHECKING:
    from fabric_direct.model import Outcome
    from fabric_direct.operations.progress import Progress

STILL = 30.0
"""Seconds after which a line says that a step is still under way, again and again."""


class View(AbstractContextManager["View"], Protocol):
    """A view of operations while they run."""

    def note(self, progress: "Progress") -> None:
        """Show that a step begins, waits or ends; from any thread."""

    def begun(self, count: int) -> None:
        """Say how many operations were asked for."""

    def ended(self, outcome: "Outcome | None") -> bool:
        """Show that an operation has ended, or was cancelled; return whether all is told of it."""

    def look(self) -> None:
        """Show what time has changed; called about once a second."""

    def say(self, text: str) -> None:
        """Print a message for people."""

    def close(self) -> None:
        """Leave the terminal as it was."""


def view(console: Console, *, quiet: bool, watch: bool, report: Report | None) -> View:
    """Return what shows operations on a console.

    :param quiet: whether to show nothing unless it is live.
    :param watch: whether to show them live, if the console is a terminal.
    :param report: prints an outcome as soon as it is there, above what is live.
    """
    if watch and console.is_terminal and not console.is_dumb_terminal:
        from fabric_direct.cli.live import LiveView  # noqa: PLC0415 - a pipe has no use for it

        return LiveView(console, report)
    return Lines(None if quiet else console)


class Lines:
    """A line for each step that has ended, and for those that take long."""

    def __init__(self, console: Console | None, clock: Clock = time.monotonic) -> None:
        """Print to a console; nothing without one."""
        self._console, self._under_way = console, UnderWay(clock)
        self._lock = RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def note(self, progress: "Progress") -> None:
        """Print a line if a step has ended."""
        self._under_way.note(progress)
        if progress.status is not None:
            self._line(named(progress), progress.status.value, progress.seconds, progress.step)

    def _line(self, sliver: str, status: str, seconds: float, step: str) -> None:
        if self._console is None:
            return
        line = Text(f"{sliver}  ").append(f"{status:<11}", show.style_of(status))
        line.append(f"{seconds:>8.2f} s  {step}", "default")
        with self._lock, suppress(OSError):  # told in the end, with what was done
            self._console.print(line, soft_wrap=True)

    def begun(self, count: int) -> None:
        """Print nothing."""

    def ended(self, outcome: "Outcome | None") -> bool:
        """Print nothing: it is told in the end."""
        if outcome:
            self._under_way.end(outcome.sliver.id)
        return False

    def look(self) -> None:
        """Print a line for each step that takes long."""
        now = self._under_way.clock()
        for sliver, step in self._under_way.long_running(STILL):
            what = ": ".join(filter(None, [step.name, step.waits(now)]))
            self._line(sliver.name, "under way", now - step.since, what)

    def say(self, text: str) -> None:
        """Print a message to stderr."""
        click.echo(text, err=True)

    def close(self) -> None:
        """Do nothing."""
