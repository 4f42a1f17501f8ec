"""A stdout that cannot be written: full, or a pipe without reader. What was done is told on stderr."""

import errno
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import click

from fabric_direct.cli.options import FAILED, PARTLY_DONE, printable

if TYPE_CHECKING:
    from fabric_direct.model import Outcome

_WORK = f"{__name__}.work"
"""Key in click's context: what the command has done."""


class _Done(NamedTuple):
    """What a command has done."""

    lines: tuple[str, ...]
    code: int
    """The exit code that it has without an error of its output."""


def note(lines: "Iterable[str]", code: int = 0) -> None:
    """Note what the command has done, before it prints that.

    :param code: the exit code that it is about to end with.
    """
    click.get_current_context().meta[_WORK] = _Done(tuple(lines), code)


def expect(context: click.Context, code: int) -> None:
    """Note the exit code of an error that is told on stderr, and in the document on stdout."""
    context.meta.setdefault(_WORK, _Done((), code))


def note_outcomes(outcomes: "Iterable[Outcome]", code: int) -> None:
    """Note the outcomes of operations, before they are printed."""
    note(map(_line, outcomes), code)


def _line(outcome: "Outcome") -> str:
    error = f": {outcome.error.kind}: {outcome.error.message}" if outcome.error else ""
    left = f"; left: {', '.join(outcome.left)}" if outcome.left else ""
    return f"{outcome.sliver.id}: {outcome.operation.value} {outcome.status.value}{error}{left}"


def is_lost() -> bool:
    """Return whether an empty line cannot be written to stdout either."""
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError:
        return True
    return False


def end(context: click.Context, error: OSError) -> None:
    """Say on stderr what was done, and end the command.

    The exit code is 3 where it would have been 0: not all of it is done, if nobody could be told. A
    command that has changed nothing ends with 1; in silence, if its reader has left.
    """
    done: _Done = context.meta.get(_WORK, _Done((), FAILED))
    _drop_stdout()
    with suppress(OSError):  # nobody is left to be told
        if done.lines or error.errno != errno.EPIPE:
            click.echo(f"Error: stdout cannot be written: {error.strerror or error}", err=True)
        for line in done.lines:
            click.echo(f"  {printable(line)}", err=True)
    context.exit(done.code or (PARTLY_DONE if done.lines else FAILED))


def _drop_stdout() -> None:
    """Let what stdout holds go nowhere: Python would try to write it once more at its end."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.stdout.flush()
