"""A server becomes again what its stamp says.

::

    unplug what was changed → hold ports → plug in, attach (→ power cycle) → verify
    → remove ports of strange NICs → settings in the guest → verify again

It removes no volume and cleans no device, and makes no volume anew: data may be in them.
"""

from collections.abc import Iterator
from functools import partial

from fabric_direct.drivers.contract import DeviceDomain, HostDrivers, Server
from fabric_direct.engine.step import Flow
from fabric_direct.engine.verify import Awaited, ReadBack, Verified, Verify
from fabric_direct.errors import Conflict, Refused, Unsupported
from fabric_direct.handlers.handler import Repair
from fabric_direct.handlers.vm.comparison import ServerComparison, device_differences
from fabric_direct.handlers.vm.component_steps import ComponentSteps, record
from fabric_direct.handlers.vm.differences import place, power, repairable
from fabric_direct.handlers.vm.found import ServerHoldings, is_volume_there, other_disks
from fabric_direct.handlers.vm.guest.access import GuestAccess
from fabric_direct.handlers.vm.guest.stages import GuestStages
from fabric_direct.handlers.vm.guest.waiting import GuestWait
from fabric_direct.handlers.vm.observe import server_of, tenant_of
from fabric_direct.handlers.vm.steps.ports import ReleasePort
from fabric_direct.model import NodeSliver, Observed, PciComponent, SliverRef, State, VNic
from fabric_direct.site.config import Site


def reconcile(site: Site, drivers: HostDrivers, ref: SliverRef) -> Repair:
    """Return what puts back what others took away, and sets what they changed."""
    server = server_of(drivers, ref.id)
    wanted, found = server.stamp.sliver, _as_stamped(site, drivers, server, inside=False)
    if drivers.guest and not found.differences:  # only then is its guest looked into
        found = _as_stamped(site, drivers, server, inside=True)
    if not found.differences:
        return Repair(wanted, found, Flow.of())
    reasons = dict(_irreparable(drivers, wanted, server, found))
    kept = (c for c in wanted.components if c.id not in reasons)
    target = wanted.model_copy(update={"components": tuple(kept)})
    mended = {*repairable(target, found), *device_differences(drivers, target, server, found)}
    beyond = [*(d for d in found.differences if d not in mended), *filter(None, reasons.values())]
    flow = _repair(site, drivers, target, server) if mended else Flow.of()
    return Repair(wanted, found, flow, tuple(beyond))


def _as_stamped(site: Site, drivers: HostDrivers, server: Server, *, inside: bool) -> Observed:
    """Compare the server with its stamp; one that somebody stopped may stay so."""
    guest = GuestAccess(site, drivers).of(server) if inside else None
    found = ServerComparison(site, drivers).whole(server.stamp.sliver, server, guest)
    off = set(power(found)) if found.state is State.STOPPED else set()
    return found.model_copy(
        update={"differences": tuple(d for d in found.differences if d not in off)}
    )


def _irreparable(
    drivers: HostDrivers, wanted: NodeSliver, server: Server, found: Observed
) -> Iterator[tuple[str, str]]:
    """Yield the components that a repair must not touch, each with a reason if one is to be told."""
    for other in other_disks(drivers.volume, wanted, server):
        yield other.component.id, ""
    for storage in wanted.volumes():
        if not is_volume_there(drivers.volume, wanted.id, storage):
            yield storage.id, f"volume {storage.id} is not there any more"
    moved, tenant = any(place(wanted, found)), tenant_of(drivers, server)
    for device in wanted.devices():
        if moved:
            yield device.id, ""
        elif refusal := _refusal(drivers, device, tenant):
            yield device.id, f"{device.type} {device.id} cannot be put back: {refusal}"


def _refusal(drivers: HostDrivers, device: PciComponent, tenant: DeviceDomain) -> str:
    try:
        drivers.device(device).check(device, tenant)
    except (Conflict, Refused, Unsupported) as error:
        error.field = ""
        return str(error)
    return ""


def _repair(site: Site, drivers: HostDrivers, target: NodeSliver, server: Server) -> Flow:
    """Return what makes these components of the server's stamp so again."""
    wanted, runs = server.stamp.sliver, server.state is State.RUNNING
    has = ServerHoldings.of(site, drivers, server)
    strays = [c for c in has.unwanted(wanted) if isinstance(c, VNic)]
    steps = ComponentSteps(drivers, target, site.limits.detach)
    inside = GuestStages(site, drivers, target.id)
    settings = inside.lasting(target) if runs and drivers.guest else []
    guest = GuestWait(site, drivers, target)

    def unrepaired(*, look_inside: bool = False) -> ReadBack:
        drivers.reads.invalidate("servers")
        now = server_of(drivers, target.id)
        found = _as_stamped(site, drivers, now, inside=look_inside)
        settable = inside.but_bare(target)
        return ReadBack(
            found, (*repairable(settable, found), *device_differences(drivers, target, now, found))
        )

    return Flow.of(
        record(drivers, has.unrecorded()),
        [
            *steps.unplug_changed(has.there(), target.vnics()),
            *map(steps.unplug, (*strays, *has.misplaced(target))),
        ],
        steps.ports(target.vnics()),
        steps.plugs() + steps.attachments(wanted),
        steps.power_cycle(target.devices()) if runs else [],
        [Verify(unrepaired)],
        [ReleasePort(drivers.network, target.id, stray.id) for stray in strays],
        [Awaited("guest", guest.ready)] if settings else [],
        *settings,
        [Verified(partial(unrepaired, look_inside=True))] if settings else [],
    )
