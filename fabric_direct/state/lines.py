"""JSON lines of one model, for people to read and programs to collect; the latest are kept."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Generic, TypeVar

from pydantic import ValidationError

from fabric_direct.model import Frozen
from fabric_direct.state.store import Log

T = TypeVar("T", bound=Frozen)


def now() -> str:
    """Return the time of a line, in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class JsonLines(Generic[T]):
    """The values of one model, the oldest first."""

    def __init__(self, log: Log, model: type[T]) -> None:
        """Open nothing yet."""
        self._log, self._model = log, model

    def add(self, value: T) -> None:
        """Append a value; log it if that is not possible."""
        self._log.append(value.model_dump_json(exclude_defaults=True))

    def mark(self) -> tuple[int, int]:
        """Return what is another one when a line was added since; zeros if there is none."""
        return self._log.mark()

    def notes(self) -> Iterator[T]:
        """Yield the values; a line that has none, or half of one, is left out.

        :raises DriverError: if they cannot be read.
        """
        for line in self._log.lines():
            with suppress(ValidationError):
                yield self._model.model_validate_json(line)
