"""The steps that make, plug in, unplug and remove the components of a sliver."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fabric_direct.drivers.contract import DeviceDomain, DeviceRecord, HostDrivers
from fabric_direct.engine.step import Step
from fabric_direct.handlers.vm.devices import cold_driver
from fabric_direct.handlers.vm.differences import Key
from fabric_direct.handlers.vm.observe import tenant_now
from fabric_direct.handlers.vm.steps.devices import (
    AttachDevice,
    CleanDevice,
    DetachDevice,
    PowerCycle,
    RecordDevice,
)
from fabric_direct.handlers.vm.steps.networks import RemoveUnused
from fabric_direct.handlers.vm.steps.ports import (
    HoldFloatingIp,
    HoldPort,
    PlugPort,
    ReleasePort,
    ReplugPort,
    SliverPorts,
    UnplugPort,
)
from fabric_direct.handlers.vm.steps.volumes import (
    MakeVolume,
    PlugVolume,
    RemoveVolume,
    UnplugVolume,
)
from fabric_direct.model import Component, NodeSliver, PciComponent, Storage, VNic


@dataclass(frozen=True)
class ComponentSteps:
    """The steps of stages that are about components of one sliver.

    :param detach: seconds that the guest gets to release what is taken from it.
    """

    drivers: HostDrivers
    sliver: NodeSliver
    detach: float

    def ports(self, vnics: Iterable[VNic]) -> list[Step]:
        """Return the steps that hold the ports of vNICs."""
        return [HoldPort(self.drivers.network, self.sliver.id, vnic) for vnic in vnics]

    def new_ports(self) -> tuple[list[Step], list[Step]]:
        """Return the steps that hold the ports of a new server, and those that it does not wait for.

        The second ones give the ports their floating IPs. A port that is there is held with its own.
        """
        network, sliver = self.drivers.network, self.sliver.id
        there = {port.component for port in network.ports(sliver)}
        later = [v for v in self.sliver.vnics() if v.interface.floating_ip and v.id not in there]
        floating = {vnic.id: _without_floating_ip(vnic) for vnic in later}
        held = [floating.get(vnic.id, vnic) for vnic in self.sliver.vnics()]
        return self.ports(held), [HoldFloatingIp(network, sliver, vnic.id) for vnic in later]

    def volumes(self) -> list[Step]:
        """Return the steps that make the sliver's own volumes."""
        own = [storage for storage in self.sliver.volumes() if storage.size is not None]
        return [MakeVolume(self.drivers.volume, self.sliver.id, storage) for storage in own]

    def plugs(self) -> list[Step]:
        """Return the steps that plug in NICs and volumes."""
        compute, volumes, nics = self.drivers.compute, self.drivers.volume, self._nics()
        return [
            *(PlugPort(nics, vnic) for vnic in self.sliver.vnics()),
            *(
                PlugVolume(compute, volumes, self.sliver.id, storage, self.detach)
                for storage in self.sliver.volumes()
            ),
        ]

    def attachments(self, was: NodeSliver | None = None) -> list[Step]:
        """Return the steps that attach devices; ``was`` is the sliver before, if any."""
        former = {c.id: c for c in was.devices()} if was else {}
        device = self.drivers.device
        return [
            AttachDevice(device(c), self._tenant, c, self.detach, former.get(c.id))
            for c in self.sliver.devices()
        ]

    def power_cycle(self, devices: Iterable[PciComponent], name: str = "power cycle") -> list[Step]:
        """Return the step by which devices that are plugged in cold become the guest's."""
        cold = cold_driver(self.drivers, devices)
        return [PowerCycle(cold, self._tenant, self.detach, name)] if cold else []

    def unplug_changed(self, there: Mapping[Key, Component], vnics: Iterable[VNic]) -> list[Step]:
        """Return the steps that unplug those of these vNICs that are there otherwise."""
        changes = ((there["vNIC", vnic.id], vnic) for vnic in vnics)
        return [
            ReplugPort(self._nics(), was=was, wanted=vnic)
            for was, vnic in changes
            if isinstance(was, VNic)
        ]

    def unplug(self, component: Component) -> Step:
        """Return the step that takes a component from the server."""
        compute, volumes = self.drivers.compute, self.drivers.volume
        if isinstance(component, VNic):
            return UnplugPort(self._nics(), component)
        if isinstance(component, Storage):
            return UnplugVolume(compute, volumes, self.sliver.id, component, self.detach)
        return DetachDevice(self.drivers.device(component), self._tenant, component, self.detach)

    def removals(self, there: Iterable[Component], records: Iterable[DeviceRecord]) -> list[Step]:
        """Return what removes all that is there, held or recorded, and is not the sliver's as it is."""
        there, sliver = tuple(there), self.sliver
        nics = {c.id for c in there if isinstance(c, VNic)} - {vnic.id for vnic in sliver.vnics()}
        own = {(c.id, c.size) for c in there if isinstance(c, Storage) and c.size is not None}
        disks = {name for name, _ in own - {(s.id, s.size) for s in sliver.volumes()}}
        functions = {(d.id, address) for d in sliver.devices() for address in d.bdf}
        surplus = (r for r in records if (r.component, r.address) not in functions)
        return [
            *(ReleasePort(self.drivers.network, sliver.id, name) for name in sorted(nics)),
            *(RemoveVolume(self.drivers.volume, sliver.id, name) for name in sorted(disks)),
            *clean(self.drivers, surplus),
        ]

    def _nics(self) -> SliverPorts:
        drivers = self.drivers
        return SliverPorts(drivers.compute, drivers.network, self.sliver.id, self.detach)

    def _tenant(self) -> DeviceDomain:
        return tenant_now(self.drivers, self.sliver.id)


def _without_floating_ip(vnic: VNic) -> VNic:
    interface = vnic.interface.model_copy(update={"floating_ip": False})
    return vnic.model_copy(update={"interface": interface})


def record(drivers: HostDrivers, records: Iterable[DeviceRecord]) -> list[Step]:
    """Return the steps that write records down."""
    return [RecordDevice(drivers.device(each), each) for each in records]


def clean(drivers: HostDrivers, records: Iterable[DeviceRecord]) -> list[Step]:
    """Return the steps that clean the functions that records are about."""
    return [CleanDevice(drivers.device(each), each) for each in records]


def remove_unused(drivers: HostDrivers, networks: tuple[str, ...]) -> list[Step]:
    """Return the step that removes networks that nobody uses, if there are any."""
    return [RemoveUnused(drivers.network, networks)] if networks else []
