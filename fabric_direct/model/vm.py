"""VMs, and what all slivers have: capacities, components, placement rules, references, stamps."""

import hashlib
import re
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
)
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StringConstraints,
    model_validator,
)

from fabric_direct.model.base import (
    AUTO,
    ComponentId,
    Frozen,
    ImageName,
    LinkName,
    Mac,
    Mbps,
    ModelName,
    Name,
    PortName,
    SliverId,
    SshPublicKey,
    Trait,
    Vlan,
    refuse_twice,
    with_prefix,
)
from fabric_direct.model.devices import PciAddress

WaitFor = Literal["address", "login", "boot", "script"]
"""How far a guest must be when it is handed out, each step with those before it."""


class Capacities(Frozen):
    """The size of a node."""

    core: Annotated[int, Field(ge=1, le=1024, strict=True)]
    """Virtual CPUs."""
    ram: Annotated[int, Field(ge=1, le=65_536, strict=True)]
    """Memory in GiB."""
    disk: Annotated[int, Field(ge=1, le=1_048_576, strict=True)]
    """Root disk in GiB."""


class ServiceEnd(Frozen):
    """An interface of a network service, to which a node's interface is stitched."""

    id: SliverId
    """The service."""
    interface: ComponentId
    """Its interface."""


class Interface(Frozen):
    """One network interface of a node."""

    service: ServiceEnd | None = None
    """The interface of a network service that it is stitched to. VLAN and address are that one's, and it
    is where that one is: on that port of a switch."""

    mac: Mac | None = None
    """Hardware address, unicast; derived from the ids if absent."""
    vlan: Vlan | None = None
    """VLAN id, 1 to 4094."""
    ipv4: Annotated[IPv4Interface, BeforeValidator(with_prefix)] | None = None
    """Address with prefix length; from the network's pool if absent."""
    ipv6: Annotated[IPv6Interface, BeforeValidator(with_prefix)] | None = None
    """Address with prefix length; from the network's pool if absent."""
    bandwidth: Mbps | None = None
    """Limit in Mbit/s in each direction; none if absent."""
    auto_config: bool = False
    """Whether to configure these addresses in the guest, persistently. On a SmartNIC they are configured
    on a VLAN interface, which tags in the guest."""


class Route(Frozen):
    """A route of a guest."""

    to: IPv4Network | IPv6Network
    via: IPv4Address | IPv6Address


class VNicInterface(Interface):
    """The interface of a virtual NIC: a port of a network, or of a switch."""

    port: PortName | None = None
    """On a switch: its port, one for taps; a free one if absent."""
    mtu: Annotated[int, Field(ge=576, le=9216, strict=True)] | None = None
    """On a switch: bytes of an IP packet; 1500 if absent."""
    routes: Annotated[tuple[Route, ...], Field(max_length=64)] = ()
    """On a switch: routes that the guest has from its first start on."""
    floating_ip: bool = False
    """Whether it gets a floating IP of the cloud's external network."""
    port_security: bool | None = None
    """Whether port security (anti-spoofing and security groups) applies; the network's default if
    absent."""


class _Component(Frozen):
    id: ComponentId
    """Unique within the sliver; a modification matches components by it."""
    model: ModelName | None = None
    """Hardware model, as FIM spells it; ``Type_Model`` may select another driver than ``Type``."""


class VNic(_Component):
    """A virtual NIC on a network of the site."""

    type: Literal["vNIC"] = "vNIC"
    network: Name
    """A network or a switch of site.yaml, or the name or id of a network of the cloud."""
    interface: VNicInterface = VNicInterface()


def _volume_name(text: str) -> str:
    """Check the name of a volume of others: Cinder takes 255 characters, a file's name has no slash."""
    if not re.fullmatch(r"[A-Za-z0-9][^/\x00-\x1f\x7f]{0,254}", text):
        raise ValueError(
            "must have 1 to 255 characters, none of them '/' or a control character, "
            "with a letter or digit first"
        )
    return text


class Storage(_Component):
    """A data volume: a new one (``size``) or an existing one (``volume``)."""

    type: Literal["Storage"] = "Storage"
    size: Annotated[int, Field(ge=1, le=1_048_576, strict=True)] | None = None
    """Size in GiB of a volume that is created and deleted with the component."""
    volume: Annotated[str, AfterValidator(_volume_name)] | None = None
    """Name or id of an existing volume; it is attached and detached, never created or deleted."""
    mount: (
        Annotated[str, StringConstraints(pattern=r"^(/[A-Za-z0-9_][A-Za-z0-9._-]*)+$")] | None
    ) = None
    """Mount point in the guest, mounted now and at every boot."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.size is None) == (self.volume is None):
            raise ValueError(
                "needs exactly one of 'size' (a new volume) and 'volume' (an existing one)"
            )
        return self


class _PciComponent(_Component):
    bdf: Annotated[tuple[PciAddress, ...], Field(max_length=32)] = ()
    """The device's PCI functions on the host; chosen by placement if absent."""

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        if len(set(self.bdf)) != len(self.bdf):
            raise ValueError("bdf: names a PCI address twice")
        return self


class Gpu(_PciComponent):
    """A GPU, all of its functions."""

    type: Literal["GPU"] = "GPU"


class Nvme(_PciComponent):
    """An NVMe drive."""

    type: Literal["NVME"] = "NVME"


class Fpga(_PciComponent):
    """An FPGA, all of its functions."""

    type: Literal["FPGA"] = "FPGA"


class SmartNic(_PciComponent):
    """A whole NIC: its physical functions."""

    type: Literal["SmartNIC"] = "SmartNIC"
    interfaces: tuple[Interface, ...] = ()


class SharedNic(_PciComponent):
    """One virtual function (VF) of a NIC."""

    type: Literal["SharedNIC"] = "SharedNIC"
    bdf: Annotated[tuple[PciAddress, ...], Field(max_length=1)] = ()
    uplink: LinkName | None = None
    """Without ``bdf``: the host's uplink that the VF must belong to; any if absent."""
    vepa: bool = False
    """Without ``bdf``: whether the uplink must be in VEPA mode."""
    interface: Interface = Interface()


PciComponent = Gpu | Nvme | Fpga | SmartNic | SharedNic
Component = Annotated[VNic | Storage | PciComponent, Field(discriminator="type")]


class PlacementRules(Frozen):
    """Placement constraints in addition to size, image and devices."""

    required_traits: tuple[Trait, ...] = ()
    """Traits that the host must have, as os-traits names them: ``HW_CPU_X86_AVX2``, ``CUSTOM_…``."""
    forbidden_traits: tuple[Trait, ...] = ()
    """Traits that the host must not have."""
    affinity: tuple[SliverId, ...] = ()
    """Slivers that must be on the same host."""
    anti_affinity: tuple[SliverId, ...] = ()
    """Slivers that must not be on the same host."""
    exclude_hosts: tuple[Name, ...] = ()
    """Hosts to exclude."""
    same_numa_node: bool = False
    """Whether all devices, the cores and the memory must fit on one NUMA node."""


class SliverRef(Frozen):
    """A reference to a sliver, sufficient for delete, probe and operational actions."""

    id: SliverId
    """Unique at the site; part of the stamp on everything that is created for the sliver."""
    type: Name | Literal[""] = ""
    """Resource type; selects the handler. If it is empty, the site is asked which type has the id."""

    def ref(self) -> "SliverRef":
        """Return the bare reference to this sliver."""
        return SliverRef(id=self.id, type=self.type)


class Sliver(SliverRef):
    """A whole sliver, as it is created or modified: the base of the slivers of all types."""

    type: Name
    """Resource type; selects the handler."""


class NodeSliver(Sliver):
    """A virtual machine with its components."""

    type: Name = "VM"
    name: Name
    """Name of the server and host name of the guest."""
    host: Name | None = None
    """The worker to run on, or ``auto`` to let placement choose. May be absent if the site has only one
    worker; in a cloud, the cloud's scheduler chooses if it is absent."""
    owner: Name | None = None
    """The project that owns it."""
    placement: PlacementRules = PlacementRules()
    """Constraints for choosing a worker, or a device without ``bdf``."""
    image: ImageName
    """An image of site.yaml or of the cloud."""
    flavor: Name | None = None
    """A flavor of the cloud; chosen by capacities if absent."""
    capacities: Capacities
    ssh_keys: tuple[SshPublicKey, ...] = ()
    """Authorized public keys, in OpenSSH's one-line format."""
    watch: bool | None = None
    """Whether a watcher repairs it when others change it; if absent, as site.yaml says."""
    boot_script: Annotated[str, Field(max_length=65_536)] | None = None
    """Run once at first boot, by the interpreter that its first line names (``#!``), else by the guest's
    bash, or ``/bin/sh`` where it has none."""
    wait_for: WaitFor | None = None
    """How far the guest must be when it is handed out: ``address`` (it is not looked at), ``login``,
    ``boot`` (cloud-init has set it up), ``script`` (its boot script has ended, too). If absent, as
    site.yaml says."""
    components: Annotated[tuple[Component, ...], Field(max_length=128)] = ()

    @property
    def open(self) -> bool:
        """Return whether placement has to choose the host or the functions of a device."""
        return self.host == AUTO or any(not device.bdf for device in self.devices())

    @model_validator(mode="after")
    def _nothing_twice(self) -> Self:
        refuse_twice("components: id", [c.id for c in self.components])
        refuse_twice("components: mac", [i.mac for i in self.interfaces() if i.mac])
        refuse_twice("components: bdf", [str(a) for c in self.devices() for a in c.bdf])
        return self

    def vnics(self) -> tuple[VNic, ...]:
        """Return the virtual NICs in the order of the sliver."""
        return tuple(c for c in self.components if isinstance(c, VNic))

    def volumes(self) -> tuple[Storage, ...]:
        """Return the volumes in the order of the sliver."""
        return tuple(c for c in self.components if isinstance(c, Storage))

    def devices(self) -> tuple[PciComponent, ...]:
        """Return the PCI components in the order of the sliver."""
        return tuple(c for c in self.components if isinstance(c, _PciComponent))

    def interfaces(self) -> list[Interface]:
        """Return every interface of every component."""
        single = [c.interface for c in self.components if isinstance(c, VNic | SharedNic)]
        many = [i for c in self.components if isinstance(c, SmartNic) for i in c.interfaces]
        return single + many

    def stamp(self) -> "Stamp":
        """Return the stamp for the substrate: the sliver, with a digest instead of the boot script."""
        script = self.boot_script
        digest = hashlib.sha256(script.encode()).hexdigest() if script is not None else None
        return Stamp(
            sliver=self.model_copy(update={"boot_script": None}), boot_script_sha256=digest
        )


class Stamp(Frozen):
    """The record of its sliver that a domain or server carries.

    The boot script may contain secrets and is needed only once, so the stamp has only its SHA-256.
    """

    sliver: NodeSliver
    boot_script_sha256: str | None = None

    def of(self, sliver: NodeSliver) -> "Stamp":
        """Return the stamp of the modified sliver; its boot script stays what it was."""
        return self.model_copy(update={"sliver": sliver.stamp().sliver})
