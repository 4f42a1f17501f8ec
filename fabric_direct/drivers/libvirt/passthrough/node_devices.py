"""Binding a PCI function of a host to vfio-pci, and back to the host's own driver, by libvirt.

libvirt does this itself for a managed device, while it holds the domain's lock: one device after the
other, and never for the other functions of an IOMMU group. Done beforehand, it runs for all of them in
parallel; libvirt then leaves their drivers alone when the domain releases them.
"""

import re

import libvirt

from fabric_direct.drivers.libvirt.connection.connections import Ignoring
from fabric_direct.model import PciAddress

VFIO = "vfio-pci"


def unbind(connection: libvirt.virConnect, address: PciAddress) -> None:
    """Unbind a function from the host's driver and bind it to vfio-pci.

    :raises libvirt.libvirtError: if libvirt refuses, or there is no such function.
    """
    _node_device(connection, address).detachFlags("vfio", 0)


def bind(connection: libvirt.virConnect, address: PciAddress) -> None:
    """Bind a function to the host's driver again.

    :raises libvirt.libvirtError: if libvirt refuses, or there is no such function.
    """
    _node_device(connection, address).reAttach()


def is_known(connection: libvirt.virConnect, address: PciAddress) -> bool:
    """Return whether libvirt lists a function: udev tells it later than the kernel knows."""
    with Ignoring(libvirt.VIR_ERR_NO_NODE_DEVICE):
        _node_device(connection, address)
        return True
    return False


def _node_device(connection: libvirt.virConnect, address: PciAddress) -> libvirt.virNodeDevice:
    return connection.nodeDeviceLookupByName("pci_" + re.sub(r"\W", "_", str(address)))
