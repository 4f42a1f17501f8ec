"""The devices that a host passes through to the server of a sliver, and those it has a record of."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from fabric_direct.drivers.contract import (
    DeviceDriver,
    DeviceRecord,
    HostDrivers,
    PluggedDevice,
    Server,
)
from fabric_direct.handlers.vm.device_records import as_records
from fabric_direct.handlers.vm.observe import tenant_of
from fabric_direct.model import PciComponent
from fabric_direct.site.config import Site


@dataclass(frozen=True)
class SliverDevices:
    """The devices of slivers, as their host has them."""

    site: Site
    drivers: HostDrivers

    def driver(self) -> DeviceDriver | None:
        """Return a driver of devices, on a host that may pass some through; each knows those of all."""
        host = self.drivers.host
        allows = host in self.site.hosts and self.site.passes_devices(host)
        return next(iter(self.drivers.devices.values()), None) if allows else None

    def records(self, sliver_id: str) -> tuple[DeviceRecord, ...]:
        """Return what is written down of the sliver's devices, on a host that may pass some through."""
        driver = self.driver()
        return driver.records(sliver_id) if driver else ()

    def plugged(self, server: Server) -> tuple[PluggedDevice, ...]:
        """Return the functions that the server has."""
        driver = self.driver()
        return driver.plugged(tenant_of(self.drivers, server)) if driver else ()

    def functions(
        self, server: Server, records: Collection[DeviceRecord]
    ) -> tuple[DeviceRecord, ...]:
        """Return a record for each function that the server has, whether it is written down or not.

        Records are read once more if they lack one of these functions.
        """
        plugged = self.plugged(server)
        if {device.host_address for device in plugged} - {record.address for record in records}:
            records = self.records(server.sliver)
        return tuple(as_records(self.drivers, server.sliver, plugged, records))


def cold_driver(drivers: HostDrivers, devices: Iterable[PciComponent]) -> DeviceDriver | None:
    """Return a driver that plugs one of these devices in cold, if any does."""
    return next((driver for driver in map(drivers.device, devices) if driver.cold), None)
