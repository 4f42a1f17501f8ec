"""Virtual machines.

::

    create   hold ports, make volumes → server → power → attach devices (→ power cycle)
             → (host key →) guest answers and sees its devices → configure NICs, mount volumes
             → verify
    modify   hold new ports, make volumes → unplug what changes → hold its ports anew
             → plug in, attach, VLAN, bandwidth (→ power cycle)
             → guest has its addresses → configure NICs, mount volumes → verify
             → unconfigure and unmount, then unplug what is unwanted (→ power cycle)
             → remove its ports and volumes, clean its devices
             → networks that nobody uses → stamp
    reconcile  unplug what was changed → hold ports → plug in, attach (→ power cycle) → verify
               → settings in the guest
    adopt    see :mod:`.adoption`
    delete   server (and with it NICs, disks, devices), floating IPs → ports, volumes, clean the devices
             → networks that nobody uses → nothing is left

Everything is found by the sliver's stamp. A step that fails takes the earlier ones back; only the
removals at the end of modify, and all of delete, have no way back and are recorded instead.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any, ClassVar

from fabric_direct.calls.deadline import at_once
from fabric_direct.calls.read_cache import warn
from fabric_direct.drivers.cloudinit import user_data
from fabric_direct.drivers.contract import (
    DeviceDomain,
    DeviceDriver,
    DeviceRecord,
    GuestAddress,
    GuestDriver,
    HostDrivers,
    Image,
    PluggedDevice,
    Port,
    Server,
    ServerSpec,
)
from fabric_direct.drivers.guests.boot import Boot
from fabric_direct.drivers.guests.guest import Guest
from fabric_direct.engine.field_changes import changed_fields
from fabric_direct.engine.step import Flow, Step
from fabric_direct.engine.verify import Await, Awaited, Verified, Verify
from fabric_direct.errors import (
    Conflict,
    DriverError,
    NotFound,
    Refused,
    TimedOut,
    Unreachable,
    Unsupported,
)
from fabric_direct.handlers.handler import OneModel, Repair, already_there
from fabric_direct.handlers.vm import actions
from fabric_direct.handlers.vm.adoption import ServerAdoption, refuse_unfinished
from fabric_direct.handlers.vm.device_records import as_records, components_of, unrecorded
from fabric_direct.handlers.vm.differences import (
    differences,
    down,
    place,
    power,
    repairable,
    switched_off,
)
from fabric_direct.handlers.vm.found import (
    Key,
    OtherDisk,
    by_key,
    devices_of,
    in_the_way_of,
    misplaced,
    plugged_in,
    there_of,
    unwanted,
    vnic_of,
    without,
)
from fabric_direct.handlers.vm.guest.inside import Inside
from fabric_direct.handlers.vm.guest.readiness import Readiness
from fabric_direct.handlers.vm.guest.settings import mounts, nics, refuse_settings
from fabric_direct.handlers.vm.guest.stages import GuestStages
from fabric_direct.handlers.vm.observe import observe_server, plugged_devices, tenant_of
from fabric_direct.handlers.vm.refusal import (
    RESIZE,
    SIZE,
    refuse_adopted_vlans,
    refuse_components,
    refuse_crowd,
    refuse_fixed,
    refuse_other_disks,
    refuse_other_sizes,
)
from fabric_direct.handlers.vm.steps.devices import (
    AttachDevice,
    CleanDevice,
    DetachDevice,
    PowerCycle,
    RecordDevice,
)
from fabric_direct.handlers.vm.steps.guest import ForgetGuest, KnowGuest
from fabric_direct.handlers.vm.steps.networks import RemoveUnused
from fabric_direct.handlers.vm.steps.ports import (
    HoldPort,
    PlugPort,
    ReleaseFloatingIp,
    ReleasePort,
    ReplugPort,
    SliverPorts,
    UnplugPort,
)
from fabric_direct.handlers.vm.steps.server import MakeServer, RemoveServer, StartServer, WriteStamp
from fabric_direct.handlers.vm.steps.volumes import (
    MakeVolume,
    PlugVolume,
    RemoveVolume,
    UnplugVolume,
    the_volume,
)
from fabric_direct.model import (
    Component,
    NodeSliver,
    Observed,
    PciComponent,
    Sliver,
    SliverRef,
    Stamp,
    State,
    Storage,
    VNic,
)
from fabric_direct.model.adoption import Adoption
from fabric_direct.site.config import Site

# Enough for what a guest says while it boots, host keys included.
CONSOLE_LINES = 2000
HOW_TO_PIN = "add it to the site's known_hosts before the sliver is modified"


class VMSliverHandler(OneModel):
    """Makes, changes, removes and looks at virtual machines."""

    sliver_model: ClassVar[type[Sliver]] = NodeSliver
    actions: ClassVar[tuple[str, ...]] = actions.NAMES
    hosted: ClassVar[bool] = True

    def __init__(self, site: Site, drivers: HostDrivers) -> None:
        """Make a handler whose drivers keep the operation's deadline.

        :raises InvalidSite: if the site serves no VMs.
        """
        site.refuse_without_vms()
        self.observed: Observed | None = None
        self._site, self._drivers = site, drivers
        self._compute, self._network = drivers.compute, drivers.network
        self._volume = drivers.volume
        self._detach = site.limits.detach
        self._stages: GuestStages | None = None

    def create(self, sliver: NodeSliver) -> Flow:
        """Return what makes the server with everything that belongs to it."""
        self._read_ahead(sliver.id)
        server = self._compute.find(sliver.id)
        refuse_unfinished(server)
        if server is None:
            self._compute.check(sliver, Image.of(self._site, sliver.image))
        elif server.stamp != sliver.stamp():
            raise _already_there(server, sliver)
        refuse_components(self._drivers, sliver, self._tenant(sliver, server))
        refuse_settings(self._drivers, sliver)
        self._stages = self._guest_stages(sliver)
        records = self._records(sliver.id) if server is None else ()
        return Flow.of(
            self._removals(sliver, self._held(sliver.id, records).values(), records)
            if server is None
            else [],
            self._ports(sliver, sliver.vnics()) + self._volumes(sliver),
            [MakeServer(self._compute, sliver.id, lambda: self._spec(sliver))],
            [StartServer(self._compute, sliver.id, self._detach)],
            # What a server that is there has lost holds its data: undoing an attach does not clean it.
            self._attachments(sliver, server.stamp.sliver if server else None),
            self._power_cycle(sliver, sliver.devices()),
            self._know_guest(sliver),
            self._await_guest(sliver),
            *self._stages.wanted(sliver),
            [Verify(lambda: self._differences(sliver))],
            owns_everything=server is None,
        )

    def modify(self, sliver: NodeSliver) -> Flow:
        """Return what turns the server that is there into the one asked for.

        New ports are held before changed ones are given up: what is given up must still be free when
        it is taken back.
        """
        server = self._server(sliver)
        was = server.stamp.sliver
        refuse_fixed(server, sliver)
        refuse_other_sizes(self._volume.volumes(sliver.id), sliver)
        others = tuple(self._other_disks(sliver, server))
        refuse_other_disks(others, sliver)
        tenant = self._tenant(sliver, server)
        refuse_components(self._drivers, sliver, tenant)
        refuse_settings(self._drivers, sliver)
        refuse_crowd(self._drivers, was, sliver, tenant, [c.id for c in plugged_in(server)])
        refuse_adopted_vlans(was, sliver, lambda: self._plugged(server))
        records = self._records(sliver.id)
        functions, held = self._functions(server, records), self._held(sliver.id, records)
        missing = unrecorded(functions, records)
        there = there_of(server, functions, held)
        gone = unwanted(there, sliver)
        orphans = (other.component for other in others)
        in_the_way = [*in_the_way_of(sliver, gone), *orphans, *misplaced(sliver, functions)]
        later = [component for component in gone if component not in in_the_way]
        runs = server.state is State.RUNNING
        kept = [vnic for vnic in sliver.vnics() if ("vNIC", vnic.id) in there]
        added = [vnic for vnic in sliver.vnics() if vnic not in kept]
        self._stages = self._guest_stages(sliver)
        unused = self._network.unused()
        return Flow.of(
            self._record(missing),
            self._ports(sliver, added) + self._volumes(sliver),
            [
                *self._unplug_changed(sliver, there, kept),
                *(self._unplug(sliver, component) for component in in_the_way),
            ],
            self._ports(sliver, kept),
            self._plugs(sliver) + self._attachments(sliver, was),
            self._power_cycle(sliver, sliver.devices()) if runs else [],
            self._await_guest(sliver, was) if runs else [],
            *(self._stages.wanted(sliver, was) if runs else []),
            [Verify(lambda: self._differences(sliver, later, runs=runs))],
            *(self._stages.unwanted(was, sliver) if runs else []),
            [self._unplug(sliver, component) for component in later],
            self._power_cycle(sliver, devices_of(gone), "power cycle without them") if runs else [],
            self._removals(sliver, [*gone, *held.values()], (*records, *missing)),
            [RemoveUnused(self._network, unused)] if unused else [],
            [WriteStamp(self._compute, server.stamp.of(sliver))],
            [Verified(lambda: self._differences(sliver, runs=runs))],
            before=was.model_copy(update={"boot_script": sliver.boot_script}),
        )

    def reconcile(self, ref: SliverRef) -> Repair:
        """Return what puts back what others took away, and sets what they changed.

        It removes no volume and cleans no device, and makes no volume anew: data may be in them.
        """
        server = self._server(ref)
        wanted, found = server.stamp.sliver, self._as_stamped(server)
        if not found.differences:
            return Repair(wanted, found, Flow.of())
        reasons = dict(self._irreparable(wanted, server, found))
        kept = (c for c in wanted.components if c.id not in reasons)
        target = wanted.model_copy(update={"components": tuple(kept)})
        mended = set(self._repairable(target, server, found))
        beyond = [
            *(d for d in found.differences if d not in mended),
            *filter(None, reasons.values()),
        ]
        flow = self._repair(target, server) if mended else Flow.of()
        return Repair(wanted, found, flow, tuple(beyond))

    def _as_stamped(self, server: Server) -> Observed:
        """Compare the server with its stamp; its guest is looked into only if nothing else differs.

        One that somebody stopped may stay so.
        """
        found = self._beside_guest(server, None)
        guest = self._guest(server) if not found.differences else None
        return self._beside_guest(server, guest) if guest else found

    def _beside_guest(self, server: Server, guest: Guest | None) -> Observed:
        found = self._observe(server.stamp.sliver, server, guest)
        every = (*found.differences, *self._done_by_others(server, found))
        off = set(power(found)) if found.state is State.STOPPED else set()
        return found.model_copy(update={"differences": tuple(d for d in every if d not in off)})

    def _irreparable(
        self, wanted: NodeSliver, server: Server, found: Observed
    ) -> Iterator[tuple[str, str]]:
        """Yield the components that a repair must not touch, each with a reason if one is to be told."""
        for other in self._other_disks(wanted, server):
            yield other.component.id, ""
        for storage in wanted.volumes():
            if not self._is_there(wanted.id, storage):
                yield storage.id, f"volume {storage.id} is not there any more"
        moved, tenant = any(place(wanted, found)), self._tenant(wanted, server)
        for device in wanted.devices():
            if moved:
                yield device.id, ""
            elif refusal := self._refusal(device, tenant):
                yield device.id, f"{device.type} {device.id} cannot be put back: {refusal}"

    def _refusal(self, device: PciComponent, tenant: DeviceDomain) -> str:
        try:
            self._drivers.device(device).check(device, tenant)
        except (Conflict, Refused, Unsupported) as error:
            error.field = ""
            return str(error)
        return ""

    def _repairable(self, target: NodeSliver, server: Server, found: Observed) -> Iterator[str]:
        """Yield what differs in the components that a repair may touch."""
        yield from repairable(self._stages.but_bare(target) if self._stages else target, found)
        yield from self._device_differences(target, server, found)

    def _repair(self, target: NodeSliver, server: Server) -> Flow:
        """Return what makes these components of the server's stamp so again."""
        wanted, runs = server.stamp.sliver, server.state is State.RUNNING
        records = self._records(target.id)
        functions = self._functions(server, records)
        there = there_of(server, functions, self._held(target.id, records))
        strays = [c for c in unwanted(there, wanted) if isinstance(c, VNic)]
        misplaced_ones = list(misplaced(target, functions))
        self._stages = self._guest_stages(target)
        settings = self._stages.lasting(target) if runs and self._drivers.guest else []
        return Flow.of(
            self._record(unrecorded(functions, records)),
            [
                *self._unplug_changed(target, there, target.vnics()),
                *(self._unplug(target, component) for component in (*strays, *misplaced_ones)),
            ],
            self._ports(target, target.vnics()),
            self._plugs(target) + self._attachments(target, wanted),
            self._power_cycle(target, target.devices()) if runs else [],
            [Verify(lambda: self._unrepaired(target))],
            [ReleasePort(self._network, target.id, stray.id) for stray in strays],
            [Awaited("guest", partial(self._wait_ready, target))] if settings else [],
            *settings,
            [Verified(lambda: self._unrepaired(target, inside=True))] if settings else [],
        )

    def _unrepaired(self, target: NodeSliver, *, inside: bool = False) -> tuple[str, ...]:
        """Read back, and return what still differs in what was repaired."""
        self._drivers.reads.invalidate("servers")
        server = self._server(target)
        guest = self._guest(server) if inside else None
        self.observed = self._beside_guest(server, guest)
        return tuple(self._repairable(target, server, self.observed))

    def delete(self, ref: SliverRef) -> Flow:
        """Return what removes the server, its ports and its volumes."""
        self._read_ahead(ref.id)
        held = self._network.ports(ref.id)
        ports = [ReleasePort(self._network, ref.id, port.component) for port in held]
        floating = [
            ReleaseFloatingIp(self._network, ref.id, port.component)
            for port in held
            if port.floating_ip
        ]
        volumes = [
            RemoveVolume(self._volume, ref.id, v.component) for v in self._volume.volumes(ref.id)
        ]
        unused = self._network.unused()
        server = self._compute.find(ref.id)
        refuse_unfinished(server)
        records = self._records(ref.id)
        functions = self._functions(server, records) if server else ()
        missing = unrecorded(functions, records)
        return Flow.of(
            self._record(missing),
            [RemoveServer(self._compute, ref.id), *floating],
            self._forget(ref),
            [*ports, *volumes, *map(self._clean, (*records, *missing))],
            [RemoveUnused(self._network, unused)] if unused else [],
            owns_everything=True,
        )

    def _read_ahead(self, sliver_id: str) -> None:
        """Ask a cloud at once for what is asked for one after the other: the read cache keeps it."""
        if self._compute.cloud:
            at_once(
                partial(self._network.ports, sliver_id), partial(self._volume.volumes, sliver_id)
            )

    def adopt(self, wanted: Adoption) -> Flow:
        """Return what stamps a server that others made, with all that belongs to it."""
        sliver, adopting = wanted.sliver, ServerAdoption(self._site, self._drivers, wanted)
        return Flow.of(
            *adopting.stages(),
            [Verify(lambda: tuple(self._unstamped(sliver)))],
            self._meet_adopted(sliver),
        )

    def _unstamped(self, sliver: NodeSliver) -> Iterator[str]:
        """Yield what, read back, does not bear the sliver's stamp; remember all as found."""
        self._drivers.reads.invalidate()
        server = self._compute.find(sliver.id)
        if server is None or server.unfinished or server.stamp != sliver.stamp():
            yield "the server does not bear its stamp"
            return
        self.observed = self.observe(sliver)
        held = {p.component for p in self._network.ports(sliver.id)}
        held |= {v.component for v in self._volume.volumes(sliver.id)}
        own = {vnic.id for vnic in sliver.vnics()}
        own |= {storage.id for storage in sliver.volumes() if storage.size is not None}
        yield from (f"{name} does not bear its stamp" for name in sorted(own - held))
        tenant = self._tenant(sliver, server)
        for device in sliver.devices():
            if not self._drivers.device(device).is_adopted(device, tenant):
                yield f"{device.type} {device.id} is not recorded"

    def _meet_adopted(self, sliver: NodeSliver) -> list[Step]:
        """Return the step that pins the guest's host key, if its console still shows it."""
        driver = self._drivers.guest
        if driver is None or not driver.keys:
            return []

        def meet() -> None:
            guest = GuestAddress(sliver.id, "", "", self._addresses(sliver.id))
            if not driver.pins(guest) and not driver.learn(guest, self._console(sliver.id)):
                with self._drivers.reads.active():
                    warn(f"its console does not show the guest's host key: {HOW_TO_PIN}")

        return [Await("host key", meet)]

    def _console(self, sliver_id: str) -> str:
        """Return what the guest wrote to its console; nothing if that cannot be read."""
        with suppress(DriverError, Conflict):
            return self._compute.console(sliver_id, CONSOLE_LINES)
        return ""

    def _forget(self, ref: SliverRef) -> list[Step]:
        guest = GuestAddress(ref.id, "", "", self._addresses(ref.id))
        driver = self._drivers.guest
        return [ForgetGuest(driver, guest)] if driver and driver.pins(guest) else []

    def _ports(self, sliver: NodeSliver, vnics: Iterable[VNic]) -> list[Step]:
        return [HoldPort(self._network, sliver.id, vnic) for vnic in vnics]

    def _volumes(self, sliver: NodeSliver) -> list[Step]:
        own = [storage for storage in sliver.volumes() if storage.size is not None]
        return [MakeVolume(self._volume, sliver.id, storage) for storage in own]

    def _plugs(self, sliver: NodeSliver) -> list[Step]:
        nics = [PlugPort(self._nics(sliver), vnic) for vnic in sliver.vnics()]
        disks = [
            PlugVolume(self._compute, self._volume, sliver.id, storage, self._detach)
            for storage in sliver.volumes()
        ]
        return [*nics, *disks]

    def _nics(self, sliver: NodeSliver) -> SliverPorts:
        return SliverPorts(self._compute, self._network, sliver.id, self._detach)

    def _attachments(self, sliver: NodeSliver, was: NodeSliver | None = None) -> list[Step]:
        former = {c.id: c for c in was.devices()} if was else {}
        device, tenant = self._drivers.device, partial(self._tenant, sliver)
        return [
            AttachDevice(device(c), tenant, c, self._detach, former.get(c.id))
            for c in sliver.devices()
        ]

    def _power_cycle(
        self, sliver: NodeSliver, devices: Iterable[PciComponent], name: str = "power cycle"
    ) -> list[Step]:
        """Return the step by which devices that are plugged in cold become the guest's."""
        cold, tenant = self._cold(devices), partial(self._tenant, sliver)
        return [PowerCycle(cold, tenant, self._detach, name)] if cold else []

    def _cold(self, devices: Iterable[PciComponent]) -> DeviceDriver | None:
        """Return a driver that plugs one of these devices in cold, if any does."""
        return next((d for d in map(self._drivers.device, devices) if d.cold), None)

    def _tenant(self, sliver: NodeSliver, server: Server | None = None) -> DeviceDomain:
        found = server or self._compute.find(sliver.id)
        return tenant_of(self._drivers, found) if found else DeviceDomain(sliver.id)

    def _records(self, sliver_id: str) -> tuple[DeviceRecord, ...]:
        """Return what is written down of the sliver's devices, on a host that may pass some through."""
        driver = self._any_device_driver()
        return driver.records(sliver_id) if driver else ()

    def _any_device_driver(self) -> DeviceDriver | None:
        """Return a driver of devices, on a host that may pass some through; each knows those of all."""
        host = self._drivers.host
        allows = host in self._site.hosts and self._site.passes_devices(host)
        return next(iter(self._drivers.devices.values()), None) if allows else None

    def _plugged(self, server: Server) -> tuple[PluggedDevice, ...]:
        """Return the functions that the server has."""
        driver = self._any_device_driver()
        return driver.plugged(tenant_of(self._drivers, server)) if driver else ()

    def _functions(
        self, server: Server, records: Collection[DeviceRecord]
    ) -> tuple[DeviceRecord, ...]:
        """Return a record for each function that the server has, whether it is written down or not.

        Records are read once more if they lack one of these functions.
        """
        plugged = self._plugged(server)
        if {device.host_address for device in plugged} - {record.address for record in records}:
            records = self._records(server.sliver)
        return tuple(as_records(self._drivers, server.sliver, plugged, records))

    def _record(self, records: Iterable[DeviceRecord]) -> list[Step]:
        return [RecordDevice(self._drivers.device(record), record) for record in records]

    def _clean(self, record: DeviceRecord) -> Step:
        return CleanDevice(self._drivers.device(record), record)

    def _unplug_changed(
        self, sliver: NodeSliver, there: Mapping[Key, Component], vnics: Iterable[VNic]
    ) -> list[Step]:
        changes = ((there["vNIC", vnic.id], vnic) for vnic in vnics)
        return [
            ReplugPort(self._nics(sliver), was=was, wanted=vnic)
            for was, vnic in changes
            if isinstance(was, VNic)
        ]

    def _unplug(self, sliver: NodeSliver, component: Component) -> Step:
        if isinstance(component, VNic):
            return UnplugPort(self._nics(sliver), component)
        if isinstance(component, Storage):
            return UnplugVolume(self._compute, self._volume, sliver.id, component, self._detach)
        tenant = partial(self._tenant, sliver)
        return DetachDevice(self._drivers.device(component), tenant, component, self._detach)

    def _held(self, sliver_id: str, records: Iterable[DeviceRecord]) -> dict[Key, Component]:
        """Return what is held for the sliver, whether a server has it or not."""
        volumes = self._volume.volumes(sliver_id)
        return by_key(
            [
                *map(vnic_of, self._network.ports(sliver_id)),
                # a half-made one has 0 GiB, which no sliver may ask for: it is made anew
                *(Storage.model_construct(id=v.component, size=v.size) for v in volumes),
                *components_of(records),
            ]
        )

    def _removals(
        self, sliver: NodeSliver, there: Iterable[Component], records: Iterable[DeviceRecord]
    ) -> list[Step]:
        """Return what removes all that is there, held or recorded, and is not the sliver's as it is."""
        there = tuple(there)
        nics = {c.id for c in there if isinstance(c, VNic)} - {vnic.id for vnic in sliver.vnics()}
        own = {(c.id, c.size) for c in there if isinstance(c, Storage) and c.size is not None}
        disks = {name for name, _ in own - {(s.id, s.size) for s in sliver.volumes()}}
        functions = {(d.id, address) for d in sliver.devices() for address in d.bdf}
        return [
            *(ReleasePort(self._network, sliver.id, name) for name in sorted(nics)),
            *(RemoveVolume(self._volume, sliver.id, name) for name in sorted(disks)),
            *(self._clean(r) for r in records if (r.component, r.address) not in functions),
        ]

    def _know_guest(self, sliver: NodeSliver) -> list[Step]:
        driver, readiness = self._drivers.guest, self._readiness(sliver.stamp(), sliver)
        if driver is None or not driver.keys or not readiness.looks:
            return []

        def address() -> GuestAddress:
            return GuestAddress(sliver.id, "", "", self._addresses(sliver.id))

        def learn() -> bool:
            limit = self._drivers.deadline.remaining(self._site.limits.guest_boot)
            guest = self._guest_at(driver, address())
            console = partial(self._compute.console, sliver.id, CONSOLE_LINES)
            return readiness.meet(guest, console, timeout=limit)

        return [KnowGuest(driver, address, learn)]

    def _readiness(self, stamp: Stamp, *slivers: NodeSliver) -> Readiness:
        """Return the wait for a guest, in which these slivers may have settings."""
        settings = any(nics(sliver) or mounts(sliver) for sliver in slivers)
        return Readiness(self._site, self._drivers, stamp, settings=settings)

    def _await_guest(self, sliver: NodeSliver, was: NodeSliver | None = None) -> list[Step]:
        if self._drivers.guest is None:
            return []

        def wait() -> None:
            guest, boot = self._wait_ready(sliver, was)
            if boot and sliver.devices():
                self._await_devices(guest, sliver, boot)
            if boot is Boot.FINISHED and was is None:
                self._readiness(sliver.stamp()).tell_of_script(guest)

        return [Await("guest", wait)]

    def _wait_ready(
        self, sliver: NodeSliver, was: NodeSliver | None = None
    ) -> tuple[Guest, Boot | None]:
        """Block until the guest is as far as it must be; return it, and how far it is.

        That is None if it was not logged in to.
        """
        server = self._server(sliver)
        guest = self._guest(server)
        assert guest  # noqa: S101 - it is waited for only where guests are looked into
        wanted = {vnic.id: vnic for vnic in sliver.vnics()}
        ports = [
            port
            for port in self._network.ports(sliver.id)
            if port.component in wanted and _comes_by_itself(port, wanted[port.component])
        ]
        readiness = self._readiness(server.stamp.of(sliver), sliver, *([was] if was else []))
        return guest, readiness.wait(guest, ports, partial(self._console, sliver.id))

    def _await_devices(self, guest: Guest, sliver: NodeSliver, boot: Boot) -> None:
        """Wait until the guest sees its devices; as the last resort restart it.

        It is not restarted while it boots: its boot script would be broken off, and not run again.
        """
        try:
            self._see_devices(guest, sliver)
        except TimedOut as error:
            with suppress(Unreachable, TimedOut):
                boot = guest.boot()
            restarts = boot in {Boot.FINISHED, Boot.UNKNOWN}
            why = f"the guest was {'' if restarts else 'not '}restarted"
            why += ", for" if restarts else ", as it does not say that its boot has ended:"
            with self._drivers.reads.active():
                warn(f"{why} {error}")
            if not restarts:
                return
            self._compute.reboot(sliver.id, hard=False, timeout=self._detach)
            self._wait_ready(sliver)
            self._see_devices(guest, sliver)

    def _see_devices(self, guest: Guest, sliver: NodeSliver) -> None:
        """Wait until the guest sees its devices; warn of them in a guest that cannot show them."""
        plugged = plugged_devices(self._drivers, self._tenant(sliver), sliver.devices())
        limit = self._site.limits.guest_devices
        try:
            guest.wait_devices(plugged, timeout=self._drivers.deadline.remaining(limit))
        except Unsupported as error:
            with self._drivers.reads.active():
                warn(str(error))

    def _guest_stages(self, sliver: NodeSliver) -> GuestStages:
        def guest() -> Guest:
            server = self._server(sliver)
            found = self._guest(server)
            assert found  # noqa: S101 - what needs a guest was refused where none is looked into
            return found

        tenant = partial(self._tenant, sliver)
        return GuestStages(Inside(self._drivers, sliver.id, guest, tenant))

    def _spec(self, sliver: NodeSliver) -> ServerSpec:
        ports = {p.component: p for p in self._network.ports(sliver.id)}
        volumes = [
            self._volume.existing(s.volume) if s.volume else self._volume.find(sliver.id, s.id)
            for s in sliver.volumes()
        ]
        return ServerSpec(
            sliver=sliver,
            image=Image.of(self._site, sliver.image),
            ports=tuple(ports[vnic.id] for vnic in sliver.vnics()),
            volumes=tuple(v for v in volumes if v is not None),
            user_data=user_data(sliver, self._drivers.guest.keys if self._drivers.guest else ()),
        )

    # --- looking

    def exists(self, ref: SliverRef) -> bool:
        """Return whether the server is there."""
        return self._compute.find(ref.id) is not None

    def observe(self, ref: SliverRef) -> Observed:
        """Read the server and all that belongs to it, and compare it with what it should be."""
        server = self._compute.find(ref.id)
        if server is None:
            unlike = ("there is no such server", *self._by_stamp_alone(ref))
            return Observed(state=State.ABSENT, differences=unlike)
        wanted = ref if isinstance(ref, NodeSliver) else server.stamp.sliver
        found = self._observe(wanted, server, self._guest(server))
        unlike = (*found.differences, *self._done_by_others(server, found))
        return found.model_copy(update={"differences": unlike})

    def _observe(self, wanted: NodeSliver, server: Server, guest: Guest | None) -> Observed:
        """Read the server, with the differences in what operations on the sliver make."""
        others = (*components_of(self._records(wanted.id)), *wanted.devices())
        found = observe_server(self._drivers, server, guest, others)
        unfinished = ("its adoption is unfinished",) if server.unfinished else ()
        unlike = (
            *unfinished,
            *differences(wanted, found),
            *map(str, self._other_disks(wanted, server)),
            *self._device_differences(wanted, server, found),
        )
        return found.model_copy(update={"differences": unlike})

    def _done_by_others(self, server: Server, found: Observed) -> Iterator[str]:
        """Yield what others have done to the server, which no operation on its sliver does."""
        yield from switched_off(found)
        yield from down(found)
        if driver := self._any_device_driver():
            name = server.domain if self._compute.cloud else None
            yield from driver.domain_differences(tenant_of(self._drivers, server), name)

    def _by_stamp_alone(self, ref: SliverRef) -> Iterator[str]:
        """Yield what carries the sliver's stamp, and is no server of it.

        In a cloud, that are servers whose stamp cannot be read, or that are marked as deleted; on
        libvirt, domains of another UUID.
        """
        if self._compute.cloud:
            yield from (f"there is {what}" for what in self._compute.leftovers(ref.id))
            return
        for server in self._compute.servers():
            if server.sliver == ref.id:
                yield f"domain {server.instance} carries its stamp, but has another UUID"

    def _now(self, sliver: NodeSliver) -> Observed:
        server = self._compute.find(sliver.id)
        if server is None:
            return Observed(state=State.ABSENT, differences=("there is no such server",))
        return self._observe(sliver, server, self._guest(server))

    def _other_disks(self, wanted: NodeSliver, server: Server) -> Iterator[OtherDisk]:
        """Yield the disks that are other volumes than those that are wanted."""
        sources = {disk.component: disk.source for disk in server.volumes}
        for storage in (each for each in wanted.volumes() if each.id in sources):
            own = self._source(server.sliver, storage)
            if sources[storage.id] != own:
                yield OtherDisk(storage, sources[storage.id], own)

    def _source(self, sliver_id: str, storage: Storage) -> str | None:
        with suppress(NotFound):
            return the_volume(self._volume, sliver_id, storage).source
        return None

    def _is_there(self, sliver_id: str, storage: Storage) -> bool:
        """Return whether a component's volume is there, found by itself or among all of the sliver."""
        if self._source(sliver_id, storage) is not None:
            return True
        own = storage.volume is None and self._volume.volumes(sliver_id)
        return any(volume.component == storage.id for volume in own or ())

    def _device_differences(
        self, wanted: NodeSliver, server: Server, found: Observed
    ) -> Iterator[str]:
        """Yield where devices that are there are not as wanted."""
        there, tenant = {d.component for d in found.devices}, tenant_of(self._drivers, server)
        for component in wanted.devices():
            if component.id in there:
                yield from self._drivers.device(component).differences(component, tenant)
        served = wanted.devices() if self._drivers.devices else ()
        cold = self._cold(served) if found.state is State.RUNNING else None
        if cold and cold.pending(tenant):
            yield "its devices wait for a power cycle"

    def _differences(
        self, sliver: NodeSliver, gone: Iterable[Component] = (), *, runs: bool = True
    ) -> tuple[str, ...]:
        """Read back and compare, but for what is removed in the end, when all else is verified.

        What was read after the last change counts; the server's state changes by itself.
        """
        self._drivers.reads.invalidate("servers")
        self.observed = self._now(sliver)
        known = differences(sliver, self.observed)
        others = [d for d in self.observed.differences if d not in known]
        wanted = self._stages.but_bare(sliver) if self._stages else sliver
        return (*differences(wanted, without(gone, self.observed), runs=runs), *others)

    def leftovers(self, ref: SliverRef) -> tuple[str, ...]:
        """Name everything of the sliver that is there."""
        self._drivers.reads.invalidate()
        drivers = self._compute, self._network, self._volume
        asked = [partial(driver.leftovers, ref.id) for driver in drivers]
        records = partial(self._records, ref.id)
        *left, recorded = at_once(*asked, records)
        return (*chain.from_iterable(left), *map(_described, recorded))

    def act(self, ref: SliverRef, action: str, data: dict[str, Any]) -> dict[str, Any]:
        """Carry an operational action out and return its answer."""
        run = actions.parse(action, data)
        server = self._server(ref)
        guest, console = self._guest(server), partial(self._console, ref.id)
        return run(actions.Target(self._site, self._drivers, server, guest, console))

    def _server(self, ref: SliverRef) -> Server:
        server = self._compute.find(ref.id)
        if server is None:
            raise NotFound(f"sliver {ref.id} is not there", where=self._drivers.host)
        refuse_unfinished(server)
        return server

    def _guest(self, server: Server) -> Guest | None:
        driver: GuestDriver | None = self._drivers.guest
        return self._guest_at(driver, self._guest_address(server)) if driver else None

    def _guest_at(self, driver: GuestDriver, address: GuestAddress) -> Guest:
        return Guest(driver, address, self._drivers.deadline, self._site.limits.guest_boot)

    def _guest_address(self, server: Server) -> GuestAddress:
        user = Image.of(self._site, server.stamp.sliver.image).user
        instance = server.domain or server.instance
        return GuestAddress(server.sliver, instance, user, self._addresses(server.sliver))

    def _addresses(self, sliver_id: str) -> tuple[str, ...]:
        """Return where the guest is reached: its floating addresses, or else its own."""
        ports = self._network.ports(sliver_id)
        floating = tuple(p.floating_ip for p in ports if p.floating_ip)
        own = [p.ipv4 for p in ports] + [p.ipv6 for p in ports]
        return floating or tuple(str(address.ip) for address in own if address)


def _comes_by_itself(port: Port, vnic: VNic) -> bool:
    """Return whether the guest gets the port's address without us; what we set is not waited for."""
    return port.dhcp or not vnic.interface.auto_config


def _described(record: DeviceRecord) -> str:
    state = f"quarantined: {record.quarantined}" if record.quarantined else "not clean yet"
    return f"device {record.address} of {record.component}: {state}"


def _already_there(server: Server, sliver: NodeSliver) -> Conflict:
    was, why = server.stamp.sliver, _difference(server.stamp, sliver.stamp())
    if any(getattr(was, field) != getattr(sliver, field) for field in SIZE):
        return already_there(sliver, where=server.instance, why=why, remedy=RESIZE)
    return already_there(sliver, where=server.instance, why=why)


def _difference(was: Stamp, wanted: Stamp) -> str:
    """Return the first field of a sliver that differs from its stamp: ``name node → other``."""
    changes = changed_fields(was.sliver, wanted.sliver) or changed_fields(was, wanted)
    return str(changes[0])
