"""The devices of slivers: those that servers have, and those that are on record."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from pydantic import TypeAdapter

from fabric_direct.drivers.contract import (
    DeviceDriver,
    DeviceRecord,
    HostDrivers,
    PluggedDevice,
    Server,
)
from fabric_direct.handlers.vm.observe import tenant_of
from fabric_direct.model import PciComponent
from fabric_direct.site.config import Site

_COMPONENT: TypeAdapter[PciComponent] = TypeAdapter(PciComponent)


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


def components_of(records: Iterable[DeviceRecord]) -> Iterator[PciComponent]:
    """Yield the components that the records of a sliver's functions are about."""

    def component(record: DeviceRecord) -> str:
        return record.component

    for name, group in groupby(sorted(records, key=component), key=component):
        first, *others = sorted(group, key=lambda record: record.address)
        yield _COMPONENT.validate_python(
            {
                "type": first.type,
                "id": name,
                "model": first.model,
                "bdf": [record.address for record in (first, *others)],
            }
        )


def as_records(
    drivers: HostDrivers,
    sliver_id: str,
    plugged: Iterable[PluggedDevice],
    records: Iterable[DeviceRecord],
) -> Iterator[DeviceRecord]:
    """Yield a record for each function of a server, whether it has one or not.

    One without a record that the site does not allow is left out: nobody gets it next.
    """
    written = {record.address: record for record in records}
    components = {device.host_address: device.component for device in plugged}
    missing = components.keys() - written.keys()
    for device in drivers.functions() if missing else ():
        kind, function = (device.type or "", device.model, sliver_id, ""), device.function
        if device.type and device.address in missing:
            ids = (function.vendor, function.product)
            written[device.address] = DeviceRecord(device.address, *kind, *ids)
    for address in components.keys() & written.keys():
        yield replace(written[address], component=components[address])


def unrecorded(
    functions: Iterable[DeviceRecord], records: Iterable[DeviceRecord]
) -> tuple[DeviceRecord, ...]:
    """Return the records that functions of a server lack: they are to be cleaned all the same."""
    known = {record.address for record in records}
    return tuple(record for record in functions if record.address not in known)
