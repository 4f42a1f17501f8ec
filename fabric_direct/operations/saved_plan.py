"""Plans that are kept in a file, and carried out later if what they found is still so.

A plan has the slivers as they were asked for, what placement chose for them, what each step found, and
digests of the site's settings. It has no secret of the site, but those of the slivers: a boot script.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field

from fabric_direct.documents import Document, parse_all, read_text, validate
from fabric_direct.documents.tree import LIMIT
from fabric_direct.engine.field_changes import changed_fields
from fabric_direct.errors import InvalidSliver, Refused
from fabric_direct.handlers import registry
from fabric_direct.handlers.handler import field_below
from fabric_direct.model import (
    ComponentId,
    FieldChange,
    Finding,
    Frozen,
    Name,
    NodeSliver,
    Operation,
    Outcome,
    PciAddress,
    Sliver,
    SliverRef,
    StepReport,
)
from fabric_direct.model.bare_metal import BareMetalSliver
from fabric_direct.model.services import NetworkService
from fabric_direct.site.config import Site
from fabric_direct.state import files

_NAMED = ("hosts", "networks")
"""Settings of which each has a digest of its own: one that is added changes no plan."""
_IRRELEVANT = {
    "site",
    "limits",
    "watch",
    "history",
    "metrics",
    "zone",
    "actor",
    "placement",
    *_NAMED,
}
"""Settings that change nothing of a plan; what placement chooses is compared itself."""
_AGAIN = "Make the plan again: fabric-direct plan -o"


class PlannedStep(Frozen):
    """A step of a plan, with its finding."""

    step: str
    finding: Finding
    changes: tuple[FieldChange, ...] = ()

    def __str__(self) -> str:
        """Return what it will do: ``will change (bandwidth 100 → 200)``."""
        changes = ", ".join(map(str, self.changes))
        return f"{self.finding} ({changes})" if changes else str(self.finding)


class PlannedSliver(Frozen):
    """The operation planned for a sliver."""

    operation: Literal["create", "modify"]
    sliver: dict[str, Any] = Field(repr=False)
    """Its document, as it was asked for."""
    host: Name | None = None
    """The host that placement chose for a new sliver."""
    devices: dict[ComponentId, tuple[PciAddress, ...]] = {}
    """The functions of its devices, if it left any or its host open."""
    steps: tuple[PlannedStep, ...]

    @classmethod
    def of(cls, sliver: SliverRef, outcome: Outcome) -> Self:
        """Return what the outcome of a plan says of a sliver."""
        return cls.model_validate(
            {
                "operation": outcome.data["operation"],
                "sliver": _document(sliver),
                "host": outcome.data.get("host"),
                "devices": outcome.data.get("devices", {}),
                "steps": _steps(outcome.steps),
            }
        )

    @property
    def id(self) -> str:
        """The sliver's id."""
        return str(self.sliver["id"])

    def refuse_other_steps(self, found: Iterable[StepReport]) -> None:
        """Raise Refused if the steps that are planned now are not those of the plan."""
        self._refuse(_unlike(self.steps, _steps(found)))

    def refuse_other_place(self, placed: NodeSliver) -> None:
        """Raise Refused if placement chose another host, or other functions."""
        self._refuse(self._elsewhere(placed.host, placement_devices(placed)))

    def refuse_other(self, outcome: Outcome) -> None:
        """Raise Refused if a plan that was made now is not this one."""
        if outcome.error:
            self._refuse([outcome.error.message])
        now = PlannedSliver.of(self.as_ref(), outcome)
        if now.operation != self.operation:
            there = "is not there any more" if self.operation == "modify" else "is there already"
            self._refuse([f"the sliver {there}"])
        self._refuse(self._elsewhere(now.host, outcome.data.get("devices", {})))
        self._refuse(_unlike(self.steps, now.steps))

    def as_ref(self) -> SliverRef:
        """Return the id and type of the sliver."""
        return SliverRef(id=self.id, type=self.sliver["type"])

    def _elsewhere(self, host: str | None, devices: dict[str, Any]) -> Iterator[str]:
        if self.host not in {None, host}:
            yield f"it was to go to {self.host}, and would go to {host} now"
        planned = {name: [*map(str, addresses)] for name, addresses in self.devices.items()}
        for name, addresses in planned.items():
            now = devices.get(name, [])
            if now != addresses:
                yield f"{name} was to be {_listed(addresses)}, and would be {_listed(now)} now"

    def _refuse(self, differences: Iterable[str]) -> None:
        if found := list(differences):
            raise Refused(
                f"the plan for sliver {self.id} is outdated", why="; ".join(found), remedy=_AGAIN
            )


class SavedPlan(Frozen):
    """A plan for slivers of one site, as a document."""

    version: Literal[1]
    site: Name
    settings: dict[str, Annotated[str, Field(pattern="^[0-9a-f]{64}$")]]
    """SHA-256 of each setting of site.yaml that the plan depends on."""
    slivers: Annotated[tuple[PlannedSliver, ...], Field(min_length=1)]

    @classmethod
    def of(cls, site: Site, slivers: Sequence[Sliver], outcomes: Sequence[Outcome]) -> Self:
        """Return the plan of slivers.

        :param outcomes: of the processor's ``plan``, in the order of the slivers.
        :raises ValueError: if they are not the plans of these slivers, in this order.
        :raises Refused: if not all could be planned, some are there and others not, or two would get
            the same device.
        """
        given = [(Operation.PLAN, sliver.id) for sliver in slivers]
        if given != [(outcome.operation, outcome.sliver.id) for outcome in outcomes]:
            raise ValueError("the outcomes are not the plans of the slivers, in their order")
        failed = [outcome.sliver.id for outcome in outcomes if not outcome.ok]
        if failed:
            raise Refused("the plan cannot be saved", why=f"there is none for {_listed(failed)}")
        planned = tuple(map(PlannedSliver.of, slivers, outcomes))
        _refuse_mixed(planned)
        _refuse_same_devices(planned)
        return cls(version=1, site=site.site, settings=_settings(site), slivers=planned)

    @property
    def operation(self) -> Operation:
        """Return the operation that it applies to all of its slivers."""
        return Operation(self.slivers[0].operation)

    def wanted(self) -> tuple[Sliver, ...]:
        """Return the slivers as they were asked for, in order.

        :raises InvalidSliver: with the field, if one is invalid.
        """
        return tuple(_sliver(planned, number) for number, planned in enumerate(self.slivers))

    def refuse_other_site(self, site: Site) -> None:
        """Raise Refused if the plan is for another site, or settings that it depends on have changed."""
        if self.site != site.site:
            raise Refused(
                f"the plan is for site {self.site}, and this is {site.site}",
                remedy="Name that site's file: --site",
            )
        now = _settings(site)
        changed = [name for name, digest in self.settings.items() if now.get(name) != digest]
        if changed:
            what = f"site.yaml has changed since the plan was made: {_listed(changed)}"
            raise Refused(what, remedy=_AGAIN)

    def refuse_other_slivers(self, slivers: Iterable[SliverRef]) -> None:
        """Raise Refused if slivers are not those of the plan, field by field."""
        given = {sliver.id: sliver for sliver in slivers}
        planned = {sliver.id: sliver for sliver in self.wanted()}
        other = [each for each in {**planned, **given} if planned.get(each) != given.get(each)]
        if other:
            what = f"the plan is for other slivers than the files: {_listed(other)}"
            raise Refused(what, why=_difference(planned, given, other[0]), remedy=_AGAIN)

    def save(self, path: Path) -> None:
        """Write it to a file of mode 0600, in one step.

        :raises Refused: if the file cannot be written, or the plan is too large for one.
        """
        text = json.dumps(self.model_dump(mode="json"), indent=1) + "\n"
        if len(text) > LIMIT:
            why = f"it has more than {LIMIT // 1024} KiB"
            raise Refused("the plan cannot be saved", why=why, remedy="Plan fewer slivers at once")
        try:
            files.replace(path, text)
        except OSError as error:
            raise Refused(f"cannot write {path}", why=error.strerror or str(error)) from error


def read_plan(path: Path) -> SavedPlan:
    """Return the plan of a file, with valid slivers.

    :raises Refused: with file, line and field, if it cannot be read or is invalid.
    """
    found = parse_all(read_text(path, Refused), str(path), SavedPlan, Refused)
    if len(found) != 1:
        raise Refused(f"{path}: the file has more than one document")
    (document,) = found
    _refuse_invalid_slivers(document)
    return document.value


def placement_devices(sliver: NodeSliver) -> dict[str, list[str]]:
    """Return the functions of each device of a sliver, by component."""
    return {device.id: [*map(str, device.bdf)] for device in sliver.devices()}


def _refuse_invalid_slivers(document: Document[SavedPlan]) -> None:
    try:
        wanted = document.value.wanted()
    except InvalidSliver as error:
        where = document.place(error.field)
        raise Refused(f"{where}: {error}", field=error.field) from None
    twice = [s.id for n, s in enumerate(wanted) if s.id in {other.id for other in wanted[:n]}]
    if twice:
        raise Refused(f"{document.place('slivers')}: slivers: {twice[0]} is given twice")
    _refuse_mixed(document.value.slivers)


def _sliver(planned: PlannedSliver, number: int) -> Sliver:
    field = f"slivers[{number}].sliver"
    with field_below(field):
        model = registry.sliver_model({"type": None, **planned.sliver})
    return validate(planned.sliver, model, field, InvalidSliver)


def _document(sliver: SliverRef) -> dict[str, Any]:
    """Return a sliver as JSON data: what was asked for and no default, but all types."""
    data = sliver.model_dump(mode="json", exclude_unset=True)
    if isinstance(sliver, NodeSliver) and "components" in data:
        pairs = zip(data["components"], sliver.components, strict=True)
        data["components"] = [{**given, "type": made.type} for given, made in pairs]
    return {**data, "type": sliver.type}


def _steps(reports: Iterable[StepReport]) -> tuple[PlannedStep, ...]:
    """Return what steps found, as it is read back from a file."""
    fields = {"step", "finding", "changes"}
    dumped = (report.model_dump(mode="json", include=fields) for report in reports)
    return tuple(PlannedStep.model_validate_json(json.dumps(each)) for each in dumped)


def _unlike(planned: Iterable[PlannedStep], now: Iterable[PlannedStep]) -> Iterator[str]:
    """Yield each step that is planned differently, or only once."""
    before, after = ({step.step: step for step in steps} for steps in (planned, now))
    for name in {**before, **after}:
        if before.get(name) != after.get(name):
            was, is_now = before.get(name, "no step"), after.get(name, "no step")
            yield f"{name}: planned '{was}', now '{is_now}'"


def _settings(site: Site) -> dict[str, str]:
    """Return a digest of each setting that a plan depends on, by its path in site.yaml."""
    whole = site.model_dump(mode="json", exclude=_IRRELEVANT)
    parts = site.model_dump(mode="json", include={*_NAMED})
    each = {f"{kind}.{name}": value for kind in _NAMED for name, value in parts[kind].items()}
    return {path: _digest(value) for path, value in {**whole, **each}.items()}


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _refuse_mixed(planned: Sequence[PlannedSliver]) -> None:
    there = [each.id for each in planned if each.operation == "modify"]
    if there and len(there) < len(planned):
        raise Refused(
            "the plan would create some slivers and modify others",
            why=f"there already: {_listed(there)}",
            remedy="Save a plan of each kind",
        )


def _refuse_same_devices(planned: Sequence[PlannedSliver]) -> None:
    owners: dict[tuple[str | None, str], str] = {}
    for each in planned:
        for address in (str(a) for addresses in each.devices.values() for a in addresses):
            first = owners.setdefault((each.host, address), each.id)
            if first != each.id:
                raise Refused(
                    "the plan cannot be saved",
                    why=f"{first} and {each.id} would both get {address}: each was planned alone",
                    remedy="Place them at once: fabric-direct place --save; or one after the other",
                )


def _difference(planned: Mapping[str, SliverRef], given: Mapping[str, SliverRef], name: str) -> str:
    """Return the first field of a sliver that a plan and a file have otherwise."""
    if name not in planned or name not in given:
        return f"{name} is only in the {'plan' if name in planned else 'files'}"
    changes = changed_fields(_without_secrets(planned[name]), _without_secrets(given[name]))
    return str(changes[0]) if changes else "what differs may be a secret, and is not shown"


def _without_secrets(sliver: SliverRef) -> SliverRef:
    if isinstance(sliver, NodeSliver):
        return sliver.model_copy(update={"boot_script": None})
    if isinstance(sliver, NetworkService | BareMetalSliver):
        return sliver.without_secrets()
    return sliver


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "nothing"
