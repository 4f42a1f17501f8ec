"""A live view: a line for each sliver, updated in place, below what has ended."""

import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Self

from rich.console import Console, ConsoleRenderable, Group
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType
from rich.text import Text

from fabric_direct.cli import show
from fabric_direct.cli.options import printable
from fabric_direct.cli.under_way import (
    Clock,
    Report,
    SliverUnderWay,
    StepUnderWay,
    UnderWay,
    seconds,
)

if TYPE_CHECKING:
    from fabric_direct.model import Outcome
    from fabric_direct.operations.progress import Progress

_WIDEST_NAME = 32
"""Columns for the names of slivers; a longer one is cut."""


class _Region(Live):
    """Lines at the bottom of a terminal that may become narrower.

    Most terminals then wrap what is there: more rows are to be erased than were drawn.
    """

    def __init__(self, console: Console, lines: Callable[[], list[Text]]) -> None:
        self._get_lines = lines
        self._widths: list[int] = []
        """Of the lines that are drawn next."""
        self._drawn: list[int] = []
        """Of the lines that are there."""
        super().__init__(
            console=console,
            get_renderable=self._draw,
            transient=True,
            # What is no terminal keeps what it gets.
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=sys.stderr.isatty(),
        )

    def _draw(self) -> Group:
        lines = self._get_lines()
        self._widths = [line.cell_len for line in lines]
        return Group(*lines)

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Erase what was wrapped, and then what was drawn; draw all lines again."""
        width = self.console.width
        wrapped = sum(max(0, (drawn - 1) // width) for drawn in self._drawn)
        self._drawn = [min(width, each) for each in self._widths]
        up = [(ControlType.ERASE_IN_LINE, 2), (ControlType.CURSOR_UP, 1)] * wrapped
        return [Control(*up), *super().process_renderables(renderables)]


class LiveView:
    """A view of the operations under way, at the bottom of a terminal."""

    def __init__(
        self, console: Console, report: Report | None, clock: Clock = time.monotonic
    ) -> None:
        """Show nothing yet."""
        self._console, self._report = console, report
        self._under_way = UnderWay(clock)
        self._count, self._done, self._failed, self._cancelled = 0, 0, 0, 0
        self._live = _Region(console, self.lines)

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def note(self, progress: "Progress") -> None:
        """Note that a step begins, waits or ends."""
        self._under_way.note(progress)

    def begun(self, count: int) -> None:
        """Note how many operations were asked for."""
        self._count = count

    def ended(self, outcome: "Outcome | None") -> bool:
        """Print an outcome above the rest."""
        if outcome is None:
            self._cancelled += 1
            return False
        self._done += outcome.ok
        self._failed += not outcome.ok
        self._under_way.end(outcome.sliver.id)
        if self._report is None:
            return False
        # Two consoles on one terminal would not know where the other is.
        err = self._console if sys.stderr.isatty() else show.console(stderr=True)
        self._report(outcome, self._console, err)
        return True

    def look(self) -> None:
        """Do nothing: it is drawn again by itself."""

    def say(self, text: str) -> None:
        """Print a message above the rest."""
        show.say(self._console, text)

    def close(self) -> None:
        """Remove what is live."""
        self._live.stop()

    # --- what is drawn

    def lines(self) -> list[Text]:
        """Return the lines; each fits the width of the terminal, all of them its height."""
        slivers, room = self._under_way.slivers(), max(1, self._console.height - 2)
        shown = slivers[:room]
        width = min(_WIDEST_NAME, max((len(each.name) for each in shown), default=0))
        rows = [self._fit(self._row(each, width)) for each in shown]
        return [*rows, *(self._fit(line) for line in self._last(len(slivers), len(shown)))]

    def _fit(self, line: Text) -> Text:
        """Cut a line, so that it is never wrapped."""
        line.truncate(max(1, self._console.width - 1), overflow="ellipsis")
        line.no_wrap = True
        return line

    def _row(self, sliver: SliverUnderWay, width: int) -> Text:
        now = self._under_way.clock()
        name = Text(printable(sliver.name))
        name.truncate(width, overflow="ellipsis", pad=True)
        count = f"{sliver.done}/{sliver.total}" if sliver.total else "-"
        row = name.append(f"  {count:>5}  ", "cyan")
        steps = sorted(sliver.steps.values(), key=lambda step: step.since)
        return row.append(", ".join(_described(step, now) for step in steps) or "…", "default")

    def _last(self, under_way: int, shown: int) -> Iterator[Text]:
        """Yield a line about all of them, if there is more to say than the rows do."""
        past = seconds(self._under_way.clock() - self._under_way.began)
        ended = self._done + self._failed + self._cancelled
        if not (ended or under_way):
            yield Text(f"looking at what is there, {past}", "dim")
        elif self._count != 1 or not under_way:
            counts = {
                "done": self._done,
                "failed": self._failed,
                "cancelled": self._cancelled,
                "under way": under_way,
                "not begun": max(0, self._count - ended - under_way),
                "not shown": under_way - shown,
            }
            said = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
            yield Text(f"{said or 'begins'}; {past}", "dim")


def _described(step: StepUnderWay, now: float) -> str:
    """Return a step, since when it runs, and what it waits for."""
    lasts = f"{step.name} {seconds(now - step.since)}" if step.name else ""
    return printable(": ".join(filter(None, [lasts, step.waits(now)])))
