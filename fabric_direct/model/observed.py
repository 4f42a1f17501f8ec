"""Observations: what a sliver really has."""

from enum import StrEnum
from typing import Literal

from fabric_direct.model.base import ComponentId, Frozen
from fabric_direct.model.devices import PciAddress


class State(StrEnum):
    """The observed state of a node."""

    RUNNING = "running"
    STOPPED = "stopped"
    PAUSED = "paused"
    ERROR = "error"
    ABSENT = "absent"


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
