"""PCI devices in memory."""

from dataclasses import replace
from typing import ClassVar

from fabric_direct.config import AllowedDevice, FakeHost
from fabric_direct.drivers.contract import (
    DeviceRecord,
    HostDevice,
    PluggedDevice,
    Tenant,
    VfSettings,
)
from fabric_direct.drivers.contract.fields import refuse_nic_fields
from fabric_direct.drivers.contract.site_checks import refuse_absent, refuse_disallowed
from fabric_direct.drivers.fake.inventory import given
from fabric_direct.drivers.fake.substrate import Fake, the
from fabric_direct.errors import DeviceClaimed, DeviceUnclean
from fabric_direct.model import DeviceState, PciAddress, PciComponent, SharedNic, SmartNic


class FakeDevice(Fake):
    """A :class:`~fabric_direct.drivers.contract.DeviceDriver` in memory."""

    kind = "device"
    cold: ClassVar[bool] = False
    unserved: ClassVar[tuple[str, ...]] = ("bandwidth",)

    def inventory(self) -> tuple[HostDevice, ...]:
        """Return the substrate's devices as they are now."""
        plugged = {p.host_address for has in self.substrate.plugged.values() for p in has}
        return tuple(self._now(device, plugged) for device in self.substrate.devices.values())

    def _now(self, device: HostDevice, plugged: set[PciAddress]) -> HostDevice:
        """Return a device with its current state and its uplink's bridge mode.

        :param plugged: the functions that servers have.
        """
        mode = device.bridge_mode or self.substrate.uplinks.get(device.uplink or "")
        return replace(device, state=self._state(device, plugged), bridge_mode=mode)

    def _state(self, device: HostDevice, plugged: set[PciAddress]) -> DeviceState:
        if device.address in plugged:
            return DeviceState.USED
        if device.address in self.substrate.records:
            return DeviceState.UNCLEAN
        return device.state if self._entry(device) or device.owner else DeviceState.NOT_ALLOWED

    def _allow_list(self) -> tuple[AllowedDevice, ...]:
        """Return the site's list or, where it has none, what ``fake.hosts`` gives the host."""
        listed = self.site.hosts[self.host].devices if self.host in self.site.hosts else ()
        return listed or given(self.site.fake.hosts.get(self.host, FakeHost()))

    def _entry(self, device: HostDevice) -> AllowedDevice | None:
        """Return the entry of the allow-list that names a device, if one does."""
        for entry in self._allow_list():
            if device.address == entry.bdf or (device.uplink or "") == entry.uplink:
                return entry
        return None

    def check(self, component: PciComponent, tenant: Tenant) -> None:
        """Refuse a device that is not in the substrate, not allowed, or another sliver's."""
        refuse_nic_fields(component, self.unserved)
        for number, address in enumerate(component.bdf):
            field = f"bdf[{number}]"
            refuse_absent(address in self.substrate.devices, address, self.host, field)
            device = self.substrate.devices[address]
            refuse_disallowed(component, address, self._entry(device), self.host, field)
            self._refuse_claimed(device, tenant.sliver, component.id, field)
            self._refuse_unclean(address, tenant.sliver, component.id, field)

    def plugged(self, tenant: Tenant) -> tuple[PluggedDevice, ...]:
        """Return the functions that the server has."""
        return self._has(tenant)

    def differences(self, component: PciComponent, tenant: Tenant) -> tuple[str, ...]:
        """Compare what the server has with the component."""
        there = self._has(tenant)
        return tuple(f"{d.alias} is not so" for d in _plugged(tenant, component) if d not in there)

    def keeps(self, tenant: Tenant, component: str) -> bool:
        """Return whether the server has anything of the component."""
        return any(device.component == component for device in self._has(tenant))

    def free_ports(self, tenant: Tenant) -> int | None:
        """Return how many root ports the substrate leaves to each server."""
        return self.substrate.root_ports - len(self._has(tenant))

    def pending(self, tenant: Tenant) -> bool:
        """Return whether a device waits for a power cycle."""
        return tenant.sliver in self.substrate.pending

    def restart(self, tenant: Tenant, *, timeout: float) -> None:  # noqa: ARG002
        """Complete what waits for a power cycle."""
        self.substrate.pending.discard(tenant.sliver)

    def attach(self, tenant: Tenant, component: PciComponent) -> tuple[PluggedDevice, ...]:
        """Pass the functions through; a server that is not a cloud's must be there."""
        if tenant.domain is None:
            the(self.substrate.servers, tenant.sliver)
        for address in component.bdf:
            self._refuse_claimed(self.substrate.devices[address], tenant.sliver, component.id)
            self._refuse_unclean(address, tenant.sliver, component.id)
        kept, new = self._but(tenant, component.id), _plugged(tenant, component)
        for address in component.bdf:
            self.substrate.own(address, f"{tenant.sliver}/{component.id}")
            self.substrate.records[address] = self._record(tenant, component, address)
        self.substrate.plugged[tenant.sliver] = kept + new
        if self.cold:
            self.substrate.pending.add(tenant.sliver)
        return new

    def _record(self, tenant: Tenant, component: PciComponent, address: PciAddress) -> DeviceRecord:
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

    def detach(self, tenant: Tenant, component: str, *, timeout: float) -> None:  # noqa: ARG002
        """Detach the functions."""
        self.substrate.plugged[tenant.sliver] = self._but(tenant, component)
        if self.cold:
            self.substrate.pending.add(tenant.sliver)

    def records(self, sliver_id: str) -> tuple[DeviceRecord, ...]:
        """Return the records of the sliver's devices."""
        return tuple(r for r in self.substrate.records.values() if r.sliver == sliver_id)

    def write_record(self, record: DeviceRecord) -> None:
        """Record a function; a record that is there stays as it is."""
        self.substrate.records.setdefault(record.address, record)

    def clean(self, record: DeviceRecord) -> None:
        """Remove the record of a device that no server has; refuse a device set as dirty."""
        for device in self.substrate.plugged.get(record.sliver, ()):
            if device.host_address == record.address:
                raise DeviceClaimed(f"{record.sliver} still has {record.address}")
        if record.address in self.substrate.dirty:
            raise DeviceUnclean(f"{record.address} is quarantined")
        self._forget(record.address)

    def release(self, address: PciAddress, *, force: bool) -> None:
        """Remove the record of a device; that of a dirty one only by force."""
        if address in self.substrate.dirty and not force:
            raise DeviceUnclean(f"{address} is quarantined")
        self._forget(address)

    def _forget(self, address: PciAddress) -> None:
        self.substrate.records.pop(address, None)
        self.substrate.own(address, None)

    def rescan(self, tenant: Tenant, component: PciComponent, *, timeout: float) -> None:  # noqa: ARG002
        """Do nothing: the device is there."""
        the(self.substrate.plugged, tenant.sliver)

    def _has(self, tenant: Tenant) -> tuple[PluggedDevice, ...]:
        return self.substrate.plugged.get(tenant.sliver, ())

    def _but(self, tenant: Tenant, component: str) -> tuple[PluggedDevice, ...]:
        return tuple(d for d in self._has(tenant) if d.component != component)

    @staticmethod
    def _refuse_claimed(
        device: HostDevice, sliver_id: str, component: str, field: str = ""
    ) -> None:
        if device.owner not in {None, f"{sliver_id}/{component}"}:
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


def _plugged(tenant: Tenant, component: PciComponent) -> tuple[PluggedDevice, ...]:
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
