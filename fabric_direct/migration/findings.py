"""What an operator is told beside the files that are written."""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What a finding asks of its reader."""

    TO_DO = "to do"
    NOT_TRANSLATED = "not translated"
    NOT_NEEDED = "not needed"


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A line of a file."""

    file: str
    line: int = 1

    def __str__(self) -> str:
        """Return ``file:line``."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not simply part of the new files. It holds no value that may be a secret."""

    kind: Kind
    place: Place | None
    """Where it is said; None for what no file says."""
    what: str
    """The field or variable."""
    why: str
    remedy: str = ""
    """What to do about it."""
