"""The PCI functions that a sliver's domain has by our stamp, as read from its XML."""

from dataclasses import replace

import libvirt

from fabric_direct.drivers.contract import PluggedDevice
from fabric_direct.drivers.libvirt.passthrough.domain_claims import Reading, Taker, address_in
from fabric_direct.drivers.libvirt.passthrough.pcie_ports import port_of
from fabric_direct.drivers.libvirt.servers.lookup import component_of
from fabric_direct.drivers.libvirt.xml import attribute

LIVE, CONFIG = libvirt.VIR_DOMAIN_AFFECT_LIVE, libvirt.VIR_DOMAIN_AFFECT_CONFIG


def plugged_in(own: Reading, sliver_id: str) -> dict[int, tuple[PluggedDevice, ...]]:
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
    """Return whether a device is the wanted one, regardless of its address in the guest.

    MAC and VLAN of an adopted VF are not in its domain's XML: it is taken as it is.
    """
    if found.adopted:
        wanted = replace(wanted, mac=found.mac, vlan=found.vlan, adopted=True)
    return replace(found, guest_address=None, guest_port=None) == wanted


def described(device: PluggedDevice) -> str:
    """Return the device's address, MAC and VLAN, for a message."""
    settings = [f"{n} {v}" for n in ("mac", "vlan") if (v := getattr(device, n)) is not None]
    return (
        f"{device.host_address} ({', '.join(settings)})" if settings else str(device.host_address)
    )


def _device(own: Reading, taker: Taker, component: str) -> PluggedDevice:
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
