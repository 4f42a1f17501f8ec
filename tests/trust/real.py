"""The matrix on a real substrate: each changing call killed before or after, or its answer lost.

The calls are those of the drivers, listed by a run without a fault. One call goes wrong at a point. What
the outcome says is compared with what the library reads back, and with the names of all that is there.
"""

import os
import signal
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from unittest.mock import patch

from fabric_direct.drivers.contract import HostDrivers
from fabric_direct.errors import DriverError
from fabric_direct.handlers import registry
from fabric_direct.model import Outcome, SliverRef
from fabric_direct.processor import HandlerProcessor
from fabric_direct.site.config import Site
from tests.reading import only_reads
from tests.trust.scenes import Request
from tests.trust.tap import Call, Tap

FAULTS = ("fails after", "killed before", "killed after")
_KINDS = ("compute", "network", "volume", "tuning", "guest", "uplink")


@dataclass(frozen=True, slots=True)
class Act:
    """An operation, and what is done before it."""

    name: str
    request: Request
    before: tuple[Request, ...] = ()

    def was(self) -> SliverRef | None:
        """Return the sliver as it is before the operation; None if it is not there."""
        same = (r.sliver for r in self.before if r.sliver.id == self.request.sliver.id)
        return next(same, None)

    def slivers(self) -> tuple[SliverRef, ...]:
        """Return all slivers, in the order in which they can be deleted."""
        every = (self.request.sliver, *(request.sliver for request in reversed(self.before)))
        return tuple({each.id: each.ref() for each in every}.values())


@dataclass(frozen=True, slots=True)
class Place:
    """A site on a real substrate."""

    site: Site
    acts: tuple[Act, ...]
    things: Callable[[], set[str]]
    """Names all that is there with the site's stamp, and what is in the journal."""


@dataclass(frozen=True, slots=True)
class Point:
    """A call that goes wrong in an operation."""

    act: Act
    after: frozenset[tuple[str, int]]
    """Names and counts what is there when nothing went wrong."""
    call: Call
    fault: str

    def __str__(self) -> str:
        return f"{self.act.name}: {self.call.method} {self.call.number} {self.fault}"


class _Tapped:
    """A driver whose changing calls go through a tap."""

    def __init__(self, driver: Any, kind: str, host: str, tap: Tap) -> None:
        self._driver, self._kind, self._host, self._tap = driver, kind, host, tap

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._driver, name)
        method = f"{self._kind}.{name}"
        if not callable(value) or only_reads(method):
            return value

        def call(*args: Any, **kw: Any) -> Any:
            lost = DriverError(f"{method}: no answer", why="it was told to")
            effect = lambda: value(*args, **kw)  # noqa: E731
            return self._tap.through(self._host, method, effect, lost)

        return call


@contextmanager
def tapped(tap: Tap) -> Iterator[None]:
    """Send what drivers are asked to change through a tap."""
    really = registry.host_drivers

    def drivers(site: Site, host: str) -> HostDrivers:
        found = really(site, host)
        kinds = {kind: getattr(found, kind) for kind in _KINDS}
        through = partial(_Tapped, host=host or "cloud", tap=tap)
        wrapped: dict[str, Any] = {k: d and through(d, k) for k, d in kinds.items()}
        devices = {kind: through(d, "device") for kind, d in found.devices.items()}
        services = {kind: through(d, "service") for kind, d in found.services.items()}
        return replace(found, **wrapped, devices=devices, services=services)

    with patch.object(registry, "host_drivers", drivers):
        yield


def points(place: Place, act: Act) -> Iterator[Point]:
    """Yield each changing call of an operation with each fault; the operation runs once for it."""
    calls, after = _rehearse(place, act)
    return (Point(act, after, call, fault) for call in calls for fault in FAULTS)


def _rehearse(place: Place, act: Act) -> tuple[tuple[Call, ...], frozenset[tuple[str, int]]]:
    tap = Tap()
    with tapped(tap), _processor(place.site) as processor:
        _done(processor, *act.before)
        tap.arm()
        _done(processor, act.request)
        calls, after = tuple(tap.calls), _counted(place.things())
        _done(processor, *(Request("delete", each) for each in act.slivers()))
    return calls, after


def judge(place: Place, point: Point) -> tuple[str, ...]:
    """Return what is not as promised at a point, a sentence each."""
    tap, trial = Tap(), _Trial(place, point)
    with tapped(tap):
        trial.fail(tap)
        with _processor(place.site) as processor:
            trial.again(processor)
            trial.delete(processor)
    return tuple(trial.found)


def _processor(site: Site) -> HandlerProcessor:
    # One worker for steps: the n-th call is the same one each time.
    return HandlerProcessor(site, step_workers=1)


def _done(processor: HandlerProcessor, *requests: Request) -> None:
    for request in requests:
        outcome = request.ask(processor).result()
        assert outcome.ok, (request, outcome.error, outcome.left)


class _Trial:
    """One point, and what is found there."""

    def __init__(self, place: Place, point: Point) -> None:
        self._place, self._act, self._point = place, point.act, point
        self._request = point.act.request
        self.found: list[str] = []

    def fail(self, tap: Tap) -> None:
        """Run the operation, and let the call go wrong."""
        with _processor(self._place.site) as processor:
            _done(processor, *self._act.before)
        before = self._place.things()
        tap.arm(self._point.call, self._point.fault)
        if self._point.fault.startswith("killed"):
            self._kill(before)
        else:
            self._lose(tap, before)
        tap.disarm()

    def _kill(self, before: set[str]) -> None:
        child = os.fork()
        if not child:
            try:
                self._request.ask(_processor(self._place.site)).result()
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        with _processor(self._place.site) as processor:
            if not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL):
                self.found.append("no call met the fault")
            elif self._place.things() != before and not processor.unfinished():
                self.found.append("killed, not in the journal")

    def _lose(self, tap: Tap, before: set[str]) -> None:
        with _processor(self._place.site) as processor:
            outcome = self._request.ask(processor).result()
            if not tap.fired:
                self.found.append("no call met the fault")
            self._compare(processor, outcome, before)

    def _compare(self, processor: HandlerProcessor, outcome: Outcome, before: set[str]) -> None:
        if outcome.ok:
            self._see_that_it_is_so(processor, "done, but not so")
        elif outcome.left and not processor.unfinished():
            self.found.append(f"{outcome.left} is left, but not in the journal")
        elif not outcome.left and self._request.operation == "delete":
            self._see_that_it_is_so(processor, "failed, says nothing is left")
        elif not outcome.left:
            self._see_that_it_was_taken_back(processor, before)

    def _see_that_it_is_so(self, processor: HandlerProcessor, said: str) -> None:
        """See that all is as asked for."""
        differs: Collection[object] = _counted(self._place.things()) ^ self._point.after
        if self._request.operation != "delete":
            differs = _differences(processor, self._request.sliver)
        if differs:
            self.found.append(f"{said}: {differs}")

    def _see_that_it_was_taken_back(self, processor: HandlerProcessor, before: set[str]) -> None:
        was, now = self._act.was(), self._place.things()
        differs = _differences(processor, was) if was and now == before else ()
        if now != before or differs:
            self.found.append(f"failed, says nothing is left: {now ^ before} {differs}")

    def again(self, processor: HandlerProcessor) -> None:
        """Ask for the same operation once more."""
        outcome = self._request.ask(processor).result()
        if not outcome.ok:
            self.found.append(f"again: {outcome.status} {outcome.error} {outcome.left}")
        self._see_that_it_is_so(processor, "again, but not so")

    def delete(self, processor: HandlerProcessor) -> None:
        """Delete all, and look for what is left."""
        for sliver in self._act.slivers():
            outcome = processor.delete(sliver).result()
            if not outcome.ok:
                self.found.append(f"deleted: {outcome.status} {outcome.error} {outcome.left}")
        if left := self._place.things():
            self.found.append(f"deleted, and left: {sorted(left)}")


def _counted(things: set[str]) -> frozenset[tuple[str, int]]:
    """Count things by name. A floating IP has another address each time that it is made."""
    names = ("FloatingIP" if name.startswith("FloatingIP ") else name for name in things)
    return frozenset(Counter(names).items())


def _differences(processor: HandlerProcessor, sliver: SliverRef) -> tuple[str, ...]:
    outcome = processor.probe(sliver).result()
    assert outcome.observed, outcome.error
    return outcome.observed.differences


def main(place: Place) -> bool:
    """Try every point, print what was found, and return whether all is as promised."""
    print(f"{'':24}{'points':>8}{'wrong':>8}")  # noqa: T201
    good = [_try(place, act) for act in place.acts]
    return all(good)


def _try(place: Place, act: Act) -> bool:
    found = [(point, judge(place, point)) for point in points(place, act)]
    wrong = [(point, sentences) for point, sentences in found if sentences]
    print(f"{act.name:24}{len(found):8}{len(wrong):8}", flush=True)  # noqa: T201
    for point, sentences in wrong:
        print(f"{point}: {'; '.join(sentences)}", flush=True)  # noqa: T201
    return not wrong
