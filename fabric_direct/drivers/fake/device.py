"""PCI devices in memory."""

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import ClassVar

from fabric_direct.drivers.contract import (
    QUARANTINED,
    Belongings,
    DeviceDomain,
    DeviceRecord,
    Holder,
    HostDevice,
    PluggedDevice,
    Stamped,
    VfSettings,
)
from fabric_direct.drivers.contract.devices import (
    domain_gone,
    domain_renamed,
    foreign_function,
    not_there,
)
from fabric_direct.drivers.contract.fields import refuse_nic_fields
from fabric_direct.drivers.contract.site_checks import refuse_absent, refuse_disallowed
from fabric_direct.drivers.fake.hardware import given
from fabric_direct.drivers.fake.substrate import Fake, Hears, the
from fabric_direct.errors import DeviceClaimed, DeviceUnclean
from fabric_direct.model import DeviceState, PciAddress, PciComponent, SharedNic, SmartNic, State
from fabric_direct.site.config import AllowedDevice, FakeHostSettings


class FakeDevice(Hears, Fake):
    """A :class:`~fabric_direct.drivers.contract.DeviceDriver` in memory."""

    kind = "device"
    cold: ClassVar[bool] = False
    unserved: ClassVar[tuple[str, ...]] = ("bandwidth",)

    def inventory(self) -> tuple[HostDevice, ...]:
        """Return the substrate's devices as they are now."""
        holders = self._holders()
        return tuple(self._now(device, holders) for device in self.substrate.devices.values())

    def _holders(self) -> dict[PciAddress, str]:
        """Return the slivers of the servers that have devices."""
        return {p.host_address: s for s, has in self.substrate.plugged.items() for p in has}

    def _now(self, device: HostDevice, holders: dict[PciAddress, str]) -> HostDevice:
        """Return a device with its current state and its uplink's bridge mode.

        :param holders: the slivers of the servers that have devices.
        """
        mode = device.bridge_mode or self.substrate.uplinks.get(device.uplink or "")
        sliver = holders.get(device.address)
        domains = (self._domain(sliver),) if sliver is not None else ()
        state, why = self._state(device, sliver)
        owner = device.owner or self._recorded(device.address)
        return replace(device, state=state, why=why, owner=owner, bridge_mode=mode, domains=domains)

    def _recorded(self, address: PciAddress) -> str | None:
        record = self.substrate.records.get(address)
        return f"{record.sliver}/{record.component}" if record else None

    def _domain(self, sliver: str) -> Holder:
        """Return the domain of a sliver's server; a cold device is in its definition alone."""
        server = self.substrate.servers.get(sliver)
        name = self.substrate.domains.get(sliver) or (server.instance if server else sliver)
        stopped = server is not None and server.state is not State.RUNNING
        return Holder(name, name, None if stopped else sliver not in self.substrate.pending)

    def _state(self, device: HostDevice, sliver: str | None) -> tuple[DeviceState, str]:
        record = self.substrate.records.get(device.address)
        if record and record.quarantined:
            return DeviceState.QUARANTINED, record.quarantined
        if sliver is not None:
            return DeviceState.USED, ""
        if record:
            return DeviceState.UNCLEAN, f"{self._recorded(device.address)} had it last"
        return self._idle_state(device), device.why

    def _idle_state(self, device: HostDevice) -> DeviceState:
        return device.state if self._entry(device) or device.owner else DeviceState.NOT_ALLOWED

    def _allow_list(self) -> tuple[AllowedDevice, ...]:
        """Return the site's list or, where it has none, what ``fake.hosts`` gives the host."""
        listed = self.site.hosts[self.host].devices if self.host in self.site.hosts else ()
        return listed or given(self.site.fake.hosts.get(self.host, FakeHostSettings()))

    def _entry(self, device: HostDevice) -> AllowedDevice | None:
        """Return the entry of the allow-list that names a device, if one does."""
        for entry in self._allow_list():
            if device.address == entry.bdf or (device.uplink or "") == entry.uplink:
                return entry
        return None

    def check(self, component: PciComponent, tenant: DeviceDomain) -> None:
        """Refuse a device that is not in the substrate, not allowed, or another sliver's."""
        refuse_nic_fields(component, self.unserved)
        for number, address in enumerate(component.bdf):
            field = f"bdf[{number}]"
            refuse_absent(address in self.substrate.devices, address, self.host, field)
            device = self.substrate.devices[address]
            refuse_disallowed(component, address, self._entry(device), self.host, field)
            self._refuse_claimed(device, tenant.sliver, component.id, field)
            self._refuse_unclean(address, tenant.sliver, component.id, field)

    def plugged(self, tenant: DeviceDomain) -> tuple[PluggedDevice, ...]:
        """Return the functions that the server has."""
        return self._has(tenant)

    def survey(self, belongings: Collection[Belongings]) -> dict[str, tuple[str, ...]]:
        """Compare the domains and devices of many slivers, by one call."""
        return {each.tenant.sliver: tuple(self._surveyed(each)) for each in belongings}

    def _surveyed(self, has: Belongings) -> Iterator[str]:
        yield from self._domain_differences(has.tenant, has.domain)
        for component in has.components:
            yield from self._differences(component, has.tenant)

    def differences(self, component: PciComponent, tenant: DeviceDomain) -> tuple[str, ...]:
        """Compare what the server has with the component."""
        return self._differences(component, tenant)

    def _differences(self, component: PciComponent, tenant: DeviceDomain) -> tuple[str, ...]:
        there = {device.alias: device for device in self._has(tenant)}
        lacking = (d for d in _plugged(tenant, component) if d != there.get(d.alias))
        unlike = (_unlike(device, there.get(device.alias, device)) for device in lacking)
        return (*unlike, *self._other_mode(component))

    def _other_mode(self, component: PciComponent) -> Iterator[str]:
        """Yield the uplink whose mode is not what the allow-list says."""
        for uplink in self._in_vepa(component):
            mode = self.substrate.uplinks.get(uplink)
            if mode != "vepa":
                yield f"uplink {uplink} is in mode {mode}, not vepa"

    def _in_vepa(self, component: PciComponent) -> Iterator[str]:
        """Yield the uplinks of a component's functions that the allow-list puts into VEPA mode."""
        for address in component.bdf:
            device = self.substrate.devices.get(address)
            entry = self._entry(device) if device else None
            if device and device.uplink and entry and entry.vepa:
                yield device.uplink

    def domain_differences(self, tenant: DeviceDomain, name: str | None = None) -> tuple[str, ...]:
        """Tell of the domain what others have done to it."""
        return self._domain_differences(tenant, name)

    def _domain_differences(self, tenant: DeviceDomain, name: str | None) -> tuple[str, ...]:
        server = self.substrate.servers.get(tenant.sliver)
        wanted = name or (server.domain if server else None) or tenant.sliver
        has = self.substrate.renamed.get(tenant.sliver, wanted)
        if has is None:
            return (domain_gone(wanted, self.host),)
        renamed = (domain_renamed(has, wanted),) if has != wanted else ()
        return (*renamed, *map(foreign_function, self.substrate.intruders.get(tenant.sliver, ())))

    def keeps(self, tenant: DeviceDomain, component: str) -> bool:
        """Return whether the server has anything of the component."""
        return any(device.component == component for device in self._has(tenant))

    def free_ports(self, tenant: DeviceDomain) -> int | None:
        """Return how many root ports the substrate leaves to each server."""
        return self.substrate.root_ports - len(self._has(tenant))

    def pending(self, tenant: DeviceDomain) -> bool:
        """Return whether a device waits for a power cycle."""
        return tenant.sliver in self.substrate.pending

    def restart(self, tenant: DeviceDomain, *, timeout: float) -> None:  # noqa: ARG002
        """Complete what waits for a power cycle."""
        self.substrate.pending.discard(tenant.sliver)

    def attach(self, tenant: DeviceDomain, component: PciComponent) -> tuple[PluggedDevice, ...]:
        """Pass the functions through; a server that is not a cloud's must be there."""
        if tenant.domain is None:
            the(self.substrate.servers, tenant.sliver)
        else:
            self.substrate.domains[tenant.sliver] = tenant.domain
        for address in component.bdf:
            self._refuse_claimed(self.substrate.devices[address], tenant.sliver, component.id)
            self._refuse_unclean(address, tenant.sliver, component.id)
        kept, new = self._but(tenant, component.id), _plugged(tenant, component)
        for address in component.bdf:
            self.substrate.own(address, f"{tenant.sliver}/{component.id}")
            self.substrate.records[address] = self._record(tenant, component, address)
        self.substrate.plugged[tenant.sliver] = kept + new
        self.substrate.uplinks.update(dict.fromkeys(self._in_vepa(component), "vepa"))
        if self.cold:
            self.substrate.pending.add(tenant.sliver)
        return new

    def _record(
        self, tenant: DeviceDomain, component: PciComponent, address: PciAddress
    ) -> DeviceRecord:
        function = self.substrate.devices[address].function
        return DeviceRecord(
            address,
            component.type,
            component.model,
            tenant.sliver,
            component.id,
            function.vendor,
            function.product,
        )

    def detach(self, tenant: DeviceDomain, component: str, *, timeout: float) -> None:  # noqa: ARG002
        """Detach the functions."""
        self.substrate.plugged[tenant.sliver] = self._but(tenant, component)
        if self.cold:
            self.substrate.pending.add(tenant.sliver)

    def records(self, sliver_id: str) -> tuple[DeviceRecord, ...]:
        """Return the records of the sliver's devices."""
        return tuple(r for r in self.substrate.records.values() if r.sliver == sliver_id)

    def stamped(self) -> tuple[Stamped, ...]:
        """Return all devices that have a record."""
        return tuple(map(self._stamped, self.substrate.records.values()))

    def _stamped(self, record: DeviceRecord) -> Stamped:
        kind = QUARANTINED if record.quarantined else "device"
        return Stamped(record.sliver, kind, f"{record.address} of {record.component}")

    def write_record(self, record: DeviceRecord) -> None:
        """Record a function; a record that is there stays as it is."""
        self.substrate.records.setdefault(record.address, record)

    def clean(self, record: DeviceRecord) -> None:
        """Remove the record of a device that no server has; refuse a device set as dirty.

        A record that is now another component's, or gone, is left alone.
        """
        self._refuse_held(record.address)
        there = self.substrate.records.get(record.address)
        if there is None or (there.sliver, there.component) != (record.sliver, record.component):
            return
        if record.address in self.substrate.dirty:
            raise DeviceUnclean(f"{record.address} is quarantined")
        self._forget(record.address)

    def release(self, address: PciAddress, *, force: bool) -> None:
        """Remove the record of a device that no server has; that of a dirty one only by force.

        :raises NotFound: if there is neither the device nor a record of it.
        """
        if not {address} & (self.substrate.devices.keys() | self.substrate.records.keys()):
            raise not_there(address, self.host)
        self._refuse_held(address)
        if address in self.substrate.dirty and not force:
            raise DeviceUnclean(f"{address} is quarantined")
        self._forget(address)

    def _refuse_held(self, address: PciAddress) -> None:
        sliver = self._holders().get(address)
        if sliver is not None:
            raise DeviceClaimed(f"{sliver} still has {address}")

    def _forget(self, address: PciAddress) -> None:
        self.substrate.records.pop(address, None)
        if address in self.substrate.devices:
            self.substrate.own(address, None)

    def strange(self, tenant: DeviceDomain) -> tuple[PciAddress, ...]:  # noqa: ARG002
        """Return none: each device of a server in memory is known by its component."""
        return ()

    def refuse_adoption(self, component: PciComponent, tenant: DeviceDomain) -> bool:
        """Raise as :meth:`check` does; return whether the server has all of the device."""
        self.check(component, tenant)
        return set(component.bdf) <= {d.host_address for d in self._has(tenant)}

    def is_adopted(self, component: PciComponent, tenant: DeviceDomain) -> bool:
        """Return whether each function has the record of this component."""
        records, mine = self.substrate.records, (tenant.sliver, component.id)
        there = [records[address] for address in component.bdf if address in records]
        return [(r.sliver, r.component) for r in there] == [mine] * len(component.bdf)

    def adopt(self, component: PciComponent, tenant: DeviceDomain) -> None:
        """Record the functions of a device as the sliver's."""
        about = (component.type, component.model, tenant.sliver, component.id)
        for address in component.bdf:
            ids = self.substrate.devices[address].function
            self.substrate.records[address] = DeviceRecord(address, *about, ids.vendor, ids.product)

    def disown(self, component: PciComponent, tenant: DeviceDomain) -> None:
        """Remove the records of the component's functions."""
        for record in self.records(tenant.sliver):
            if record.component == component.id:
                self.substrate.records.pop(record.address)

    def rescan(self, tenant: DeviceDomain, component: PciComponent, *, timeout: float) -> None:  # noqa: ARG002
        """Do nothing: the device is there."""
        the(self.substrate.plugged, tenant.sliver)

    def _has(self, tenant: DeviceDomain) -> tuple[PluggedDevice, ...]:
        return self.substrate.plugged.get(tenant.sliver, ())

    def _but(self, tenant: DeviceDomain, component: str) -> tuple[PluggedDevice, ...]:
        return tuple(d for d in self._has(tenant) if d.component != component)

    def _refuse_claimed(
        self, device: HostDevice, sliver_id: str, component: str, field: str = ""
    ) -> None:
        had = device.address in self.substrate.records and device.address not in self._holders()
        if not had and device.owner not in {None, f"{sliver_id}/{component}"}:
            raise DeviceClaimed(f"{device.address} belongs to {device.owner}", field=field)

    def _refuse_unclean(
        self, address: PciAddress, sliver_id: str, component: str, field: str = ""
    ) -> None:
        record = self.substrate.records.get(address)
        if record and (record.sliver, record.component) != (sliver_id, component):
            raise DeviceUnclean(f"{address} is not clean after {record.component}", field=field)


class FakeColdDevice(FakeDevice):
    """A fake driver of devices that need a power cycle."""

    cold = True


def _unlike(wanted: PluggedDevice, found: PluggedDevice) -> str:
    if wanted.vlan == found.vlan:
        return f"{wanted.alias} is not so"
    return f"{wanted.alias} has VLAN {found.vlan or 0}, not {wanted.vlan or 0}"


def _plugged(tenant: DeviceDomain, component: PciComponent) -> tuple[PluggedDevice, ...]:
    interface = component.interface if isinstance(component, SharedNic) else None
    macs = [each.mac for each in component.interfaces] if isinstance(component, SmartNic) else []
    settings = VfSettings(max_tx_rate=interface.bandwidth or 0) if interface else None
    return tuple(
        PluggedDevice(
            component.id,
            f"ua-{tenant.sliver}-{component.id}-{number}",
            address,
            mac=interface.mac if interface else next(iter(macs[number:]), None),
            vlan=interface.vlan if interface else None,
            settings=settings,
        )
        for number, address in enumerate(component.bdf)
    )
