"""The build plan: a value that assigns instances to hosts and can be stored and carried out later."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from fabric_direct.model import ComponentId, Frozen, Name, PciAddress, SliverId

Cost = Annotated[int, Field(ge=0)]


class Choice(Frozen):
    """The host for a VM, or the node for a bare-metal sliver, and its cost there."""

    host: Name | None = None
    """None for a bare-metal sliver."""
    node: Name | None = None
    """None for a VM."""
    cost: Cost
    """The weighted sum of the costs; of a node the number of its cores."""
    costs: dict[str, Cost] = {}
    """Each cost by name, before its weight."""
    devices: dict[ComponentId, tuple[PciAddress, ...]] = {}
    """The PCI functions of each device, chosen or given by the request."""
    numa_node: int | None = None
    """The NUMA node of the host, if the request requires a single one."""

    @model_validator(mode="after")
    def _either(self) -> Self:
        if (self.host is None) == (self.node is None):
            raise ValueError("needs either a host or a node")
        return self

    @property
    def place(self) -> str:
        """The name of the host or node."""
        return str(self.host or self.node)


class Assignment(Frozen):
    """The assignment of an instance to a host or node."""

    request: SliverId
    chosen: Choice
    next: tuple[Name, ...] = ()
    """Alternative hosts or nodes at the time of the choice, the cheapest first."""


class Unplaced(Frozen):
    """An instance that fits on no host or node."""

    request: SliverId
    refused: dict[str, int]
    """By filter: the number of hosts that it was the first to refuse. Of nodes by the field that rules
    them out, or ``condition`` for those that are not free."""
    why: str = ""
    """Of nodes: what those that fit are in place of free."""


class BuildPlan(Frozen):
    """The hosts and nodes of all instances of a batch."""

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


class NodeScore(Frozen):
    """Whether a bare-metal sliver can have a node."""

    node: Name
    refused_by: str | None = None
    """The first field that rules it out, or ``condition`` if it is not free."""
    why: str = ""
    """All reasons why the sliver cannot have it."""
    cost: Cost | None = None
    """The number of its cores, if the sliver can have it."""


class Explanation(Frozen):
    """The result of filters and costs for all hosts, or nodes, and one instance."""

    hosts: tuple[HostScore, ...] = ()
    """The cheapest first, then the refused ones by name."""
    nodes: tuple[NodeScore, ...] = ()
    """For a bare-metal sliver, in place of hosts: the smallest first, then the refused ones by name."""
    weights: dict[str, int] = {}
    """The weight of each cost that is not 0."""
    warnings: tuple[str, ...] = ()
