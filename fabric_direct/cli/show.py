"""Print tables and sentences."""

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fabric_direct.cli.options import printable
from fabric_direct.errors import Interrupted

if TYPE_CHECKING:
    from fabric_direct.model import Outcome, StepReport

_COLOURS = {
    **dict.fromkeys(("done", "already so", "running", "found", "ok"), "green"),
    **dict.fromkeys(("failed", "undo failed", "error", "fail", "missing", "absent"), "red"),
    **dict.fromkeys(("will create", "will change", "undone", "not wanted", "warn"), "yellow"),
    "will delete": "magenta",
    "refused": "red",
    **dict.fromkeys(("partial", "begun"), "yellow"),
    "free": "green",
    "quarantined": "red",
    "lost": "red",
    "unclean": "yellow",
}
# Columns that are folded if the terminal is narrow.
_LONG = {
    *("ADDRESSES", "IN THE GUEST", "SOURCE", "LABEL", "INSTANCE"),
    *("WHY", "LACKS", "WHO", "LEFT", "MEANING"),
}


class _Console(Console):
    """A console that tells who prints that its pipe has no reader."""

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError; Rich would end the thread, of which an operation may be the work."""
        raise  # noqa: PLE0704 - Rich calls it while it handles the error


# In a pipe, nothing is cut or folded.
_PIPE_WIDTH = 400


def console(*, stderr: bool = False) -> Console:
    """Return a console that prints text without markup."""
    made = _Console(stderr=stderr, markup=False, highlight=False, emoji=False)
    if not made.is_terminal:
        made.width = _PIPE_WIDTH
    return made


def style_of(word: str) -> str:
    """Return the colour of a verdict or state; empty for the default colour."""
    return _COLOURS.get(word, "")


def table(
    to: Console, headers: Iterable[str], rows: Iterable[Iterable[str]], *, every: bool = False
) -> None:
    """Print a table without borders, so that other programs can read it.

    Nothing is cut: long cells are folded.

    :param every: whether to print empty columns, too.
    """
    made = Table(box=None, pad_edge=False, header_style="bold")
    columns = [column for column in zip(headers, *rows, strict=True) if every or any(column[1:])]
    for header, *cells in columns:
        width = len(header) if header in _LONG else max(map(len, (header, *cells)))
        made.add_column(header, overflow="fold", min_width=width)
    for row in list(zip(*columns, strict=True))[1:]:
        made.add_row(*(Text(printable(cell) or "-", _COLOURS.get(cell, "")) for cell in row))
    to.print(made, width=max(to.width, to.measure(made).minimum), crop=False)


def say(to: Console, text: str, style: str = "") -> None:
    """Print lines of text."""
    to.print(Text(printable(text), style), soft_wrap=True)


# --- outcomes

_UNCHANGED = {"already so", "will wait"}
"""Findings of steps that change nothing."""
_DONE = {
    "create": "created",
    "modify": "modified",
    "delete": "deleted",
    "adopt": "adopted",
}


def done(of: "Outcome", out: Console, *, of_any_type: bool = False) -> None:
    """Print a successful outcome.

    :param of_any_type: whether a sliver of whatever type was asked for.
    """
    unchanged = all(step.finding and step.finding.value in _UNCHANGED for step in of.steps)
    where = f" on {of.data['host']}" if of.data.get("host") else ""
    verb = f"{_DONE[of.operation.value]}{where} in"
    if unchanged and of.operation.value == "delete":
        kind = "sliver" if of_any_type else of.sliver.type
        verb = f"nothing to do, there is no {kind} of this id,"
    elif unchanged and of.steps:
        verb = f"nothing to do{where},"
    say(out, f"{of.sliver.id}: {verb} {of.seconds:.1f} s", "bold green")


def warnings(of: "Outcome", err: Console) -> None:
    """Print the warnings of an outcome."""
    for warning in of.warnings:
        say(err, f"{of.sliver.id}: warning: {warning}", "yellow")


_ENDED = {
    "refused": "refused, nothing was touched",
    "partial": "partly done",
}


def failure(of: "Outcome", err: Console) -> None:
    """Print a failed outcome: the error and what is left behind."""
    say(err, f"{of.sliver.id}: {of.operation.value} {_ended(of)} ({of.seconds:.1f} s)", "bold red")
    if of.error:
        say(err, f"  {of.error.kind}: {of.error.message}")
    interrupted = of.failed_by(Interrupted)
    for left in of.left:
        if not left.startswith("not done: "):  # the error says it
            there = "" if left.startswith("unknown: ") else "still there: "
            say(err, f"  {there}{left}", "red")
    if of.left and not interrupted:
        say(err, "  Run the command again, or delete the sliver: either continues from there.")


def _ended(of: "Outcome") -> str:
    status = of.status.value
    if of.failed_by(Interrupted):
        return "interrupted"
    if of.operation.value == "reconcile" and status == "partial":
        return "repaired in part"
    if of.operation.value not in _DONE or (status == "failed" and of.left):
        return status
    return f"failed, {_state_after_failure(of)}" if status == "failed" else _ENDED[status]


def _state_after_failure(of: "Outcome") -> str:
    """Return what a failed operation that left nothing came to."""
    operation = of.operation.value
    if operation == "adopt":
        return "no stamp is left"
    if not of.steps:
        return "nothing was changed"
    return "nothing of it is left" if operation == "delete" else "all that it did is undone"


_WOULD_BE = {
    "create": "created",
    "modify": "modified",
    "delete": "deleted",
    "reconcile": "repaired",
    "adopt": "adopted",
}


def plan(of: "Outcome", out: Console, operation: str = "") -> None:
    """Print the host that placement would choose, if it is open, and what each step would do.

    :param operation: which is planned, if the outcome does not say it.
    """
    if "host" in of.data:
        others = f"; next: {', '.join(of.data['next'])}" if of.data["next"] else ""
        say(out, f"{of.sliver.id}: goes to {of.data['host']}, cost {of.data['cost']}{others}")
    for step in of.steps:
        found = step.finding.value if step.finding else step.status.value
        line = Text("  ").append(f"{found:<12}", style_of(found))
        out.print(line.append(f"  {printable(_with_changes(step))}", "default"), soft_wrap=True)
    for device, change in of.data.get("device_changes", {}).items():
        say(out, f"  device {device}:")
        for line in change.splitlines():
            say(out, f"    {line}")
    operation = str(of.data.get("operation", operation))
    say(out, f"{of.sliver.id}: {_verdict(operation, planned_changes(of))}")


def planned_changes(of: "Outcome") -> int:
    """Return how many steps of a plan would change something."""
    return sum(step.finding is not None and step.finding.value != "already so" for step in of.steps)


def _verdict(operation: str, changes: int) -> str:
    """Return what an operation would come to."""
    if changes:
        steps = f"{changes} step{'s' if changes > 1 else ''}"
        return f"would be {_WOULD_BE[operation]}: {steps}. Nothing was changed."
    return "nothing to do, it is not there." if operation == "delete" else "nothing to do."


def _with_changes(step: "StepReport") -> str:
    """Return the step with its changes: ``nic eth0: bandwidth 100 → 200``."""
    changes = ", ".join(map(str, step.changes))
    return f"{step.step}: {changes}" if changes else step.step


def answer(of: "Outcome", out: Console) -> None:
    """Print the answer of an action: a single text as it is, values as JSON."""
    values = list(of.data.values())
    single = len(values) == 1 and isinstance(values[0], str)
    say(out, (values[0] if single else json.dumps(of.data, indent=2)).rstrip("\n"))
