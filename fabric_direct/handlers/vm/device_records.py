"""PCI components as they are written down."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby

from pydantic import TypeAdapter

from fabric_direct.drivers.contract import DeviceRecord, HostDrivers, PluggedDevice
from fabric_direct.model import PciComponent

_COMPONENT: TypeAdapter[PciComponent] = TypeAdapter(PciComponent)


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
