"""Metrics of a site: its operations as they end, and gauges of its current state."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from fabric_direct.calls import forks, metrics
from fabric_direct.calls.metrics import Measurement
from fabric_direct.drivers.contract import BareMetalNode, HostDevice, NodeCondition
from fabric_direct.engine.run import Event
from fabric_direct.handlers import registry
from fabric_direct.model import DeviceState, Operation, Outcome, SliverRef, StepStatus
from fabric_direct.state.journal import Unfinished

_TOOK_TIME = frozenset({StepStatus.DONE, StepStatus.ALREADY_SO, StepStatus.FAILED})
_STATES = tuple(state for state in DeviceState if state is not DeviceState.NOT_ALLOWED)
_OTHER = "other"
Asked = tuple[Operation, SliverRef, bool]
"""An operation that was asked for, on what, and whether it has begun."""
Devices = Sequence[HostDevice] | Exception


def count_operation(outcome: Outcome) -> None:
    """Record an operation that has ended."""
    if not metrics.wanted():
        return
    about = {"operation": outcome.operation.value, "type": _type_of(outcome.sliver)}
    status, error = outcome.status.value, outcome.error.kind if outcome.error else ""
    metrics.record(
        metrics.OPERATION_DURATION, outcome.seconds, **about, status=status, error_type=error
    )
    metrics.record(metrics.OPERATION_LEFTOVERS, len(outcome.left), **about)


def count_step(event: Event) -> None:
    """Record a step that has ended. One that is undone ends twice, and has taken its time once."""
    report = event.report if metrics.wanted() else None
    if report and report.status in _TOOK_TIME:
        status = report.status.value
        metrics.record(metrics.STEP_DURATION, report.seconds, step_kind=event.kind, status=status)


def _type_of(sliver: SliverRef) -> str:
    """Return the resource type; callers may name any."""
    return sliver.type if sliver.type in registry.resource_types() else _OTHER


class Load:
    """The number of operations under way, and of those that wait."""

    def __init__(self) -> None:
        self._known: set[tuple[str, str]] = set()
        """Operation and type; what was there once is there with 0 afterwards."""

    def readings(self, asked: Iterable[Asked]) -> Iterator[Measurement]:
        """Yield the counts of what was asked for and has not ended."""
        now = Counter(((o.value, _type_of(sliver)), begun) for o, sliver, begun in asked)
        self._known.update(about for about, _ in now)
        for about in sorted(self._known):
            attributes = dict(zip(("operation", "type"), about, strict=True))
            yield Measurement(metrics.OPERATION_ACTIVE, now[about, True], attributes)
            yield Measurement(metrics.OPERATION_WAITING, now[about, False], attributes)


class Survey:
    """Readings that take time: who asks gets the last ones, and never waits for the next.

    :param every: seconds from the beginning of one look to that of the next; with 0 none is taken.
    """

    def __init__(self, every: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._every, self._clock = every, clock
        self._reset()
        forks.in_child(self._reset)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._begun, self._looking = float("-inf"), False
        self._last: tuple[Measurement, ...] = ()

    def readings(self, look: Callable[[], Iterable[Measurement]]) -> tuple[Measurement, ...]:
        """Return the last readings; begin to take new ones if these are old.

        :param look: takes them, in a thread of its own.
        """
        if self._every and self._is_due():
            name = "fabric-direct-survey"
            threading.Thread(target=self._take, args=(look,), name=name, daemon=True).start()
        return self._last

    def _is_due(self) -> bool:
        with self._lock:
            now = self._clock()
            due = not self._looking and now - self._begun >= self._every
            if due:
                self._begun, self._looking = now, True
        return due

    def _take(self, look: Callable[[], Iterable[Measurement]]) -> None:
        try:
            self._last = tuple(look())
        finally:
            self._looking = False


def of_journal(unfinished: Sequence[Unfinished], now: datetime) -> Iterator[Measurement]:
    """Yield how many operations are unfinished, also where none is, and the age of the oldest."""
    ages = ((now - datetime.fromisoformat(entry.since)).total_seconds() for entry in unfinished)
    yield Measurement(metrics.OPERATION_OLDEST, max(ages, default=0.0))
    counts = Counter(entry.operation for entry in unfinished)
    for operation in Operation:
        if operation not in {Operation.PLAN, Operation.PROBE, Operation.POA}:
            about = {"operation": operation.value}
            yield Measurement(metrics.OPERATION_UNFINISHED, counts[operation], about)


def of_devices(found: Mapping[str, Devices]) -> Iterator[Measurement]:
    """Yield how many devices each host has, by type and state; of none for a host that is silent."""
    for host, devices in found.items():
        silent = isinstance(devices, Exception)
        yield Measurement(metrics.DEVICE_READABLE, int(not silent), {"host": host})
        if not isinstance(devices, Exception):
            yield from _of_host(host, devices)


def of_nodes(nodes: Sequence[BareMetalNode] | Exception) -> Iterator[Measurement]:
    """Yield how many bare-metal nodes there are in each condition; none if they cannot be listed."""
    silent = isinstance(nodes, Exception)
    yield Measurement(metrics.NODE_READABLE, int(not silent))
    if not isinstance(nodes, Exception):
        counts = Counter(node.condition for node in nodes)
        for condition in NodeCondition:
            about = {"condition": condition.value}
            yield Measurement(metrics.NODE_COUNT, counts[condition], about)


def _of_host(host: str, devices: Iterable[HostDevice]) -> Iterator[Measurement]:
    counts = Counter((each.type, each.state) for each in devices if each.type)
    for kind in sorted({kind for kind, _ in counts if kind}):
        for state in _STATES:
            about = {"host": host, "type": kind, "state": state.value}
            yield Measurement(metrics.DEVICE_COUNT, counts[kind, state], about)
