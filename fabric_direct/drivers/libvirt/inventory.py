"""The PCI functions of a host, by libvirt's node devices, and which of them may be passed through."""

import re
from collections.abc import Iterable
from typing import NamedTuple
from xml.etree import ElementTree

import libvirt

from fabric_direct.config import AllowedDevice
from fabric_direct.drivers.base import HostDevice
from fabric_direct.drivers.libvirt.claims import claims, pci_address, read_domains
from fabric_direct.model import PciAddress


class Relatives(NamedTuple):
    """What goes with a PCI function: the one that it is a part of, and its own parts."""

    physical: tuple[PciAddress, ...]
    """The PF, if it is a VF."""
    virtual: tuple[PciAddress, ...]
    """The VFs, if it is a PF."""


def host_devices(
    connection: libvirt.virConnect, allowed: Iterable[AllowedDevice]
) -> tuple[HostDevice, ...]:
    """Return the PCI functions of the host, by address, with their owners.

    :param allowed: the host's entries in the allow-list.
    :raises libvirt.libvirtError: if libvirt does not answer.
    """
    owners = {claim.address: claim.owner for claim in claims(read_domains(connection))}
    types = allow_list(connection, allowed)
    kind = libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_PCI_DEV
    devices = [_read(device) for device in connection.listAllDevices(kind)]
    found = [_host_device(device, owners, types) for device in devices]
    return tuple(sorted(found, key=lambda device: device.address))


def find_function(
    connection: libvirt.virConnect, address: PciAddress
) -> ElementTree.Element | None:
    """Return the ``<device>`` of a PCI function, or None if the host has none there.

    :raises libvirt.libvirtError: if libvirt does not answer.
    """
    name = "pci_" + re.sub(r"\W", "_", str(address))
    try:
        return _read(connection.nodeDeviceLookupByName(name))
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_NODE_DEVICE:
            return None
        raise


def relatives(connection: libvirt.virConnect, address: PciAddress) -> Relatives:
    """Return the PF and the VFs of a PCI function; none if it is not there.

    :raises libvirt.libvirtError: if libvirt does not answer.
    """
    function = find_function(connection, address)
    if function is None:
        return Relatives((), ())
    physical = function.iterfind("capability/capability[@type='phys_function']/address")
    return Relatives(tuple(pci_address(pf) for pf in physical), _vfs_in(function))


def allow_list(
    connection: libvirt.virConnect, allowed: Iterable[AllowedDevice]
) -> dict[PciAddress, AllowedDevice]:
    """Return the functions that may be passed through, each with the entry that allows it.

    An entry with an uplink stands for the VFs that its NIC has now.

    :raises libvirt.libvirtError: if libvirt does not answer.
    """
    entries: dict[PciAddress, AllowedDevice] = {}
    for entry in allowed:
        functions = (entry.bdf,) if entry.bdf else _vfs_of(connection, entry.uplink or "")
        entries.update(dict.fromkeys(functions, entry))
    return entries


def _vfs_of(connection: libvirt.virConnect, uplink: str) -> tuple[PciAddress, ...]:
    kind = libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_NET
    # libvirt names them net_<link>_<mac>, with a _ for all that is no letter or digit.
    prefix = f"net_{re.sub('[^A-Za-z0-9]', '_', uplink)}_"
    for device in connection.listAllDevices(kind):
        if device.name().startswith(prefix):
            nic = _read(device)
            if nic.findtext("capability/interface") == uplink:
                parent = nic.findtext("parent", "")
                return _vfs_in(_read(connection.nodeDeviceLookupByName(parent)))
    return ()


def _vfs_in(function: ElementTree.Element) -> tuple[PciAddress, ...]:
    found = function.iterfind("capability/capability[@type='virt_functions']/address")
    return tuple(pci_address(address) for address in found)


def _read(device: libvirt.virNodeDevice) -> ElementTree.Element:
    return ElementTree.fromstring(device.XMLDesc(0))


def _host_device(
    device: ElementTree.Element,
    owners: dict[PciAddress, str],
    types: dict[PciAddress, AllowedDevice],
) -> HostDevice:
    address = _address_of(device)
    entry = types.get(address)
    return HostDevice(
        address,
        vendor=_id(device, "vendor"),
        product=_id(device, "product"),
        label=_label(device),
        driver=device.findtext("driver/name"),
        iommu_group=_number(device, "iommuGroup", "number"),
        numa_node=_number(device, "numa", "node"),
        allowed=entry is not None,
        type=entry.type if entry else None,
        owner=owners.get(address),
    )


def _address_of(device: ElementTree.Element) -> PciAddress:
    names = ("domain", "bus", "slot", "function")
    domain, bus, slot, function = (int(device.findtext(f"capability/{n}", "0")) for n in names)
    return PciAddress(domain, bus, slot, function)


def _id(device: ElementTree.Element, what: str) -> str:
    element = device.find(f"capability/{what}")
    return element.get("id", "").removeprefix("0x") if element is not None else ""


def _label(device: ElementTree.Element) -> str:
    words = (device.findtext(f"capability/{what}") for what in ("vendor", "product"))
    return " ".join(word.strip() for word in words if word)


def _number(device: ElementTree.Element, element: str, attribute: str) -> int | None:
    found = device.find(f"capability/{element}")
    return int(found.get(attribute, "")) if found is not None else None
