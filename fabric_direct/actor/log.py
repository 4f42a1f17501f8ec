"""The actor's logger gets our records while an operation runs, each with operation and reservation."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

_OURS = logging.getLogger("fabric_direct")


@dataclass(frozen=True, slots=True)
class _Running:
    """What runs in this context: processors carry it on into their threads."""

    logger: logging.Logger
    operation: str
    reservation: str


_running: ContextVar[_Running | None] = ContextVar("running", default=None)


class _ToActor(logging.Handler):
    """Hands a record to the logger of the operation that it is about."""

    def emit(self, record: logging.LogRecord) -> None:
        """Hand it on with the operation and the reservation in front, if the actor wants it."""
        running = _running.get()
        if running is None or not running.logger.isEnabledFor(record.levelno):
            return
        told = logging.makeLogRecord(record.__dict__)
        told.msg = f"{running.operation} {running.reservation}: {record.getMessage()}"
        told.args = None
        running.logger.handle(told)


_HANDLER = _ToActor()


@contextmanager
def told_to(logger: logging.Logger, operation: str, reservation: str) -> Iterator[None]:
    """Let an actor's logger have our records of the operation that is run within the block.

    A logger of our own has them anyway.
    """
    if logger.name.split(".")[0] == _OURS.name:
        yield
        return
    _listen(logger)
    before = _running.set(_Running(logger, operation, reservation))
    try:
        yield
    finally:
        _running.reset(before)


def _listen(logger: logging.Logger) -> None:
    """Take our records, once in a process, and make those that the actor wants to be recorded."""
    if _HANDLER not in _OURS.handlers:
        _OURS.addHandler(_HANDLER)
    wanted = logger.getEffectiveLevel()
    if _OURS.level == logging.NOTSET or wanted < _OURS.level:
        _OURS.setLevel(wanted)
