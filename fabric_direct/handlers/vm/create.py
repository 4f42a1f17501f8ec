"""A server is made, with everything that belongs to it.

::

    remove what an earlier one left → hold ports, make volumes → server, floating IPs → power
    → attach devices (→ power cycle) → (host key →) guest answers and sees its devices
    → configure NICs, mount volumes → verify

A step that fails takes the earlier ones back.
"""

from functools import partial

from fabric_direct.drivers.cloudinit import user_data
from fabric_direct.drivers.contract import HostDrivers, Image, Server, ServerSpec
from fabric_direct.engine.field_changes import changed_fields
from fabric_direct.engine.step import Flow
from fabric_direct.engine.verify import Verify
from fabric_direct.errors import Conflict
from fabric_direct.handlers.handler import already_there
from fabric_direct.handlers.vm.comparison import ServerComparison
from fabric_direct.handlers.vm.component_steps import ComponentSteps
from fabric_direct.handlers.vm.devices import SliverDevices
from fabric_direct.handlers.vm.found import held_for
from fabric_direct.handlers.vm.guest.settings import refuse_settings
from fabric_direct.handlers.vm.guest.stages import GuestStages
from fabric_direct.handlers.vm.guest.waiting import GuestWait
from fabric_direct.handlers.vm.observe import read_ahead, refuse_unfinished, tenant_now, tenant_of
from fabric_direct.handlers.vm.refusal import RESIZE, SIZE, at_its_host, refuse_components
from fabric_direct.handlers.vm.steps.server import MakeServer, StartServer
from fabric_direct.model import NodeSliver
from fabric_direct.site.config import Site


def create(site: Site, drivers: HostDrivers, sliver: NodeSliver) -> Flow:
    """Return what makes the server, or what it lacks."""
    compute, detach = drivers.compute, site.limits.detach
    read_ahead(drivers, sliver.id)
    server = compute.find(sliver.id)
    refuse_unfinished(server)
    if server is not None:
        sliver = at_its_host(sliver, server)
    if server is None:
        compute.check(sliver, Image.of(site, sliver.image))
    elif server.stamp != sliver.stamp():
        raise _already_there(server, sliver)
    tenant = tenant_of(drivers, server) if server else tenant_now(drivers, sliver.id)
    refuse_components(drivers, sliver, tenant)
    refuse_settings(drivers, sliver)
    steps, guest = ComponentSteps(drivers, sliver, detach), GuestWait(site, drivers, sliver)
    settings = GuestStages(site, drivers, sliver.id)
    left = []
    if server is None:
        records = SliverDevices(site, drivers).records(sliver.id)
        left = steps.removals(held_for(drivers, sliver.id, records).values(), records)
    # A server that is there keeps its floating IPs, also where the list of its ports is incomplete.
    ports, floating = steps.new_ports() if server is None else (steps.ports(sliver.vnics()), [])
    read_back = ServerComparison(site, drivers).read_back
    return Flow.of(
        left,
        ports + steps.volumes(),
        [MakeServer(compute, sliver.id, partial(_spec, site, drivers, sliver)), *floating],
        [StartServer(compute, sliver.id, detach)],
        # What a server that is there has lost holds its data: undoing an attach does not clean it.
        steps.attachments(server.stamp.sliver if server else None),
        steps.power_cycle(sliver.devices()),
        guest.known(),
        guest.answers(),
        *settings.wanted(sliver),
        [Verify(partial(read_back, sliver, settings.but_bare))],
        owns_everything=server is None,
    )


def _spec(site: Site, drivers: HostDrivers, sliver: NodeSliver) -> ServerSpec:
    ports = {p.component: p for p in drivers.network.ports(sliver.id)}
    volumes = [
        drivers.volume.existing(s.volume) if s.volume else drivers.volume.find(sliver.id, s.id)
        for s in sliver.volumes()
    ]
    return ServerSpec(
        sliver=sliver,
        image=Image.of(site, sliver.image),
        ports=tuple(ports[vnic.id] for vnic in sliver.vnics()),
        volumes=tuple(v for v in volumes if v is not None),
        user_data=user_data(sliver, drivers.guest.keys if drivers.guest else ()),
    )


def _already_there(server: Server, sliver: NodeSliver) -> Conflict:
    """Return the error, with the first field that differs from the stamp: ``name node → other``."""
    was, wanted = server.stamp, sliver.stamp()
    first = (changed_fields(was.sliver, wanted.sliver) or changed_fields(was, wanted))[0]
    other_size = any(getattr(was.sliver, field) != getattr(sliver, field) for field in SIZE)
    remedy = {"remedy": RESIZE} if other_size else {}
    return already_there(sliver, where=server.instance, why=str(first), **remedy)
