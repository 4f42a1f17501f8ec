"""A site's configuration: ``site.yaml`` as typed values.

What is refused says the file, the line and the field. JSON Schema for editors:
``fabric-direct schema site``.
"""

import os
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from fabric_direct.errors import InvalidSite, NotFound
from fabric_direct.model import AUTO, Frozen, LinkName, Name, PciAddress, SshPublicKey, Trait
from fabric_direct.networks import SiteNetwork

DriverName = Name
# Whose cloud images let a user in that is called like the distribution.
_DISTRIBUTIONS = ("rocky", "ubuntu", "centos", "debian", "fedora")


def _ssh_address(text: str) -> str:
    parts = urlsplit(text)
    plain = not (parts.password or parts.path.strip("/") or parts.query or parts.fragment)
    if parts.scheme != "ssh" or not parts.hostname or not plain:
        raise ValueError("must be ssh://[user@]host[:port]")
    _ = parts.port  # a ValueError if it is none
    return text


SshAddress = Annotated[
    str, AfterValidator(_ssh_address), Field(examples=["ssh://root@worker1", "ssh://root@[::1]:22"])
]


class UsbId(Frozen):
    """USB devices by their ids, as ``lsusb`` prints them."""

    vendor: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{4}$")]
    product: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{4}$")]


class UsbPort(Frozen):
    """A USB device by where it is plugged in."""

    bus: Annotated[int, Field(ge=1, le=255)]
    port: Annotated[str, StringConstraints(pattern=r"^[0-9]+(\.[0-9]+)*$")]
    """Port, and those of the hubs before it: ``1.4``."""


class AllowedDevice(Frozen):
    """One entry of the allow-list: only these devices may ever be passed through."""

    type: Literal["GPU", "SmartNIC", "SharedNIC", "FPGA", "NVME"]
    model: Name | None = None
    bdf: PciAddress | None = None
    """A PCI function."""
    uplink: LinkName | None = None
    """A NIC, all of whose VFs are meant."""
    vepa: bool = False
    """Whether the uplink leaves the switching between its VFs to the switch behind it (VEPA)."""
    trust: bool = False
    """Whether the uplink's VFs may change their MAC and be promiscuous."""
    spoof_check: bool = True
    """Whether the uplink drops what its VFs send with another MAC or VLAN than theirs."""
    usb: tuple[UsbId | UsbPort, ...] = ()
    """USB devices that go with it: the JTAG of an FPGA."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.bdf is None) == (self.uplink is None):
            raise ValueError("needs exactly one of 'bdf' and 'uplink'")
        return self


class Host(Frozen):
    """A worker."""

    libvirt: str = "qemu:///system"
    """libvirt's URI of the host: ``qemu:///system``, ``qemu+ssh://…``, ``qemu+tls://…`` or
    ``qemu+tcp://…``."""
    ssh: SshAddress | None = None
    """``ssh://[user@]host[:port]``, for what only a program there can do, and its netlink; this machine
    if absent."""
    ssh_key: Path | None = None
    """Private key to log in with; an agent's or the user's own (``~/.ssh``) if absent."""
    host_key: SshPublicKey | None = None
    """The host's SSH key, which is then the only one trusted; ``<state_dir>/known_hosts`` and the
    user's and system's known_hosts are asked if absent."""
    virt_type: Literal["auto", "kvm", "qemu"] = "auto"
    """``auto`` takes KVM where the host offers it."""
    devices: tuple[AllowedDevice, ...] = ()
    maintenance: str | None = None
    """Why nothing new shall be placed here; what is there stays. In service if absent."""
    traits: tuple[Trait, ...] = ()
    """What placement may ask for and no API tells, as os-traits names it: ``CUSTOM_…``."""


class ImageSettings(Frozen):
    """An image that slivers may name."""

    user: Name | None = None
    """The user that logs in to its guests; by the distribution in the image's name if absent."""
    path: Path | None = None
    """File on the host (libvirt); OpenStack finds its images by name."""
    architecture: Name | None = None
    """Of the machines that it runs on: ``x86_64``; any if absent. OpenStack's images say it
    themselves."""


class OpenStackSettings(Frozen):
    """Which cloud, and how servers are made in it."""

    cloud: Name
    """An entry of clouds.yaml."""
    clouds_file: Path | None = None
    """clouds.yaml; looked for where openstacksdk does (``OS_CLIENT_CONFIG_FILE``,
    ``~/.config/openstack``, ``/etc/openstack``) if absent."""
    external_network: Name | None = None
    """Where floating IPs come from, and what routers are connected with."""
    security_groups: tuple[Name, ...] = ()
    """Of ports with port security; the project's default group if none is given."""
    key_name: Name | None = None
    """A key pair of the cloud that is let into each server beside the sliver's own keys."""
    config_drive: bool = False
    """Whether each server has a config drive; one with a NIC on a network without DHCP has it anyway."""
    make_flavors: bool = False
    """Whether a flavor of just the sliver's capacities is made where none has them; that needs an
    administrator."""
    volume_type: Name | None = None
    """Of the volumes that are made; the cloud's default if absent."""


class GuestSettings(Frozen):
    """How guests are reached."""

    ssh_key: Path | None = None
    """Private key of the site's own that is let into each guest, for ``guest: ssh``."""
    known_hosts: Path | None = None
    """Pinned host keys; ``<state_dir>/known_hosts`` if absent."""


class Limits(Frozen):
    """How long things may take, in seconds. An operation's limit includes all of its calls."""

    call: Annotated[float, Field(gt=0)] = 60.0
    """One call of an API."""
    create: Annotated[float, Field(gt=0)] = 900.0
    modify: Annotated[float, Field(gt=0)] = 600.0
    delete: Annotated[float, Field(gt=0)] = 300.0
    probe: Annotated[float, Field(gt=0)] = 60.0
    poa: Annotated[float, Field(gt=0)] = 300.0
    undo: Annotated[float, Field(gt=0)] = 180.0
    """Taking back what a failed operation made, on top of its own limit."""
    guest_boot: Annotated[float, Field(gt=0)] = 300.0
    """Until a new guest answers."""
    guest_devices: Annotated[float, Field(gt=0)] = 60.0
    """Until a guest that has booted sees its devices, plugging takes one or two each; then it is
    restarted."""
    detach: Annotated[float, Field(gt=0)] = 160.0
    """Until a guest lets go of a device: 8 × 20 s, as in Nova."""
    clean: Annotated[float, Field(gt=0)] = 600.0
    """Erasing one drive, or resetting one device."""
    busy: Annotated[float, Field(ge=0)] = 30.0
    """Waiting for another process that works on the same sliver."""


class ActorSettings(Frozen):
    """What the handlers of the FABRIC AM actor need to know beside its slivers."""

    management_network: Name | None = None
    """Network of each VM's first NIC, by which people reach it; the cloud's or one named here."""
    floating_ip: bool | None = None
    """Whether that NIC has a floating IP, unless the sliver declines; if absent, where the site has a
    cloud. The management address is otherwise its global IPv6 address, or else its IPv4 one."""
    max_flavor: Annotated[str, StringConstraints(pattern=r"^fabric\.c\d+\.m\d+\.d\d+$")] | None = (
        None
    )
    """The largest size of a VM: what asks for more gets this."""
    network_prefix: Name = "dataplane"
    """L2Bridge services use the network ``<prefix>-<vlan>``."""
    limit: Annotated[float, Field(gt=0)] = 1200.0
    """Seconds after which the actor gives an operation up; each ends before, with what it takes back."""


class AllocationRatios(Frozen):
    """How much of what a host has may be promised. Nova's own ratios count for its hosts."""

    cpu: Annotated[float, Field(gt=0, le=64)] = 1.0
    ram: Annotated[float, Field(gt=0, le=64)] = 1.0
    disk: Annotated[float, Field(gt=0, le=64)] = 1.0


class PlacementSettings(Frozen):
    """How hosts are chosen where slivers leave them open."""

    allocation: AllocationRatios = AllocationRatios()
    weights: dict[Name, Annotated[int, Field(ge=0, le=1_000_000)]] = {}
    """Cost to weight; those that are not named have their own. 0 leaves a cost out."""
    without: tuple[Name, ...] = ()
    """Filters that are not asked."""
    retries: Annotated[int, Field(ge=0, le=100)] = 2
    """How many other hosts are tried after one that refuses."""


class TlsSettings(Frozen):
    """With what a zone shows who it is."""

    certificate: Path
    """PEM, with the chain above it."""
    key: Path
    """PEM."""


class ChildZone(Frozen):
    """A zone below this one."""

    url: Annotated[str, StringConstraints(pattern=r"^https?://[^/?#@]+/?$")]
    """Where it listens."""
    token_file: Path | None = None
    """The bearer token to show it, on the file's first line."""
    ca_file: Path | None = None
    """PEM: who may have signed its certificate; the system's own authorities if absent."""


class ZoneSettings(Frozen):
    """The site as a zone: where it listens, who may ask, and which zones are below it."""

    name: Name | None = None
    """As other zones see it; the site's if absent."""
    listen: Annotated[
        str, StringConstraints(pattern=r"^(\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+):\d{1,5}$")
    ] = "127.0.0.1:8750"
    """Address and port."""
    tls: TlsSettings | None = None
    """Must be given where it does not listen on a loopback address."""
    token_file: Path | None = None
    """Bearer tokens that are let in, one on each line; must be given where it does not listen on a
    loopback address."""
    own_hosts: bool = True
    """Whether it offers the site's own hosts, beside those of its children."""
    children: dict[Name, ChildZone] = {}
    """By the names that they have here."""
    deadline: Annotated[float, Field(gt=0, le=600)] = 10.0
    """Seconds for a selection, where who asks gives none."""
    offer_lifetime: Annotated[float, Field(gt=0, le=86_400)] = 120.0
    """Seconds for which an offer may be taken up."""
    refresh: Annotated[float, Field(gt=0, le=3600)] = 10.0
    """Seconds between looks at a child's capabilities; after three without an answer it is not asked."""


class FakeHost(Frozen):
    """A host in memory."""

    cores: Annotated[int, Field(ge=1)] = 64
    ram: Annotated[int, Field(ge=1)] = 256
    """GiB."""
    disk: Annotated[int, Field(ge=1)] = 4096
    """GiB."""
    traits: tuple[Trait, ...] = ()
    gpus: Annotated[int, Field(ge=0, le=16)] = 0
    """How many GPUs of the model A30 it has."""
    vfs: Annotated[int, Field(ge=0, le=64)] = 0
    """How many VFs the uplink ``ens1`` has, which is in VEPA."""


class FakeSettings(Frozen):
    """How the in-memory drivers behave."""

    delay: Annotated[float, Field(ge=0)] = 0.0
    """Seconds that each call takes."""
    hosts: dict[Name, FakeHost] = {}
    """What the hosts are; one that is not named has what a host in memory usually has."""


def _default_state_dir() -> Path:
    home = os.environ.get("XDG_STATE_HOME", "~/.local/state")
    return Path(
        "/var/lib/fabric-direct" if os.geteuid() == 0 else f"{home}/fabric-direct"
    ).expanduser()


class Site(Frozen):
    """A site: its hosts, networks, images, and which driver serves which resource type."""

    site: Name
    """Name of the site."""
    state_dir: Path = Field(default_factory=_default_state_dir)
    """Where the journal, the address pools and pinned host keys are kept."""
    drivers: dict[Name, DriverName] = {}
    """Resource type, as ``Type_Model`` or ``Type``, to driver; libvirt's family if absent."""
    openstack: OpenStackSettings | None = None
    guest: DriverName = Field(
        default_factory=lambda site: "ssh" if site.get("openstack") else "agent"
    )
    """Driver that looks into guests: ``agent`` (QEMU guest agent, by the libvirt of the host), ``ssh``,
    or ``none``; ``agent`` if absent, with a cloud ``ssh``."""
    hosts: Annotated[dict[Name, Host], Field(min_length=1)] = Field(
        default_factory=lambda site: {} if site.get("openstack") else {"localhost": Host()}
    )
    """Workers by name; this machine if absent, with a cloud none: then the cloud alone knows them."""
    images: dict[Name, ImageSettings] = {}
    networks: dict[Name, SiteNetwork] = {}
    guest_access: GuestSettings = GuestSettings()
    actor: ActorSettings = ActorSettings()
    placement: PlacementSettings = PlacementSettings()
    zone: ZoneSettings = ZoneSettings()
    limits: Limits = Limits()
    volume_pool: Path | None = None
    """Directory on the hosts for disks and volumes; ``<state_dir>/volumes`` if absent."""
    fake: FakeSettings = FakeSettings()

    @model_validator(mode="after")
    def _no_overlap(self) -> Self:
        seen: list[tuple[str, IPv4Network | IPv6Network]] = []
        for name, network in self.networks.items():
            for block in network.blocks():
                clash = next((n for n, other in seen if _overlap(block, other)), None)
                if clash:
                    raise ValueError(f"networks: {name} overlaps with {clash}")
                seen.append((name, block))
        return self

    @model_validator(mode="after")
    def _no_host_called_auto(self) -> Self:
        if AUTO in self.hosts:
            raise ValueError(f"hosts: none can be called {AUTO!r}, which leaves the choice open")
        return self

    @property
    def zone_name(self) -> str:
        """What the site is called as a zone."""
        return self.zone.name or self.site

    def driver_for(self, resource_type: str, model: str | None = None) -> str | None:
        """Return the driver for ``Type_Model`` or else ``Type``, or None if the site names none."""
        return self.drivers.get(f"{resource_type}_{model}", self.drivers.get(resource_type))

    def image(self, name: str) -> ImageSettings:
        """Return an image's settings with the user that logs in to its guests.

        It is the one that the site names, else the first of rocky, ubuntu, centos, debian and fedora
        that the image's name contains, else root.
        """
        settings = self.images.get(name, ImageSettings())
        usual = next((user for user in _DISTRIBUTIONS if user in name), "root")
        return settings.model_copy(update={"user": settings.user or usual})

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
        """Return whether a worker has devices to pass through: allowed ones, or some in memory."""
        fake = self.fake.hosts.get(name, FakeHost())
        return bool(self.host(name).devices or fake.gpus or fake.vfs)


def _overlap(one: IPv4Network | IPv6Network, other: IPv4Network | IPv6Network) -> bool:
    if isinstance(one, IPv4Network):
        return isinstance(other, IPv4Network) and one.overlaps(other)
    return isinstance(other, IPv6Network) and one.overlaps(other)


def load_site(path: Path) -> Site:
    """Read a site's configuration.

    :raises InvalidSite: if it cannot be read, parsed or validated; the message names file, line, field.
    """
    from fabric_direct.documents import load  # noqa: PLC0415 - yaml is not needed to import this

    return load(path, Site, InvalidSite)
