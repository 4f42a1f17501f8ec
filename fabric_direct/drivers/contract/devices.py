"""PCI functions, who has them, and the driver that passes them through."""

from dataclasses import dataclass
from typing import ClassVar, Protocol

from fabric_direct.drivers.contract.uplinks import VfSettings
from fabric_direct.model import DeviceState, PciAddress, PciComponent


@dataclass(frozen=True, slots=True)
class PciFunction:
    """A PCI function as the host's kernel shows it."""

    address: PciAddress
    vendor: str
    """Four hexadecimal digits, as is ``product``."""
    product: str
    kind: str = ""
    """The class code, six hexadecimal digits: ``010802`` is an NVMe controller."""
    label: str = ""
    """Vendor and product in words, where the host knows them."""
    driver: str | None = None
    iommu_group: int | None = None
    numa_node: int | None = None
    physical: PciAddress | None = None
    """Its PF, if it is a VF."""
    vf: int | None = None
    """Its number among the VFs of its PF."""
    virtual: tuple[PciAddress, ...] = ()
    """Its VFs by number, if it is a PF."""
    links: tuple[str, ...] = ()
    """Names of the network interfaces that the host has of it."""
    link_up: bool | None = None
    """Whether one of these has a carrier."""
    uses: tuple[str, ...] = ()
    """What the host itself uses it for, a sentence each: ``nvme0n1 is mounted on /srv``."""
    alive: bool = True
    """Whether its configuration space answers (a vendor of ``ffff`` is none)."""


@dataclass(frozen=True, slots=True)
class HostDevice:
    """A PCI function of a host, and whether it may be passed through."""

    function: PciFunction
    state: DeviceState
    why: str = ""
    """The reason of the state, where there is one to tell."""
    peers: tuple[PciAddress, ...] = ()
    """The other functions of its IOMMU group, bridges left out."""
    type: str | None = None
    """Resource type by the allow-list."""
    model: str | None = None
    """Model by the allow-list, if it names one."""
    owner: str | None = None
    """``<sliver>/<component>`` or the name of a domain that is not ours."""
    uplink: str | None = None
    """Of a VF: the network interface of its PF."""
    bridge_mode: str | None = None
    """Of the uplink: ``veb`` or ``vepa``; None if it has no such mode."""

    @property
    def address(self) -> PciAddress:
        """Where it is on the host."""
        return self.function.address


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
    """The root port that it hangs on, whose address the guest sees as libvirt does."""
    mac: str | None = None
    vlan: int | None = None
    settings: "VfSettings | None" = None
    """What the PF enforces on it, if it is a VF of an uplink."""
    bridge_mode: str | None = None
    """Of the uplink, if it is a VF: ``veb`` or ``vepa``."""


@dataclass(frozen=True, slots=True)
class DeviceRecord:
    """What is written down of a function from before it is passed through until it is clean again."""

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
    baseline: "VfSettings | None" = None
    """What the PF enforced on it before, if it is a VF."""


class DeviceDriver(Protocol):
    """PCI functions passed through to servers."""

    cold: ClassVar[bool]
    """Whether a device becomes the guest's, or the host's again, only with the domain's next start."""

    def inventory(self) -> tuple[HostDevice, ...]:
        """Return the PCI functions of the host, with their states and owners."""

    def check(self, component: PciComponent, tenant: Tenant) -> None:
        """Return if the sliver may have the device.

        What the sliver has of it already is not taken.

        :raises InvalidSliver: if an address is not on the host or not in the allow-list. The field is
            relative to the component, for example ``bdf[0]``.
        :raises DeviceClaimed: if another domain of the host, live or defined, has it, its PF, one of its
            VFs, or another function of its IOMMU group.
        :raises DeviceInUse: if the host itself uses it, or a function of its IOMMU group.
        :raises DeviceUnclean: if it was not cleaned after its last use, or is quarantined.
        """

    def plugged(self, tenant: Tenant) -> tuple[PluggedDevice, ...]:
        """Return the functions that the sliver's server has by our stamp."""

    def differences(self, component: PciComponent, tenant: Tenant) -> tuple[str, ...]:
        """Say where the device is not what the component wants, a sentence each."""

    def keeps(self, tenant: Tenant, component: str) -> bool:
        """Return whether the domain has anything of the component, live or defined.

        Of a cold device what is defined counts: until its next start the domain has it still.
        """

    def free_ports(self, tenant: Tenant) -> int | None:
        """Return how many more devices fit into the running domain; None if it does not run."""

    def pending(self, tenant: Tenant) -> bool:
        """Return whether the running domain gets or loses a device with its next start."""

    def restart(self, tenant: Tenant, *, timeout: float) -> None:
        """Power-cycle the domain, as it is defined; it runs on return.

        :param timeout: seconds that the guest gets to shut down before it is forced to.
        """

    def rescan(self, tenant: Tenant, component: PciComponent, *, timeout: float) -> None:
        """Take the device from the guest and from the host's bus, find it again, and give it back.

        :param timeout: seconds that the guest gets to let go of it.
        :raises NotVerified: if the bus does not have it again, with the same ids.
        """

    def attach(self, tenant: Tenant, component: PciComponent) -> tuple[PluggedDevice, ...]:
        """Pass all functions of the component through, now (if it runs) and for later starts.

        What is there and differs (a VF that was pulled, its settings) is put right. Before, each is
        written down as in use.

        :raises Conflict: as :meth:`check` does.
        """

    def detach(self, tenant: Tenant, component: str, *, timeout: float) -> None:
        """Take the component's functions back; the guest has let go of them on return.

        :raises TimedOut: if it did not in time. The device is still the sliver's then.
        """

    def records(self, sliver_id: str) -> tuple[DeviceRecord, ...]:
        """Return what is written down of the sliver's devices: they are not free yet."""

    def clean(self, record: DeviceRecord) -> None:
        """Make a device that no domain has any more fit for the next tenant, and strike its record.

        A VF gets its former settings back, a drive is erased and read, a function is reset.

        :raises DeviceClaimed: if a domain still has it.
        :raises DeviceUnclean: if that could not be verified; the device is quarantined then. Also if it
            was quarantined before: only a person sets it free.
        """

    def release(self, address: PciAddress, *, force: bool) -> None:
        """Clean a device once more, also one that is quarantined, and strike its record.

        :param force: do not clean it: a person answers for it.
        :raises DeviceClaimed: if a domain still has it.
        :raises DeviceUnclean: if it could not be verified to be clean; it is quarantined then.
        """
