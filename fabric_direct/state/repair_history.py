"""The history of watchers' repairs."""

from enum import StrEnum

from fabric_direct.model import Frozen
from fabric_direct.state.lines import JsonLines
from fabric_direct.state.store import StateStore


class RepairResult(StrEnum):
    """The result of a repair, or the loss or return of contact with a host or cloud."""

    REPAIRED = "repaired"
    REPORTED = "reported"
    """Something differs that cannot be repaired, or may not be: the limit is reached."""
    FAILED = "failed"
    DEAF = "deaf"
    """It hears nothing of a host or cloud."""
    HEARS = "hears"
    """It hears again."""


class Note(Frozen):
    """One line of the history."""

    at: str
    """In UTC, ISO 8601."""
    did: RepairResult
    subject: str
    """The sliver, the uplink (``host/link``), or the host or cloud that is listened to."""
    cause: str = ""
    """What was heard."""
    differences: tuple[str, ...] = ()
    """What was repaired, or stays."""
    why: str = ""
    """Why it failed, or was only reported."""
    seconds: float = 0.0
    """From hearing of it to the end of the repair."""


class History(JsonLines[Note]):
    """The notes of a site's watchers.

    :param store: the site's.
    :param size: bytes that are kept at least, and twice of that at most.
    """

    def __init__(self, store: StateStore, size: int) -> None:
        super().__init__(store.log("watch", size), Note)
