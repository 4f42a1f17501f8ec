"""libvirt's bare calls for devices, as the drivers make them and without what the drivers add."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from xml.etree import ElementTree

import libvirt

LIVE, CONFIG = libvirt.VIR_DOMAIN_AFFECT_LIVE, libvirt.VIR_DOMAIN_AFFECT_CONFIG
BOTH = LIVE | CONFIG
PATIENCE = 300.0
"""Seconds for what an emulated guest on an emulated worker does."""


def parts(address: str) -> str:
    """The attributes of an ``<address>``."""
    domain, bus, rest = address.split(":")
    slot, function = rest.split(".")
    return f"domain='0x{domain}' bus='0x{bus}' slot='0x{slot}' function='0x{function}'"


def hostdev(address: str, *, alias: str = "", managed: str = "yes", at: str = "") -> str:
    """A PCI function passed through; ``at`` is its ``<address>`` in the guest."""
    named = f"<alias name='{alias}'/>" if alias else ""
    return (
        f"<hostdev mode='subsystem' type='pci' managed='{managed}'>"
        f"<source><address {parts(address)}/></source>{named}{at}</hostdev>"
    )


def interface(address: str, mac: str, vlan: int) -> str:
    """A VF passed through as a NIC."""
    return (
        "<interface type='hostdev' managed='yes'>"
        f"<source><address type='pci' {parts(address)}/></source>"
        f"<mac address='{mac}'/><vlan><tag id='{vlan}'/></vlan></interface>"
    )


def blank(name: str, *, ports: int = 4, devices: str = "") -> str:
    """A domain without an operating system: it lets go of nothing."""
    root_ports = "<controller type='pci' model='pcie-root-port'/>" * ports
    return (
        f"<domain type='kvm'><name>fdtest-{name}</name><memory unit='MiB'>64</memory>"
        "<os><type arch='x86_64' machine='q35'>hvm</type></os><features><acpi/></features><devices>"
        f"<controller type='pci' model='pcie-root'/>{root_ports}"
        f"<controller type='usb' model='none'/><memballoon model='none'/>{devices}</devices></domain>"
    )


def sources(domain: libvirt.virDomain, *, live: bool = True) -> set[str]:
    """The host's PCI functions that a domain has, now or by its definition."""
    xml = domain.XMLDesc(0 if live else libvirt.VIR_DOMAIN_XML_INACTIVE)
    root = ElementTree.fromstring(xml)
    found = (
        *root.iterfind(".//hostdev/source/address"),
        *root.iterfind(".//interface/source/address"),
    )
    return {_address(element) for element in found}


def _address(element: ElementTree.Element) -> str:
    domain, bus, slot, function = (
        int(element.attrib[key], 16) for key in ("domain", "bus", "slot", "function")
    )
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"


@contextmanager
def removals(domain: libvirt.virDomain) -> Iterator[list[str]]:
    """The aliases of the devices that a guest has let go of, as libvirt's events say."""
    heard: list[str] = []

    def hear(_connection: Any, _domain: Any, alias: str, _opaque: Any) -> None:
        heard.append(alias)

    connection = domain.connect()
    event = libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_REMOVED
    number = connection.domainEventRegisterAny(domain, event, hear, None)
    yield heard
    connection.domainEventDeregisterAny(number)


def wait_until(true: Callable[[], Any], what: str) -> None:
    """Return when something is so.

    :raises AssertionError: if it was not for a long time.
    """
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, f"waited in vain: {what}"
        threading.Event().wait(0.3)
