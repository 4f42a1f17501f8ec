"""What a check finds."""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How it stands."""

    OK = "ok"
    INFO = "info"
    """Absent, and not needed."""
    WARN = "warn"
    """It works, but not well."""
    FAIL = "fail"
    """Slivers cannot be created."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What a check found, and how to fix it."""

    subject: str
    verdict: Verdict
    found: str
    remedy: str = ""
