"""Traces: an operation, its steps and their calls as spans, if the process has OpenTelemetry."""

import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from fabric_direct.calls.tracing import span
from fabric_direct.drivers.fake import Substrate
from fabric_direct.model import NodeSliver, SliverRef
from fabric_direct.processor import HandlerProcessor

MODULE = "opentelemetry.trace"
Vm = Callable[..., NodeSliver]


class Traces:
    """What the SDK exported."""

    def __init__(self, exporter: Any, tracer: Any) -> None:
        self._exporter, self.tracer = exporter, tracer

    def named(self, name: str) -> Any:
        (found,) = (each for each in self.all() if each.name == name)
        return found

    def all(self) -> tuple[Any, ...]:
        return tuple(self._exporter.get_finished_spans())

    def above(self, child: Any) -> Any:
        """Return the span that another one is a part of, or None."""
        found = (
            s for s in self.all() if child.parent and s.context.span_id == child.parent.span_id
        )
        return next(found, None)


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> Iterator[Traces]:
    """The SDK with its exporter in memory, as if the process had set it up."""
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    export = pytest.importorskip("opentelemetry.sdk.trace.export")
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    exporter, provider = memory.InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    monkeypatch.setattr(sys.modules[MODULE], "get_tracer", provider.get_tracer)
    yield Traces(exporter, provider.get_tracer("test"))
    provider.shutdown()


class TestSpans:
    def test_an_operation_has_its_steps_and_these_their_calls(
        self, processor: HandlerProcessor, vm: Vm, traces: Traces
    ) -> None:
        assert processor.create(vm(host="localhost")).result().ok
        operation, step = traces.named("create"), traces.named("volume data")
        call = traces.named("volume.create")
        assert traces.above(call) is step
        assert traces.above(step) is operation
        assert operation.parent is None

    def test_they_say_what_they_are_about(
        self, processor: HandlerProcessor, vm: Vm, traces: Traces
    ) -> None:
        processor.create(vm(host="localhost")).result()
        sliver = {"fabric_direct.sliver": "sliver-1", "fabric_direct.type": "VM"}
        assert dict(traces.named("create").attributes) == sliver
        assert dict(traces.named("volume data").attributes) == {"fabric_direct.step": "volume data"}
        assert dict(traces.named("volume.create").attributes) == {"fabric_direct.host": "localhost"}

    def test_an_action_is_named(self, processor: HandlerProcessor, traces: Traces) -> None:
        processor.poa(SliverRef(id="s1"), "start").result()
        assert traces.named("poa").attributes["fabric_direct.action"] == "start"

    def test_a_failure_is_one_of_call_step_and_operation(
        self, processor: HandlerProcessor, vm: Vm, fakes: Substrate, traces: Traces
    ) -> None:
        fakes.fault("volume.create", kind="fail")
        processor.create(vm()).result()
        for name in ("volume.create", "volume data", "create"):
            status = traces.named(name).status
            assert status.status_code.name == "ERROR"
            assert status.description.startswith("DriverError: volume.create failed")
        assert traces.named("port nic1").status.status_code.name == "UNSET"

    def test_what_is_undone_is_there(
        self, processor: HandlerProcessor, vm: Vm, fakes: Substrate, traces: Traces
    ) -> None:
        fakes.fault("guest.wait", kind="fail")
        processor.create(vm()).result()
        assert traces.above(traces.named("undo volume data")) is traces.named("create")

    def test_no_input_and_no_stack_is_in_them(
        self, processor: HandlerProcessor, vm: Vm, fakes: Substrate, traces: Traces
    ) -> None:
        fakes.fault("guest.wait", kind="fail")
        processor.create(vm(boot_script="#!/bin/sh\necho s3cret")).result()
        assert not any("s3cret" in each.to_json() or each.events for each in traces.all())

    def test_an_operation_is_a_part_of_what_its_caller_traces(
        self, processor: HandlerProcessor, traces: Traces
    ) -> None:
        with traces.tracer.start_as_current_span("request"):
            future = processor.delete(SliverRef(id="s1"))
        future.result()
        assert traces.above(traces.named("delete")) is traces.named("request")


class TestWithout:
    def test_nothing_is_imported(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delitem(sys.modules, MODULE, raising=False)
        with span("create", sliver="s1") as traced:
            traced.failed("Conflict", "why")
        assert MODULE not in sys.modules

    def test_a_module_that_is_just_being_imported_is_left_alone(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, MODULE, ModuleType(MODULE))
        with span("create") as traced:
            traced.failed("Conflict", "why")

    def test_errors_pass(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delitem(sys.modules, MODULE, raising=False)
        with pytest.raises(KeyError), span("create"):
            raise KeyError
