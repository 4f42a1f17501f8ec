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


def ok(subject: str, found: str) -> Diagnosis:
    """Return the diagnosis that nothing is wrong."""
    return Diagnosis(subject, Verdict.OK, found)


def info(subject: str, found: str) -> Diagnosis:
    """Return the diagnosis that something is absent and not needed."""
    return Diagnosis(subject, Verdict.INFO, found)


def warn(subject: str, found: str, remedy: str) -> Diagnosis:
    """Return the diagnosis that something works, but not well."""
    return Diagnosis(subject, Verdict.WARN, found, remedy)


def fail(subject: str, found: str, remedy: str) -> Diagnosis:
    """Return the diagnosis that something prevents the creation of slivers."""
    return Diagnosis(subject, Verdict.FAIL, found, remedy)
