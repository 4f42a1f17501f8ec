"""Build outcomes from errors and from refusals by hosts."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from fabric_direct import errors
from fabric_direct.engine.run import attempt
from fabric_direct.errors import FabricDirectError, Interrupted, NoHost, NotVerified, Refused
from fabric_direct.handlers.handler import Repair
from fabric_direct.model import (
    ErrorReport,
    Observed,
    Operation,
    Outcome,
    SliverRef,
    Status,
    StepReport,
    StepStatus,
)

log = logging.getLogger(__name__)

# Another host may do what one refuses for one of these.
_ELSEWHERE = (errors.Conflict, errors.DriverError, errors.NotVerified)
_NOWHERE = (errors.SliverBusy, errors.QuotaExceeded, errors.NoHost)
_HOSTS_OWN = ("host", "image", "capacities", "components")
"""Fields of a sliver that one host may refuse and another not."""


def report(error: Exception | None) -> ErrorReport:
    """Return an error as a value; one that a driver did not mean to raise is named as that driver's."""
    field = error.field if isinstance(error, FabricDirectError) else ""
    message = "; ".join((str(error), *getattr(error, "__notes__", ())))
    return ErrorReport(kind=type(error).__name__, message=message, field=field)


def status_of(error: Exception | None) -> Status:
    """Return how something ended that failed before anything was changed, or did not fail."""
    if error is None:
        return Status.DONE
    return Status.REFUSED if isinstance(error, Refused) else Status.FAILED


def done(operation: Operation, sliver: SliverRef, **values: Any) -> Outcome:
    """Return the outcome of an operation that succeeded.

    :param values: what else it has to say.
    """
    return Outcome(operation=operation, sliver=sliver.ref(), status=Status.DONE, **values)


def failed(
    operation: Operation, sliver: SliverRef, error: Exception, left: tuple[str, ...] = ()
) -> Outcome:
    """Return the outcome of an operation that ended with an error before anything was changed.

    One that is not raised on purpose is logged with its traceback. One that an interruption caused is
    told as that.

    :param left: what may still change.
    """
    if isinstance(error.__cause__, Interrupted):
        error = error.__cause__
    if not isinstance(error, FabricDirectError):
        log.error("%s of %s", operation, sliver.id, exc_info=error)
    return Outcome(
        operation=operation,
        sliver=sliver.ref(),
        status=status_of(error),
        error=report(error),
        left=left,
    )


def before_any_change(operation: Operation, sliver: SliverRef) -> Interrupted:
    """Return the error of an operation that was interrupted before its first change."""
    return Interrupted(f"{operation} of {sliver.id} was interrupted before it changed anything")


def warned(work: Callable[..., tuple[str, ...] | None], *about: object) -> tuple[str, ...]:
    """Do what changes no outcome; return what it has to say, or what fails there, as warnings."""
    said = attempt(work, *about)
    return (str(said),) if isinstance(said, Exception) else said or ()


def with_warnings(outcome: Outcome, warnings: Iterable[str]) -> Outcome:
    """Add warnings to an outcome, each once: what cannot be read cannot be written either."""
    every = tuple(dict.fromkeys((*outcome.warnings, *warnings)))
    return outcome.model_copy(update={"warnings": every})


def with_left(outcome: Outcome, left: tuple[str, ...]) -> Outcome:
    """Add to the outcome of a deletion what it left: one that was done is partial then."""
    if not left:
        return outcome
    update: dict[str, Any] = {"left": outcome.left + left}
    if outcome.ok:
        gone = f"sliver {outcome.sliver.id} was deleted, but is not gone"
        error = NotVerified(gone, why=", ".join(left))
        update |= {"status": Status.PARTIAL, "error": report(error)}
    return outcome.model_copy(update=update)


def joined(ref: SliverRef, outcomes: Mapping[str, Outcome]) -> Outcome:
    """Return what came of a deletion from hosts; of several, each that has something left is named."""
    if len(outcomes) == 1:
        return next(iter(outcomes.values()))
    said = (_on_host(host, outcome.error) for host, outcome in outcomes.items() if outcome.error)
    error = next(said, None)
    steps = tuple(step for outcome in outcomes.values() for step in outcome.steps)
    some = any(step.status is StepStatus.DONE for step in steps)
    return Outcome(
        operation=Operation.DELETE,
        sliver=ref,
        status=(Status.PARTIAL if some else Status.FAILED) if error else Status.DONE,
        steps=steps,
        error=error,
        left=tuple(
            f"{what} ({host})" for host, outcome in outcomes.items() for what in outcome.left
        ),
        warnings=tuple(text for outcome in outcomes.values() for text in outcome.warnings),
    )


def _on_host(host: str, error: ErrorReport) -> ErrorReport:
    return error.model_copy(update={"message": f"host {host}: {error.message}"})


def reconciled(
    sliver: SliverRef, repair: Repair, steps: tuple[StepReport, ...], found: Observed
) -> Outcome:
    """Return the outcome of a repair whose steps succeeded: it is done if nothing differs any more.

    :param found: what is there now.
    """
    still = found.differences
    some = any(step.status is StepStatus.DONE for step in steps)
    data = {"repaired": [each for each in repair.found.differences if each not in still]}
    outcome = done(Operation.RECONCILE, sliver, observed=found, steps=steps, data=data)
    if not still:
        return outcome
    why = "; ".join(dict.fromkeys((*still, *repair.beyond)))
    error = NotVerified(f"sliver {sliver.id} differs in what cannot be repaired", why=why)
    status = Status.PARTIAL if some else Status.FAILED
    return outcome.model_copy(update={"status": status, "error": report(error)})


class HostRefusals:
    """The hosts that refused a sliver, one after the other."""

    def __init__(self, retries: int) -> None:
        """Begin with none.

        :param retries: how many other hosts are tried after one that refuses.
        """
        self._retries = retries
        self._by_host: dict[str, Outcome] = {}

    @property
    def hosts(self) -> Collection[str]:
        """The hosts that refused."""
        return self._by_host.keys()

    def take(self, host: str | None, outcome: Outcome) -> bool:
        """Note what came of a creation on a host; return whether another host may be tried."""
        name = host or ""
        again = name in self._by_host
        if outcome.ok or outcome.left or not _may_do_elsewhere(outcome):
            return False
        self._by_host[name] = outcome
        return not again and len(self._by_host) <= self._retries

    def none_left(self, error: FabricDirectError) -> Outcome:
        """Return the outcome when no other host can be tried.

        It says what each said; where all refused it before anything was touched, it is a refusal.

        :param error: why there is no other.
        :raises FabricDirectError: that error, if no host was tried at all, or it is an interruption.
        """
        if not self._by_host or isinstance(error, Interrupted):
            raise error
        last = [*self._by_host.values()][-1]
        if all(outcome.status is Status.REFUSED for outcome in self._by_host.values()):
            return self.told(last)
        why = error.why if isinstance(error, NoHost) else str(error)
        said = NoHost(
            f"no host can take sliver {last.sliver.id}",
            why="; ".join(filter(None, [*self._said(), why])),
        )
        update = {"status": Status.FAILED, "error": report(said)}
        return self.told(last.model_copy(update=update))

    def told(self, outcome: Outcome) -> Outcome:
        """Return an outcome that warns of the hosts that refused; not of one that it is of itself."""
        alone = [*self._by_host.values()] == [outcome]
        warnings = () if alone else tuple(f"host {said}" for said in self._said())
        return outcome.model_copy(update={"warnings": warnings + outcome.warnings})

    def _said(self) -> list[str]:
        return [
            f"{name} refused: {o.error.message}" for name, o in self._by_host.items() if o.error
        ]


def _may_do_elsewhere(outcome: Outcome) -> bool:
    error = outcome.error
    kind = getattr(errors, error.kind, Exception) if error else Exception
    if error and issubclass(kind, Refused):
        return error.field.startswith(_HOSTS_OWN)
    return issubclass(kind, _ELSEWHERE) and not issubclass(kind, _NOWHERE)
