"""The drivers that serve one host, for one operation."""

from dataclasses import dataclass, field, replace
from math import inf
from typing import TypeVar

from fabric_direct.calls.deadline import Deadline, bounded
from fabric_direct.calls.read_cache import ReadCache
from fabric_direct.drivers.contract.adoption import AdoptionDriver
from fabric_direct.drivers.contract.compute import ComputeDriver
from fabric_direct.drivers.contract.devices import DeviceDriver, DeviceRecord
from fabric_direct.drivers.contract.guests import GuestDriver
from fabric_direct.drivers.contract.kinds import marks
from fabric_direct.drivers.contract.network_services import ServiceDriver
from fabric_direct.drivers.contract.networks import NetworkDriver
from fabric_direct.drivers.contract.no_driver import unsupported
from fabric_direct.drivers.contract.pci_functions import HostDevice
from fabric_direct.drivers.contract.tuning import TuningDriver
from fabric_direct.drivers.contract.uplinks import UplinkDriver
from fabric_direct.drivers.contract.volumes import VolumeDriver
from fabric_direct.errors import Unsupported
from fabric_direct.model import PciComponent

D = TypeVar("D")


@dataclass(frozen=True, slots=True)
class HostDrivers:
    """The drivers that serve one host, or a cloud and the host that it chose."""

    host: str
    """Empty while a cloud has not chosen one."""
    compute: ComputeDriver
    network: NetworkDriver
    volume: VolumeDriver
    tuning: TuningDriver | None = None
    """None where the host's libvirt is not known to the site, or no driver is named."""
    guest: GuestDriver | None = None
    """None where the site does not look into its guests (``guest: none``)."""
    node_guest: GuestDriver | None = None
    """For the systems of bare-metal nodes; None where the site logs in to none."""
    adoption: AdoptionDriver | None = None
    """None where servers of others cannot be adopted."""
    uplink: UplinkDriver | None = None
    """None where the site does not know the host, or names no driver."""
    services: dict[str, ServiceDriver] = field(default_factory=dict)
    """Of network services, switches and bare-metal nodes, by resource type; one driver may serve
    several."""
    devices: dict[str, DeviceDriver] = field(default_factory=dict)
    """By resource type, ``Type_Model`` or ``Type``; one driver may serve several."""
    known: bool = True
    """Whether the site knows the host."""
    has_volumes: bool = True
    """Whether a driver makes volumes."""
    deadline: Deadline = field(default_factory=lambda: Deadline(inf))
    """When the operation that they are used for ends."""
    reads: ReadCache = field(default_factory=ReadCache)
    """Answers that they share until something is changed."""

    def device(self, component: PciComponent | DeviceRecord) -> DeviceDriver:
        """Return the driver for a device, by ``Type_Model`` or else ``Type``.

        :raises Unsupported: if the host has none.
        """
        key = f"{component.type}_{component.model}"
        found = self.devices.get(key, self.devices.get(component.type))
        if found is None:
            raise self.unsupported(f"no {component.type} can be passed through", component.type)
        return found

    def unsupported(self, what: str, key: str) -> Unsupported:
        """Return the error that the host has no driver of a kind.

        :param what: what cannot be done.
        :param key: the key of ``drivers`` in site.yaml that would name the driver.
        """
        if self.known:
            return unsupported(what, key, self.host)
        return Unsupported(
            what,
            where=self.host,
            why="the site does not know the libvirt of the host",
            remedy="name the host in the sliver and below hosts in site.yaml",
        )

    def functions(self) -> tuple[HostDevice, ...]:
        """Return the host's PCI functions; each of its device drivers lists all of them.

        Empty where the site does not know the host's libvirt.
        """
        return next((driver.inventory() for driver in self.devices.values()), ())

    def within(
        self,
        deadline: Deadline,
        limit: float,
        reads: ReadCache | None = None,
        *,
        guest_limit: float | None = None,
    ) -> "HostDrivers":
        """Return the same drivers for one operation.

        Each call ends by ``limit`` seconds and the deadline, and all share one read cache. A guest may
        be slow: calls of its driver end by ``guest_limit`` seconds, if that is given. What a cloud
        builds takes as long as it takes, and so do a network service, a whole machine and the erasing
        of a drive: calls of these drivers end by the deadline, each of their requests by a limit of its
        own.
        """
        reads = reads or ReadCache()

        def limited(driver: D, kind: str, limit: float = limit) -> D:
            return bounded(
                driver, kind, deadline, limit, reading=marks(kind), reads=reads, host=self.host
            )

        patient = inf if self.compute.cloud else limit
        services = {id(d): limited(d, "service", inf) for d in self.services.values()}
        cleaning = {id(d): limited(d, "device", inf) for d in self.devices.values()}
        return replace(
            self,
            compute=limited(self.compute, "compute", patient),
            network=limited(self.network, "network", patient),
            volume=limited(self.volume, "volume", patient),
            tuning=self.tuning and limited(self.tuning, "tuning"),
            guest=self.guest and limited(self.guest, "guest", guest_limit or limit),
            node_guest=self.node_guest and limited(self.node_guest, "guest", guest_limit or limit),
            adoption=self.adoption and limited(self.adoption, "adoption", patient),
            services={kind: services[id(d)] for kind, d in self.services.items()},
            uplink=self.uplink and limited(self.uplink, "uplink"),
            devices={kind: cleaning[id(d)] for kind, d in self.devices.items()},
            deadline=deadline,
            reads=reads,
        )
