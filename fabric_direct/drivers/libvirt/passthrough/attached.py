"""The PCI functions that a sliver's domain has by this site's stamp, as read from its XML."""

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from xml.etree import ElementTree

import libvirt

from fabric_direct.drivers.contract import PluggedDevice
from fabric_direct.drivers.libvirt.domains.claims import DomainReading, Taker, address_in
from fabric_direct.drivers.libvirt.domains.lookup import component_of
from fabric_direct.drivers.libvirt.passthrough.pcie_ports import port_of
from fabric_direct.drivers.libvirt.xml import attribute

LIVE, CONFIG = libvirt.VIR_DOMAIN_AFFECT_LIVE, libvirt.VIR_DOMAIN_AFFECT_CONFIG


def plugged_in(own: DomainReading, sliver_id: str) -> dict[int, tuple[PluggedDevice, ...]]:
    """Return the sliver's devices by scope: as defined and, if the domain runs, live."""
    takers = [(taker, component_of(taker.alias, sliver_id)) for taker in own.takers()]
    return {
        scope: tuple(
            _device(own, taker, component)
            for taker, component in takers
            if component and taker.scope == scope
        )
        for scope in own.scopes
    }


def current(plugged: dict[int, tuple[PluggedDevice, ...]]) -> tuple[PluggedDevice, ...]:
    """Return the sliver's devices: live if the domain runs, else as defined."""
    return plugged.get(LIVE, plugged.get(CONFIG, ()))


def is_as(found: PluggedDevice, wanted: PluggedDevice) -> bool:
    """Return whether a device is the wanted one, regardless of its address in the guest and its VLAN.

    The MAC of an adopted VF is not in its domain's XML: it is taken as it is.
    """
    mac = found.mac if found.adopted else wanted.mac
    there = replace(found, guest_address=None, guest_port=None)
    return there == replace(wanted, mac=mac, vlan=found.vlan, adopted=found.adopted)


def defined_otherwise(
    plugged: Mapping[int, tuple[PluggedDevice, ...]], wanted: Iterable[PluggedDevice]
) -> Iterator[tuple[PluggedDevice, PluggedDevice]]:
    """Yield each VF that is defined with another VLAN than wanted: as it is, and as it should be.

    The live XML keeps the VLAN that a VF was plugged in with; its PF tells which it is now.
    """
    defined = {device.alias: device for device in plugged.get(CONFIG, ()) if not device.adopted}
    for device in wanted:
        found = defined.get(device.alias)
        if found and found.vlan != device.vlan:
            yield found, device


def with_vlan(interface: ElementTree.Element, vlan: int | None) -> str:
    """Return the XML of an interface with another VLAN, or none."""
    changed = deepcopy(interface)
    for former in changed.findall("vlan"):
        changed.remove(former)
    if vlan is not None:
        ElementTree.SubElement(ElementTree.SubElement(changed, "vlan"), "tag", id=str(vlan))
    return ElementTree.tostring(changed, encoding="unicode")


def described(device: PluggedDevice) -> str:
    """Return the device's address, MAC and VLAN, for a message."""
    settings = [f"{n} {v}" for n in ("mac", "vlan") if (v := getattr(device, n)) is not None]
    return (
        f"{device.host_address} ({', '.join(settings)})" if settings else str(device.host_address)
    )


def _device(own: DomainReading, taker: Taker, component: str) -> PluggedDevice:
    guest = address_in(taker.element) if taker.scope == LIVE else None
    vlan = attribute(taker.element, "vlan/tag", "id")
    return PluggedDevice(
        component,
        taker.alias,
        taker.address,
        guest_address=guest,
        guest_port=port_of(own.roots[taker.scope], guest) if guest else None,
        mac=attribute(taker.element, "mac", "address"),
        vlan=None if vlan is None else int(vlan),
        adopted=taker.adopted,
    )
