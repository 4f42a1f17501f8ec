"""Bare-metal slivers: a whole machine, deployed for the sliver and cleaned after it."""

import hashlib
from collections.abc import Mapping
from ipaddress import IPv4Interface, IPv6Interface
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    GetJsonSchemaHandler,
    StringConstraints,
    Tag,
    model_validator,
)
from pydantic_core import CoreSchema

from fabric_direct.model.base import (
    ComponentId,
    Frozen,
    ImageName,
    Mac,
    Name,
    SshPublicKey,
    Trait,
    refuse_twice,
    with_prefix,
)
from fabric_direct.model.vm import NodeSliver, Sliver, WaitFor

ResourceClass = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$"), Field(examples=["large"])
]
PortAddress = IPv4Interface | IPv6Interface
Hint = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]{1,255}$")]


class NodeSize(Frozen):
    """What a node must have at least."""

    core: Annotated[int, Field(ge=1, le=4096, strict=True)] | None = None
    """Processors."""
    ram: Annotated[int, Field(ge=1, le=65_536, strict=True)] | None = None
    """Memory in GiB."""
    disk: Annotated[int, Field(ge=1, le=1_048_576, strict=True)] | None = None
    """The disk that is deployed to, in GiB."""


class RootDevice(Frozen):
    """Which disk is deployed to, where a node has several: hints as Ironic knows them."""

    serial: Hint | None = None
    wwn: Hint | None = None
    model: Hint | None = None
    vendor: Hint | None = None
    name: Hint | None = None
    """Device file, which may change: ``/dev/sda``."""
    size: Annotated[int, Field(ge=1, le=1_048_576, strict=True)] | None = None
    """GiB."""


class NodeNic(Frozen):
    """A network interface of the node."""

    id: ComponentId
    """Unique within the sliver."""
    mac: Mac | None = None
    """Which of the node's interfaces it is; one that no other NIC names if absent."""
    network: Name | None = None
    """A network of site.yaml, or the name or id of a network of the cloud, that it is attached to, as a
    VIF of Neutron; nothing is plugged in if absent."""
    ipv4: Annotated[IPv4Interface, BeforeValidator(with_prefix)] | None = None
    """Address with prefix length that the node's system configures; if absent, one that the network
    chooses, or by DHCP without a network."""
    ipv6: Annotated[IPv6Interface, BeforeValidator(with_prefix)] | None = None
    """Address with prefix length that the node's system configures; if absent, one that the network
    chooses, if it has any."""

    @property
    def has_address(self) -> bool:
        """Whether it has an address that the site knows, once it is deployed."""
        return any((self.network, self.ipv4, self.ipv6))


class NodeNeeds(Frozen):
    """What a sliver needs of its node, and nothing else: slivers of equal needs fit the same nodes."""

    node: Name | None = None
    """The node, by its name; any if absent."""
    resource_class: ResourceClass | None = None
    """Any if absent."""
    traits: tuple[Trait, ...] = ()
    capacities: NodeSize = NodeSize()
    """What the node must have at least."""
    nics: Annotated[int, Field(ge=0, le=32, strict=True)] = 0
    """The number of its network interfaces at least."""
    macs: Annotated[tuple[Mac, ...], Field(max_length=32)] = ()
    """MAC addresses that some of them must have."""
    image: ImageName
    """An image of ``ironic.images`` of site.yaml."""


class BareMetalSliver(Sliver):
    """A whole machine, which nobody else has."""

    type: Literal["BareMetal"] = "BareMetal"
    name: Name
    """Host name of its system."""
    node: Name | None = None
    """The node, by its name; one that fits if absent."""
    resource_class: ResourceClass | None = None
    """Resource class that the node must have."""
    traits: tuple[Trait, ...] = ()
    """Traits that the node must have."""
    capacities: NodeSize = NodeSize()
    """What the node must have at least."""
    image: ImageName
    """An image of ``ironic.images`` of site.yaml."""
    root_device: RootDevice | None = None
    """Which disk is deployed to; Ironic chooses one if absent."""
    nics: Annotated[tuple[NodeNic, ...], Field(max_length=32)] = ()
    """Network interfaces whose addresses are configured."""
    ssh_keys: Annotated[tuple[SshPublicKey, ...], Field(max_length=64)] = ()
    """Authorized public keys, in OpenSSH's one-line format."""
    boot_script: Annotated[str, Field(max_length=32_768)] | None = None
    """Run once at first boot, by the interpreter that its first line names (``#!``), else by the
    system's bash, or ``/bin/sh`` where it has none."""
    wait_for: WaitFor | None = None
    """How far the node's system must be when it is handed out: ``address`` (it is not looked at),
    ``login``, ``boot`` (cloud-init has set it up), ``script`` (its boot script has ended, too). If
    absent, as site.yaml says."""
    rebuild: bool = False
    """Whether a modification of what only a deployment sets (``image``, ``nics``, ``ssh_keys``,
    ``boot_script``) deploys the node anew, which ends what is on its disk; refused if not."""

    @model_validator(mode="after")
    def _nothing_twice(self) -> Self:
        refuse_twice("nics: id", [nic.id for nic in self.nics])
        refuse_twice("nics: mac", [nic.mac for nic in self.nics if nic.mac])
        refuse_twice("ssh_keys:", list(self.ssh_keys))
        return self

    @property
    def needs(self) -> NodeNeeds:
        """What the sliver needs of its node."""
        return NodeNeeds(
            node=self.node,
            resource_class=self.resource_class,
            traits=tuple(sorted(set(self.traits))),
            capacities=self.capacities,
            nics=len(self.nics),
            macs=tuple(sorted(nic.mac for nic in self.nics if nic.mac)),
            image=self.image,
        )

    @property
    def has_secrets(self) -> bool:
        """Return False: the boot script is run once, and not needed to compare or repair."""
        return False

    def without_secrets(self) -> Self:
        """Return the sliver as its stamp may say it: no boot script, and nothing of the request."""
        return self.model_copy(update={"boot_script": None, "wait_for": None, "rebuild": False})

    def with_addresses(self, addresses: "Mapping[str, tuple[PortAddress, ...]]") -> Self:
        """Return the sliver with the addresses that networks have chosen for its NICs."""
        nics = []
        for nic in self.nics:
            chosen = {f"ipv{each.version}": each for each in addresses.get(nic.id, ())}
            nics.append(nic.model_copy(update=chosen))
        return self.model_copy(update={"nics": tuple(nics)})

    def stamp(self, before: "BareMetalStamp | None" = None) -> "BareMetalStamp":
        """Return the stamp for the node: the sliver, with a digest instead of the boot script.

        :param before: the node's stamp until now; its addresses stay, and without a boot script here its
            digest, too.
        """
        script = self.boot_script
        digest = before.boot_script_sha256 if before else None
        if script is not None:
            digest = hashlib.sha256(script.encode()).hexdigest()
        return BareMetalStamp(
            sliver=self.without_secrets(),
            boot_script_sha256=digest,
            addresses=before.addresses if before else {},
        )


class BareMetalStamp(Frozen):
    """The record of its sliver that a node carries, without the boot script, which may have secrets."""

    sliver: BareMetalSliver
    boot_script_sha256: str | None = None
    rebuild_due: bool = False
    """Whether the node is to be deployed anew as this says, and was not seen to be so yet."""
    addresses: dict[ComponentId, tuple[PortAddress, ...]] = {}
    """Addresses of the NICs that are on a network, by their ids."""

    @property
    def settled(self) -> BareMetalSliver:
        """The sliver, with the addresses that networks have chosen for its NICs."""
        return self.sliver.with_addresses(self.addresses)


def _model_of(sliver: Any) -> str:
    kind = sliver.get("type") if isinstance(sliver, dict) else getattr(sliver, "type", None)
    return BareMetalSliver.__name__ if kind == "BareMetal" else NodeSliver.__name__


class _NotBareMetal:
    """Has the JSON Schema of the other member refuse the type that this union tells them apart by."""

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return handler(core) | {"properties": {"type": {"not": {"const": "BareMetal"}}}}


MachineSliver = Annotated[
    Annotated[NodeSliver, Tag(NodeSliver.__name__), _NotBareMetal()]
    | Annotated[BareMetalSliver, Tag(BareMetalSliver.__name__)],
    Discriminator(_model_of),
]
"""A sliver that is a machine: a VM on a host, or a bare-metal node."""
