"""The attributes that are read of the actor's units and FIM's slivers; their classes are not needed.

Values that FIM does not check are ``object``; :mod:`fabric_direct.actor.fim` checks them.
"""

from collections.abc import Mapping
from typing import Any, Protocol


class Labels(Protocol):
    """``fim.slivers.capacities_labels.Labels``: strings."""

    bdf: object
    mac: object
    vlan: object
    ipv4: object
    ipv4_subnet: object
    ipv6: object
    ipv6_subnet: object
    instance: object
    instance_parent: object
    local_name: object
    device_name: object
    inner_vlan: object
    asn: object
    bgp_key: object
    account_id: object


class Capacities(Protocol):
    """``fim.slivers.capacities_labels.Capacities``: 0 is none."""

    core: int
    ram: int
    disk: int
    bw: int
    burst_size: int
    mtu: int


class CapacityHints(Protocol):
    """``fim.slivers.capacities_labels.CapacityHints``."""

    instance_type: object


class Flags(Protocol):
    """``fim.slivers.capacities_labels.Flags``."""

    auto_config: bool
    auto_mount: bool
    ipv4_management: bool


class Sliver(Protocol):
    """The attributes of all slivers."""

    labels: Labels | None
    label_allocations: Labels | None
    flags: Flags | None

    def get_name(self) -> str | None:
        """Return the name."""

    def get_type(self) -> object:
        """Return a member of an enumeration; its text is the name of the type."""

    def get_model(self) -> str | None:
        """Return the hardware model."""


class InterfaceInfo(Protocol):
    """Interfaces by name."""

    interfaces: Mapping[str, Sliver] | None


class Service(Sliver, Protocol):
    """A network service."""

    interface_info: InterfaceInfo | None


class ServicePort(Sliver, Protocol):
    """An interface of a network service."""

    peer_labels: Labels | None
    capacities: Capacities | None


class Gateway(Protocol):
    """``fim.slivers.gateway.Gateway``."""

    lab: Labels | None


class Route(Protocol):
    """``fim.slivers.path_info.ERO``."""

    def get(self) -> tuple[object, Any]:
        """Return the kind of the route, and of a path the object whose ``get`` has its hops."""


class NetworkService(Service, Protocol):
    """A network service of the network's AM."""

    technology: object
    gateway: Gateway | None
    ero: Route | None
    mirror_port: object
    mirror_vlan: object
    mirror_direction: object


class ServiceInfo(Protocol):
    """Network services by name."""

    network_services: Mapping[str, Service] | None


class Component(Sliver, Protocol):
    """A device, or a volume."""

    network_service_info: ServiceInfo | None


class ComponentInfo(Protocol):
    """Components by name."""

    devices: Mapping[str, Component]


class Node(Sliver, Protocol):
    """A virtual machine."""

    capacity_allocations: Capacities | None
    capacity_hints: CapacityHints | None
    attached_components_info: ComponentInfo | None
    management_ip: object

    def get_image_ref(self) -> str | None:
        """Return the image's name."""

    def get_boot_script(self) -> str | None:
        """Return the script of the first boot."""


class Unit(Protocol):
    """The actor's ``ConfigToken``."""

    def get_sliver(self) -> object:
        """Return the sliver as it is."""

    def get_modified(self) -> object:
        """Return the sliver as it is to become."""

    def get_reservation_id(self) -> object:
        """Return the reservation id; its text is the sliver's id."""

    def get_resource_type(self) -> object:
        """Return the resource type; its text is that of the sliver's type."""

    def get_properties(self) -> Mapping[str, object] | None:
        """Return the slice's properties."""
