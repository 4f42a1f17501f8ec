"""PCI functions of a host, as its kernel shows them."""

from dataclasses import dataclass

from fabric_direct.model import DeviceState, PciAddress


@dataclass(frozen=True, slots=True)
class ProgramHolder:
    """A program that has a PCI function, or a device on the function that programs are given."""

    use: str
    """A sentence: ``/dev/vfio/12 is held by dpdk-testpmd (pid 4711)``."""
    domain: str = ""
    """UUID of the virtual machine that it runs, if it is one of libvirt's and has it by vfio."""


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
    bridge: PciAddress | None = None
    """The bridge that its bus is behind: a root port, or a switch's port; None on a root bus."""
    physical: PciAddress | None = None
    """Its PF, if it is a VF."""
    vf: int | None = None
    """Its number among the VFs of its PF."""
    virtual: tuple[PciAddress, ...] = ()
    """Its VFs in the order of their numbers, if it is a PF; :attr:`vf` of each is its number."""
    links: tuple[str, ...] = ()
    """Names of the network interfaces that the host has of it, representors left out."""
    representors: tuple[str, ...] = ()
    """Names of the interfaces that stand for its VFs on the host: it is in switchdev mode."""
    link_up: bool | None = None
    """Whether one of these has a carrier."""
    uses: tuple[str, ...] = ()
    """What the host itself uses it for, a sentence each: ``nvme0n1 is mounted on /srv``."""
    held: tuple[ProgramHolder, ...] = ()
    """The programs that have it by vfio or uio, and the vDPA and mediated devices that are on it.

    An inventory leaves out the domains that libvirt says have it.
    """
    alive: bool = True
    """Whether its configuration space answers (a vendor of ``ffff`` is none)."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A domain that has a PCI function, live or defined."""

    name: str
    uuid: str
    live: bool | None = None
    """Whether it has it now, or as defined only: with its next start; None if it does not run."""


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
    domains: tuple[Holder, ...] = ()
    """The domains that have it, whoever made them."""
    uplink: str | None = None
    """Of a VF: the network interface of its PF."""
    bridge_mode: str | None = None
    """Of the uplink: ``veb`` or ``vepa``; None if it has no such mode."""

    @property
    def address(self) -> PciAddress:
        """Return its PCI address on the host."""
        return self.function.address
