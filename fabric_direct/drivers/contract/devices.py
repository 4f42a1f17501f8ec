"""PCI functions passed through to servers: which are available, attached, to be cleaned."""

from dataclasses import dataclass
from typing import ClassVar, Protocol

from fabric_direct.drivers.contract.pci_functions import HostDevice
from fabric_direct.drivers.contract.uplinks import VfSettings
from fabric_direct.model import PciAddress, PciComponent


@dataclass(frozen=True, slots=True)
class Tenant:
    """The domain that a device is passed through to."""

    sliver: str
    domain: str | None = None
    """libvirt's UUID of the domain, where a cloud made it; None for a domain of our own."""


@dataclass(frozen=True, slots=True)
class PluggedDevice:
    """A PCI function of a server, as found."""

    component: str
    alias: str
    """``ua-<sliver>-<component>-<n>``, the stamp of the device."""
    host_address: PciAddress
    guest_address: PciAddress | None = None
    """Where libvirt put it: bus numbers are those of libvirt's controllers."""
    guest_port: PciAddress | None = None
    """Its root port, whose address is the same in the guest and in libvirt."""
    mac: str | None = None
    vlan: int | None = None
    settings: VfSettings | None = None
    """What the PF enforces on it, if it is a VF of an uplink."""
    bridge_mode: str | None = None
    """Of the uplink, if it is a VF: ``veb`` or ``vepa``."""


@dataclass(frozen=True, slots=True)
class DeviceRecord:
    """Kept of a function from before it is passed through until it is clean again."""

    address: PciAddress
    type: str
    """Resource type of the component."""
    model: str | None
    sliver: str
    component: str
    vendor: str
    product: str
    quarantined: str = ""
    """Why it is quarantined; empty if it is not."""
    baseline: VfSettings | None = None
    """What its PF enforced on it before, if it is a VF."""


class DevicePlugging(Protocol):
    """Finds the devices of servers, and passes devices through to servers."""

    def plugged(self, tenant: Tenant) -> tuple[PluggedDevice, ...]:
        """Return the functions that the sliver's server has by our stamp."""

    def differences(self, component: PciComponent, tenant: Tenant) -> tuple[str, ...]:
        """Return the differences between the device and its component, a sentence each."""

    def keeps(self, tenant: Tenant, component: str) -> bool:
        """Return whether the domain has anything of the component, live or defined.

        Of a cold device only the definition counts: a running domain keeps it until its next start.
        """

    def attach(self, tenant: Tenant, component: PciComponent) -> tuple[PluggedDevice, ...]:
        """Pass all functions of the component through, now (if the domain runs) and for later starts.

        Each function is recorded as in use first. What is there and differs (a VF that was unplugged,
        its settings) is repaired.

        :raises Conflict: as :meth:`DeviceDriver.check` does.
        :raises Unsupported: if the running domain has no free root port.
        """

    def detach(self, tenant: Tenant, component: str, *, timeout: float) -> None:
        """Detach the component's functions; on return the guest has released them.

        :raises TimedOut: if it did not in time. The device is still the sliver's then.
        """

    def rescan(self, tenant: Tenant, component: PciComponent, *, timeout: float) -> None:
        """Detach the device, remove it from the host's bus, rescan the bus, and attach it again.

        :param timeout: seconds that the guest gets to release it.
        :raises Unsupported: if no rescan finds it, or a running guest does not release it.
        :raises NotVerified: if it does not come back on the bus with the same ids.
        """


class DevicePowerCycle(Protocol):
    """Power-cycles a server whose devices change only with its next start."""

    cold: ClassVar[bool]
    """Whether attaching and detaching take effect only with the domain's next start."""

    def pending(self, tenant: Tenant) -> bool:
        """Return whether the running domain gets or loses a device with its next start."""

    def restart(self, tenant: Tenant, *, timeout: float) -> None:
        """Power-cycle the domain from its definition; it runs on return.

        :param timeout: seconds that the guest gets to shut down before it is powered off.
        """


class DeviceCleaning(Protocol):
    """Makes devices fit for the next tenant."""

    def records(self, sliver_id: str) -> tuple[DeviceRecord, ...]:
        """Return the records of the sliver's devices: these are not free yet."""

    def write_record(self, record: DeviceRecord) -> None:
        """Record a function that a server has; a record that is there stays as it is."""

    def clean(self, record: DeviceRecord) -> None:
        """Clean a device that no domain has any more, for the next tenant, and delete its record.

        The settings of a VF are restored, a drive is erased and verified, any other function is reset.

        :raises DeviceClaimed: if a domain still has it.
        :raises DeviceUnclean: if that could not be verified; the device is quarantined then. Also if it
            was quarantined before: only an operator releases it.
        """

    def release(self, address: PciAddress, *, force: bool) -> None:
        """Clean a device again, also a quarantined one, and delete its record.

        :param force: delete the record without cleaning: the operator vouches for the device.
        :raises DeviceClaimed: if a domain still has it.
        :raises DeviceUnclean: if it could not be verified to be clean; it is quarantined then.
        """


class DeviceDriver(DevicePlugging, DevicePowerCycle, DeviceCleaning, Protocol):
    """All that an entry point of ``fabric_direct.devices`` provides; steps use only a part of it."""

    unserved: ClassVar[tuple[str, ...]]
    """Fields of a NIC's interfaces that ``check`` refuses."""

    def inventory(self) -> tuple[HostDevice, ...]:
        """Return the PCI functions of the host, with their states and owners."""

    def check(self, component: PciComponent, tenant: Tenant) -> None:
        """Raise InvalidSliver or Conflict unless the sliver may have the device.

        Functions that the sliver already has are available to it.

        :raises InvalidSliver: if an address is not on the host or not in the allow-list. The field is
            relative to the component, for example ``bdf[0]``.
        :raises DeviceClaimed: if another domain of the host, live or defined, has it, its PF, one of its
            VFs, or another function of its IOMMU group.
        :raises DeviceInUse: if the host itself uses it, or a function of its IOMMU group.
        :raises DeviceUnclean: if it was not cleaned after its last use, or is quarantined.
        """

    def free_ports(self, tenant: Tenant) -> int | None:
        """Return how many more devices fit into the running domain; None if it does not run."""
