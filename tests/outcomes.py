"""What tests want to know of an outcome."""

from fabric_direct.model import Outcome, Status, StepStatus


def done(outcome: Outcome) -> Outcome:
    """See that all of it was done."""
    assert outcome.status is Status.DONE, (outcome.error, outcome.left)
    return outcome


def made(outcome: Outcome) -> set[str]:
    """Return the steps that changed something."""
    waits = {"guest", "verify", "verify again"}
    return {s.step for s in outcome.steps if s.status is StepStatus.DONE} - waits
