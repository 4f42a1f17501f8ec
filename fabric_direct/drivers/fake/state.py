"""The things that the fake drivers of one host share: servers, networks, devices, guests."""

from dataclasses import dataclass, field

from fabric_direct.drivers.contract import (
    BareMetalNode,
    DeviceRecord,
    HostCapacity,
    HostDevice,
    Plug,
    PluggedDevice,
    Port,
    Server,
    VfSettings,
    Volume,
)
from fabric_direct.drivers.fake import hardware
from fabric_direct.drivers.fake.changes import Listeners
from fabric_direct.drivers.fake.inside import GuestState
from fabric_direct.model import PciAddress
from fabric_direct.model.networks import NetworkSliver
from fabric_direct.model.p4_switches import Switch
from fabric_direct.model.services import NetworkService
from fabric_direct.site.config import FakeHostSettings

Key = tuple[str, str]
"""Sliver and component."""


@dataclass
class SubstrateState:
    """The things of one host in memory."""

    capacity: HostCapacity = field(default_factory=lambda: hardware.capacity(FakeHostSettings()))
    traits: frozenset[str] = frozenset()
    images: set[str] | None = None
    """Names of the images that are there; None has those of the site."""
    foreign: set[str] = field(default_factory=set)
    """Names of servers and networks that are there without this site's stamp."""
    renamed: dict[str, str | None] = field(default_factory=dict)
    """Domains that others have renamed, or removed (None), by sliver."""
    intruders: dict[str, tuple[PciAddress, ...]] = field(default_factory=dict)
    """Functions that others have added to domains, by sliver."""
    servers: dict[str, Server] = field(default_factory=dict)
    ports: dict[Key, Port] = field(default_factory=dict)
    plugs: dict[Key, Plug] = field(default_factory=dict)
    """NICs of servers whose ports other slivers hold, by holder and component."""
    networks: dict[str, NetworkSliver] = field(default_factory=dict)
    """Networks that are slivers of their own, by the sliver's id."""
    services: dict[str, NetworkService] = field(default_factory=dict)
    """Other network services as they are, by the sliver's id."""
    service_stamps: dict[str, NetworkService] = field(default_factory=dict)
    """What they should be."""
    switches: dict[str, Switch] = field(default_factory=dict)
    """P4 switches, by the sliver that has one."""
    bare_metal: dict[str, BareMetalNode] = field(default_factory=dict)
    """Bare-metal nodes by name."""
    dirty_nodes: set[str] = field(default_factory=set)
    """Names of those that cannot be cleaned."""
    unused: set[str] = field(default_factory=set)
    """Networks that were left without a user."""
    volumes: dict[Key, Volume] = field(default_factory=dict)
    existing: dict[str, Volume] = field(default_factory=dict)
    """Volumes that are not ours, by name."""
    devices: dict[PciAddress, HostDevice] = field(default_factory=dict)
    plugged: dict[str, tuple[PluggedDevice, ...]] = field(default_factory=dict)
    domains: dict[str, str] = field(default_factory=dict)
    """UUIDs of the domains of a cloud's servers that devices were passed through to, by sliver."""
    records: dict[PciAddress, DeviceRecord] = field(default_factory=dict)
    """Of devices that are not clean yet."""
    dirty: set[PciAddress] = field(default_factory=set)
    """Devices that cannot be cleaned."""
    pending: set[str] = field(default_factory=set)
    """Slivers with a device that waits for a power cycle."""
    root_ports: int = 8
    """Number of devices that fit into a server."""
    uplinks: dict[str, str] = field(default_factory=dict)
    """Bridge mode by link."""
    vfs: dict[str, list[VfSettings]] = field(default_factory=dict)
    listeners: Listeners = field(default_factory=Listeners)
    """Who listens for changes of servers and domains."""
    uplink_listeners: Listeners = field(default_factory=Listeners)
    """Who listens for changes of uplinks."""
    files: dict[str, bytes] = field(default_factory=dict)
    inside: dict[str, GuestState] = field(default_factory=dict)
    """What guests have, by sliver."""
    keys: dict[str, dict[str, str]] = field(default_factory=dict)
    """Authorized keys of each sliver's guest: the whole line by the key itself."""
    host_keys: set[str] = field(default_factory=set)
    """Addresses at which a host key is pinned."""
    pins: dict[str, dict[int, int]] = field(default_factory=dict)
    nodes: dict[str, frozenset[int]] = field(default_factory=dict)
