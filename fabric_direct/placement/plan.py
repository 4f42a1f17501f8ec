"""The build plan: a value that assigns instances to hosts and can be stored and carried out later."""

from typing import Annotated

from pydantic import Field

from fabric_direct.model import ComponentId, Frozen, Name, PciAddress, SliverId

Cost = Annotated[int, Field(ge=0)]


class Choice(Frozen):
    """The host for an instance, and its cost there."""

    host: Name
    cost: Cost
    """The weighted sum of the costs."""
    costs: dict[str, Cost] = {}
    """Each cost by name, before its weight."""
    devices: dict[ComponentId, tuple[PciAddress, ...]] = {}
    """The PCI functions of each device, chosen or given by the request."""
    numa_node: int | None = None
    """The NUMA node of the host, if the request requires a single one."""


class Assignment(Frozen):
    """The assignment of an instance to a host."""

    request: SliverId
    chosen: Choice
    next: tuple[Name, ...] = ()
    """Alternative hosts at the time of the choice, the cheapest first."""


class Unplaced(Frozen):
    """An instance that fits on no host."""

    request: SliverId
    refused: dict[str, int]
    """By filter: the number of hosts that it was the first to refuse."""


class BuildPlan(Frozen):
    """The hosts of all instances of a batch."""

    assignments: tuple[Assignment, ...] = ()
    """In the order of the requests."""
    unplaced: tuple[Unplaced, ...] = ()
    """If there are any, nothing is assigned, except in a partial plan."""
    warnings: tuple[str, ...] = ()
    """Filters and costs that were left out, and why; hosts that did not answer."""

    @property
    def cost(self) -> int:
        """The total cost."""
        return sum(assignment.chosen.cost for assignment in self.assignments)


class HostScore(Frozen):
    """The result of filters and costs for one host and one instance."""

    host: Name
    refused_by: str | None = None
    """The first filter that refuses the host."""
    cost: Cost | None = None
    """The weighted sum of the costs, if no filter refuses the host."""
    costs: dict[str, Cost] = {}
    """Each cost by name, before its weight."""


class Explanation(Frozen):
    """The result of filters and costs for all hosts and one instance."""

    hosts: tuple[HostScore, ...] = ()
    """The cheapest first, then the refused ones by name."""
    weights: dict[str, int] = {}
    """The weight of each cost that is not 0."""
    warnings: tuple[str, ...] = ()
