"""What a check finds."""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How it stands."""

    OK = "ok"
    INFO = "info"
    """Not there, and not needed."""
    WARN = "warn"
    """It works, but slower or not for long."""
    FAIL = "fail"
    """Slivers cannot be made."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What a check finds, and how to mend it."""

    subject: str
    verdict: Verdict
    found: str
    remedy: str = ""
