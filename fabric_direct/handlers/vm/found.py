"""Components found of a sliver (in the stamp, held for it, or plugged in), and those not wanted."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from fabric_direct.drivers.contract import DeviceRecord, HostDrivers, Port, Server, VolumeDriver
from fabric_direct.errors import NotFound
from fabric_direct.handlers.vm.devices import SliverDevices, components_of, unrecorded
from fabric_direct.handlers.vm.differences import Key, key_of
from fabric_direct.handlers.vm.steps.ports import held_by
from fabric_direct.handlers.vm.steps.volumes import the_volume
from fabric_direct.model import Component, NodeSliver, PciComponent, Storage, VNic
from fabric_direct.site.config import Site

_UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class OtherDisk:
    """A disk that is another volume than its component's own."""

    component: Storage
    source: str
    own: str | None
    """Where its own volume is; None if that is not there."""

    def __str__(self) -> str:
        return f"volume {self.component.id} is {self.source}, not {self.own or 'its own'}"


def other_disks(volumes: VolumeDriver, wanted: NodeSliver, server: Server) -> Iterator[OtherDisk]:
    """Yield the disks that are other volumes than those that are wanted."""
    sources = {disk.component: disk.source for disk in server.volumes}
    for storage in (each for each in wanted.volumes() if each.id in sources):
        own = _source(volumes, server.sliver, storage)
        if sources[storage.id] != own:
            yield OtherDisk(storage, sources[storage.id], own)


def is_volume_there(volumes: VolumeDriver, sliver_id: str, storage: Storage) -> bool:
    """Return whether a component's volume is there, found by itself or among all of the sliver."""
    if _source(volumes, sliver_id, storage) is not None:
        return True
    own = storage.volume is None and volumes.volumes(sliver_id)
    return any(volume.component == storage.id for volume in own or ())


def _source(volumes: VolumeDriver, sliver_id: str, storage: Storage) -> str | None:
    with suppress(NotFound):
        return the_volume(volumes, sliver_id, storage).source
    return None


def by_key(components: Iterable[Component]) -> dict[Key, Component]:
    """Return components by what a server has of them, and their id."""
    return {key_of(component): component for component in components}


def held_for(
    drivers: HostDrivers, sliver_id: str, records: Iterable[DeviceRecord]
) -> dict[Key, Component]:
    """Return what is held for the sliver, whether a server has it or not."""
    volumes = drivers.volume.volumes(sliver_id)
    return by_key(
        [
            *map(vnic_of, drivers.network.ports(sliver_id)),
            # a half-made one has 0 GiB, which no sliver may ask for: it is made anew
            *(Storage.model_construct(id=v.component, size=v.size) for v in volumes),
            *components_of(records),
        ]
    )


@dataclass(frozen=True)
class ServerHoldings:
    """What there is of a sliver that has a server."""

    server: Server
    records: tuple[DeviceRecord, ...]
    """Of its devices, as written down."""
    functions: tuple[DeviceRecord, ...]
    """A record for each that the server has, written down or not."""
    held: Mapping[Key, Component]
    """What is held for the sliver, whether the server has it or not."""

    @classmethod
    def of(cls, site: Site, drivers: HostDrivers, server: Server) -> Self:
        """Read what belongs to a server."""
        devices = SliverDevices(site, drivers)
        records = devices.records(server.sliver)
        functions = devices.functions(server, records)
        return cls(server, records, functions, held_for(drivers, server.sliver, records))

    def there(self) -> dict[Key, Component]:
        """Return what there is: by the stamp, or left by an unfinished operation.

        What is plugged in counts as much as what is held for it, and is told of by less: its network or
        volume is not known, unless something else tells of it.
        """
        plugged = by_key([*plugged_in(self.server), *components_of(self.functions)])
        return {**plugged, **self.held, **by_key(self.server.stamp.sliver.components)}

    def unwanted(self, sliver: NodeSliver) -> list[Component]:
        """Return what is there and not the sliver's."""
        wanted = by_key(sliver.components)
        return [component for key, component in self.there().items() if key not in wanted]

    def misplaced(self, sliver: NodeSliver) -> Iterator[PciComponent]:
        """Yield the devices that are there by the names of wanted ones, but of other functions."""
        wanted = {device.id: set(device.bdf) for device in sliver.devices()}
        for device in components_of(self.functions):
            if not wanted.get(device.id, set(device.bdf)).issuperset(device.bdf):
                yield device

    def unrecorded(self) -> tuple[DeviceRecord, ...]:
        """Return the records that functions lack: they are to be cleaned all the same."""
        return unrecorded(self.functions, self.records)


def in_the_way_of(sliver: NodeSliver, gone: Iterable[Component]) -> Iterator[Component]:
    """Yield what carries the name of a wanted component of another kind: only one can be plugged in."""
    names = {component.id for component in sliver.components}
    return (component for component in gone if component.id in names)


def plugged_in(server: Server) -> Iterator[Component]:
    """Yield the NICs and disks of a server; what they are plugged into is not known."""
    for nic in server.ports:
        yield VNic(id=nic.component, network=_UNKNOWN, interface=nic.interface())
    for disk in server.volumes:
        yield Storage(id=disk.component, volume=_UNKNOWN)


def vnic_of(port: Port) -> VNic:
    """Return the vNIC that a port is held for."""
    return VNic(id=port.component, network=port.network, interface=held_by(port))


def devices_of(components: Iterable[Component]) -> list[PciComponent]:
    """Return those that are PCI devices."""
    return [c for c in components if not isinstance(c, VNic | Storage)]
