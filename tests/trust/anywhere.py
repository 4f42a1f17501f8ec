"""From anywhere: whatever there is of a sliver, modify and delete reach what was asked for.

A sliver is created on the fakes, another hand changes it (:mod:`.changes`), and then:

1. ``modify`` to another sliver is done: it is as if that had been created anew. Or it is refused and
   names a component: without it, it is done, and then with it. Only a field that no modification
   changes stays refused. What fails leaves all as it was, or names what is not.
2. Where the server is gone, it is ``create`` that reaches the sliver.
3. ``delete`` leaves nothing, and each device that the sliver had was cleaned.

One operation runs at a time, and no call fails: for that there is the matrix.
"""

import random
from dataclasses import dataclass

from fabric_direct.model import Outcome, PciAddress, SliverRef, State, StepStatus
from tests.trust.changes import (
    ALLOWED,
    CHANGES,
    CHOICES,
    DEVICES,
    SLIVER,
    UNCHANGEABLE,
    Change,
    Choices,
    change,
    equip,
    sliver,
)
from tests.trust.matrix import Stage, staged
from tests.trust.scenes import Request, Scene
from tests.trust.things import Thing, Things, differing
from tests.trust.verdicts import spread

_MOST = 6
"""Changes of one case."""


@dataclass(frozen=True, slots=True)
class Case:
    """A sliver that is created, changed by another hand, and asked for as another one."""

    first: Choices
    changes: tuple[Change, ...]
    wanted: Choices

    def __str__(self) -> str:
        return f"from {self.first}; {'; '.join(map(str, self.changes))}; to {self.wanted}"


def judge(case: Case) -> tuple[str, ...]:
    """Return what is not as promised, a sentence each."""
    create = Request("create", sliver(case.first))
    with staged(Scene("anywhere", create, devices=ALLOWED)) as stage:
        for has in stage.hosts.values():
            equip(has)
        outcome, _ = stage.ask(stage.scene.request)
        assert outcome.ok, outcome.error
        return _Trial(stage, case).sentences()


class _Trial:
    """One case, and what is found."""

    def __init__(self, stage: Stage, case: Case) -> None:
        self._stage, self._case = stage, case
        self._has, self._wanted = stage.hosts["w1"], sliver(case.wanted)
        self._said: list[str] = []
        self._cleaned: set[str] = set()

    def sentences(self) -> tuple[str, ...]:
        """Go through all of it."""
        change(self._has, self._case.changes)
        devices = self._devices()
        reached = self._things() if self._reaches() else None
        self._delete({str(address) for address in devices | self._devices()})
        self._create_anew(reached)
        return tuple(self._said)

    def _devices(self) -> set[PciAddress]:
        """Return the functions that the sliver has, or has had since they were clean."""
        plugged = {d.host_address for d in self._has.plugged.get(SLIVER, ())}
        return plugged | {a for a, r in self._has.records.items() if r.sliver == SLIVER}

    def _things(self) -> Things:
        """Return what there is, but for what the guest was told before it was changed."""
        return {
            thing: is_so for thing, is_so in self._stage.things().items() if thing[0] != "guest"
        }

    def _ask(self, operation: str, wanted: SliverRef) -> Outcome:
        before = self._stage.things()
        outcome, _ = self._stage.ask(Request(operation, wanted))
        done = [step.step for step in outcome.steps if step.status is StepStatus.DONE]
        self._cleaned |= {step.split()[-1] for step in done if step.startswith("clean ")}
        changed = self._as_known(differing(before, self._stage.things()))
        if not outcome.ok and changed and not outcome.left:
            self._said.append(f"{operation} failed, says nothing is left: {sorted(changed)}")
        return outcome

    def _as_known(self, changed: set[Thing]) -> set[Thing]:
        """Leave out devices that another hand changed: they are restored as the stamp has them."""
        ours = any(each.component in DEVICES for each in self._case.changes)
        return {thing for thing in changed if not (ours and thing[0] == "device")}

    def _reaches(self) -> bool:
        """Modify, or create if the server is gone; return whether it came to what is wanted."""
        operation = "modify" if SLIVER in self._has.servers else "create"
        outcome = self._ask(operation, self._wanted)
        if not outcome.ok and _component(outcome) is not None:
            outcome = self._in_turns(operation, outcome)
        if outcome.ok:
            self._see_that_it_is_so()
        elif not any(each.what in UNCHANGEABLE for each in self._case.changes):
            self._said.append(f"{operation}: {outcome.status} {outcome.error} {outcome.left}")
        return outcome.ok

    def _in_turns(self, operation: str, outcome: Outcome) -> Outcome:
        """Ask for it without each component that is refused, and then with all."""
        wanted = self._wanted
        while (number := _component(outcome)) is not None:
            kept = (*wanted.components[:number], *wanted.components[number + 1 :])
            wanted = wanted.model_copy(update={"components": kept})
            outcome = self._ask(operation, wanted)
        return self._ask("modify", self._wanted) if outcome.ok else outcome

    def _see_that_it_is_so(self) -> None:
        """Read it back; a server that was stopped stays so, and is started for that."""
        if self._has.servers[SLIVER].state is not State.RUNNING:
            self._stage.ask(Request("poa", self._wanted, "start"))
            self._ask("modify", self._wanted)
        observed = self._stage.ask(Request("probe", self._wanted))[0].observed
        if observed is None or observed.differences:
            self._said.append(f"done, but {observed and observed.differences}")
        if self._stage.journal():
            self._said.append("done, but in the journal")

    def _delete(self, devices: set[str]) -> None:
        outcome = self._ask("delete", self._wanted.ref())
        left = [thing for thing in self._stage.things() if thing[1] == SLIVER]
        if not outcome.ok or left or self._has.unused or self._stage.journal():
            self._said.append(f"deleted: {outcome.status} {outcome.error} {left}")
        if unclean := devices - self._cleaned:
            self._said.append(f"deleted, but not cleaned: {sorted(unclean)}")

    def _create_anew(self, reached: Things | None) -> None:
        """Create the sliver from nothing, and compare with it what was reached."""
        outcome = self._ask("create", self._wanted)
        if not outcome.ok:
            self._said.append(f"created anew: {outcome.error}")
        elif reached is not None and (unlike := differing(reached, self._things())):
            self._said.append(f"done, but not as if created anew: {sorted(unlike)}")


def _component(outcome: Outcome) -> int | None:
    """Return the number of the component that is refused, if one is."""
    field = outcome.error.field if outcome.error else ""
    if outcome.left or not field.startswith("components["):
        return None
    return int(field.removeprefix("components[").split("]")[0])


# --- many of them


def any_case(seed: int) -> Case:
    """Return a case; the same one for the same seed."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    first, wanted = (
        tuple(sorted(dict(chance.sample(CHOICES, chance.randrange(9))).items())) for _ in "ab"
    )
    return Case(first, tuple(chance.sample(CHANGES, chance.randint(1, _MOST))), wanted)


def main(cases: int) -> bool:
    """Try cases, print how many are not as promised, and return whether none is."""
    found = spread(_of_seed, range(cases), chunk=10)
    bad = [(case, said) for case, said in found if said]
    for case, said in bad:
        print(f"{case}: {'; '.join(said)}")  # noqa: T201
    print(f"from anywhere: {cases} cases, {len(bad)} not as promised")  # noqa: T201
    return not bad


def _of_seed(seed: int) -> tuple[Case, tuple[str, ...]]:
    case = any_case(seed)
    return case, judge(case)
