"""Ctrl-C and SIGTERM while operations run: the first begins nothing more, the second ends at once."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

import click

from fabric_direct.cli.options import INTERRUPTED

if TYPE_CHECKING:
    from fabric_direct.processor import HandlerProcessor

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_FINISH = "To finish it, give the same command again, or `fabric-direct recover`"
_UNDO = "; to undo it, `fabric-direct recover --undo`"


class Interrupts:
    """The signals that interrupt the operations of a processor, while the block runs."""

    def __init__(
        self,
        processor: "HandlerProcessor",
        first: Callable[["Interrupts"], object],
        leave: Callable[[], object],
    ) -> None:
        """Replace no handler yet.

        :param first: called at the first signal, within its handler, when nothing more is begun.
        :param leave: called before the process ends at the second signal, in a thread of its own.
        """
        self._processor, self._first, self._leave = processor, first, leave
        self._before: dict[int, Any] = {}
        self.any = False
        """Whether one came."""
        self.cancelled: list[str] = []
        """The slivers whose operations were not begun then."""
        self.under_way: list[str] = []
        """The slivers whose operations were under way then."""

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._handle) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self.any:
            # What is interrupted may be writing, and a stream cannot be written within its own write.
            threading.Thread(target=self._end_at_once).start()
            return
        self.any = True
        self.cancelled = [sliver.id for sliver in self._processor.interrupt()]
        self.under_way = [sliver.id for sliver in self._processor.pending()]
        self._first(self)

    def _end_at_once(self) -> None:
        """End the process while its threads are running; the journal has their operations."""
        self._leave()
        click.echo("Ended at once.", err=True)
        click.echo(self.left(), err=True)
        sys.stdout.flush()
        os._exit(INTERRUPTED)

    def unfinished(self) -> dict[str, str]:
        """Return the operations that the journal has of the slivers under way, by the sliver.

        All slivers, without their operations, if it is unreadable.
        """
        from fabric_direct.errors import DriverError  # noqa: PLC0415 - see the package

        try:
            entries = self._processor.unfinished()
        except DriverError:
            return dict.fromkeys(self.under_way, "")
        known = {str(entry.sliver["id"]): entry.operation.value for entry in entries}
        return {name: known[name] for name in self.under_way if name in known}

    def left(self) -> str:
        """Return what is unfinished, what was not begun, and how to go on."""
        unfinished = self.unfinished()
        lines = [f"Unfinished: {listed([*unfinished])}."] if unfinished else []
        lines += [f"Not begun: {listed(self.cancelled)}."] if self.cancelled else []
        undo = "" if set(unfinished.values()) == {"delete"} else _UNDO
        lines += [f"{_FINISH}{undo}."] if unfinished else []
        return "\n".join(lines or ["All that was begun has ended."])


def listed(names: list[str], at_most: int = 10) -> str:
    """Return names in a sentence; of very many, how many more there are."""
    more = len(names) - at_most
    return ", ".join(names[:at_most]) + (f" and {more} more" if more > 0 else "")
