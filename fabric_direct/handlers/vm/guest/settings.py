"""The settings that a sliver asks for in its guest."""

from collections.abc import Iterator
from dataclasses import dataclass

from fabric_direct.drivers.contract import HostDrivers
from fabric_direct.errors import InvalidSliver
from fabric_direct.handlers.handler import field_below
from fabric_direct.model import (
    Component,
    Interface,
    NodeSliver,
    SharedNic,
    SmartNic,
    Storage,
    VNic,
)


@dataclass(frozen=True, slots=True)
class GuestNic:
    """One interface of a component that is configured in the guest."""

    component: VNic | SharedNic | SmartNic
    interface: Interface
    number: int = 0
    """Of the component's function that it belongs to."""

    @property
    def label(self) -> str:
        """Return its name, which is unique because a component's id has no dot."""
        several = isinstance(self.component, SmartNic)
        return f"{self.component.id}.{self.number}" if several else self.component.id

    @property
    def vlan(self) -> int | None:
        """Return the VLAN that the guest tags; the host tags a VF's, the network a vNIC's."""
        return self.interface.vlan if isinstance(self.component, SmartNic) else None

    @property
    def addresses(self) -> tuple[str, ...]:
        """Return the addresses that it is given."""
        both = (self.interface.ipv4, self.interface.ipv6)
        return tuple(str(address) for address in both if address)


def nics(sliver: NodeSliver) -> list[GuestNic]:
    """Return the interfaces whose addresses are set in the guest, in the order of the sliver."""
    every = (nic for component in sliver.components for nic in _nics(component))
    return [nic for nic in every if nic.interface.auto_config and nic.addresses]


def mounts(sliver: NodeSliver) -> list[Storage]:
    """Return the volumes that are mounted in the guest."""
    return [storage for storage in sliver.volumes() if storage.mount]


def refuse_settings(drivers: HostDrivers, sliver: NodeSliver) -> None:
    """Raise InvalidSliver unless all settings that the sliver asks for in its guest are possible.

    :raises InvalidSliver: with the field, if the site does not access its guests, or an interface
        belongs to no function of its NIC.
    """
    directories: set[str] = set()
    for number, component in enumerate(sliver.components):
        with field_below(f"components[{number}]"):
            for nic in _nics(component):
                _refuse_nic(drivers, nic)
            if isinstance(component, Storage) and component.mount:
                _refuse_blind(drivers, "mount")
                _refuse_twice(component.mount, directories)


def _refuse_nic(drivers: HostDrivers, nic: GuestNic) -> None:
    if not nic.interface.auto_config:
        return
    several = isinstance(nic.component, SmartNic)
    with field_below(f"interfaces[{nic.number}]" if several else "interface"):
        _refuse_blind(drivers, "auto_config")
        if isinstance(nic.component, SmartNic) and nic.interface.mac is None:
            _refuse_no_function(nic.component, nic.number)


def _refuse_blind(drivers: HostDrivers, field: str) -> None:
    if drivers.guest is None:
        raise InvalidSliver(
            "the guest cannot be configured",
            field=field,
            why="the site does not access its guests (guest: none)",
            remedy="set guest in site.yaml, or omit the field and configure it in the boot script",
        )


def _refuse_no_function(nic: SmartNic, number: int) -> None:
    if number >= len(nic.bdf):
        raise InvalidSliver(
            f"the NIC has only {len(nic.bdf)} functions, one for each interface in order",
            field="auto_config",
            remedy="name the MAC address of the interface",
        )


def _refuse_twice(directory: str, directories: set[str]) -> None:
    if directory in directories:
        raise InvalidSliver(f"another volume is mounted at {directory}", field="mount")
    directories.add(directory)


def _nics(component: Component) -> Iterator[GuestNic]:
    if isinstance(component, VNic | SharedNic):
        yield GuestNic(component, component.interface)
    elif isinstance(component, SmartNic):
        for number, interface in enumerate(component.interfaces):
            yield GuestNic(component, interface, number)
