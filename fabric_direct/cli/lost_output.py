"""A stdout that cannot be written: full, closed, or without reader. Stderr tells what was done."""

import errno
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

import click

_WORK = f"{__name__}.work"
"""Key in click's context: what the command has done."""


_STDOUT, _STDERR = 1, 2


class _Done(NamedTuple):
    """What a command has done."""

    lines: tuple[str, ...]
    code: int
    """The exit code that it has without an error of its output."""


def note(lines: Iterable[str], code: int = 0) -> None:
    """Note what the command has done, before it prints that.

    :param code: the exit code that it is about to end with.
    """
    click.get_current_context().meta[_WORK] = _Done(tuple(lines), code)


def expect(context: click.Context, code: int) -> None:
    """Note the exit code of an error that is told on stderr, and in the document on stdout."""
    context.meta.setdefault(_WORK, _Done((), code))


def is_lost() -> bool:
    """Return whether an empty line cannot be written to stdout either."""
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError:
        return True
    return False


def end(context: click.Context, error: OSError, *, done: int, not_done: int) -> None:
    """Say on stderr what was done, and end the command; in silence, if only a reader has left.

    :param done: the exit code where something was done, and it would have been 0.
    :param not_done: the exit code of a command that has changed nothing.
    """
    work: _Done = context.meta.get(_WORK, _Done((), 0))
    tell(error, work.lines)
    context.exit(work.code or (done if work.lines else not_done))


def tell(error: OSError, lines: Iterable[str] = ()) -> None:
    """Say on stderr what was done; nothing, if only a reader has left."""
    _drop_stdout()
    with suppress(OSError):  # nobody is left to be told
        if lines or error.errno != errno.EPIPE:
            click.echo(f"Error: stdout cannot be written: {error.strerror or error}", err=True)
        for line in lines:
            click.echo(f"  {line}", err=True)


def stand_in() -> None:
    """Have a stdout that cannot be written where the process began without one.

    Otherwise the next file that is opened would be what libraries take for stdout.
    """
    while (opened := os.open(os.devnull, os.O_RDONLY)) <= _STDERR:
        continue
    os.close(opened)
    if sys.stdout is None:
        sys.stdout = open(_STDOUT, "w", closefd=False)  # noqa: SIM115 - it stays


def _drop_stdout() -> None:
    """Let what stdout holds go nowhere: Python would try to write it once more at its end."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.stdout.flush()
