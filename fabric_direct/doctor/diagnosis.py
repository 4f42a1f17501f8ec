"""The result of a check."""

from dataclasses import dataclass
from enum import StrEnum

from fabric_direct.errors import FabricDirectError
from fabric_direct.site.extras import how_to_install


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


def failed(
    subject: str, error: ImportError | FabricDirectError, remedy: str = "", of: str = ""
) -> Diagnosis:
    """Return the diagnosis of a check that an error ended.

    :param remedy: what to do if the error does not say it.
    :param of: what was looked at.
    """
    if isinstance(error, ImportError):
        return fail(subject, str(error), how_to_install(error))
    found = ": ".join(filter(None, (of, error.what, error.why)))
    return fail(subject, found, error.remedy or remedy)
