"""Binding a PCI function of a host to vfio-pci, and back to the host's own driver, by libvirt.

libvirt does so itself for a managed device, within the domain's lock: one after the other for all
devices of a domain, and never for the other functions of an IOMMU group. Done before, it is done at once
for all of them; libvirt then leaves them where they are when the domain lets go.
"""

import re

import libvirt

from fabric_direct.model import PciAddress

VFIO = "vfio-pci"


def unbind(connection: libvirt.virConnect, address: PciAddress) -> None:
    """Take a function from the host's driver and bind it to vfio-pci.

    :raises libvirt.libvirtError: if libvirt refuses, or there is no such function.
    """
    _node_device(connection, address).detachFlags("vfio", 0)


def bind(connection: libvirt.virConnect, address: PciAddress) -> None:
    """Give a function back to the host's driver.

    :raises libvirt.libvirtError: if libvirt refuses, or there is no such function.
    """
    _node_device(connection, address).reAttach()


def _node_device(connection: libvirt.virConnect, address: PciAddress) -> libvirt.virNodeDevice:
    return connection.nodeDeviceLookupByName("pci_" + re.sub(r"\W", "_", str(address)))
