"""The data model: slivers, components, observations, outcomes.

All values are immutable, validated on creation, and serializable to JSON (``model_dump_json``,
``model_validate_json``). This module does no I/O. Unless a field says otherwise, RAM and disk are in
GiB, bandwidth in Mbit/s and times in seconds.
"""

import ast
import base64
import binascii
import hashlib
import inspect
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
)
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    StringConstraints,
    model_validator,
)
from pydantic_core import CoreSchema, core_schema


class Frozen(BaseModel):
    """Base of the models: immutable, without unknown fields."""

    # A traceback shows the cause of a refusal, too: it must not repeat a key or a boot script.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Describe each field by the docstring below it.

        Pydantic's ``use_attribute_docstrings`` reads the source of every model when it is imported; that
        takes as long as all the rest of the import.
        """
        made = handler(schema)
        fields = handler.resolve_ref_schema(made).get("properties", {})
        for name, text in _field_docs(cls):
            if name in fields:
                fields[name]["description"] = text
        return made


def _field_docs(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    """Yield the name and the docstring of each field of a model that has one."""
    for base in reversed(model.__mro__):
        if issubclass(base, Frozen):
            yield from _docs_in(base.__module__).get(base.__name__, ())


@cache
def _docs_in(module: str) -> dict[str, list[tuple[str, str]]]:
    """Return the names and docstrings of the attributes of a module's classes, by class."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return {each.name: list(_docs_below(each.body)) for each in classes}


def _docs_below(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for statement, below in pairwise(body):
        match statement, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                yield name, inspect.cleandoc(text)


# Ids and names become host names, libvirt names and aliases, file names and XML. libvirt takes only
# letters, digits, '-' and '_' in a user alias, so an id has no dot; a name may have one.
SliverId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$")]
ComponentId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,30}$")]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
# Glance takes 255 characters.
ImageName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,254}$")]
# A Linux interface name: IFNAMSIZ (16) less the terminating zero.
LinkName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,14}$")]
PortName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/:-]{0,62}$")]
"""A port of a switch: a Linux interface, or a router's as ``HundredGigE0/0/0/5``."""
Vlan = Annotated[int, Field(ge=1, le=4094, strict=True)]
Mbps = Annotated[int, Field(ge=1, le=1_000_000, strict=True)]
Trait = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]{0,254}$")]
AUTO = "auto"
"""As a sliver's host: placement chooses one."""


def _unicast_mac(text: str) -> str:
    if int(text[:2], 16) & 1:
        raise ValueError("must not be a multicast address")
    if text == "00:00:00:00:00:00":
        raise ValueError("must not be the all-zero address")
    return text


Mac = Annotated[
    str,
    StringConstraints(pattern=r"^([0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}$", to_lower=True),
    AfterValidator(_unicast_mac),
    Field(examples=["52:54:00:12:34:56"]),
]


# Line breaks, and all other control characters but the tab.
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f]")


def _public_key(text: str) -> str:
    """Check an OpenSSH public key line: the base64 part must begin with the name of the algorithm."""
    words = text.strip().split(None, 2)
    if _CONTROL.search(text.strip()) or len(words) < 2:
        raise ValueError("must be one line: algorithm, base64 key, optional comment")
    try:
        blob = base64.b64decode(words[1], validate=True)
    except binascii.Error as error:
        raise ValueError(f"is not a public key: {error}") from error
    length = int.from_bytes(blob[:4])
    if blob[4 : 4 + length] != words[0].encode() or len(blob) < 4 + length + 32:
        raise ValueError("is not a public key of the algorithm that it names")
    return text.strip()


SshPublicKey = Annotated[str, StringConstraints(max_length=16_384), AfterValidator(_public_key)]


@dataclass(frozen=True, order=True, slots=True)
class PciAddress:
    """The address of a PCI function: domain, bus, slot, function, as in ``0000:25:00.0``."""

    domain: int
    bus: int
    slot: int
    function: int

    _FORM: ClassVar[re.Pattern[str]] = re.compile(
        r"(?:([0-9a-fA-F]{1,4}):)?([0-9a-fA-F]{2}):([01][0-9a-fA-F])\.([0-7])"
    )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``DDDD:BB:SS.F`` or ``BB:SS.F`` (hexadecimal; domain 0000 if absent).

        A domain may have fewer than four digits.

        :raises ValueError: if the text is not a PCI address.
        """
        match = cls._FORM.fullmatch(text)
        if not match:
            raise ValueError("must be a PCI address such as 0000:25:00.0")
        domain, bus, slot, function = match.groups(default="0000")
        return cls(int(domain, 16), int(bus, 16), int(slot, 16), int(function))

    def __str__(self) -> str:
        return f"{self.domain:04x}:{self.bus:02x}:{self.slot:02x}.{self.function}"

    @classmethod
    def __get_pydantic_core_schema__(cls, _: Any, __: GetCoreSchemaHandler) -> CoreSchema:
        text = core_schema.no_info_after_validator_function(
            cls.parse, core_schema.str_schema(pattern=f"^{cls._FORM.pattern}$")
        )
        return core_schema.json_or_python_schema(
            json_schema=text,
            python_schema=core_schema.union_schema([core_schema.is_instance_schema(cls), text]),
            serialization=core_schema.to_string_ser_schema(),
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(schema), "examples": ["0000:25:00.0"]}


class Capacities(Frozen):
    """The size of a node."""

    core: Annotated[int, Field(ge=1, le=1024, strict=True)]
    """Virtual CPUs."""
    ram: Annotated[int, Field(ge=1, le=65_536, strict=True)]
    """Memory in GiB."""
    disk: Annotated[int, Field(ge=1, le=1_048_576, strict=True)]
    """Root disk in GiB."""


def with_prefix(value: Any) -> Any:
    """Return an address as it is; raise ValueError if it lacks its prefix length."""
    if isinstance(value, str) and "/" not in value:
        raise ValueError("must have a prefix length, for example 10.0.0.5/24")
    return value


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
    model: Name | None = None
    """Hardware model; ``Type_Model`` may select another driver than ``Type``."""


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
    type: Name = "VM"
    """Resource type; selects the handler."""

    def ref(self) -> "SliverRef":
        """Return the bare reference to this sliver."""
        return SliverRef(id=self.id, type=self.type)


class NodeSliver(SliverRef):
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
    """Run once at first boot, by the interpreter that its first line names."""
    components: Annotated[tuple[Component, ...], Field(max_length=128)] = ()

    @property
    def open(self) -> bool:
        """Whether placement has to choose the host or the functions of a device."""
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


def refuse_twice(what: str, values: list[str]) -> None:
    """Raise ValueError if a value occurs twice, naming the first one."""
    for value, number in Counter(values).items():
        if number > 1:
            raise ValueError(f"{what} {value} is given twice")


class Stamp(Frozen):
    """The record of its sliver that a domain or server carries.

    The boot script may contain secrets and is needed only once, so the stamp has only its SHA-256.
    """

    sliver: NodeSliver
    boot_script_sha256: str | None = None

    def of(self, sliver: NodeSliver) -> "Stamp":
        """Return the stamp of the modified sliver; its boot script stays what it was."""
        return self.model_copy(update={"sliver": sliver.stamp().sliver})


class State(StrEnum):
    """The observed state of a node."""

    RUNNING = "running"
    STOPPED = "stopped"
    PAUSED = "paused"
    ERROR = "error"
    ABSENT = "absent"


class DeviceState(StrEnum):
    """Whether a PCI function is available for passthrough."""

    FREE = "free"
    USED = "used"
    """A domain, live or defined, has it."""
    HOST_USED = "host-used"
    """The host uses it, or another function of its IOMMU group."""
    UNCLEAN = "unclean"
    """Its last tenant is gone, and it has not been cleaned yet."""
    LOST = "lost"
    """The stamp of a server names it, and no domain has it: it is that sliver's, with its data."""
    QUARANTINED = "quarantined"
    """Cleaning failed; an operator must release it."""
    NOT_ALLOWED = "not allowed"
    """It is not in the site's allow-list."""


class ObservedInterface(Frozen):
    """A NIC as observed on the host and, if the guest answers, in the guest.

    Or the interface of a network service, as observed on its device.
    """

    component: ComponentId
    mac: str = ""
    """Empty if the interface of a service does not know who is connected."""
    network: str | None = None
    network_id: str | None = None
    """The network's id, if the API has one; slivers may name the network by it."""
    addresses: tuple[str, ...] = ()
    """Assigned addresses with prefix length."""
    floating_ip: str | None = None
    """Its floating IP, if any."""
    port_security: bool | None = None
    """Whether port security is enabled; None if unknown."""
    link: Literal["up", "down", "off"] = "up"
    """Whether it can carry traffic: ``off`` if it was switched off, ``down`` if the network says so."""
    device: str | None = None
    """Of a service: the device."""
    port: str | None = None
    """Of a service: the device's port."""
    vlan: int | None = None
    """Of a service: its outer VLAN there, if any."""
    inner_vlan: int | None = None
    """Of a service: its inner VLAN there, if any."""
    bandwidth: int | None = None
    """Limit in Mbit/s in each direction, if any."""
    guest_name: str | None = None
    guest_addresses: tuple[str, ...] = ()
    """Addresses with prefix length that are configured in the guest."""


class ObservedGateway(Frozen):
    """The own address of a network service."""

    address: str
    """With prefix length."""
    mac: str | None = None
    """The MAC address that answers for it, if the device says so."""


class ObservedVolume(Frozen):
    """A volume as observed."""

    component: ComponentId
    source: str
    """Path or id of the volume."""
    target: str
    """Device name proposed to the guest, for example ``vdb``."""
    size: int
    """GiB."""
    guest_name: str | None = None
    """Device name in the guest, found by serial number."""
    mounted: tuple[str, ...] = ()
    """Mount points in the guest."""


class ObservedDevice(Frozen):
    """A PCI function as observed."""

    component: ComponentId
    host_address: PciAddress
    guest_address: PciAddress | None = None
    """Its address in the live XML; absent while the node is stopped."""
    guest_name: str | None = None
    """Its address as the guest sees it, for example ``0000:01:00.0``."""
    guest_interfaces: tuple[str, ...] = ()
    """Names of its network interfaces in the guest."""
    guest_macs: tuple[str, ...] = ()
    """Their MAC addresses there, in the same order; of interfaces in a bond their own."""
    guest_addresses: tuple[str, ...] = ()
    """Addresses with prefix length on these interfaces, or on VLAN interfaces and bridges on top of
    them."""
    alias: str
    mac: str | None = None
    vlan: int | None = None
    bandwidth: int | None = None
    """Limit of a VF in Mbit/s, if any."""
    bridge_mode: str | None = None
    """Of a VF's uplink: ``veb`` or ``vepa``."""


class ObservedGuest(Frozen):
    """The guest's answers."""

    reachable: bool
    via: str = ""
    """How it was reached: ``agent``, ``ssh``."""
    boot_finished: bool | None = None
    """Whether the boot script and cloud-init have finished; None if unknown."""
    ssh_host_key: str | None = None
    """Its SSH host key in OpenSSH format, read through the guest agent, which is trusted."""


class Observed(Frozen):
    """A sliver as observed on the substrate."""

    state: State
    host: str | None = None
    instance: str | None = None
    """Name of the domain or id of the server."""
    domain: str | None = None
    """Name of its libvirt domain on the host, if the API reports it."""
    flavor: str | None = None
    """Its flavor, if the API has flavors."""
    cores: int | None = None
    ram: int | None = None
    """MiB."""
    interfaces: tuple[ObservedInterface, ...] = ()
    gateway: ObservedGateway | None = None
    """Of a network service: its own address."""
    volumes: tuple[ObservedVolume, ...] = ()
    devices: tuple[ObservedDevice, ...] = ()
    guest: ObservedGuest | None = None
    """Absent if the guest was not queried."""
    differences: tuple[str, ...] = ()
    """Differences between the sliver and what was observed, one sentence each."""


class Operation(StrEnum):
    """The operations of a handler."""

    PLAN = "plan"
    CREATE = "create"
    MODIFY = "modify"
    DELETE = "delete"
    PROBE = "probe"
    POA = "poa"
    RECONCILE = "reconcile"
    ADOPT = "adopt"


class Finding(StrEnum):
    """What a step found when it compared the current state with the desired one."""

    ALREADY_SO = "already so"
    WILL_CREATE = "will create"
    WILL_CHANGE = "will change"
    WILL_DELETE = "will delete"


class StepStatus(StrEnum):
    """How a step ended."""

    ALREADY_SO = "already so"
    DONE = "done"
    FAILED = "failed"
    UNDONE = "undone"
    UNDO_FAILED = "undo failed"
    SKIPPED = "skipped"
    PLANNED = "planned"


class FieldChange(Frozen):
    """A field that a step will change."""

    field: str
    """Its path: ``bandwidth``, ``interfaces.i1.vlan``."""
    was: Any
    """Its value now; null if there is none."""
    will_be: Any

    def __str__(self) -> str:
        """Return it for people: ``bandwidth 100 → 200``."""
        return f"{self.field} {_shown(self.was)} → {_shown(self.will_be)}"


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class StepReport(Frozen):
    """One step of an operation."""

    step: str
    status: StepStatus
    finding: Finding | None = None
    changes: tuple[FieldChange, ...] = ()
    """In a plan: what a step that will change something will change, as far as it has fields."""
    seconds: float = 0.0
    error: str | None = None


class Status(StrEnum):
    """How an operation ended; see :class:`Outcome`."""

    DONE = "done"
    FAILED = "failed"
    REFUSED = "refused"
    PARTIAL = "partial"


class ErrorReport(Frozen):
    """An error as a value."""

    kind: str
    """Class of the error, for example ``DeviceClaimed``; see :mod:`fabric_direct.errors`."""
    message: str
    field: str = ""
    """Path of the offending field, where there is one."""


class Outcome(Frozen):
    """The result of one operation on one sliver.

    ``done``: completed, and verified by reading it back. ``failed``: nothing was done, or it was taken
    back; ``left`` says what a deletion could not remove, what an action may have done, or what a call
    may still make. ``refused``: the input is invalid, and nothing was changed. ``partial``: ``steps``
    say what was done, ``error`` what failed, ``left`` what is left behind.
    """

    operation: Operation
    sliver: SliverRef
    status: Status
    error: ErrorReport | None = None
    observed: Observed | None = None
    steps: tuple[StepReport, ...] = ()
    left: tuple[str, ...] = ()
    """Names of what is left behind on the substrate; what begins with ``unknown:`` may be there."""
    warnings: tuple[str, ...] = ()
    data: dict[str, Any] = {}
    """The answer of an operational action; the ``operation`` of a plan; the ``host`` that placement
    chose."""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the operation was completed."""
        return self.status is Status.DONE
