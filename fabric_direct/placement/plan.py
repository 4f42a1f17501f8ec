"""The build plan: which instance goes where, as a value that can be stored and carried out later."""

from typing import Annotated

from pydantic import Field

from fabric_direct.model import ComponentId, Frozen, Name, PciAddress, SliverId

Cost = Annotated[int, Field(ge=0)]


class Choice(Frozen):
    """A host for an instance, and what it costs there."""

    host: Name
    cost: Cost
    """The weighted sum."""
    costs: dict[str, Cost] = {}
    """Each cost by name, before its weight."""
    devices: dict[ComponentId, tuple[PciAddress, ...]] = {}
    """The functions for each component that left them open, and those that it named."""
    numa_node: int | None = None
    """The NUMA node of the host that it must be on, if the request wants it to be on one."""


class Assignment(Frozen):
    """An instance has a host."""

    request: SliverId
    chosen: Choice
    next: tuple[Name, ...] = ()
    """Hosts that would do as well, the cheapest first, when this one had been chosen."""


class Unplaced(Frozen):
    """An instance that fits nowhere."""

    request: SliverId
    refused: dict[str, int]
    """By filter: how many hosts it was the first to refuse."""


class BuildPlan(Frozen):
    """Where each instance of a batch goes."""

    assignments: tuple[Assignment, ...] = ()
    """In the order of the requests."""
    unplaced: tuple[Unplaced, ...] = ()
    """If any, nothing is assigned, unless as many as fit were asked for."""
    warnings: tuple[str, ...] = ()
    """Filters and costs that were left out, and why; hosts that did not answer."""

    @property
    def cost(self) -> int:
        """The summed cost."""
        return sum(assignment.chosen.cost for assignment in self.assignments)


class HostScore(Frozen):
    """What is said of a host for one instance."""

    host: Name
    refused_by: str | None = None
    """The first filter that refuses it."""
    cost: Cost | None = None
    """The weighted sum, if none does."""
    costs: dict[str, Cost] = {}
    """Each cost by name, before its weight."""


class Explanation(Frozen):
    """What is said of all hosts for one instance."""

    hosts: tuple[HostScore, ...] = ()
    """The cheapest first; then those that are refused, by name."""
    weights: dict[str, int] = {}
    """Of each cost that counts."""
    warnings: tuple[str, ...] = ()
