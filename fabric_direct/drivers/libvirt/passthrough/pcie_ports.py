"""The root ports of a domain's PCIe topology: which are free, and which one a device is on.

A root port takes one device. libvirt adds no ports while the guest runs, and plugs only function 0 into
a running guest; so several functions of one device get a port each while it runs, and share one from the
next start.
"""

from collections.abc import Iterable, Sequence
from xml.etree import ElementTree

from fabric_direct.drivers.libvirt.domains.claims import address_in, pci_address
from fabric_direct.errors import Unsupported
from fabric_direct.model import PciAddress


def free_ports(root: ElementTree.Element) -> list[int]:
    """Return the indexes of the root ports that nothing is plugged into, as the bus numbers there.

    :param root: a ``<domain>``.
    """
    elements = root.iterfind("devices/*/address[@type='pci']")
    taken = {pci_address(element).bus for element in elements}
    return sorted(index for index in _root_ports(root) if index not in taken)


def port_of(root: ElementTree.Element, address: PciAddress) -> PciAddress | None:
    """Return the address of the root port that a device is on; None if it is on none.

    :param address: the device's address in the domain; its bus is the index of the port's controller.
    """
    return _root_ports(root).get(address.bus)


def one_slot(
    root: ElementTree.Element,
    functions: Sequence[PciAddress],
    taken: Iterable[PciAddress] = (),
    where: str = "",
) -> list[PciAddress]:
    """Return an address in the domain for each function of one device, all in one slot.

    :param taken: addresses that functions of the device have already; the others join them.
    :raises Unsupported: if no root port is free.
    """
    buses = [address.bus for address in taken] or free_ports(root)[:1]
    if not buses:
        raise Unsupported(
            "no free PCIe root port",
            where=where,
            why="each device that is plugged into a guest takes one, and none is added while it runs",
            remedy="detach devices first, or create the node again with all of its components",
        )
    # A device must have a function 0; the functions keep their order, not their numbers.
    return [PciAddress(0, buses[0], 0, number) for number in range(len(functions))]


def _root_ports(root: ElementTree.Element) -> dict[int, PciAddress]:
    ports = root.iterfind("devices/controller[@model='pcie-root-port']")
    return {
        int(port.get("index", "0")): address
        for port in ports
        if (address := address_in(port)) is not None
    }
