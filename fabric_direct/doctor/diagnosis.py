"""The result of a check."""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """The verdict of a check."""

    OK = "ok"
    INFO = "info"
    """Absent, but not needed."""
    WARN = "warn"
    """It works, but not well."""
    FAIL = "fail"
    """Slivers cannot be created."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of a check, and how to fix what is wrong."""

    subject: str
    verdict: Verdict
    found: str
    remedy: str = ""
