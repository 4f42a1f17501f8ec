"""A site's configuration: ``site.yaml`` as typed values.

Errors name file, line and field. JSON Schema for editors: ``fabric-direct schema site``.
"""

import os
import re
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar
from urllib.parse import parse_qs, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    IPvAnyAddress,
    IPvAnyNetwork,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from fabric_direct.calls.deadline import UNANSWERED
from fabric_direct.errors import InvalidSite, NotFound
from fabric_direct.model import (
    AUTO,
    Capacities,
    Frozen,
    ImageName,
    LinkName,
    LocalPath,
    Mac,
    ModelName,
    Name,
    PciAddress,
    SshPublicKey,
    Trait,
    TypeAndModel,
    WaitFor,
    refuse_twice,
    shown_model,
)
from fabric_direct.model.base import FOLDER
from fabric_direct.model.networks import SiteNetwork
from fabric_direct.model.services import SERVICES
from fabric_direct.site.drivers import check_drivers, check_guest, check_type
from fabric_direct.site.services import BurstUnit, ServiceSettings, SwitchPort, SwitchSettings

DriverName = Name
M = TypeVar("M", bound=BaseModel)
_PROGRAM = re.compile(r"/[^\x00-\x1f\x7f]+|[A-Za-z0-9_][A-Za-z0-9._+-]*")
# Distributions whose cloud images have a default user of the same name.
_DISTRIBUTIONS = ("rocky", "ubuntu", "centos", "debian", "fedora", "freebsd", "openbsd")


def _usual_user(image: str) -> str:
    return next((user for user in _DISTRIBUTIONS if user in image), "root")


def _refuse_model_twice(drivers: Any) -> Any:
    """Raise ValueError if two keys are spellings of one model: the later one would count."""
    known: dict[str, str] = {}
    for key in filter(
        lambda key: isinstance(key, str), drivers if isinstance(drivers, dict) else ()
    ):
        kind, sign, model = key.partition("_")
        first = known.setdefault(f"{kind}{sign}{shown_model(model)}", key)
        if first != key:
            raise ValueError(f"{key} is {first}, which is there, too")
    return drivers


def _ssh_address(text: str) -> str:
    parts = urlsplit(text)
    plain = not (parts.password or parts.path.strip("/") or parts.query or parts.fragment)
    if parts.scheme != "ssh" or not parts.hostname or not plain:
        raise ValueError("must be ssh://[user@]host[:port]")
    _ = parts.port  # raises ValueError if it is not a port
    return text


SshAddress = Annotated[
    str, AfterValidator(_ssh_address), Field(examples=["ssh://root@worker1", "ssh://root@[::1]:22"])
]


def _program(text: str) -> str:
    if not _PROGRAM.fullmatch(text):
        raise ValueError("must be an absolute path, or a name that is searched for in PATH")
    return text


Program = Annotated[
    str, AfterValidator(_program), Field(examples=["python3.9", "/usr/libexec/platform-python"])
]


LibvirtUri = Annotated[
    str,
    StringConstraints(pattern=r"^qemu(\+[a-z0-9]+)?://[^/?#\s]*/[^?#\s]+(\?\S*)?$"),
    Field(examples=["qemu:///system", "qemu+ssh://root@worker1/system"]),
]


class UsbId(Frozen):
    """USB devices by vendor and product id, as ``lsusb`` prints them."""

    vendor: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{4}$")]
    product: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{4}$")]


class UsbPort(Frozen):
    """A USB device by bus and port."""

    bus: Annotated[int, Field(ge=1, le=255)]
    port: Annotated[str, StringConstraints(pattern=r"^[0-9]+(\.[0-9]+)*$")]
    """The port, preceded by the ports of the hubs on the way: ``1.4``."""


class AllowedDevice(Frozen):
    """An entry of the allow-list; no other devices are passed through."""

    type: Literal["GPU", "SmartNIC", "SharedNIC", "FPGA", "NVME"]
    model: ModelName | None = None
    """As FIM spells it, for example ``Tesla T4``."""
    bdf: PciAddress | None = None
    """A PCI function."""
    uplink: LinkName | None = None
    """A network interface; all of its VFs are allowed."""
    vepa: bool = False
    """Whether the external switch switches between the uplink's VFs (VEPA), not the NIC."""
    trust: bool = False
    """Whether the uplink's VFs may change their MAC and enter promiscuous mode."""
    spoof_check: bool = True
    """Whether the uplink drops frames of its VFs with a foreign MAC or VLAN."""
    usb: tuple[UsbId | UsbPort, ...] = ()
    """USB devices that are attached with it, for example the JTAG of an FPGA."""
    mac: Mac | None = None
    """Hardware address of the function by FABRIC's resource model, with which ``doctor`` compares it; no
    driver reads it."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.bdf is None) == (self.uplink is None):
            raise ValueError("needs exactly one of 'bdf' and 'uplink'")
        if self.bdf and self.bdf.behind_controller:
            domain = f"{self.bdf.domain:x}"
            raise ValueError(
                f"nothing of PCI domain {domain} is passed through: name its controller"
            )
        if self.mac and not self.bdf:
            raise ValueError("mac: belongs to one function: needs 'bdf'")
        return self


class Host(Frozen):
    """A worker."""

    libvirt: LibvirtUri = "qemu:///system"
    """libvirt's URI for the host: ``qemu:///system``, ``qemu+ssh://…``, ``qemu+tls://…`` or
    ``qemu+tcp://…``."""
    ssh: SshAddress | None = None
    """``ssh://[user@]host[:port]``, to run programs and use netlink there; this machine if absent."""
    ssh_key: LocalPath | None = None
    """Private key for the login; an agent's or the user's own (``~/.ssh``) if absent."""
    host_key: SshPublicKey | None = None
    """The host's SSH key; no other is trusted then. If absent, ``<state_dir>/known_hosts`` and the
    known_hosts of user and system apply."""
    python: Program | None = None
    """The Python (3.6 or newer) that runs what is sent there, by name or absolute path; if absent, the
    first of ``python3``, ``python3.14`` to ``python3.6`` and ``/usr/libexec/platform-python``."""
    virt_type: Literal["auto", "kvm", "qemu"] = "auto"
    """``auto`` uses KVM if the host offers it."""
    devices: tuple[AllowedDevice, ...] = ()
    maintenance: str | None = None
    """The reason to place nothing new here; existing slivers stay. In service if absent."""
    traits: tuple[Trait, ...] = ()
    """Traits that no API reports, as os-traits names them: ``CUSTOM_…``."""

    @field_validator("devices")
    @classmethod
    def _each_function_once(cls, devices: tuple[AllowedDevice, ...]) -> tuple[AllowedDevice, ...]:
        refuse_twice("function", [str(device.bdf) for device in devices if device.bdf])
        return devices

    def as_this_machine(self) -> "Host":
        """Return it as it is for who runs on it: libvirt by its socket, programs without SSH."""
        parts = urlsplit(self.libvirt)
        socket = [word for word in parts.query.split("&") if word.startswith("socket=")]
        local = "?".join([f"qemu://{parts.path}", *socket])
        return self.model_copy(update={"libvirt": local, "ssh": None})


class P4Switch(Frozen):
    """A switch that is given away whole."""

    ssh: SshAddress
    """``ssh://[user@]host[:port]`` of its administrator, whom the installer's image lets in by key; no
    password is used. The image needs Python 3.6 or newer."""
    ssh_key: LocalPath | None = None
    """Private key for the login; an agent's or the user's own (``~/.ssh``) if absent."""
    host_key: SshPublicKey | None = None
    """Its SSH key before it is used for the first time; ``<state_dir>/known_hosts`` and the known_hosts
    of user and system apply if absent. Each installation brings another one, which is remembered."""
    python: Program | None = None
    """The Python that runs what is sent there, as of a worker."""
    sudo: bool = False
    """Whether the administrator becomes root by sudo, without a password."""
    user: Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_-]{0,31}$")]
    """The account of the sliver's user."""
    nameservers: tuple[IPvAnyAddress, ...] = ()
    ssh_sources: tuple[IPvAnyNetwork, ...] = ()
    """From where SSH is let in, also ours; the firewall is left as it is if absent."""
    icmp_subnets: tuple[IPvAnyNetwork, ...] = ()
    """From where ICMP is let in."""
    interface: LinkName | None = None
    """The interface of management, to which the firewall applies."""

    @property
    def as_root(self) -> tuple[str, ...]:
        """Return the prefix of a command that needs root."""
        return ("sudo", "-n") if self.sudo else ()


class ImageSettings(Frozen):
    """An image for slivers."""

    user: Name | None = None
    """The user for logins to its guests; derived from the distribution in the image's name if absent."""
    path: Path | None = None
    """File on the host (libvirt); in OpenStack, images are found by name."""
    architecture: Name | None = None
    """The architecture that it runs on, for example ``x86_64``; any if absent. In OpenStack, the image's
    own properties apply."""


class OpenStackSettings(Frozen):
    """The cloud, and how to create servers in it."""

    cloud: Name
    """An entry of clouds.yaml."""
    clouds_file: LocalPath | None = None
    """clouds.yaml; if absent, openstacksdk searches for it (``OS_CLIENT_CONFIG_FILE``,
    ``~/.config/openstack``, ``/etc/openstack``)."""
    external_network: Name | None = None
    """The network of floating IPs, to which routers are connected."""
    security_groups: tuple[Name, ...] = ()
    """Security groups of ports with port security; the project's default group if absent."""
    key_name: Name | None = None
    """A key pair of the cloud that is authorized in each server beside the sliver's own keys."""
    config_drive: bool = False
    """Whether each server has a config drive. One without a NIC, or with a NIC on a network without DHCP
    or without IPv4, always has one."""
    make_flavors: bool = False
    """Whether to create a flavor if none has exactly the sliver's capacities; needs an administrator."""
    volume_type: Name | None = None
    """Type of new volumes; the cloud's default if absent."""


ImageUrl = Annotated[
    str,
    StringConstraints(pattern=r"^(https?|file)://[^\s]{1,1000}$"),
    Field(examples=["https://images.example.org/debian-12.qcow2"]),
]


class NodeImage(Frozen):
    """What is deployed on bare-metal nodes: the image of a whole disk, or a kernel and a ramdisk."""

    disk: ImageUrl | None = None
    """URL of the image of a whole disk, for Ironic to fetch."""
    checksum: Annotated[str, Field(max_length=512)] | None = None
    """Of the disk's image: a SHA256 or SHA512, or the URL of a file with it."""
    format: Literal["raw", "qcow2"] | None = None
    """Of the disk's image. ``raw`` is written while it is fetched; any other must fit into the node's
    memory, and so must one whose format is not told."""
    kernel: ImageUrl | None = None
    """URL of a kernel that runs with ``ramdisk``; nothing is written to a disk."""
    ramdisk: ImageUrl | None = None
    """URL of its initial ramdisk."""
    kernel_arguments: Annotated[str, Field(max_length=1024)] | None = None
    """Arguments of the kernel; those of Ironic if absent."""
    user: Name | None = None
    """The user for logins to its system; derived from the distribution in the image's name if absent."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        whole = self.disk is not None and self.checksum is not None
        booted = self.kernel is not None and self.ramdisk is not None
        alone = (
            {"disk", "checksum", "format"} if whole else {"kernel", "ramdisk", "kernel_arguments"}
        )
        if whole == booted or self.model_fields_set - {*alone, "user"}:
            raise ValueError("needs 'disk' and 'checksum', or 'kernel' and 'ramdisk'")
        return self


class IronicSettings(Frozen):
    """The Ironic of bare-metal nodes, and what can be deployed on them."""

    cloud: Name | None = None
    """An entry of clouds.yaml. That of a stand-alone Ironic has ``auth_type: none`` or ``http_basic``,
    and ``baremetal_endpoint_override``. If absent, the cloud of ``openstack``."""
    clouds_file: LocalPath | None = None
    """clouds.yaml; if absent, that of ``openstack``, or openstacksdk searches for it."""
    images: dict[ImageName, NodeImage] = {}
    """What slivers may name as their ``image``."""


class GuestSettings(Frozen):
    """Settings for access to guests."""

    ssh_key: LocalPath | None = None
    """The site's private key for ``guest: ssh``; its public key is authorized in each guest."""
    known_hosts: LocalPath | None = None
    """Pinned host keys; ``<state_dir>/known_hosts`` if absent."""
    wait_for: WaitFor | None = None
    """How far a guest must be when it is handed out, unless its sliver says otherwise: ``address``,
    ``login``, ``boot``, ``script``. If absent, the end of its boot is waited for within
    ``limits.guest_boot``, and only a guest without a login is not handed out."""


class Limits(Frozen):
    """Time limits in seconds. The limit of an operation includes all of its calls."""

    call: Annotated[float, Field(gt=0)] = 60.0
    """One call of an API."""
    search: Annotated[float, Field(gt=0)] | None = None
    """Looking, beside a deletion, on hosts that the sliver does not name and was not on last; ``call``
    if absent. And asking switches that nothing of a service names; 3 s if absent."""
    create: Annotated[float, Field(gt=0)] = 900.0
    modify: Annotated[float, Field(gt=0)] = 600.0
    delete: Annotated[float, Field(gt=0)] = 300.0
    probe: Annotated[float, Field(gt=0)] = 60.0
    poa: Annotated[float, Field(gt=0)] = 300.0
    undo: Annotated[float, Field(gt=0)] = 180.0
    """Undoing a failed operation, in addition to its own limit."""
    guest_boot: Annotated[float, Field(gt=0)] = 300.0
    """Until a new guest answers, and its boot has come as far as is waited for."""
    guest_devices: Annotated[float, Field(gt=0)] = 60.0
    """Until a booted guest sees its devices, one or two seconds for each; then it is restarted."""
    detach: Annotated[float, Field(gt=0)] = 160.0
    """Until a guest releases a device: 8 × 20 s, as in Nova."""
    clean: Annotated[float, Field(gt=0)] = 600.0
    """Erasing one drive, or resetting one device."""
    unanswered: Annotated[float, Field(ge=0)] = UNANSWERED
    """Seconds for which a request may still take effect after its answer should have come."""
    busy: Annotated[float, Field(ge=0)] = 30.0
    """Waiting for another process that is working on the same sliver."""

    @property
    def of_search(self) -> float:
        """Return the limit of a search: that of a call, unless the site sets it."""
        return self.search or self.call


def _flavor(name: str) -> str:
    core, ram, disk = (int(part[1:]) for part in name.split(".")[1:])
    try:
        Capacities(core=core, ram=ram, disk=disk)
    except ValidationError:
        raise ValueError("is a size that no VM can have") from None
    return name


class ActorSettings(Frozen):
    """Settings for the handlers of the FABRIC AM actor."""

    management_network: Name | None = None
    """Network of each VM's first NIC, for access by users; one of the site or of the cloud."""
    floating_ip: bool | None = None
    """Whether that NIC gets a floating IP, unless the sliver declines; if absent, only in a cloud.
    Without one, the management address is the NIC's global IPv6 address, or else its IPv4 address."""
    max_flavor: (
        Annotated[
            str,
            StringConstraints(pattern=r"^fabric\.c\d{1,9}\.m\d{1,9}\.d\d{1,9}$"),
            AfterValidator(_flavor),
        ]
        | None
    ) = None
    """The largest size of a VM; larger requests get this size."""
    network_prefix: Name = "dataplane"
    """L2Bridge services of vNICs use the network ``<prefix>-<vlan>``."""
    burst_unit: BurstUnit = "Mbit"
    """The unit of FIM's ``burst_size``: megabits as FIM says, or megabytes as fabric_am took it."""
    resource_classes: dict[str, Name] = {}
    """Resource class of bare-metal nodes, by the hardware model that a node of type Server names."""
    adopt: bool = False
    """Whether VMs and ports that fabric_am made are adopted when the actor first modifies, acts on or
    deletes them; otherwise these operations fail."""
    limit: Annotated[float, Field(gt=0)] = 1200.0
    """Seconds after which the actor gives up an operation; each ends earlier, undoing included."""


class AllocationRatios(Frozen):
    """Allocatable share of a host's capacity. For hosts of a cloud, Nova's own ratios apply."""

    cpu: Annotated[float, Field(gt=0, le=64)] = 1.0
    ram: Annotated[float, Field(gt=0, le=64)] = 1.0
    disk: Annotated[float, Field(gt=0, le=64)] = 1.0


class PlacementSettings(Frozen):
    """Settings for the choice of hosts for slivers that leave them open."""

    allocation: AllocationRatios = AllocationRatios()
    weights: dict[Name, Annotated[int, Field(ge=0, le=1_000_000)]] = {}
    """Weights by the name of the cost; other costs have their defaults. 0 leaves a cost out."""
    without: tuple[Name, ...] = ()
    """Filters to leave out."""
    retries: Annotated[int, Field(ge=0, le=100)] = 2
    """Number of other hosts to try after one has refused."""


ListenAddress = Annotated[
    str, StringConstraints(pattern=r"^(\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+):\d{1,5}$")
]


class TlsSettings(Frozen):
    """The certificate of a zone."""

    certificate: LocalPath
    """PEM, with the chain of its issuers."""
    key: LocalPath
    """PEM."""


class ChildZone(Frozen):
    """A zone below this one."""

    url: Annotated[str, StringConstraints(pattern=r"^https?://[^/?#@]+/?$")]
    """Its base URL."""
    token_file: LocalPath | None = None
    """A file with the bearer token for it on the first line."""
    ca_file: LocalPath | None = None
    """PEM: the authorities to trust for its certificate; the system's own if absent."""


class ZoneSettings(Frozen):
    """The site as a zone: its address, its tokens, and the zones below it."""

    name: Name | None = None
    """Its name to other zones; the site's name if absent."""
    listen: ListenAddress = "127.0.0.1:8750"
    """Address and port."""
    tls: TlsSettings | None = None
    """Required unless it listens on a loopback address."""
    token_file: LocalPath | None = None
    """A file with the accepted bearer tokens, one on each line. Required unless it listens on a loopback
    address."""
    own_hosts: bool = True
    """Whether it offers the site's own hosts in addition to those of its children."""
    children: dict[Name, ChildZone] = {}
    """The child zones, by this zone's names for them."""
    deadline: Annotated[float, Field(gt=0, le=600)] = 10.0
    """Seconds for a selection if the request gives no deadline."""
    offer_lifetime: Annotated[float, Field(gt=0, le=86_400)] = 120.0
    """Seconds for which an offer is valid."""
    refresh: Annotated[float, Field(gt=0, le=3600)] = 10.0
    """Seconds between two queries of a child's capabilities. A child that misses three is skipped."""


class WatchSettings(Frozen):
    """Settings of the repairs that `watch` makes by itself: which, and how often."""

    enabled: bool = False
    """Whether watchers may repair anything at the site."""
    slivers: Literal["all", "asking"] = "all"
    """``all`` repairs every sliver that does not decline (``watch: false``), ``asking`` those with
    ``watch: true``."""
    per_sliver: Annotated[int, Field(ge=1, le=1000)] = 6
    """Repairs of one sliver, or of one uplink, in an hour; more are only reported."""
    per_site: Annotated[int, Field(ge=1, le=100_000)] = 120
    """Repairs of all of them in an hour."""
    history: Annotated[int, Field(ge=16, le=1_048_576)] = 1024
    """Size of the history in KiB; the former one is kept beside it."""


class MetricsSettings(Frozen):
    """Metrics, where the process collects any."""

    refresh: Annotated[float, Field(ge=0, le=86_400)] = 60.0
    """Seconds between two looks at devices and unfinished operations; 0 for none. There is none either
    while nobody collects."""


class FakeHostSettings(Frozen):
    """A host in memory."""

    cores: Annotated[int, Field(ge=1)] = 64
    ram: Annotated[int, Field(ge=1)] = 256
    """GiB."""
    disk: Annotated[int, Field(ge=1)] = 4096
    """GiB."""
    traits: tuple[Trait, ...] = ()
    gpus: Annotated[int, Field(ge=0, le=16)] = 0
    """Number of GPUs of the model A30."""
    vfs: Annotated[int, Field(ge=0, le=64)] = 0
    """Number of VFs of the uplink ``ens1``, which is in VEPA."""


class FakeNodeSettings(Frozen):
    """A bare-metal node in memory."""

    resource_class: Name = "baremetal"
    cores: Annotated[int, Field(ge=1)] = 16
    ram: Annotated[int, Field(ge=1)] = 64
    """GiB."""
    disk: Annotated[int, Field(ge=1)] = 400
    """GiB."""
    traits: tuple[Trait, ...] = ()
    macs: tuple[Mac, ...] = ()
    """Of its network interfaces."""


class FakeSettings(Frozen):
    """Settings of the in-memory drivers."""

    delay: Annotated[float, Field(ge=0)] = 0.0
    """Seconds that each call takes."""
    keep: bool = False
    """Whether what is made stays when the process ends, in ``<state_dir>/fake.sqlite``."""
    hosts: dict[Name, FakeHostSettings] = {}
    """The hosts by name; others have the defaults."""
    nodes: dict[Name, FakeNodeSettings] = {}
    """Bare-metal nodes by name."""


def _default_state_dir() -> Path:
    home = os.environ.get("XDG_STATE_HOME", "~/.local/state")
    return Path(
        "/var/lib/fabric-direct" if os.geteuid() == 0 else f"{home}/fabric-direct"
    ).expanduser()


def _postgres_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in {"postgresql", "postgres"} or not parts.path.strip("/"):
        raise ValueError("must be postgresql://[user@]host[:port]/database")
    if parts.password or "password" in parse_qs(parts.query):
        raise ValueError("must have no password: put it into ~/.pgpass, or name ?passfile=FILE")
    return text


class StateDatabase(Frozen):
    """A database of PostgreSQL that has the state of the site, for several machines."""

    url: Annotated[
        str,
        AfterValidator(_postgres_url),
        Field(examples=["postgresql://fabric@192.0.2.5/fabric?sslmode=verify-full"]),
    ]
    """The database, as libpq has it. The site's tables are in a schema of its name."""
    lease: Annotated[float, Field(ge=1, le=60)] = 5.0
    """Seconds. A process that was not heard for two leases has lost its locks."""


class Conductors(Frozen):
    """Operations are carried out by conductors: processes of their own, on any machines."""

    waiting: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """How many operations may wait for a conductor, or be under way; more are refused."""
    key_file: LocalPath | None = None
    """Keys, one on each line, by which requests are signed: conductors refuse all others. The first one
    signs, each is accepted. Without it, whoever may write the database is trusted."""


class Site(Frozen):
    """A site: its hosts, networks and images, and the drivers of its resource types."""

    site: Name
    """Name of the site."""
    state_dir: LocalPath = Field(default_factory=_default_state_dir)
    """Directory of the journal, the address pools, claims and pinned host keys. As all files of this
    machine that are named here, it is relative to this file, and may begin with ``~``."""
    state_database: StateDatabase | None = None
    """Where the state is instead that machines share; what one machine alone needs stays in
    ``state_dir``."""
    conductors: Conductors | None = None
    """Operations are carried out by ``fabric-direct conductor``, on the machines where that runs, and
    not by who asks for them; ``{}`` says so. It needs ``state_database``."""
    drivers: Annotated[
        dict[Annotated[TypeAndModel, AfterValidator(check_type)], DriverName],
        BeforeValidator(_refuse_model_twice),
        AfterValidator(check_drivers),
    ] = {}
    """Drivers by resource type, ``Type_Model`` or ``Type``, and of the hosts' ``tuning`` and ``uplink``;
    libvirt's family if absent. A site without
    ``images`` that names drivers of network services and switches alone serves no VMs."""
    driver_settings: dict[DriverName, dict[str, Any]] = Field(default={}, repr=False)
    """Settings of drivers of other packages by the driver's name, as its own model has them."""
    openstack: OpenStackSettings | None = None
    ironic: IronicSettings = IronicSettings()
    """Where the driver ``ironic`` finds its nodes, and what it deploys."""
    guest: Annotated[DriverName, AfterValidator(check_guest)] | None = None
    """Driver for guests: ``agent`` (QEMU guest agent, through libvirt of the host), ``ssh`` or ``none``.
    If absent, that of the VMs' driver: ``ssh`` with a cloud, ``agent`` with libvirt."""
    hosts: Annotated[dict[Name, Host], Field(min_length=1)] = Field(
        default_factory=lambda site: {} if site.get("openstack") else {"localhost": Host()}
    )
    """Workers by name. If absent, this machine; with a cloud, none: only the cloud knows them then."""
    images: dict[ImageName, ImageSettings] = {}
    networks: dict[Name, SiteNetwork] = {}
    switches: dict[Name, SwitchSettings] = {}
    """The switches of network services, by name."""
    p4_switches: dict[Name, P4Switch] = {}
    """The switches that are given away whole, by name."""
    services: ServiceSettings = ServiceSettings()
    guest_access: GuestSettings = GuestSettings()
    actor: ActorSettings = ActorSettings()
    placement: PlacementSettings = PlacementSettings()
    zone: ZoneSettings = ZoneSettings()
    limits: Limits = Limits()
    watch: WatchSettings = WatchSettings()
    metrics: MetricsSettings = MetricsSettings()
    history: Annotated[int, Field(ge=16, le=1_048_576)] = 4096
    """Size in KiB of the history of operations; the former one is kept beside it."""
    volume_pool: Path | None = None
    """Directory on the hosts for disks and volumes; ``<state_dir>/volumes`` if absent."""
    fake: FakeSettings = FakeSettings()
    _folder: Path | None = None
    """Where the files are that settings of drivers name; the directory that one is in if None."""

    @model_validator(mode="after")
    def _remember_folder(self, info: ValidationInfo) -> Self:
        self._folder = (info.context or {}).get(FOLDER)
        return self

    @model_validator(mode="after")
    def _no_overlap(self) -> Self:
        blocks = [(name, block) for name, each in self.networks.items() for block in each.blocks()]
        # Of blocks that overlap, one begins with the other or within it: two neighbours do, too.
        ordered = sorted(blocks, key=lambda each: (each[1].version, each[1]))
        for one, other in pairwise(ordered):
            if one[1].overlaps(other[1]):
                earlier, name = sorted((one[0], other[0]), key=[*self.networks].index)
                raise ValueError(f"networks: {name} overlaps with {earlier}")
        return self

    @model_validator(mode="after")
    def _conductors_on_a_database(self) -> Self:
        if self.conductors and not self.state_database:
            raise ValueError("conductors: they share the state, which needs state_database")
        return self

    @model_validator(mode="after")
    def _no_host_called_auto(self) -> Self:
        if AUTO in self.hosts:
            raise ValueError(f"hosts: {AUTO!r} cannot be a name; it lets placement choose a host")
        return self

    @model_validator(mode="after")
    def _fakes_on_hosts(self) -> Self:
        if self.hosts and (unknown := [*self.fake.hosts.keys() - self.hosts.keys()]):
            raise ValueError(f"fake.hosts.{min(unknown)}: no host {min(unknown)!r}")
        return self

    @model_validator(mode="after")
    def _switches_on_hosts(self) -> Self:
        for name, switch in self.switches.items():
            if switch.host is not None and switch.host not in self.hosts:
                raise ValueError(f"switches.{name}.host: no host {switch.host!r}")
        return self

    def switch_port(self, device: str | None, port: str | None) -> SwitchPort | None:
        """Return a port of a switch of the site, or None if it has no such switch or port."""
        switch = self.switches.get(device or "")
        return switch.ports.get(port or "") if switch else None

    def switches_of(self, driver: str | None = None) -> dict[str, SwitchSettings]:
        """Return the switches that a driver serves, by name; all if none is given."""
        return {n: s for n, s in self.switches.items() if driver in {None, s.driver}}

    @property
    def zone_name(self) -> str:
        """The site's name as a zone."""
        return self.zone.name or self.site

    @property
    def serves_vms(self) -> bool:
        """Whether there are VMs; if not, nothing is asked for that only VMs need.

        There are none where ``drivers`` names bare metal, network services and switches alone, and no
        images are named.
        """
        served = {key.partition("_")[0] for key in self.drivers}
        return bool(self.images) or not served or not served <= {*SERVICES, "Switch", "BareMetal"}

    def refuse_without_vms(self) -> None:
        """Raise InvalidSite if the site serves no VMs."""
        if not self.serves_vms:
            raise InvalidSite(
                "names no driver for VM",
                field="drivers",
                why="all that it names are for bare metal, network services or switches, and it has no "
                "images",
                remedy="add `VM: libvirt` or `VM: openstack` below drivers in site.yaml",
            )

    def driver_for(self, resource_type: str, model: str | None = None) -> str | None:
        """Return the driver for ``Type_Model`` or else ``Type``, or None if the site names none."""
        return self.drivers.get(f"{resource_type}_{model}", self.drivers.get(resource_type))

    def settings_of(self, driver: str, model: type[M]) -> M:
        """Return the settings of a driver as its model has them; for the driver itself.

        :param driver: the driver's name. Without settings in site.yaml, the model's defaults apply.
        :raises InvalidSite: if they are invalid; ``field`` is the path of the first that is.
        """
        from fabric_direct.documents import validate  # noqa: PLC0415 - see load_site

        given, context = self.driver_settings.get(driver, {}), {FOLDER: self._folder}
        return validate(given, model, f"driver_settings.{driver}", InvalidSite, context)

    def image(self, name: str) -> ImageSettings:
        """Return an image's settings with the user for logins to its guests.

        The user is the one of the settings, else the first of rocky, ubuntu, centos, debian, fedora,
        freebsd and openbsd that the image's name contains, else root.
        """
        settings = self.images.get(name, ImageSettings())
        return settings.model_copy(update={"user": settings.user or _usual_user(name)})

    def node_user(self, name: str) -> str:
        """Return the user for logins to bare-metal nodes with an image, derived as for :meth:`image`."""
        settings = self.ironic.images.get(name)
        return (settings and settings.user) or _usual_user(name)

    def host(self, name: str) -> Host:
        """Return a worker by its name.

        :raises NotFound: if the site has no such worker.
        """
        if name not in self.hosts:
            raise NotFound(
                f"no host {name!r}", where="site.yaml: hosts", why=f"known: {', '.join(self.hosts)}"
            )
        return self.hosts[name]

    def passes_devices(self, name: str) -> bool:
        """Return whether a worker has devices for VMs: allowed ones, or in-memory ones."""
        fake = self.fake.hosts.get(name, FakeHostSettings())
        return self.serves_vms and bool(self.host(name).devices or fake.gpus or fake.vfs)


def load_site(path: Path | str) -> Site:
    """Read a site's configuration. The files that it names are relative to it.

    :raises InvalidSite: if it cannot be read, or is invalid; the message names file, line and field.
    """
    from fabric_direct.documents import load  # noqa: PLC0415 - yaml is not needed to import this

    path = Path(path)
    return load(path, _site_of, InvalidSite, {FOLDER: path.absolute().parent})


def _site_of(document: Any) -> type[Site]:
    """Return the model of a site.

    :raises ValueError: if the document is a sliver.
    """
    if isinstance(document, dict) and {"id", "name"} <= document.keys() and "site" not in document:
        raise ValueError("is a sliver; give it to create, and name the site by --site")
    return Site
