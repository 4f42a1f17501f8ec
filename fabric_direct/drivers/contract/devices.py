"""PCI functions passed through to servers: which are available, attached, to be cleaned."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar, Protocol

from fabric_direct.calls.reading import reads
from fabric_direct.drivers.contract.changes import Hearing, Tell
from fabric_direct.drivers.contract.pci_functions import HostDevice
from fabric_direct.drivers.contract.stamped import StampFinder
from fabric_direct.drivers.contract.uplinks import VfSettings
from fabric_direct.errors import NotFound
from fabric_direct.model import PciAddress, PciComponent

UNREADABLE = "cannot be read"


@dataclass(frozen=True, slots=True)
class DeviceDomain:
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
    adopted: bool = False
    """Whether others plugged it in: it has no alias of ours, and is known by its address and record."""


@dataclass(frozen=True, slots=True)
class AdoptedFunction:
    """The identification of a PCI function that others plugged in, without an alias of ours."""

    alias: str
    """The alias that it would have."""
    domain: str
    """libvirt's UUID of the domain that had it when it was adopted."""


@dataclass(frozen=True, slots=True)
class Belongings:
    """The devices of a host that a sliver should have."""

    tenant: DeviceDomain
    domain: str | None
    """Name of its domain where a cloud made it; None if the cloud does not tell."""
    components: tuple[PciComponent, ...]


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
    """Why it is quarantined; empty if it is not. It ends with ``UNREADABLE`` if no cleaning failed, but
    what is written of it cannot be read."""
    baseline: VfSettings | None = None
    """What its PF enforced on it before, if it is a VF; of an adopted one, what is safe."""
    adopted: AdoptedFunction | None = None
    """Of a function that others plugged in."""


class DeviceDriver(StampFinder, Protocol):
    """Finds the PCI functions of a host, passes them through to servers, and cleans them.

    An entry point of ``fabric_direct.devices`` provides it.
    """

    cold: ClassVar[bool]
    """Whether attaching and detaching take effect only with the domain's next start."""
    unserved: ClassVar[tuple[str, ...]]
    """Fields of a NIC's interfaces that ``check`` refuses."""

    @reads
    def listen(self, tell: Tell, hearing: Hearing) -> None:
        """Tell of changes of the host's domains, as a ``ChangeSource``.

        :raises FabricDirectError: if it cannot hear, or hears nothing any more.
        """

    @reads
    def inventory(self) -> tuple[HostDevice, ...]:
        """Return the PCI functions of the host, with their states and owners."""

    @reads
    def check(self, component: PciComponent, tenant: DeviceDomain) -> None:
        """Raise InvalidSliver or Conflict unless the sliver may have the device.

        Functions that the sliver already has are available to it.

        :raises InvalidSliver: if an address is not on the host or not in the allow-list. The field is
            relative to the component, for example ``bdf[0]``.
        :raises DeviceClaimed: if another domain of the host, live or defined, has it, its PF, one of its
            VFs, or another function of its IOMMU group.
        :raises DeviceInUse: if the host itself uses it, or a function of its IOMMU group.
        :raises DeviceUnclean: if it was not cleaned after its last use, or is quarantined.
        """

    @reads
    def free_ports(self, tenant: DeviceDomain) -> int | None:
        """Return how many more devices fit into the running domain; None if it does not run."""

    @reads
    def plugged(self, tenant: DeviceDomain) -> tuple[PluggedDevice, ...]:
        """Return the functions that the sliver's server has by this site's stamp."""

    @reads
    def differences(self, component: PciComponent, tenant: DeviceDomain) -> tuple[str, ...]:
        """Return the differences between the device and its component, a sentence each."""

    @reads
    def domain_differences(self, tenant: DeviceDomain, name: str | None = None) -> tuple[str, ...]:
        """Return how others have changed the sliver's domain, a sentence each.

        It is gone or was renamed, or has PCI functions that are not ours.

        :param name: the domain's name where a cloud made it; None if the cloud does not tell.
        """

    @reads
    def survey(self, belongings: Collection[Belongings]) -> dict[str, tuple[str, ...]]:
        """Return the differences of each sliver's domain and devices, reading the host once for all."""

    @reads
    def keeps(self, tenant: DeviceDomain, component: str) -> bool:
        """Return whether the domain has anything of the component, live or defined.

        Of a cold device only the definition counts: a running domain keeps it until its next start.
        """

    def attach(self, tenant: DeviceDomain, component: PciComponent) -> tuple[PluggedDevice, ...]:
        """Pass all functions of the component through, now (if the domain runs) and for later starts.

        Each function is recorded as in use first. What is there and differs (a VF that was unplugged,
        its settings) is repaired.

        :raises Conflict: as :meth:`DeviceDriver.check` does.
        :raises Unsupported: if the running domain has no free root port.
        """

    def detach(self, tenant: DeviceDomain, component: str, *, timeout: float) -> None:
        """Detach the component's functions; on return the guest has released them.

        :raises TimedOut: if it did not in time. The device is still the sliver's then.
        """

    def rescan(self, tenant: DeviceDomain, component: PciComponent, *, timeout: float) -> None:
        """Detach the device, remove it from the host's bus, rescan the bus, and attach it again.

        :param timeout: seconds that the guest gets to release it.
        :raises Unsupported: if no rescan finds it, or a running guest does not release it.
        :raises NotVerified: if it does not come back on the bus with the same ids.
        """

    @reads
    def pending(self, tenant: DeviceDomain) -> bool:
        """Return whether the running domain gets or loses a device with its next start."""

    def restart(self, tenant: DeviceDomain, *, timeout: float) -> None:
        """Power-cycle the domain from its definition; it runs on return.

        :param timeout: seconds that the guest gets to shut down before it is powered off.
        """

    @reads
    def records(self, sliver_id: str) -> tuple[DeviceRecord, ...]:
        """Return the records of the sliver's devices: these are not free yet."""

    def write_record(self, record: DeviceRecord) -> None:
        """Record a function that a server has; a record that is there stays as it is."""

    def clean(self, record: DeviceRecord) -> None:
        """Clean a device that no domain has any more, for the next tenant, and delete its record.

        The settings of a VF are restored, a drive is erased and verified, any other function is reset.
        A device whose record is by now another sliver's or component's is left alone.

        :raises DeviceClaimed: if a domain still has it.
        :raises DeviceUnclean: if that could not be verified; the device is quarantined then. Also if it
            was quarantined before: only an operator releases it.
        """

    def release(self, address: PciAddress, *, force: bool) -> None:
        """Clean a device again, also a quarantined one, and delete its record.

        Whether the stamp of a server names it is not looked at: ``HandlerProcessor.release`` does.

        :param force: delete the record without cleaning: the operator vouches for the device.
        :raises NotFound: if the host has neither the function nor a record of it.
        :raises DeviceClaimed: if a domain still has it.
        :raises DeviceUnclean: if it could not be verified to be clean; it is quarantined then.
        """

    @reads
    def strange(self, tenant: DeviceDomain) -> tuple[PciAddress, ...]:
        """Return the functions of the tenant's domain without this site's stamp and record."""

    @reads
    def refuse_adoption(self, component: PciComponent, tenant: DeviceDomain) -> bool:
        """Raise unless the sliver may adopt the device; return whether the domain has all of it.

        :raises InvalidSliver: if an address is not on the host, or not in the allow-list.
        :raises NotOurs: if the device carries the stamp, or has the record, of another sliver.
        :raises DeviceClaimed: if another domain has it.
        :raises DeviceInUse: if no domain has it, and the host uses it.
        :raises DeviceUnclean: if it is quarantined.
        """

    @reads
    def is_adopted(self, component: PciComponent, tenant: DeviceDomain) -> bool:
        """Return whether each function of the device has the record of this component."""

    def adopt(self, component: PciComponent, tenant: DeviceDomain) -> None:
        """Record the functions of a device as the sliver's; the domain is not touched.

        What their PF enforced on VFs before is not known: they are cleaned to a safe baseline.
        """

    def disown(self, component: PciComponent, tenant: DeviceDomain) -> None:
        """Remove the records that :meth:`adopt` wrote; the devices are as they were found."""


def not_there(address: PciAddress, host: str) -> NotFound:
    """Return the error of a release where there is nothing to release."""
    return NotFound(f"there is no PCI function {address}, and no record of one", where=host)


def domain_gone(name: str, host: str) -> str:
    """Return the difference that a server has no domain."""
    return f"there is no domain {name} on {host}"


def domain_renamed(found: str, wanted: str) -> str:
    """Return the difference that a domain was renamed."""
    return f"its domain is named {found}, not {wanted}"


def foreign_function(address: PciAddress) -> str:
    """Return the difference that others passed a function through to a domain."""
    return f"its domain has {address}, which others passed through"
