"""Metrics of OpenTelemetry: which there are, and how they are recorded.

They go to the provider that the process has set up. Where nothing has imported OpenTelemetry there is
none, and this imports nothing: see docs/decisions/0063.

A counter or histogram is recorded when something happens. A gauge, or a count of what there is, is asked
for when somebody collects it: from what was registered by :func:`observe`.
"""

import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any

from fabric_direct.calls import forks

BUCKETS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1200, 1800)
"""Bounds of histograms, in seconds: from a call of a fast API to the limit of the slowest operation."""
_MODULE, _SCOPE = "opentelemetry.metrics", "fabric_direct"
_OWN_NAMES = frozenset({"error.type"})
"""Attributes that OpenTelemetry names itself; the others get our prefix."""


class InstrumentKind(StrEnum):
    """The kind of a metric's instrument, as OpenTelemetry names it."""

    COUNTER = "counter"
    HISTOGRAM = "histogram"
    GAUGE = "gauge"
    UP_DOWN = "up-down counter"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric; its name, and those of its attributes, get the prefix ``fabric_direct.``."""

    name: str
    kind: InstrumentKind
    unit: str
    """By UCUM."""
    says: str
    attributes: tuple[str, ...] = ()
    """Each has few values: never an id of a sliver, nor anything that a user may choose freely."""


OPERATION_DURATION = Metric(
    "operation.duration",
    InstrumentKind.HISTOGRAM,
    "s",
    "What operations took from their beginning to their outcome; their count is how many ended",
    ("operation", "type", "status", "error.type"),
)
OPERATION_LEFTOVERS = Metric(
    "operation.leftovers",
    InstrumentKind.COUNTER,
    "{thing}",
    "Things that operations left behind",
    ("operation", "type"),
)
OPERATION_ACTIVE = Metric(
    "operation.active",
    InstrumentKind.UP_DOWN,
    "{operation}",
    "Operations under way",
    ("operation", "type"),
)
OPERATION_WAITING = Metric(
    "operation.waiting",
    InstrumentKind.UP_DOWN,
    "{operation}",
    "Operations that were asked for and have not begun",
    ("operation", "type"),
)
OPERATION_UNFINISHED = Metric(
    "operation.unfinished",
    InstrumentKind.GAUGE,
    "{operation}",
    "Entries of the site's journal: operations under way, or that left something or were killed",
    ("operation",),
)
OPERATION_OLDEST = Metric(
    "operation.oldest_unfinished",
    InstrumentKind.GAUGE,
    "s",
    "How long ago the oldest of these operations began; 0 if there is none",
)
STEP_DURATION = Metric(
    "step.duration",
    InstrumentKind.HISTOGRAM,
    "s",
    "What steps of operations took, without undoing them",
    ("step.kind", "status"),
)
CALL_RETRIES = Metric(
    "call.retries",
    InstrumentKind.COUNTER,
    "{retry}",
    "Requests that were sent once more within a call of a driver",
    ("call",),
)
CALL_GIVEN_UP = Metric(
    "call.given_up",
    InstrumentKind.COUNTER,
    "{call}",
    "Calls of drivers that did not answer in time",
    ("call",),
)
CALL_LATE = Metric(
    "call.late",
    InstrumentKind.UP_DOWN,
    "{call}",
    "Calls that ended operations gave up, and that may still take effect",
)
DEVICE_COUNT = Metric(
    "device.count",
    InstrumentKind.GAUGE,
    "{device}",
    "PCI devices of the allow-list by the last look at their hosts",
    ("host", "type", "state"),
)
DEVICE_READABLE = Metric(
    "device.readable",
    InstrumentKind.GAUGE,
    "{host}",
    "1 if the last look at the devices of a host succeeded, 0 if it did not",
    ("host",),
)
NODE_COUNT = Metric(
    "node.count",
    InstrumentKind.GAUGE,
    "{node}",
    "Bare-metal nodes by the last look at them",
    ("condition",),
)
NODE_READABLE = Metric(
    "node.readable",
    InstrumentKind.GAUGE,
    "{site}",
    "1 if the last look at the bare-metal nodes succeeded, 0 if it did not",
)
WATCH_REPAIRS = Metric(
    "watch.repairs",
    InstrumentKind.COUNTER,
    "{repair}",
    "What watchers did about changes by others",
    ("watch.result",),
)
WATCH_HEARS = Metric(
    "watch.hears",
    InstrumentKind.GAUGE,
    "{source}",
    "1 if a watcher hears of changes at a source, 0 if it cannot",
    ("watch.source",),
)
METRICS = (
    OPERATION_DURATION,
    OPERATION_ACTIVE,
    OPERATION_WAITING,
    OPERATION_LEFTOVERS,
    OPERATION_UNFINISHED,
    OPERATION_OLDEST,
    STEP_DURATION,
    CALL_RETRIES,
    CALL_GIVEN_UP,
    CALL_LATE,
    DEVICE_COUNT,
    DEVICE_READABLE,
    NODE_COUNT,
    NODE_READABLE,
    WATCH_REPAIRS,
    WATCH_HEARS,
)
"""All, in the order of docs/monitoring.md."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """A value of a gauge, or of a count of what there is."""

    metric: Metric
    value: float
    attributes: Mapping[str, str] = field(default_factory=dict)


Source = Callable[[], Iterable[Measurement]]


def wanted() -> bool:
    """Return whether the process has OpenTelemetry, so that somebody may collect metrics."""
    return _process.current() is not None


def record(metric: Metric, value: float = 1, **attributes: str) -> None:
    """Add to a counter, or a value to a histogram.

    :param attributes: an underscore of their names stands for a dot; empty ones are left out.
    """
    instruments = _process.current()
    if instruments is not None:
        named = {key.replace("_", "."): value for key, value in attributes.items()}
        instruments.record(metric, value, _named(metric, named))


def observe(method: Source) -> None:
    """Ask a bound method for readings whenever metrics are collected, as long as its object lives.

    It must answer at once: who collects waits for it.
    """
    with _lock:
        _sources[:] = [each for each in _sources if each() is not None]
        _sources.append(weakref.WeakMethod(method))
    _process.current()


def _named(metric: Metric, attributes: Mapping[str, str]) -> dict[str, str]:
    assert attributes.keys() <= {*metric.attributes}  # noqa: S101 - the page of metrics has them all
    full = {key: key if key in _OWN_NAMES else f"{_SCOPE}.{key}" for key in attributes}
    return {full[key]: value for key, value in attributes.items() if value}


_sources: list["weakref.WeakMethod[Source]"] = []
_lock = forks.Lock()


def _readings(metric: Metric) -> Iterator[tuple[dict[str, str], float]]:
    """Yield what is read now, once for the same attributes: counts of several objects are added."""
    found: dict[tuple[tuple[str, str], ...], float] = {}
    for read in filter(None, [each() for each in _sources]):
        for reading in read():
            if reading.metric is metric:
                key = tuple(_named(metric, reading.attributes).items())
                before = found.get(key, 0) if metric.kind is InstrumentKind.UP_DOWN else 0
                found[key] = before + reading.value
    yield from ((dict(key), value) for key, value in found.items())


class _Instruments:
    """The instruments of this process.

    :param api: the module ``opentelemetry.metrics``. As long as no provider is set they do nothing.
    """

    def __init__(self, api: Any) -> None:
        self._api, meter = api, api.get_meter(_SCOPE)
        self._made = {metric: self._make(meter, metric) for metric in METRICS}

    def record(self, metric: Metric, value: float, attributes: dict[str, str]) -> None:
        made = self._made[metric]
        (made.add if metric.kind is InstrumentKind.COUNTER else made.record)(value, attributes)

    def _make(self, meter: Any, metric: Metric) -> Any:
        name, how = f"{_SCOPE}.{metric.name}", {"unit": metric.unit, "description": metric.says}
        if metric.kind is InstrumentKind.COUNTER:
            return meter.create_counter(name, **how)
        if metric.kind is InstrumentKind.HISTOGRAM:
            return _histogram(meter, name, how)
        gauge = metric.kind is InstrumentKind.GAUGE
        make = meter.create_observable_gauge if gauge else meter.create_observable_up_down_counter
        return make(name, callbacks=[partial(self._observed, metric)], **how)

    def _observed(self, metric: Metric, _options: Any) -> Iterator[Any]:
        if wanted():
            for attributes, value in _readings(metric):
                yield self._api.Observation(value, attributes)


def _histogram(meter: Any, name: str, how: dict[str, str]) -> Any:
    try:
        return meter.create_histogram(name, explicit_bucket_boundaries_advisory=BUCKETS, **how)
    except TypeError:  # an older API takes no advice: the provider's views may say it
        return meter.create_histogram(name, **how)


class _Process:
    """The instruments that a process has made, if it has OpenTelemetry."""

    def __init__(self) -> None:
        self._instruments: _Instruments | None = None
        self._inherited: Any = None
        """A parent's provider: its sums are the parent's, and its locks may be held for ever."""
        forks.in_child(self._inherit)

    def current(self) -> _Instruments | None:
        """Return them; make them if somebody has imported OpenTelemetry by now."""
        api: Any = sys.modules.get(_MODULE)
        if api is None or not hasattr(api, "get_meter_provider"):  # it is just being imported
            return None
        if self._inherited is not None and api.get_meter_provider() is self._inherited:
            return None
        if self._instruments is None:
            self._instruments = _Instruments(api)
        return self._instruments

    def _inherit(self) -> None:
        if self._instruments is not None:
            self._inherited = sys.modules[_MODULE].get_meter_provider()


_process = _Process()
