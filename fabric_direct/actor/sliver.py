"""The attributes that are read of the actor's units and FIM's slivers; their classes are not needed.

Values that FIM does not check are ``object``; :mod:`fabric_direct.actor.fim` checks them.
"""

from collections.abc import Mapping
from typing import Any, Protocol


class FimLabels(Protocol):
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


class FimCapacities(Protocol):
    """``fim.slivers.capacities_labels.Capacities``: 0 is none."""

    core: int
    ram: int
    disk: int
    bw: int
    burst_size: int
    mtu: int


class FimCapacityHints(Protocol):
    """``fim.slivers.capacities_labels.CapacityHints``."""

    instance_type: object


class FimFlags(Protocol):
    """``fim.slivers.capacities_labels.Flags``."""

    auto_config: bool
    auto_mount: bool
    ipv4_management: bool


class FimSliver(Protocol):
    """The attributes of all slivers."""

    labels: FimLabels | None
    label_allocations: FimLabels | None
    flags: FimFlags | None

    def get_name(self) -> str | None:
        """Return the name."""

    def get_type(self) -> object:
        """Return a member of an enumeration; its text is the name of the type."""

    def get_model(self) -> str | None:
        """Return the hardware model."""


class FimInterfaceInfo(Protocol):
    """Interfaces by name."""

    interfaces: Mapping[str, FimSliver] | None


class FimService(FimSliver, Protocol):
    """A network service."""

    interface_info: FimInterfaceInfo | None


class FimServicePort(FimSliver, Protocol):
    """An interface of a network service."""

    peer_labels: FimLabels | None
    capacities: FimCapacities | None


class FimGateway(Protocol):
    """``fim.slivers.gateway.Gateway``."""

    lab: FimLabels | None


class FimEro(Protocol):
    """``fim.slivers.path_info.ERO``."""

    def get(self) -> tuple[object, Any]:
        """Return the kind of the route, and of a path the object whose ``get`` has its hops."""


class FimNetworkService(FimService, Protocol):
    """A network service of the network's AM."""

    technology: object
    gateway: FimGateway | None
    ero: FimEro | None
    mirror_port: object
    mirror_vlan: object
    mirror_direction: object


class FimServiceInfo(Protocol):
    """Network services by name."""

    network_services: Mapping[str, FimService] | None


class FimComponent(FimSliver, Protocol):
    """A device, or a volume."""

    network_service_info: FimServiceInfo | None


class FimComponentInfo(Protocol):
    """Components by name."""

    devices: Mapping[str, FimComponent]


class FimNode(FimSliver, Protocol):
    """A virtual machine."""

    capacity_allocations: FimCapacities | None
    capacity_hints: FimCapacityHints | None
    attached_components_info: FimComponentInfo | None
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
