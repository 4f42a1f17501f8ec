"""Choose hosts for the slivers of a site, and claim them so that nobody else gets the same."""

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fabric_direct.drivers.contract import Image, ImageNeeds
from fabric_direct.errors import FabricDirectError, InvalidSliver, NoHost
from fabric_direct.model import AUTO, NodeSliver
from fabric_direct.placement.claims import Claims, claim_of
from fabric_direct.placement.inventory import DriversOf, Inventory, host_states
from fabric_direct.placement.plan import Assignment, BuildPlan, Choice, Explanation
from fabric_direct.placement.refusals import refusals
from fabric_direct.placement.request import Request
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

    # --- many slivers

    def place(self, slivers: Sequence[NodeSliver], *, partial: bool) -> BuildPlan:
        """Return the build plan of a batch; nothing is claimed.

        A sliver that exists already stays where it is, at no cost.
        """
        view = self._view()
        there = view.where()
        requests = self.requests([s for s in slivers if s.id not in there], view)
        hosts = view.depleted(self._claims.since(view.began), slivers)
        plan = self._place(requests, hosts, partial=partial)
        chosen = {assignment.request: assignment for assignment in plan.assignments}
        if partial or not plan.unplaced:
            staying = {s.id: Choice(host=there[s.id], cost=0) for s in slivers if s.id in there}
            chosen |= {id_: Assignment(request=id_, chosen=at) for id_, at in staying.items()}
        assignments = tuple(chosen[s.id] for s in slivers if s.id in chosen)
        warnings = plan.warnings + view.warnings()
        return plan.model_copy(update={"assignments": assignments, "warnings": warnings})

    def explain(self, sliver: NodeSliver) -> Explanation:
        """Return for each host the filter that refuses the sliver, or its cost there."""
        require("placement")
        from fabric_direct.placement.place import explain  # noqa: PLC0415 - NumPy only where it is needed

        view = self._view()
        (request,) = self.requests([sliver], view)
        hosts = view.depleted(self._claims.since(view.began), [sliver])
        told = explain(request, hosts, self._site.placement)
        return told.model_copy(update={"warnings": told.warnings + view.warnings()})

    def claim(self, plan: BuildPlan, slivers: Sequence[NodeSliver]) -> tuple[Placement, ...]:
        """Check a plan again, and claim everything that it assigns, or nothing.

        :returns: the assignments in the plan's order; slivers that exist already are returned unchanged.
        :raises Conflict: if an assignment is not possible any more.
        :raises InvalidSliver: if the plan is not for these slivers.
        """
        require("placement")
        from fabric_direct.placement.place import check  # noqa: PLC0415 - NumPy only where it is needed

        by_id = {sliver.id: sliver for sliver in slivers}
        _refuse_strangers(plan, by_id)
        view = self._view()
        there = view.where()
        new = tuple(a for a in plan.assignments if there.get(a.request) != a.chosen.host)
        requests = self.requests([by_id[a.request] for a in new], view)
        with self._claims.changing() as book:
            hosts = view.depleted(book.since(view.began), slivers)
            check(BuildPlan(assignments=new), requests, hosts, self._site.placement)
            book.take(map(claim_of, requests, [a.chosen for a in new]))
        placements = {a.request: _placement(by_id[a.request], a, view) for a in new}
        ids = [a.request for a in plan.assignments]
        return tuple(placements.get(name, Placement(by_id[name])) for name in ids)

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


def _refuse_strangers(plan: BuildPlan, known: Collection[str]) -> None:
    strangers = [a.request for a in plan.assignments if a.request not in known]
    if strangers:
        raise InvalidSliver(
            "the plan is for other slivers", field="assignments", why=", ".join(strangers)
        )


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
