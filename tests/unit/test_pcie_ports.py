"""Where in a domain devices are plugged in: its free root ports, and one slot for several functions."""

from xml.etree import ElementTree

import pytest

from fabric_direct.drivers.libvirt.passthrough.pcie_ports import free_ports, one_slot, port_of
from fabric_direct.errors import Unsupported
from fabric_direct.model import PciAddress

GPU, AUDIO, USB = map(PciAddress.parse, ("25:00.0", "25:00.1", "25:00.3"))


def address(bus: int, slot: int = 0, function: int = 0) -> str:
    where = f"domain='0x0000' bus='{bus:#04x}' slot='{slot:#04x}' function='{function:#x}'"
    return f"<address type='pci' {where}/>"


def root_port(index: int) -> str:
    """A root port of slot 2 on bus 0, as libvirt writes them: eight functions to a slot."""
    where = address(0, 2 + index // 8, index % 8)
    return f"<controller type='pci' index='{index}' model='pcie-root-port'>{where}</controller>"


def domain(ports: int, *devices: str) -> ElementTree.Element:
    controllers = "<controller type='pci' index='0' model='pcie-root'/>" + "".join(
        root_port(index) for index in range(1, ports + 1)
    )
    return ElementTree.fromstring(
        f"<domain><devices>{controllers}{''.join(devices)}</devices></domain>"
    )


def interface(bus: int) -> str:
    return f"<interface type='network'>{address(bus)}</interface>"


def test_a_root_port_is_free_while_nothing_is_plugged_into_it() -> None:
    assert free_ports(domain(4, interface(1), f"<hostdev>{address(3)}</hostdev>")) == [2, 4]


def test_ports_are_told_by_their_decimal_index_and_devices_by_their_hexadecimal_bus() -> None:
    there = domain(17, *(interface(bus) for bus in range(1, 17)))

    assert free_ports(there) == [17]


def test_a_bridge_below_a_root_port_takes_it() -> None:
    bridge = (
        f"<controller type='pci' index='3' model='pcie-to-pci-bridge'>{address(2)}</controller>"
    )

    assert free_ports(domain(2, bridge, interface(3))) == [1]


def test_what_is_on_no_pci_bus_takes_no_port() -> None:
    serial = "<channel><address type='virtio-serial' controller='0' bus='1' port='1'/></channel>"
    source = f"<hostdev><source>{address(2)}</source></hostdev>"

    assert free_ports(domain(2, serial, source)) == [1, 2]


def test_a_domain_without_root_ports_has_none_free() -> None:
    assert free_ports(domain(0, interface(0))) == []


def test_the_port_of_a_device_is_the_controller_that_its_bus_names() -> None:
    there = domain(9)

    assert port_of(there, PciAddress(0, 9, 0, 0)) == PciAddress(0, 0, 3, 1)
    assert port_of(there, PciAddress(0, 0, 5, 0)) is None


@pytest.mark.parametrize(
    ("functions", "numbers"),
    [((GPU, AUDIO), (0, 1)), ((GPU, AUDIO, USB), (0, 1, 2)), ((AUDIO, USB), (0, 1))],
    ids=["in sequence", "with a gap", "without function 0"],
)
def test_the_functions_of_one_device_share_the_first_free_slot_from_function_0_on(
    functions: tuple[PciAddress, ...], numbers: tuple[int, ...]
) -> None:
    slots = one_slot(domain(3, interface(1)), functions)

    assert slots == [PciAddress(0, 2, 0, number) for number in numbers]


def test_functions_go_where_the_others_of_their_device_are() -> None:
    there = PciAddress(0, 3, 0, 0)

    slots = one_slot(domain(4, f"<hostdev>{address(3)}</hostdev>"), (GPU, AUDIO), taken=(there,))

    assert slots == [there, PciAddress(0, 3, 0, 1)]


def test_a_domain_without_a_free_port_takes_none_and_says_what_can_be_done() -> None:
    with pytest.raises(Unsupported, match=r"^no free PCIe root port") as error:
        one_slot(domain(1, interface(1)), (GPU, AUDIO), where="qemu+ssh://w1/system")

    assert error.value.where == "qemu+ssh://w1/system"
    assert "detach devices first" in error.value.remedy
