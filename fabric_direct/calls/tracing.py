"""Spans: operation, step, call of a driver.

They go to the provider of OpenTelemetry that the process has set up. Where nothing has imported
OpenTelemetry there is none, and this imports nothing: see docs/decisions/0058. A process can also record
them itself, with the remote calls below them: :func:`recording`.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, NamedTuple


class Span:
    """A span, or nothing.

    :param traced: OpenTelemetry's, and its module.
    """

    def __init__(self, traced: Any = None, api: Any = None) -> None:
        self._traced, self._api = traced, api

    def failed(self, kind: str, message: str) -> None:
        """Say that what it is about failed, by the class of the error."""
        if self._traced is not None:
            self._traced.set_status(self._api.StatusCode.ERROR, f"{kind}: {message}")


_NOTHING = Span()


class Recorded(NamedTuple):
    """A recorded operation, step or call, with the times at which it began and ended."""

    sliver: str
    """Whose operation it is a part of; empty outside of all."""
    step: str
    """The step that it is a part of; empty outside of all."""
    name: str
    began: float
    """Seconds of :func:`time.perf_counter`."""
    ended: float
    error: str
    """The class of the error that ended it; empty if none did."""
    attributes: dict[str, str]


class Recording:
    """The operations, steps, calls of drivers and of other programs, in the order of their ends."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.spans: list[Recorded] = []

    @contextmanager
    def span(self, name: str, attributes: dict[str, str]) -> Iterator[None]:
        """Record the block."""
        sliver, step = _part.get()
        part = attributes.get("sliver", sliver), attributes.get("step", step)
        token, began, error = _part.set(part), time.perf_counter(), ""
        try:
            yield
        except BaseException as caught:
            error = type(caught).__name__
            raise
        finally:
            _part.reset(token)
            ended = time.perf_counter()
            self.spans.append(Recorded(*part, name, began, ended, error, attributes))


_recording: Recording | None = None
_part: ContextVar[tuple[str, str]] = ContextVar("part", default=("", ""))


@contextmanager
def recording() -> Iterator[Recording]:
    """Record what this process does while the block runs."""
    global _recording  # noqa: PLW0603 - one for the process
    before, _recording = _recording, Recording()
    try:
        yield _recording
    finally:
        _recording = before


def remote(name: str, **attributes: str) -> AbstractContextManager[None]:
    """Record the block as one call of another program, if anything is recorded.

    It is no span of OpenTelemetry: the libraries of HTTP and SSH have instrumentations of their own.
    """
    return _recording.span(name, attributes) if _recording else nullcontext()


def span(name: str, **attributes: str) -> AbstractContextManager[Span]:
    """Trace the block; an error that leaves it is the span's status, by class and message.

    :param attributes: their names get the prefix ``fabric_direct.``; empty ones are left out.
    """
    api: Any = sys.modules.get("opentelemetry.trace")
    if not hasattr(api, "get_tracer"):  # it is not there, or just being imported
        api = None
    if _recording is None and api is None:
        return nullcontext(_NOTHING)
    return _traced(api, name, {key: value for key, value in attributes.items() if value})


@contextmanager
def _traced(api: Any, name: str, given: dict[str, str]) -> Iterator[Span]:
    with remote(name, **given), _opentelemetry(api, name, given) as traced:
        yield traced


@contextmanager
def _opentelemetry(api: Any, name: str, attributes: dict[str, str]) -> Iterator[Span]:
    if api is None:
        yield _NOTHING
        return
    named = {f"fabric_direct.{key}": value for key, value in attributes.items()}
    tracer = api.get_tracer("fabric_direct")
    with tracer.start_as_current_span(name, attributes=named, record_exception=False) as traced:
        yield Span(traced, api)
