"""Choose hosts and nodes for the slivers of a site, and claim them so that nobody else gets the same.

VMs go to hosts and bare-metal slivers to nodes: these are two passes over one batch, since a host has
room, devices and costs, and a node is given whole (docs/decisions/0072).
"""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fabric_direct.drivers.contract import BareMetalNode, Image, ImageNeeds
from fabric_direct.errors import FabricDirectError, InvalidSliver, NoHost
from fabric_direct.model import AUTO, NodeSliver
from fabric_direct.model.bare_metal import BareMetalSliver, MachineSliver
from fabric_direct.placement.claims import Claims, claim_of
from fabric_direct.placement.inventory import DriversOf, Inventory, host_states
from fabric_direct.placement.plan import Assignment, BuildPlan, Choice, Explanation
from fabric_direct.placement.refusals import refusals
from fabric_direct.placement.request import Request
from fabric_direct.placement.site_nodes import SiteNodes, site_nodes
from fabric_direct.placement.sliver_requests import placed, request_of, request_there
from fabric_direct.placement.state import FreeDevice, HostState
from fabric_direct.site.config import Site
from fabric_direct.site.extras import require

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Placement:
    """The host that was chosen for a sliver."""

    sliver: NodeSliver
    """With its host and the functions of its devices."""
    cost: int = 0
    next: tuple[str, ...] = ()
    """Alternative hosts, the cheapest first."""
    warnings: tuple[str, ...] = ()
    new: bool = False
    """Whether the host was chosen now, and nothing of the sliver exists yet."""

    def data(self) -> dict[str, Any]:
        """Return the choice for a new sliver as JSON data."""
        where = {"host": self.sliver.host, "cost": self.cost, "next": list(self.next)}
        return where if self.new else {}


@dataclass(frozen=True, slots=True)
class NodePlacement:
    """The node that was chosen for a bare-metal sliver."""

    sliver: BareMetalSliver
    """With its node."""
    new: bool = False
    """Whether the node was chosen now, and nothing of the sliver exists yet."""


class Placer:
    """The placement of a site, for one operation. Claims last until the operation ends them."""

    def __init__(self, site: Site, claims: Claims, drivers_of: DriversOf) -> None:
        """Read nothing yet.

        :param drivers_of: returns the drivers of a host, or of the cloud for an empty name, with the
            limits of the operation.
        """
        self._site, self._claims, self._drivers_of = site, claims, drivers_of

    def _view(self, only: Collection[str] = ()) -> Inventory:
        return host_states(self._site, self._drivers_of, only)

    def hosts(self) -> tuple[HostState, ...]:
        """Return the hosts that answer, without what is claimed."""
        view = self._view()
        return view.depleted(self._claims.since(view.began))

    def nodes(self) -> tuple[BareMetalNode, ...]:
        """Return the bare-metal nodes; one that is claimed is reserved."""
        nodes = self._nodes()
        return nodes.without(self._claims.nodes_since(nodes.began))

    def _nodes(self) -> SiteNodes:
        return site_nodes(self._site, self._drivers_of)

    # --- many slivers

    def place(self, slivers: Sequence[MachineSliver], *, partial: bool) -> BuildPlan:
        """Return the build plan of a batch; nothing is claimed.

        A sliver that exists already stays where it is, at no cost.
        """
        vms, metal = _by_kind(slivers)
        plans = [self._place_on_hosts(vms, partial=partial)] if vms or not metal else []
        if metal:
            nodes = self._nodes()
            claims = self._claims.nodes_since(nodes.began)
            plans.append(nodes.place(metal, claims, partial=partial))
        unplaced = {each.request: each for plan in plans for each in plan.unplaced}
        chosen = {each.request: each for plan in plans for each in plan.assignments}
        placed = chosen if partial or not unplaced else {}
        return BuildPlan(
            assignments=tuple(placed[s.id] for s in slivers if s.id in placed),
            unplaced=tuple(unplaced[s.id] for s in slivers if s.id in unplaced),
            warnings=tuple(warning for plan in plans for warning in plan.warnings),
        )

    def _place_on_hosts(self, slivers: Sequence[NodeSliver], *, partial: bool) -> BuildPlan:
        view = self._view()
        there = view.where()
        requests = self.requests([s for s in slivers if s.id not in there], view)
        hosts = view.depleted(self._claims.since(view.began), slivers)
        plan = self._place(requests, hosts, partial=partial)
        stay = {s.id: there[s.id] for s in slivers if s.id in there}
        staying = (Assignment(request=i, chosen=Choice(host=h, cost=0)) for i, h in stay.items())
        told = (f"{i} is on {h} already: it stays there, at no cost" for i, h in stay.items())
        assignments = (*plan.assignments, *staying)
        warnings = (*plan.warnings, *view.warnings(), *told)
        return plan.model_copy(update={"assignments": assignments, "warnings": warnings})

    def explain(self, sliver: MachineSliver) -> Explanation:
        """Return for each host the filter that refuses the sliver, or its cost there.

        For a bare-metal sliver, return for each node why it cannot have it, or that it can.
        """
        if isinstance(sliver, BareMetalSliver):
            nodes = self._nodes()
            return nodes.explain(sliver, self._claims.nodes_since(nodes.began))
        require("placement")
        from fabric_direct.placement.place import explain  # noqa: PLC0415 - NumPy only where it is needed

        view = self._view()
        (request,) = self.requests([sliver], view)
        hosts = view.depleted(self._claims.since(view.began), [sliver])
        told = explain(request, hosts, self._site.placement)
        return told.model_copy(update={"warnings": told.warnings + view.warnings()})

    def claim(
        self, plan: BuildPlan, slivers: Sequence[MachineSliver]
    ) -> tuple[Placement | NodePlacement, ...]:
        """Check a plan again, and claim everything that it assigns, or nothing.

        :returns: the assignments in the plan's order; slivers that exist already are returned unchanged.
        :raises Conflict: if an assignment is not possible any more.
        :raises InvalidSliver: if the plan is not for these slivers.
        """
        of_vms, of_metal = _by_kind(slivers)
        vms, metal = {s.id: s for s in of_vms}, {s.id: s for s in of_metal}
        _refuse_strangers(plan, vms, metal)
        to_hosts = [a for a in plan.assignments if a.request in vms]
        to_nodes = [a for a in plan.assignments if a.request in metal]
        view = self._view() if to_hosts else Inventory(())
        nodes = self._nodes() if to_nodes else SiteNodes(self._site, (), 0.0)
        requests, new = self._new(to_hosts, vms, view)
        there = nodes.where()
        reserved = [a for a in to_nodes if a.request not in there]
        with self._claims.changing() as book:
            if new:
                self._check(new, requests, view.depleted(book.since(view.began), of_vms))
            claimed = book.nodes_since(nodes.began)
            nodes.check(reserved, [metal[a.request] for a in reserved], claimed)
            book.take(map(claim_of, requests, [a.chosen for a in new]))
            book.take_nodes({a.request: a.chosen.place for a in reserved})
        made: dict[str, Placement | NodePlacement] = {id_: Placement(s) for id_, s in vms.items()}
        made |= {id_: NodePlacement(s) for id_, s in metal.items()}
        made |= {a.request: _placement(vms[a.request], a, view) for a in new}
        made |= {a.request: _on_node(metal[a.request], a) for a in reserved}
        return tuple(made[a.request] for a in plan.assignments)

    def _new(
        self,
        assignments: Sequence[Assignment],
        slivers: Mapping[str, NodeSliver],
        view: Inventory,
    ) -> tuple[tuple[Request, ...], tuple[Assignment, ...]]:
        """Return the assignments of what is not on its host yet, with their requests."""
        there = view.where()
        new = tuple(a for a in assignments if there.get(a.request) != a.chosen.host)
        return (self.requests([slivers[a.request] for a in new], view) if new else ()), new

    def _check(
        self,
        assignments: Sequence[Assignment],
        requests: Sequence[Request],
        hosts: Sequence[HostState],
    ) -> None:
        require("placement")
        from fabric_direct.placement.place import check  # noqa: PLC0415 - NumPy only where it is needed

        check(BuildPlan(assignments=tuple(assignments)), requests, hosts, self._site.placement)

    # --- one sliver

    def choose(
        self,
        sliver: NodeSliver,
        *,
        among: Collection[str] = (),
        without: Collection[str] = (),
        claim: bool = True,
    ) -> Placement:
        """Choose a host for a sliver that has none yet, and claim its capacity there.

        :param among: the hosts to choose from; all if empty.
        :param without: hosts to exclude.
        :raises NoHost: if no host can take it.
        """
        named = () if sliver.host in {None, AUTO} else (str(sliver.host),)
        view = self._view(among or named)
        hosts = tuple(host for host in view.hosts if host.name not in without)
        (request,) = self.requests([sliver], view)
        return self._decide(sliver, request, replace(view, hosts=hosts), claim=claim)

    def resume(self, sliver: NodeSliver) -> Placement:
        """Claim a sliver's capacity on the host that it names, without checking that it is free."""
        if sliver.host is not None:
            devices = {device.id: device.bdf for device in sliver.devices()}
            choice = Choice(host=sliver.host, cost=0, devices=devices)
            with self._claims.changing() as book:
                book.take([claim_of(request_of(sliver), choice)])
        return Placement(sliver)

    def extend(self, sliver: NodeSliver, host: str, *, claim: bool = True) -> Placement:
        """Choose devices for a sliver that has its host, and claim them.

        :raises NoHost: if the host lacks the devices.
        """
        view = self._view((host,))
        hosts = tuple(_for_tenant(each, sliver) for each in view.hosts if each.name == host)
        if sliver.placement.same_numa_node:
            hosts = tuple(self._on_its_node(each, sliver) for each in hosts)
        request = request_there(sliver, host)
        placement = self._decide(sliver, request, replace(view, hosts=hosts), claim=claim)
        # Keep the host of the stamp, which is None if the site has only one.
        kept = placement.sliver.model_copy(update={"host": sliver.host})
        return replace(placement, sliver=kept)

    def _on_its_node(self, host: HostState, sliver: NodeSliver) -> HostState:
        """Return the host with only the devices on the NUMA node of the sliver's own devices, if any."""
        own = {address for device in sliver.devices() for address in device.bdf}
        there = self._drivers_of(host.name).functions()
        nodes = {device.function.numa_node for device in there if device.address in own}
        devices = tuple(d for d in host.devices if not nodes or d.numa_node in nodes)
        return replace(host, devices=devices)

    def _decide(
        self, sliver: NodeSliver, request: Request, view: Inventory, *, claim: bool
    ) -> Placement:
        if not claim:
            hosts = view.depleted(self._claims.since(view.began), [sliver])
            return _placement(sliver, self._assign(request, hosts, view), view)
        with self._claims.changing() as book:
            hosts = view.depleted(book.since(view.began), [sliver])
            assignment = self._assign(request, hosts, view)
            book.take([claim_of(request, assignment.chosen)])
        log.info(
            "sliver %s goes to %s (cost %d)",
            *(sliver.id, assignment.chosen.host, assignment.chosen.cost),
        )
        return _placement(sliver, assignment, view)

    def _assign(self, request: Request, hosts: Sequence[HostState], view: Inventory) -> Assignment:
        plan = self._place([request], hosts, partial=False)
        if plan.unplaced:
            types = (need.type for need in request.needs.devices)
            counts = refusals(plan.unplaced[0].refused, types)
            raise no_host(request.id, [*counts, *plan.warnings, *view.warnings()])
        return plan.assignments[0]

    def _place(
        self, requests: Sequence[Request], hosts: Sequence[HostState], *, partial: bool
    ) -> BuildPlan:
        require("placement")
        from fabric_direct.placement.place import place  # noqa: PLC0415 - NumPy only where it is needed

        return place(requests, hosts, self._site.placement, partial=partial)

    # --- what images need

    def requests(self, slivers: Sequence[NodeSliver], view: Inventory) -> tuple[Request, ...]:
        """Return the requests of slivers that are on no host yet.

        :raises InvalidSliver: if no host that answers has the image of a sliver.
        :raises InvalidSite: if the site serves no VMs.
        """
        self._site.refuse_without_vms()
        some = next(iter(self._site.hosts), "")
        cloud = self._drivers_of(some).compute.cloud
        names = [some] if cloud else [host.name for host in view.hosts]
        needs = {image: self._image_needs(image, names) for image in {s.image for s in slivers}}
        return tuple(request_of(s, needs[s.image], volumes=not cloud) for s in slivers)

    def _image_needs(self, name: str, hosts: Iterable[str]) -> ImageNeeds:
        """Return the needs of an image, read from the first host that has it."""
        refusal: FabricDirectError | None = None
        for host in hosts:
            try:
                return self._drivers_of(host).compute.image_needs(Image.of(self._site, name))
            except FabricDirectError as error:
                refusal = error
        if refusal is None:
            return ImageNeeds()
        raise refusal


def no_host(sliver: str, reasons: Iterable[str]) -> NoHost:
    """Return the error for a sliver that fits on no host."""
    return NoHost(
        f"no host can take sliver {sliver}",
        why="; ".join(reasons),
        remedy="ask for less; `fabric-direct place --explain` shows the reason for each host",
    )


def _by_kind(
    slivers: Iterable[MachineSliver],
) -> tuple[list[NodeSliver], list[BareMetalSliver]]:
    """Return the VMs and the bare-metal slivers."""
    vms, metal = list[NodeSliver](), list[BareMetalSliver]()
    for sliver in slivers:
        if isinstance(sliver, BareMetalSliver):
            metal.append(sliver)
        else:
            vms.append(sliver)
    return vms, metal


def _refuse_strangers(plan: BuildPlan, vms: Collection[str], metal: Collection[str]) -> None:
    """Raise InvalidSliver if a plan is for others, or has a host for what needs a node."""
    strangers = [
        a.request
        for a in plan.assignments
        if a.request not in (vms if a.chosen.node is None else metal)
    ]
    if strangers:
        raise InvalidSliver(
            "the plan is for other slivers", field="assignments", why=", ".join(strangers)
        )


def _on_node(sliver: BareMetalSliver, assignment: Assignment) -> NodePlacement:
    there = sliver.model_copy(update={"node": assignment.chosen.node})
    return NodePlacement(there, new=True)


def _placement(sliver: NodeSliver, assignment: Assignment, view: Inventory) -> Placement:
    chosen = assignment.chosen
    free: Iterable[FreeDevice] = (d for h in view.hosts if h.name == chosen.host for d in h.devices)
    return Placement(
        placed(sliver, chosen, free), chosen.cost, assignment.next, view.warnings(), new=True
    )


def _for_tenant(host: HostState, sliver: NodeSliver) -> HostState:
    """Return the host as seen by a sliver that is on it already and only needs more devices."""
    named = {address for device in sliver.devices() for address in device.bdf}
    return replace(
        host,
        cores_used=0,
        ram_used=0.0,
        disk_used=0.0,
        enabled=True,
        slivers={name: owner for name, owner in host.slivers.items() if name != sliver.id},
        devices=tuple(d for d in host.devices if named.isdisjoint(d.functions)),
    )
