"""The bare-metal nodes of a site for placement, as they were read, without what is promised."""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fabric_direct.drivers.contract import BareMetalNode
from fabric_direct.drivers.contract.node_choice import refuse_unknown_image
from fabric_direct.model.bare_metal import BareMetalSliver
from fabric_direct.placement.inventory import DriversOf
from fabric_direct.placement.nodes import check_nodes, explain_nodes, place_nodes, promised
from fabric_direct.placement.plan import Assignment, BuildPlan, Choice, Explanation
from fabric_direct.site.config import Site


@dataclass(frozen=True, slots=True)
class SiteNodes:
    """The bare-metal nodes of a site."""

    site: Site
    nodes: tuple[BareMetalNode, ...]
    """By name."""
    began: float
    """Start of the reading, in seconds since the epoch."""

    def where(self) -> dict[str, BareMetalNode]:
        """Return the node of each existing sliver."""
        return {node.sliver: node for node in self.nodes if node.sliver}

    def without(
        self, claims: Mapping[str, str], but: Iterable[BareMetalSliver] = ()
    ) -> tuple[BareMetalNode, ...]:
        """Return the nodes; one that is claimed is reserved.

        :param claims: the nodes that are claimed, by sliver; those of the slivers ``but`` do not count.
        """
        own = {sliver.id for sliver in but}
        by_node = {node: sliver for sliver, node in claims.items() if sliver not in own}
        return tuple(
            promised(node, by_node[node.name]) if node.name in by_node else node
            for node in self.nodes
        )

    def place(
        self, slivers: Sequence[BareMetalSliver], claims: Mapping[str, str], *, partial: bool
    ) -> BuildPlan:
        """Return the build plan of a batch. A sliver that exists already stays where it is, at no cost.

        :raises InvalidSliver: with the field, if no node of the site could ever serve a sliver, or
            site.yaml does not have its image.
        """
        there = self.where()
        new = [sliver for sliver in slivers if sliver.id not in there]
        for sliver in new:
            refuse_unknown_image(self.site, sliver)
        retries = self.site.placement.retries
        free = self.without(claims, slivers)
        plan = place_nodes(new, free, partial=partial, alternatives=retries)
        staying = (
            Assignment(request=sliver.id, chosen=Choice(node=there[sliver.id].name, cost=0))
            for sliver in slivers
            if sliver.id in there
        )
        return plan.model_copy(update={"assignments": (*plan.assignments, *staying)})

    def explain(self, sliver: BareMetalSliver, claims: Mapping[str, str]) -> Explanation:
        """Return for each node why the sliver cannot have it, or that it can.

        :raises InvalidSliver: if site.yaml does not have its image.
        """
        refuse_unknown_image(self.site, sliver)
        return explain_nodes(sliver, self.without(claims, [sliver]))

    def check(
        self,
        assignments: Iterable[Assignment],
        slivers: Collection[BareMetalSliver],
        claims: Mapping[str, str],
    ) -> None:
        """Raise Conflict unless every node can still be given to its sliver."""
        plan = BuildPlan(assignments=tuple(assignments))
        check_nodes(plan, tuple(slivers), self.without(claims, slivers))


def site_nodes(site: Site, drivers_of: DriversOf) -> SiteNodes:
    """Return the bare-metal nodes of a site; none if it names no driver for them.

    :raises FabricDirectError: if they cannot be listed.
    """
    began = time.time()
    driver: Any = drivers_of(next(iter(site.hosts), "")).services.get("BareMetal")
    return SiteNodes(site, driver.nodes() if driver else (), began)
