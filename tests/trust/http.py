"""Every request of the OpenStack drivers, and every way in which it can go wrong.

As :mod:`tests.trust.matrix` does with calls of drivers, one level below: the drivers are real, the cloud
is a fake (:mod:`.http_cloud`). At each point:

1. The operation runs, and the request goes wrong.
2. The outcome is compared with what is in the cloud once all that was asked of it has come.
3. The same operation is asked for again, and must converge; a probe finds no differences.
4. The sliver is deleted, and nothing may be left, not even in the journal.

`make test-trust` tries a share of the points, ``python -m tests.trust http --whole`` all of them.
"""

import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from multiprocessing.util import Finalize
from pathlib import Path

from fabric_direct.drivers.openstack.client import name_cache, session
from fabric_direct.drivers.openstack.networks import neutron
from fabric_direct.model import Operation, Outcome
from fabric_direct.processor import HandlerProcessor
from tests.trust.http_cloud import StatefulCloud
from tests.trust.http_faults import Asked, HttpClock, Wire, on
from tests.trust.http_scenes import FIRST, SCENES, site
from tests.trust.http_things import Found, Things, differing, things_of
from tests.trust.scenes import Request, Scene
from tests.trust.verdicts import Trial, Verdict

_USUAL, _LONG = 90.0, 10_000.0
"""Seconds for which a request without an answer may still take effect: an operation can wait for that,
or cannot."""
_SOON = 20.0
"""Seconds within which what came last is taken away."""
LAST = "time-out, last"


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """A request that goes wrong in an operation."""

    scene: str
    asked: Asked
    fault: str

    def __str__(self) -> str:
        return f"{self.scene}: {self.asked.what} {self.asked.number} {self.fault}"


class Stage:
    """A cloud and a site of its own for one run of an operation."""

    def __init__(
        self,
        scene: Scene,
        cloud: StatefulCloud,
        wire: Wire,
        clock: HttpClock,
        unanswered: float,
    ) -> None:
        self.scene, self.cloud, self.wire, self.clock = scene, cloud, wire, clock
        self.state_dir = Path(tempfile.mkdtemp(dir=cloud.clouds.parent))
        self.site = site(cloud, self.state_dir, unanswered)
        # One worker for steps: the n-th request is the same one each time.
        self.processor = HandlerProcessor(self.site, step_workers=1)

    def prepare(self) -> None:
        """Do what is done before the operation."""
        for request in self.scene.before:
            outcome = request.ask(self.processor).result()
            assert outcome.ok, (self.scene.name, request, outcome.error)
        if self.scene.name == FIRST:
            session._connections.clear()

    def ask(self, request: Request) -> tuple[Outcome, float]:
        """Run an operation; return its outcome and how long it took."""
        began = self.clock.monotonic()
        outcome = request.ask(self.processor).result()
        return outcome, self.clock.monotonic() - began

    def things(self) -> Things:
        """Return what there is when all has come that was asked for."""
        self.wire.let_come()
        self.cloud.settle()
        return things_of(self.cloud)

    def settle(self) -> None:
        """Let what was looked for in vain come, and wait until it is taken away, if it will be."""
        self.things()
        self.clock.sleep(_LONG)
        until = time.monotonic() + _SOON
        while self.restores and self.journal() and time.monotonic() < until:
            time.sleep(0.001)

    @property
    def restores(self) -> bool:
        """Whether what comes last is taken away: something must say what was there before."""
        request = self.scene.request
        return request.operation != "modify" or request.sliver.type != "L2Bridge"

    def journal(self) -> tuple[str, ...]:
        """Return the slivers with an unfinished operation."""
        return tuple(entry.sliver["id"] for entry in self.processor.unfinished())


@contextmanager
def staged(scene: Scene, unanswered: float = _USUAL) -> Iterator[Stage]:
    """Prepare a cloud and a site for one run of an operation; nothing stays of them.

    :param unanswered: seconds for which a request without an answer may still take effect.
    """
    cloud = _cloud(os.getpid())
    cloud.clear()
    name_cache._names.clear()
    neutron._caches.clear()
    with on(cloud) as (wire, clock):
        stage = Stage(scene, cloud, wire, clock, unanswered)
        stage.prepare()
        yield stage
        stage.processor.shutdown()
    shutil.rmtree(stage.state_dir, ignore_errors=True)


@cache
def _cloud(_: int) -> StatefulCloud:
    """Return the process's cloud, whose services are discovered once."""
    folder = Path(tempfile.mkdtemp(prefix="fabric-direct-"))
    # A process of a pool ends without atexit.
    Finalize(None, shutil.rmtree, (folder,), {"ignore_errors": True}, exitpriority=0)
    return StatefulCloud(folder)


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """An operation without a fault."""

    asked: tuple[Asked, ...]
    before: Things
    after: Things


@cache
def rehearse(name: str) -> Rehearsal:
    """Run an operation without a fault; note each request that it makes.

    Before any other, the first requests of the process: what they discover is not asked for again.
    """
    if name != FIRST:
        rehearse(FIRST)
    with staged(SCENES[name]) as stage:
        before = stage.things()
        stage.wire.arm()
        outcome, _ = stage.ask(stage.scene.request)
        assert outcome.ok, (name, outcome.error)
        return Rehearsal(tuple(stage.wire.asked), before, stage.things())


def points(name: str) -> tuple[Point, ...]:
    """Return all points of an operation: each request, with all that can go wrong with it."""
    asked = rehearse(name).asked
    if name == FIRST:
        asked = tuple(a for a in asked if a.what.endswith((" /", "/auth/tokens")))
    return tuple(Point(name, each, fault) for each in asked for fault in each.faults())


def judge(point: Point) -> Verdict:
    """Run an operation in which a request goes wrong, and compare what it says with what is so."""
    rehearse(point.scene)
    with staged(SCENES[point.scene], _LONG if point.fault == LAST else _USUAL) as stage:
        return _Trial(stage, point).verdict()


class _Trial(Trial):
    def __init__(self, stage: Stage, point: Point) -> None:
        super().__init__(stage, point)
        rehearsal = rehearse(point.scene)
        self._before, self._after = rehearsal.before, rehearsal.after

    def verdict(self) -> Verdict:
        """Go through all of it."""
        self._stage.wire.arm(self._point.asked, self._point.fault)
        outcome = self._ask(self._request)
        if not self._stage.wire.fired:
            self._wrong.append("no request met the fault")
        if self._point.fault == LAST:
            self._see_what_comes_last(outcome)
        else:
            self._compare(outcome)
            self._wait(outcome)
        self._stage.wire.arm()
        self._again()
        self._delete()
        return self._found()

    def _wait(self, outcome: Outcome) -> None:
        """Ask again when nothing can come any more, as the outcome says."""
        if any("may still take effect" in text for text in outcome.left):
            self._stage.settle()

    def _see_what_comes_last(self, outcome: Outcome) -> None:
        """A request that takes effect after the operation is named, and what it made is taken away."""
        if not any("may still take effect" in text for text in outcome.left):
            self._unnamed.append(f"a request may still take effect: {outcome.left}")
        action = outcome.operation is Operation.POA
        if not (self._stage.journal() or action):
            self._wrong.append("a request may still take effect, but is not in the journal")
        self._stage.settle()
        if self._stage.restores and not action:
            self._see_that_it_was_taken_away()

    def _see_that_it_was_taken_away(self) -> None:
        now = self._stage.things()
        unlike = min(differing(now, self._before), differing(now, self._after), key=len)
        if self._stage.journal():
            self._not_converged.append("what came last was not taken away")
        elif unlike:
            self._not_converged.append(f"what came last is there: {_names(unlike)}")

    def _compare(self, outcome: Outcome) -> None:
        now, journal = self._stage.things(), self._stage.journal()
        if outcome.ok and (differing(now, self._after) or outcome.left or journal):
            unlike = _names(differing(now, self._after))
            self._wrong.append(f"done, but not so: {unlike} {outcome.left} {journal}")
        if outcome.ok or (outcome.operation is Operation.POA and outcome.left):
            return
        if bool(outcome.left) != bool(journal) and outcome.operation is not Operation.POA:
            self._wrong.append(f"left: {outcome.left}, but in the journal: {journal}")
        self._compare_failure(outcome, now)

    def _compare_failure(self, outcome: Outcome, now: Things) -> None:
        """All is as before, or as it shall be, but for what is named.

        Of a deletion each thing for itself: what is gone already stays so.
        """
        changed, missing = differing(now, self._before), differing(now, self._after)
        unnamed = [{t for t in each if not _named(t, outcome.left)} for each in (changed, missing)]
        deleting = outcome.operation is Operation.DELETE
        wrong = set.intersection(*unnamed) if deleting else min(unnamed, key=len)
        silent = changed if not (outcome.left or (deleting and not missing)) else set()
        if wrong or silent:
            why = outcome.error.message if outcome.error else ""
            said = _names(wrong or silent)
            self._unnamed.append(f"{said}, not in {outcome.left}: {why}")

    def _again(self) -> None:
        """Ask for the same operation once more, and for what there is then."""
        outcome = self._ask(self._request)
        unlike = differing(self._stage.things(), self._after)
        if not outcome.ok or unlike:
            said = outcome.error.message if outcome.error else ""
            self._not_converged.append(f"again: {outcome.status} {said} {_names(unlike)}")
        self._probe()

    def _probe(self) -> None:
        if self._request.operation not in {"create", "modify"}:
            return
        observed = self._ask(Request("probe", self._request.sliver)).observed
        if observed is None or observed.differences:
            self._not_converged.append(f"probe: {observed and observed.differences}")

    def _delete(self) -> None:
        """Delete the sliver, and look for what is left of it."""
        outcome = self._ask(Request("delete", self._request.sliver.ref()))
        left = self._of_ours(self._stage.things())
        if not outcome.ok or left or self._stage.journal():
            said = outcome.error.message if outcome.error else ""
            journal = self._stage.journal()
            text = f"deleted: {outcome.status} {said} {_names(left)} {journal}"
            self._not_converged.append(text)

    def _of_ours(self, now: Things) -> set[Found]:
        """Return what is the sliver's: it was not there before anything was done."""
        others = {"lab", "public", "vm-1-node", "lab 10.30.0.0/24"}
        return {(kind, name) for kind, name in now if name not in others}


def _named(thing: Found, left: Sequence[str]) -> bool:
    """Return whether a thing is named: by itself, by what it is for, or by the step that is about it.

    A network of site.yaml comes and goes with its ports; one that is a sliver is made by its service. A
    server has its NICs and disks.
    """
    kind, name = thing
    whole = kind in {"network", "subnet", "router"}
    said = ("unknown:", *(("network:", "port ", "service:") if whole else ()))
    said += ("stamp:", "disk ", "nic ", "unplug ") if kind == "server" else ()
    component = name.removeprefix("of ").removesuffix(" twice").rpartition("-")[2].split()[0]
    words = {word for text in left for word in re.findall(r"[\w-]+", text)}
    return component in words or any(name in text or text.startswith(said) for text in left)


def _names(things: set[Found]) -> str:
    return ", ".join(sorted(" ".join(thing) for thing in things))
