"""The PCI functions of a host as a tree: NUMA nodes, buses, slots, functions, VFs."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from fabric_direct.drivers.contract import HostDevice
from fabric_direct.engine.run import attempt
from fabric_direct.model import PciAddress
from fabric_direct.topology.reader import SiteReader
from fabric_direct.topology.values import (
    Belonging,
    Bus,
    Function,
    HostTopology,
    NumaBuses,
    Slot,
)

_WORTH = ("01", "02", "03", "0b", "12")
"""PCI classes that an operator may pass through, or wonders about: storage, networks, displays,
processors, accelerators. Of others, only those that are allowed or have an owner are shown."""
Key = TypeVar("Key")


def host_topology(reader: SiteReader, host: str) -> HostTopology:
    """Return the PCI functions of a host with their owners.

    A host that does not answer is returned as silent.

    :raises NotFound: if the site has no such host.
    """
    site = reader.site
    maintenance = site.host(host).maintenance
    found = attempt(reader.devices, host)
    if isinstance(found, Exception):
        return HostTopology(site=site.site, host=host, maintenance=maintenance, silent=str(found))
    shown = [device for device in found if _is_shown(device)]
    return HostTopology(
        site=site.site,
        host=host,
        maintenance=maintenance,
        nodes=tuple(_nodes(shown)),
        belongings=tuple(_belongings(shown)),
        states=Counter(device.state.value for device in shown),
        others=len(found) - len(shown),
    )


def _is_shown(device: HostDevice) -> bool:
    kind = device.function.kind
    return bool(device.type or device.owner or not kind or kind.startswith(_WORTH))


def _nodes(devices: Iterable[HostDevice]) -> Iterator[NumaBuses]:
    """Yield the NUMA nodes by number; the devices on none come last."""
    by_address = {device.address: device for device in devices}
    vfs = {a for device in by_address.values() for a in device.function.virtual} & by_address.keys()
    alone = [device for address, device in sorted(by_address.items()) if address not in vfs]
    for number, there in sorted(_by(alone, _numa).items()):
        buses = _by(there, lambda device: (device.address.domain, device.address.bus))
        of_node = tuple(_bus(those, by_address) for _, those in sorted(buses.items()))
        yield NumaBuses(number=None if number == _NOWHERE else number, buses=of_node)


_NOWHERE = 1 << 31


def _numa(device: HostDevice) -> int:
    return _NOWHERE if device.function.numa_node is None else device.function.numa_node


def _bus(devices: list[HostDevice], by_address: Mapping[PciAddress, HostDevice]) -> Bus:
    first = devices[0]
    slots = _by(devices, lambda device: device.address.slot_address)
    return Bus(
        name=str(first.address).rpartition(":")[0],
        bridge=first.function.bridge,
        slots=tuple(
            Slot(functions=tuple(_function(device, by_address) for device in there))
            for there in slots.values()
        ),
    )


def _function(device: HostDevice, by_address: Mapping[PciAddress, HostDevice]) -> Function:
    there = (by_address[a] for a in device.function.virtual if a in by_address)
    return Function(device=device, vfs=tuple(there))


def _belongings(devices: Iterable[HostDevice]) -> Iterator[Belonging]:
    """Yield the owners by name, each with the functions of each of its components."""
    owned = [device for device in devices if device.owner]
    for owner, those in sorted(_by(owned, lambda device: str(device.owner)).items()):
        sliver, _, component = owner.partition("/")
        addresses = tuple(sorted(device.address for device in those))
        yield Belonging(owner=sliver, component=component, addresses=addresses)


def _by(
    devices: Iterable[HostDevice], key: Callable[[HostDevice], Key]
) -> dict[Key, list[HostDevice]]:
    found: dict[Key, list[HostDevice]] = {}
    for device in devices:
        found.setdefault(key(device), []).append(device)
    return found
