"""Copy our log records to the actor's logger while an operation runs, with operation and reservation."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

_OURS = logging.getLogger("fabric_direct")


@dataclass(frozen=True, slots=True)
class _Running:
    """The operation of this context; processors copy the context to their threads."""

    logger: logging.Logger
    operation: str
    reservation: str


_running: ContextVar[_Running | None] = ContextVar("running", default=None)


class _ToActor(logging.Handler):
    """Passes a record to the logger of its operation."""

    def emit(self, record: logging.LogRecord) -> None:
        """Pass the record on, prefixed with operation and reservation, if its level is enabled."""
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
    """Copy the records of the operation in the block to an actor's logger.

    A logger below ours has them anyway.
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
    """Install our handler once in a process, and lower our level to the actor's; never raise it."""
    if _HANDLER not in _OURS.handlers:
        _OURS.addHandler(_HANDLER)
    if logger.getEffectiveLevel() < _OURS.getEffectiveLevel():
        _OURS.setLevel(logger.getEffectiveLevel())
