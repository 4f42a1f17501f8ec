"""A server is removed, with everything that belongs to it.

::

    server (and with it NICs, disks, devices), floating IPs → host key
    → ports, volumes, clean the devices → networks that nobody uses → nothing is left

Nothing of it has a way back: what fails is recorded.
"""

from functools import partial
from itertools import chain

from fabric_direct.calls.deadline import at_once
from fabric_direct.drivers.contract import DeviceRecord, HostDrivers
from fabric_direct.engine.step import Flow
from fabric_direct.handlers.guests.host_key import ForgetGuest
from fabric_direct.handlers.vm.component_steps import clean, record, remove_unused
from fabric_direct.handlers.vm.devices import SliverDevices, unrecorded
from fabric_direct.handlers.vm.guest.access import GuestAccess
from fabric_direct.handlers.vm.observe import read_ahead, refuse_unfinished
from fabric_direct.handlers.vm.refusal import refuse_own_volumes
from fabric_direct.handlers.vm.steps.ports import ReleaseFloatingIp, ReleasePort
from fabric_direct.handlers.vm.steps.server import RemoveServer
from fabric_direct.handlers.vm.steps.volumes import RemoveVolume
from fabric_direct.model import SliverRef
from fabric_direct.site.config import Site


def delete(site: Site, drivers: HostDrivers, ref: SliverRef) -> Flow:
    """Return what removes the server, its ports and its volumes."""
    read_ahead(drivers, ref.id)
    compute, network, volume = drivers.compute, drivers.network, drivers.volume
    held, volumes, unused = network.ports(ref.id), volume.volumes(ref.id), network.unused()
    server = compute.find(ref.id)
    refuse_unfinished(server)
    if server:
        refuse_own_volumes(drivers, server)
    devices = SliverDevices(site, drivers)
    records = devices.records(ref.id)
    functions = devices.functions(server, records) if server else ()
    missing = unrecorded(functions, records)
    where, guest = GuestAccess(site, drivers).where(ref.id), drivers.guest
    return Flow.of(
        record(drivers, missing),
        [
            RemoveServer(compute, ref.id),
            *(ReleaseFloatingIp(network, ref.id, p.component) for p in held if p.floating_ip),
        ],
        [ForgetGuest(guest, where)] if guest and guest.pins(where) else [],
        [
            *(ReleasePort(network, ref.id, port.component) for port in held),
            *(RemoveVolume(volume, ref.id, each.component) for each in volumes),
            *clean(drivers, (*records, *missing)),
        ],
        remove_unused(drivers, unused),
        owns_everything=True,
    )


def leftovers(site: Site, drivers: HostDrivers, ref: SliverRef) -> tuple[str, ...]:
    """Name everything of the sliver that is there."""
    drivers.reads.invalidate()
    asked = [
        partial(driver.leftovers, ref.id)
        for driver in (drivers.compute, drivers.network, drivers.volume)
    ]
    *left, recorded = at_once(*asked, partial(SliverDevices(site, drivers).records, ref.id))
    return (*chain.from_iterable(left), *map(_described, recorded))


def _described(record: DeviceRecord) -> str:
    state = f"quarantined: {record.quarantined}" if record.quarantined else "not clean yet"
    return f"device {record.address} of {record.component}: {state}"
