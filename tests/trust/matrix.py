"""Every call of every operation, and every way in which it can go wrong: what the outcome says is so.

A point is a call, a fault, and an operation. For each, on a site of its own:

1. The operation runs, and the call goes wrong.
2. The outcome is compared with what there is. Where the process was killed there is no outcome.
3. The same operation is asked for again, and must converge.
4. The sliver is deleted, and nothing may be left, not even in the journal.
5. Where the process was killed: the operation is undone instead (``recover``), and the sliver deleted.
"""

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fabric_direct.drivers.fake import Substrate
from fabric_direct.handlers.vm import actions
from fabric_direct.model import Operation, Outcome
from fabric_direct.processor import HandlerProcessor
from tests.trust.clock import Clock, skipping
from tests.trust.scenes import Request, Scene, forget, scenes
from tests.trust.tap import READS, Call, Tap, books, carry, take_over
from tests.trust.things import Thing, Things, claims_in, differing, things_of
from tests.trust.verdicts import Trial, Verdict

SCENES = {scene.name: scene for scene in scenes(lambda _: actions.NAMES)}
_SOON = 5.0
"""Seconds within which what came later is taken away."""


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """A call that goes wrong in an operation."""

    scene: str
    call: Call
    fault: str

    def __str__(self) -> str:
        where = f" on {self.call.host}" if self.call.host else ""
        return f"{self.scene}: {self.call.method} {self.call.number}{where} {self.fault}"


GAPS: dict[tuple[str, str, str], str] = {}
"""What is not as promised yet: the operation, the call and the fault that are left out, and why."""


def without_gaps(every: Iterable[Point]) -> tuple[Point, ...]:
    """Return the points that are tried."""
    return tuple(p for p in every if (p.scene, p.call.method, p.fault) not in GAPS)


class Stage:
    """A site of its own for one run of an operation."""

    def __init__(self, scene: Scene, folder: Path, clock: Clock, tap: Tap) -> None:
        self.scene, self.clock, self.tap = scene, clock, tap
        self._folder = folder
        self.site = scene.site(folder / "state")
        self.site.state_dir.mkdir()  # a process may be killed before it makes it
        self.hosts: dict[str, Substrate] = scene.substrates(self.site)
        for name, things in self.hosts.items():
            tap.on(things, name)
        tap.carry = lambda: carry(self.hosts, folder / "carried")
        self.processor = self._processor()

    def _processor(self) -> HandlerProcessor:
        # One worker for steps: the n-th call is the same one each time.
        return HandlerProcessor(self.site, step_workers=1)

    def prepare(self) -> None:
        """Do what is done before the operation."""
        for request in self.scene.before:
            outcome = request.ask(self.processor).result()
            assert outcome.ok, (self.scene.name, request, outcome.error)
        for things in self.hosts.values():
            self.scene.spoil(things)

    def ask(self, request: Request) -> tuple[Outcome, float]:
        """Run an operation; return its outcome and how long it took."""
        began = self.clock.monotonic()
        outcome = request.ask(self.processor).result()
        return outcome, self.clock.monotonic() - began

    def restart(self) -> None:
        """End the process, as it were: nobody waits any more for what hangs in it."""
        self.end()
        self.processor = self._processor()

    def end(self) -> None:
        """Wait for the operations that were asked for."""
        self.processor.shutdown()

    def killed(self) -> bool:
        """Run the operation in a process that is killed; return whether it was."""
        self.processor.shutdown()
        child = os.fork()
        if not child:
            try:
                self.scene.request.ask(self._processor()).result()
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            take_over(self.hosts, self._folder / "carried")
            shutil.copytree(self.site.state_dir, self._folder / "then", dirs_exist_ok=True)
        self.processor = self._processor()
        return os.WIFSIGNALED(status)

    def rewind(self) -> None:
        """Go back to the moment after the process was killed."""
        self.end()
        take_over(self.hosts, self._folder / "carried")
        shutil.rmtree(self.site.state_dir)
        shutil.copytree(self._folder / "then", self.site.state_dir)
        self.processor = self._processor()

    def things(self) -> Things:
        """Return what there is."""
        return {**things_of(self.hosts), **claims_in(self.site.state_dir / "pools.sqlite")}

    def journal(self) -> tuple[str, ...]:
        """Return the slivers with an unfinished operation."""
        return tuple(entry.sliver["id"] for entry in self.processor.unfinished())

    def settle(self) -> None:
        """Let what comes later come, and wait until it is taken away, if it will be."""
        self.tap.let_come()
        if self.tap.hung:
            wait([self.tap.hung])
        until = time.monotonic() + _SOON
        while self.restores and self.journal() and time.monotonic() < until:
            time.sleep(0.001)

    @property
    def restores(self) -> bool:
        """Whether what comes later is taken away: something must say what was there before."""
        request = self.scene.request
        return request.operation != "modify" or request.sliver.type != "L2Bridge"


@contextmanager
def staged(scene: Scene) -> Iterator[Stage]:
    """Prepare a site of its own for one run of an operation; nothing stays of it."""
    folder = Path(tempfile.mkdtemp(prefix="fabric-direct-", dir=memory()))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        clock, tap = stack.enter_context(skipping()), Tap()
        stage = Stage(scene, folder, clock, tap)
        stack.callback(forget, stage.site)
        stack.enter_context(books(tap, stage.site.state_dir))
        stack.callback(stage.end)
        stack.callback(tap.let_come)
        stage.prepare()
        yield stage


def memory() -> str | None:
    """Return a directory in memory, where nothing waits for a disk."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """An operation without a fault."""

    calls: tuple[Call, ...]
    before: Things
    after: Things
    seconds: float


@cache
def rehearse(name: str) -> Rehearsal:
    """Run an operation without a fault; note each call that it makes."""
    with staged(SCENES[name]) as stage:
        before = stage.things()
        stage.tap.arm()
        outcome, seconds = stage.ask(stage.scene.request)
        assert outcome.ok, (name, outcome.error)
        return Rehearsal(tuple(stage.tap.calls), before, stage.things(), seconds)


def points(name: str) -> tuple[Point, ...]:
    """Return all points of an operation: each call that it makes, with all that can go wrong with it."""
    calls = rehearse(name).calls
    return tuple(Point(name, call, fault) for call in calls for fault in call.faults())


def judge(point: Point) -> Verdict:
    """Run an operation in which a call goes wrong, and compare what it says with what is so."""
    with staged(SCENES[point.scene]) as stage:
        return _Trial(stage, point).verdict()


class _Trial(Trial):
    def __init__(self, stage: Stage, point: Point) -> None:
        super().__init__(stage, point)
        self._rehearsal = rehearse(point.scene)
        self._before, self._after = self._rehearsal.before, self._rehearsal.after
        self._met = False

    def verdict(self) -> Verdict:
        """Go through all of it."""
        self._fail()
        self._settle()
        self._again()
        self._delete()
        self._recover()
        return self._found()

    def _fail(self) -> None:
        """Run the operation, and let the call go wrong."""
        self._stage.tap.arm(self._point.call, self._point.fault)
        if self._point.fault.startswith("killed"):
            self._met = self._stage.killed()
            self._see_what_was_killed()
        else:
            outcome = self._ask(self._request)
            self._met = self._stage.tap.fired
            self._compare(outcome)
        self._stage.tap.disarm()
        if not self._met:
            self._wrong.append("no call met the fault")

    # --- what the outcome says

    def _compare(self, outcome: Outcome) -> None:
        if outcome.ok:
            self._compare_success(outcome)
        elif outcome.operation is Operation.POA:
            self._compare_action(outcome)
        else:
            self._compare_failure(outcome)

    def _compare_success(self, outcome: Outcome) -> None:
        unlike = differing(self._stage.things(), self._after)
        if unlike or outcome.left:
            self._wrong.append(f"done, but not so: {_names(unlike)} {outcome.left}")
        if self._stage.journal():
            self._wrong.append("done, but still in the journal")

    def _compare_action(self, outcome: Outcome) -> None:
        """Compare a failed action: what it changed is as before, or as it shall be, or named."""
        now = self._stage.things()
        if differing(now, self._before) and not outcome.left:
            self._unnamed.append(f"the action changed {_names(differing(now, self._before))}")
        self._see_that_late_is_named(outcome)

    def _compare_failure(self, outcome: Outcome) -> None:
        changed = differing(self._stage.things(), self._before)
        gone = outcome.operation is Operation.DELETE and not self._of_ours()
        if not outcome.left and changed and not gone:
            self._unnamed.append(f"failed, says nothing is left: {_names(changed)}")
        if not outcome.left and self._stage.journal():
            self._wrong.append("says nothing is left, but is still in the journal")
        if outcome.left and not self._stage.journal():
            self._wrong.append(f"{outcome.left} is left, but not in the journal")
        if outcome.left:
            self._see_that_all_is_named(outcome, changed)
        self._see_that_late_is_named(outcome)

    def _see_that_all_is_named(self, outcome: Outcome, changed: set[Thing]) -> None:
        """All is as it was, or as it shall be, but for what is named."""
        missing = differing(self._stage.things(), self._after)
        unnamed = [
            {thing for thing in unlike if not self._named(thing, outcome.left)}
            for unlike in (changed, missing)
        ]
        if all(unnamed):
            self._unnamed.append(f"{_names(min(unnamed, key=len))}, not in {outcome.left}")

    def _named(self, thing: Thing, left: tuple[str, ...]) -> bool:
        driver, sliver, name = thing
        words = {"server": (sliver, "stamp")}.get(name, (name.split()[0],))
        words = (*words, "claims") if driver == "claims" else words
        # A call that may still take effect tells of what its driver makes, any other unknown of all.
        unknown = [text for text in left if text.startswith("unknown:")]
        tells = any(f" {driver}." in text or "may still" not in text for text in unknown)
        return tells or any(word in text for word in words for text in left)

    def _see_that_late_is_named(self, outcome: Outcome) -> None:
        """A call that has not returned may still take effect, unless it only reads."""
        call, pending = self._point.call, self._point.fault in {"later", "never ends"}
        changes = "late" in call.faults()
        said = any("may still take effect" in text for text in outcome.left)
        if pending and changes and not said:
            self._unnamed.append("a call may still take effect")

    def _see_what_was_killed(self) -> None:
        """What a killed process left half done is in the journal, unless it is an action's."""
        now = self._stage.things()
        half = differing(now, self._before) and differing(now, self._after)
        if half and self._request.operation != "poa" and not self._stage.journal():
            self._unnamed.append(f"killed, not in the journal: {_names(half)}")

    # --- what follows

    def _settle(self) -> None:
        """Let what comes later come; end the process in which something never ends."""
        if self._point.fault == "never ends":
            self._stage.restart()
        if self._point.fault == "later" and self._request.operation != "poa":
            self._stage.settle()
            self._see_that_it_was_taken_away()

    def _see_that_it_was_taken_away(self) -> None:
        now = self._stage.things()
        unlike = min(differing(now, self._before), differing(now, self._after), key=len)
        if not self._stage.restores:
            return
        if self._stage.journal():
            self._not_converged.append("what came later was not taken away")
        elif unlike:
            self._not_converged.append(f"what came later is there: {_names(unlike)}")

    def _again(self) -> None:
        """Ask for the same operation once more."""
        self._stage.tap.let_come()
        outcome = self._ask(self._request)
        unlike = differing(self._stage.things(), self._after)
        if not outcome.ok or unlike:
            said = outcome.error.message if outcome.error else ""
            self._not_converged.append(f"again: {outcome.status} {said} {_names(unlike)}")

    def _delete(self) -> None:
        """Delete the sliver, and look for what is left of it."""
        outcome = self._ask(Request("delete", self._request.sliver.ref()))
        left = self._of_ours()
        if not outcome.ok or left:
            said = outcome.error.message if outcome.error else ""
            self._not_converged.append(f"deleted: {outcome.status} {said} {_names(left)}")
        if self._stage.journal():
            self._not_converged.append("deleted, but still in the journal")

    def _recover(self) -> None:
        """Undo what the killed process left unfinished, instead; then delete the sliver.

        Before a call that only reads, all is as it was after the call before it.
        """
        reads = self._point.call.faults() == READS
        killed = self._point.fault.startswith("killed") and not reads
        if not killed or not self._met or self._request.operation == "poa":
            return
        self._stage.rewind()
        outcomes = [future.result() for future in self._stage.processor.recover(undo=True)]
        now = self._stage.things()
        unlike = min(differing(now, self._before), differing(now, self._after), key=len)
        if unlike or self._stage.journal() or not all(outcome.ok for outcome in outcomes):
            self._not_converged.append(f"recovered: {_names(unlike)}")
        self._delete()

    def _of_ours(self) -> set[Thing]:
        return {thing for thing in self._stage.things() if thing[1] == self._request.sliver.id}


def _names(things: object) -> str:
    return ", ".join(sorted(" ".join(thing) for thing in things))  # type: ignore[attr-defined]
