"""What tests want to know of an outcome."""

import json
from typing import Any

from fabric_direct.model import Outcome, Status, StepStatus


def done(outcome: Outcome) -> Outcome:
    """See that all of it was done."""
    assert outcome.status is Status.DONE, (outcome.error, outcome.left)
    return outcome


def made(outcome: Outcome) -> set[str]:
    """Return the steps that changed something."""
    waits = {"guest", "verify", "verify again"}
    return {s.step for s in outcome.steps if s.status is StepStatus.DONE} - waits


def result_of(printed: str) -> Any:
    """Return what a command says beside outcomes in its document."""
    return json.loads(printed)["result"]


def outcomes_of(printed: str) -> list[Any]:
    """Return the outcomes of a command's document."""
    found: list[Any] = json.loads(printed)["outcomes"]
    return found
