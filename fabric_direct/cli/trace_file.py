"""Write what operations did, and when, in the Trace Event Format that Perfetto and Chrome open.

Each sliver is a process of the trace, its operation and each of its steps a thread; calls of drivers lie
within their steps, and those of other programs (HTTP requests, libvirt, functions on a worker) within
these. Names, ids and hosts are in it, but no argument and no content.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fabric_direct.cli.options import printable

if TYPE_CHECKING:
    from fabric_direct.calls.tracing import Recorded, Recording

_MICROSECONDS = 1_000_000
_OUTSIDE = "outside of operations"
_OPERATION = "operation"


@contextmanager
def traced(path: Path | None) -> Iterator[None]:
    """Record the block and write the file when it ends, however it does.

    A file that cannot be written is told on stderr: the operations are what they are.

    :param path: nothing is recorded if it is None.
    """
    if path is None:
        yield
        return
    from fabric_direct.calls.tracing import recording  # noqa: PLC0415 - likewise
    from fabric_direct.state import files  # noqa: PLC0415 - only who asks for it needs them

    with recording() as recorded:
        try:
            yield
        finally:
            try:
                files.replace(path, json.dumps(document(recorded)))
            except OSError as error:
                click.echo(printable(f"Warning: no trace in {path}: {error.strerror}"), err=True)


def document(recording: "Recording") -> dict[str, Any]:
    """Return the trace; its times begin with the recording."""
    spans = sorted(recording.spans, key=lambda span: (span.began, -span.ended))
    processes: dict[str, int] = {}
    threads: dict[tuple[str, str, int], int] = {}
    lanes: dict[tuple[str, str], list[list[float]]] = {}
    events: list[dict[str, Any]] = []
    for span in spans:
        lane = _lane(span, lanes.setdefault((span.sliver, span.step), []))
        where = (span.sliver, span.step, lane)
        of = {
            "pid": processes.setdefault(span.sliver, len(processes) + 1),
            "tid": threads.setdefault(where, len(threads) + 1),
        }
        events.append(of | _slice(span, recording.began))
    named = (_named("process_name", pid, 0, name or _OUTSIDE) for name, pid in processes.items())
    rows = (
        _named("thread_name", processes[sliver], tid, step or _OPERATION)
        for (sliver, step, _), tid in threads.items()
    )
    return {"displayTimeUnit": "ms", "traceEvents": [*named, *rows, *events]}


def _lane(span: "Recorded", lanes: list[list[float]]) -> int:
    """Return the first lane that has room for a span, and note its end there.

    Slices of a thread must nest: one that begins within another ends within it.

    :param lanes: of each lane, the ends of the spans that a next one may lie within.
    """
    for number, ends in enumerate(lanes):
        while ends and ends[-1] <= span.began:
            ends.pop()
        if not ends or span.ended <= ends[-1]:
            ends.append(span.ended)
            return number
    lanes.append([span.ended])
    return len(lanes) - 1


def _slice(span: "Recorded", began: float) -> dict[str, Any]:
    args = span.attributes | ({"error": span.error} if span.error else {})
    return {
        "name": span.name,
        "ph": "X",
        "ts": round((span.began - began) * _MICROSECONDS, 3),
        "dur": round((span.ended - span.began) * _MICROSECONDS, 3),
        "args": args,
    }


def _named(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}
