"""The templates for devices, against libvirt's own schema and with hostile values."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from jinja2 import UndefinedError
from lxml import etree

from fabric_direct.drivers.contract import PluggedDevice
from fabric_direct.drivers.libvirt.xml import render
from fabric_direct.model import PciAddress

SCHEMA = Path("/usr/share/libvirt/schemas/domain.rng")
ALIAS = "ua-sliver_1-gpu-0"
ADDRESSES = tuple(map(PciAddress.parse, ("0000:25:00.0", "ffff:ff:1f.7", "00:00.1")))
HOSTILE = ("'/><evil/>", '"&<>', "</hostdev>", "{{ 7 * 7 }}", "]]>", "ä\t")

DOMAIN = """
<domain type='qemu'>
  <name>x</name><memory>65536</memory><os><type>hvm</type></os><devices>{}</devices>
</domain>
"""


@cache
def schema() -> etree.RelaxNG:
    if not SCHEMA.exists():
        pytest.skip(f"needs libvirt's schemas (Debian: libvirt0): {SCHEMA}")
    return etree.RelaxNG(etree.parse(SCHEMA))


def assert_valid(device: str) -> None:
    schema().assertValid(etree.fromstring(DOMAIN.format(device)))


def hostdev(
    address: PciAddress = ADDRESSES[0], alias: str = ALIAS, slot: PciAddress | None = None
) -> str:
    return render("hostdev.xml.j2", device=PluggedDevice("", alias, address), slot=slot)


def interface(
    address: PciAddress = ADDRESSES[0],
    alias: str = ALIAS,
    mac: str | None = None,
    vlan: int | None = None,
    slot: PciAddress | None = None,
) -> str:
    device = PluggedDevice("", alias, address, mac=mac, vlan=vlan)
    return render("interface-hostdev.xml.j2", device=device, slot=slot)


def usb_hostdev(
    bus: int | None = None, device: int | None = None, port: int = 1, alias: str = ALIAS
) -> str:
    return render(
        "usb-hostdev.xml.j2",
        vendor="0403",
        product="6011",
        bus=bus,
        device=device,
        alias=alias,
        controller=1,
        port=port,
    )


@pytest.mark.parametrize("address", ADDRESSES, ids=str)
def test_a_hostdev_is_valid_and_names_its_function(address: PciAddress) -> None:
    xml = hostdev(address)

    assert_valid(xml)
    source = etree.fromstring(xml).find("source/address")
    parts = [int(source.get(name), 16) for name in ("domain", "bus", "slot", "function")]
    assert PciAddress(*parts) == address


@pytest.mark.parametrize("address", ADDRESSES, ids=str)
@pytest.mark.parametrize("mac", [None, "52:54:00:0f:d0:03"])
@pytest.mark.parametrize("vlan", [None, 1, 4094])
def test_an_interface_is_valid_with_and_without_mac_and_vlan(
    address: PciAddress, mac: str | None, vlan: int | None
) -> None:
    xml = interface(address, mac=mac, vlan=vlan)

    assert_valid(xml)
    root = etree.fromstring(xml)
    assert [e.get("address") for e in root.findall("mac")] == ([mac] if mac else [])
    assert [e.get("id") for e in root.findall("vlan/tag")] == ([str(vlan)] if vlan else [])


def test_devices_are_managed_by_libvirt() -> None:
    assert all(etree.fromstring(xml).get("managed") == "yes" for xml in (hostdev(), interface()))


@pytest.mark.parametrize("make", [hostdev, interface])
def test_the_first_function_of_a_slot_says_that_others_follow(make: Callable[..., str]) -> None:
    found = []
    for function in (0, 1, 7):
        xml = make(slot=PciAddress(0, 0x1F, 0, function))
        assert_valid(xml)
        found.append(etree.fromstring(xml).find("address").attrib)

    common = {"type": "pci", "domain": "0x0000", "bus": "0x1f", "slot": "0x00"}
    assert found == [
        common | {"function": "0x0", "multifunction": "on"},
        common | {"function": "0x1"},
        common | {"function": "0x7"},
    ]


def test_libvirt_finds_the_slot_where_none_is_given() -> None:
    assert all(etree.fromstring(xml).find("address") is None for xml in (hostdev(), interface()))


@pytest.mark.parametrize("number", [None, 1, 127])
def test_a_usb_device_is_valid_by_its_ids_with_and_without_its_number(number: int | None) -> None:
    xml = usb_hostdev(bus=number and 2, device=number, port=4)

    assert_valid(xml)
    root = etree.fromstring(xml)
    assert root.find("source/vendor").get("id") == "0x0403"
    assert root.find("source/product").get("id") == "0x6011"
    named = [(e.get("bus"), e.get("device")) for e in root.findall("source/address")]
    assert named == ([("2", str(number))] if number else [])
    assert root.find("address").attrib == {"type": "usb", "bus": "1", "port": "4"}


def test_a_usb_controller_is_valid_and_libvirt_gives_it_its_number() -> None:
    xml = render("usb-controller.xml.j2", alias=ALIAS)

    assert_valid(xml)
    assert etree.fromstring(xml).attrib == {"type": "usb", "model": "nec-xhci"}
    assert etree.fromstring(xml).find("alias").get("name") == ALIAS


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_value_stays_a_value(text: str) -> None:
    for xml in (hostdev(alias=text), interface(alias=text, mac=text)):
        root = etree.fromstring(xml)
        assert root.find("alias").get("name") == text.replace("\t", " ")
        assert not root.findall(".//evil")
    assert root.find("mac").get("address") == text.replace("\t", " ")
    for xml in (usb_hostdev(alias=text), render("usb-controller.xml.j2", alias=text)):
        assert etree.fromstring(xml).find("alias").get("name") == text.replace("\t", " ")


def test_the_schema_refuses_what_is_no_alias_of_ours() -> None:
    schema()
    with pytest.raises(etree.DocumentInvalid):
        assert_valid(hostdev(alias="'/><evil/>"))


def test_a_value_that_is_not_given_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="alias"):
        render("usb-controller.xml.j2")
