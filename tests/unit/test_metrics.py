"""Metrics: of operations, steps, calls, devices and repairs, if the process has OpenTelemetry."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from fabric_direct.calls import metrics
from fabric_direct.calls.deadline import Deadline, bounded, trying_again
from fabric_direct.calls.metrics import METRICS, Measurement
from fabric_direct.calls.reading import Reading
from fabric_direct.drivers.contract import NodeCondition
from fabric_direct.drivers.fake import Substrate
from fabric_direct.model import NodeSliver, SliverRef
from fabric_direct.operations.progress import Progress
from fabric_direct.operations.site_metrics import Survey, of_devices
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from fabric_direct.state.repair_history import Note
from tests.trust.clock import skipping_faults

ROOT = Path(__file__).parents[2]
MODULE = "opentelemetry.metrics"
SOON = 20.0
Vm = Callable[..., NodeSliver]


class Collected:
    """What the SDK collects, by the names of metrics without our prefix."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def points(self, name: str) -> list[Any]:
        data = self._reader.get_metrics_data()
        scopes = [s for r in (data.resource_metrics if data else ()) for s in r.scope_metrics]
        found = [m for s in scopes for m in s.metrics if m.name == f"fabric_direct.{name}"]
        return [point for metric in found for point in metric.data.data_points]

    def values(self, name: str) -> dict[tuple[str, ...], float]:
        """Return what was added or read last, by the values of the attributes."""
        return {tuple(p.attributes.values()): p.value for p in self.points(name)}

    def counts(self, name: str) -> dict[tuple[str, ...], int]:
        """Return how many values a histogram has, by the values of the attributes."""
        return {tuple(p.attributes.values()): p.count for p in self.points(name)}


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collected]:
    """The SDK with its reader in memory, as if the process had set it up."""
    sdk = pytest.importorskip("opentelemetry.sdk.metrics")
    reader = sdk.export.InMemoryMetricReader()
    provider = sdk.MeterProvider([reader], shutdown_on_exit=False)
    monkeypatch.setattr(sys.modules[MODULE], "get_meter", provider.get_meter)
    monkeypatch.setattr(metrics, "_process", metrics._Process())
    monkeypatch.setattr(metrics, "_sources", [])
    yield Collected(reader)
    provider.shutdown()


class TestOperations:
    @pytest.fixture(autouse=True)
    def begin(self, collected: Collected) -> None:
        """Have it before the processor is made."""

    def test_one_that_ended_has_its_duration_by_operation_type_and_status(
        self, processor: HandlerProcessor, vm: Vm, collected: Collected
    ) -> None:
        outcome = processor.create(vm()).result()

        (point,) = collected.points("operation.duration")
        assert dict(point.attributes) == {
            "fabric_direct.operation": "create",
            "fabric_direct.type": "VM",
            "fabric_direct.status": "done",
        }
        assert (point.count, point.sum) == (1, outcome.seconds)
        assert point.explicit_bounds == metrics.BUCKETS

    def test_one_that_failed_has_the_class_of_its_error(
        self, processor: HandlerProcessor, vm: Vm, fakes: Substrate, collected: Collected
    ) -> None:
        fakes.fault("volume.create", kind="fail")
        processor.create(vm()).result()

        (point,) = collected.points("operation.duration")
        assert point.attributes["error.type"] == "DriverError"
        assert point.attributes["fabric_direct.status"] == "failed"
        assert collected.values("operation.leftovers") == {("create", "VM"): 0}

    def test_what_one_left_is_counted_by_things(
        self, processor: HandlerProcessor, vm: Vm, fakes: Substrate, collected: Collected
    ) -> None:
        fakes.fault("guest.wait", kind="fail")
        fakes.fault("volume.delete", at=0, kind="fail")
        outcome = processor.create(vm()).result()

        assert outcome.left
        left = collected.values("operation.leftovers")
        assert left == {("create", "VM"): len(outcome.left)}

    def test_a_type_that_a_caller_made_up_is_no_value(
        self, processor: HandlerProcessor, collected: Collected
    ) -> None:
        processor.probe(SliverRef(id="s1", type="made-up")).result()

        (point,) = collected.points("operation.duration")
        assert point.attributes["fabric_direct.type"] == "other"

    def test_those_under_way_and_those_that_wait_are_there_while_they_are(
        self, site: Site, fakes: Substrate, vm: Vm, collected: Collected
    ) -> None:
        seen: list[tuple[Any, Any]] = []
        both = threading.Event()

        def look(_: Progress) -> None:
            assert both.wait(SOON)
            seen.append(tuple(collected.values(f"operation.{n}") for n in ("active", "waiting")))

        with HandlerProcessor(site, workers=1, on_progress=look) as processor:
            futures = [
                processor.create(vm(components=())),
                processor.delete(SliverRef(id="s2", type="VM")),
            ]
            both.set()
            assert all(future.result().ok for future in futures)
            kinds = [("create", "VM"), ("delete", "VM")]
            assert seen[0] == (dict(zip(kinds, (1, 0), strict=True)), {kinds[0]: 0, kinds[1]: 1})
            assert not any(collected.values("operation.active").values())
            assert collected.values("operation.waiting").keys() == set(kinds)

    def test_the_journal_is_a_gauge(
        self, processor: HandlerProcessor, vm: Vm, fakes: Substrate, collected: Collected
    ) -> None:
        fakes.fault("guest.wait", kind="fail")
        fakes.fault("volume.delete", at=0, kind="fail")
        assert processor.create(vm()).result().left

        readings = {(r.metric, *r.attributes.values()): r.value for r in processor._look()}

        assert readings[metrics.OPERATION_UNFINISHED, "create"] == 1
        assert readings[metrics.OPERATION_UNFINISHED, "delete"] == 0
        assert 0 <= readings[metrics.OPERATION_OLDEST,] < SOON


class TestSteps:
    @pytest.fixture(autouse=True)
    def begin(self, collected: Collected) -> None:
        """Have it before the processor is made."""

    def test_they_are_counted_by_their_class(
        self, processor: HandlerProcessor, vm: Vm, collected: Collected
    ) -> None:
        processor.create(vm()).result()

        counts = collected.counts("step.duration")
        assert counts["HoldPort", "done"] == 2
        assert counts["MakeServer", "done"] == 1

    def test_one_that_was_undone_has_taken_its_time_once(
        self, processor: HandlerProcessor, vm: Vm, fakes: Substrate, collected: Collected
    ) -> None:
        fakes.fault("guest.wait", kind="fail")
        processor.create(vm()).result()

        assert collected.counts("step.duration")["MakeVolume", "done"] == 1

    def test_no_attribute_of_any_metric_names_a_sliver_or_a_part_of_it(
        self, processor: HandlerProcessor, vm: Vm, fakes: Substrate, collected: Collected
    ) -> None:
        fakes.fault("compute.create", kind="fail")
        for sliver in (vm(), vm(), vm(id="sliver-2", name="other")):
            processor.create(sliver).result()

        points = [p for metric in METRICS for p in collected.points(metric.name)]
        said = {value for point in points for value in point.attributes.values()}
        assert said
        assert not {v for v in said if any(n in v for n in ("sliver-", "nic1", "data", "node"))}


class Slow:
    """A driver whose calls have a time limit."""

    def create(self) -> None:
        trying_again()

    def hang(self) -> None:
        threading.Event().wait(0.05)


class TestCalls:
    def test_a_request_that_is_sent_once_more_counts_for_its_call(
        self, collected: Collected
    ) -> None:
        bounded(Slow(), "compute", Deadline.within(60), 60).create()

        assert collected.values("call.retries") == {("compute.create",): 1}

    @pytest.mark.parametrize("reading", [frozenset(), frozenset({"hang"})])
    def test_one_that_gives_no_answer_is_counted_whether_it_reads_or_not(
        self, reading: frozenset[str], collected: Collected
    ) -> None:
        deadline = Deadline.within(60)
        with pytest.raises(Exception, match="did not answer"):
            bounded(Slow(), "compute", deadline, 0.001, reading=Reading(reading)).hang()

        assert collected.values("call.given_up") == {("compute.hang",): 1}
        assert len(deadline.given_up) == (0 if reading else 1)

    def test_those_that_may_still_take_effect_are_a_count(
        self, site: Site, fakes: Substrate, vm: Vm, collected: Collected
    ) -> None:
        with skipping_faults(), HandlerProcessor(site) as processor:
            assert collected.values("call.late") == {(): 0}
            fakes.fault("volume.create", kind="hang")
            assert processor.create(vm()).result().left
            assert collected.values("call.late") == {(): 1}
            fakes.mend()


class TestWatchers:
    @pytest.fixture
    def site(self, fake_site: Site) -> Site:
        return fake_site.model_validate(
            fake_site.model_dump(exclude_unset=True) | {"watch": {"enabled": True}}
        )

    def test_what_they_repair_and_where_they_hear(
        self, site: Site, fakes: Substrate, vm: Vm, collected: Collected
    ) -> None:
        notes: SimpleQueue[Note] = SimpleQueue()
        with HandlerProcessor(site) as processor:
            assert processor.create(vm()).result().ok
            fakes.servers["sliver-1"] = replace(fakes.servers["sliver-1"], ports=())
            watcher = processor.watch(notes.put)
            assert notes.get(timeout=SOON).did == "repaired"
            assert collected.values("watch.repairs") == {("repaired",): 1}
            assert collected.values("watch.hears") == {("domains of localhost",): 1}
            watcher.stop()
            assert not collected.points("watch.hears")


class TestDevices:
    @pytest.fixture
    def site(self, fake_site: Site) -> Site:
        hosts = {"w1": {"gpus": 2}, "w2": {"gpus": 1}}
        settings = fake_site.model_dump(exclude_unset=True)
        return Site.model_validate(
            settings | {"hosts": {"w1": {}, "w2": {}, "w3": {}}, "fake": {"hosts": hosts}}
        )

    def test_they_are_counted_by_host_type_and_state(
        self, processor: HandlerProcessor, vm: Vm
    ) -> None:
        gpu = {"type": "GPU", "id": "gpu", "model": "A30"}
        assert processor.create(vm(host="w1", components=[gpu])).result().ok

        found = counted(processor._look())

        assert (
            found["w1", "GPU", "used"] == found["w1", "GPU", "free"] == found["w2", "GPU", "free"]
        )
        assert found["w1", "GPU", "used"] == 1
        assert found["w2", "GPU", "quarantined"] == 0
        assert {host for host, *_ in found} == {"w1", "w2"}

    def test_of_a_host_that_is_silent_none_are_told(self) -> None:
        readings = [*of_devices({"w1": OSError("no route"), "w2": ()})]

        assert [(r.attributes["host"], r.value) for r in readings] == [("w1", 0), ("w2", 1)]
        assert {r.metric for r in readings} == {metrics.DEVICE_READABLE}


class TestNodes:
    @pytest.fixture
    def site(self, fake_site: Site) -> Site:
        drivers = {**fake_site.drivers, "BareMetal": "fake"}
        settings = fake_site.model_dump() | {"drivers": drivers}
        return Site.model_validate(settings | {"fake": {"nodes": {"n1": {}, "n2": {}}}})

    def test_they_are_counted_by_condition(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        there = fakes.bare_metal
        there["n1"] = replace(there["n1"], condition=NodeCondition.QUARANTINED)

        found = {
            reading.attributes["condition"]: reading.value
            for reading in processor._look()
            if reading.metric is metrics.NODE_COUNT
        }

        assert (found["free"], found["quarantined"], found["active"]) == (1, 1, 0)
        assert len(found) == len(NodeCondition)

    def test_none_are_told_while_they_cannot_be_listed(
        self, processor: HandlerProcessor, fakes: Substrate
    ) -> None:
        fakes.fault("service.nodes", kind="fail")

        of_nodes = {metrics.NODE_COUNT, metrics.NODE_READABLE}
        readings = [each for each in processor._look() if each.metric in of_nodes]

        assert [(each.metric, each.value) for each in readings] == [(metrics.NODE_READABLE, 0)]

    def test_nothing_is_told_of_them_where_there_are_none(self, fake_site: Site) -> None:
        with HandlerProcessor(fake_site) as processor:
            told = {reading.metric for reading in processor._look()}

        assert not told & {metrics.NODE_COUNT, metrics.NODE_READABLE}


def counted(readings: Iterator[Measurement]) -> dict[tuple[str, ...], float]:
    mine = (r for r in readings if r.metric is metrics.DEVICE_COUNT)
    return {tuple(r.attributes.values()): r.value for r in mine}


class TestSurvey:
    def test_who_asks_gets_the_last_readings_and_never_waits(self) -> None:
        times, goes_on, taken = SimpleNamespace(now=0.0), threading.Event(), SimpleQueue[int]()
        survey = Survey(60.0, lambda: times.now)

        def look() -> Iterator[Measurement]:
            taken.put(1)
            assert goes_on.wait(SOON)
            yield Measurement(metrics.CALL_LATE, 1)

        assert survey.readings(look) == ()
        taken.get(timeout=SOON)
        times.now = 100.0
        assert survey.readings(look) == ()  # the first look is still under way
        ended = ended_look(survey, goes_on)
        assert [r.value for r in ended] == [1]
        assert taken.empty()
        survey.readings(look)
        taken.get(timeout=SOON)

    def test_with_zero_nothing_is_looked_at(self) -> None:
        assert Survey(0).readings(lambda: pytest.fail("looked")) == ()


def ended_look(survey: Survey, goes_on: threading.Event) -> tuple[Measurement, ...]:
    """Let the look that is under way end, and return what it took."""
    goes_on.set()
    for thread in threading.enumerate():
        if thread.name == "fabric-direct-survey":
            thread.join(SOON)
    return survey._last


class TestForks:
    def test_a_child_adds_nothing_to_what_its_parent_has_counted(
        self, processor: HandlerProcessor, collected: Collected
    ) -> None:
        processor.delete(SliverRef(id="s1")).result()

        told, tell = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                ended = processor.delete(SliverRef(id="s1")).result().ok
                counts = collected.counts("operation.duration")
                os.write(tell, f"{ended} {metrics.wanted()} {[*counts.values()]}".encode())
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        os.close(tell)
        assert os.read(told, 100) == b"True False [1]"
        assert [*collected.counts("operation.duration").values()] == [1]

    def test_a_child_that_sets_up_a_provider_records_to_it(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        api = pytest.importorskip(MODULE)
        process = metrics._Process()
        assert process.current()
        process._inherit()  # as in a child
        assert process.current() is None
        monkeypatch.setattr(api, "get_meter_provider", object)
        assert process.current()


class TestWithout:
    def test_nothing_is_imported(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delitem(sys.modules, MODULE, raising=False)
        metrics.record(metrics.CALL_RETRIES, call="compute.create")
        assert not metrics.wanted()
        assert MODULE not in sys.modules

    def test_a_module_that_is_just_being_imported_is_left_alone(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, MODULE, ModuleType(MODULE))
        assert not metrics.wanted()

    def test_an_api_that_takes_no_advice_has_histograms_all_the_same(self) -> None:
        def create_histogram(name: str, unit: str, description: str) -> str:
            return name

        meter = SimpleNamespace(create_histogram=create_histogram)
        how = {"unit": "s", "description": ""}
        assert metrics._histogram(meter, "duration", how) == "duration"


def test_the_page_of_metrics_has_them_all() -> None:
    lines = (ROOT / "docs/monitoring.md").read_text().splitlines()
    rows = [line.split(" | ") for line in lines if line.startswith("| `fabric_direct.")]
    named = {row[0].strip("| `"): tuple(row[1:4]) for row in rows}

    assert named == {
        f"fabric_direct.{m.name}": (m.kind, f"`{m.unit}`", attributes(m.attributes))
        for m in METRICS
    }


def attributes(names: tuple[str, ...]) -> str:
    dotted = (name if name == "error.type" else f".{name}" for name in names)
    return ", ".join(f"`{name}`" for name in dotted) or "–"
