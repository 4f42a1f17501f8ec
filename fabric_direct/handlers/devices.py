"""PCI components as they are written down."""

from collections.abc import Iterable, Iterator
from itertools import groupby

from pydantic import TypeAdapter

from fabric_direct.drivers.contract import DeviceRecord
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
