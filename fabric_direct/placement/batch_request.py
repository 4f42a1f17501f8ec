"""The document that asks for several slivers at once."""

from collections.abc import Iterator
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from fabric_direct.model import Frozen, PlacementRules, refuse_twice
from fabric_direct.model.bare_metal import BareMetalSliver, MachineSliver

MOST = 1000
"""Slivers in one document."""
_LONGEST = 63
"""Characters of an id or a name."""


class SliverGroup(Frozen):
    """One sliver, or several that differ only in id and name."""

    count: Annotated[int, Field(ge=1, le=MOST, strict=True)] | None = None
    """Number of slivers; their ids and names get the suffixes ``-1``, ``-2`` and so on. If absent, one
    sliver, unchanged."""
    sliver: MachineSliver
    together: bool = False
    """Whether all slivers of the group must share a host. Bare-metal slivers cannot."""
    apart: bool = False
    """Whether no two slivers of the group may share a host."""

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if self.together and self.apart:
            raise ValueError("apart: excludes 'together'")
        if self.together and isinstance(self.sliver, BareMetalSliver):
            raise ValueError("together: each bare-metal sliver has a node of its own")
        end = len(f"-{self.count}") if self.count else 0
        for field in ("id", "name"):
            if len(getattr(self.sliver, field)) + end > _LONGEST:
                raise ValueError(f"sliver: {field} is too long to be numbered up to {self.count}")
        return self

    def ids(self) -> tuple[str, ...]:
        """Return the ids of the slivers."""
        ends = [f"-{number}" for number in range(1, self.count + 1)] if self.count else [""]
        return tuple(f"{self.sliver.id}{end}" for end in ends)

    def instances(self) -> Iterator[MachineSliver]:
        """Yield the slivers."""
        ids = self.ids()
        for own in ids:
            name = f"{self.sliver.name}{own.removeprefix(self.sliver.id)}"
            values: dict[str, Any] = {"id": own, "name": name}
            if not isinstance(self.sliver, BareMetalSliver):
                others = tuple(other for other in ids if other != own)
                values["placement"] = self._rules(self.sliver.placement, others)
            yield self.sliver.model_copy(update=values)

    def _rules(self, rules: PlacementRules, others: tuple[str, ...]) -> PlacementRules:
        if self.together:
            return rules.model_copy(update={"affinity": rules.affinity + others})
        if self.apart:
            return rules.model_copy(update={"anti_affinity": rules.anti_affinity + others})
        return rules


class BatchRequest(Frozen):
    """Slivers that are requested, and placed, together."""

    slivers: Annotated[tuple[SliverGroup, ...], Field(min_length=1, max_length=MOST)]

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        ids = [own for several in self.slivers for own in several.ids()]
        if len(ids) > MOST:
            raise ValueError(f"slivers: {len(ids)} are more than {MOST}")
        refuse_twice("slivers: id", ids)
        return self

    def instances(self) -> tuple[MachineSliver, ...]:
        """Return all slivers in the order of the document."""
        return tuple(one for several in self.slivers for one in several.instances())
