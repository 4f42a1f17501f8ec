"""Show the progress of operations: live on a terminal, elsewhere a plain line for each step."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.progress import Progress as Display
from rich.text import Text

from fabric_direct.cli.show import style_of
from fabric_direct.operations import Progress

Told = Callable[[Progress], None]


@contextmanager
def shown(console: Console, *, quiet: bool) -> Iterator[Told]:
    """Yield a function that shows progress while the block runs.

    :param quiet: whether to show nothing unless the console is a terminal.
    """
    if not console.is_terminal:
        yield (lambda _: None) if quiet else partial(_print_end, console)
        return
    display = Display(
        SpinnerColumn(),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
        console=console,
        transient=True,
    )
    with display:
        yield _Bars(display, display.add_task("looking at what is there", total=None))


def _print_end(console: Console, progress: Progress) -> None:
    """Print a line if a step has ended."""
    if progress.status is not None:
        line = Text(f"{_named(progress)}  ")
        line.append(f"{progress.status.value:<11}", style_of(progress.status))
        line.append(f"{progress.seconds:>8.2f} s  {progress.step}", "default")
        console.print(line, soft_wrap=True)


def _named(progress: Progress) -> str:
    """Return the sliver's id, and its host if placement chose it."""
    return f"{progress.sliver} on {progress.host}" if progress.host else progress.sliver


@dataclass
class _Bars:
    """A bar for each sliver, with the steps that run, below a line for each step that has ended."""

    display: Display
    before: TaskID
    """Shown until the first step begins."""
    bars: dict[str, TaskID] = field(default_factory=dict)
    running: dict[str, list[str]] = field(default_factory=dict)

    def __call__(self, progress: Progress) -> None:
        self._note(progress)
        steps = ", ".join(self.running[progress.sliver]) or "..."
        self.display.update(
            self._bar(progress),
            completed=progress.done,
            description=f"{progress.operation.value} {_named(progress)}: {steps}",
        )
        _print_end(self.display.console, progress)

    def _bar(self, progress: Progress) -> TaskID:
        if progress.sliver not in self.bars:
            self.display.update(self.before, visible=False)
            self.bars[progress.sliver] = self.display.add_task("", total=progress.total)
        return self.bars[progress.sliver]

    def _note(self, progress: Progress) -> None:
        running = self.running.setdefault(progress.sliver, [])
        if progress.status is None:
            running.append(progress.step)
        elif progress.step in running:
            running.remove(progress.step)
