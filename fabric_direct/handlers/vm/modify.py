"""A server that is there becomes the one asked for.

::

    hold new ports, make volumes → unplug what changes → hold its ports anew
    → plug in, attach, VLAN, bandwidth (→ power cycle)
    → guest has its addresses → configure NICs, mount volumes → verify
    → unconfigure and unmount, then unplug what is unwanted (→ power cycle)
    → remove its ports and volumes, clean its devices
    → networks that nobody uses → stamp → verify again

New ports are held before changed ones are given up: what is given up must still be free when it is
taken back. A step that fails takes the earlier ones back; only the removals have no way back and are
recorded instead.
"""

from functools import partial

from fabric_direct.drivers.contract import HostDrivers
from fabric_direct.engine.step import Flow
from fabric_direct.engine.verify import Verified, Verify
from fabric_direct.handlers.vm.comparison import ServerComparison
from fabric_direct.handlers.vm.component_steps import ComponentSteps, record, remove_unused
from fabric_direct.handlers.vm.devices import SliverDevices
from fabric_direct.handlers.vm.found import (
    ServerHoldings,
    devices_of,
    in_the_way_of,
    other_disks,
    plugged_in,
)
from fabric_direct.handlers.vm.guest.settings import refuse_settings
from fabric_direct.handlers.vm.guest.stages import GuestStages
from fabric_direct.handlers.vm.guest.waiting import GuestWait
from fabric_direct.handlers.vm.observe import server_of, tenant_of
from fabric_direct.handlers.vm.refusal import (
    at_its_host,
    refuse_adopted_vlans,
    refuse_components,
    refuse_crowd,
    refuse_fixed,
    refuse_other_disks,
    refuse_other_sizes,
    refuse_own_volumes,
)
from fabric_direct.handlers.vm.steps.server import WriteStamp
from fabric_direct.model import NodeSliver, State
from fabric_direct.site.config import Site


def modify(site: Site, drivers: HostDrivers, sliver: NodeSliver) -> Flow:
    """Return what turns the server that is there into the one asked for."""
    server = server_of(drivers, sliver.id)
    sliver = at_its_host(sliver, server)
    was, runs = server.stamp.sliver, server.state is State.RUNNING
    tenant = tenant_of(drivers, server)
    refuse_fixed(server, sliver)
    refuse_own_volumes(drivers, server)
    refuse_other_sizes(drivers.volume.volumes(sliver.id), sliver)
    others = tuple(other_disks(drivers.volume, sliver, server))
    refuse_other_disks(others, sliver)
    refuse_components(drivers, sliver, tenant)
    refuse_settings(drivers, sliver)
    refuse_crowd(drivers, was, sliver, tenant, [c.id for c in plugged_in(server)])
    refuse_adopted_vlans(was, sliver, partial(SliverDevices(site, drivers).plugged, server))

    has = ServerHoldings.of(site, drivers, server)
    there, gone, missing = has.there(), has.unwanted(sliver), has.unrecorded()
    orphans = (other.component for other in others)
    in_the_way = [*in_the_way_of(sliver, gone), *orphans, *has.misplaced(sliver)]
    later = [component for component in gone if component not in in_the_way]
    kept = [vnic for vnic in sliver.vnics() if ("vNIC", vnic.id) in there]
    added = [vnic for vnic in sliver.vnics() if vnic not in kept]
    unused = drivers.network.unused()

    steps = ComponentSteps(drivers, sliver, site.limits.detach)
    settings = GuestStages(site, drivers, sliver.id)
    comparison = ServerComparison(site, drivers)
    read_back = partial(comparison.read_back, sliver, settings.but_bare, runs=runs)
    return Flow.of(
        record(drivers, missing),
        steps.ports(added) + steps.volumes(),
        steps.unplug_changed(there, kept) + [steps.unplug(each) for each in in_the_way],
        steps.ports(kept),
        steps.plugs() + steps.attachments(was),
        steps.power_cycle(sliver.devices()) if runs else [],
        GuestWait(site, drivers, sliver).answers(was) if runs else [],
        *(settings.wanted(sliver, was) if runs else []),
        [Verify(partial(read_back, gone=later))],
        *(settings.unwanted(was, sliver) if runs else []),
        [steps.unplug(component) for component in later],
        steps.power_cycle(devices_of(gone), "power cycle without them") if runs else [],
        steps.removals([*gone, *has.held.values()], (*has.records, *missing)),
        remove_unused(drivers, unused),
        [WriteStamp(drivers.compute, server.stamp.of(sliver))],
        [Verified(read_back)],
        before=was.model_copy(update={"boot_script": sliver.boot_script}),
    )
